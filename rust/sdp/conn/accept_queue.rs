// SPDX-License-Identifier: GPL-2.0

//! The connections of a listener: the queue, and how connections are added to it.
//! [`accept`](crate::sdp::cm::accept) removes them.

use core::ptr::NonNull;

use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use kernel::time::{
    Instant,
    Monotonic, //
};

use super::cm_side::BacklogPlace;
use super::sock::{
    Alarm,
    SdpSock,
    Want, //
};
use crate::bindings;
use crate::inet::limits::Place as Counted;
use crate::inet::sock::Sk;
use crate::inet::tcp::TcpListener;
use crate::kern::errno::{
    ECONNREFUSED,
    ECONNRESET,
    ENOBUFS, //
};
use crate::proto::state::State;
use crate::stats::counters::Counter;

/// A connection that is being set up and has a place in the backlog.
struct HalfOpen {
    child: ARef<SdpSock>,
    turn: u64,
    /// When its worker began to answer. Before, no other thread may end the connection.
    since: Option<Instant<Monotonic>>,
}

/// The age at which a half-open connection may lose its place to another one: an honest peer has
/// completed the connection by then. TCP waits as long for an answer before it retransmits its
/// request (`TCP_TIMEOUT_INIT`).
pub(in crate::sdp) const OLD_MS: u32 = 1000;

/// A connection that waits for accept().
struct Ready {
    child: ARef<SdpSock>,
    turn: u64,
}

/// What an established connection waits for before it is handed to accept().
#[derive(Copy, Clone, PartialEq, Eq)]
enum Awaits {
    /// The peer's first byte, or the end of the connection's time.
    Peer,
    /// A place in the backlog: there was none when the connection was due.
    Place,
    /// The connection's worker. A place is counted for the connection.
    Worker,
}

/// A connection that is established and deferred (TCP_DEFER_ACCEPT).
struct Deferred {
    child: ARef<SdpSock>,
    awaits: Awaits,
}

/// The connections of a listener: those that are established and wait for accept(), and those that
/// will.
///
/// The core counts the places of the backlog (`sk_ack_backlog`): one for each connection that is
/// ready or half-open. A deferred connection has none until it is due, as requests have none with
/// TCP: a peer that sends nothing does not take a place from a peer that does. The number of
/// deferred connections is limited to the number of places.
pub(crate) struct AcceptQueue {
    /// In the order of their turns, not of their completion: each connection has a worker, and two
    /// workers may complete their connections in the other order than a client has opened them.
    ready: KVec<Ready>,
    /// The oldest first, as in the lists below.
    deferred: KVVec<Deferred>,
    half_open: KVVec<HalfOpen>,
    /// The turn of the next connection that gets a place.
    next_turn: u64,
    /// Requests that found no place, and wait for one.
    parked: KVec<ARef<SdpSock>>,
    /// The number of requests that will be parked: the handler has said so, and their workers have
    /// not run yet.
    parking: usize,
    /// The TCP socket whose connections accept() also returns (SDP_LISTEN_TCP). It has its own
    /// queue and backlog.
    tcp: Option<Tcp>,
    /// The next connection to accept is one of TCP, if there is one of both: neither of the two
    /// queues must keep the other one waiting.
    is_turn_of_tcp: bool,
    /// The listener accepts no more connections.
    closed: bool,
}

/// A TCP socket that serves together with a socket of the module.
pub(in crate::sdp) type Tcp = Arc<TcpListener<SdpSock>>;

/// Where accept() gets the next connection.
pub(in crate::sdp) enum Next {
    Sdp(ARef<SdpSock>),
    /// From the TCP socket, without the lock of the listener.
    Tcp(Tcp),
}

/// The connections of a socket that has stopped listening.
pub(in crate::sdp) struct Closed {
    ready: KVec<Ready>,
    deferred: KVVec<Deferred>,
    /// They end by themselves. They must be dropped after the queue was unlocked.
    half_open: KVVec<HalfOpen>,
    /// The TCP socket of the listener. It ends by itself, unless the program has another descriptor
    /// of it.
    pub(in crate::sdp) tcp: Option<Tcp>,
}

impl Closed {
    /// No connections: the socket did not listen.
    pub(in crate::sdp) const fn new() -> Self {
        Self {
            ready: KVec::new(),
            deferred: KVVec::new(),
            half_open: KVVec::new(),
            tcp: None,
        }
    }

    /// The established connections that no program has accepted. The caller must abort them: the
    /// worker of a deferred connection no longer finds its connection in the listener's lists, and
    /// leaves the end to the caller.
    pub(in crate::sdp) fn established(self) -> impl Iterator<Item = ARef<SdpSock>> {
        let deferred = self.deferred.into_iter().map(|deferred| deferred.child);
        let ready = self.ready.into_iter().map(|ready| ready.child);
        Iterator::chain(ready, deferred)
    }
}

impl AcceptQueue {
    pub(crate) const fn new() -> Self {
        Self {
            ready: KVec::new(),
            deferred: KVVec::new(),
            half_open: KVVec::new(),
            next_turn: 0,
            parked: KVec::new(),
            parking: 0,
            tcp: None,
            is_turn_of_tcp: false,
            closed: true,
        }
    }

    /// Whether accept() would return at once.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty() || self.tcp.as_ref().is_some_and(|tcp| tcp.is_ready())
    }

    /// Whether accept() also returns connections of a TCP socket. The program may have ended the
    /// listening of this socket.
    pub(crate) fn serves_tcp(&self) -> bool {
        self.tcp.as_ref().is_some_and(|tcp| tcp.listens())
    }

    /// Replaces the TCP socket. The caller must drop the former one after the queue was unlocked.
    pub(in crate::sdp) fn set_tcp(&mut self, tcp: Option<Tcp>) -> Option<Tcp> {
        core::mem::replace(&mut self.tcp, tcp)
    }

    /// Opens the queue of `listener`. Connections that were parked before the queue was closed, and
    /// have not ended yet, get the places: nothing else would give them a place, and new connections
    /// would wait behind them.
    pub(crate) fn open(&mut self, listener: Sk) {
        self.closed = false;
        self.fill_places(listener);
    }

    /// Closes the queue of `listener`. Parked connections end by themselves, unless the listener
    /// opens it again before.
    pub(in crate::sdp) fn close(&mut self, listener: Sk) -> Closed {
        self.closed = true;
        for parked in &self.parked {
            parked.want(Want::Accept);
        }
        let closed = Closed {
            ready: core::mem::replace(&mut self.ready, KVec::new()),
            deferred: core::mem::replace(&mut self.deferred, KVVec::new()),
            half_open: core::mem::replace(&mut self.half_open, KVVec::new()),
            tcp: self.tcp.take(),
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

    fn take_turn(&mut self) -> u64 {
        let turn = self.next_turn;
        self.next_turn += 1;
        turn
    }

    /// Promises that a request may be parked, unless as many requests are parked as the backlog has
    /// places: silent peers whose requests are parked get the places one after the other, and many of
    /// them would keep others out for long. Peers repeat requests that get no answer.
    fn promise_to_park(&mut self, listener: Sk) -> Result {
        let most = PARKED_MAX.min(listener.backlog_max() as usize + 1);
        if self.parked.len() + self.parking >= most {
            return Err(ENOMEM);
        }
        self.parked.reserve(self.parking + 1, GFP_KERNEL)?;
        self.parking += 1;
        Ok(())
    }

    /// Makes a connection available to accept(). If there is no memory for that, its place becomes
    /// free.
    fn push(&mut self, listener: Sk, child: ARef<SdpSock>, turn: u64) -> Result {
        let later = self.ready.iter().rev();
        let later = later.take_while(|ready| ready.turn > turn).count();
        let at = self.ready.len() - later;
        if let Err(e) = self.ready.reserve(1, GFP_KERNEL) {
            listener.acceptq_remove();
            self.fill_places(listener);
            return Err(e.into());
        }
        Ok(self
            .ready
            .insert_within_capacity(at, Ready { child, turn })?)
    }

    /// Gives the child a place that was counted for it. If there is no memory for that, the place
    /// becomes free, and the caller must offer it to waiting connections.
    fn seat(&mut self, listener: Sk, child: ARef<SdpSock>) -> Result {
        let half_open = HalfOpen {
            child,
            turn: self.take_turn(),
            since: None,
        };
        let seated = self.half_open.push(half_open, GFP_KERNEL);
        if seated.is_err() {
            listener.acceptq_remove();
        }
        Ok(seated?)
    }

    /// Removes the half-open connection that was answered first, if the answer is older than
    /// [`OLD_MS`]. The caller must end the returned connection, and may use its place.
    fn evict(&mut self) -> Option<ARef<SdpSock>> {
        // Later entries were answered later, except for some whose workers ran late.
        let at = self.half_open.iter().position(|h| h.since.is_some())?;
        let since = self.half_open.get(at)?.since?;
        if since.elapsed().as_millis() < OLD_MS.into() {
            return None;
        }
        self.half_open.remove(at).ok().map(|old| old.child)
    }

    /// Gives free places to connections that wait for one: first to those that are established,
    /// then to those that are parked.
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

/// The maximum number of parked requests of a listener. For peers that repeat their requests, the
/// backlog is a second limit.
const PARKED_MAX: usize = 128;

/// The result of a request for a place.
pub(crate) enum Place {
    Given,
    /// There is no place yet: the connection's worker is asked again when there is one. The worker
    /// of a parked connection is also asked again when the listener is closed.
    Later,
}

/// What a listener has promised to a request that has no child yet.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Promise {
    /// A place in the backlog, which is counted.
    Place,
    /// The child may wait for a place.
    Parking,
}

/// A promise that no child has yet.
pub(crate) struct Reserved<'a> {
    listener: &'a SdpSock,
    promise: Promise,
}

impl Reserved<'_> {
    /// Gives what was promised to a child of the listener. The child's worker must then ask for its
    /// place, as a child with the returned [`BacklogPlace`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `ECONNREFUSED` if the listener was closed.
    pub(crate) fn give(self, child: ARef<SdpSock>) -> Result<BacklogPlace> {
        let listener = self.listener;
        let mut queue = listener.accepts.lock();
        if queue.closed {
            return Err(ECONNREFUSED);
        }
        let promise = self.promise;
        core::mem::forget(self);
        if promise == Promise::Parking {
            return Ok(BacklogPlace::Promised);
        }
        queue
            .seat(listener.sk(), child)
            .inspect_err(|_| queue.fill_places(listener.sk()))?;
        Ok(BacklogPlace::Given)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut queue = self.listener.accepts.lock();
        match self.promise {
            Promise::Place => {
                self.listener.sk().acceptq_remove();
                queue.fill_places(self.listener.sk());
            }
            Promise::Parking => queue.parking -= 1,
        }
    }
}

/// A copy of the listener's `struct sock`, for a new connection. The caller must initialise the
/// copy, and has both of its references.
///
/// # Errors
///
/// `ECONNREFUSED` if the listener was closed, `ENOMEM`.
pub(crate) fn clone_sock(listener: &SdpSock) -> Result<NonNull<bindings::sock>> {
    let queue = listener.accepts.lock();
    if queue.closed {
        return Err(ECONNREFUSED);
    }
    // SAFETY: Only sends of a connection give the socket a page, and the page is freed when the
    // connection has ended and the socket is used again: the socket had none when it became a
    // listener. It cannot become a connection during the call: before this, the code that ends the
    // listening closes the queue, which is locked here.
    unsafe { listener.sk().clone_listener() }.ok_or(ENOMEM)
}

/// Takes a place in the backlog for a connection that is to be set up: a free place, or that of a
/// half-open connection whose peer has not answered for long. So a peer that never answers keeps
/// its place only while no other connection needs it. Connections that already wait for a place get
/// the place of the old connection first. If there is no place, the connection may wait for one.
///
/// # Errors
///
/// `ECONNREFUSED` if the listener was closed, `ENOMEM` if the backlog is full and as many
/// connections already wait: the peer repeats its request.
pub(crate) fn reserve(listener: &SdpSock) -> Result<Reserved<'_>> {
    let mut queue = listener.accepts.lock();
    if queue.closed {
        return Err(ECONNREFUSED);
    }
    let sk = listener.sk();
    let reserved = |promise| Reserved { listener, promise };
    if sk.acceptq_add() {
        return Ok(reserved(Promise::Place));
    }
    let mut old = None;
    let mut has_place = false;
    if let Some(child) = queue.evict() {
        sk.acceptq_remove();
        queue.fill_places(sk);
        has_place = sk.acceptq_add();
        old = Some(child);
    }
    let promised = match has_place {
        true => Ok(reserved(Promise::Place)),
        false => queue
            .promise_to_park(sk)
            .map(|()| reserved(Promise::Parking)),
    };
    drop(queue);
    if let Some(old) = old {
        end(listener, &old);
    }
    promised
}

/// Ends a half-open connection that has lost its place.
fn end(listener: &SdpSock, child: &SdpSock) {
    listener.stats.inc(Counter::EvictedHalfOpen);
    child.start_timer(Alarm::Timeout, 0);
}

/// For a connection that has no place yet: takes one, or parks the connection behind those that
/// already wait. `is_promised`: [`reserve`] has promised that the connection may wait; otherwise its
/// peer does not repeat its request.
///
/// # Errors
///
/// `ECONNREFUSED` if the listener was closed, `ENOMEM` if too many connections wait.
pub(crate) fn reserve_or_park(
    listener: &SdpSock,
    child: ARef<SdpSock>,
    is_promised: bool,
) -> Result<Place> {
    let mut queue = listener.accepts.lock();
    if is_promised {
        queue.parking -= 1;
    }
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
    // Even if too many are parked, because one of them then gets the place of the old connection.
    let old = queue.evict();
    let too_many = queue.parked.len() + queue.parking >= PARKED_MAX;
    let is_parked = if old.is_none() && too_many && !is_promised {
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
    is_parked?;
    listener.stats.inc(Counter::RequestWaited);
    Ok(Place::Later)
}

/// Gives the place of a half-open connection whose peer has not answered for long to a connection
/// that waits for one, if `child` still waits.
pub(crate) fn make_place(listener: &SdpSock, child: &SdpSock) {
    if listener.accepts.lock().parked(child).is_some() {
        end_oldest(listener);
    }
}

/// Ends the oldest half-open connection of the listener, if its peer has not answered for long.
fn end_oldest(listener: &SdpSock) {
    let mut queue = listener.accepts.lock();
    let Some(old) = queue.evict() else {
        return;
    };
    listener.sk().acceptq_remove();
    queue.fill_places(listener.sk());
    drop(queue);
    end(listener, &old);
}

/// Counts a connection that is to be set up in the limits of the listener's namespace and user. At
/// a limit, ends the oldest half-open connection of the listener, if its peer has not answered for
/// long. Half-open connections of other listeners keep their places until they end. The place of
/// the connection is free when its resources are released, so it is not for the caller but for a
/// later request.
///
/// # Errors
///
/// As [`Counted::take`].
pub(crate) fn count(listener: &SdpSock) -> Result<Counted> {
    Counted::take_half_open(listener.sk()).inspect_err(|e| {
        if *e == ENOBUFS {
            end_oldest(listener);
        }
    })
}

/// Whether the listener has half-open connections, each of which is established or ends within
/// seconds.
pub(crate) fn has_half_open(listener: &SdpSock) -> bool {
    !listener.accepts.lock().half_open.is_empty()
}

/// Whether a connection that has asked for a place has one now. Then its worker, which calls this,
/// begins to answer; from now on, other threads may end the connection.
///
/// # Errors
///
/// `ECONNREFUSED` if the listener was closed, `ENOMEM` if the connection has lost its place.
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

/// Releases the place of a connection that has failed, or removes it from the parked ones.
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

/// Gives free places to waiting connections, after the backlog may have grown.
pub(crate) fn fill_places(listener: &SdpSock) {
    listener.accepts.lock().fill_places(listener.sk());
}

/// Puts an established connection into the listener's queue.
///
/// # Errors
///
/// `ECONNRESET` if the listener was closed meanwhile, or if the connection has lost its place;
/// `ENOMEM`.
pub(crate) fn push(listener: &SdpSock, child: ARef<SdpSock>) -> Result {
    let mut queue = listener.accepts.lock();
    let at = queue.half_open(&child).ok_or(ECONNRESET)?;
    let half_open = queue.half_open.remove(at).map_err(|_| ECONNRESET)?;
    let pushed = queue.push(listener.sk(), child, half_open.turn);
    drop(queue);
    drop(half_open);
    pushed?;
    tell_of_ready(listener);
    Ok(())
}

/// Wakes threads that wait in accept() or poll(), because a connection is ready.
fn tell_of_ready(listener: &SdpSock) {
    // Under the lock: an accept() that saw an empty queue holds the lock until it waits.
    let _locked = listener.lock();
    listener.sk().wake_reader();
}

/// Keeps an established connection from accept() until [`push_deferred`], and frees its place.
/// Returns `false` if too many connections are deferred, or if there is no memory: then the
/// connection keeps its place and must be pushed. TCP is similar: with too many requests it uses a
/// cookie instead, and the connection is complete as soon as the cookie comes back.
///
/// # Errors
///
/// `ECONNRESET` if the listener was closed meanwhile, or if the connection has lost its place.
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

/// Puts a deferred connection into the listener's queue: its peer has sent something, or its time
/// is over. If there is no place ([`Place::Later`]), the connection's worker is asked again when
/// there is one. The worker itself tries again when the half-open connections that now have the
/// places are old.
///
/// # Errors
///
/// `ECONNRESET` if the listener was closed: the thread that closed it ends the connection.
/// `ENOMEM`.
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
    // As with TCP, the connection is behind those that were ready before it was due.
    let turn = queue.take_turn();
    let pushed = queue.push(listener.sk(), deferred.child, turn);
    drop(queue);
    if let Some(old) = old {
        end(listener, &old);
    }
    pushed?;
    tell_of_ready(listener);
    Ok(Place::Given)
}

/// Removes a deferred connection that has ended from the listener; returns the listener's reference
/// to it. `None` if the listener was closed: the thread that closed it ends the connection.
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

/// Takes the oldest connection out of the queue, or says that the TCP socket has one. With both,
/// the two alternate. `takes_tcp` is false if the caller cannot use a TCP connection.
pub(in crate::sdp) fn next(listener: &SdpSock, takes_tcp: bool) -> Option<Next> {
    let mut queue = listener.accepts.lock();
    let tcp = queue.tcp.as_ref().filter(|_| takes_tcp);
    if let Some(tcp) = tcp.filter(|tcp| tcp.is_ready()).cloned() {
        if queue.ready.is_empty() || queue.is_turn_of_tcp {
            queue.is_turn_of_tcp = false;
            return Some(Next::Tcp(tcp));
        }
    }
    if queue.ready.is_empty() {
        return None;
    }
    let ready = queue.ready.remove(0).ok()?;
    queue.is_turn_of_tcp = true;
    listener.sk().acceptq_remove();
    queue.fill_places(listener.sk());
    Some(Next::Sdp(ready.child))
}

/// Wakes threads that wait in accept() or poll(), because the TCP socket has connections. All of
/// them, because the worker, which calls this, may run once for several connections.
pub(in crate::sdp) fn tell_of_tcp(listener: &SdpSock) {
    // Under the lock, as in `tell_of_ready`.
    let mut guard = listener.lock();
    // A thread may have taken the connection before the worker ran. io_uring reports the event of a
    // wake-up without asking the socket.
    if guard.conn().state == State::Listen && listener.accepts.lock().is_ready() {
        guard.sk().wake_readers();
    }
}
