// SPDX-License-Identifier: GPL-2.0

//! connect(): the part that runs in the system call. The worker does the rest.
//!
//! After connect() to AF_UNSPEC, the next connect() may come while the worker is still releasing
//! the former connection. A non-blocking call must not wait for that, so the new connection is only
//! recorded ([`next`](super::super::parts::names::Names::next)), and its program sees a connecting
//! socket. The worker starts the connection when the former one is gone.

use kernel::prelude::*;

use super::bind;
use crate::bindings;
use crate::inet::addr::{
    Addr,
    V4_LOOPBACK, //
};
use crate::inet::netns::LOOPBACK_IFINDEX;
use crate::inet::route;
use crate::kern::errno::{
    EADDRNOTAVAIL,
    EAFNOSUPPORT,
    EALREADY,
    EISCONN,
    ENETUNREACH, //
};
use crate::kern::signal::signal_pending;
use crate::kern::time::Timeout;
use crate::proto::state::{
    Event,
    State, //
};
use crate::sdp::conn::connection::Connection;
use crate::sdp::conn::guard::{
    SockGuard,
    SockOwner, //
};
use crate::sdp::conn::sock::Want;
use crate::stats::counters::Counter;

const ANY_V4: Option<[u8; 4]> = Some([0; 4]);
const V6_LOOPBACK: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// Starts a connection to `to`. The core waits for the result, unless the call is non-blocking.
///
/// # Errors
///
/// `EAFNOSUPPORT` for an address of another family than the socket's, `ENETUNREACH` for a multicast
/// address, or an address that the socket cannot reach, `EINVAL` for an address that does not fit
/// the bound address or interface, `EADDRNOTAVAIL` without a free port, `EISCONN` while there is a
/// connection.
pub(crate) fn start_connect(guard: &mut SockGuard<'_>, to: Addr) -> Result {
    if guard.conn().lifetime.fell_back.is_some() {
        // The call began before the fallback to TCP.
        return Err(EISCONN);
    }
    let former_is_left = match guard.conn().state {
        State::Closed | State::Released => false,
        State::Dead => true,
        _ => return Err(EISCONN),
    };
    // As with TCP, a shutdown() without a connection also ends halves of the next connection. The
    // disconnection has reset those of the former one.
    let shutdown = guard.sk().shutdown();
    if former_is_left {
        forget_names(guard);
    } else if guard.conn().state == State::Released {
        make_new(guard);
    }
    guard.sk().add_shutdown(shutdown);
    let to = destination(guard, to)?;
    route::check(guard.sk(), &to)?;
    if former_is_left && !guard.sk().user_locked(bindings::SOCK_BINDPORT_LOCK) {
        bind::change_port(guard, &to);
    }
    if guard.conn().port.bound.is_none() {
        bind::get_port_towards(guard, &to).map_err(|_| EADDRNOTAVAIL)?;
    }
    let sk = guard.sk();
    sk.clear_err();
    guard.stats.inc(Counter::ConnectStarted);
    if !former_is_left {
        begin_connect(guard, to);
        return Ok(());
    }
    guard.free_received();
    let conn = guard.conn();
    conn.names.next = Some(to);
    conn.inq.fin_received = false;
    guard.glance.coming.set(false);
    sk.set_peer(&to);
    sk.reset_flag_done();
    sk.set_state(State::Resolving.tcp_state());
    Ok(())
}

/// Asks the worker to set the connection up.
fn begin_connect(guard: &mut SockGuard<'_>, to: Addr) {
    let sk = guard.sk();
    if to.is_link_local() {
        // As with TCP, so that getpeername() has the scope.
        sk.bind_to_link(to.scope as i32);
    }
    guard.conn().names.peer = to;
    guard.conn().names.local = sk.bound_addr();
    sk.set_peer(&to);
    guard.transition(Event::ConnectStart);
    guard.conn().names.next = None;
    guard.want(Want::Connect);
}

/// Starts the connection that connect() has recorded, if there is one, after the former connection
/// was released.
pub(super) fn begin_next(guard: &mut SockGuard<'_>) {
    if let Some(to) = guard.conn().names.next {
        let shutdown = guard.sk().shutdown();
        make_new(guard);
        guard.sk().add_shutdown(shutdown);
        begin_connect(guard, to);
    }
}

/// Forgets the connection that connect() has recorded; returns `false` if there is none.
pub(super) fn cancel_next(guard: &mut SockGuard<'_>) -> bool {
    let noted = guard.conn().names.next.take().is_some();
    if noted {
        let state = guard.conn().state.tcp_state();
        guard.sk().set_state(state);
    }
    noted
}

/// The address to which a connection to `to` goes. As with TCP, the wildcard address stands for
/// this machine: `::` for a loopback address, of IPv4 if the socket is bound to an IPv4 address;
/// `0.0.0.0` for the address or interface to which the socket is bound, if it is bound to one.
fn destination(guard: &mut SockGuard<'_>, to: Addr) -> Result<Addr> {
    let sk = guard.sk();
    if !sk.is_v6() && !to.is_v4() {
        return Err(EAFNOSUPPORT);
    }
    let bound = sk.bound_addr();
    let to = match (to.is_any() && !to.is_v4(), bound.is_v4()) {
        (false, _) => to,
        (true, true) => Addr::v4(V4_LOOPBACK, to.port),
        (true, false) => Addr::v6(V6_LOOPBACK, to.port, 0),
    };
    if sk.is_v6() {
        if to.is_v4() && sk.v6only() {
            return Err(ENETUNREACH);
        }
        // A socket bound to an address of one family cannot reach the other.
        if !bound.is_any() && bound.is_v4() != (to.is_v4()) {
            return Err(EINVAL);
        }
    }
    if to.is_multicast() {
        return Err(ENETUNREACH);
    }
    let dev = sk.bound_dev();
    if to.is_link_local() {
        let scope = to.scope as i32;
        // The scope or the bound interface must name the link, and they must not name different
        // ones.
        if (scope == 0 && dev == 0) || (scope != 0 && dev != 0 && scope != dev) {
            return Err(EINVAL);
        }
    }
    let to = match (to.is_any(), bound.as_v4()) {
        (false, _) => to,
        (true, None | ANY_V4) => Addr::v4(route::own_v4(sk)?, to.port),
        (true, Some(ip)) => Addr::v4(ip, to.port),
    };
    if to.is_loopback() && ![0, LOOPBACK_IFINDEX].contains(&dev) {
        return Err(ENETUNREACH);
    }
    Ok(to)
}

/// Turns the socket of an ended connection, of which everything was released, into a new one. As
/// with TCP, a port and an address that the program has not chosen are dropped.
pub(super) fn make_new(guard: &mut SockGuard<'_>) {
    guard.forget_poller();
    guard.free_queues();
    guard.sk().free_page_frag();
    guard.glance.reset();
    guard.transition(Event::Reuse);
    let new = Connection::new(guard.sk().net().settings());
    let old = core::mem::replace(guard.conn(), new);
    let conn = guard.conn();
    conn.options = old.options;
    conn.port = old.port.of_next();
    conn.halves = old.halves.next();
    conn.names.next = old.names.next;
    conn.lifetime.fast_opens = old.lifetime.fast_opens;
    let connects = conn.names.next.is_some();
    forget_names(guard);
    let sk = guard.sk();
    if !connects && !sk.user_locked(bindings::SOCK_BINDPORT_LOCK) {
        bind::put_port(guard);
        // As with TCP, getsockname() still has the port.
        sk.forget_num();
    }
}

/// Forgets the peer, and also the local address unless the program has chosen it.
pub(super) fn forget_names(guard: &mut SockGuard<'_>) {
    let sk = guard.sk();
    sk.clear_shutdown();
    sk.reset_flag_done();
    sk.set_peer(&Addr::ANY);
    if !sk.user_locked(bindings::SOCK_BINDADDR_LOCK) {
        sk.set_local(&Addr::ANY);
    }
}

/// Connects for a send, by `connect`, which may release the lock. Another send that comes
/// meanwhile is refused; but if the socket was disconnected in between, that send connects
/// again.
///
/// # Errors
///
/// `EALREADY` while another send connects, and the errors of `connect`.
pub(crate) fn fast_open(guard: &mut SockOwner<'_>, connect: impl FnOnce() -> Result) -> Result {
    let opens = &mut guard.conn().lifetime.fast_opens;
    if core::mem::replace(opens, true) {
        return Err(EALREADY);
    }
    let result = connect();
    guard.conn().lifetime.fast_opens = false;
    result
}

/// Turns the socket of an ended connection into a new one, after the worker has released
/// everything. A socket that had no connection stays as it is.
///
/// # Errors
///
/// `EISCONN` while there is a connection, `EINTR`.
pub(crate) fn reuse(guard: &mut SockOwner<'_>) -> Result {
    if await_end(guard)? {
        make_new(guard);
    }
    Ok(())
}

/// Waits until the worker has released everything of an ended connection; returns `false` for a
/// socket that had no connection.
///
/// # Errors
///
/// Those of [`reuse`].
fn await_end(guard: &mut SockOwner<'_>) -> Result<bool> {
    if guard.conn().state == State::Closed {
        return Ok(false);
    }
    if guard.conn().lifetime.fell_back.is_some() {
        return Err(EISCONN);
    }
    await_teardown(guard)?;
    if guard.conn().state == State::Released {
        Ok(true)
    } else {
        Err(EISCONN)
    }
}

/// Waits until the worker has released everything of an ended connection, including a port that
/// the program has not chosen.
///
/// # Errors
///
/// `EINTR`.
pub(crate) fn await_teardown(guard: &mut SockOwner<'_>) -> Result {
    while guard.conn().state == State::Dead {
        if signal_pending() {
            return Err(EINTR);
        }
        guard.wait(&mut Timeout::endless());
    }
    Ok(())
}

/// As [`reuse`], before bind() on a socket that its program has disconnected: such a
/// socket keeps a port that the kernel has chosen until everything is released. A socket in any
/// other state stays as it is.
///
/// # Errors
///
/// `EINTR`; `EINVAL` if another thread was faster.
pub(crate) fn reuse_disconnected(guard: &mut SockOwner<'_>) -> Result {
    if !guard.conn().state.has_ended() {
        return Ok(());
    }
    await_end(guard).map_err(|e| if e == EISCONN { EINVAL } else { e })?;
    // shutdown() may have come after the disconnection, also during the wait.
    let shutdown = guard.sk().shutdown();
    make_new(guard);
    guard.sk().add_shutdown(shutdown);
    Ok(())
}
