// SPDX-License-Identifier: GPL-2.0

//! The fallback to TCP: a socket of AF_INET or AF_INET6 that SDP cannot connect becomes a TCP
//! socket, if the administrator has allowed it (`net.sdp.tcp_fallback`).
//!
//! connect() creates the TCP socket beforehand, because security modules and control groups look at
//! the program that creates a socket. The worker connects it when SDP has failed.

use core::ptr::NonNull;

use kernel::prelude::*;

use super::bind;
use crate::bindings;
use crate::inet::tcp_client::TcpClient;
use crate::kern::barrier::smp_wmb;
use crate::proto::state::State;
use crate::sdp::conn::connection::FellBack;
use crate::sdp::conn::guard::{
    SockGuard,
    SockOwner, //
};
use crate::sdp::conn::sock::SdpSock;
use crate::sdp::parts::options::Options;
use crate::stats::counters::Counter;

/// The TCP socket that stands ready.
pub(super) type Ready = Option<KBox<TcpClient>>;

/// Called before a connect() of a program on a socket of AF_INET or AF_INET6 that has a file. If no
/// TCP socket can be created, for example because its port is taken, there is no fallback. Sleeps.
pub(crate) fn prepare(sock: &SdpSock) {
    if !connects_now(&mut sock.lock()) {
        return;
    }
    if !sock.sk().net().may_fall_back() {
        return discard(sock);
    }
    bind::release_tcp_port(&mut sock.lock());
    let Ok(client) = TcpClient::new(sock.sk()) else {
        return;
    };
    let mut guard = sock.lock();
    // Meanwhile another thread may have called connect(), which may even have ended.
    let unused = match connects_now(&mut guard) {
        true => sock.tcp.lock().replace(client),
        false => Some(client),
    };
    drop(guard);
    drop(unused);
}

/// Whether a connect() would start a connection that may fall back. A socket with
/// TCP_FASTOPEN_CONNECT connects by SDP only.
fn connects_now(guard: &mut SockGuard<'_>) -> bool {
    let conn = guard.conn();
    let is_unused = match conn.state {
        State::Closed => true,
        State::Released => conn.lifetime.fell_back.is_none(),
        _ => false,
    };
    is_unused && !conn.options.fast_open.connect
}

/// The TCP socket that has the place of `sock`, if there is one. It stays valid until the file that
/// both sockets share is closed.
pub(crate) fn in_place(sock: &SdpSock) -> Option<NonNull<bindings::socket>> {
    let tcp = sock.tcp.lock();
    let client = tcp.as_ref().filter(|client| client.is_in_place());
    client.map(|client| client.socket())
}

/// Releases a TCP socket that stands ready, because SDP has connected, or has not begun. Sleeps.
pub(crate) fn discard(sock: &SdpSock) {
    let tcp = {
        let mut tcp = sock.tcp.lock();
        let is_ready = tcp.as_ref().is_some_and(|client| !client.is_in_place());
        if is_ready {
            tcp.take()
        } else {
            None
        }
    };
    drop(tcp);
}

/// Wakes those who wait for the socket, at the end of its connection by SDP. While TCP is still
/// connecting, nothing has happened for programs yet, and io_uring would try connect() again: only
/// threads that wait in a call on the socket are woken.
pub(super) fn wake(guard: &SockGuard<'_>) {
    let sk = guard.sk();
    let is_connecting = {
        let tcp = guard.sock().tcp.lock();
        let client = tcp.as_ref().filter(|client| client.is_in_place());
        client.map(|client| client.is_connecting())
    };
    match is_connecting {
        Some(true) => sk.wake_waiters(),
        Some(false) => {
            sk.wake_all();
            sk.signal_connected();
        }
        None => sk.wake_all(),
    }
}

/// Releases the TCP socket, because the program has closed the file. Sleeps.
pub(crate) fn release(sock: &SdpSock) {
    let tcp = sock.tcp.lock().take();
    drop(tcp);
}

/// Starts a connection by TCP after the connection by SDP has failed. `None` if no TCP socket
/// stands ready, if the program has ended the attempt, or if TCP fails at once. Sleeps.
pub(super) fn connect(sock: &SdpSock) -> Ready {
    let sk = sock.sk();
    let (client, options, peer) = {
        let mut guard = sock.lock();
        let conn = guard.conn();
        if !matches!(conn.state, State::Resolving | State::HelloSent) {
            return None;
        }
        let (options, peer) = (conn.options, conn.names.peer);
        (sock.tcp.lock().take()?, options, peer)
    };
    client.copy_settings(sk);
    let new = Options::new(sk.net().settings());
    let numbers = |options: &Options| {
        [
            (bindings::TCP_NODELAY, options.nodelay.into()),
            (bindings::TCP_CORK, options.cork.into()),
            (bindings::TCP_KEEPIDLE, options.keepidle_s),
            (bindings::TCP_KEEPINTVL, options.keepintvl_s),
            (bindings::TCP_KEEPCNT, options.keepcnt),
            (bindings::TCP_USER_TIMEOUT, options.user_timeout_ms),
            (bindings::TCP_SYNCNT, options.syn_retries),
            (bindings::TCP_LINGER2, options.linger2_s),
        ]
    };
    let glance = &sock.glance;
    let others = [
        (bindings::TCP_INQ, glance.tells_unread.get().into(), 0),
        (
            bindings::TCP_NOTSENT_LOWAT,
            glance.notsent_lowat.get() as i32,
            0,
        ),
    ];
    for ((name, value), (_, initial)) in numbers(&options).into_iter().zip(numbers(&new)) {
        client.set_tcp(name, value, initial);
    }
    for (name, value, initial) in others {
        client.set_tcp(name, value, initial);
    }
    client.start(peer, sk.is_v6()).ok().map(|()| client)
}

/// Gives the TCP socket the place of the socket, whose connection by SDP has failed with `why`.
/// Returns `false`, and leaves `tcp` as it is, if there is no TCP socket, or if the program has
/// closed the file.
pub(super) fn install(guard: &mut SockOwner<'_>, tcp: &mut Ready, why: Error) -> bool {
    let Some(client) = tcp else {
        return false;
    };
    // SAFETY: The lock is held. `release` drops the value when the program has closed the file,
    // before the core frees the socket.
    if !unsafe { client.take_place_of(guard.sk()) } {
        return false;
    }
    let port = client.port();
    guard.conn().lifetime.fell_back = Some(FellBack { port, why });
    *guard.sock().tcp.lock() = tcp.take();
    // Before the state changes, which poll() reads without the lock.
    guard.glance.is_tcp.set(true);
    smp_wmb();
    guard.stats.inc(Counter::ConnectFellBack);
    true
}
