// SPDX-License-Identifier: GPL-2.0
//! Listeners that serve SDP and TCP clients at a time (SDP_LISTEN_TCP).

use crate::support::flow;
use crate::support::harness::{
    differences, eventually, expect, expect_eq, expect_errno, failed, joined, skip, spawn_waiting,
    tests, Env, Fail, Family, Outcome, ANY4, ANY6, QUIET_MS,
};
use crate::support::sys::{self, Epoll, Ring, Sock, SockAddr};
use crate::tests::uncopied::inflight::Growth;
use libc::{
    AF_INET, AF_INET6, EADDRINUSE, EAFNOSUPPORT, EAGAIN, EBADF, ECONNREFUSED, ECONNRESET, EINVAL,
    ENOTSOCK, EOPNOTSUPP, EPOLLET, EPOLLIN, EPROTONOSUPPORT, IPPROTO_TCP, POLLIN, SHUT_RD,
    SHUT_RDWR, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_STREAM, SOL_SOCKET, SO_DOMAIN,
    SO_PROTOCOL, SO_REUSEADDR,
};
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use uapi::socket::{AF_INET6_SDP, AF_INET_SDP, IPPROTO_SDP, SDP_LISTEN_TCP, SOL_SDP};

tests!("both";
    serves_both,
    serves_both_over_ipv6,
    serves_both_as_mapped,
    accept_is_woken_by_tcp,
    poll_tells_of_tcp,
    epoll_tells_of_each,
    uring_accepts_both,
    sigio_tells_of_tcp,
    neither_waits_for_the_other,
    flags_of_accept,
    close_resets_pending_tcp,
    shutdown_ends_both,
    program_keeps_the_tcp_socket,
    closed_without_listening,
    listens_after_a_failure,
    option_is_refused,
    option_is_read_back,
    option_of_a_client,
    option_tells_of_the_end,
    many_threads,
);

/// The test needs both protocols at one port. Soft-iWARP takes ports of TCP for SDP.
fn needs_both(env: &Env) -> Outcome {
    if env.family == Family::Tcp {
        return skip("TCP has no listener for another protocol");
    }
    if differences::over_iwarp(env.family) {
        return skip("iWARP takes the port of TCP for SDP");
    }
    Ok(())
}

pub(super) fn domain_of(ip: IpAddr) -> i32 {
    match ip {
        IpAddr::V4(_) => AF_INET,
        IpAddr::V6(_) => AF_INET6,
    }
}

fn tcp_socket(ip: IpAddr) -> io::Result<Sock> {
    reusing_socket(ip, IPPROTO_TCP)
}

fn sdp_socket(ip: IpAddr) -> io::Result<Sock> {
    reusing_socket(ip, IPPROTO_SDP)
}

/// With SO_REUSEADDR, because a test listens again at the port of its former connections.
fn reusing_socket(ip: IpAddr, protocol: i32) -> io::Result<Sock> {
    let sock = Sock::new(domain_of(ip), SOCK_STREAM, protocol)?;
    sock.set_int(SOL_SOCKET, SO_REUSEADDR, 1)?;
    Ok(sock)
}

fn set_tcp(sock: &Sock, tcp: &Sock) -> io::Result<()> {
    sock.set_int(SOL_SDP, SDP_LISTEN_TCP, tcp.as_raw_fd())
}

/// A TCP socket and an SDP socket, both bound to one port of `ip`.
fn bound_pair(ip: IpAddr) -> Result<(Sock, Sock), Fail> {
    for _ in 0..20 {
        let (tcp, sdp) = (tcp_socket(ip)?, sdp_socket(ip)?);
        tcp.bind(&(ip, 0).into())?;
        match sdp.bind(&tcp.getsockname()?) {
            // The port is free for TCP only.
            Err(e) if e.raw_os_error() == Some(EADDRINUSE) => {}
            bound => {
                bound?;
                return Ok((tcp, sdp));
            }
        }
    }
    failed("no port is free for both")
}

/// A listener for both at a port of `ip`, and the TCP socket.
fn pair(ip: IpAddr, backlog: i32) -> Result<(Sock, Sock), Fail> {
    let (tcp, sdp) = bound_pair(ip)?;
    tcp.listen(backlog)?;
    set_tcp(&sdp, &tcp)?;
    sdp.listen(backlog)?;
    Ok((tcp, sdp))
}

/// As [`pair`], but the program closes its descriptor of the TCP socket.
fn listener(ip: IpAddr, backlog: i32) -> Result<(Sock, SockAddr), Fail> {
    let (_tcp, sdp) = pair(ip, backlog)?;
    let addr = sdp.getsockname()?;
    Ok((sdp, addr))
}

/// A socket with this protocol that has connected to `to` from this machine.
fn client(protocol: i32, to: &SockAddr) -> io::Result<Sock> {
    let sock = Sock::new(to.family(), SOCK_STREAM, protocol)?;
    sock.connect(to)?;
    Ok(sock)
}

pub(super) fn protocol_of(sock: &Sock) -> io::Result<i32> {
    sock.get_int(SOL_SOCKET, SO_PROTOCOL)
}

/// Expects that two sockets are connected with each other.
pub(super) fn are_connected(one: &Sock, other: &Sock) -> Outcome {
    for (from, to) in [(one, other), (other, one)] {
        from.send_all(b"hello")?;
        let mut got = [0; 5];
        to.recv_exact(&mut got)?;
        expect_eq(&got, b"hello", "received")?;
    }
    Ok(())
}

/// Accepts a connection of this protocol, whose client is `from`.
fn accepts(listener: &Sock, protocol: i32, from: &Sock) -> Result<Sock, Fail> {
    let (sock, peer) = listener.accept()?;
    expect_eq(protocol_of(&sock)?, protocol, "SO_PROTOCOL")?;
    let port = from.getsockname()?.port();
    expect_eq(peer.port(), port, "accept's address")?;
    expect_eq(
        sock.getpeername()?.to_std(),
        peer.to_std(),
        "getpeername() and accept()",
    )?;
    are_connected(&sock, from)?;
    Ok(sock)
}

/// Accepts a TCP client and an SDP client from this machine and from the peer.
fn both_are_served(env: &Env, listener: &Sock, to: &SockAddr) -> Outcome {
    let domain = listener.get_int(SOL_SOCKET, SO_DOMAIN)?;
    let by_tcp = Growth::of(env, "accepted_tcp")?;
    let by_sdp = Growth::of(env, "accepted")?;
    for protocol in [IPPROTO_TCP, IPPROTO_SDP, IPPROTO_TCP] {
        let here = client(protocol, to)?;
        let sock = accepts(listener, protocol, &here)?;
        expect_eq(sock.get_int(SOL_SOCKET, SO_DOMAIN)?, domain, "SO_DOMAIN")?;
        let there = env.peer()?.socket(to.family(), SOCK_STREAM, protocol)?;
        there.connect(to)?;
        let (sock, peer) = listener.accept()?;
        expect_eq(protocol_of(&sock)?, protocol, "SO_PROTOCOL of the peer's")?;
        let port = there.getsockname()?.port();
        expect_eq(peer.port(), port, "accept's address of the peer")?;
        sock.send_all(b"x")?;
        expect_eq(there.recv(1, 0)?, b"x".to_vec(), "from the listener")?;
    }
    by_tcp.at_least(4)?;
    by_sdp.at_least(2)
}

fn serves_both(env: &Env) -> Outcome {
    needs_both(env)?;
    let (sock, addr) = listener(env.local, 4)?;
    both_are_served(env, &sock, &addr)?;
    let (sock, addr) = listener(ANY4, 4)?;
    both_are_served(env, &sock, &env.here(addr.port()))
}

fn serves_both_over_ipv6(env: &Env) -> Outcome {
    needs_both(env)?;
    let env = env.over_ipv6()?;
    let (sock, addr) = listener(env.local, 4)?;
    both_are_served(&env, &sock, &addr)
}

/// A listener of AF_INET6 serves IPv4 clients of both protocols, under mapped addresses.
fn serves_both_as_mapped(env: &Env) -> Outcome {
    needs_both(env)?;
    env.has_ipv6()?;
    let IpAddr::V4(local) = env.local else {
        return skip("the address is not IPv4");
    };
    let (sock, addr) = listener(ANY6, 4)?;
    let to = env.here(addr.port());
    both_are_served(env, &sock, &to)?;
    for protocol in [IPPROTO_TCP, IPPROTO_SDP] {
        let here = client(protocol, &to)?;
        let (accepted, from) = sock.accept()?;
        let mapped = Some(IpAddr::from(local.to_ipv6_mapped()));
        expect_eq(from.ip(), mapped, format!("accept's address, {protocol}"))?;
        expect_eq(accepted.getsockname()?.ip(), mapped, "getsockname()")?;
        are_connected(&here, &accepted)?;
    }
    Ok(())
}

fn accept_is_woken_by_tcp(env: &Env) -> Outcome {
    needs_both(env)?;
    let (sock, addr) = listener(env.local, 4)?;
    let sock = Arc::new(sock);
    for protocol in [IPPROTO_TCP, IPPROTO_SDP, IPPROTO_TCP] {
        let other = Arc::clone(&sock);
        let waiting = spawn_waiting(move || other.accept())?;
        let client = client(protocol, &addr)?;
        let (accepted, from) = joined(waiting)??;
        expect_eq(protocol_of(&accepted)?, protocol, "SO_PROTOCOL")?;
        expect_eq(from.to_std(), client.getsockname()?.to_std(), "accepted")?;
    }
    sock.set_timeout(libc::SO_RCVTIMEO, 150)?;
    expect_errno(sock.accept(), EAGAIN, "accept with SO_RCVTIMEO")
}

fn poll_tells_of_tcp(env: &Env) -> Outcome {
    needs_both(env)?;
    let (sock, addr) = listener(env.local, 4)?;
    sock.set_nonblocking(true)?;
    expect_errno(sock.accept(), EAGAIN, "accept of nothing")?;
    expect_eq(sock.poll(POLLIN, 0)?, 0, "poll of nothing")?;
    let sock = Arc::new(sock);
    let other = Arc::clone(&sock);
    let waiting = spawn_waiting(move || other.poll(POLLIN, -1))?;
    let tcp = client(IPPROTO_TCP, &addr)?;
    expect_eq(joined(waiting)??, POLLIN, "poll")?;
    let ready = sys::select_one(sock.as_raw_fd(), 0)?;
    expect(ready.read, "select says nothing")?;
    accepts(&sock, IPPROTO_TCP, &tcp)?;
    let _sdp = client(IPPROTO_SDP, &addr)?;
    eventually("POLLIN", || sock.poll(POLLIN, 0), |&e| e == POLLIN)?;
    sock.accept()?;
    expect_errno(sock.accept(), EAGAIN, "accept of the third")?;
    expect_eq(sock.poll(POLLIN, 0)?, 0, "poll after all")
}

/// Each TCP connection is an edge for epoll. A listener that has connections when it is added, or
/// that gets them before it listens, is reported, too.
fn epoll_tells_of_each(env: &Env) -> Outcome {
    needs_both(env)?;
    let (tcp, sock) = bound_pair(env.local)?;
    let addr = tcp.getsockname()?;
    tcp.listen(8)?;
    set_tcp(&sock, &tcp)?;
    let epoll = Epoll::new()?;
    epoll.add(sock.as_raw_fd(), EPOLLIN | EPOLLET, 7)?;
    epoll.wait(0)?;
    let mut clients = vec![client(IPPROTO_TCP, &addr)?];
    sock.listen(8)?;
    sock.set_nonblocking(true)?;
    expect_eq(epoll.wait(-1)?, vec![(7, EPOLLIN)], "before listen()")?;
    for protocol in [IPPROTO_TCP, IPPROTO_TCP, IPPROTO_SDP, IPPROTO_TCP] {
        // Late wake-ups for the last connection.
        thread::sleep(Duration::from_millis(QUIET_MS as u64));
        epoll.wait(0)?;
        expect_eq(epoll.wait(0)?, vec![], "no news")?;
        clients.push(client(protocol, &addr)?);
        expect_eq(epoll.wait(-1)?, vec![(7, EPOLLIN)], "an edge")?;
    }
    for _ in &clients {
        eventually("POLLIN", || sock.poll(POLLIN, 0), |&e| e == POLLIN)?;
        sock.accept()?;
    }
    expect_errno(sock.accept(), EAGAIN, "accept of one more")
}

fn uring_accepts_both(env: &Env) -> Outcome {
    needs_both(env)?;
    let Some(mut ring) = Ring::new()? else {
        return skip("there is no io_uring");
    };
    let (sock, addr) = listener(env.local, 8)?;
    let accept = ring.accept_all(&sock)?;
    let mut clients = Vec::new();
    for protocol in [
        IPPROTO_TCP,
        IPPROTO_SDP,
        IPPROTO_TCP,
        IPPROTO_TCP,
        IPPROTO_SDP,
    ] {
        let client = client(protocol, &addr)?;
        let told = ring.next(accept)?;
        expect(told.more, "the request goes on")?;
        let accepted = told.sock()?;
        expect_eq(protocol_of(&accepted)?, protocol, "SO_PROTOCOL")?;
        are_connected(&accepted, &client)?;
        clients.push((client, accepted));
    }
    sock.shutdown(SHUT_RD)?;
    let told = ring.next(accept)?;
    expect_errno(told.ok(), EINVAL, "after shutdown() of the listener")
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::SeqCst);
}

fn sigio_tells_of_tcp(env: &Env) -> Outcome {
    needs_both(env)?;
    sys::install_handler(libc::SIGIO, count_signal, true)?;
    let (sock, addr) = listener(env.local, 8)?;
    sock.set_async(sys::pid())?;
    let signals = || Ok(SIGNALS.load(Ordering::SeqCst));
    for protocol in [IPPROTO_TCP, IPPROTO_SDP, IPPROTO_TCP] {
        let before = SIGNALS.load(Ordering::SeqCst);
        let client = client(protocol, &addr)?;
        eventually("SIGIO", signals, |&n| n > before)?;
        accepts(&sock, protocol, &client)?;
    }
    Ok(())
}

/// If connections of both protocols wait, accept() returns them in turn.
fn neither_waits_for_the_other(env: &Env) -> Outcome {
    const EACH: usize = 4;
    needs_both(env)?;
    let (sock, addr) = listener(env.local, EACH as i32)?;
    let mut clients = Vec::new();
    for protocol in [IPPROTO_TCP, IPPROTO_SDP] {
        for _ in 0..EACH {
            clients.push(client(protocol, &addr)?);
        }
    }
    // All of SDP are in the queue: it is full, and the core counts no others.
    let waiting = || {
        let text = std::fs::read_to_string("/proc/net/sdp")?;
        let port = format!(":{}", addr.port());
        let established = |line: &&str| line.contains(&port) && line.contains("Established");
        io::Result::Ok(text.lines().filter(established).count())
    };
    eventually("connections of SDP", waiting, |&n| n == 2 * EACH)?;
    thread::sleep(Duration::from_millis(QUIET_MS as u64));
    let mut protocols = Vec::new();
    for _ in 0..2 * EACH {
        protocols.push(protocol_of(&sock.accept()?.0)?);
    }
    let in_turn = protocols.windows(2).all(|pair| pair[0] != pair[1]);
    expect(in_turn, format!("{protocols:?}"))
}

fn flags_of_accept(env: &Env) -> Outcome {
    needs_both(env)?;
    let (sock, addr) = listener(env.local, 2)?;
    sock.set_nonblocking(true)?;
    for flags in [0, SOCK_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC] {
        let _client = client(IPPROTO_TCP, &addr)?;
        eventually("POLLIN", || sock.poll(POLLIN, 0), |&e| e == POLLIN)?;
        let (accepted, _) = sock.accept4(flags)?;
        let nonblocking = flags & SOCK_NONBLOCK != 0;
        let cloexec = flags & SOCK_CLOEXEC != 0;
        expect_eq(accepted.is_nonblocking()?, nonblocking, "SOCK_NONBLOCK")?;
        expect_eq(accepted.is_cloexec()?, cloexec, "SOCK_CLOEXEC")?;
        // It is a TCP socket in all respects.
        let mut info = [0; 8];
        accepted.get_bytes(IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
        expect_eq(info[0], 1, "TCP_ESTABLISHED")?;
        accepted.set_int(IPPROTO_TCP, libc::TCP_QUICKACK, 1)?;
        let unknown = accepted.get_int(SOL_SDP, SDP_LISTEN_TCP);
        expect_errno(unknown, libc::ENOPROTOOPT, "an option of SDP")?;
    }
    Ok(())
}

/// The port is free for a TCP server again.
fn tcp_port_is_free(addr: &SockAddr) -> Outcome {
    expect_errno(client(IPPROTO_TCP, addr), ECONNREFUSED, "TCP connect")?;
    let tcp = Sock::new(addr.family(), SOCK_STREAM, IPPROTO_TCP)?;
    tcp.set_int(SOL_SOCKET, SO_REUSEADDR, 1)?;
    tcp.bind(addr)?;
    tcp.listen(1)?;
    Ok(())
}

fn close_resets_pending_tcp(env: &Env) -> Outcome {
    needs_both(env)?;
    let (sock, addr) = listener(env.local, 8)?;
    let mut clients = Vec::new();
    for protocol in [IPPROTO_TCP, IPPROTO_SDP, IPPROTO_TCP] {
        clients.push(client(protocol, &addr)?);
    }
    eventually("POLLIN", || sock.poll(POLLIN, 0), |&e| e == POLLIN)?;
    sock.close()?;
    for client in &clients {
        expect_errno(client.recv(&mut [0], 0), ECONNRESET, "recv")?;
    }
    expect_errno(client(IPPROTO_SDP, &addr), ECONNREFUSED, "SDP connect")?;
    tcp_port_is_free(&addr)
}

/// After shutdown(), the socket can listen again: without TCP, or with another TCP socket.
fn shutdown_ends_both(env: &Env) -> Outcome {
    needs_both(env)?;
    let (sock, addr) = listener(env.local, 4)?;
    let sock = Arc::new(sock);
    for how in [SHUT_RD, SHUT_RDWR] {
        let other = Arc::clone(&sock);
        let pending = client(IPPROTO_TCP, &addr)?;
        sock.accept()?;
        let waiting = spawn_waiting(move || other.accept().map(drop))?;
        sock.shutdown(how)?;
        expect_errno(joined(waiting)?, EINVAL, "accept")?;
        expect_eq(pending.recv(&mut [0], 0)?, 0, "the closed one")?;
        let reads = sock.get_int(SOL_SDP, SDP_LISTEN_TCP)?;
        expect_eq(reads, 0, "the option after shutdown()")?;
        tcp_port_is_free(&addr)?;
        sock.listen(4)?;
        let client_of_sdp = client(IPPROTO_SDP, &addr)?;
        accepts(&sock, IPPROTO_SDP, &client_of_sdp)?;
        expect_errno(client(IPPROTO_TCP, &addr), ECONNREFUSED, "TCP connect")?;
        sock.shutdown(how)?;
        let tcp = tcp_socket(env.local)?;
        tcp.bind(&addr)?;
        tcp.listen(4)?;
        set_tcp(&sock, &tcp)?;
        sock.listen(4)?;
        for protocol in [IPPROTO_SDP, IPPROTO_TCP] {
            let client = client(protocol, &addr)?;
            accepts(&sock, protocol, &client)?;
        }
    }
    // A connection that waits when the listener is shut down.
    let pending = client(IPPROTO_TCP, &addr)?;
    eventually("POLLIN", || sock.poll(POLLIN, 0), |&e| e == POLLIN)?;
    sock.shutdown(SHUT_RDWR)?;
    expect_errno(pending.recv(&mut [0], 0), ECONNRESET, "recv")
}

/// With a descriptor of its own, the program can use the TCP socket beside the listener, and end
/// the one without the other.
fn program_keeps_the_tcp_socket(env: &Env) -> Outcome {
    needs_both(env)?;
    let (tcp, sock) = pair(env.local, 4)?;
    let addr = sock.getsockname()?;
    let first = client(IPPROTO_TCP, &addr)?;
    accepts(&tcp, IPPROTO_TCP, &first)?;
    let second = client(IPPROTO_TCP, &addr)?;
    accepts(&sock, IPPROTO_TCP, &second)?;
    // The end of the listener is not the end of the TCP socket.
    let third = client(IPPROTO_TCP, &addr)?;
    sock.close()?;
    accepts(&tcp, IPPROTO_TCP, &third)?;
    // The end of the TCP socket is not the end of the listener.
    let (tcp, sock) = pair(env.local, 4)?;
    let addr = sock.getsockname()?;
    let _pending = client(IPPROTO_TCP, &addr)?;
    tcp.shutdown(SHUT_RDWR)?;
    sock.set_nonblocking(true)?;
    eventually("an empty queue", || sock.poll(POLLIN, 0), |&e| e == 0)?;
    expect_errno(sock.accept(), EAGAIN, "accept of TCP")?;
    // The TCP socket connects, as an ordinary socket.
    let target = tcp_socket(env.local)?;
    target.bind(&env.here(0))?;
    target.listen(1)?;
    tcp.connect(&target.getsockname()?)?;
    expect_errno(sock.accept(), EAGAIN, "accept of a connected TCP socket")?;
    sock.set_nonblocking(false)?;
    let last = client(IPPROTO_SDP, &addr)?;
    accepts(&sock, IPPROTO_SDP, &last)?;
    Ok(())
}

/// A socket with the option may also be closed, or connect.
fn closed_without_listening(env: &Env) -> Outcome {
    needs_both(env)?;
    let (tcp, sock) = bound_pair(env.local)?;
    let addr = tcp.getsockname()?;
    tcp.listen(2)?;
    set_tcp(&sock, &tcp)?;
    tcp.close()?;
    let _pending = client(IPPROTO_TCP, &addr)?;
    sock.close()?;
    tcp_port_is_free(&addr)?;
    let (tcp, sock) = bound_pair(env.local)?;
    tcp.listen(2)?;
    set_tcp(&sock, &tcp)?;
    let (target, to) = listener(env.local, 1)?;
    sock.connect(&to)?;
    let _pending = client(IPPROTO_TCP, &tcp.getsockname()?)?;
    accepts(&target, IPPROTO_SDP, &sock)?;
    Ok(())
}

/// If listen() fails, the socket keeps its option, and can try again.
fn listens_after_a_failure(env: &Env) -> Outcome {
    needs_both(env)?;
    let (tcp, first) = bound_pair(env.local)?;
    let addr = tcp.getsockname()?;
    first.close()?;
    let (first, second) = (sdp_socket(env.local)?, sdp_socket(env.local)?);
    for sock in [&first, &second] {
        sock.bind(&addr)?;
    }
    tcp.listen(4)?;
    set_tcp(&second, &tcp)?;
    first.listen(1)?;
    expect_errno(second.listen(1), EADDRINUSE, "listen of the second")?;
    expect_eq(second.get_int(SOL_SDP, SDP_LISTEN_TCP)?, 1, "the option")?;
    // The TCP socket serves for the program alone.
    let early = client(IPPROTO_TCP, &addr)?;
    first.close()?;
    second.listen(4)?;
    accepts(&second, IPPROTO_TCP, &early)?;
    let late = client(IPPROTO_SDP, &addr)?;
    accepts(&second, IPPROTO_SDP, &late)?;
    // A TCP server that has the port is found by the program's own bind().
    let other = tcp_socket(env.local)?;
    expect_errno(other.bind(&addr), EADDRINUSE, "bind of another TCP server")
}

fn option_is_refused(env: &Env) -> Outcome {
    needs_both(env)?;
    let (tcp, sock) = bound_pair(ANY4)?;
    let refused = |sock: &Sock, fd: i32, errno: i32, what: &str| {
        expect_errno(sock.set_int(SOL_SDP, SDP_LISTEN_TCP, fd), errno, what)
    };
    refused(
        &sock,
        tcp.as_raw_fd(),
        EINVAL,
        "a TCP socket before listen()",
    )?;
    tcp.listen(1)?;
    // Families 27 and 28.
    let mut families = vec![AF_INET_SDP];
    families.extend(env.local6.map(|_| AF_INET6_SDP));
    for family in families {
        let own = Sock::new(family, SOCK_STREAM, 0)?;
        refused(&own, tcp.as_raw_fd(), EOPNOTSUPP, "a family of SDP")?;
        expect_eq(own.get_int(SOL_SDP, SDP_LISTEN_TCP)?, 0, "its option")?;
    }
    refused(&sock, i32::MAX, EBADF, "no descriptor")?;
    refused(&sock, -2, EBADF, "a negative number")?;
    let (pipe, _other_end) = sys::pipe()?;
    refused(&sock, pipe.as_raw_fd(), ENOTSOCK, "a pipe")?;
    let udp = Sock::new(AF_INET, SOCK_DGRAM, 0)?;
    refused(&sock, udp.as_raw_fd(), EPROTONOSUPPORT, "a UDP socket")?;
    let own = sock.as_raw_fd();
    refused(&sock, own, EPROTONOSUPPORT, "the SDP socket itself")?;
    let (sdp, addr) = listener(env.local, 2)?;
    refused(&sock, sdp.as_raw_fd(), EPROTONOSUPPORT, "an SDP listener")?;
    if env.local6.is_some() {
        let other = tcp_socket(ANY6)?;
        other.listen(1)?;
        refused(&sock, other.as_raw_fd(), EAFNOSUPPORT, "of IPv6")?;
    }
    let connected = client(IPPROTO_TCP, &addr)?;
    let accepted = accepts(&sdp, IPPROTO_TCP, &connected)?;
    for end in [&connected, &accepted] {
        refused(&sock, end.as_raw_fd(), EINVAL, "a connected TCP socket")?;
    }
    let short = sock.set_bytes(SOL_SDP, SDP_LISTEN_TCP, &[0; 3]);
    expect_errno(short, EINVAL, "three bytes")?;
    // Nothing of this has changed the option.
    expect_eq(sock.get_int(SOL_SDP, SDP_LISTEN_TCP)?, 0, "the option")?;
    sock.listen(1)?;
    refused(&sock, tcp.as_raw_fd(), EINVAL, "after listen()")?;
    refused(&sock, -1, EINVAL, "none after listen()")?;
    let connected = client(IPPROTO_SDP, &addr)?;
    let accepted = accepts(&sdp, IPPROTO_SDP, &connected)?;
    for end in [&connected, &accepted] {
        refused(end, tcp.as_raw_fd(), EINVAL, "for a connected SDP socket")?;
    }
    Ok(())
}

fn option_is_read_back(env: &Env) -> Outcome {
    needs_both(env)?;
    let (tcp, sock) = bound_pair(env.local)?;
    tcp.listen(2)?;
    let reads = |want: i32, what: &str| {
        let value = sock.get_int(SOL_SDP, SDP_LISTEN_TCP)?;
        expect_eq(value, want, what)
    };
    reads(0, "at first")?;
    set_tcp(&sock, &tcp)?;
    reads(1, "with a TCP socket")?;
    // Another one replaces the first.
    let other = tcp_socket(env.local)?;
    other.bind(&env.here(0))?;
    other.listen(2)?;
    set_tcp(&sock, &other)?;
    reads(1, "with another one")?;
    sock.set_int(SOL_SDP, SDP_LISTEN_TCP, -1)?;
    reads(0, "with none")?;
    sock.set_int(SOL_SDP, SDP_LISTEN_TCP, -1)?;
    set_tcp(&sock, &other)?;
    sock.listen(2)?;
    reads(1, "while it listens")?;
    // The TCP socket need not have the port of the listener.
    let client_of_other = client(IPPROTO_TCP, &other.getsockname()?)?;
    accepts(&sock, IPPROTO_TCP, &client_of_other)?;
    // A connection does not have the option.
    let client = client(IPPROTO_SDP, &sock.getsockname()?)?;
    let accepted = accepts(&sock, IPPROTO_SDP, &client)?;
    expect_eq(accepted.get_int(SOL_SDP, SDP_LISTEN_TCP)?, 0, "accepted")
}

/// A socket that has a TCP socket and connects instead of listening: the TCP port can be released.
fn option_of_a_client(env: &Env) -> Outcome {
    needs_both(env)?;
    let (server, addr) = listener(env.local, 2)?;
    let (tcp, sock) = bound_pair(env.local)?;
    tcp.listen(2)?;
    set_tcp(&sock, &tcp)?;
    let served = tcp.getsockname()?;
    drop(tcp);
    sock.connect(&addr)?;
    accepts(&server, IPPROTO_SDP, &sock)?;
    client(IPPROTO_TCP, &served)?;
    sock.set_int(SOL_SDP, SDP_LISTEN_TCP, -1)?;
    expect_eq(sock.get_int(SOL_SDP, SDP_LISTEN_TCP)?, 0, "the option")?;
    expect_errno(client(IPPROTO_TCP, &served), ECONNREFUSED, "the TCP port")
}

/// The program ends the listening of the TCP socket by its own descriptor.
fn option_tells_of_the_end(env: &Env) -> Outcome {
    needs_both(env)?;
    let (tcp, sock) = bound_pair(env.local)?;
    tcp.listen(2)?;
    set_tcp(&sock, &tcp)?;
    sock.listen(2)?;
    tcp.shutdown(SHUT_RDWR)?;
    expect_eq(
        sock.get_int(SOL_SDP, SDP_LISTEN_TCP)?,
        0,
        "after shutdown()",
    )?;
    let connected = client(IPPROTO_SDP, &sock.getsockname()?)?;
    accepts(&sock, IPPROTO_SDP, &connected)?;
    // It serves both again.
    tcp.listen(2)?;
    expect_eq(sock.get_int(SOL_SDP, SDP_LISTEN_TCP)?, 1, "after listen()")?;
    let connected = client(IPPROTO_TCP, &tcp.getsockname()?)?;
    accepts(&sock, IPPROTO_TCP, &connected).map(drop)
}

/// Fifty threads accept while clients of both protocols connect: each client is served, by one
/// thread, and nothing is left.
fn many_threads(env: &Env) -> Outcome {
    const THREADS: usize = 50;
    const CLIENTS: usize = 8;
    needs_both(env)?;
    let (sock, addr) = listener(env.local, 128)?;
    let sock = Arc::new(sock);
    let mut servers = Vec::new();
    for _ in 0..THREADS {
        let sock = Arc::clone(&sock);
        servers.push(flow::spawn(move || -> io::Result<Vec<(i32, u64)>> {
            let mut served = Vec::new();
            loop {
                let accepted = match sock.accept() {
                    Err(e) if e.raw_os_error() == Some(EINVAL) => return Ok(served),
                    accepted => accepted?.0,
                };
                let mut number = [0; 8];
                accepted.recv_exact(&mut number)?;
                accepted.send_all(&number)?;
                served.push((protocol_of(&accepted)?, u64::from_ne_bytes(number)));
                // The client closes first.
                accepted.recv(&mut [0], 0)?;
            }
        })?);
    }
    let each = env.scaled(20).min(200);
    let next = Arc::new(AtomicU64::new(0));
    let mut clients = Vec::new();
    for i in 0..CLIENTS {
        let next = Arc::clone(&next);
        let protocol = [IPPROTO_TCP, IPPROTO_SDP][i % 2];
        clients.push(flow::spawn(move || -> io::Result<Vec<(i32, u64)>> {
            let mut wanted = Vec::new();
            for _ in 0..each {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let sock = client(protocol, &addr)?;
                sock.send_all(&number.to_ne_bytes())?;
                let mut answer = [0; 8];
                sock.recv_exact(&mut answer)?;
                if answer != number.to_ne_bytes() {
                    return Err(io::Error::other("the answer to another client"));
                }
                wanted.push((protocol, number));
            }
            Ok(wanted)
        })?);
    }
    let mut wanted = HashSet::new();
    for client in clients {
        wanted.extend(joined(client)??);
    }
    expect_eq(wanted.len() as u64, CLIENTS as u64 * each, "clients")?;
    sock.shutdown(SHUT_RDWR)?;
    let mut served = Vec::new();
    for server in servers {
        served.extend(joined(server)??);
    }
    expect_eq(served.len(), wanted.len(), "connections served")?;
    let served: HashSet<_> = served.into_iter().collect();
    expect(served == wanted, "clients served")
}
