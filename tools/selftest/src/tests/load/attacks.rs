// SPDX-License-Identifier: GPL-2.0
//! Orders of events and amounts of data that programs rarely produce, and that have broken a socket
//! once, or might do so.

use crate::support::flow::{self, Span};
use crate::support::harness::{
    differences, eventually, expect, expect_eof, expect_eq, expect_errno, expect_received, failed,
    fill, joined, receive, send, tests, Env, Family, Outcome, QUIET_MS,
};
use crate::support::pattern::Rng;
use crate::support::peer::Work;
use crate::support::sys::{Linger, Sock, SockAddr};
use libc::{
    AF_UNSPEC, ECONNABORTED, ECONNREFUSED, ECONNRESET, EINPROGRESS, EINVAL, EISCONN, IPPROTO_IP,
    IPPROTO_TCP, MSG_NOSIGNAL, MSG_PEEK, MSG_WAITALL, POLLIN, POLLOUT, SHUT_RD, SHUT_WR,
    SOL_SOCKET, SO_RCVTIMEO, SO_REUSEPORT, TCP_NODELAY,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

tests!("attacks";
    small_messages_nobody_reads,
    wait_for_more_than_the_buffers_hold,
    answer_after_half_close,
    many_unread_bytes_both_ways,
    dead_connections_in_the_backlog,
    disconnected_listener_with_backlog,
    no_lost_wake_up_of_accept,
    listen_and_disconnect_at_once,
    connect_again_after_reset,
    connect_again_after_disconnect,
    connect_and_close_at_once,
    each_connection_is_accepted,
    bind_twice_at_once,
    short_ipv6_address,
    multicast_membership,
    close_during_set_up,
    former_listener_as_child,
    options_while_data_flows,
    bytes_on_many_sockets_by_turns,
);

fn unspec(env: &Env) -> SockAddr {
    env.here(0).with_family(AF_UNSPEC)
}

/// The receive buffer limits small messages as it limits large ones, and all bytes arrive when
/// somebody reads at last.
fn small_messages_nobody_reads(env: &Env) -> Outcome {
    for size in [1, 100, 500, 3000] {
        let (sock, remote) = env.pair()?;
        sock.set_int(IPPROTO_TCP, TCP_NODELAY, 1)?;
        // The 1-byte case would take too long to fill a buffer.
        let want = env.scaled(if size == 1 { 20_000 } else { 4 << 20 });
        let mut sent = 0;
        let mut full = false;
        while sent < want && !full {
            let buf = Span::new(env.seed, sent, size).to_vec();
            match sock.send(&buf, libc::MSG_DONTWAIT | MSG_NOSIGNAL) {
                Ok(n) => sent += n as u64,
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {
                    full = sock.poll(POLLOUT, QUIET_MS)? == 0;
                }
                Err(e) => return failed(format!("{size} bytes each: {e} after {sent}")),
            }
        }
        let job = remote.start(Work::Sink(Span::new(env.seed, 0, sent)))?;
        expect_received(
            job.join_received()?,
            Span::new(env.seed, 0, sent),
            format!("{size} bytes each"),
        )?;
    }
    Ok(())
}

/// A receive with MSG_WAITALL of more bytes than fit into all buffers continues when the first part
/// was read.
fn wait_for_more_than_the_buffers_hold(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 12 << 20);
    let job = remote.start(Work::Source { span, max: 1 << 20 })?;
    // Waits until the sender has filled the buffers.
    std::thread::sleep(Duration::from_millis(4 * QUIET_MS as u64));
    sock.set_timeout(SO_RCVTIMEO, 40_000)?;
    let mut all = vec![0; span.len as usize];
    let got = sock.recv(&mut all, MSG_WAITALL)?;
    expect_eq(got as u64, span.len, "bytes received at once")?;
    expect(all == span.to_vec(), "they are other bytes")?;
    job.join()?;
    Ok(())
}

/// A request of any size, the end of this direction, and then a long answer.
fn answer_after_half_close(env: &Env) -> Outcome {
    for size in [0, 1, 4096, 8192, 8193, 12_288, 16_384, 40_000, 300_000] {
        let (sock, remote) = env.pair()?;
        let request = Span::new(env.seed, 0, size);
        let answer = Span::new(env.seed + 1, 0, 2 << 20);
        let job = remote.start(Work::Source {
            span: answer,
            max: 1 << 20,
        })?;
        send(&sock, request)?;
        sock.shutdown(SHUT_WR)?;
        sock.set_timeout(SO_RCVTIMEO, 20_000)?;
        receive(&sock, answer)?;
        job.join()?;
        let job = remote.start(Work::Sink(request.after(0)))?;
        expect_received(job.join_received()?, request, format!("request of {size}"))?;
    }
    Ok(())
}

/// Each end fills the buffers of the other one before either of them reads.
fn many_unread_bytes_both_ways(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    let (there, back) = (fill(&sock, env.seed)?, fill(&other, env.seed + 1)?);
    let (sock, other) = (Arc::new(sock), Arc::new(other));
    let reader = other.clone();
    let span = Span::new(env.seed, 0, there);
    let thread = flow::spawn(move || receive(&reader, span))?;
    receive(&sock, Span::new(env.seed + 1, 0, back))?;
    joined(thread)??;
    send(&sock, Span::new(7, 0, 100_000))?;
    receive(&other, Span::new(7, 0, 100_000))
}

/// Connections end while they wait for accept(), and then their listener is closed.
fn dead_connections_in_the_backlog(env: &Env) -> Outcome {
    for round in 0..env.scaled(10) {
        let (listener, addr) = env.listener(20)?;
        let peer = env.peer()?;
        let mut socks = Vec::new();
        for _ in 0..6 {
            let sock = env.remote_socket(&peer)?;
            sock.connect(&addr)?;
            socks.push(sock);
        }
        eventually("POLLIN", || listener.poll(POLLIN, 0), |&e| e == POLLIN)?;
        for (i, sock) in socks.into_iter().enumerate() {
            if i % 2 == 0 {
                sock.reset()?;
            } else {
                sock.close()?;
            }
        }
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_millis(100));
        }
        listener.close()?;
        look_at_tables(env)?;
        let again = env.socket()?;
        again.set_int(SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        eventually(
            "the port",
            || Ok(again.bind(&env.here(addr.port())).is_ok()),
            |&free| free,
        )?;
        again.listen(1)?;
        let sock = env.remote_socket(&peer)?;
        sock.connect(&addr)?;
        again.accept()?;
    }
    look_at_tables(env)
}

/// Makes the kernel walk all SDP sockets.
fn look_at_tables(env: &Env) -> Outcome {
    if env.family == Family::Sdp {
        let text = std::fs::read_to_string("/proc/net/sdp")?;
        expect(text.starts_with("local"), "/proc/net/sdp has no head")?;
    }
    Ok(())
}

/// A listener with connections in its queue stops listening.
fn disconnected_listener_with_backlog(env: &Env) -> Outcome {
    for how in 0..2 {
        let (listener, addr) = env.listener(10)?;
        let peer = env.peer()?;
        let mut socks = Vec::new();
        for _ in 0..3 {
            let sock = env.remote_socket(&peer)?;
            sock.connect(&addr)?;
            socks.push(sock);
        }
        eventually("POLLIN", || listener.poll(POLLIN, 0), |&e| e == POLLIN)?;
        if how == 0 {
            listener.connect(&unspec(env))?;
        } else {
            listener.shutdown(SHUT_RD)?;
        }
        expect_errno(listener.accept(), EINVAL, "accept afterwards")?;
        for sock in &socks {
            eventually(
                "the end",
                || sock.poll(POLLIN, 0),
                |&e| e & libc::POLLHUP != 0,
            )?;
        }
        listener.listen(10)?;
        let addr = listener.getsockname()?;
        let sock = env.remote_socket(&peer)?;
        sock.connect(&addr)?;
        listener.accept()?;
    }
    Ok(())
}

/// Each connection wakes the accept() that waits for it.
fn no_lost_wake_up_of_accept(env: &Env) -> Outcome {
    let rounds = env.scaled(300);
    let (listener, addr) = env.listener(1)?;
    listener.set_timeout(SO_RCVTIMEO, 20_000)?;
    let thread = flow::spawn(move || {
        for _ in 0..rounds {
            let (sock, _) = listener.accept()?;
            sock.send(b"x", MSG_NOSIGNAL)?;
        }
        Ok::<(), std::io::Error>(())
    })?;
    for round in 0..rounds {
        let sock = env.socket()?;
        sock.connect(&addr)?;
        sock.set_timeout(SO_RCVTIMEO, 10_000)?;
        if let Err(e) = sock.recv(&mut [0], 0) {
            return failed(format!("connection {round} was not accepted: {e}"));
        }
    }
    Ok(joined(thread)??)
}

/// Threads make a socket a listener and undo this, beside another listener at the same port, which
/// must not be affected.
fn listen_and_disconnect_at_once(env: &Env) -> Outcome {
    let steady = env.socket()?;
    steady.set_int(SOL_SOCKET, SO_REUSEPORT, 1)?;
    steady.bind(&env.here(0))?;
    steady.listen(50)?;
    let addr = steady.getsockname()?;
    let other = Arc::new(env.socket()?);
    other.set_int(SOL_SOCKET, SO_REUSEPORT, 1)?;
    other.bind(&addr)?;
    let rounds = env.scaled(150);
    let mut threads = Vec::new();
    for listens in [true, true, false] {
        let (sock, unspec) = (other.clone(), unspec(env));
        threads.push(flow::spawn(move || {
            for i in 0..rounds {
                // Every result is right, because it depends on the other threads.
                let _ = match (listens, i % 2) {
                    (true, _) => sock.listen(5),
                    (false, 0) => sock.shutdown(SHUT_RD),
                    (false, _) => sock.connect(&unspec),
                };
            }
        })?);
    }
    for thread in threads {
        joined(thread)?;
    }
    let _ = other.connect(&unspec(env));
    drop(other);
    let peer = env.peer()?;
    let sock = env.remote_socket(&peer)?;
    sock.connect(&addr)?;
    expect_eq(steady.poll(POLLIN, 10_000)?, POLLIN, "the steady listener")?;
    steady.accept()?;
    drop(steady);
    let sock = env.remote_socket(&peer)?;
    expect_errno(sock.connect(&addr), ECONNREFUSED, "with no listener left")
}

/// Disconnects the socket, which allows another connect(), and connects it.
fn reconnect(sock: &Sock, to: &SockAddr, unspec: &SockAddr) -> std::io::Result<()> {
    sock.connect(unspec)?;
    sock.connect(to)
}

/// The end of the previous connection must not affect the next one.
fn connect_again_after_reset(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(5)?;
    let sock = env.socket()?;
    sock.connect(&addr)?;
    for round in 0..env.scaled(40) {
        let (theirs, _) = listener.accept()?;
        if round % 2 == 0 {
            sock.send(b"unread", MSG_NOSIGNAL)?;
        }
        theirs.reset()?;
        if round % 3 != 0 {
            eventually(
                "the reset",
                || sock.poll(POLLIN, 0),
                |&e| e & libc::POLLHUP != 0,
            )?;
        }
        if let Err(e) = reconnect(&sock, &addr, &unspec(env)) {
            return failed(format!("round {round}: {e}"));
        }
    }
    let (theirs, _) = listener.accept()?;
    send(&sock, Span::new(env.seed, 0, 50_000))?;
    receive(&theirs, Span::new(env.seed, 0, 50_000))
}

/// As [`connect_again_after_reset`], but this side ends the connection, with bytes in all queues.
fn connect_again_after_disconnect(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(5)?;
    let sock = env.socket()?;
    sock.connect(&addr)?;
    for round in 0..env.scaled(20) {
        let (theirs, _) = listener.accept()?;
        fill(&sock, env.seed)?;
        theirs.send(b"unread", MSG_NOSIGNAL)?;
        if let Err(e) = reconnect(&sock, &addr, &unspec(env)) {
            return failed(format!("round {round}: {e}"));
        }
        expect_eq(sock.poll(POLLIN | POLLOUT, 0)?, POLLOUT, "a new connection")?;
        expect_eq(sock.take_error()?, 0, "SO_ERROR of a new connection")?;
    }
    let (theirs, _) = listener.accept()?;
    send(&sock, Span::new(env.seed, 0, 50_000))?;
    receive(&theirs, Span::new(env.seed, 0, 50_000))
}

/// One thread calls connect(), and another thread undoes it.
fn connect_and_close_at_once(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(100)?;
    listener.set_nonblocking(true)?;
    for round in 0..env.scaled(60) {
        let sock = Arc::new(env.socket()?);
        let (other, unspec) = (sock.clone(), unspec(env));
        let thread = flow::spawn(move || {
            std::thread::sleep(Duration::from_micros(round * 250 % 12_000));
            let _ = match round % 3 {
                0 => other.shutdown(libc::SHUT_RDWR),
                1 => other.connect(&unspec),
                _ => Ok(()),
            };
        })?;
        if round % 3 == 2 {
            sock.set_nonblocking(true)?;
            expect_errno(sock.connect(&addr), EINPROGRESS, "connect")?;
            drop(sock);
        } else if let Err(e) = sock.connect(&addr) {
            let fine = [ECONNRESET, ECONNREFUSED, ECONNABORTED, libc::EPIPE, EISCONN];
            let code = e.raw_os_error().unwrap_or(0);
            expect(fine.contains(&code), format!("connect says {e}"))?;
        }
        joined(thread)?;
        while listener.accept().is_ok() {}
    }
    let sock = env.socket()?;
    sock.connect(&addr)?;
    Ok(())
}

/// accept() returns every connection whose connect() has succeeded, even if the client has gone
/// since: a server that counts its clients waits for each of them.
fn each_connection_is_accepted(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(100)?;
    listener.set_timeout(SO_RCVTIMEO, 30_000)?;
    for round in 0..env.scaled(30) {
        for i in 0..8 {
            let sock = env.socket()?;
            sock.connect(&addr)?;
            if (round + i) % 3 != 0 {
                sock.send(&[7], MSG_NOSIGNAL)?;
            }
            if (round + i) % 4 != 0 {
                sock.set_linger(Linger { on: true, secs: 0 })?;
            }
        }
        for _ in 0..8 {
            let (child, _) = listener.accept()?;
            let mut byte = [0; 1];
            match child.recv(&mut byte, 0) {
                Ok(0) => {}
                Ok(_) => expect_eq(byte[0], 7, "the byte")?,
                Err(e) => expect_errno::<()>(Err(e), ECONNRESET, "recv")?,
            }
        }
    }
    Ok(())
}

/// Two threads bind one socket, to addresses of both families.
fn bind_twice_at_once(env: &Env) -> Outcome {
    for _ in 0..env.scaled(100) {
        let sock = Arc::new(env.socket()?);
        let addrs = [
            env.here(0),
            SockAddr::from((std::net::Ipv6Addr::UNSPECIFIED.into(), 0)),
        ];
        let mut threads = Vec::new();
        for addr in addrs {
            let sock = sock.clone();
            threads.push(flow::spawn(move || sock.bind(&addr).is_ok())?);
        }
        let mut bound = 0;
        for thread in threads {
            bound += u32::from(joined(thread)?);
        }
        expect_eq(bound, 1, "successful bind() calls")?;
        sock.getsockname()?;
        sock.listen(1)?;
    }
    Ok(())
}

/// An address that is too short is refused, and changes nothing.
fn short_ipv6_address(env: &Env) -> Outcome {
    let sock = env.socket()?;
    let short = env.here(0).with_family(libc::AF_INET6).with_len(16);
    expect(sock.bind(&short).is_err(), "a short address was bound")?;
    expect(
        sock.connect(&short).is_err(),
        "connected to a short address",
    )?;
    sock.bind(&env.here(0))?;
    sock.listen(1)?;
    let other = env.socket()?;
    other.connect(&sock.getsockname()?)?;
    Ok(())
}

/// Memberships and IP options that the core may keep for a listener are freed with it, and its
/// connections do not have them.
fn multicast_membership(env: &Env) -> Outcome {
    for _ in 0..3 {
        let (listener, addr) = env.listener(5)?;
        let mut request = [0; 8];
        request[..4].copy_from_slice(&[224, 0, 0, 251]);
        request[4..].copy_from_slice(&[127, 0, 0, 1]);
        // Both calls may be refused: a TCP or SDP socket cannot join a group.
        let _ = listener.set_bytes(IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &request);
        let _ = listener.set_bytes(IPPROTO_IP, libc::IP_OPTIONS, &[1, 1, 1, 0]);
        let sock = env.socket()?;
        sock.connect(&addr)?;
        let (theirs, _) = listener.accept()?;
        drop(listener);
        send(&sock, Span::new(env.seed, 0, 10_000))?;
        receive(&theirs, Span::new(env.seed, 0, 10_000))?;
    }
    Ok(())
}

/// The listener is closed while connections to it are being set up.
fn close_during_set_up(env: &Env) -> Outcome {
    for round in 0..env.scaled(20) {
        let (listener, addr) = env.listener(50)?;
        let mut socks = Vec::new();
        for _ in 0..8 {
            let sock = env.socket()?;
            sock.set_nonblocking(true)?;
            expect_errno(sock.connect(&addr), EINPROGRESS, "connect")?;
            socks.push(sock);
        }
        std::thread::sleep(Duration::from_micros(round * 700));
        listener.close()?;
        for sock in socks {
            eventually("an end", || sock.poll(POLLIN, 0), |&e| e & POLLIN != 0)?;
            let code = sock.take_error()?;
            let fine = [0, ECONNRESET, ECONNREFUSED];
            let lost = code == libc::ETIMEDOUT && differences::over_iwarp(env.family);
            expect(lost || fine.contains(&code), format!("SO_ERROR is {code}"))?;
        }
        look_at_tables(env)?;
    }
    Ok(())
}

/// An accepted socket becomes a listener, with a queue length of its own.
fn former_listener_as_child(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(20)?;
    let mut clients = Vec::new();
    for _ in 0..10 {
        let sock = env.socket()?;
        sock.connect(&addr)?;
        clients.push(sock);
    }
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    let (mut last, _) = listener.accept()?;
    for _ in 1..10 {
        last = listener.accept()?.0;
    }
    last.connect(&unspec(env))?;
    last.bind(&env.here(0)).ok();
    last.listen(2)?;
    let addr = last.getsockname()?;
    let to = env.here(addr.port());
    for _ in 0..5 {
        let (one, two) = (env.socket()?, env.socket()?);
        one.connect(&to)?;
        two.connect(&to)?;
        last.accept()?;
        last.accept()?;
    }
    Ok(())
}

/// Threads change buffer sizes and corks, and peek, while two other threads move a stream.
fn options_while_data_flows(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    let (sock, other) = (Arc::new(sock), Arc::new(other));
    let span = Span::new(env.seed, 0, env.scaled(20 << 20));
    let done = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for (which, end) in [sock.clone(), other.clone()].into_iter().enumerate() {
        let done = done.clone();
        threads.push(flow::spawn(move || {
            let mut rng = Rng::new(which as u64);
            while !done.load(Ordering::Relaxed) {
                let _ = match rng.below(5) {
                    0 => end.set_int(SOL_SOCKET, libc::SO_SNDBUF, 4096 << rng.below(8)),
                    1 => end.set_int(SOL_SOCKET, libc::SO_RCVBUF, 4096 << rng.below(8)),
                    2 => end.set_int(IPPROTO_TCP, TCP_NODELAY, rng.below(2) as i32),
                    3 => end
                        .set_int(IPPROTO_TCP, libc::TCP_CORK, 1)
                        .and_then(|()| end.set_int(IPPROTO_TCP, libc::TCP_CORK, 0)),
                    _ => end
                        .recv(&mut [0; 5000], MSG_PEEK | libc::MSG_DONTWAIT)
                        .map(|_| ()),
                };
                std::thread::sleep(Duration::from_micros(300));
            }
        })?);
    }
    let sender = sock.clone();
    let thread = flow::spawn(move || {
        let sent = send(&sender, span);
        sent.and_then(|()| Ok(sender.shutdown(SHUT_WR)?))
    })?;
    let received = receive(&other, span);
    done.store(true, Ordering::Relaxed);
    for thread in threads {
        joined(thread)?;
    }
    received?;
    joined(thread)??;
    expect_eof(&other)
}

/// Single bytes are sent on many sockets by turns. Each socket's bytes stay its own, and in order.
fn bytes_on_many_sockets_by_turns(env: &Env) -> Outcome {
    let mut pairs = Vec::new();
    for _ in 0..10 {
        let pair = env.own_pair()?;
        pair.0.set_int(IPPROTO_TCP, libc::TCP_CORK, 1)?;
        pairs.push(pair);
    }
    let count = env.scaled(2000);
    for at in 0..count {
        for (i, (sock, _)) in pairs.iter().enumerate() {
            sock.send_all(&Span::new(i as u64, at, 1).to_vec())?;
        }
    }
    for (i, (sock, other)) in pairs.iter().enumerate() {
        sock.set_int(IPPROTO_TCP, libc::TCP_CORK, 0)?;
        sock.shutdown(SHUT_WR)?;
        receive(other, Span::new(i as u64, 0, count))?;
        expect_eof(other)?;
    }
    Ok(())
}
