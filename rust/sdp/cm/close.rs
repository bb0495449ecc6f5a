// SPDX-License-Identifier: GPL-2.0

//! The end of a connection: shutdown(), close(), disconnection, orphans.
//!
//! # Normal operation
//!
//! Each side sends DisConn behind its last byte. When both DisConns are there the worker
//! disconnects the queue pair and gives everything back. Nothing is lost: a DisConn counts as sent
//! when the peer's adapter has it, and so has everything before. On iWARP, where that is not known, each
//! side waits for the other one's acknowledgement of its DisConn and of its last answer, or for the
//! other's disconnection.
//!
//! # When it ends otherwise
//!
//! [`SockGuard::fail`] sets the error and asks the worker for the same. The peer is told by an
//! AbortConn, or at the latest by the CM.

use kernel::prelude::*;

use super::{
    bind,
    connect,
    listen, //
};
use crate::bindings;
use crate::kern::errno::ECONNRESET;
use crate::kern::signal::signal_pending;
use crate::kern::time::Timeout;
use crate::proto::orphan::Rest;
use crate::proto::state::{
    Event,
    State, //
};
use crate::sdp::conn::accept_queue::Closed;
use crate::sdp::conn::guard::{
    SockGuard,
    SockOwner, //
};
use crate::sdp::conn::sock::SdpSock;
use crate::sdp::cq::poll::rearm_cq;
use crate::sdp::flush::flush;
use crate::sdp::output::abort::abort;

/// shutdown() of the sending half: DisConn behind the data.
pub(crate) fn shutdown_write(guard: &mut SockGuard<'_>) {
    if !guard.conn().state.can_send() {
        return;
    }
    guard.transition(Event::ShutdownWrite);
    guard.conn().out.disconn_due = true;
    flush(guard);
    rearm_cq(guard);
}

/// disconnect(): a connect() to AF_UNSPEC, the shutdown() of a listener, or the core's after a failed
/// connect(). The caller calls [`unlisten`] when it has released the lock.
pub(crate) fn disconnect(guard: &mut SockGuard<'_>) {
    let conn = guard.conn();
    let (state, torn_down) = (conn.state, conn.lifetime.torn_down);
    match state {
        State::Dead if torn_down => connect::make_new(guard),
        State::Dead => {
            if guard.conn().names.next.is_some() {
                guard.sk().set_err(ECONNRESET);
                connect::cancel_next(guard);
            }
        }
        State::Closed => {}
        State::Listen => {
            let pending = stop_listening(guard);
            let port = guard.sk().num();
            let conn = guard.conn();
            // `unlisten()` ends the CM's part without the lock.
            if core::mem::replace(&mut conn.port.listens, false) {
                // listen() has made the place.
                let _ = conn.port.unlisten.push_within_capacity(port);
            }
            bind::put_chosen_port(guard);
            abort_all(pending);
        }
        _ => {
            // As with TCP, it is no error where both halves have ended and all is sent. Nor for a moment: a
            // poll() does not hold the lock.
            let ended = matches!(state, State::LastAck | State::Closing | State::Draining);
            let complete = ended && guard.unsent_bytes() == 0;
            abort(guard, (!complete).then_some(ECONNRESET));
        }
    }
    guard.free_received();
    guard.forget_urgent();
    guard.conn().inq.fin_received = false;
    guard.conn().options.window_clamp = 0;
    guard.conn().lifetime.fast_opens = false;
    connect::forget_names(guard);
    guard.sk().reset_peek_offset();
}

/// Ends the state; what no program has accepted is the caller's to abort.
pub(super) fn stop_listening(guard: &mut SockGuard<'_>) -> Closed {
    guard.transition(Event::StopListening);
    bind::stop_listening(guard);
    let closed = guard.sock().accepts.lock().close(guard.sk());
    guard.sk().wake_all();
    closed
}

/// The socket will be an orphan: its peer has so much time to take the rest and to close.
fn await_peer(guard: &mut SockGuard<'_>) {
    let place = guard.conn().lifetime.place.as_mut();
    if place.is_some_and(|place| place.become_orphan().is_err()) {
        return abort(guard, Some(ECONNRESET));
    }
    guard.conn().lifetime.orphan_rest = Rest::new(guard.unsent_bytes());
    if !guard.conn().lifetime.torn_down {
        guard.start_orphan_timer();
        guard.start_fin_timer();
    }
}

impl SockOwner<'_> {
    /// Waits until our half is closed, for SO_LINGER; or until the connection ends, as when the peer sends
    /// what nobody will read.
    fn linger(&mut self, mut timeo: Timeout) {
        while !timeo.is_over() && !signal_pending() {
            let state = self.conn().state;
            let unsent = matches!(state, State::FinWait1 | State::Closing | State::LastAck);
            let waits = unsent || self.conn().adverts.awaits_reads();
            if state == State::Dead || !waits {
                return;
            }
            self.wait(&mut timeo);
        }
    }

    /// Whether the peer has sent bytes that the program has not got. If the connection has ended both ways,
    /// bytes that are here already do not count.
    fn has_unread(&mut self) -> bool {
        let conn = self.conn();
        conn.adverts.holds() || (conn.state != State::Draining && !conn.inq.queue.is_empty())
    }

    /// What close() does to a connection.
    fn close_connection(&mut self, timeo: Timeout) {
        connect::cancel_next(self);
        // What calls have given away is not unread.
        self.await_early();
        let state = self.conn().state;
        let unread = self.has_unread();
        let no_linger = self.sk().linger() == Some(0);
        match state {
            State::Closed | State::Listen | State::Dead => {}
            // The last answers may wait for credits that the peer never gives.
            State::Draining if !unread && !self.conn().adverts.awaits_reads() => await_peer(self),
            State::Resolving | State::HelloSent | State::HelloReceived => {
                abort(self, Some(ECONNRESET))
            }
            _ if unread || no_linger => abort(self, Some(ECONNRESET)),
            _ => {
                shutdown_write(self);
                self.linger(timeo);
                // Bytes that have come meanwhile were refused, and have ended the connection.
                if self.conn().state != State::Dead {
                    await_peer(self);
                }
            }
        }
    }
}

/// Aborts connections that no program has accepted. Their listener's lock may be held.
pub(super) fn abort_all(pending: Closed) {
    for child in pending.established() {
        child.abandon(ECONNRESET);
    }
}

impl SdpSock {
    /// Ends a connection that no program has.
    pub(super) fn abandon(&self, why: Error) {
        let mut guard = self.lock_nested();
        // Before the worker can give the rest back: it looks whether there is a program.
        self.orphan();
        // Before the peer can know of the end, whereupon the program may listen there again.
        bind::put_port(&mut guard);
        abort(&mut guard, Some(why));
        leave_table(&mut guard);
    }
}

/// An orphan whose connection has ended leaves nothing behind; its port is free at once, unless
/// the CM still has it: nobody else could listen there.
fn leave_table(guard: &mut SockGuard<'_>) {
    let ended = matches!(guard.conn().state, State::Closed | State::Dead);
    if ended && !guard.conn().port.at_cm {
        bind::put_port(guard);
    }
    if guard.conn().lifetime.torn_down {
        guard.free_queues();
    }
}

/// Whether an orphan's peer has taken its part of the rest since the timer was started, which is
/// started again then.
pub(super) fn orphan_gets_on(guard: &mut SockGuard<'_>) -> bool {
    let unsent = guard.unsent_bytes();
    let gets_on = guard.conn().lifetime.orphan_rest.ends_turn(unsent);
    if gets_on {
        guard.start_orphan_timer();
    }
    gets_on
}

/// Ends the CM's listening at the ports at which the socket has ended its own, before the program's call
/// returns: on iWARP, TCP accepts connections there until then, which nobody would answer.
pub(crate) fn unlisten(sock: &SdpSock) {
    loop {
        // One at a time: the vector keeps its places.
        let Some(port) = sock.lock().conn().port.unlisten.pop() else {
            return;
        };
        listen::release(sock.sk().net(), port);
    }
}

/// close(): the program's reference goes. A connection lives on until its data are delivered.
///
/// # Safety
///
/// The caller gives up the reference of the `struct socket`.
pub(crate) unsafe fn close(sock: &SdpSock, timeo: Timeout) {
    let mut pending = Closed::new();
    let mut listening: KVec<u16>;
    {
        let mut guard = sock.lock();
        sock.sk().add_shutdown(bindings::SHUTDOWN_MASK);
        if guard.conn().state == State::Listen {
            pending = stop_listening(&mut guard);
        } else {
            guard.close_connection(timeo);
        }
        let conn = guard.conn();
        listening = core::mem::take(&mut conn.port.unlisten);
        if core::mem::replace(&mut conn.port.listens, false) {
            // listen() has made the place.
            let _ = listening.push_within_capacity(sock.sk().num());
        }
        sock.orphan();
        leave_table(&mut guard);
    }
    abort_all(pending);
    for &port in &listening {
        listen::release(sock.sk().net(), port);
    }
    // SAFETY: The caller gives the reference up; the connection, if there is one, has its own.
    unsafe { bindings::sk_common_release(sock.sk().as_ptr()) };
}
