// SPDX-License-Identifier: GPL-2.0

//! A listener's queue of finished connections, and accept().

use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::time::Instant;

use crate::bindings;
use crate::kern::errno::{
    ECONNREFUSED,
    ECONNRESET, //
};
use crate::proto::state::State;
use crate::sdp::conn::accept_queue::PARKED_MAX;
use crate::sdp::conn::sock::SdpSock;
use crate::stats::counters::Counter;

/// What became of a request for a place.
pub(crate) enum Place {
    Given,
    /// It is parked: when there is a place, or the listener is closed, its worker is asked again.
    Later,
}

/// A place in a listener's backlog that is counted, until a child has it.
pub(crate) struct Reserved<'a>(&'a SdpSock);

impl Reserved<'_> {
    /// Gives the place to a child of the listener.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `ECONNREFUSED` if nobody listens any more.
    pub(crate) fn give(self, child: ARef<SdpSock>) -> Result {
        let listener = self.0;
        let mut queue = listener.accepts.lock();
        if queue.closed {
            return Err(ECONNREFUSED);
        }
        core::mem::forget(self);
        queue.seat(listener.sk(), child)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.accepts.lock();
        self.0.sk().acceptq_remove();
        queue.fill_places(self.0.sk());
    }
}

/// Takes a place in the backlog for a connection that is to be set up: a free one, or that of a
/// half-open connection whose peer has not answered for long. A peer that never answers holds a
/// place for that time only where others want it.
///
/// # Errors
///
/// `ECONNREFUSED` if nobody listens any more, `ENOMEM` if the backlog is full.
pub(crate) fn reserve(listener: &SdpSock) -> Result<Reserved<'_>> {
    let mut queue = listener.accepts.lock();
    if queue.closed {
        return Err(ECONNREFUSED);
    }
    if !listener.sk().acceptq_add() {
        let old = queue.evict().ok_or(ENOMEM)?;
        drop(queue);
        end(listener, &old);
    }
    Ok(Reserved(listener))
}

/// Ends a half-open connection that has lost its place.
fn end(listener: &SdpSock, child: &SdpSock) {
    listener.stats.inc(Counter::EvictedHalfOpen);
    child.start_timer(0);
}

/// As [`reserve`], for a connection whose peer does not ask again: if the backlog is full, it waits behind
/// those that wait already.
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
        queue.seat(listener.sk(), child.clone())?;
        drop(queue);
        return place_of(listener, &child);
    }
    // Even if too many are parked: one of them gets the place of the old one.
    let old = queue.evict();
    let is_parked = if old.is_none() && queue.parked.len() >= PARKED_MAX {
        Err(ENOMEM)
    } else {
        queue.parked.push(child, GFP_KERNEL).map_err(Error::from)
    };
    if old.is_some() {
        listener.sk().acceptq_remove();
        queue.fill_places(listener.sk());
    }
    drop(queue);
    if let Some(old) = old {
        end(listener, &old);
    }
    is_parked.map(|()| Place::Later)
}

/// Whether a connection that has asked for a place has one now. Its worker, which asks, begins to
/// answer then: from now on, others may end it.
///
/// # Errors
///
/// `ECONNREFUSED` if nobody listens any more, `ENOMEM` if it has lost its place.
pub(crate) fn place_of(listener: &SdpSock, child: &SdpSock) -> Result<Place> {
    let mut queue = listener.accepts.lock();
    let at = queue.half_open(child);
    if let Some(half_open) = at.and_then(|at| queue.half_open.get_mut(at)) {
        half_open.since = Some(Instant::now());
        Ok(Place::Given)
    } else if queue.closed {
        Err(ECONNREFUSED)
    } else {
        queue.parked(child).map(|_| Place::Later).ok_or(ENOMEM)
    }
}

/// Gives back what a connection has that came to nothing: a place, or one among the parked.
pub(crate) fn unreserve(listener: &SdpSock, child: &SdpSock) {
    let mut queue = listener.accepts.lock();
    let mut parked = None;
    let mut half_open = None;
    if let Some(at) = queue.half_open(child) {
        half_open = queue.half_open.remove(at).ok();
        listener.sk().acceptq_remove();
        queue.fill_places(listener.sk());
    } else if let Some(at) = queue.parked(child) {
        parked = queue.parked.remove(at).ok();
    }
    drop(queue);
    drop((parked, half_open));
}

/// The backlog may have grown.
pub(crate) fn fill_places(listener: &SdpSock) {
    listener.accepts.lock().fill_places(listener.sk());
}

/// Puts an established connection into the listener's queue.
///
/// # Errors
///
/// `ECONNRESET` if the listener was closed, or the connection has lost its place, meanwhile; `ENOMEM`.
pub(crate) fn push(listener: &SdpSock, child: ARef<SdpSock>) -> Result {
    let mut queue = listener.accepts.lock();
    let at = queue.half_open(&child).ok_or(ECONNRESET)?;
    let half_open = queue.half_open.remove(at).ok();
    let pushed = queue.ready.push(child, GFP_KERNEL);
    if pushed.is_err() {
        listener.sk().acceptq_remove();
        queue.fill_places(listener.sk());
    }
    drop(queue);
    drop(half_open);
    pushed?;
    // Under the lock: an accept() that saw the queue empty holds it until it waits.
    let _locked = listener.lock();
    listener.sk().wake_reader();
    Ok(())
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
        timeo.check()?;
        locked.wait_exclusive(&mut timeo);
    }
}

fn pop(listener: &SdpSock) -> Option<ARef<SdpSock>> {
    let mut queue = listener.accepts.lock();
    if queue.ready.is_empty() {
        return None;
    }
    let child = queue.ready.remove(0).ok()?;
    listener.sk().acceptq_remove();
    queue.fill_places(listener.sk());
    Some(child)
}

/// The state of a child for the core's `__inet_accept`.
pub(crate) fn into_raw(child: ARef<SdpSock>) -> *mut bindings::sock {
    ARef::into_raw(child).as_ptr().cast()
}
