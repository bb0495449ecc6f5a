// SPDX-License-Identifier: GPL-2.0
//! connect(), blocking and non-blocking, and sockets that are not connected.

use super::limit_ports;
use crate::support::flow::{spawn, Span};
use crate::support::harness::{
    differences, eventually, expect, expect_eof, expect_eq, expect_errno, expect_errno_of,
    expect_received, expect_waited, failed, joined, readable_bytes, receive, skip, spawn_waiting,
    tests, Env, Fail, Outcome, ANY4, ANY6, LOOPBACK4, LOOPBACK6, QUIET_MS,
};
use crate::support::peer::Remote;
use crate::support::sys::{self, Sock, SockAddr};
use libc::{
    EADDRINUSE, EADDRNOTAVAIL, EAGAIN, EALREADY, ECONNREFUSED, ECONNRESET, EINPROGRESS, EINVAL,
    EISCONN, ENETUNREACH, ENOTCONN, EPIPE, POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP,
};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

tests!("connect";
    refused,
    refused_then_accepted,
    refused_then_bound,
    refused_nonblocking,
    nonblocking,
    many_nonblocking,
    twice,
    to_full_backlog,
    to_full_backlog_with_timeout,
    to_full_backlog_with_user_timeout,
    to_full_backlog_then_closed,
    to_listener_that_closes,
    close_while_connecting,
    to_multicast_and_broadcast,
    to_any_address,
    to_port_zero,
    unconnected,
    shut_down_before,
    shut_down_before_and_connecting,
    shut_down_while_connecting,
    data_before_accept,
    closed_before_accept,
    disconnect_and_reuse,
    disconnect_while_connecting,
    disconnect_after_both_ends,
    disconnect_and_bind,
    disconnect_and_connect_nonblocking,
    next_connect_does_not_wait,
    over_its_interface,
    scope_of_a_link_local_peer,
    no_two_with_the_same_names,
    peers_share_ports,
    to_itself_is_no_crash,
);

const ALL: i16 = POLLIN | POLLOUT | POLLRDHUP;

/// An address of the peer where nobody listens (but the port is taken by a socket).
pub(in crate::tests) fn nobody(env: &Env) -> io::Result<(Remote, SockAddr)> {
    let bound = env.remote_socket(&env.peer()?)?;
    bound.bind(&env.there(0))?;
    let addr = bound.getsockname()?;
    Ok((bound, addr))
}

fn refused(env: &Env) -> Outcome {
    let (_bound, addr) = nobody(env)?;
    for _ in 0..3 {
        let sock = env.socket()?;
        expect_errno(sock.connect(&addr), ECONNREFUSED, "connect")?;
        expect_eq(sock.take_error()?, 0, "SO_ERROR after connect reported it")?;
        expect_errno(sock.getpeername(), ENOTCONN, "getpeername")?;
    }
    Ok(())
}

/// The socket of a refused connection can be used again.
fn refused_then_accepted(env: &Env) -> Outcome {
    let (bound, addr) = nobody(env)?;
    let sock = env.socket()?;
    expect_errno(sock.connect(&addr), ECONNREFUSED, "connect")?;
    expect_errno(sock.connect(&addr), ECONNREFUSED, "the second connect")?;
    bound.listen(1)?;
    sock.connect(&addr)?;
    let (remote, from) = bound.accept()?;
    expect_eq(from.to_std(), sock.getsockname()?.to_std(), "accepted")?;
    let span = Span::new(env.seed, 0, 1000);
    remote.send_span(span, 1000)?;
    receive(&sock, span)
}

/// After a failed connect(), the socket does not keep the port that the kernel has chosen.
fn refused_then_bound(env: &Env) -> Outcome {
    let (bound, addr) = nobody(env)?;
    let sock = env.socket()?;
    expect_errno(sock.connect(&addr), ECONNREFUSED, "connect")?;
    sock.bind(&env.here(0))?;
    let name = sock.getsockname()?;
    expect_errno(sock.bind(&env.here(0)), EINVAL, "the second bind")?;
    bound.listen(1)?;
    sock.connect(&addr)?;
    let (_remote, from) = bound.accept()?;
    expect_eq(from.to_std(), name.to_std(), "accepted")?;
    // A port that the program has chosen is kept.
    let (_bound, addr) = nobody(env)?;
    let free = {
        let other = env.socket()?;
        other.bind(&env.here(0))?;
        other.getsockname()?.port()
    };
    let sock = env.socket()?;
    sock.bind(&env.here(free))?;
    expect_errno(sock.connect(&addr), ECONNREFUSED, "connect of a bound one")?;
    expect_eq(sock.getsockname()?.port(), free, "the port that was bound")?;
    expect_errno(sock.bind(&env.here(0)), EINVAL, "bind of a bound one")
}

fn refused_nonblocking(env: &Env) -> Outcome {
    let (_bound, addr) = nobody(env)?;
    let sock = env.socket()?;
    sock.set_nonblocking(true)?;
    expect_errno(sock.connect(&addr), EINPROGRESS, "connect")?;
    let want = POLLIN | POLLOUT | POLLRDHUP | POLLERR | POLLHUP;
    expect_eq(
        sock.poll(POLLOUT, -1)?,
        want & !POLLIN & !POLLRDHUP,
        "poll for output",
    )?;
    expect_eq(sock.poll(ALL, -1)?, want, "poll")?;
    expect_eq(sock.take_error()?, ECONNREFUSED, "SO_ERROR")?;
    expect_eq(sock.take_error()?, 0, "SO_ERROR again")?;
    // An error that was not fetched is returned by the next call.
    let sock = env.socket()?;
    sock.set_nonblocking(true)?;
    expect_errno(sock.connect(&addr), EINPROGRESS, "connect")?;
    sock.poll(POLLOUT, -1)?;
    expect_errno(sock.recv(&mut [0], 0), ECONNREFUSED, "recv")
}

fn nonblocking(env: &Env) -> Outcome {
    let (listener, addr) = env.remote_listener(1)?;
    let sock = env.socket()?;
    sock.set_nonblocking(true)?;
    expect_errno(sock.connect(&addr), EINPROGRESS, "connect")?;
    expect_eq(sock.poll(ALL, -1)?, POLLOUT, "poll")?;
    expect_eq(sock.take_error()?, 0, "SO_ERROR")?;
    // The first connect() after the success returns success; the next one fails because the socket
    // is connected.
    sock.connect(&addr)?;
    expect_errno(sock.connect(&addr), EISCONN, "connect again")?;
    expect_eq(sock.getpeername()?.to_std(), addr.to_std(), "getpeername")?;
    let (remote, _) = listener.accept()?;
    sock.send_all(b"hello")?;
    expect_eq(remote.recv(16, 0)?, b"hello".to_vec(), "received")
}

fn many_nonblocking(env: &Env) -> Outcome {
    let count = env.scaled(30);
    let (listener, addr) = env.remote_listener(count as i32)?;
    let mut socks = Vec::new();
    for _ in 0..count {
        let sock = env.socket()?;
        sock.set_nonblocking(true)?;
        expect_errno(sock.connect(&addr), EINPROGRESS, "connect")?;
        socks.push(sock);
    }
    for sock in &socks {
        expect_eq(sock.poll(POLLOUT, -1)?, POLLOUT, "poll")?;
        expect_eq(sock.take_error()?, 0, "SO_ERROR")?;
    }
    let mut names = std::collections::HashSet::new();
    for _ in &socks {
        let (_, from) = listener.accept()?;
        names.insert(from.to_std());
    }
    for sock in &socks {
        expect(
            names.contains(&sock.getsockname()?.to_std()),
            "one is missing",
        )?;
    }
    Ok(())
}

fn twice(env: &Env) -> Outcome {
    let (sock, _remote) = env.pair()?;
    let addr = sock.getpeername()?;
    expect_errno(sock.connect(&addr), EISCONN, "a connected socket")?;
    expect_errno(sock.listen(1), EINVAL, "listen on it")?;
    expect_errno(sock.bind(&env.here(0)), EINVAL, "bind of it")?;
    let (listener, addr) = env.listener(1)?;
    expect_errno(listener.connect(&addr), EISCONN, "a listener")
}

/// A listener of the peer whose backlog is full, and the connections in it.
pub(in crate::tests) fn full_listener(env: &Env) -> Result<(Remote, SockAddr, Vec<Sock>), Fail> {
    // As many requests wait as there are places. The last one of this function still waits for a
    // moment after its socket was closed, and must not take the only place.
    let (listener, addr) = env.remote_listener(1)?;
    let mut inside = Vec::new();
    loop {
        let sock = env.socket()?;
        sock.set_nonblocking(true)?;
        expect_errno(sock.connect(&addr), EINPROGRESS, "connect")?;
        // A backlog of 1 has two places, which a slow machine may take long to fill.
        let patience_ms = match inside.len() {
            0 | 1 => 10_000,
            _ => 4 * QUIET_MS,
        };
        if sock.poll(POLLOUT, patience_ms)? == 0 {
            return Ok((listener, addr, inside));
        }
        inside.push(sock);
        expect(inside.len() < 20, "a backlog of 1 holds 20")?;
    }
}

/// A client that finds the backlog full waits, and connects when there is room.
fn to_full_backlog(env: &Env) -> Outcome {
    let (listener, addr, inside) = full_listener(env)?;
    let sock = env.socket()?;
    sock.set_nonblocking(true)?;
    expect_errno(sock.connect(&addr), EINPROGRESS, "connect")?;
    expect_errno(sock.connect(&addr), EALREADY, "connect again")?;
    expect_eq(sock.poll(ALL, QUIET_MS)?, 0, "poll while connecting")?;
    expect_errno(sock.getpeername(), ENOTCONN, "getpeername while connecting")?;
    expect_errno(sock.recv(&mut [0], 0), EAGAIN, "recv while connecting")?;
    expect_errno(sock.send(b"x", 0), EAGAIN, "send while connecting")?;
    let name = sock.getsockname()?.to_std();
    let begun = Instant::now();
    let mut rest = inside.len() + 10;
    loop {
        let (_, from) = listener.accept()?;
        if from.to_std() == name {
            break;
        }
        rest -= 1;
        expect(rest > 0, "the last one never comes")?;
    }
    expect_eq(sock.poll(POLLOUT, -1)?, POLLOUT, "poll at the end")?;
    if differences::requests_wait_at_listener(env.family) {
        within_a_second(env, begun, "connected")?;
    }
    expect_eq(sock.take_error()?, 0, "SO_ERROR")
}

fn within_a_second(env: &Env, begun: Instant, what: &str) -> Outcome {
    let waited = begun.elapsed();
    let limit = Duration::from_secs(1).mul_f64(env.timeout_scale);
    expect(waited < limit, format!("{what} after {waited:?}"))
}

fn to_full_backlog_with_timeout(env: &Env) -> Outcome {
    let (_listener, addr, _inside) = full_listener(env)?;
    let sock = env.socket()?;
    sock.set_timeout(libc::SO_SNDTIMEO, 300)?;
    expect_errno(sock.connect(&addr), EINPROGRESS, "connect with SO_SNDTIMEO")?;
    expect_errno(sock.connect(&addr), EALREADY, "connect again")
}

/// TCP_USER_TIMEOUT also limits the time for a connection.
fn to_full_backlog_with_user_timeout(env: &Env) -> Outcome {
    let (_listener, addr, _inside) = full_listener(env)?;
    let sock = env.socket()?;
    sock.set_int(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 8000)?;
    sock.set_nonblocking(true)?;
    expect_errno(sock.connect(&addr), EINPROGRESS, "connect")?;
    expect(sock.poll(POLLOUT, 25_000)? != 0, "connect goes on")?;
    let error = sock.get_int(libc::SOL_SOCKET, libc::SO_ERROR)?;
    expect_eq(error, libc::ETIMEDOUT, "SO_ERROR")
}

/// A client that finds the backlog full waits, and is refused within a second after the listener is
/// closed.
fn to_full_backlog_then_closed(env: &Env) -> Outcome {
    for nonblocking in [false, true] {
        let (listener, addr, _inside) = full_listener(env)?;
        let sock = Arc::new(env.socket()?);
        sock.set_nonblocking(nonblocking)?;
        let connecting = Arc::clone(&sock);
        let job = spawn_waiting(move || connecting.connect(&addr))?;
        thread::sleep(Duration::from_millis(QUIET_MS as u64));
        expect_eq(job.is_finished(), nonblocking, "connect has ended")?;
        listener.close()?;
        let begun = Instant::now();
        match nonblocking {
            false => expect_errno(joined(job)?, ECONNREFUSED, "connect")?,
            true => {
                expect_errno(joined(job)?, EINPROGRESS, "connect")?;
                let events = sock.poll(ALL, -1)?;
                expect_eq(events, ALL | POLLERR | POLLHUP, "poll at the end")?;
                expect_eq(sock.take_error()?, ECONNREFUSED, "SO_ERROR")?;
            }
        }
        within_a_second(env, begun, "refused")?;
    }
    Ok(())
}

/// Connections that are being made when their listener is closed end within a second, although no
/// program has accepted them.
fn to_listener_that_closes(env: &Env) -> Outcome {
    const CONNECTIONS: i32 = 10;
    if differences::over_iwarp(env.family) {
        return skip("the kernel's iWARP CM loses the requests of a listener that is closed");
    }
    for delay_ms in [0, 1, 5, 20] {
        let (listener, addr) = env.remote_listener(CONNECTIONS)?;
        let mut socks = Vec::new();
        for _ in 0..CONNECTIONS {
            let sock = env.socket()?;
            sock.set_nonblocking(true)?;
            expect_errno(sock.connect(&addr), EINPROGRESS, "connect")?;
            socks.push(sock);
        }
        thread::sleep(Duration::from_millis(delay_ms));
        listener.close()?;
        let limit = Duration::from_secs(1).mul_f64(env.timeout_scale);
        let ends = Instant::now() + limit;
        for sock in socks {
            let left = ends.saturating_duration_since(Instant::now());
            let events = sock.poll(POLLIN, left.as_millis() as i32)?;
            expect(events & POLLHUP != 0, format!("events {events:#x}"))?;
            let error = sock.take_error()?;
            let is_ended = [ECONNREFUSED, ECONNRESET].contains(&error);
            expect(is_ended, format!("error {error}"))?;
        }
    }
    Ok(())
}

fn close_while_connecting(env: &Env) -> Outcome {
    let (listener, addr, inside) = full_listener(env)?;
    for _ in 0..10 {
        let sock = env.socket()?;
        sock.set_nonblocking(true)?;
        expect_errno(sock.connect(&addr), EINPROGRESS, "connect")?;
    }
    for _ in &inside {
        listener.accept()?;
    }
    drop(inside);
    let last = env.socket()?;
    last.set_nonblocking(true)?;
    expect_errno(last.connect(&addr), EINPROGRESS, "connect")?;
    let port = last.getsockname()?.port();
    // Some of the closed sockets may have connected before; each takes a place until it is
    // accepted.
    for _ in 0..12 {
        if listener.accept()?.1.port() == port {
            return Ok(());
        }
    }
    failed("the last connection does not come out of accept")
}

fn to_multicast_and_broadcast(env: &Env) -> Outcome {
    for ip in [
        [224, 0, 0, 1],
        [239, 1, 2, 3],
        [255, 255, 255, 255],
        // The broadcast address of the loopback interface.
        [127, 255, 255, 255],
    ] {
        let sock = env.family.socket(ANY4)?;
        let result = sock.connect(&(ip.into(), 7).into());
        expect_errno(result, ENETUNREACH, format!("{ip:?}"))?;
    }
    Ok(())
}

/// A connect() to the wildcard address connects to this machine: over IPv4 to the address or the
/// interface to which the socket is bound, otherwise to the loopback address.
fn to_any_address(env: &Env) -> Outcome {
    let connects = |sock: &Sock, any: IpAddr, what: &str| -> Result<IpAddr, Fail> {
        let listener = env.family.socket(any)?;
        listener.bind(&(any, 0).into())?;
        listener.listen(1)?;
        sock.connect(&(any, listener.getsockname()?.port()).into())?;
        let (accepted, from) = listener.accept()?;
        let (own, peer) = (sock.getsockname()?, sock.getpeername()?);
        expect_eq(from.to_std(), own.to_std(), format!("{what}: accepted"))?;
        let name = accepted.getsockname()?;
        expect_eq(name.to_std(), peer.to_std(), format!("{what}: the peer"))?;
        peer.ip()
            .ok_or_else(|| io::Error::from_raw_os_error(EINVAL).into())
    };
    let peer = connects(&env.family.socket(ANY4)?, ANY4, "not bound")?;
    expect_eq(peer, LOOPBACK4, "the address of one that is not bound")?;
    if env.local6.is_some() {
        let peer = connects(&env.family.socket(ANY6)?, ANY6, "IPv6")?;
        expect_eq(peer, LOOPBACK6, "the address over IPv6")?;
    }
    let IpAddr::V4(local) = env.local else {
        return Ok(());
    };
    let sock = env.socket()?;
    sock.bind(&env.here(0))?;
    let peer = connects(&sock, ANY4, "bound")?;
    expect_eq(peer, env.local, "the address of a bound one")?;
    let sock = env.socket()?;
    bind_to(&sock, &env.network_card()?)?;
    let peer = connects(&sock, ANY4, "bound to an interface")?;
    expect_eq(Some(peer), sock.getsockname()?.ip(), "over an interface")?;
    expect(
        local.is_loopback() || !peer.is_loopback(),
        "an address of another interface",
    )?;
    if env.local6.is_some() {
        // The IPv6 socket goes on with IPv4.
        let sock = env.family.socket(ANY6)?;
        sock.bind(&(local.to_ipv6_mapped().into(), 0).into())?;
        let peer = connects(&sock, ANY6, "bound to a mapped address")?;
        let loopback = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        expect_eq(peer, loopback.into(), "the address of a mapped one")?;
        // The mapped wildcard address is that of IPv4.
        let listener = env.family.socket(ANY4)?;
        listener.bind(&(ANY4, 0).into())?;
        listener.listen(1)?;
        let any = Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().into();
        let sock = env.family.socket(ANY6)?;
        sock.bind(&(local.to_ipv6_mapped().into(), 0).into())?;
        sock.connect(&(any, listener.getsockname()?.port()).into())?;
        listener.accept()?;
        let peer = sock.getpeername()?.ip();
        let bound = local.to_ipv6_mapped().into();
        expect_eq(peer, Some(bound), "the mapped wildcard address")?;
    }
    Ok(())
}

fn to_port_zero(env: &Env) -> Outcome {
    let sock = env.socket()?;
    expect_errno(sock.connect(&env.there(0)), ECONNREFUSED, "port 0")
}

fn unconnected(env: &Env) -> Outcome {
    let sock = env.socket()?;
    expect_errno(sock.recv(&mut [0], 0), ENOTCONN, "recv")?;
    expect_errno(sock.send(b"x", libc::MSG_NOSIGNAL), EPIPE, "send")?;
    expect_errno(sock.getpeername(), ENOTCONN, "getpeername")?;
    expect_errno(sock.accept(), EINVAL, "accept")?;
    expect_eq(sock.poll(ALL, 0)?, POLLOUT | POLLHUP, "poll")?;
    expect_errno(sock.shutdown(libc::SHUT_RDWR), ENOTCONN, "shutdown")?;
    expect_eq(sock.take_error()?, 0, "SO_ERROR")?;
    let (listener, _) = env.listener(1)?;
    expect_errno(listener.recv(&mut [0], 0), ENOTCONN, "recv of a listener")?;
    let sent = listener.send(b"x", libc::MSG_NOSIGNAL);
    expect_errno_of(sent, &[EPIPE, ENOTCONN], "send of a listener")
}

/// shutdown() of a socket without a connection fails, but ends halves of the next connection. The
/// peer is not told. A disconnection resets them.
fn shut_down_before(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(5)?;
    let used = || -> io::Result<Sock> {
        let sock = env.socket()?;
        sock.connect(&addr)?;
        listener.accept()?;
        sock.connect(&env.here(0).with_family(libc::AF_UNSPEC))?;
        Ok(sock)
    };
    for (how, events) in [
        (libc::SHUT_RD, POLLIN | POLLOUT | POLLRDHUP),
        (libc::SHUT_WR, POLLOUT),
        (libc::SHUT_RDWR, POLLIN | POLLOUT | POLLRDHUP | POLLHUP),
    ] {
        for sock in [env.socket()?, used()?] {
            expect_errno(sock.shutdown(how), ENOTCONN, "shutdown")?;
            sock.connect(&addr)?;
            let (other, _) = listener.accept()?;
            expect_eq(
                sock.poll(ALL, 0)?,
                events,
                format!("poll after shutdown {how}"),
            )?;
            let sent = sock.send(b"x", libc::MSG_NOSIGNAL);
            match how {
                libc::SHUT_RD => expect_eq(sent?, 1, "send")?,
                _ => expect_errno(sent, EPIPE, "send")?,
            }
            other.send_all(b"y")?;
            eventually("a byte", || readable_bytes(&sock), |&n| n == 1)?;
            expect_eq(sock.recv(&mut [0; 9], 0)?, 1, "recv")?;
            let end = sock.recv(&mut [0; 9], libc::MSG_DONTWAIT);
            match how {
                libc::SHUT_WR => expect_errno(end, EAGAIN, "recv")?,
                _ => expect_eq(end?, 0, "the end")?,
            }
            let told = other.poll(POLLRDHUP, QUIET_MS)?;
            expect_eq(told, 0, "the peer's end")?;
            sock.connect(&env.here(0).with_family(libc::AF_UNSPEC))?;
            sock.connect(&addr)?;
            let (other, _) = listener.accept()?;
            expect_eq(sock.poll(ALL, 0)?, POLLOUT, "poll after a disconnection")?;
            sock.send_all(b"x")?;
            expect_eq(other.recv(&mut [0; 9], 0)?, 1, "recv of the peer")?;
        }
    }
    Ok(())
}

/// A send during connect() waits for the connection, or fails with EAGAIN, although a shutdown()
/// before connect() has ended the sends of the connection.
fn shut_down_before_and_connecting(env: &Env) -> Outcome {
    for how in [libc::SHUT_WR, libc::SHUT_RDWR] {
        let (listener, addr, _inside) = full_listener(env)?;
        let sock = Arc::new(env.socket()?);
        let send = |sock: &Sock| sock.send(b"x", libc::MSG_NOSIGNAL);
        expect_errno(send(&sock), EPIPE, "send of a new socket")?;
        expect_errno(sock.shutdown(how), ENOTCONN, "shutdown")?;
        sock.set_nonblocking(true)?;
        expect_errno(sock.connect(&addr), EINPROGRESS, "connect")?;
        expect_errno(send(&sock), EAGAIN, "send while connecting")?;
        expect_eq(sock.poll(POLLOUT, 0)? & POLLOUT, 0, "poll while connecting")?;
        sock.set_nonblocking(false)?;
        sock.set_timeout(libc::SO_SNDTIMEO, 150)?;
        let begun = Instant::now();
        expect_errno(send(&sock), EAGAIN, "send that waits for a while")?;
        expect_waited(begun)?;
        sock.set_timeout(libc::SO_SNDTIMEO, 0)?;
        let sender = Arc::clone(&sock);
        let sending = spawn_waiting(move || send(&sender))?;
        expect(!sending.is_finished(), "a send that does not wait")?;
        let name = sock.getsockname()?.to_std();
        let other = loop {
            let (other, from) = listener.accept()?;
            if from.to_std() == name {
                break other;
            }
        };
        expect_errno(joined(sending)?, EPIPE, "send that waits")?;
        expect_errno(send(&sock), EPIPE, "send of the connection")?;
        other.send(Span::new(env.seed, 0, 1), 0)?;
        // After shutdown(SHUT_RDWR), a receive does not wait for bytes.
        eventually("a byte", || readable_bytes(&sock), |&n| n == 1)?;
        receive(&sock, Span::new(env.seed, 0, 1))?;
        expect_eq(other.poll(POLLRDHUP, QUIET_MS)?, 0, "the peer's end")?;
    }
    Ok(())
}

/// A shutdown() during connect() ends the connection. A send that waits for the connection fails.
fn shut_down_while_connecting(env: &Env) -> Outcome {
    let (_listener, addr, _inside) = full_listener(env)?;
    for how in [libc::SHUT_RD, libc::SHUT_WR, libc::SHUT_RDWR] {
        for waits in [false, true] {
            let sock = Arc::new(env.socket()?);
            let send = |sock: &Sock| sock.send(b"x", libc::MSG_NOSIGNAL);
            sock.set_nonblocking(true)?;
            expect_errno(sock.connect(&addr), EINPROGRESS, "connect")?;
            expect_errno(send(&sock), EAGAIN, "send while connecting")?;
            sock.set_nonblocking(!waits)?;
            let sender = Arc::clone(&sock);
            let sending = match waits {
                true => Some(spawn_waiting(move || send(&sender))?),
                false => None,
            };
            sock.shutdown(how)?;
            let sent = match sending {
                Some(sending) => joined(sending)?,
                None => send(&sock),
            };
            let what = format!("shutdown {how}, a send that waits: {waits}");
            expect_errno(sent, ECONNRESET, &what)?;
            expect_eq(sock.poll(ALL, 0)?, POLLOUT | POLLHUP, &what)?;
            expect_eq(sock.take_error()?, 0, &what)?;
            expect_errno(send(&sock), EPIPE, &what)?;
        }
    }
    Ok(())
}

/// A client can send before its connection is accepted.
fn data_before_accept(env: &Env) -> Outcome {
    let (listener, addr) = env.remote_listener(1)?;
    let sock = env.socket()?;
    sock.connect(&addr)?;
    let span = Span::new(env.seed, 0, 2000);
    sock.send_all(&span.to_vec())?;
    let (remote, _) = listener.accept()?;
    expect_received(remote.recv_span(span, 700)?, span, "the peer")?;
    // In the other direction: the peer connects and sends before this side accepts.
    let (listener, addr) = env.listener(1)?;
    let remote = env.remote_socket(&env.peer()?)?;
    remote.connect(&addr)?;
    remote.send_span(span, 700)?;
    let (sock, _) = listener.accept()?;
    receive(&sock, span)
}

fn closed_before_accept(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(1)?;
    let remote = env.remote_socket(&env.peer()?)?;
    remote.connect(&addr)?;
    let span = Span::new(env.seed, 0, 2000);
    remote.send_span(span, 700)?;
    remote.close()?;
    let (sock, _) = listener.accept()?;
    receive(&sock, span)?;
    expect_eof(&sock)
}

/// connect() to AF_UNSPEC ends a connection, and the socket is like a new one.
fn disconnect_and_reuse(env: &Env) -> Outcome {
    let unspec = env.here(0).with_family(libc::AF_UNSPEC);
    let sock = env.socket()?;
    sock.connect(&unspec)?;
    for round in 0..3 {
        let (listener, addr) = env.remote_listener(1)?;
        sock.connect(&addr)?;
        let (remote, _) = listener.accept()?;
        let span = Span::new(env.seed + round, 0, 3000);
        remote.send_span(span, 1000)?;
        receive(&sock, span)?;
        sock.connect(&unspec)?;
        expect_errno(sock.getpeername(), ENOTCONN, "getpeername")?;
        // The program has not chosen the address, so the socket does not keep it.
        let any = if env.local.is_ipv4() { ANY4 } else { ANY6 };
        expect_eq(sock.getsockname()?.ip(), Some(any), "getsockname")?;
        let ended = [ENOTCONN, ECONNRESET];
        expect_errno_of(sock.recv(&mut [0], 0), &ended, "recv")?;
        sock.take_error()?;
        eventually(
            "the peer's end",
            || remote.poll(ALL, 0),
            |e| e & POLLIN != 0,
        )?;
    }
    Ok(())
}

/// A socket whose program gives the connection up at once gets no address later.
fn disconnect_while_connecting(env: &Env) -> Outcome {
    let unspec = env.here(0).with_family(libc::AF_UNSPEC);
    let (_listener, addr) = env.remote_listener(100)?;
    let (_own_listener, own_addr) = env.listener(100)?;
    let any = if env.local.is_ipv4() { ANY4 } else { ANY6 };
    for round in 0..env.scaled(30) {
        let to = if round % 2 == 0 { &addr } else { &own_addr };
        let sock = env.socket()?;
        sock.set_nonblocking(true)?;
        expect_errno(sock.connect(to), EINPROGRESS, "connect")?;
        sock.connect(&unspec)?;
        thread::sleep(Duration::from_millis(20));
        expect_eq(sock.getsockname()?.ip(), Some(any), "getsockname")?;
    }
    Ok(())
}

/// A disconnect causes no error if both halves have ended already. Not even a concurrent poll() may
/// see one.
fn disconnect_after_both_ends(env: &Env) -> Outcome {
    let unspec = env.here(0).with_family(libc::AF_UNSPEC);
    for _ in 0..env.scaled(20) {
        let (sock, remote) = env.pair()?;
        remote.shutdown(libc::SHUT_WR)?;
        let end = POLLRDHUP;
        eventually("the peer's end", || sock.poll(end, 0), |&e| e == end)?;
        sock.shutdown(libc::SHUT_WR)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let watching = {
            let (sock, is_over) = (sock.dup()?, is_over.clone());
            spawn(move || -> io::Result<i16> {
                let mut events = 0;
                while !is_over.load(Ordering::Relaxed) {
                    events |= sock.poll(ALL, 0)?;
                }
                Ok(events)
            })?
        };
        sock.connect(&unspec)?;
        expect_eq(sock.take_error()?, 0, "SO_ERROR")?;
        is_over.store(true, Ordering::Relaxed);
        expect_eq(joined(watching)?? & POLLERR, 0, "an error that poll() saw")?;
    }
    Ok(())
}

/// After a disconnect, the socket can be bound at once.
fn disconnect_and_bind(env: &Env) -> Outcome {
    let unspec = env.here(0).with_family(libc::AF_UNSPEC);
    let (listener, addr) = env.remote_listener(1)?;
    let sock = env.socket()?;
    for round in 0..4 {
        let name = sock.getsockname()?;
        sock.connect(&addr)?;
        let (_remote, from) = listener.accept()?;
        if round > 0 {
            expect_eq(from.to_std(), name.to_std(), "accepted")?;
        }
        sock.connect(&unspec)?;
        sock.bind(&env.here(0))?;
        expect_errno(sock.bind(&env.here(0)), EINVAL, "the second bind")?;
        sock.take_error()?;
    }
    Ok(())
}

/// A new connection begins while the old one ends, and may itself be ended before it is made.
fn disconnect_and_connect_nonblocking(env: &Env) -> Outcome {
    let unspec = env.here(0).with_family(libc::AF_UNSPEC);
    for round in 0..16_u64 {
        let (listener, addr) = env.remote_listener(8)?;
        let mut sock = env.socket()?;
        sock.connect(&addr)?;
        let (first, _) = listener.accept()?;
        // Unread bytes of the old connection must not appear in the new one.
        first.send(Span::new(env.seed, 0, 10), 0)?;
        sock.set_nonblocking(true)?;
        sock.connect(&unspec)?;
        expect_errno(sock.connect(&addr), EINPROGRESS, "connect")?;
        if let Err(e) = sock.connect(&addr) {
            expect_errno_of::<()>(Err(e), &[EALREADY, EISCONN], "connect again")?;
        }
        match round % 4 {
            0 => {}
            1 => sock.connect(&unspec)?,
            2 => sock.shutdown(libc::SHUT_RDWR)?,
            _ => {
                sock = env.socket()?;
                sock.set_nonblocking(true)?;
            }
        }
        if round % 4 != 0 {
            sock.connect(&unspec)?;
            sock.take_error()?;
            expect_errno(sock.getpeername(), ENOTCONN, "getpeername")?;
            expect_errno(sock.connect(&addr), EINPROGRESS, "the last connect")?;
        }
        eventually("POLLOUT", || sock.poll(POLLOUT, 1000), |&e| e != 0)?;
        expect_eq(sock.take_error()?, 0, "SO_ERROR")?;
        let port = sock.getsockname()?.port();
        let remote = loop {
            let (remote, from) = listener.accept()?;
            if from.port() == port && remote.getpeername().is_ok() {
                break remote;
            }
        };
        let span = Span::new(env.seed + round, 0, 3000);
        sock.set_nonblocking(false)?;
        remote.send_span(span, 1000)?;
        receive(&sock, span)?;
    }
    Ok(())
}

/// A non-blocking connect() does not sleep until the old connection is gone, and a blocking read
/// waits for the bytes of the new connection.
fn next_connect_does_not_wait(env: &Env) -> Outcome {
    const ROUNDS: u32 = 20;
    let unspec = env.here(0).with_family(libc::AF_UNSPEC);
    let (listener, addr) = env.remote_listener(5)?;
    let sock = Arc::new(env.socket()?);
    sock.connect(&addr)?;
    // Both ends of each connection stay open.
    let mut remotes = vec![listener.accept()?.0];
    let mut slept = 0;
    for _ in 0..ROUNDS {
        sock.set_nonblocking(true)?;
        sock.connect(&unspec)?;
        let before = sys::times_slept()?;
        let result = sock.connect(&addr);
        slept += u32::from(sys::times_slept()? > before);
        expect_errno(result, EINPROGRESS, "connect")?;
        let port = sock.getsockname()?.port();
        expect(port != 0, "a connecting socket has no port")?;
        sock.set_nonblocking(false)?;
        let reader = {
            let sock = sock.clone();
            spawn_waiting(move || sock.recv_exact(&mut [0; 5]))?
        };
        expect_eq(sock.poll(POLLOUT, -1)?, POLLOUT, "poll at the end")?;
        expect_eq(sock.take_error()?, 0, "SO_ERROR")?;
        let (remote, from) = listener.accept()?;
        expect_eq(from.to_std(), sock.getsockname()?.to_std(), "accepted")?;
        expect_eq(from.port(), port, "the port while it connected")?;
        remote.send(Span::new(env.seed, 0, 5), 0)?;
        joined(reader)??;
        remotes.push(remote);
    }
    // A call may sleep for a moment because it finds the socket's lock taken.
    expect(
        slept < ROUNDS / 2,
        format!("{slept} of {ROUNDS} calls have slept"),
    )
}

/// A network interface that leads nowhere. It exists while the value lives.
struct Nowhere;

impl Nowhere {
    const NAME: &str = "sdpnowhere";

    fn new() -> Result<Nowhere, Fail> {
        let made = Self::ip(&["link", "add", Self::NAME, "type", "dummy"])?;
        if !made {
            return skip("no interface can be made");
        }
        let nowhere = Nowhere;
        Self::ip(&["addr", "add", "198.51.100.1/24", "dev", Self::NAME])?;
        Self::ip(&["link", "set", Self::NAME, "up"])?;
        Ok(nowhere)
    }

    fn ip(words: &[&str]) -> io::Result<bool> {
        Ok(Command::new("ip").args(words).status()?.success())
    }
}

impl Drop for Nowhere {
    fn drop(&mut self) {
        let _ = Self::ip(&["link", "del", Self::NAME]);
    }
}

fn bind_to(sock: &Sock, interface: &str) -> io::Result<()> {
    sock.set_bytes(
        libc::SOL_SOCKET,
        libc::SO_BINDTODEVICE,
        interface.as_bytes(),
    )
}

/// A socket that is bound to an interface has no connections over other interfaces.
fn over_its_interface(env: &Env) -> Outcome {
    if !sys::is_root() {
        return skip("needs root");
    }
    let _nowhere = Nowhere::new()?;
    let (_listener, addr) = env.remote_listener(5)?;
    for has_address in [false, true] {
        let sock = env.socket()?;
        if has_address {
            sock.bind(&env.here(0))?;
        }
        bind_to(&sock, Nowhere::NAME)?;
        sock.set_nonblocking(true)?;
        expect(sock.connect(&addr).is_err(), "connected at once")?;
        sock.poll(POLLOUT, QUIET_MS)?;
        let what = format!("the peer of one with an address: {has_address}");
        expect_errno(sock.getpeername(), ENOTCONN, what)?;
    }
    let listener = env.socket()?;
    bind_to(&listener, Nowhere::NAME)?;
    listener.bind(&env.here(0))?;
    listener.listen(1)?;
    let remote = env.remote_socket(&env.peer()?)?;
    let result = remote.connect(&listener.getsockname()?);
    expect_errno(result, ECONNREFUSED, "connect to a listener elsewhere")?;
    // The machine's own addresses are reached over the loopback interface.
    let (listener, addr) = env.listener(1)?;
    let sock = env.socket()?;
    bind_to(&sock, "lo")?;
    sock.connect(&addr)?;
    listener.accept()?;
    if env.local != env.remote {
        let (listener, addr) = env.remote_listener(1)?;
        let sock = env.socket()?;
        bind_to(&sock, &env.network_card()?)?;
        sock.connect(&addr)?;
        listener.accept()?;
    }
    Ok(())
}

/// The names of both ends of a connection by link-local addresses contain the interface, so that a
/// program can connect to the address that it was given.
fn scope_of_a_link_local_peer(env: &Env) -> Outcome {
    let env = env.over_ipv6()?;
    let card = env.network_card()?;
    // Address, number of the interface, prefix, scope, flags, interface.
    let addresses = fs::read_to_string("/proc/net/if_inet6")?;
    let link_local = addresses.lines().find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let ip = u128::from_str_radix(words.first()?, 16).ok()?;
        let scope = u32::from_str_radix(words.get(1)?, 16).ok()?;
        let fits = words.last() == Some(&card.as_str()) && line.starts_with("fe80");
        fits.then_some((Ipv6Addr::from(ip), scope))
    });
    let Some((ip, scope)) = link_local else {
        return skip("the interface has no link-local address");
    };
    let here = |port| SockAddr::from(SocketAddr::from(SocketAddrV6::new(ip, port, 0, scope)));
    let listener = env.socket()?;
    listener.bind(&(ANY6, 0).into())?;
    listener.listen(1)?;
    let to = here(listener.getsockname()?.port());
    let sock = env.socket()?;
    sock.connect(&to)?;
    let (accepted, from) = listener.accept()?;
    let own = here(sock.getsockname()?.port()).to_std();
    expect_eq(sock.getpeername()?.to_std(), to.to_std(), "the peer")?;
    expect_eq(sock.getsockname()?.to_std(), own, "its own name")?;
    expect_eq(from.to_std(), own, "the address that accept() gives")?;
    expect_eq(accepted.getpeername()?.to_std(), own, "the accepted peer")?;
    expect_eq(accepted.getsockname()?.to_std(), to.to_std(), "accepted")
}

/// Two sockets can share an address and a port, but not with the same peer.
fn no_two_with_the_same_names(env: &Env) -> Outcome {
    let (listener, to) = env.remote_listener(5)?;
    let one = env.socket()?;
    one.set_int(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    one.bind(&env.here(0))?;
    let name = one.getsockname()?;
    let other = env.socket()?;
    other.set_int(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    other.bind(&name)?;
    one.connect(&to)?;
    let (accepted, from) = listener.accept()?;
    expect_eq(from.to_std(), name.to_std(), "the name of the first one")?;
    let result = other.connect(&to);
    expect_errno(result, EADDRNOTAVAIL, "with the same names")?;
    let (second, elsewhere) = env.remote_listener(5)?;
    other.connect(&elsewhere)?;
    let (_, from) = second.accept()?;
    expect_eq(from.to_std(), name.to_std(), "the name of the other one")?;
    drop(accepted);
    Ok(())
}

/// The ports that the kernel chooses suffice for each peer: connections to different peers share
/// them, and so one address can have more connections than there are ports. A port that a program
/// has chosen is not shared.
fn peers_share_ports(env: &Env) -> Outcome {
    const PORTS: u16 = 4;
    if differences::over_iwarp(env.family) {
        return skip("the ports are those of TCP, and are not shared");
    }
    let peers = (0..3)
        .map(|_| env.remote_listener(8))
        .collect::<io::Result<Vec<_>>>()?;
    let mut tries = (0..20).map(|_| -> io::Result<_> {
        let bound = env.socket()?;
        bound.bind(&env.here(0))?;
        let first = bound.getsockname()?.port();
        // The limit has no effect if it exceeds the range of the namespace, which usually ends at
        // 60999. The ports behind the first one are free.
        let last = first.saturating_add(PORTS - 1);
        let others = (first..last).all(|port| {
            let other = env.socket();
            other.is_ok_and(|other| other.bind(&env.here(port + 1)).is_ok())
        });
        Ok((others && last < 60000).then_some((bound, first..=last)))
    });
    let Some((_bound, range)) = tries.find_map(Result::transpose).transpose()? else {
        return failed("no free ports");
    };
    let connected = |to: &SockAddr| -> io::Result<Sock> {
        let sock = env.socket()?;
        limit_ports(&sock, range.clone())?;
        sock.connect(to)?;
        Ok(sock)
    };
    let mut held = Vec::new();
    for (listener, to) in &peers {
        let mut ports = Vec::new();
        for _ in 1..PORTS {
            let sock = connected(to)?;
            let (accepted, from) = listener.accept()?;
            sock.send_all(&[ports.len() as u8])?;
            let got = accepted.recv(8, 0)?;
            expect_eq(got, vec![ports.len() as u8], "the byte of this connection")?;
            expect_eq(from.to_std(), sock.getsockname()?.to_std(), "its name")?;
            ports.push(sock.getsockname()?.port());
            held.push((sock, accepted));
        }
        ports.sort_unstable();
        let expected: Vec<u16> = range.clone().skip(1).collect();
        expect_eq(ports, expected, "the ports of a peer")?;
        expect_errno(connected(to), EADDRNOTAVAIL, "one more")?;
    }
    let result = env.socket()?.bind(&env.here(*range.end()));
    expect_errno(result, EADDRINUSE, "a port of connections")
}

/// TCP connects a socket to itself. SDP may also refuse; in any case nothing breaks.
fn to_itself_is_no_crash(env: &Env) -> Outcome {
    let sock = env.socket()?;
    sock.bind(&env.here(0))?;
    match sock.connect(&sock.getsockname()?) {
        Ok(()) => {
            sock.send_all(b"myself")?;
            let mut buf = [0; 6];
            sock.recv_exact(&mut buf)?;
            expect_eq(&buf, b"myself", "received")
        }
        Err(e) => expect_errno::<()>(Err(e), ECONNREFUSED, "connect"),
    }
}
