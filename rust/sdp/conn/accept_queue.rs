// SPDX-License-Identifier: GPL-2.0

//! What a listener has of connections: the queue, and how connections come into it.
//! [`accept`](crate::sdp::cm::accept) takes them out.

use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::time::{
    Instant,
    Monotonic, //
};

use super::sock::{
    Alarm,
    SdpSock,
    Want, //
};
use crate::inet::sock::Sk;
use crate::kern::errno::{
    ECONNREFUSED,
    ECONNRESET, //
};
use crate::stats::counters::Counter;

/// A connection that is being set up and has a place in the backlog.
struct HalfOpen {
    child: ARef<SdpSock>,
    /// When its worker has begun to answer. Before, nobody else may end it.
    since: Option<Instant<Monotonic>>,
}

/// When others may have the place of a half-open connection: an honest peer has completed it by then.
/// As long as TCP waits for an answer before it asks again (`TCP_TIMEOUT_INIT`).
pub(in crate::sdp) const OLD_MS: u32 = 1000;

/// What an established connection waits for that is not handed to accept() yet.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Awaits {
    /// Its peer's first byte, or the end of its time.
    Peer,
    /// A place in the backlog: all were taken when it was due.
    Place,
    /// Its worker. A place is counted for it.
    Worker,
}

/// A connection that is established and deferred (TCP_DEFER_ACCEPT).
struct Deferred {
    child: ARef<SdpSock>,
    awaits: Awaits,
}

/// What a listener has of connections: those that are established and wait for accept(), and those
/// that will.
///
/// The core counts the places of the backlog (`sk_ack_backlog`): one for each that is ready or
/// half-open. Those that are deferred have none, as requests have none with TCP: a peer that sends nothing
/// takes no place from one that does. There are at most as many of them as there are places.
pub(crate) struct AcceptQueue {
    /// In their order, as the others.
    ready: KVec<ARef<SdpSock>>,
    deferred: KVVec<Deferred>,
    half_open: KVVec<HalfOpen>,
    /// Requests for which there was no place, where the peer does not ask again.
    parked: KVec<ARef<SdpSock>>,
    /// The listener takes no more.
    closed: bool,
}

/// What a listener had that listens no more.
pub(in crate::sdp) struct Closed {
    ready: KVec<ARef<SdpSock>>,
    deferred: KVVec<Deferred>,
    /// They end by themselves; to be dropped when the queue is unlocked.
    half_open: KVVec<HalfOpen>,
}

impl Closed {
    /// What one had that did not listen.
    pub(in crate::sdp) const fn new() -> Self {
        Self {
            ready: KVec::new(),
            deferred: KVVec::new(),
            half_open: KVVec::new(),
        }
    }

    /// The established connections that no program has, to be aborted. One that is deferred is in no
    /// other list: its worker finds it in none, and leaves it to the caller.
    pub(in crate::sdp) fn established(self) -> impl Iterator<Item = ARef<SdpSock>> {
        let deferred = self.deferred.into_iter().map(|deferred| deferred.child);
        Iterator::chain(self.ready.into_iter(), deferred)
    }
}

impl AcceptQueue {
    pub(crate) const fn new() -> Self {
        Self {
            ready: KVec::new(),
            deferred: KVVec::new(),
            half_open: KVVec::new(),
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

    /// Ends the queue of `listener`. What is parked ends by itself.
    pub(in crate::sdp) fn close(&mut self, listener: Sk) -> Closed {
        self.closed = true;
        for parked in &self.parked {
            parked.want(Want::Accept);
        }
        let closed = Closed {
            ready: core::mem::replace(&mut self.ready, KVec::new()),
            deferred: core::mem::replace(&mut self.deferred, KVVec::new()),
            half_open: core::mem::replace(&mut self.half_open, KVVec::new()),
        };
        let has_place = |deferred: &&Deferred| deferred.awaits == Awaits::Worker;
        let deferred = closed.deferred.iter().filter(has_place).count();
        for _ in 0..closed.ready.len() + deferred + closed.half_open.len() {
            listener.acceptq_remove();
        }
        closed
    }

    fn deferred(&self, child: &SdpSock) -> Option<usize> {
        let is_it = |d: &Deferred| core::ptr::eq(&*d.child, child);
        self.deferred.iter().position(is_it)
    }

    fn parked(&self, child: &SdpSock) -> Option<usize> {
        self.parked.iter().position(|c| core::ptr::eq(&**c, child))
    }

    fn half_open(&self, child: &SdpSock) -> Option<usize> {
        let is_it = |h: &HalfOpen| core::ptr::eq(&*h.child, child);
        self.half_open.iter().position(is_it)
    }

    /// The child uses a place that was counted for it. Without memory for that the place is free: the caller
    /// gives it to who waits for one.
    fn seat(&mut self, listener: Sk, child: ARef<SdpSock>) -> Result {
        let since = None;
        let seated = self.half_open.push(HalfOpen { child, since }, GFP_KERNEL);
        if seated.is_err() {
            listener.acceptq_remove();
        }
        Ok(seated?)
    }

    /// Takes the place of the half-open connection that was answered first, if that is long ago. What is
    /// returned must be ended.
    fn evict(&mut self) -> Option<ARef<SdpSock>> {
        // Those behind were answered later, but for some that their workers had to wait for.
        let at = self.half_open.iter().position(|h| h.since.is_some())?;
        let since = self.half_open.get(at)?.since?;
        if since.elapsed().as_millis() < OLD_MS.into() {
            return None;
        }
        self.half_open.remove(at).ok().map(|old| old.child)
    }

    /// Gives places that are free to those who wait for one: first to those whose connections are
    /// established, and then to those who are parked.
    fn fill_places(&mut self, listener: Sk) {
        while !self.closed {
            let mut deferred = self.deferred.iter_mut();
            let due = deferred.find(|deferred| deferred.awaits == Awaits::Place);
            if due.is_none() && self.parked.is_empty() || !listener.acceptq_add() {
                return;
            }
            if let Some(due) = due {
                due.awaits = Awaits::Worker;
                due.child.want(Want::Push);
                continue;
            }
            let Some(child) = self.parked.first().cloned() else {
                return;
            };
            if self.seat(listener, child).is_err() {
                return;
            }
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
        let seated = queue.seat(listener.sk(), child);
        if seated.is_err() {
            queue.fill_places(listener.sk());
        }
        seated
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
/// place for that time only where others want it. Those who wait for a place already have that one first.
///
/// # Errors
///
/// `ECONNREFUSED` if nobody listens any more, `ENOMEM` if the backlog is full: the peer asks again.
pub(crate) fn reserve(listener: &SdpSock) -> Result<Reserved<'_>> {
    let mut queue = listener.accepts.lock();
    if queue.closed {
        return Err(ECONNREFUSED);
    }
    let sk = listener.sk();
    if sk.acceptq_add() {
        return Ok(Reserved(listener));
    }
    let old = queue.evict().ok_or(ENOMEM)?;
    sk.acceptq_remove();
    queue.fill_places(sk);
    let is_free = sk.acceptq_add();
    drop(queue);
    end(listener, &old);
    is_free.then(|| Reserved(listener)).ok_or(ENOMEM)
}

/// Ends a half-open connection that has lost its place.
fn end(listener: &SdpSock, child: &SdpSock) {
    listener.stats.inc(Counter::EvictedHalfOpen);
    child.start_timer(Alarm::Timeout, 0);
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
        queue
            .seat(listener.sk(), child.clone())
            .inspect_err(|_| queue.fill_places(listener.sk()))?;
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
    tell_of_ready(listener);
    Ok(())
}

/// Tells who waits in accept(), or polls, of a connection that is ready.
fn tell_of_ready(listener: &SdpSock) {
    // Under the lock: an accept() that saw the queue empty holds it until it waits.
    let _locked = listener.lock();
    listener.sk().wake_reader();
}

/// Keeps an established connection from accept() until [`push_deferred`]; its place is free. `false` if too
/// many are deferred: then the connection still has its place, and is to be pushed. So it is with TCP, which
/// keeps no request then but a cookie, and has a connection as soon as that comes back.
///
/// # Errors
///
/// `ECONNRESET` if the listener was closed, or the connection has lost its place, meanwhile.
pub(crate) fn defer(listener: &SdpSock, child: ARef<SdpSock>) -> Result<bool> {
    let mut queue = listener.accepts.lock();
    let at = queue.half_open(&child).ok_or(ECONNRESET)?;
    let awaits = Awaits::Peer;
    let is_full = queue.deferred.len() > listener.sk().backlog_max() as usize;
    if is_full
        || queue
            .deferred
            .push(Deferred { child, awaits }, GFP_KERNEL)
            .is_err()
    {
        return Ok(false);
    }
    let half_open = queue.half_open.remove(at).ok();
    listener.sk().acceptq_remove();
    queue.fill_places(listener.sk());
    drop(queue);
    drop(half_open);
    Ok(true)
}

/// Puts a connection that was deferred into the listener's queue: its peer has sent something, or its time is
/// over. If there is no place ([`Place::Later`]), its worker is asked again when there is one; it asks by itself
/// when the half-open connections that have the places now are old.
///
/// # Errors
///
/// `ECONNRESET` if the listener was closed: who has closed it ends the connection. `ENOMEM`.
pub(crate) fn push_deferred(listener: &SdpSock, child: &SdpSock) -> Result<Place> {
    let mut queue = listener.accepts.lock();
    let at = queue.deferred(child).ok_or(ECONNRESET)?;
    let mut old = None;
    let had_place = queue
        .deferred
        .get(at)
        .is_some_and(|deferred| deferred.awaits == Awaits::Worker);
    if !had_place && !listener.sk().acceptq_add() {
        old = queue.evict();
        if old.is_none() {
            if let Some(deferred) = queue.deferred.get_mut(at) {
                deferred.awaits = Awaits::Place;
            }
            return Ok(Place::Later);
        }
    }
    let deferred = queue.deferred.remove(at).map_err(|_| ECONNRESET)?;
    let pushed = queue.ready.push(deferred.child, GFP_KERNEL);
    if pushed.is_err() {
        listener.sk().acceptq_remove();
        queue.fill_places(listener.sk());
    }
    drop(queue);
    if let Some(old) = old {
        end(listener, &old);
    }
    pushed?;
    tell_of_ready(listener);
    Ok(Place::Given)
}

/// Takes a connection that was deferred, and has ended, from the listener; what is returned is the
/// reference that the listener had. `None` if the listener was closed: who has closed it ends the
/// connection.
pub(crate) fn take_deferred(listener: &SdpSock, child: &SdpSock) -> Option<ARef<SdpSock>> {
    let mut queue = listener.accepts.lock();
    let at = queue.deferred(child)?;
    let deferred = queue.deferred.remove(at).ok()?;
    if deferred.awaits == Awaits::Worker {
        listener.sk().acceptq_remove();
        queue.fill_places(listener.sk());
    }
    Some(deferred.child)
}

/// Takes the oldest connection out of the queue.
pub(in crate::sdp) fn pop(listener: &SdpSock) -> Option<ARef<SdpSock>> {
    let mut queue = listener.accepts.lock();
    if queue.ready.is_empty() {
        return None;
    }
    let child = queue.ready.remove(0).ok()?;
    listener.sk().acceptq_remove();
    queue.fill_places(listener.sk());
    Some(child)
}
