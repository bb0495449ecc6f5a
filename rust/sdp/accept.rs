// SPDX-License-Identifier: GPL-2.0

//! A listener's queue of finished connections, and accept().

use kernel::prelude::*;
use kernel::sync::aref::ARef;

use super::sock::{
    SdpSock,
    Want, //
};
use crate::bindings;
use crate::net::errno::{
    ECONNREFUSED,
    ECONNRESET, //
};
use crate::net::sock::{
    intr_errno,
    signal_pending, //
};
use crate::observe::stats::Counter;
use crate::proto::state::State;

/// Connections that are established and wait for accept(), in their order.
pub(crate) struct AcceptQueue {
    ready: KVec<ARef<SdpSock>>,
    /// Requests for which there was no place, in their order, where the peer does not ask again.
    parked: KVec<ARef<SdpSock>>,
    /// The listener takes no more.
    closed: bool,
}

impl AcceptQueue {
    pub(crate) const fn new() -> Self {
        Self {
            ready: KVec::new(),
            parked: KVec::new(),
            closed: true,
        }
    }

    /// Whether accept() would return at once.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    pub(crate) fn open(&mut self) {
        self.closed = false;
    }

    /// Ends the queue; what it holds is the caller's to abort. What is parked ends by itself.
    pub(crate) fn close(&mut self) -> KVec<ARef<SdpSock>> {
        self.closed = true;
        for parked in &self.parked {
            parked.want(Want::Accept);
        }
        core::mem::replace(&mut self.ready, KVec::new())
    }

    fn position(&self, child: &SdpSock) -> Option<usize> {
        self.parked.iter().position(|c| core::ptr::eq(&**c, child))
    }

    /// Gives places that are free to those who are parked.
    fn fill_places(&mut self, listener: &SdpSock) {
        while !self.parked.is_empty() && listener.sk().acceptq_add() {
            if let Ok(child) = self.parked.remove(0) {
                child.want(Want::Accept);
            }
        }
    }
}

/// Requests of a listener that are parked, at most.
const PARKED_MAX: usize = 128;

/// What became of a request for a place.
pub(crate) enum Place {
    Given,
    /// It is parked: when there is a place, or the listener is closed, its worker is asked again.
    Later,
}

/// Takes a place in the backlog for a connection that is being set up.
///
/// # Errors
///
/// `ECONNREFUSED` if nobody listens any more, `ENOMEM` if the backlog is full.
pub(crate) fn reserve(listener: &SdpSock) -> Result {
    let queue = listener.accepts.lock();
    if queue.closed {
        return Err(ECONNREFUSED);
    }
    if !listener.sk().acceptq_add() {
        return Err(ENOMEM);
    }
    Ok(())
}

/// As [`reserve`], for a connection whose peer does not ask again: if the backlog is full, it waits.
///
/// # Errors
///
/// `ECONNREFUSED` if nobody listens any more, `ENOMEM` if too many wait.
pub(crate) fn reserve_or_park(listener: &SdpSock, child: ARef<SdpSock>) -> Result<Place> {
    let mut queue = listener.accepts.lock();
    if queue.closed {
        return Err(ECONNREFUSED);
    }
    if queue.parked.is_empty() && listener.sk().acceptq_add() {
        return Ok(Place::Given);
    }
    if queue.parked.len() >= PARKED_MAX {
        return Err(ENOMEM);
    }
    queue.parked.push(child, GFP_KERNEL)?;
    Ok(Place::Later)
}

/// Whether a connection that was parked has a place now.
///
/// # Errors
///
/// `ECONNREFUSED` if nobody listens any more.
pub(crate) fn place_of(listener: &SdpSock, child: &SdpSock) -> Result<Place> {
    let queue = listener.accepts.lock();
    match queue.position(child) {
        None => Ok(Place::Given),
        Some(_) if queue.closed => Err(ECONNREFUSED),
        Some(_) => Ok(Place::Later),
    }
}

/// Gives the place of a connection back that came to nothing.
pub(crate) fn unreserve(listener: &SdpSock) {
    let mut queue = listener.accepts.lock();
    listener.sk().acceptq_remove();
    queue.fill_places(listener);
}

/// As [`unreserve`], for a connection that may still be parked.
pub(crate) fn unreserve_or_unpark(listener: &SdpSock, child: &SdpSock) {
    let mut queue = listener.accepts.lock();
    let Some(at) = queue.position(child) else {
        drop(queue);
        return unreserve(listener);
    };
    let parked = queue.parked.remove(at);
    drop(queue);
    drop(parked);
}

/// The backlog may have grown.
pub(crate) fn fill_places(listener: &SdpSock) {
    listener.accepts.lock().fill_places(listener);
}

/// Puts an established connection into the listener's queue.
///
/// # Errors
///
/// `ECONNRESET` if the listener was closed meanwhile, `ENOMEM`. The place in the backlog is given
/// back then.
pub(crate) fn push(listener: &SdpSock, child: ARef<SdpSock>) -> Result {
    let mut queue = listener.accepts.lock();
    let result = if queue.closed {
        Err(ECONNRESET)
    } else {
        queue.ready.push(child, GFP_KERNEL).map_err(|_| ENOMEM)
    };
    if result.is_err() {
        listener.sk().acceptq_remove();
        queue.fill_places(listener);
    } else {
        drop(queue);
        // Under the lock: an accept() that saw the queue empty holds it until it waits.
        let _locked = listener.lock();
        listener.sk().wake_reader();
    }
    result
}

/// Takes the oldest connection; waits for one unless `nonblock`.
///
/// # Errors
///
/// `EINVAL` if the socket does not listen, `EAGAIN`, `EINTR` (or a restart).
pub(crate) fn accept(listener: &SdpSock, nonblock: bool) -> Result<ARef<SdpSock>> {
    let sk = listener.sk();
    let mut locked = listener.lock();
    let mut timeo = sk.rcvtimeo(nonblock);
    loop {
        if locked.stream().state != State::Listen {
            return Err(EINVAL);
        }
        if let Some(child) = pop(listener) {
            listener.stats.inc(Counter::Accepted);
            return Ok(child);
        }
        if timeo == 0 {
            return Err(EAGAIN);
        }
        if signal_pending() {
            return Err(intr_errno(timeo));
        }
        timeo = locked.wait_exclusive(timeo);
    }
}

fn pop(listener: &SdpSock) -> Option<ARef<SdpSock>> {
    let mut queue = listener.accepts.lock();
    if queue.ready.is_empty() {
        return None;
    }
    let child = queue.ready.remove(0).ok()?;
    listener.sk().acceptq_remove();
    queue.fill_places(listener);
    Some(child)
}

/// The state of a child for the core's `__inet_accept`.
pub(crate) fn into_raw(child: ARef<SdpSock>) -> *mut bindings::sock {
    ARef::into_raw(child).as_ptr().cast()
}
