// SPDX-License-Identifier: GPL-2.0
//! Listeners, their backlog and accept().

mod deferred;

use super::limit_ports;
use crate::support::flow::{self, Span};
use crate::support::harness::{
    differences, eventually, expect, expect_eq, expect_errno, expect_errno_of, expect_received,
    expect_waited, failed, joined, receive, send, spawn_waiting, tests, Child, Env, Family,
    Outcome, QUIET_MS,
};
use crate::support::peer::Work;
use crate::support::sys::{self, Sock};
use deferred::{
    deferral_changes, deferred, deferred_and_backlog_grows, deferred_and_ended,
    deferred_and_listener_ends, deferred_and_listening_again, deferred_beyond_the_backlog,
    deferred_by_many, deferred_for_a_time, deferred_is_shown,
};
use libc::{
    EADDRINUSE, EAGAIN, ECONNREFUSED, ECONNRESET, EINPROGRESS, EINVAL, IPPROTO_TCP, MSG_DONTWAIT,
    POLLIN, SOL_SOCKET, SO_COOKIE, SO_KEEPALIVE, SO_RCVBUF, SO_REUSEADDR, SO_SNDBUF,
};
use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

tests!("listen";
    accept_nonblocking,
    accept_waits,
    accept_timeout,
    poll_says_when,
    backlog_overflow_loses_nobody,
    listen_again,
    close_resets_pending,
    close_then_refused,
    shutdown_wakes_accept,
    connection_wakes_one,
    each_connection_wakes_another,
    options_are_inherited,
    options_of_ipv6_are_inherited,
    accepts_in_order,
    accepting_threads,
    accepting_processes,
    listener_of_a_child,
    accepted_outlives_listener,
    big_and_negative_backlog,
    listens_where_a_connection_is,
    each_has_a_cookie_of_its_own,
    name_stays_from_bind_to_listen,
    ports_of_tcp_are_not_chosen,
    port_after_shutdown,
    connects_after_shutdown,
    sender_becomes_a_listener,
    deferred,
    deferred_for_a_time,
    deferred_and_ended,
    deferred_and_listener_ends,
    deferred_by_many,
    deferred_beyond_the_backlog,
    deferred_and_backlog_grows,
    deferred_and_listening_again,
    deferral_changes,
    deferred_is_shown,
);

/// How a listener gets its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    /// By listen() alone.
    Unbound,
    /// By bind() to port 0.
    Zero,
    /// By bind() to a given port.
    Given,
}

impl Port {
    fn bind(self, env: &Env, sock: &Sock) -> io::Result<()> {
        match self {
            Port::Unbound => Ok(()),
            Port::Zero => sock.bind(&env.here(0)),
            Port::Given => {
                let other = env.socket()?;
                other.bind(&env.here(0))?;
                let addr = other.getsockname()?;
                other.close()?;
                sock.bind(&addr)
            }
        }
    }
}

/// The port of bind() is the port of the listener.
fn name_stays_from_bind_to_listen(env: &Env) -> Outcome {
    for port in [Port::Zero, Port::Given] {
        let sock = env.socket()?;
        port.bind(env, &sock)?;
        let name = sock.getsockname()?;
        sock.listen(1)?;
        expect_eq(sock.getsockname()?.to_std(), name.to_std(), "listening")?;
        let client = env.socket()?;
        client.connect(&name)?;
        sock.accept()?;
    }
    Ok(())
}

/// SDP over iWARP uses the ports of TCP. The kernel chooses only ports that TCP does not have, so
/// a listen() or connect() does not fail later; and TCP does not get the port meanwhile.
fn ports_of_tcp_are_not_chosen(env: &Env) -> Outcome {
    const PORTS: u16 = 8;
    let shares_ports = env.family == Family::Tcp || differences::over_iwarp(env.family);
    let (listener, there) = env.listener(1)?;
    for way in [Some(Port::Zero), Some(Port::Unbound), None] {
        let other = env.socket()?;
        other.bind(&env.here(0))?;
        let free = other.getsockname()?.port();
        other.close()?;
        let range = free - (PORTS - 1)..free;
        let tcp = |port| -> io::Result<Sock> {
            let sock = Family::Tcp.socket(env.local)?;
            sock.bind(&env.here(port))?;
            Ok(sock)
        };
        // Somebody else may have some of these ports.
        let taken: Vec<(u16, Sock)> = range
            .clone()
            .filter_map(|port| Some((port, tcp(port).ok()?)))
            .collect();
        let sock = env.socket()?;
        limit_ports(&sock, range.start..=free)?;
        if let Some(port) = way {
            port.bind(env, &sock)?;
        } else {
            sock.connect(&there)?;
            listener.accept()?;
        }
        if shares_ports && way != Some(Port::Unbound) {
            let chosen = sock.getsockname()?.port();
            let is_taken = taken.iter().any(|(port, _)| *port == chosen);
            expect(!is_taken, format!("TCP has port {chosen}"))?;
            expect_errno(tcp(chosen), EADDRINUSE, "a TCP socket at the port")?;
        }
        if way.is_some() {
            sock.listen(1)?;
            let client = env.socket()?;
            client.connect(&sock.getsockname()?)?;
            sock.accept()?;
        }
    }
    Ok(())
}

/// The sockets of SDP and TCP that have the port, here or at the peer.
fn owners_of(port: u16) -> io::Result<String> {
    let mut owners = String::new();
    for (name, number) in [
        ("sdp", format!(":{port} ")),
        ("tcp", format!(":{port:04X} ")),
    ] {
        let text = std::fs::read_to_string(format!("/proc/net/{name}"))?;
        for line in text.lines().filter(|line| line.contains(&number)) {
            owners += &format!("{name}: {line}; ");
        }
    }
    Ok(owners)
}

/// After a listener is shut down for reading, its port is free if the kernel has chosen it. A port
/// that the program has chosen stays with the socket.
fn port_after_shutdown(env: &Env) -> Outcome {
    for how in [libc::SHUT_RD, libc::SHUT_WR, libc::SHUT_RDWR] {
        for port in [Port::Unbound, Port::Zero, Port::Given] {
            let ends = how != libc::SHUT_WR;
            let stays = !ends || port == Port::Given;
            let what = format!("{port:?}, shut down {how}");
            let sock = env.socket()?;
            port.bind(env, &sock)?;
            sock.listen(1)?;
            let name = sock.getsockname()?;
            let number = name.port();
            sock.shutdown(how)?;
            expect_eq(sock.getsockname()?.to_std(), name.to_std(), &what)?;
            let other = env.socket()?;
            let bound = other.bind(&env.here(number));
            if stays {
                expect_errno(bound, EADDRINUSE, format!("{what}: another's bind"))?;
            } else if let Err(e) = bound {
                let owners = owners_of(number)?;
                return failed(format!("{what}: another's bind: {e}: {owners}"));
            } else {
                // The new owner can serve there at once.
                other.listen(1)?;
                let client = env.socket()?;
                client.connect(&other.getsockname()?)?;
                other.accept()?;
            }
            if ends {
                let client = env.socket()?;
                let served = other.getsockname()?.port() == number;
                if !served {
                    let refused = client.connect(&env.here(number));
                    expect_errno(refused, ECONNREFUSED, format!("{what}: connect"))?;
                }
            }
            let again = sock.bind(&env.here(0));
            if stays {
                expect_errno(again, EINVAL, format!("{what}: bind"))?;
            } else if let Err(e) = again {
                return failed(format!("{what}: bind: {e}"));
            }
            sock.listen(1)?;
            let name = sock.getsockname()?;
            if stays {
                expect_eq(name.port(), number, format!("{what}: listen again"))?;
            } else {
                expect(
                    name.port() != number,
                    format!("{what}: another socket has it"),
                )?;
            }
            let client = env.socket()?;
            client.connect(&env.here(name.port()))?;
            sock.accept()?;
        }
    }
    Ok(())
}

/// A socket that has sent many short pieces may own a page for them. A listener must not own one,
/// because the kernel clones a listener, including its pointer to the page. A debug kernel checks
/// this.
fn sender_becomes_a_listener(env: &Env) -> Outcome {
    let unspec = env.here(0).with_family(libc::AF_UNSPEC);
    let (one, _theirs) = env.pair()?;
    let (other, _its) = env.pair()?;
    one.set_int(SOL_SOCKET, SO_SNDBUF, 65_536)?;
    // Alternate between two sockets. Otherwise all pieces would be adjacent in the page of the task
    // and form one fragment, and the socket would not use a page of its own.
    let mut full = false;
    for _ in 0..100_000 {
        for sock in [&one, &other] {
            full |= sock.send(&[1; 500], MSG_DONTWAIT).is_err();
        }
        if full {
            break;
        }
    }
    one.connect(&unspec)?;
    one.take_error()?;
    one.bind(&env.here(0))?;
    one.listen(1)?;
    let client = env.socket()?;
    client.connect(&one.getsockname()?)?;
    one.accept()?;
    Ok(())
}

/// A listener that was shut down can connect like any other socket, even after it has listened
/// several times.
fn connects_after_shutdown(env: &Env) -> Outcome {
    for port in [Port::Unbound, Port::Zero, Port::Given] {
        let (remote, there) = env.remote_listener(1)?;
        let sock = env.socket()?;
        port.bind(env, &sock)?;
        for _ in 0..3 {
            sock.listen(1)?;
            sock.shutdown(libc::SHUT_RDWR)?;
        }
        sock.connect(&there)?;
        let (theirs, from) = remote.accept()?;
        expect_eq(from.port(), sock.getsockname()?.port(), "the port")?;
        let span = Span::new(env.seed, 0, 100);
        theirs.send_span(span, 100)?;
        receive(&sock, span)?;
    }
    Ok(())
}

fn accept_nonblocking(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(2)?;
    listener.set_nonblocking(true)?;
    expect_errno(listener.accept(), EAGAIN, "accept of nothing")?;
    let remote = env.remote_socket(&env.peer()?)?;
    remote.connect(&addr)?;
    eventually("POLLIN", || listener.poll(POLLIN, 0), |&e| e == POLLIN)?;
    let (sock, _) = listener.accept()?;
    expect(!sock.is_nonblocking()?, "the flag is not inherited")?;
    expect_errno(listener.accept(), EAGAIN, "the second accept")
}

fn accept_waits(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(2)?;
    let waiting = flow::spawn(move || listener.accept())?;
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    expect(!waiting.is_finished(), "accept returned before a connect")?;
    let remote = env.remote_socket(&env.peer()?)?;
    remote.connect(&addr)?;
    let (_, from) = joined(waiting)??;
    expect_eq(from.to_std(), remote.getsockname()?.to_std(), "accepted")
}

fn accept_timeout(env: &Env) -> Outcome {
    let (listener, _) = env.listener(2)?;
    listener.set_timeout(libc::SO_RCVTIMEO, 150)?;
    let start = Instant::now();
    expect_errno(listener.accept(), EAGAIN, "accept with SO_RCVTIMEO")?;
    expect_waited(start)
}

fn poll_says_when(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(5)?;
    let all = POLLIN | libc::POLLOUT | libc::POLLRDHUP;
    expect_eq(listener.poll(all, 0)?, 0, "an idle listener")?;
    let peer = env.peer()?;
    let (one, two) = (env.remote_socket(&peer)?, env.remote_socket(&peer)?);
    one.connect(&addr)?;
    two.connect(&addr)?;
    expect_eq(listener.poll(all, -1)?, POLLIN, "with connections")?;
    listener.accept()?;
    eventually("with one left", || listener.poll(all, 0), |&e| e == POLLIN)?;
    listener.accept()?;
    expect_eq(listener.poll(all, 0)?, 0, "with none left")
}

/// More clients connect than the backlog holds. They wait, none of them is refused, and each is
/// served in the end. The clients also send, because TCP forgets a silent client for which it has
/// no room.
fn backlog_overflow_loses_nobody(env: &Env) -> Outcome {
    const CLIENTS: u64 = 6;
    let (listener, addr) = env.remote_listener(1)?;
    let mut threads = Vec::new();
    for i in 0..CLIENTS {
        let env = env.clone();
        threads.push(flow::spawn(move || loop {
            let sock = env.socket()?;
            sock.connect(&addr)?;
            let span = Span::new(env.seed + i, 0, 500);
            // The bytes are sent in one piece, because SYN cookies can lose the first of several
            // pieces.
            sock.send_all(&span.to_vec())?;
            let outcome = receive(&sock, span);
            let reset = sock.recv(&mut [0], MSG_DONTWAIT).is_ok_and(|n| n == 0);
            match outcome {
                Err(_) if reset && differences::full_backlog_may_reset(env.family) => {}
                outcome => return outcome,
            }
        })?);
    }
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    // The server accepts more than `CLIENTS` connections, because one that was reset may have been
    // accepted.
    listener.start(Work::EchoServer { count: u64::MAX })?;
    for thread in threads {
        joined(thread)??;
    }
    Ok(())
}

fn listen_again(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(1)?;
    listener.listen(10)?;
    listener.listen(0)?;
    listener.listen(5)?;
    let mut socks = Vec::new();
    for _ in 0..5 {
        let sock = env.socket()?;
        sock.connect(&addr)?;
        socks.push(sock);
    }
    for _ in 0..5 {
        listener.accept()?;
    }
    Ok(())
}

/// When a listener closes, the connections in its backlog are reset.
fn close_resets_pending(env: &Env) -> Outcome {
    let (listener, addr) = env.remote_listener(5)?;
    let mut socks = Vec::new();
    for _ in 0..3 {
        let sock = env.socket()?;
        sock.connect(&addr)?;
        socks.push(sock);
    }
    // At least one connection has arrived at the listener now.
    eventually("POLLIN", || listener.poll(POLLIN, 0), |&e| e == POLLIN)?;
    listener.close()?;
    for sock in &socks {
        expect_errno(sock.recv(&mut [0], 0), ECONNRESET, "recv")?;
    }
    Ok(())
}

fn close_then_refused(env: &Env) -> Outcome {
    let (listener, addr) = env.remote_listener(5)?;
    let sock = env.socket()?;
    sock.connect(&addr)?;
    let (remote, _) = listener.accept()?;
    listener.close()?;
    expect_errno(env.socket()?.connect(&addr), ECONNREFUSED, "connect")?;
    sock.send_all(b"x")?;
    expect_eq(remote.recv(1, 0)?, b"x".to_vec(), "the accepted one")
}

fn shutdown_wakes_accept(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(2)?;
    let listener = Arc::new(listener);
    let other = Arc::clone(&listener);
    let waiting = flow::spawn(move || other.accept().map(drop))?;
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    expect(!waiting.is_finished(), "accept returned before shutdown")?;
    listener.shutdown(libc::SHUT_RD)?;
    expect_errno(joined(waiting)?, EINVAL, "accept")?;
    expect_errno(env.socket()?.connect(&addr), ECONNREFUSED, "connect")?;
    // The socket can listen again, at a port that the kernel chooses.
    listener.listen(1)?;
    env.socket()?.connect(&listener.getsockname()?)?;
    listener.accept()?;
    Ok(())
}

/// The number of times that a thread of this process has gone to sleep; `None` if it has ended.
fn sleeps_of(thread: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
    let line = text
        .lines()
        .find(|l| l.starts_with("voluntary_ctxt_switches:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// A connection wakes one of the threads that wait in accept(). The end of the listener wakes all
/// of them.
fn connection_wakes_one(env: &Env) -> Outcome {
    const WAITING: usize = 6;
    let (listener, addr) = env.listener(1)?;
    let listener = Arc::new(listener);
    let (tell, told) = std::sync::mpsc::channel();
    let mut threads = Vec::new();
    for _ in 0..WAITING {
        let (listener, tell) = (Arc::clone(&listener), tell.clone());
        threads.push(flow::spawn(move || {
            // The receiver is not dropped before.
            let _ = tell.send(sys::thread_id());
            listener.accept().map(drop)
        })?);
    }
    let ids: Vec<i32> = told.iter().take(WAITING).collect();
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    let asleep = || io::Result::Ok(ids.iter().all(|&id| sys::is_asleep(id)));
    eventually("all wait", asleep, |&all| all)?;
    let before: Vec<_> = ids.iter().map(|&id| sleeps_of(id)).collect();
    let remote = env.remote_socket(&env.peer()?)?;
    remote.connect(&addr)?;
    let ended = || io::Result::Ok(threads.iter().filter(|t| t.is_finished()).count());
    eventually("one has it", ended, |&n| n == 1)?;
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    let now = ids.iter().map(|&id| sleeps_of(id));
    let woken = now.zip(before).filter(|(now, before)| now != before);
    expect_eq(woken.count(), 1, "threads that a connection has woken")?;
    listener.shutdown(libc::SHUT_RD)?;
    let mut accepted = 0;
    for thread in threads {
        match joined(thread)? {
            Ok(()) => accepted += 1,
            result => expect_errno(result, EINVAL, "accept")?,
        }
    }
    expect_eq(accepted, 1, "threads with a connection")
}

/// Connections that come together wake one thread each, although other calls have the lock of the
/// listener: a thread that was woken, and waits for the lock, does not take the next wake-up.
fn each_connection_wakes_another(env: &Env) -> Outcome {
    const TOGETHER: usize = 12;
    const BUSY: usize = 8;
    for _ in 0..env.scaled(20) {
        let (listener, addr) = env.listener(TOGETHER as i32)?;
        let listener = Arc::new(listener);
        let mut accepting = Vec::new();
        for _ in 0..TOGETHER {
            let listener = Arc::clone(&listener);
            accepting.push(spawn_waiting(move || listener.accept().map(drop))?);
        }
        let over = Arc::new(AtomicBool::new(false));
        let mut busy = Vec::new();
        for _ in 0..BUSY {
            let (listener, over) = (Arc::clone(&listener), Arc::clone(&over));
            busy.push(flow::spawn(move || -> io::Result<()> {
                while !over.load(Relaxed) {
                    listener.set_int(SOL_SOCKET, SO_KEEPALIVE, 1)?;
                }
                Ok(())
            })?);
        }
        let mut clients = Vec::new();
        for _ in 0..TOGETHER {
            let client = env.socket()?;
            client.set_nonblocking(true)?;
            expect_errno(client.connect(&addr), EINPROGRESS, "connect")?;
            clients.push(client);
        }
        let ended = || io::Result::Ok(accepting.iter().filter(|t| t.is_finished()).count());
        let all_ended = eventually("each thread has one", ended, |&n| n == TOGETHER);
        over.store(true, Relaxed);
        for thread in busy {
            joined(thread)??;
        }
        // Ends the threads that still wait.
        listener.shutdown(libc::SHUT_RD)?;
        all_ended?;
        for thread in accepting {
            joined(thread)??;
        }
    }
    Ok(())
}

fn options_are_inherited(env: &Env) -> Outcome {
    let listener = env.socket()?;
    listener.set_int(SOL_SOCKET, SO_KEEPALIVE, 1)?;
    listener.set_int(SOL_SOCKET, SO_SNDBUF, 30_000)?;
    listener.set_int(SOL_SOCKET, SO_RCVBUF, 40_000)?;
    listener.set_int(IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    listener.bind(&env.here(0))?;
    listener.listen(1)?;
    let remote = env.remote_socket(&env.peer()?)?;
    remote.connect(&listener.getsockname()?)?;
    let (sock, _) = listener.accept()?;
    expect_eq(sock.get_int(SOL_SOCKET, SO_KEEPALIVE)?, 1, "SO_KEEPALIVE")?;
    expect_eq(sock.get_int(SOL_SOCKET, SO_SNDBUF)?, 60_000, "SO_SNDBUF")?;
    expect_eq(sock.get_int(SOL_SOCKET, SO_RCVBUF)?, 80_000, "SO_RCVBUF")?;
    let nodelay = sock.get_int(IPPROTO_TCP, libc::TCP_NODELAY)?;
    expect_eq(nodelay, 1, "TCP_NODELAY")?;
    let accepting = |s: &Sock| s.get_int(SOL_SOCKET, libc::SO_ACCEPTCONN);
    expect_eq(accepting(&listener)?, 1, "SO_ACCEPTCONN of the listener")?;
    expect_eq(accepting(&sock)?, 0, "SO_ACCEPTCONN of the accepted")
}

fn options_of_ipv6_are_inherited(env: &Env) -> Outcome {
    let env = env.over_ipv6()?;
    let options = [
        (libc::IPV6_TCLASS, 0x28, "IPV6_TCLASS"),
        (
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DO,
            "IPV6_MTU_DISCOVER",
        ),
        (libc::IPV6_RECVTCLASS, 1, "IPV6_RECVTCLASS"),
    ];
    let listener = env.socket()?;
    for (option, value, _) in options {
        listener.set_int(libc::IPPROTO_IPV6, option, value)?;
    }
    listener.bind(&env.here(0))?;
    listener.listen(1)?;
    let sock = env.socket()?;
    sock.connect(&listener.getsockname()?)?;
    let (accepted, _) = listener.accept()?;
    for (option, value, name) in options {
        expect_eq(accepted.get_int(libc::IPPROTO_IPV6, option)?, value, name)?;
    }
    Ok(())
}

/// accept() returns connections in the order in which one client has opened them, although each of
/// them may be completed on another processor.
fn accepts_in_order(env: &Env) -> Outcome {
    const CONNECTIONS: usize = 30;
    for _ in 0..5 {
        let (listener, addr) = env.listener(CONNECTIONS as i32)?;
        let clients = (0..CONNECTIONS)
            .map(|_| {
                let client = env.socket()?;
                client.connect(&addr)?;
                Ok(client)
            })
            .collect::<io::Result<Vec<_>>>()?;
        // The last connections may be completed after their connect() has returned.
        std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
        for client in &clients {
            let (_, from) = listener.accept()?;
            expect_eq(from.to_std(), client.getsockname()?.to_std(), "the order")?;
        }
    }
    Ok(())
}

/// Four threads accept from one listener, and each connection reaches one of them.
fn accepting_threads(env: &Env) -> Outcome {
    const EACH: usize = 5;
    let (listener, addr) = env.listener(20)?;
    let listener = Arc::new(listener);
    let mut threads = Vec::new();
    for _ in 0..4 {
        let listener = Arc::clone(&listener);
        threads.push(flow::spawn(move || -> io::Result<Vec<_>> {
            (0..EACH)
                .map(|_| Ok(listener.accept()?.1.to_std()))
                .collect()
        })?);
    }
    let peer = env.peer()?;
    let mut wanted = HashSet::new();
    let mut remotes = Vec::new();
    for _ in 0..4 * EACH {
        let remote = env.remote_socket(&peer)?;
        remote.connect(&addr)?;
        wanted.insert(remote.getsockname()?.to_std());
        remotes.push(remote);
    }
    let mut got = HashSet::new();
    for thread in threads {
        got.extend(joined(thread)??);
    }
    expect_eq(got, wanted, "accepted")
}

/// A server forks, and each child accepts and serves one connection.
fn accepting_processes(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(10)?;
    let mut children = Vec::new();
    for i in 0..3 {
        children.push(Child::start(|| {
            let (sock, _) = listener.accept()?;
            send(&sock, Span::new(env.seed + i, 0, 10_000))
        })?);
    }
    drop(listener);
    let peer = env.peer()?;
    let mut seeds = HashSet::new();
    for _ in 0..3 {
        let remote = env.remote_socket(&peer)?;
        remote.connect(&addr)?;
        let head = remote.recv(8, libc::MSG_WAITALL)?;
        let seed = (0..3).find(|i| Span::new(env.seed + i, 0, 8).to_vec() == head);
        let Some(seed) = seed else {
            return failed(format!("unknown data: {head:?}"));
        };
        expect(seeds.insert(seed), "two of one child")?;
        let span = Span::new(env.seed + seed, 8, 9992);
        let got = remote.recv_span(span, 3000)?;
        expect_received(got, span, "the rest")?;
    }
    children.into_iter().try_for_each(Child::join)
}

/// A listener lives as long as a process has it open.
fn listener_of_a_child(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(10)?;
    let child = Child::start(|| {
        let (sock, _) = listener.accept()?;
        let mut buf = [0; 1];
        sock.recv_exact(&mut buf)?;
        Ok(())
    })?;
    drop(listener);
    let remote = env.remote_socket(&env.peer()?)?;
    remote.connect(&addr)?;
    remote.send(Span::new(1, 0, 1), 0)?;
    child.join()?;
    let late = env.remote_socket(remote.session())?;
    expect_errno_of(late.connect(&addr), &[ECONNREFUSED], "after the child")
}

fn accepted_outlives_listener(env: &Env) -> Outcome {
    let (sock, remote) = env.accepted_pair()?;
    let span = Span::new(env.seed, 0, 100_000);
    let job = remote.start(Work::Source { span, max: 9000 })?;
    receive(&sock, span)?;
    job.join()?;
    Ok(())
}

fn big_and_negative_backlog(env: &Env) -> Outcome {
    for backlog in [i32::MAX, -1, 4096, i32::MIN] {
        let (listener, addr) = env.listener(backlog)?;
        let sock = env.socket()?;
        sock.connect(&addr)?;
        listener.accept()?;
    }
    Ok(())
}

/// With SO_REUSEADDR, a socket can listen at the local port of a connection that this machine has
/// made.
fn listens_where_a_connection_is(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(1)?;
    let sock = env.socket()?;
    sock.set_int(SOL_SOCKET, SO_REUSEADDR, 1)?;
    sock.connect(&addr)?;
    let (_other, _) = listener.accept()?;
    let second = env.socket()?;
    second.set_int(SOL_SOCKET, SO_REUSEADDR, 1)?;
    let port = sock.getsockname()?.port();
    second.bind(&env.here(port))?;
    second.listen(1)?;
    Ok(())
}

/// Each socket has a cookie of its own, even if the listener's cookie was read before.
fn each_has_a_cookie_of_its_own(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(2)?;
    let cookie = |sock: &Sock| {
        let mut value = [0; 8];
        sock.get_bytes(SOL_SOCKET, SO_COOKIE, &mut value)?;
        io::Result::Ok(u64::from_ne_bytes(value))
    };
    let mut cookies = HashSet::from([cookie(&listener)?]);
    for _ in 0..2 {
        let sock = env.socket()?;
        sock.connect(&addr)?;
        let (other, _) = listener.accept()?;
        for end in [&sock, &other] {
            expect(cookies.insert(cookie(end)?), "two sockets have one cookie")?;
        }
    }
    Ok(())
}
