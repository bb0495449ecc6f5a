// SPDX-License-Identifier: GPL-2.0
//! Signals interrupt calls that wait, unless the handler has SA_RESTART, and no bytes are lost.

use crate::support::flow::{recv_span, Span};
use crate::support::harness::{
    eventually, expect, expect_eq, expect_errno, expect_received, failed, fill, joined,
    readable_bytes, receive, tests, Env, Outcome,
};
use crate::support::peer::Work;
use crate::support::sys::{self, Sock};
use crate::tests::connecting::connect::full_listener;
use libc::{EALREADY, EINTR, MSG_FASTOPEN, MSG_NOSIGNAL, POLLOUT, SIGALRM};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

tests!("signals";
    recv_interrupted,
    recv_that_polls_interrupted,
    recv_restarted,
    recv_with_time_limit_is_not_restarted,
    accept_interrupted,
    accept_restarted,
    connect_interrupted,
    connect_restarted,
    fast_open_interrupted,
    send_interrupted,
    send_partial,
    waitall_partial,
    poll_interrupted,
    linger_interrupted,
    storm,
    sigio,
    signals_name_their_event,
);

/// Milliseconds between alarms.
const EVERY_MS: i64 = 60;

/// The `si_code` of signals (asm-generic/siginfo.h).
const POLL_IN: i32 = 1;
const POLL_OUT: i32 = 2;
const POLL_ERR: i32 = 4;
const POLL_HUP: i32 = 6;

static ALARMS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_alarm(_: libc::c_int) {
    ALARMS.fetch_add(1, Ordering::SeqCst);
}

/// Runs a call while SIGALRM arrives again and again.
fn with_alarms<T>(restart: bool, call: impl FnOnce() -> T) -> io::Result<T> {
    ALARMS.store(0, Ordering::SeqCst);
    sys::install_handler(SIGALRM, count_alarm, restart)?;
    sys::alarm_every(EVERY_MS)?;
    let result = call();
    sys::alarm_every(0)?;
    Ok(result)
}

fn alarms() -> u32 {
    ALARMS.load(Ordering::SeqCst)
}

fn recv_interrupted(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    for flags in [0, libc::MSG_PEEK, libc::MSG_WAITALL] {
        let result = with_alarms(false, || sock.recv(&mut [0; 9], flags))?;
        expect_errno(result, EINTR, format!("recv with {flags:#x}"))?;
    }
    let span = Span::new(env.seed, 0, 1000);
    remote.send_span(span, 1000)?;
    receive(&sock, span)
}

/// A signal ends the time of SO_BUSY_POLL.
fn recv_that_polls_interrupted(env: &Env) -> Outcome {
    let (sock, _remote) = env.pair()?;
    sock.set_int(libc::SOL_SOCKET, libc::SO_BUSY_POLL, 60_000_000)?;
    let start = Instant::now();
    let result = with_alarms(false, || sock.recv(&mut [0; 9], 0))?;
    expect_errno(result, EINTR, "recv")?;
    expect(start.elapsed() < Duration::from_secs(30), "it polled on")
}

/// Starts a thread that waits for three alarms and then acts.
fn after_three_alarms<T: Send + 'static>(
    act: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<std::thread::JoinHandle<io::Result<T>>> {
    ALARMS.store(0, Ordering::SeqCst);
    crate::support::flow::spawn(move || {
        sys::block_signal(SIGALRM)?;
        while alarms() < 3 {
            std::thread::sleep(Duration::from_millis(5));
        }
        act()
    })
}

fn recv_restarted(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 9);
    let sender = after_three_alarms(move || remote.send(span, 0))?;
    let mut buf = [0; 9];
    let n = with_alarms(true, || sock.recv(&mut buf, libc::MSG_WAITALL))?;
    expect_eq(n?, 9, "recv")?;
    expect(buf[..] == span.to_vec(), "wrong bytes")?;
    expect(alarms() >= 3, "there were no alarms")?;
    joined(sender)??;
    Ok(())
}

/// A receive with SO_RCVTIMEO is not restarted, as signal(7) says.
fn recv_with_time_limit_is_not_restarted(env: &Env) -> Outcome {
    let (sock, _remote) = env.pair()?;
    sock.set_timeout(libc::SO_RCVTIMEO, 100_000)?;
    let result = with_alarms(true, || sock.recv(&mut [0; 9], 0))?;
    expect_errno(result, EINTR, "recv")
}

fn accept_interrupted(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(1)?;
    let result = with_alarms(false, || listener.accept())?;
    expect_errno(result, EINTR, "accept")?;
    let remote = env.remote_socket(&env.peer()?)?;
    remote.connect(&addr)?;
    listener.accept()?;
    Ok(())
}

fn accept_restarted(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(1)?;
    let remote = env.remote_socket(&env.peer()?)?;
    let connector = after_three_alarms(move || remote.connect(&addr).map(|()| remote))?;
    let accepted = with_alarms(true, || listener.accept())?;
    accepted?;
    expect(alarms() >= 3, "there were no alarms")?;
    joined(connector)??;
    Ok(())
}

/// After an interrupted connect(), the connection is still made.
fn connect_interrupted(env: &Env) -> Outcome {
    let (listener, addr, _inside) = full_listener(env)?;
    let sock = env.socket()?;
    let result = with_alarms(false, || sock.connect(&addr))?;
    expect_errno(result, EINTR, "connect")?;
    // The signal may come before the local address is known, but after the choice of the port.
    let port = sock.getsockname()?.port();
    for _ in 0..25 {
        if listener.accept()?.1.port() == port {
            expect_eq(sock.poll(POLLOUT, -1)?, POLLOUT, "poll")?;
            return expect_eq(sock.take_error()?, 0, "SO_ERROR");
        }
    }
    failed("the connection never comes")
}

fn connect_restarted(env: &Env) -> Outcome {
    let (listener, addr, _inside) = full_listener(env)?;
    let sock = env.socket()?;
    // The earlier connections are accepted first.
    let _acceptor = after_three_alarms(move || -> io::Result<()> {
        loop {
            listener.accept()?;
        }
    })?;
    with_alarms(true, || sock.connect(&addr))??;
    expect(alarms() >= 3, "there were no alarms")?;
    sock.getpeername()?;
    Ok(())
}

/// A send that connects is interrupted as connect() is, with a time limit even if the handler has
/// SA_RESTART. The connection is still made.
fn fast_open_interrupted(env: &Env) -> Outcome {
    let _allowed = crate::tests::connecting::fastopen::allowed(env)?;
    for restart in [false, true] {
        let (listener, addr, inside) = full_listener(env)?;
        let sock = env.socket()?;
        sock.set_timeout(libc::SO_SNDTIMEO, 100_000)?;
        let open = || sock.sendto(b"lost", &addr, MSG_FASTOPEN);
        expect_errno(with_alarms(restart, open)?, EINTR, "sendto")?;
        // The interrupted call has ended, but its connection is still being made.
        let again = sock.sendto(b"lost", &addr, MSG_FASTOPEN | libc::MSG_DONTWAIT);
        expect_errno(again, EALREADY, "sendto again")?;
        let port = sock.getsockname()?.port();
        let mut accepted = None;
        for _ in 0..inside.len() + 10 {
            let (remote, from) = listener.accept()?;
            if from.port() == port {
                accepted = Some(remote);
                break;
            }
        }
        let Some(remote) = accepted else {
            return failed("the connection never comes");
        };
        expect_eq(sock.poll(POLLOUT, -1)?, POLLOUT, "poll")?;
        expect_eq(sock.take_error()?, 0, "SO_ERROR")?;
        sock.send_all(b"sent")?;
        expect_eq(remote.recv(16, 0)?, b"sent".to_vec(), "received")?;
    }
    Ok(())
}

fn send_interrupted(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let mut span = Span::new(env.seed, 0, fill(&sock, env.seed)?);
    // The first call may still find some room.
    loop {
        let buf = Span::new(env.seed, span.len, 1 << 20).to_vec();
        match with_alarms(false, || sock.send(&buf, MSG_NOSIGNAL))? {
            Ok(n) => span.len += n as u64,
            Err(e) => {
                expect_errno::<()>(Err(e), EINTR, "send")?;
                break;
            }
        }
    }
    expect_received(remote.recv_span(span, 50_000)?, span, "the peer")
}

/// A send() that is interrupted in the middle returns the number of bytes that it has taken.
fn send_partial(env: &Env) -> Outcome {
    let (sock, remote) = env.pair_with(
        |s| s.set_int(libc::SOL_SOCKET, libc::SO_SNDBUF, 50_000),
        |r| r.set_int(libc::SOL_SOCKET, libc::SO_RCVBUF, 50_000),
    )?;
    for restart in [false, true] {
        let mut buf = Span::new(env.seed, 0, 8 << 20).to_vec();
        let sent = with_alarms(restart, || sock.send(&buf, MSG_NOSIGNAL))??;
        buf.fill(0xdb);
        expect(sent > 0 && sent < 8 << 20, format!("{sent} sent"))?;
        let span = Span::new(env.seed, 0, sent as u64);
        expect_received(remote.recv_span(span, 50_000)?, span, "the peer")?;
    }
    Ok(())
}

fn waitall_partial(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 500);
    remote.send(span, 0)?;
    eventually("readable bytes", || readable_bytes(&sock), |&n| n == 500)?;
    let mut buf = vec![0; 1000];
    let n = with_alarms(false, || sock.recv(&mut buf, libc::MSG_WAITALL))?;
    expect_eq(n?, 500, "what was there")?;
    expect(buf[..500] == span.to_vec(), "wrong bytes")
}

fn poll_interrupted(env: &Env) -> Outcome {
    let (sock, _remote) = env.pair()?;
    // poll() is never restarted, not even with SA_RESTART.
    for restart in [false, true] {
        let result = with_alarms(restart, || sock.poll(libc::POLLIN, -1))?;
        expect_errno(result, EINTR, "poll")?;
    }
    Ok(())
}

/// A signal ends the wait of close(), but not the delivery of the bytes.
fn linger_interrupted(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, fill(&sock, env.seed)?);
    sock.set_linger(sys::Linger {
        on: true,
        secs: 600,
    })?;
    let closed = with_alarms(false, || sock.close())?;
    if let Err(e) = closed {
        expect_errno::<()>(Err(e), EINTR, "close")?;
    }
    let got = remote.recv_span(
        Span {
            len: span.len + 1,
            ..span
        },
        10_000,
    )?;
    expect_received(got, span, "the peer")?;
    expect(got.eof, "no end of file")
}

/// A stream with signals all the time. Each call is repeated after EINTR.
fn storm(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let job = remote.start(Work::Echo)?;
    let total = env.scaled(1 << 20);
    sys::install_handler(SIGALRM, count_alarm, false)?;
    ALARMS.store(0, Ordering::SeqCst);
    sys::alarm_every(1)?;
    let again = |result: io::Result<usize>| match result {
        Err(e) if e.raw_os_error() == Some(EINTR) => Ok(0),
        other => other,
    };
    let mut offset = 0;
    // Go on until there were many signals.
    while offset < total || alarms() < 20 {
        let len = total.min(40_000);
        let span = Span::new(env.seed, offset, len);
        let buf = span.to_vec();
        let mut sent = 0;
        while sent < buf.len() {
            sent += again(sock.send(&buf[sent..], MSG_NOSIGNAL))?;
        }
        let mut rest = span;
        while rest.len > 0 {
            let got = recv_span(&sock, rest, 40_000);
            expect_eq(got.verdict.wrong, 0, "wrong bytes")?;
            expect(!got.eof, "an early end of file")?;
            expect(
                got.errno == 0 || got.errno == EINTR,
                format!("errno {}", got.errno),
            )?;
            rest = rest.after(got.bytes);
        }
        offset += len;
    }
    sys::alarm_every(0)?;
    sock.shutdown(libc::SHUT_WR)?;
    expect_eq(job.join()?, offset.to_string(), "echoed")
}

/// With asynchronous notification (O_ASYNC), a signal arrives when bytes or the end arrive.
fn sigio(env: &Env) -> Outcome {
    ALARMS.store(0, Ordering::SeqCst);
    sys::install_handler(libc::SIGIO, count_alarm, true)?;
    let (sock, remote) = env.pair()?;
    sock.set_async(sys::pid())?;
    for _ in 0..3 {
        let before = alarms();
        remote.send(Span::new(env.seed, 0, 5), 0)?;
        eventually("SIGIO", || Ok(alarms()), |&n| n > before)?;
        receive(&sock, Span::new(env.seed, 0, 5))?;
    }
    let before = alarms();
    remote.close()?;
    eventually("SIGIO at the end", || Ok(alarms()), |&n| n > before)
}

/// With F_SETSIG, a signal says what has happened, and nothing else causes one.
fn signals_name_their_event(env: &Env) -> Outcome {
    let signal = libc::SIGRTMIN();
    sys::block_signal(signal)?;
    // One event may cause several signals; an end is also something to read.
    let told = |sock: &Sock, code, what| -> Outcome {
        let fd = sock.as_raw_fd();
        expect_eq(sys::wait_signal(signal, 20_000)?, Some((code, fd)), what)?;
        while let Some((next, _)) = sys::wait_signal(signal, 100)? {
            expect(
                [code, POLL_IN].contains(&next),
                format!("{what}: then {next}"),
            )?;
        }
        Ok(())
    };

    let (listener, addr) = env.listener(1)?;
    let remote = env.remote_socket(&env.peer()?)?;
    remote.connect(&addr)?;
    let (sock, _) = listener.accept()?;
    sock.set_async_signal(signal)?;
    remote.send(Span::new(env.seed, 0, 5), 0)?;
    told(&sock, POLL_IN, "bytes")?;
    receive(&sock, Span::new(env.seed, 0, 5))?;
    remote.shutdown(libc::SHUT_WR)?;
    told(&sock, POLL_IN, "the end of the peer's half")?;
    sock.close()?;

    let (sock, remote) = env.pair()?;
    sock.shutdown(libc::SHUT_WR)?;
    expect_eq(remote.recv(1, 0)?, Vec::new(), "the end")?;
    sock.set_async_signal(signal)?;
    remote.close()?;
    told(&sock, POLL_HUP, "the end of both halves")?;

    let (sock, remote) = env.pair()?;
    sock.set_async_signal(signal)?;
    remote.reset()?;
    told(&sock, POLL_ERR, "a reset")?;

    let (server, addr) = env.remote_listener(1)?;
    let sock = env.socket()?;
    sock.set_async_signal(signal)?;
    sock.set_nonblocking(true)?;
    expect_errno(sock.connect(&addr), libc::EINPROGRESS, "connect")?;
    told(&sock, POLL_OUT, "a connection")?;
    drop(server);
    Ok(())
}
