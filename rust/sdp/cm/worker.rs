// SPDX-License-Identifier: GPL-2.0

//! The socket's worker: the work for a connection that may sleep.
//!
//! The worker calls the RDMA CM, sets connections up ([`super::setup`]), and releases everything.
//! It is one work item, so it never runs twice at the same time for a socket. It takes the socket
//! lock only briefly, and never during a call into the CM.

use kernel::prelude::*;
use kernel::sync::aref::{
    ARef,
    AlwaysRefCounted, //
};
use kernel::time::delay::fsleep;
use kernel::time::{
    Delta,
    Instant,
    Monotonic, //
};

use super::setup::{
    refusal_of,
    rejected_errno,
    unreachable_errno,
    HANDSHAKE_MS,
    PLACE_MS, //
};
use super::{
    bind,
    close,
    connect,
    fallback, //
};
use crate::inet::limits::Place as Counted;
use crate::kern::debugfs::Folder;
use crate::kern::errno::{
    ECONNABORTED,
    ECONNRESET,
    ENETDOWN, //
};
use crate::proto::hello::Hello;
use crate::proto::state::{
    Event,
    State, //
};
use crate::rdma::cm::{
    self,
    CmId,
    Kind, //
};
use crate::rdma::link::Link;
use crate::sdp::conn::accept_queue::{
    self,
    Place,
    OLD_MS, //
};
use crate::sdp::conn::cm_side::{
    BacklogPlace,
    CmSide, //
};
use crate::sdp::conn::count::set_messages;
use crate::sdp::conn::guard::SockOwner;
use crate::sdp::conn::sock::{
    sock_of,
    Alarm,
    Handlers,
    SdpSock,
    Want,
    WORK_OFFSET, //
};
use crate::sdp::cq::poll::run_bh;
use crate::sdp::cq::poll::{
    poll_cq,
    process,
    rearm_cq, //
};
use crate::sdp::flush::flush;
use crate::sdp::output::abort::send_abort;
use crate::sdp::reclaim::restore_read;
use crate::sdp::rx::reads::{
    pull,
    pull_overdue, //
};
use crate::sdp::rx::Receiver;
use crate::sdp::timers::keepalive::keep_alive;
use crate::sdp::timers::tx_watchdog::check_sends;
use crate::stats::counters::Counter;

/// How long to wait for memory for receives before the next attempt.
const REFILL_PAUSE: Delta = Delta::from_millis(10);

/// # Safety
///
/// Called by the work queue, for the item of a socket.
unsafe extern "C" fn run(work: *mut kernel::bindings::work_struct) {
    // SAFETY: The item belongs to an SDP socket. This function runs only as that item, which does
    // not run twice at the same time, so no other thread uses the CM side.
    let (sock, cm) = unsafe {
        let sock = sock_of(work.cast(), WORK_OFFSET);
        let cm = sock.cm.get();
        (sock, &mut *cm)
    };
    Worker { sock: &sock, cm }.run();
}

/// The functions of the work items of each socket.
pub(crate) const HANDLERS: Handlers = Handlers {
    worker: run,
    bh: run_bh,
};

/// Starts the set-up of a new child: from now on, the worker has the child's reference and the id.
/// `places` are the child's places in the backlog and in the limits of connections.
pub(crate) fn start_child(
    child: ARef<SdpSock>,
    id: CmId,
    offer: Hello,
    places: (BacklogPlace, Option<Counted>),
) {
    // SAFETY: The worker has not run yet: nothing has queued it. Besides the CM's handler, at most
    // the listener's list of half-open connections knows the child, and other threads do not end a
    // connection of the list before its worker has begun to answer.
    let cm = unsafe { &mut *child.cm.get() };
    cm.id = Some(id);
    cm.offer = Some(offer);
    (cm.place, cm.counted) = places;
    cm.child = Some(child.clone());
    child.want(Want::Accept);
}

/// Ends a child that failed before its worker ran.
pub(crate) fn give_up_child(child: &SdpSock) {
    {
        let mut guard = child.lock();
        guard.transition(Event::Abort);
        guard.conn().lifetime.parent = None;
        bind::put_port(&mut guard);
    }
    child.sk().orphan();
    // SAFETY: This is the reference of the connection, which will not be established.
    unsafe { SdpSock::dec_ref(child.into()) };
}

pub(super) struct Worker<'a> {
    pub(in crate::sdp) sock: &'a SdpSock,
    pub(in crate::sdp) cm: &'a mut CmSide,
}

impl Worker<'_> {
    fn run(&mut self) {
        if self.sock.take_want(Want::Connect) {
            if let Err(e) = self.start_connect() {
                self.connect_failed(e);
            }
        }
        if self.sock.take_want(Want::Accept) {
            match self.take_place() {
                Ok(Place::Given) => {
                    if let Err(e) = self.answer() {
                        self.refuse(e);
                    }
                }
                Ok(Place::Later) => {}
                Err(e) => self.refuse_place(e),
            }
        }
        self.first_receive();
        if self.sock.take_want(Want::Push) {
            self.push_deferred();
        }
        while let Some(event) = self.next_event() {
            self.on_event(&event);
        }
        if self.sock.take_want(Want::Refill) {
            let mut guard = self.sock.lock();
            let mut receiver = Receiver::of(&mut guard);
            receiver.refill();
            receiver.prepare_reads();
            pull(&mut guard);
            flush(&mut guard);
            drop(guard);
            if self.sock.is_wanted(Want::Refill) {
                // There is still no memory.
                fsleep(REFILL_PAUSE);
            }
        }
        if self.sock.take_want(Want::Pull) {
            pull_overdue(&mut self.sock.lock());
        }
        if self.sock.take_want(Want::Restore) {
            restore_read(&mut self.sock.lock());
        }
        if self.sock.take_want(Want::TellOfTcp) {
            accept_queue::tell_of_tcp(self.sock);
        }
        if self.sock.take_want(Want::Watch) {
            check_sends(&mut self.sock.lock());
        }
        if self.sock.take_want(Want::Keepalive) {
            keep_alive(&mut self.sock.lock());
        }
        if self.sock.take_want(Want::Timeout) {
            self.timed_out();
        }
        if self.sock.take_want(Want::Teardown) {
            self.teardown();
        }
    }

    /// Asks for a place in the listener's backlog, if the child has not done so yet.
    fn take_place(&mut self) -> Result<Place> {
        let parent = self.sock.lock().conn().lifetime.parent.clone();
        let parent = parent.ok_or(ECONNABORTED)?;
        // Before another thread may end the connection because it has not been answered for long:
        // such an end starts the same timer, which must not be started for the handshake again.
        self.sock.start_timer(Alarm::Timeout, HANDSHAKE_MS);
        let place = match self.cm.place {
            BacklogPlace::NotAsked | BacklogPlace::Promised => {
                let is_promised = matches!(self.cm.place, BacklogPlace::Promised);
                accept_queue::reserve_or_park(&parent, self.sock.into(), is_promised)?
            }
            BacklogPlace::Waiting(_) | BacklogPlace::Given => {
                accept_queue::place_of(&parent, self.sock)?
            }
        };
        match place {
            Place::Given => self.cm.place = BacklogPlace::Given,
            Place::Later => {
                if !matches!(self.cm.place, BacklogPlace::Waiting(_)) {
                    self.cm.place = BacklogPlace::Waiting(Instant::now());
                }
                self.sock.start_timer(Alarm::Timeout, OLD_MS);
            }
        }
        Ok(place)
    }

    /// Called when the timer of a child that waits for a place has expired: half-open connections
    /// that now have the places may be old enough to lose theirs. Returns whether the child has
    /// waited too long. Without this, silent peers that have taken all places would keep the child
    /// waiting until their handshakes time out, and no later request need come.
    fn waits_too_long(&self, since: Instant<Monotonic>) -> bool {
        let most_ms = if self.is_iwarp() {
            HANDSHAKE_MS
        } else {
            PLACE_MS
        };
        if since.elapsed().as_millis() >= most_ms.into() {
            return true;
        }
        // Without the child's lock, because this takes the listener's lock.
        let parent = self.sock.lock().conn().lifetime.parent.clone();
        if let Some(parent) = parent {
            accept_queue::make_place(&parent, self.sock);
        }
        self.sock.start_timer(Alarm::Timeout, OLD_MS);
        false
    }

    /// One event at a time, because the end of the connection drops the events that follow.
    fn next_event(&self) -> Option<cm::Event> {
        let mut events = self.sock.events.lock();
        if events.is_empty() {
            return None;
        }
        events.remove(0).ok()
    }

    /// The CM is not told of the message (`rdma_notify()`): if the connection ended before the CM
    /// has handled the notification, the CM would resend its reply for a minute, and the id could
    /// not be destroyed during this time.
    fn first_receive(&mut self) {
        if self.sock.take_want(Want::FirstReceive) {
            self.child_is_up();
        }
    }

    // Events of the CM.

    fn on_event(&mut self, event: &cm::Event) {
        let result = match event.kind {
            Kind::AddrResolved => self.addr_resolved(),
            Kind::RouteResolved => self.route_resolved(),
            Kind::AddrError | Kind::RouteError => Err(unreachable_errno(event.status)),
            // This side's reply was never answered, but the peer has sent a message.
            Kind::Unreachable if self.is_up() => Ok(()),
            // The peer's TCP has ended during the set-up.
            Kind::ConnectError if self.is_iwarp() => Err(ECONNRESET),
            Kind::Unreachable | Kind::ConnectError => Err(ETIMEDOUT),
            Kind::Rejected if self.sets_up() => {
                let refusal = refusal_of(event);
                self.sock.lock().conn().lifetime.refusal = refusal;
                Err(rejected_errno(event, refusal))
            }
            Kind::Established => self.established(event),
            Kind::Disconnected => {
                // The connection was up for the peer, although the local CM may have heard of its
                // end first.
                self.child_established();
                self.disconnected();
                Ok(())
            }
            // If a connection ends before the peer's CM knew that it was up, the peer sends a
            // rejection.
            Kind::Rejected => {
                self.disconnected();
                Ok(())
            }
            Kind::DeviceRemoval => {
                self.device_removed();
                Ok(())
            }
            Kind::Other => Ok(()),
        };
        if let Err(e) = result {
            self.set_up_failed(e);
        }
    }

    /// Whether a program of this side waits for the connection.
    fn sets_up(&self) -> bool {
        let state = self.sock.lock().conn().state;
        matches!(state, State::Resolving | State::HelloSent)
    }

    fn is_up(&self) -> bool {
        self.sock.lock().conn().state.is_connected()
    }

    fn set_up_failed(&mut self, why: Error) {
        let is_removal = |event: &cm::Event| matches!(event.kind, Kind::DeviceRemoval);
        if self.sock.events.lock().iter().any(is_removal) {
            // The CM refuses all calls since then.
            return self.device_removed();
        }
        if self.sets_up() {
            self.connect_failed(why);
        } else {
            self.sock.lock().fail(Event::Abort, why);
            self.teardown();
        }
    }

    fn established(&mut self, event: &cm::Event) -> Result {
        if self.sets_up() {
            return self.connected(event);
        }
        // On iWARP, this side may not send before the peer's first message (RFC 5044, 7.1.2), so
        // the connection is not up before.
        if !self.is_iwarp() {
            self.child_established();
        }
        Ok(())
    }

    fn is_iwarp(&self) -> bool {
        self.cm.id.as_ref().is_some_and(CmId::is_iwarp)
    }

    fn child_established(&mut self) {
        let mut guard = self.sock.lock();
        if guard.conn().state == State::HelloReceived {
            guard.transition(Event::CmEstablished);
            process(&mut guard);
        }
        drop(guard);
        self.child_is_up();
    }

    /// Called when the peer or its CM has ended the connection. Messages that have arrived before
    /// are handled first.
    fn disconnected(&mut self) {
        poll_cq(&mut self.sock.lock());
        self.first_receive();
        let mut guard = self.sock.lock();
        let all_sent = !guard.conn().out.disconn_due;
        let lost = guard.conn().adverts.holds() || guard.conn().adverts.awaits_reads();
        match guard.conn().state {
            state if state.has_ended() => {}
            State::Draining if !lost => {}
            // The peer disconnects after it has received DisConn, so a missing acknowledgement of
            // its adapter is no loss.
            State::LastAck | State::Closing if all_sent && !lost => {
                guard.transition(Event::DisConnSent);
            }
            _ if lost => guard.reset_by_peer(Event::Abort),
            _ => guard.reset_by_peer(Event::CmDisconnected),
        }
        drop(guard);
        self.teardown();
    }

    fn device_removed(&mut self) {
        self.sock.stats.inc(Counter::DeviceRemoved);
        if self.sets_up() {
            return self.connect_failed(ENETDOWN);
        }
        let mut guard = self.sock.lock();
        poll_cq(&mut guard);
        // A stream that has ended in order stays so.
        let lost = guard.conn().adverts.holds() || guard.conn().adverts.awaits_reads();
        if guard.conn().state != State::Draining || lost {
            guard.fail(Event::DeviceRemoved, ENETDOWN);
        }
        drop(guard);
        self.teardown();
    }

    fn timed_out(&mut self) {
        let mut guard = self.sock.lock();
        if self.sock.timer_is_running(Alarm::Timeout) {
            // The timer was started again, for another purpose.
            return;
        }
        // A message that makes the time-out void may have arrived.
        poll_cq(&mut guard);
        let is_deferred = guard.conn().lifetime.deferral.is_some();
        let counter = match guard.conn().state {
            State::HelloSent => {
                drop(guard);
                return self.connect_failed(ETIMEDOUT);
            }
            State::HelloReceived => {
                if let BacklogPlace::Waiting(since) = self.cm.place {
                    drop(guard);
                    if self.waits_too_long(since) {
                        self.refuse_place(ENOMEM);
                    }
                    return;
                }
                self.cm.is_given_up = true;
                Counter::HandshakeTimeout
            }
            state if state.is_connected() && self.sock.sk().is_orphan() => {
                if close::orphan_gets_on(&mut guard) {
                    return;
                }
                Counter::OrphanTimeout
            }
            state if state.is_connected() && is_deferred => {
                drop(guard);
                return self.deferral_timed_out();
            }
            // A message that the program holds back has waited long enough.
            _ => {
                if guard.conn().out.end_hold() {
                    flush(&mut guard);
                    rearm_cq(&mut guard);
                }
                return;
            }
        };
        self.sock.stats.inc(counter);
        send_abort(&mut guard);
        guard.fail(Event::Timeout, ETIMEDOUT);
    }

    // The end.

    /// Releases everything of the connection. A program may keep the socket.
    pub(super) fn teardown(&mut self) {
        {
            let mut guard = self.sock.lock();
            if guard.conn().state == State::Released {
                return;
            }
            // A first message, or bytes of receives that have returned early, may have arrived.
            poll_cq(&mut guard);
            let lost = guard.conn().adverts.holds() || guard.conn().adverts.awaits_reads();
            match guard.conn().state {
                State::Draining if !lost => self.sock.stats.inc(Counter::ClosedOrderly),
                State::Dead => {}
                // The adapter has reported a broken queue.
                _ => guard.fail(Event::Abort, ECONNRESET),
            }
        }
        self.give_back();
        self.last_of_child();
        self.end_deferral();
        let guard = self.sock.lock();
        self.finish(guard);
    }

    /// Called after the queues and the id were released: checks, by the last events, whether a
    /// child that no program has was up for the peer. A child that was given up stays unknown to
    /// programs: on iWARP, its CM reports its end like that of an established connection.
    fn last_of_child(&mut self) {
        if self.cm.is_given_up {
            return;
        }
        self.first_receive();
        while let Some(event) = self.next_event() {
            if matches!(event.kind, Kind::Established | Kind::Disconnected) {
                self.child_is_up();
            }
        }
    }

    /// Releases the queues and the id, and uncharges them.
    pub(in crate::sdp) fn give_back(&mut self) {
        self.sock.stop_timers();
        let was_up = core::mem::replace(&mut self.cm.is_up, false);
        if let Some(id) = self.cm.id.as_ref().filter(|_| was_up) {
            id.disconnect();
        }
        let (link, place, nonce) = {
            let mut guard = self.sock.lock();
            let place = guard.conn().lifetime.place.take();
            let nonce = core::mem::replace(&mut guard.conn().lifetime.nonce, 0);
            if guard.conn().awaits_early() {
                // The bytes may have arrived.
                poll_cq(&mut guard);
            }
            (guard.close_link(), place, nonce)
        };
        let memory = link.map(Link::close);
        drop(place);
        // A child that has ended before it had queues.
        self.cm.counted = None;
        self.sock.sk().net().announced().retire(nonce);
        if let Some(id) = self.cm.id.take() {
            drop(id);
            let mut guard = self.sock.lock();
            bind::left_cm(&mut guard);
            drop(guard);
            // SAFETY: This is the connection's reference; the running work item has its own.
            unsafe { SdpSock::dec_ref(self.sock.into()) };
        }
        // After the id, for whose end the removal of its device waits.
        drop(memory);
    }

    /// Called when everything was released: a program may use the socket again from now on. Tasks
    /// that were wanted for this connection must not be done for the next one.
    pub(in crate::sdp) fn finish(&mut self, mut guard: SockOwner<'_>) {
        // Before another connect() may come.
        fallback::discard(self.sock);
        for what in [
            Want::Accept,
            Want::FirstReceive,
            Want::Push,
            Want::Timeout,
            Want::Watch,
            Want::Keepalive,
            Want::Refill,
            Want::Pull,
            Want::Restore,
            Want::Teardown,
        ] {
            self.sock.take_want(what);
        }
        *self.sock.events.lock() = KVec::new();
        self.sock.stop_timers();
        guard.transition(Event::Released);
        // Not earlier, because the CM had the ports until now.
        bind::put_former_port(&mut guard);
        if guard.conn().names.next.is_some() {
            connect::begin_next(&mut guard);
        } else {
            bind::put_chosen_port(&mut guard);
            bind::show_at_tcp_port(&mut guard);
        }
        fallback::wake(&guard);
        self.leave(guard);
    }

    /// The last step: releases the child's place at its listener, and the remaining resources of a
    /// socket without a program.
    fn leave(&mut self, mut guard: SockOwner<'_>) {
        let parent = guard.conn().lifetime.parent.take();
        let child = self.cm.child.take();
        if child.is_some() {
            self.sock.sk().orphan();
        }
        if self.sock.sk().is_orphan() {
            bind::put_port(&mut guard);
            guard.free_queues();
        }
        drop(guard);
        if let Some(parent) = parent {
            accept_queue::unreserve(&parent, self.sock);
        }
        // This waits for readers, which may themselves wait for the socket lock. It is the last
        // action for which another thread could wait.
        if self.cm.folder.take().is_some() {
            // From now on, no reader can ask for more messages.
            set_messages(self.sock, None);
        }
        drop(child);
    }

    /// Creates the debugfs folder of a connection that is about to be established. Must be called
    /// before any program can have transfers: the function takes a lock that a reader of the
    /// folders holds while it accesses its own memory. Such an access may wait for a transfer,
    /// which only this work item can end.
    pub(super) fn make_folder(&mut self) {
        if self.cm.id.is_some() && self.cm.folder.is_none() {
            // SAFETY: The connection holds the socket as long as there is an id; after that, the
            // running work item does, and `leave` drops the folder without the lock. The module's
            // folder is removed after the last socket.
            self.cm.folder = unsafe { Folder::new(self.sock, self.sock.sk().cookie()) };
        }
    }
}
