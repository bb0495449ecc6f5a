// SPDX-License-Identifier: GPL-2.0
//! Sockets of AF_INET and AF_INET6 that use TCP where SDP cannot connect (net.sdp.tcp_fallback).

use super::both::{are_connected, domain_of, protocol_of};
use crate::support::counters::stat;
use crate::support::flow::{self, Exchange};
use crate::support::harness::{
    differences, eventually, expect, expect_eq, expect_errno, failed, joined, skip, spawn_waiting,
    tests, Child, Env, Fail, Family, Outcome, ANY6,
};
use crate::support::pattern::Rng;
use crate::support::sys::{self, Epoll, Linger, MissingPages, Ring, Sock, SockAddr, PAGE};
use crate::tests::settings::sysctl::{needs_root, Changed};
use crate::tests::settings::timestamps::SOFTWARE;
use crate::tests::uncopied::inflight::Growth;
use libc::{
    EAGAIN, EBADF, ECONNREFUSED, ECONNRESET, EINPROGRESS, EINVAL, EISCONN, ENODEV, ENOPROTOOPT,
    ENOTSOCK, EPOLLET, EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPROTONOSUPPORT, IPPROTO_IP, IPPROTO_TCP,
    MSG_FASTOPEN, POLLERR, POLLHUP, POLLIN, POLLOUT, SHUT_RDWR, SOCK_STREAM, SOL_SOCKET, SO_DOMAIN,
    SO_PROTOCOL,
};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;
use uapi::socket::{
    AF_INET_SDP, IPPROTO_SDP, SDP_LISTEN_TCP, SDP_TCP_INSTEAD, SDP_ZCOPY_MODE, SOL_SDP,
};

tests!("fallback";
    becomes_tcp,
    becomes_tcp_over_ipv6,
    becomes_tcp_at_a_mapped_address,
    becomes_tcp_without_waiting,
    becomes_tcp_by_io_uring,
    sdp_comes_first,
    stays_sdp_unless_allowed,
    stays_sdp_in_its_own_families,
    stays_sdp_if_a_send_connects,
    stays_sdp_if_tcp_has_the_port,
    refused_by_both,
    refused_by_both_without_waiting,
    does_not_hold_itself,
    options_are_kept,
    options_of_ipv6_are_kept,
    names_are_kept,
    is_shown,
    told_by_a_program,
    told_of_many,
    bytes_get_through,
    rest_is_sent_after_close,
    closed_with_a_reset,
    waiters_learn_of_events,
    uring_poll_learns_of_events,
    sigio_tells_of_bytes,
    shared_with_a_child,
    signal_tells_of_the_connection,
    uring_waits_for_a_slow_server,
    calls_wait_for_the_connection,
    pollers_see_no_end,
    former_attempt_leaves_nothing,
    port_of_sdp_is_free,
    connected_by_many,
    closed_while_connecting,
    used_by_many_while_connecting,
);

/// The namespace allows the fallback as long as the value lives.
fn allowed(env: &Env) -> Result<Changed, Fail> {
    needs_root(env)?;
    if env.family == Family::Tcp {
        return skip("TCP has nothing to fall back to");
    }
    if differences::over_iwarp(env.family) {
        return skip("iWARP takes the port of TCP for SDP");
    }
    Ok(Changed::to("tcp_fallback", "1")?)
}

fn sdp_socket(ip: IpAddr) -> io::Result<Sock> {
    Sock::new(domain_of(ip), SOCK_STREAM, IPPROTO_SDP)
}

/// A listener of TCP at a port of `ip`, where nobody listens with SDP.
fn server(ip: IpAddr) -> io::Result<(Sock, SockAddr)> {
    let sock = Sock::new(domain_of(ip), SOCK_STREAM, IPPROTO_TCP)?;
    sock.bind(&(ip, 0).into())?;
    sock.listen(64)?;
    let addr = sock.getsockname()?;
    Ok((sock, addr))
}

/// An address at which nobody listens.
fn nowhere(ip: IpAddr) -> io::Result<SockAddr> {
    let (sock, addr) = server(ip)?;
    sock.close()?;
    Ok(addr)
}

/// A socket that has become one of TCP, and the other end of its connection.
fn pair(env: &Env) -> Result<(Sock, Sock), Fail> {
    let (listener, addr) = server(env.local)?;
    let sock = sdp_socket(env.local)?;
    sock.connect(&addr)?;
    let (other, _) = listener.accept()?;
    expect_eq(protocol_of(&sock)?, IPPROTO_TCP, "SO_PROTOCOL")?;
    Ok((sock, other))
}

/// Expects that `sock` has connected with `listener` by TCP; returns the other end.
fn is_tcp(env: &Env, sock: &Sock, listener: &Sock, addr: &SockAddr) -> Result<Sock, Fail> {
    expect_eq(protocol_of(sock)?, IPPROTO_TCP, "SO_PROTOCOL")?;
    let domain = domain_of(env.local);
    expect_eq(sock.get_int(SOL_SOCKET, SO_DOMAIN)?, domain, "SO_DOMAIN")?;
    expect_eq(sock.getpeername()?.to_std(), addr.to_std(), "getpeername()")?;
    let (other, from) = listener.accept()?;
    let own = sock.getsockname()?;
    expect_eq(own.to_std(), from.to_std(), "getsockname()")?;
    are_connected(sock, &other)?;
    Ok(other)
}

fn becomes_tcp(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let fell_back = Growth::of(env, "connect_fell_back")?;
    let (listener, addr) = server(env.local)?;
    for _ in 0..4 {
        let sock = sdp_socket(env.local)?;
        expect_eq(protocol_of(&sock)?, IPPROTO_SDP, "SO_PROTOCOL before")?;
        sock.connect(&addr)?;
        is_tcp(env, &sock, &listener, &addr)?;
        expect_errno(sock.connect(&addr), EISCONN, "another connect()")?;
    }
    fell_back.exactly(4)
}

fn becomes_tcp_over_ipv6(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let env = env.over_ipv6()?;
    let (listener, addr) = server(env.local)?;
    let sock = sdp_socket(env.local)?;
    sock.connect(&addr)?;
    is_tcp(&env, &sock, &listener, &addr).map(drop)
}

fn becomes_tcp_at_a_mapped_address(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    env.has_ipv6()?;
    let IpAddr::V4(local) = env.local else {
        return skip("the address is not IPv4");
    };
    let (listener, addr) = server(env.local)?;
    let mapped = IpAddr::from(local.to_ipv6_mapped());
    let sock = sdp_socket(ANY6)?;
    sock.connect(&(mapped, addr.port()).into())?;
    let (other, _) = listener.accept()?;
    expect_eq(sock.getpeername()?.ip(), Some(mapped), "getpeername()")?;
    are_connected(&sock, &other)
}

fn becomes_tcp_without_waiting(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (listener, addr) = server(env.local)?;
    let sock = sdp_socket(env.local)?;
    sock.set_nonblocking(true)?;
    let epoll = Epoll::new()?;
    epoll.add(sock.as_raw_fd(), EPOLLOUT | EPOLLIN | EPOLLET, 3)?;
    epoll.wait(0)?;
    expect_errno(sock.connect(&addr), EINPROGRESS, "connect()")?;
    expect_eq(epoll.wait(-1)?, vec![(3, EPOLLOUT)], "epoll")?;
    expect_eq(sock.take_error()?, 0, "SO_ERROR")?;
    expect_eq(sock.poll(POLLIN | POLLOUT, 0)?, POLLOUT, "poll()")?;
    sock.set_nonblocking(false)?;
    is_tcp(env, &sock, &listener, &addr).map(drop)
}

fn becomes_tcp_by_io_uring(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let Some(mut ring) = Ring::new()? else {
        return skip("there is no io_uring");
    };
    let (listener, addr) = server(env.local)?;
    let sock = sdp_socket(env.local)?;
    let request = ring.connect(&sock, &addr)?;
    expect_eq(ring.next(request)?.ok()?, 0, "the request")?;
    is_tcp(env, &sock, &listener, &addr).map(drop)
}

/// A server that is there with SDP is reached with SDP, although it also listens with TCP. A TCP
/// socket that stood ready is gone: its port is free.
fn sdp_comes_first(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let fell_back = Growth::of(env, "connect_fell_back")?;
    let (_tcp, addr) = server(env.local)?;
    let listener = sdp_socket(env.local)?;
    listener.bind(&addr)?;
    listener.listen(4)?;
    let sock = sdp_socket(env.local)?;
    sock.bind(&env.here(0))?;
    sock.connect(&addr)?;
    expect_eq(protocol_of(&sock)?, IPPROTO_SDP, "SO_PROTOCOL")?;
    let (other, _) = listener.accept()?;
    are_connected(&sock, &other)?;
    let port = sock.getsockname()?;
    let bound = || Sock::new(domain_of(env.local), SOCK_STREAM, IPPROTO_TCP)?.bind(&port);
    eventually("its port", || Ok(bound().is_ok()), |&free| free)?;
    fell_back.exactly(0)
}

fn stays_sdp_unless_allowed(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let _not = Changed::to("tcp_fallback", "0")?;
    let (_listener, addr) = server(env.local)?;
    let sock = sdp_socket(env.local)?;
    expect_errno(sock.connect(&addr), ECONNREFUSED, "connect()")?;
    expect_eq(protocol_of(&sock)?, IPPROTO_SDP, "SO_PROTOCOL")
}

/// Programs that name the family 27 have asked for SDP, and have addresses of this family.
fn stays_sdp_in_its_own_families(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (_listener, addr) = server(env.local)?;
    let sock = Sock::new(AF_INET_SDP, SOCK_STREAM, 0)?;
    expect_errno(sock.connect(&addr), ECONNREFUSED, "connect()")
}

fn stays_sdp_if_a_send_connects(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let _opens = Changed::to("fastopen", "1")?;
    let (_listener, addr) = server(env.local)?;
    let sock = sdp_socket(env.local)?;
    expect_errno(
        sock.sendto(b"x", &addr, MSG_FASTOPEN),
        ECONNREFUSED,
        "a send",
    )?;
    expect_eq(protocol_of(&sock)?, IPPROTO_SDP, "SO_PROTOCOL")
}

fn stays_sdp_if_tcp_has_the_port(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (_listener, addr) = server(env.local)?;
    let (_other, own) = server(env.local)?;
    let sock = sdp_socket(env.local)?;
    sock.bind(&own)?;
    expect_errno(sock.connect(&addr), ECONNREFUSED, "connect()")?;
    expect_eq(protocol_of(&sock)?, IPPROTO_SDP, "SO_PROTOCOL")
}

fn refused_by_both(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let addr = nowhere(env.local)?;
    let sock = sdp_socket(env.local)?;
    for _ in 0..3 {
        expect_errno(sock.connect(&addr), ECONNREFUSED, "connect()")?;
    }
    // It is a TCP socket now.
    let (listener, addr) = server(env.local)?;
    sock.connect(&addr)?;
    is_tcp(env, &sock, &listener, &addr).map(drop)
}

/// A call of SDP_LISTEN_TCP may begin on an SDP socket and end when the file is that of a TCP socket,
/// which listens. The socket would hold its own file, which could never be closed: the end of the
/// tests would find the module in use.
fn does_not_hold_itself(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let sock = Arc::new(sdp_socket(env.local)?);
    let pages = Arc::new(MissingPages::new(1, 0)?);
    let setting = {
        let (sock, pages) = (Arc::clone(&sock), Arc::clone(&pages));
        flow::spawn(move || sock.set_raw(SOL_SDP, SDP_LISTEN_TCP, pages.at(0), 4))?
    };
    pages.await_touch()?;
    let addr = nowhere(env.local)?;
    expect_errno(sock.connect(&addr), ECONNREFUSED, "connect()")?;
    sock.listen(1)?;
    expect_eq(protocol_of(&sock)?, IPPROTO_TCP, "SO_PROTOCOL")?;
    let mut page = [0; PAGE];
    page[..size_of::<i32>()].copy_from_slice(&sock.as_raw_fd().to_ne_bytes());
    pages.bring(0, &page)?;
    expect_errno(joined(setting)?, EINVAL, "SDP_LISTEN_TCP")?;
    let listens = sock.getsockname()?;
    drop(sock);
    let client = Sock::new(domain_of(env.local), SOCK_STREAM, IPPROTO_TCP)?;
    let at = SockAddr::from((env.local, listens.port()));
    expect_errno(client.connect(&at), ECONNREFUSED, "connect() after close()")
}

fn refused_by_both_without_waiting(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let addr = nowhere(env.local)?;
    let sock = sdp_socket(env.local)?;
    sock.set_nonblocking(true)?;
    expect_errno(sock.connect(&addr), EINPROGRESS, "connect()")?;
    let events = POLLIN | POLLOUT | POLLERR | POLLHUP;
    expect_eq(sock.poll(POLLIN | POLLOUT, -1)?, events, "poll()")?;
    expect_eq(sock.take_error()?, ECONNREFUSED, "SO_ERROR")
}

fn options_are_kept(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (listener, addr) = server(env.local)?;
    let sock = sdp_socket(env.local)?;
    const OPTIONS: &[(i32, i32, i32)] = &[
        (IPPROTO_TCP, libc::TCP_NODELAY, 1),
        (IPPROTO_TCP, libc::TCP_KEEPIDLE, 77),
        (IPPROTO_TCP, libc::TCP_KEEPINTVL, 11),
        (IPPROTO_TCP, libc::TCP_KEEPCNT, 5),
        (IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 4321),
        (IPPROTO_TCP, libc::TCP_LINGER2, 9),
        (IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 70_000),
        (SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (SOL_SOCKET, libc::SO_OOBINLINE, 1),
        (SOL_SOCKET, libc::SO_REUSEADDR, 1),
        (SOL_SOCKET, libc::SO_RCVLOWAT, 2),
        (SOL_SOCKET, libc::SO_TIMESTAMP, 1),
        (SOL_SOCKET, libc::SO_TIMESTAMPING, SOFTWARE),
        (IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
        (IPPROTO_IP, libc::IP_TOS, 0x20),
        // IP_TOS changes it.
        (SOL_SOCKET, libc::SO_PRIORITY, 3),
    ];
    for &(level, name, value) in OPTIONS {
        sock.set_int(level, name, value)?;
    }
    sock.set_int(SOL_SOCKET, libc::SO_SNDBUF, 50_000)?;
    sock.set_int(SOL_SOCKET, libc::SO_RCVBUF, 60_000)?;
    sock.set_timeout(libc::SO_RCVTIMEO, 150)?;
    sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, 2)?;
    sock.connect(&addr)?;
    let _other = is_tcp(env, &sock, &listener, &addr)?;
    for &(level, name, value) in OPTIONS {
        let what = format!("option {name} of level {level}");
        expect_eq(sock.get_int(level, name)?, value, what)?;
    }
    for (name, bytes) in [(libc::SO_SNDBUF, 100_000), (libc::SO_RCVBUF, 120_000)] {
        expect_eq(sock.get_int(SOL_SOCKET, name)?, bytes, "a buffer")?;
    }
    expect_errno(sock.recv(&mut [0], 0), EAGAIN, "with SO_RCVTIMEO")
}

fn options_of_ipv6_are_kept(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let env = env.over_ipv6()?;
    let (_listener, addr) = server(env.local)?;
    let sock = sdp_socket(env.local)?;
    let options = [
        (libc::IPV6_TCLASS, 0x20),
        (libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
        (libc::IPV6_RECVTCLASS, 1),
        (libc::IPV6_V6ONLY, 1),
    ];
    for (name, value) in options {
        sock.set_int(libc::IPPROTO_IPV6, name, value)?;
    }
    sock.connect(&addr)?;
    expect_eq(protocol_of(&sock)?, IPPROTO_TCP, "SO_PROTOCOL")?;
    for (name, value) in options {
        let what = format!("option {name}");
        expect_eq(sock.get_int(libc::IPPROTO_IPV6, name)?, value, what)?;
    }
    Ok(())
}

/// An address and a port that the program has bound are those of the TCP connection.
fn names_are_kept(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (listener, addr) = server(env.local)?;
    for port in [0, nowhere(env.local)?.port()] {
        let sock = sdp_socket(env.local)?;
        sock.bind(&env.here(port))?;
        let own = sock.getsockname()?;
        sock.connect(&addr)?;
        expect_eq(sock.getsockname()?.to_std(), own.to_std(), "its name")?;
        is_tcp(env, &sock, &listener, &addr)?;
    }
    Ok(())
}

/// The socket is listed at the port of the TCP connection, until it is closed.
fn is_shown(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (sock, _other) = pair(env)?;
    let port = format!(":{} ", sock.getsockname()?.port());
    let lines = || {
        let text = std::fs::read_to_string("/proc/net/sdp")?;
        io::Result::Ok(text.lines().filter(|line| line.contains(&port)).count())
    };
    eventually("its line", lines, |&n| n == 1)?;
    sock.close()?;
    eventually("no line", lines, |&n| n == 0).map(drop)
}

/// Tells the module, by its socket `sdp`, that the program has connected a TCP socket instead.
fn tell(sdp: &Sock, tcp: i32, why: i32) -> io::Result<()> {
    let bytes = [tcp.to_ne_bytes(), why.to_ne_bytes()].concat();
    sdp.set_bytes(SOL_SDP, SDP_TCP_INSTEAD, &bytes)
}

fn told_by_a_program(env: &Env) -> Outcome {
    if env.family == Family::Tcp {
        return skip("an option of SDP");
    }
    let (sdp_listener, _) = env.listener(1)?;
    for ip in [Some(env.local), env.local6].into_iter().flatten() {
        let sdp = env.socket()?;
        let (listener, addr) = server(ip)?;
        let tcp = Sock::new(domain_of(ip), SOCK_STREAM, IPPROTO_TCP)?;
        let fd = tcp.as_raw_fd();
        expect_errno(tell(&sdp, fd, ECONNREFUSED), EINVAL, "a new socket")?;
        let listening = tell(&sdp, listener.as_raw_fd(), ECONNREFUSED);
        expect_errno(listening, EINVAL, "a listener")?;
        tcp.connect(&addr)?;
        let (other, _) = listener.accept()?;
        for why in [0, -1, 4096, i32::MIN] {
            expect_errno(tell(&sdp, fd, why), EINVAL, "no errno")?;
        }
        let file = std::fs::File::open("/proc/version")?;
        for (fd, errno) in [
            (-1, EBADF),
            (1 << 20, EBADF),
            (file.as_raw_fd(), ENOTSOCK),
            (sdp.as_raw_fd(), EPROTONOSUPPORT),
        ] {
            expect_errno(tell(&sdp, fd, ECONNREFUSED), errno, "no TCP socket")?;
        }
        let short = sdp.set_int(SOL_SDP, SDP_TCP_INSTEAD, fd);
        expect_errno(short, EINVAL, "a descriptor alone")?;
        let of_listener = tell(&sdp_listener, fd, ECONNREFUSED);
        expect_errno(of_listener, EINVAL, "by a listener")?;
        let read = sdp.get_int(SOL_SDP, SDP_TCP_INSTEAD);
        expect_errno(read, ENOPROTOOPT, "getsockopt()")?;

        let before = stat(env, "connect_fell_back")?;
        // The first call counts.
        for why in [ECONNREFUSED, ENODEV] {
            tell(&sdp, fd, why)?;
            expect_eq(stat(env, "connect_fell_back")? - before, 1, "told")?;
        }
        drop((tcp, other));
    }
    Ok(())
}

/// Connections that have ended make room for others.
fn told_of_many(env: &Env) -> Outcome {
    if env.family == Family::Tcp {
        return skip("an option of SDP");
    }
    let sdp = env.socket()?;
    let (listener, addr) = server(env.local)?;
    let mut kept = Vec::new();
    // More than the module lists.
    for i in 0..1100 {
        let tcp = Sock::new(domain_of(env.local), SOCK_STREAM, IPPROTO_TCP)?;
        tcp.connect(&addr)?;
        let (other, _) = listener.accept()?;
        tell(&sdp, tcp.as_raw_fd(), ECONNREFUSED)?;
        // Some connections last, and of the others, either end closes first.
        match i % 50 {
            0 => kept.push((tcp, other)),
            n if n % 2 == 0 => drop((tcp, other)),
            _ => drop((other, tcp)),
        }
    }
    Ok(())
}

fn bytes_get_through(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (sock, other) = pair(env)?;
    let exchange = Exchange {
        send_seed: env.seed,
        recv_seed: env.seed + 1,
        bytes: env.scaled(8 << 20),
        max: 200_000,
    };
    let (sock, other) = (Arc::new(sock), Arc::new(other));
    let there = flow::spawn(move || exchange.mirrored().run(&other))?;
    let got = exchange.run(&sock)?;
    expect(exchange.complaint(&got).is_none(), got)?;
    let got = joined(there)??;
    expect(exchange.mirrored().complaint(&got).is_none(), got)
}

fn rest_is_sent_after_close(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    for linger in [None, Some(Linger { on: true, secs: 5 })] {
        let (sock, other) = pair(env)?;
        if let Some(linger) = linger {
            sock.set_linger(linger)?;
        }
        let span = flow::Span::new(env.seed, 0, 2 << 20);
        let reading = flow::spawn(move || {
            flow::recv_span(
                &other,
                flow::Span {
                    len: span.len + 1,
                    ..span
                },
                65536,
            )
        })?;
        flow::send_span(&sock, span, 65536).map_err(|(_, e)| e)?;
        sock.close()?;
        let got = joined(reading)?;
        expect(
            got.bytes == span.len && got.verdict.wrong == 0 && got.eof,
            got,
        )?;
    }
    Ok(())
}

/// SO_LINGER of 0 seconds, set before the fallback.
fn closed_with_a_reset(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (listener, addr) = server(env.local)?;
    let sock = sdp_socket(env.local)?;
    sock.set_linger(Linger { on: true, secs: 0 })?;
    sock.connect(&addr)?;
    let (other, _) = listener.accept()?;
    sock.close()?;
    expect_errno(other.recv(&mut [0], 0), ECONNRESET, "recv()")
}

/// Threads and an epoll set that wait since before the connection, learn of its bytes and its end.
fn waiters_learn_of_events(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (listener, addr) = server(env.local)?;
    let sock = Arc::new(sdp_socket(env.local)?);
    sock.set_nonblocking(true)?;
    let epoll = Epoll::new()?;
    epoll.add(sock.as_raw_fd(), EPOLLIN | EPOLLRDHUP | EPOLLET, 5)?;
    expect_errno(sock.connect(&addr), EINPROGRESS, "connect()")?;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let other = Arc::clone(&sock);
        waiting.push(spawn_waiting(move || other.poll(POLLIN, -1))?);
    }
    let (other, _) = listener.accept()?;
    epoll.wait(0)?;
    other.send_all(b"x")?;
    for thread in waiting {
        expect_eq(joined(thread)??, POLLIN, "poll()")?;
    }
    let next = || epoll.wait(1000);
    eventually("POLLIN", next, |told| *told == vec![(5, EPOLLIN)])?;
    sock.recv(&mut [0], 0)?;
    other.close()?;
    let ended = vec![(5, EPOLLIN | EPOLLRDHUP)];
    eventually("the end", next, |told| *told == ended).map(drop)
}

fn uring_poll_learns_of_events(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let Some(mut ring) = Ring::new()? else {
        return skip("there is no io_uring");
    };
    let (listener, addr) = server(env.local)?;
    let sock = sdp_socket(env.local)?;
    sock.set_nonblocking(true)?;
    expect_errno(sock.connect(&addr), EINPROGRESS, "connect()")?;
    let request = ring.poll_all(&sock, POLLIN)?;
    let (other, _) = listener.accept()?;
    for _ in 0..3 {
        other.send_all(b"x")?;
        let events = i32::from(POLLIN);
        expect_eq(ring.next(request)?.ok()? & events, events, "the request")?;
        eventually(
            "the byte",
            || Ok(sock.recv(&mut [0], 0).is_ok()),
            |&got| got,
        )?;
    }
    Ok(())
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::SeqCst);
}

/// O_ASYNC, set before or after the fallback.
fn sigio_tells_of_bytes(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    sys::install_handler(libc::SIGIO, count_signal, true)?;
    for before in [true, false] {
        let (listener, addr) = server(env.local)?;
        let sock = sdp_socket(env.local)?;
        if before {
            sock.set_async(sys::pid())?;
        }
        sock.connect(&addr)?;
        if !before {
            sock.set_async(sys::pid())?;
        }
        let (other, _) = listener.accept()?;
        let signals = || Ok(SIGNALS.load(Ordering::SeqCst));
        for _ in 0..2 {
            let former = SIGNALS.load(Ordering::SeqCst);
            other.send_all(b"x")?;
            eventually("SIGIO", signals, |&n| n > former)?;
            sock.recv(&mut [0], 0)?;
        }
    }
    Ok(())
}

/// A child and a duplicate have descriptors of the file, also from before the fallback.
fn shared_with_a_child(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (listener, addr) = server(env.local)?;
    let sock = sdp_socket(env.local)?;
    let twin = sock.dup()?;
    let child = Child::start(|| {
        let connected = || protocol_of(&twin);
        eventually("TCP", connected, |&protocol| protocol == IPPROTO_TCP)?;
        let mut got = [0; 3];
        twin.recv_exact(&mut got)?;
        expect_eq(&got, b"one", "in the child")?;
        Ok(twin.send_all(b"two")?)
    })?;
    sock.connect(&addr)?;
    let (other, _) = listener.accept()?;
    other.send_all(b"one")?;
    child.join()?;
    sock.close()?;
    twin.send_all(b"!")?;
    let mut got = [0; 4];
    other.recv_exact(&mut got)?;
    expect_eq(&got, b"two!", "from the child and the duplicate")
}

/// O_ASYNC tells of the end of the set-up, before there is a byte.
fn signal_tells_of_the_connection(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    sys::install_handler(libc::SIGIO, count_signal, true)?;
    let (_listener, addr) = server(env.local)?;
    for _ in 0..8 {
        let sock = sdp_socket(env.local)?;
        sock.set_async(sys::pid())?;
        sock.set_nonblocking(true)?;
        let signals = || Ok(SIGNALS.load(Ordering::SeqCst));
        let former = SIGNALS.load(Ordering::SeqCst);
        expect_errno(sock.connect(&addr), EINPROGRESS, "connect()")?;
        eventually("SIGIO", signals, |&n| n > former)?;
    }
    Ok(())
}

/// A server whose queue is full answers later: requests and calls wait for the answer.
fn slow_server(ip: IpAddr) -> Result<(Sock, SockAddr, Vec<Sock>), Fail> {
    let sock = Sock::new(domain_of(ip), SOCK_STREAM, IPPROTO_TCP)?;
    sock.bind(&(ip, 0).into())?;
    sock.listen(0)?;
    let addr = sock.getsockname()?;
    let mut before = Vec::new();
    for _ in 0..4 {
        let client = Sock::new(domain_of(ip), SOCK_STREAM, IPPROTO_TCP)?;
        client.set_nonblocking(true)?;
        expect_errno(client.connect(&addr), EINPROGRESS, "connect() by TCP")?;
        before.push(client);
    }
    Ok((sock, addr, before))
}

/// Accepts all connections until one of them brings a byte.
fn accept_until_a_byte(listener: &Sock) -> Result<Sock, Fail> {
    for _ in 0..8 {
        let (sock, _) = listener.accept()?;
        if sock.poll(POLLIN, 20_000)? != 0 && sock.recv(&mut [0], libc::MSG_PEEK)? == 1 {
            return Ok(sock);
        }
    }
    failed("no connection brings a byte")
}

fn uring_waits_for_a_slow_server(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let Some(mut ring) = Ring::new()? else {
        return skip("there is no io_uring");
    };
    let (listener, addr, before) = slow_server(env.local)?;
    let sock = sdp_socket(env.local)?;
    let request = ring.connect(&sock, &addr)?;
    std::thread::sleep(Duration::from_millis(300));
    if let Some(told) = ring.already(request) {
        return failed(format!("the request has ended: {:?}", told.ok()));
    }
    drop(before);
    let serving = flow::spawn(move || accept_until_a_byte(&listener).map(drop))?;
    expect_eq(ring.next(request)?.ok()?, 0, "the request")?;
    sock.send_all(b"x")?;
    joined(serving)?
}

/// A send and a receive that wait for the connection by SDP go on with TCP.
fn calls_wait_for_the_connection(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    for slow in [false, true] {
        let (listener, addr, before) = match slow {
            true => slow_server(env.local)?,
            false => server(env.local).map(|(listener, addr)| (listener, addr, Vec::new()))?,
        };
        let sock = Arc::new(sdp_socket(env.local)?);
        sock.set_nonblocking(true)?;
        expect_errno(sock.connect(&addr), EINPROGRESS, "connect()")?;
        sock.set_nonblocking(false)?;
        let (one, other) = (Arc::clone(&sock), Arc::clone(&sock));
        let sending = flow::spawn(move || one.send_all(b"x"))?;
        let polling = flow::spawn(move || other.poll(POLLIN, -1))?;
        drop(before);
        let accepted = accept_until_a_byte(&listener)?;
        joined(sending)??;
        accepted.send_all(b"y")?;
        expect_eq(joined(polling)??, POLLIN, "poll()")?;
        let mut got = [0];
        sock.recv_exact(&mut got)?;
        expect_eq(&got, b"y", "received")?;
    }
    Ok(())
}

/// While a live server is reached, poll() never reports an end or an error.
fn pollers_see_no_end(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (listener, addr) = server(env.local)?;
    for _ in 0..env.scaled(60).max(10) {
        let sock = Arc::new(sdp_socket(env.local)?);
        sock.set_nonblocking(true)?;
        expect_errno(sock.connect(&addr), EINPROGRESS, "connect()")?;
        let mut pollers = Vec::new();
        for _ in 0..3 {
            let sock = Arc::clone(&sock);
            pollers.push(flow::spawn(move || -> io::Result<i16> {
                loop {
                    let events = sock.poll(POLLIN | POLLOUT, 0)?;
                    if events != 0 {
                        return Ok(events);
                    }
                }
            })?);
        }
        for poller in pollers {
            expect_eq(joined(poller)??, POLLOUT, "poll()")?;
        }
        listener.accept()?;
    }
    Ok(())
}

/// A connect() that has failed before SDP began leaves no TCP socket for the next one, and no port.
fn former_attempt_leaves_nothing(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (_listener, addr) = server(env.local)?;
    let multicast = SockAddr::from((IpAddr::from([224, 0, 0, 1]), 9));
    let sock = sdp_socket(env.local)?;
    sock.bind(&env.here(0))?;
    expect(sock.connect(&multicast).is_err(), "connect() to a group")?;
    let tcp = Sock::new(domain_of(env.local), SOCK_STREAM, IPPROTO_TCP)?;
    tcp.bind(&sock.getsockname()?)?;
    tcp.close()?;
    let _not = Changed::to("tcp_fallback", "0")?;
    expect_errno(sock.connect(&addr), ECONNREFUSED, "connect()")?;
    expect_eq(protocol_of(&sock)?, IPPROTO_SDP, "SO_PROTOCOL")
}

/// The TCP socket takes no port of SDP.
fn port_of_sdp_is_free(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    for bound in [false, true] {
        let (listener, addr) = server(env.local)?;
        let sock = sdp_socket(env.local)?;
        if bound {
            sock.bind(&env.here(0))?;
        }
        sock.connect(&addr)?;
        let (_other, _) = listener.accept()?;
        let other = sdp_socket(env.local)?;
        other.bind(&sock.getsockname()?)?;
        other.listen(1)?;
        let client = sdp_socket(env.local)?;
        client.connect(&other.getsockname()?)?;
        let (accepted, _) = other.accept()?;
        are_connected(&client, &accepted)?;
    }
    Ok(())
}

/// Of many connect() calls at a time, one makes the connection.
fn connected_by_many(env: &Env) -> Outcome {
    const THREADS: usize = 16;
    let _allowed = allowed(env)?;
    let (listener, addr) = server(env.local)?;
    for _ in 0..env.scaled(40).max(8) {
        let sock = Arc::new(sdp_socket(env.local)?);
        let barrier = Arc::new(Barrier::new(THREADS));
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let (sock, barrier) = (Arc::clone(&sock), Arc::clone(&barrier));
            threads.push(flow::spawn(move || {
                barrier.wait();
                sock.connect(&addr)
            })?);
        }
        let mut connected = 0;
        for thread in threads {
            match joined(thread)? {
                Ok(()) => connected += 1,
                Err(e) => expect_errno(io::Result::<()>::Err(e), EISCONN, "another connect()")?,
            }
        }
        expect(connected > 0, "nobody has connected")?;
        expect_eq(protocol_of(&sock)?, IPPROTO_TCP, "SO_PROTOCOL")?;
        let (other, _) = listener.accept()?;
        are_connected(&sock, &other)?;
    }
    Ok(())
}

fn closed_while_connecting(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    sys::install_handler(libc::SIGIO, count_signal, true)?;
    let (listener, addr) = server(env.local)?;
    listener.set_nonblocking(true)?;
    let mut rng = Rng::new(env.seed);
    for _ in 0..env.scaled(100).max(20) {
        let sock = sdp_socket(env.local)?;
        sock.set_nonblocking(true)?;
        if rng.below(2) == 0 {
            sock.set_async(sys::pid())?;
        }
        expect_errno(sock.connect(&addr), EINPROGRESS, "connect()")?;
        std::thread::sleep(Duration::from_micros(rng.below(4000) as u64));
        sock.close()?;
        while listener.accept().is_ok() {}
    }
    Ok(())
}

/// Calls of other threads may find either socket, but must return, and harm nothing.
fn used_by_many_while_connecting(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    sys::install_handler(libc::SIGIO, count_signal, true)?;
    let (listener, addr) = server(env.local)?;
    let local = env.local;
    for round in 0..env.scaled(30).max(8) {
        let sock = Arc::new(sdp_socket(local)?);
        let over = Arc::new(AtomicBool::new(false));
        let mut others = Vec::new();
        for number in 0..8 {
            let (sock, over) = (Arc::clone(&sock), Arc::clone(&over));
            let seed = env.seed ^ (round << 8) ^ number;
            others.push(flow::spawn(move || {
                let mut rng = Rng::new(seed);
                while !over.load(Ordering::Relaxed) {
                    let _ = match rng.below(9) {
                        0 => sock.poll(POLLIN | POLLOUT, 0).map(drop),
                        1 => sock.get_int(SOL_SOCKET, SO_PROTOCOL).map(drop),
                        2 => sock.set_int(IPPROTO_TCP, libc::TCP_NODELAY, 1),
                        3 => sock.recv(&mut [0; 8], libc::MSG_DONTWAIT).map(drop),
                        4 => sock.getsockname().map(drop),
                        5 => sock.set_async(sys::pid()),
                        6 => sock.listen(1),
                        7 => sock.bind(&(local, 0).into()),
                        _ => sock.getpeername().map(drop),
                    };
                }
            })?);
        }
        // A thread may have called listen() before.
        let connected = sock.connect(&addr);
        if round % 3 == 0 {
            let _ = sock.shutdown(SHUT_RDWR);
        }
        over.store(true, Ordering::Relaxed);
        for other in others {
            joined(other)?;
        }
        if connected.is_ok() {
            let (other, _) = listener.accept()?;
            if round % 3 != 0 {
                are_connected(&sock, &other)?;
            }
        } else if !connected.is_err_and(|e| e.raw_os_error() == Some(EISCONN)) {
            return failed("connect() has failed");
        }
    }
    Ok(())
}
