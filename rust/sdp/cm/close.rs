// SPDX-License-Identifier: GPL-2.0

//! The end of a connection: shutdown(), close(), disconnection, orphans.
//!
//! # Normal operation
//!
//! Each side sends DisConn after its last byte. When both DisConns have arrived, the worker
//! disconnects the queue pair and releases everything. No bytes are lost: a DisConn counts as sent
//! when the peer's adapter has it, and the adapter then has all earlier messages, too. On iWARP,
//! completions do not show this, so each side waits until the peer has acknowledged DisConn and the
//! side's last answer, or has disconnected.
//!
//! # After an error
//!
//! [`SockGuard::fail`] sets the error, and asks the worker to disconnect and release everything.
//! The peer learns of the end from an AbortConn, or at the latest from the CM.

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
use crate::sdp::recv::read_async::await_early;

/// shutdown() of the sending half: sends DisConn after the data.
pub(crate) fn shutdown_write(guard: &mut SockGuard<'_>) {
    if !guard.conn().state.can_send() {
        return;
    }
    guard.transition(Event::ShutdownWrite);
    guard.conn().out.disconn_due = true;
    flush(guard);
    rearm_cq(guard);
}

/// disconnect(), for connect() to AF_UNSPEC, for the shutdown() of a listener, and for the core
/// after a failed connect(). The caller must call [`unlisten`] after it has released the lock.
pub(crate) fn disconnect(guard: &mut SockGuard<'_>) {
    let conn = guard.conn();
    let state = conn.state;
    if conn.lifetime.fell_back.is_some() {
        // The program has a TCP socket now.
        return;
    }
    match state {
        State::Released => connect::make_new(guard),
        State::Dead => {
            if guard.conn().names.next.is_some() {
                guard.sk().set_err(ECONNRESET);
                connect::cancel_next(guard);
                guard.sk().wake_all();
                guard.sk().report_error();
            }
        }
        State::Closed => {}
        State::Listen => {
            let pending = stop_listening(guard);
            let port = guard.sk().num();
            let conn = guard.conn();
            // `unlisten()` ends the CM's listening without the lock.
            if core::mem::replace(&mut conn.port.listens, false) {
                // listen() has reserved the place.
                let _ = conn.port.unlisten.push_within_capacity(port);
            }
            bind::put_chosen_port(guard);
            abort_all(pending);
        }
        _ => {
            // As with TCP, there is no error if both halves have ended and everything was sent.
            // There must not be one even for a moment, because poll() does not take the lock.
            let ended = matches!(state, State::LastAck | State::Closing | State::Draining);
            let complete = ended && guard.unsent_bytes() == 0;
            abort(guard, (!complete).then_some(ECONNRESET));
        }
    }
    guard.free_received();
    guard.forget_urgent();
    guard.conn().inq.fin_received = false;
    let options = &mut guard.conn().options;
    options.window_clamp = 0;
    options.maxseg_bytes = 0;
    options.quickack = true;
    guard.conn().lifetime.fast_opens = false;
    connect::forget_names(guard);
    guard.sk().reset_peek_offset();
}

/// Ends the listening of the socket. The caller must abort the returned connections, which no
/// program has accepted.
pub(super) fn stop_listening(guard: &mut SockGuard<'_>) -> Closed {
    guard.transition(Event::StopListening);
    bind::stop_listening(guard);
    let closed = guard.sock().accepts.lock().close(guard.sk());
    guard.sk().wake_all();
    closed
}

/// Called before the socket becomes an orphan: starts the timers for its peer, which has to take
/// the rest and to close.
fn await_peer(guard: &mut SockGuard<'_>) {
    let place = guard.conn().lifetime.place.as_mut();
    if place.is_some_and(|place| place.become_orphan().is_err()) {
        return abort(guard, Some(ECONNRESET));
    }
    guard.conn().lifetime.orphan_rest = Rest::new(guard.unsent_bytes());
    guard.start_orphan_timer();
    guard.start_fin_timer();
}

/// Waits for SO_LINGER until this side's half is closed, or until the connection ends, for
/// example because the peer sends bytes that no program will read.
fn linger(guard: &mut SockOwner<'_>, mut timeo: Timeout) {
    while !timeo.is_over() && !signal_pending() {
        let state = guard.conn().state;
        let unsent = matches!(state, State::FinWait1 | State::Closing | State::LastAck);
        let waits = unsent || guard.conn().adverts.awaits_reads();
        if state.has_ended() || !waits {
            return;
        }
        guard.wait(&mut timeo);
    }
}

/// Whether the peer has sent bytes that the program has not read. If both halves of the
/// connection have ended, bytes that have already arrived do not count.
fn has_unread(guard: &mut SockOwner<'_>) -> bool {
    let conn = guard.conn();
    conn.adverts.holds() || (conn.state != State::Draining && !conn.inq.queue.is_empty())
}

/// Ends a connection because of close().
fn close_connection(guard: &mut SockOwner<'_>, timeo: Timeout) {
    connect::cancel_next(guard);
    // Bytes of receives that have returned early do not count as unread.
    await_early(guard);
    let state = guard.conn().state;
    let unread = has_unread(guard);
    let no_linger = guard.sk().linger() == Some(0);
    match state {
        State::Closed | State::Listen | State::Dead | State::Released => {}
        // The last answers may wait for credits that the peer never gives.
        State::Draining if !unread && !guard.conn().adverts.awaits_reads() => await_peer(guard),
        State::Resolving | State::HelloSent | State::HelloReceived => {
            abort(guard, Some(ECONNRESET))
        }
        _ if unread || no_linger => abort(guard, Some(ECONNRESET)),
        _ => {
            shutdown_write(guard);
            linger(guard, timeo);
            // Bytes that arrived meanwhile were refused, and have ended the connection.
            if !guard.conn().state.has_ended() {
                await_peer(guard);
            }
        }
    }
}

/// Aborts connections that no program has accepted. Their listener's lock may be held.
pub(super) fn abort_all(pending: Closed) {
    for child in pending.established() {
        abandon(&child, ECONNRESET);
    }
}

/// Ends a connection that no program has accepted.
pub(super) fn abandon(child: &SdpSock, why: Error) {
    let mut guard = child.lock_nested();
    // Before the worker can release the rest, because the worker checks whether there is a program.
    child.sk().orphan();
    // Before the peer can learn of the end, because a program may then listen at the port again.
    bind::put_port(&mut guard);
    abort(&mut guard, Some(why));
    leave_table(&mut guard);
}

/// Releases the remaining resources of an orphan whose connection has ended. The port is released
/// at once, unless the CM still has it; in that case no other socket could listen there anyway.
fn leave_table(guard: &mut SockGuard<'_>) {
    let state = guard.conn().state;
    let unconnected = state == State::Closed || state.has_ended();
    if unconnected && !guard.conn().port.is_at_cm() {
        bind::put_port(guard);
    }
    if state == State::Released {
        guard.free_queues();
    }
}

/// Whether an orphan's peer has taken its share of the rest since the timer was started. If so, the
/// timer is started again.
pub(super) fn orphan_gets_on(guard: &mut SockGuard<'_>) -> bool {
    let unsent = guard.unsent_bytes();
    let gets_on = guard.conn().lifetime.orphan_rest.ends_period(unsent);
    if gets_on {
        guard.start_orphan_timer();
    }
    gets_on
}

/// Ends the CM's listening at the ports at which the socket no longer listens, before the program's
/// call returns. Until then, TCP on iWARP accepts connections there that would not be answered.
pub(crate) fn unlisten(sock: &SdpSock) {
    loop {
        // One port at a time, so that the vector keeps its capacity.
        let Some(port) = sock.lock().conn().port.unlisten.pop() else {
            return;
        };
        listen::release(sock.sk().net(), port);
    }
}

/// close(): releases the program's reference. A connection lives on until its data are delivered.
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
            close_connection(&mut guard, timeo);
            // The program may have set SDP_LISTEN_TCP without calling listen(). If the TCP socket
            // stayed, it would tell this socket of connections until the last reference to this
            // socket is dropped.
            pending.tcp = guard.accepts.lock().set_tcp(None);
        }
        let conn = guard.conn();
        listening = core::mem::take(&mut conn.port.unlisten);
        if core::mem::replace(&mut conn.port.listens, false) {
            // listen() has reserved the place.
            let _ = listening.push_within_capacity(sock.sk().num());
        }
        sock.sk().orphan();
        leave_table(&mut guard);
    }
    abort_all(pending);
    for &port in &listening {
        listen::release(sock.sk().net(), port);
    }
    // SAFETY: The caller gives the reference up; the connection, if there is one, has its own.
    unsafe { bindings::sk_common_release(sock.sk().as_ptr()) };
}
