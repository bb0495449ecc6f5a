// SPDX-License-Identifier: GPL-2.0
//! TCP_DEFER_ACCEPT: a connection is available to accept() only when its first bytes have arrived.

use crate::support::flow::{self, Span};
use crate::support::harness::{
    differences, eventually, expect, expect_eq, expect_errno, expect_received, failed, joined,
    receive, send, spawn_waiting, Env, Fail, Family, Outcome, QUIET_MS,
};
use crate::support::peer::{Peer, Remote, Work};
use crate::support::sys::{Epoll, Sock, SockAddr};
use libc::{EAGAIN, ECONNRESET, EINVAL, IPPROTO_TCP, MSG_DONTWAIT, POLLIN, TCP_DEFER_ACCEPT};
use std::collections::HashSet;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// A time in seconds that is longer than any test waits.
const LONG_S: i32 = 60;

/// A non-blocking listener that defers connections for this many seconds.
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

/// Expects that accept() has no connection, and gets none for a while.
fn expect_none(listener: &Sock, what: &str) -> Outcome {
    expect_eq(
        listener.poll(POLLIN, QUIET_MS)?,
        0,
        format!("{what}: poll()"),
    )?;
    expect_errno(listener.accept(), EAGAIN, format!("{what}: accept()"))
}

/// Accepts the next connection, which must be that of `remote`.
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

/// With TCP_DEFER_ACCEPT, a connection is available to accept() only when its first bytes have
/// arrived.
pub(super) fn deferred(env: &Env) -> Outcome {
    let (listener, addr) = deferring_listener(env, 5, LONG_S)?;
    let peer = env.peer()?;
    let silent = connected(env, &peer, &addr)?;
    let talker = connected(env, &peer, &addr)?;
    expect_none(&listener, "two silent ones")?;
    // The bytes must wake a thread that waits in accept(), and an edge-triggered epoll.
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
    // The bytes can be read without waiting.
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
    // Send many bytes, in both directions.
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

/// When the time of the deferral is over, a connection is available to accept() without a byte.
pub(super) fn deferred_for_a_time(env: &Env) -> Outcome {
    let (listener, addr) = deferring_listener(env, 5, 1)?;
    let peer = env.peer()?;
    // The option is rounded up to whole time-outs: here one of 1 s. A second time-out would make 3
    // s. A machine that stalls may take as long, but not each time.
    let second_part = Duration::from_millis(2900);
    let silent_one = |what: &str| -> Result<(Remote, Sock), Fail> {
        for _ in 0..4 {
            let begin = Instant::now();
            let remote = connected(env, &peer, &addr)?;
            let sock = accept_from(&listener, &remote, what)?;
            let waited = begin.elapsed();
            expect(
                waited >= Duration::from_millis(900),
                format!("{what}: {waited:?}"),
            )?;
            if waited < second_part {
                return Ok((remote, sock));
            }
        }
        failed(format!("{what}: four times after {second_part:?} or later"))
    };
    let (remote, sock) = silent_one("the silent one")?;
    let none = sock.recv(&mut [0; 1], MSG_DONTWAIT);
    expect_errno(none, EAGAIN, "a byte of a silent one")?;
    // The time of each connection begins with the connection itself.
    let (second, other) = silent_one("the second")?;
    for (sock, remote, seed) in [(&sock, &remote, 1), (&other, &second, 2)] {
        let span = Span::new(env.seed + seed, 0, 20_000);
        let job = remote.start(Work::Source { span, max: 9000 })?;
        receive(sock, span)?;
        job.join()?;
    }
    Ok(())
}

/// The end of the peer's stream counts as a byte. A connection that is reset before never becomes
/// available to accept(); one that is reset later does.
pub(super) fn deferred_and_ended(env: &Env) -> Outcome {
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
    // Reset a connection between two others that send.
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

/// The end of a listener ends the connections that it defers, and frees its port.
pub(super) fn deferred_and_listener_ends(env: &Env) -> Outcome {
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
        // The new owner of the port can serve there.
        let remote = connected(env, &peer, &addr)?;
        let (_sock, from) = other.accept()?;
        expect_eq(
            from.to_std(),
            remote.getsockname()?.to_std(),
            "who was accepted",
        )?;
        // A listener that listens again defers as before.
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

/// Of many connections, none is accepted before it sends or ends, and each is accepted afterwards.
pub(super) fn deferred_by_many(env: &Env) -> Outcome {
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
    // Half of them send; the peer closes the others.
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

/// A listener defers one connection more than its backlog, just as accept() has room for one more.
/// Connections beyond that are available to accept() at once.
pub(super) fn deferred_beyond_the_backlog(env: &Env) -> Outcome {
    let peer = env.peer()?;
    let span = Span::new(env.seed, 0, 100);
    let (listener, addr) = deferring_listener(env, 2, LONG_S)?;
    let three = || -> io::Result<Vec<_>> { (0..3).map(|_| connected(env, &peer, &addr)).collect() };
    let deferred = three()?;
    expect_none(&listener, "as many as are deferred")?;
    let beyond = three()?;
    eventually("POLLIN", || listener.poll(POLLIN, 0), |&e| e == POLLIN)?;
    // A deferred connection whose bytes arrive while the accept queue is full waits for a place in
    // the queue.
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    deferred[1].send(span, 0)?;
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    for remote in &beyond {
        expect_eq(listener.poll(POLLIN, -1)?, POLLIN, "one beyond: poll()")?;
        let (_, from) = listener.accept()?;
        expect_eq(from.to_std(), remote.getsockname()?.to_std(), "the order")?;
    }
    let sock = accept_from(&listener, &deferred[1], "one that waited for a place")?;
    receive(&sock, span)?;
    expect_none(&listener, "the silent ones")?;
    // Now there is room for one more deferred connection, but not for two.
    let fourth = connected(env, &peer, &addr)?;
    expect_none(&listener, "the fourth")?;
    let fifth = connected(env, &peer, &addr)?;
    accept_from(&listener, &fifth, "the fifth")?;
    for remote in [&fourth, &deferred[2], &deferred[0]] {
        remote.send(span, 0)?;
        receive(&accept_from(&listener, remote, "who sends")?, span)?;
    }
    // There is room, too, when a deferred connection has been reset. This takes a moment.
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

/// A deferred connection that waits for a place in the accept queue gets one when the backlog
/// grows.
pub(super) fn deferred_and_backlog_grows(env: &Env) -> Outcome {
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
    // A TCP peer has to send its bytes again.
    std::thread::sleep(Duration::from_millis(1500));
    let (_first, from) = listener.accept()?;
    // On a slow machine, the second one may come only now.
    eventually("the second", || listener.poll(POLLIN, 0), |&e| e == POLLIN)?;
    let (second, from_second) = listener.accept()?;
    let names = [from.to_std(), from_second.to_std()];
    let wanted = [
        beyond.getsockname()?.to_std(),
        deferred.getsockname()?.to_std(),
    ];
    expect_eq(names, wanted, "who was accepted at once")?;
    receive(&second, span)
}

/// The number of sockets that can connect to a listener while nobody accepts. The first `expected`
/// of them may take as long as a busy machine needs.
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

/// A listener that listens again has one place more than its backlog, no matter how its earlier
/// connections ended.
pub(super) fn deferred_and_listening_again(env: &Env) -> Outcome {
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
        // Two connections wait for a place in the accept queue.
        for remote in &deferred[1..] {
            remote.send(span, 0)?;
        }
        std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
        if let Some(end) = end {
            // End a silent connection, one that waits for a place, and one that is available to
            // accept().
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

/// At the end of each time-out, the current value of the option decides.
pub(super) fn deferral_changes(env: &Env) -> Outcome {
    let peer = env.peer()?;
    let span = Span::new(env.seed, 0, 100);
    // If the option is cleared or its time gets shorter, this takes effect at the end of the next
    // time-out.
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
    // A listener begins to defer.
    let (listener, addr) = deferring_listener(env, 5, 0)?;
    let before = connected(env, &peer, &addr)?;
    accept_from(&listener, &before, "before the option")?;
    listener.set_int(IPPROTO_TCP, TCP_DEFER_ACCEPT, LONG_S)?;
    let after = connected(env, &peer, &addr)?;
    expect_none(&listener, "after the option")?;
    after.send(span, 0)?;
    receive(&accept_from(&listener, &after, "after its bytes")?, span)
}

/// The state that /proc shows of this machine's end of a connection between two ports.
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

/// A deferred connection is shown as one that is being set up.
pub(super) fn deferred_is_shown(env: &Env) -> Outcome {
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
    // A connection that is reset disappears from the list.
    let remote = connected(env, &peer, &addr)?;
    let port = remote.getsockname()?.port();
    let state = || shown_state(env, addr.port(), port);
    eventually("it is there", state, Option::is_some)?;
    remote.reset()?;
    eventually("it is gone", state, Option::is_none)
}
