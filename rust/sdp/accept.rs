// SPDX-License-Identifier: GPL-2.0

//! A listener's queue of finished connections, and accept().

use kernel::prelude::*;
use kernel::sync::aref::ARef;

use super::sock::SdpSock;
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
    /// The listener takes no more.
    closed: bool,
}

impl AcceptQueue {
    pub(crate) const fn new() -> Self {
        Self {
            ready: KVec::new(),
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

    /// Ends the queue; what it holds is the caller's to abort.
    pub(crate) fn close(&mut self) -> KVec<ARef<SdpSock>> {
        self.closed = true;
        core::mem::replace(&mut self.ready, KVec::new())
    }
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

/// Gives the place of a connection back that came to nothing.
pub(crate) fn unreserve(listener: &SdpSock) {
    let _queue = listener.accepts.lock();
    listener.sk().acceptq_remove();
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
    Some(child)
}

/// The state of a child for the core's `__inet_accept`.
pub(crate) fn into_raw(child: ARef<SdpSock>) -> *mut bindings::sock {
    ARef::into_raw(child).as_ptr().cast()
}
