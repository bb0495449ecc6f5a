// SPDX-License-Identifier: GPL-2.0
//! Listeners, their backlog and accept().

use crate::support::flow::{self, Span};
use crate::support::harness::{
    differences, eventually, expect, expect_eq, expect_errno, expect_errno_of, expect_received,
    expect_waited, failed, joined, receive, send, spawn_waiting, tests, Child, Env, Fail, Family,
    Outcome, QUIET_MS,
};
use crate::support::peer::{Peer, Remote, Work};
use crate::support::sys::{self, Epoll, Sock, SockAddr};
use libc::{
    EADDRINUSE, EAGAIN, ECONNREFUSED, ECONNRESET, EINVAL, IPPROTO_TCP, MSG_DONTWAIT, POLLIN,
    SOL_SOCKET, SO_COOKIE, SO_KEEPALIVE, SO_RCVBUF, SO_REUSEADDR, SO_SNDBUF, TCP_DEFER_ACCEPT,
};
use std::collections::HashSet;
use std::io;
use std::os::fd::AsRawFd;
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
    options_are_inherited,
    accepting_threads,
    accepting_processes,
    listener_of_a_child,
    accepted_outlives_listener,
    big_and_negative_backlog,
    listens_where_a_connection_is,
    each_has_a_cookie_of_its_own,
    name_stays_from_bind_to_listen,
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
    /// By bind() to that port.
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

/// What bind() gives is the port of the listener.
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

/// A port of the kernel's choice is free when its listener was shut down for reading; a port of the
/// program's choice stays the socket's.
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
                return failed(format!("{what}: another's bind: {e}"));
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

/// A socket that has sent many short pieces has a page of its own for them; as a listener, of which
/// the kernel makes copies, it must not. The debug kernel looks.
fn sender_becomes_a_listener(env: &Env) -> Outcome {
    let unspec = env.here(0).with_family(libc::AF_UNSPEC);
    let (one, _theirs) = env.pair()?;
    let (other, _its) = env.pair()?;
    // By turns: what one thread sends to one socket lies side by side.
    let mut full = false;
    for _ in 0..100_000 {
        for sock in [&one, &other] {
            full |= sock.send(&[1; 5], MSG_DONTWAIT).is_err();
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

/// A listener that was shut down is a socket as every other, many times over.
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

/// More connects than the backlog holds: they wait, none is refused, each
/// works in the end. (They send, too: TCP forgets a client that it has no
/// room for and that keeps silent.)
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
            // In one piece: SYN cookies can lose the first of several.
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
    // More than the clients: one that was reset may have been accepted first.
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

/// Who waits in the backlog of a listener that closes is told.
fn close_resets_pending(env: &Env) -> Outcome {
    let (listener, addr) = env.remote_listener(5)?;
    let mut socks = Vec::new();
    for _ in 0..3 {
        let sock = env.socket()?;
        sock.connect(&addr)?;
        socks.push(sock);
    }
    // All have arrived when the last can be accepted.
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
    // It can be made to listen again (at a port of the kernel's choice).
    listener.listen(1)?;
    env.socket()?.connect(&listener.getsockname()?)?;
    listener.accept()?;
    Ok(())
}

/// How often a thread of this process has gone to sleep; `None` if it has ended.
fn sleeps_of(thread: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
    let line = text
        .lines()
        .find(|l| l.starts_with("voluntary_ctxt_switches:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// A connection wakes one of the threads that wait for it. The end of the listener wakes all.
fn connection_wakes_one(env: &Env) -> Outcome {
    const WAITING: usize = 6;
    let (listener, addr) = env.listener(1)?;
    let listener = Arc::new(listener);
    let (tell, told) = std::sync::mpsc::channel();
    let mut threads = Vec::new();
    for _ in 0..WAITING {
        let (listener, tell) = (Arc::clone(&listener), tell.clone());
        threads.push(flow::spawn(move || {
            // The receiver lives.
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

/// Four threads accept from one listener: each connection reaches one.
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

/// A server that forks: each child accepts and answers its own.
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

/// The listener lives as long as one process has it.
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

/// With SO_REUSEADDR a port of a connection that started here can be listened at.
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

/// Also where somebody has asked for the listener's before.
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

/// Longer than any test waits.
const LONG_S: i32 = 60;

/// A listener that defers connections for so many seconds.
fn deferring_listener(env: &Env, backlog: i32, seconds: i32) -> io::Result<(Sock, SockAddr)> {
    let listener = env.socket()?;
    listener.set_int(IPPROTO_TCP, TCP_DEFER_ACCEPT, seconds)?;
    listener.bind(&env.here(0))?;
    listener.listen(backlog)?;
    listener.set_nonblocking(true)?;
    let addr = listener.getsockname()?;
    Ok((listener, addr))
}

fn connected(env: &Env, peer: &Peer, addr: &SockAddr) -> io::Result<Remote> {
    let remote = env.remote_socket(peer)?;
    remote.connect(addr)?;
    Ok(remote)
}

/// Nothing is there for accept(), and nothing comes for a while.
fn expect_none(listener: &Sock, what: &str) -> Outcome {
    expect_eq(
        listener.poll(POLLIN, QUIET_MS)?,
        0,
        format!("{what}: poll()"),
    )?;
    expect_errno(listener.accept(), EAGAIN, format!("{what}: accept()"))
}

/// The next connection, which is that of `remote`.
fn accept_from(listener: &Sock, remote: &Remote, what: &str) -> Result<Sock, Fail> {
    expect_eq(
        listener.poll(POLLIN, -1)?,
        POLLIN,
        format!("{what}: poll()"),
    )?;
    let (sock, from) = listener.accept()?;
    expect_eq(
        from.to_std(),
        remote.getsockname()?.to_std(),
        format!("{what}: accepted"),
    )?;
    Ok(sock)
}

/// With TCP_DEFER_ACCEPT, a connection is there for accept() when its first bytes are.
fn deferred(env: &Env) -> Outcome {
    let (listener, addr) = deferring_listener(env, 5, LONG_S)?;
    let peer = env.peer()?;
    let silent = connected(env, &peer, &addr)?;
    let talker = connected(env, &peer, &addr)?;
    expect_none(&listener, "two silent ones")?;
    // A thread that waits is woken, too, and who polls only for a change.
    let epoll = Epoll::new()?;
    let edges = libc::EPOLLIN | libc::EPOLLET;
    epoll.add(listener.as_raw_fd(), edges, 0)?;
    let waiter = listener.dup()?;
    waiter.set_nonblocking(false)?;
    let waiting = spawn_waiting(move || waiter.accept())?;
    expect(!waiting.is_finished(), "accept() returned before a byte")?;
    let span = Span::new(env.seed, 0, 100);
    talker.send(span, 0)?;
    let (sock, from) = joined(waiting)??;
    expect_eq(
        from.to_std(),
        talker.getsockname()?.to_std(),
        "who was accepted",
    )?;
    // The bytes are there.
    let mut bytes = [0; 200];
    let len = sock.recv(&mut bytes, MSG_DONTWAIT)?;
    expect_eq(&bytes[..len], &span.to_vec()[..], "the first bytes")?;
    expect_eq(
        sock.get_int(IPPROTO_TCP, TCP_DEFER_ACCEPT)?,
        0,
        "the option of the accepted one",
    )?;
    listener.set_nonblocking(true)?;
    expect_none(&listener, "one silent one")?;
    epoll.wait(0)?;
    // Many bytes, and both directions.
    let span = Span::new(env.seed, 0, 1 << 20);
    let job = silent.start(Work::Source { span, max: 1 << 20 })?;
    expect(!epoll.wait(-1)?.is_empty(), "epoll_wait()")?;
    let sock = accept_from(&listener, &silent, "the other one")?;
    let first = sock.recv(&mut [0; 1], MSG_DONTWAIT | libc::MSG_PEEK)?;
    expect_eq(first, 1, "a byte at once")?;
    receive(&sock, span)?;
    job.join()?;
    let back = Span::new(env.seed + 1, 0, 5000);
    send(&sock, back)?;
    expect_received(silent.recv_span(back, 5000)?, back, "the answer")
}

/// When its time is over, a connection is there for accept() without a byte.
fn deferred_for_a_time(env: &Env) -> Outcome {
    let (listener, addr) = deferring_listener(env, 5, 1)?;
    let peer = env.peer()?;
    let begin = Instant::now();
    let remote = connected(env, &peer, &addr)?;
    // When the second part of its time would end.
    let second_part = Duration::from_millis(2900);
    let its_time = Duration::from_millis(900)..second_part;
    let sock = accept_from(&listener, &remote, "the silent one")?;
    let waited = begin.elapsed();
    expect(its_time.contains(&waited), format!("{waited:?}"))?;
    let none = sock.recv(&mut [0; 1], MSG_DONTWAIT);
    expect_errno(none, EAGAIN, "a byte of a silent one")?;
    // Its time counts from its own begin.
    let begin = Instant::now();
    let second = connected(env, &peer, &addr)?;
    let other = accept_from(&listener, &second, "the second")?;
    let waited = begin.elapsed();
    expect(its_time.contains(&waited), format!("{waited:?}"))?;
    for (sock, remote, seed) in [(&sock, &remote, 1), (&other, &second, 2)] {
        let span = Span::new(env.seed + seed, 0, 20_000);
        let job = remote.start(Work::Source { span, max: 9000 })?;
        receive(sock, span)?;
        job.join()?;
    }
    Ok(())
}

/// The end of a peer's stream is as good as a byte; who is reset before never comes to accept(), and
/// who is reset after does.
fn deferred_and_ended(env: &Env) -> Outcome {
    let (listener, addr) = deferring_listener(env, 5, LONG_S)?;
    let peer = env.peer()?;
    let shut = connected(env, &peer, &addr)?;
    expect_none(&listener, "before shutdown()")?;
    shut.shutdown(libc::SHUT_WR)?;
    let sock = accept_from(&listener, &shut, "shut down")?;
    expect_eq(sock.recv(&mut [0; 1], MSG_DONTWAIT)?, 0, "its end")?;
    let span = Span::new(env.seed, 0, 3000);
    send(&sock, span)?;
    expect_received(shut.recv_span(span, 3000)?, span, "the other half")?;

    let closed = connected(env, &peer, &addr)?;
    let name = closed.getsockname()?.to_std();
    closed.close()?;
    expect_eq(listener.poll(POLLIN, -1)?, POLLIN, "closed")?;
    let (sock, from) = listener.accept()?;
    expect_eq(from.to_std(), name, "who was closed")?;
    expect_eq(sock.recv(&mut [0; 1], 0)?, 0, "the end of a closed one")?;

    connected(env, &peer, &addr)?.reset()?;
    expect_none(&listener, "reset")?;
    // Another one that is reset, between two that send.
    let (one, two) = (connected(env, &peer, &addr)?, connected(env, &peer, &addr)?);
    let between = connected(env, &peer, &addr)?;
    one.send(span, 0)?;
    accept_from(&listener, &one, "the one before")?;
    between.reset()?;
    two.send(span, 0)?;
    accept_from(&listener, &two, "the one behind")?;
    expect_none(&listener, "reset between two")?;

    let sent = connected(env, &peer, &addr)?;
    let name = sent.getsockname()?.to_std();
    sent.send(span, 0)?;
    eventually("its bytes", || listener.poll(POLLIN, 0), |&e| e == POLLIN)?;
    sent.reset()?;
    let (_sock, from) = listener.accept()?;
    expect_eq(from.to_std(), name, "who was reset after its bytes")
}

/// The end of a listener is that of the connections that it defers, and its port is free.
fn deferred_and_listener_ends(env: &Env) -> Outcome {
    for shuts in [false, true] {
        let (listener, addr) = deferring_listener(env, 5, LONG_S)?;
        let peer = env.peer()?;
        let remotes = [connected(env, &peer, &addr)?, connected(env, &peer, &addr)?];
        expect_none(&listener, "silent ones")?;
        let listener = if shuts {
            listener.shutdown(libc::SHUT_RD)?;
            expect_errno(listener.accept(), EINVAL, "accept() after shutdown()")?;
            Some(listener)
        } else {
            listener.close()?;
            None
        };
        let other = env.socket()?;
        other.bind(&env.here(addr.port()))?;
        other.listen(1)?;
        for remote in &remotes {
            if !differences::resets_deferred_at_once(env.family) {
                remote.send(Span::new(env.seed, 0, 1), 0)?;
            }
            let end = remote.recv(1, 0).map(|bytes| bytes.len());
            expect_errno(end, ECONNRESET, "recv()")?;
        }
        // The port's new owner serves there, undisturbed.
        let remote = connected(env, &peer, &addr)?;
        let (_sock, from) = other.accept()?;
        expect_eq(
            from.to_std(),
            remote.getsockname()?.to_std(),
            "who was accepted",
        )?;
        // What listens again defers as before.
        if let Some(listener) = listener {
            listener.listen(5)?;
            let remote = connected(env, &peer, &listener.getsockname()?)?;
            expect_none(&listener, "listening again")?;
            remote.send(Span::new(env.seed, 0, 9), 0)?;
            accept_from(&listener, &remote, "listening again")?;
        }
    }
    Ok(())
}

/// Many connections at a time: none is accepted before it sends, each is when it does.
fn deferred_by_many(env: &Env) -> Outcome {
    const EACH: usize = 10;
    const PEERS: usize = 4;
    let (listener, addr) = deferring_listener(env, (PEERS * EACH) as i32, LONG_S)?;
    let connecting: Vec<_> = (0..PEERS)
        .map(|_| {
            let env = env.clone();
            flow::spawn(move || -> io::Result<(Peer, Vec<Remote>)> {
                let peer = env.peer()?;
                let remotes = (0..EACH).map(|_| connected(&env, &peer, &addr));
                let remotes = remotes.collect::<io::Result<_>>()?;
                Ok((peer, remotes))
            })
        })
        .collect::<Result<_, _>>()?;
    let mut all = Vec::new();
    for thread in connecting {
        all.push(joined(thread)??);
    }
    expect_none(&listener, "all are silent")?;
    let mut wanted = HashSet::new();
    for (_, remotes) in &all {
        for remote in remotes {
            wanted.insert(remote.getsockname()?.to_std());
        }
    }
    let span = Span::new(env.seed, 0, 500);
    // Half of them send, the others are closed by their peers.
    let sending: Vec<_> = all
        .into_iter()
        .map(|(peer, remotes)| {
            flow::spawn(move || -> io::Result<_> {
                let mut kept = Vec::new();
                for (i, remote) in remotes.into_iter().enumerate() {
                    if i % 2 == 0 {
                        remote.send(span, 0)?;
                        kept.push(remote);
                    } else {
                        remote.close()?;
                    }
                }
                Ok((peer, kept))
            })
        })
        .collect::<Result<_, _>>()?;
    let (mut got, mut with_bytes) = (HashSet::new(), 0);
    while got.len() < PEERS * EACH {
        expect_eq(listener.poll(POLLIN, -1)?, POLLIN, "poll()")?;
        let (sock, from) = listener.accept()?;
        expect(got.insert(from.to_std()), "one was accepted twice")?;
        let mut bytes = [0; 500];
        match sock.recv(&mut bytes, MSG_DONTWAIT)? {
            0 => {}
            len => {
                sock.recv_exact(&mut bytes[len..])?;
                expect_eq(&bytes[..], &span.to_vec()[..], "its bytes")?;
                with_bytes += 1;
            }
        }
    }
    expect_eq(got, wanted, "accepted")?;
    expect_eq(with_bytes, PEERS * EACH / 2, "those that have sent")?;
    for thread in sending {
        joined(thread)??;
    }
    expect_none(&listener, "all were accepted")
}

/// A listener defers one more than its backlog says, as it has one more for accept(); those beyond are
/// there for accept() at once.
fn deferred_beyond_the_backlog(env: &Env) -> Outcome {
    let peer = env.peer()?;
    let span = Span::new(env.seed, 0, 100);
    let (listener, addr) = deferring_listener(env, 2, LONG_S)?;
    let three = || -> io::Result<Vec<_>> { (0..3).map(|_| connected(env, &peer, &addr)).collect() };
    let deferred = three()?;
    expect_none(&listener, "as many as are deferred")?;
    let beyond = three()?;
    eventually("POLLIN", || listener.poll(POLLIN, 0), |&e| e == POLLIN)?;
    // Whose bytes come while accept() has no place waits for one.
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    deferred[1].send(span, 0)?;
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    // With iWARP, connections come up for the listener in any order.
    let mut awaited = Vec::new();
    for remote in &beyond {
        awaited.push(remote.getsockname()?.to_std());
    }
    while !awaited.is_empty() {
        expect_eq(listener.poll(POLLIN, -1)?, POLLIN, "one beyond: poll()")?;
        let from = listener.accept()?.1.to_std();
        let at = awaited.iter().position(|name| *name == from);
        let is_next = at == Some(0) || at.is_some() && differences::over_iwarp(env.family);
        expect(is_next, format!("accepted {from:?}, not of {awaited:?}"))?;
        awaited.retain(|name| *name != from);
    }
    let sock = accept_from(&listener, &deferred[1], "one that waited for a place")?;
    receive(&sock, span)?;
    expect_none(&listener, "the silent ones")?;
    // There is room for one more again, and for no other.
    let fourth = connected(env, &peer, &addr)?;
    expect_none(&listener, "the fourth")?;
    let fifth = connected(env, &peer, &addr)?;
    accept_from(&listener, &fifth, "the fifth")?;
    for remote in [&fourth, &deferred[2], &deferred[0]] {
        remote.send(span, 0)?;
        receive(&accept_from(&listener, remote, "who sends")?, span)?;
    }
    // So there is when one has died. That takes a moment.
    let (listener, addr) = deferring_listener(env, 0, LONG_S)?;
    let first = connected(env, &peer, &addr)?;
    expect_none(&listener, "the first")?;
    let second = connected(env, &peer, &addr)?;
    accept_from(&listener, &second, "the second")?;
    first.reset()?;
    let mut silent = Vec::new();
    let is_deferred = || {
        silent.push(connected(env, &peer, &addr)?);
        let comes = listener.poll(POLLIN, QUIET_MS)? == POLLIN;
        if comes {
            listener.accept()?;
        }
        io::Result::Ok(!comes)
    };
    eventually("one is deferred", is_deferred, |&is| is)
}

/// One that waits for a place has one when the backlog grows.
fn deferred_and_backlog_grows(env: &Env) -> Outcome {
    let peer = env.peer()?;
    let span = Span::new(env.seed, 0, 100);
    let (listener, addr) = deferring_listener(env, 0, LONG_S)?;
    let deferred = connected(env, &peer, &addr)?;
    expect_none(&listener, "the first")?;
    let beyond = connected(env, &peer, &addr)?;
    eventually("POLLIN", || listener.poll(POLLIN, 0), |&e| e == POLLIN)?;
    deferred.send(span, 0)?;
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    listener.listen(1)?;
    // A peer of TCP has its bytes to send again.
    std::thread::sleep(Duration::from_millis(1500));
    let (_first, from) = listener.accept()?;
    let (second, from_second) = listener.accept()?;
    let names = [from.to_std(), from_second.to_std()];
    let wanted = [
        beyond.getsockname()?.to_std(),
        deferred.getsockname()?.to_std(),
    ];
    expect_eq(names, wanted, "who was accepted at once")?;
    receive(&second, span)
}

/// How many connect to a listener from which nobody takes them, where `expected` should: these may take as long
/// as a busy machine needs.
fn places(env: &Env, addr: &SockAddr, expected: usize) -> Result<usize, Fail> {
    let mut inside = Vec::new();
    loop {
        let sock = env.socket()?;
        sock.set_nonblocking(true)?;
        expect_errno(sock.connect(addr), libc::EINPROGRESS, "connect")?;
        let patience_ms = if inside.len() < expected {
            10_000
        } else {
            4 * QUIET_MS
        };
        if sock.poll(libc::POLLOUT, patience_ms)? == 0 {
            return Ok(inside.len());
        }
        expect_eq(sock.take_error()?, 0, "connect")?;
        inside.push(sock);
        expect(inside.len() < 20, "20 places")?;
    }
}

/// Whatever has become of its connections, what listens again has one place more than its backlog says.
fn deferred_and_listening_again(env: &Env) -> Outcome {
    const BACKLOG: i32 = 2;
    type End = fn(Remote) -> io::Result<()>;
    let peer = env.peer()?;
    let span = Span::new(env.seed, 0, 100);
    let ends: [Option<End>; 3] = [Some(Remote::close), Some(Remote::reset), None];
    for end in ends {
        let (listener, addr) = deferring_listener(env, BACKLOG, LONG_S)?;
        let three =
            || -> io::Result<Vec<_>> { (0..3).map(|_| connected(env, &peer, &addr)).collect() };
        let mut deferred = three()?;
        expect_none(&listener, "as many as are deferred")?;
        let mut beyond = three()?;
        eventually("POLLIN", || listener.poll(POLLIN, 0), |&e| e == POLLIN)?;
        std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
        // Two wait for a place.
        for remote in &deferred[1..] {
            remote.send(span, 0)?;
        }
        std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
        if let Some(end) = end {
            // A silent one, one that waits, and one that is there for accept().
            end(deferred.remove(0))?;
            end(deferred.remove(0))?;
            end(beyond.remove(1))?;
        }
        listener.shutdown(libc::SHUT_RD)?;
        listener.set_int(IPPROTO_TCP, TCP_DEFER_ACCEPT, 0)?;
        listener.listen(BACKLOG)?;
        let expected = BACKLOG as usize + 1;
        let places = places(env, &listener.getsockname()?, expected)?;
        expect_eq(places, expected, "places")?;
    }
    Ok(())
}

/// What the option says when a connection's time is looked at counts.
fn deferral_changes(env: &Env) -> Outcome {
    let peer = env.peer()?;
    let span = Span::new(env.seed, 0, 100);
    // The option goes, or its time gets shorter: at the next look.
    for seconds in [0, 1] {
        let (listener, addr) = deferring_listener(env, 5, LONG_S)?;
        let silent = connected(env, &peer, &addr)?;
        listener.set_int(IPPROTO_TCP, TCP_DEFER_ACCEPT, seconds)?;
        accept_from(&listener, &silent, "with less time")?;
    }
    // The time gets longer.
    let (listener, addr) = deferring_listener(env, 5, 3)?;
    let silent = connected(env, &peer, &addr)?;
    listener.set_int(IPPROTO_TCP, TCP_DEFER_ACCEPT, LONG_S)?;
    expect_eq(listener.poll(POLLIN, 4500)?, 0, "with more time")?;
    silent.send(span, 0)?;
    receive(&accept_from(&listener, &silent, "who sends")?, span)?;
    // A listener that begins to defer.
    let (listener, addr) = deferring_listener(env, 5, 0)?;
    let before = connected(env, &peer, &addr)?;
    accept_from(&listener, &before, "before the option")?;
    listener.set_int(IPPROTO_TCP, TCP_DEFER_ACCEPT, LONG_S)?;
    let after = connected(env, &peer, &addr)?;
    expect_none(&listener, "after the option")?;
    after.send(span, 0)?;
    receive(&accept_from(&listener, &after, "after its bytes")?, span)
}

/// The state in which a connection of this machine is shown, with that of nobody else.
fn shown_state(env: &Env, local: u16, peer: u16) -> io::Result<Option<String>> {
    let (file, ports) = match env.family {
        Family::Sdp => ("/proc/net/sdp", [format!(":{local}"), format!(":{peer}")]),
        Family::Tcp => (
            if env.local.is_ipv4() {
                "/proc/net/tcp"
            } else {
                "/proc/net/tcp6"
            },
            [format!(":{local:04X}"), format!(":{peer:04X}")],
        ),
    };
    let text = std::fs::read_to_string(file)?;
    let state = text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        if env.family == Family::Tcp {
            words.next();
        }
        let names = [words.next()?, words.next()?];
        let is_it = names.iter().zip(&ports).all(|(n, p)| n.ends_with(p));
        is_it.then(|| words.next()).flatten()
    });
    Ok(state.map(str::to_owned))
}

/// A connection that is deferred is shown as one that is being set up.
fn deferred_is_shown(env: &Env) -> Outcome {
    let (set_up, established) = match env.family {
        Family::Tcp => ("03", "01"),
        Family::Sdp => ("HelloReceived", "Established"),
    };
    let (listener, addr) = deferring_listener(env, 5, LONG_S)?;
    let peer = env.peer()?;
    let remote = connected(env, &peer, &addr)?;
    expect_none(&listener, "a silent one")?;
    let port = remote.getsockname()?.port();
    let state = || shown_state(env, addr.port(), port);
    expect_eq(state()?.as_deref(), Some(set_up), "deferred")?;
    let span = Span::new(env.seed, 0, 10);
    remote.send(span, 0)?;
    let sock = accept_from(&listener, &remote, "who sends")?;
    expect_eq(state()?.as_deref(), Some(established), "accepted")?;
    receive(&sock, span)?;
    // One that dies leaves nothing.
    let remote = connected(env, &peer, &addr)?;
    let port = remote.getsockname()?.port();
    let state = || shown_state(env, addr.port(), port);
    eventually("it is there", state, Option::is_some)?;
    remote.reset()?;
    eventually("it is gone", state, Option::is_none)
}
