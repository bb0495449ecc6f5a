// SPDX-License-Identifier: GPL-2.0
//! Ends of one direction and of both, by shutdown() and close().

use crate::support::flow::{self, Span};
use crate::support::harness::{
    eventually, expect, expect_eof, expect_eq, expect_errno, expect_received, failed, fill, joined,
    readable_bytes, receive, send, spawn_waiting, tests, Env, Outcome, QUIET_MS,
};
use crate::support::peer::Work;
use crate::support::sys::{self, Linger};
use libc::{EINVAL, ENOTCONN, EPIPE, MSG_NOSIGNAL, SHUT_RD, SHUT_RDWR, SHUT_WR};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

tests!("close";
    shutdown_write,
    half_close_both_ways,
    shutdown_read,
    shutdown_both,
    shutdown_again_and_badly,
    shutdown_wakes_recv,
    shutdown_wakes_send,
    data_before_close_arrives,
    data_before_close_arrives_late,
    data_before_shutdown_of_both,
    linger_waits_for_data,
    linger_gives_up,
    linger_ends_when_the_peer_sends,
    close_wakes_no_recv,
    simultaneous,
    names_after_the_end,
    close_nonblocking_with_data,
    many_half_closed,
);

fn pause() {
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
}

fn shutdown_write(env: &Env) -> Outcome {
    for len in [0, 1, 100_000] {
        let (sock, remote) = env.pair()?;
        let span = Span::new(env.seed, 0, len);
        let job = remote.start(Work::Sink(Span {
            len: len + 1,
            ..span
        }))?;
        send(&sock, span)?;
        sock.shutdown(SHUT_WR)?;
        let got = job.join_received()?;
        expect_received(got, span, "the peer")?;
        expect(got.eof, "no end of file")?;
        expect_errno(sock.send(b"x", MSG_NOSIGNAL), EPIPE, "send afterwards")?;
    }
    Ok(())
}

/// One direction still works after the end of the other, for either side.
fn half_close_both_ways(env: &Env) -> Outcome {
    let span = Span::new(env.seed, 0, 200_000);
    let (sock, remote) = env.pair()?;
    sock.shutdown(SHUT_WR)?;
    expect_eq(remote.recv(1, 0)?, Vec::new(), "the peer's recv")?;
    let job = remote.start(Work::Source { span, max: 9000 })?;
    receive(&sock, span)?;
    job.join()?;
    remote.shutdown(SHUT_WR)?;
    expect_eof(&sock)?;
    let (sock, remote) = env.pair()?;
    remote.shutdown(SHUT_WR)?;
    expect_eof(&sock)?;
    let job = remote.start(Work::Sink(span))?;
    send(&sock, span)?;
    expect_received(job.join_received()?, span, "the peer")
}

fn shutdown_read(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    remote.send(Span::new(env.seed, 0, 50), 0)?;
    eventually("readable bytes", || readable_bytes(&sock), |&n| n == 50)?;
    sock.shutdown(SHUT_RD)?;
    receive(&sock, Span::new(env.seed, 0, 50))?;
    expect_eof(&sock)?;
    let span = Span::new(env.seed + 1, 0, 3000);
    send(&sock, span)?;
    expect_received(remote.recv_span(span, 3000)?, span, "the peer")
}

fn shutdown_both(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 3000);
    send(&sock, span)?;
    sock.shutdown(SHUT_RDWR)?;
    expect_eof(&sock)?;
    expect_errno(sock.send(b"x", MSG_NOSIGNAL), EPIPE, "send")?;
    let got = remote.recv_span(Span { len: 3001, ..span }, 1000)?;
    expect_received(got, span, "the peer")?;
    expect(got.eof, "no end of file")
}

fn shutdown_again_and_badly(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    for how in [3, -1, 77] {
        expect_errno(sock.shutdown(how), EINVAL, format!("how {how}"))?;
    }
    sock.shutdown(SHUT_WR)?;
    sock.shutdown(SHUT_WR)?;
    remote.send(Span::new(env.seed, 0, 9), 0)?;
    receive(&sock, Span::new(env.seed, 0, 9))?;
    sock.shutdown(SHUT_RD)?;
    expect_eof(&sock)?;
    remote.close()?;
    eventually(
        "shutdown when all has ended",
        || {
            Ok(sock
                .shutdown(SHUT_RDWR)
                .err()
                .and_then(|e| e.raw_os_error()))
        },
        |&e| e == Some(ENOTCONN),
    )
}

fn shutdown_wakes_recv(env: &Env) -> Outcome {
    for how in [SHUT_RD, SHUT_RDWR] {
        let (sock, _remote) = env.pair()?;
        let sock = Arc::new(sock);
        let other = Arc::clone(&sock);
        let waiting = flow::spawn(move || other.recv(&mut [0; 9], 0))?;
        pause();
        expect(!waiting.is_finished(), "recv did not wait")?;
        sock.shutdown(how)?;
        expect_eq(joined(waiting)??, 0, "recv")?;
    }
    Ok(())
}

fn shutdown_wakes_send(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let full = fill(&sock, env.seed)?;
    let sock = Arc::new(sock);
    let other = Arc::clone(&sock);
    let rest = Span::new(env.seed, full, 64 << 20);
    let waiting = flow::spawn(move || flow::send_span(&other, rest, 1 << 20))?;
    pause();
    expect(!waiting.is_finished(), "send did not wait")?;
    sock.shutdown(SHUT_WR)?;
    let sent = match joined(waiting)? {
        Err((sent, e)) => {
            expect_errno::<()>(Err(e), EPIPE, "send")?;
            sent
        }
        Ok(_) => return failed("64 MiB were sent to nobody"),
    };
    let all = Span::new(env.seed, 0, full + sent);
    let got = remote.recv_span(
        Span {
            len: all.len + 1,
            ..all
        },
        100_000,
    )?;
    expect_received(got, all, "the peer")?;
    expect(got.eof, "no end of file")
}

/// close() right after send() loses nothing.
fn data_before_close_arrives(env: &Env) -> Outcome {
    for len in [1, 4096, 100_000, env.scaled(1 << 20)] {
        let (sock, remote) = env.pair()?;
        let span = Span::new(env.seed, 0, len);
        let job = remote.start(Work::Sink(Span {
            len: len + 1,
            ..span
        }))?;
        send(&sock, span)?;
        sock.close()?;
        let got = job.join_received()?;
        expect_received(got, span, format!("{len} bytes"))?;
        expect(got.eof, "no end of file")?;
    }
    Ok(())
}

/// As [`data_before_close_arrives`], but the way to the peer is full, and the peer reads long after
/// the close.
fn data_before_close_arrives_late(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, fill(&sock, env.seed)?);
    sock.close()?;
    pause();
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

fn data_before_shutdown_of_both(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    let (ours, theirs) = (
        Span::new(env.seed, 0, 20_000),
        Span::new(env.seed + 1, 0, 20_000),
    );
    send(&sock, ours)?;
    send(&other, theirs)?;
    sock.shutdown(SHUT_WR)?;
    other.shutdown(SHUT_WR)?;
    receive(&sock, theirs)?;
    receive(&other, ours)?;
    expect_eof(&sock)?;
    expect_eof(&other)
}

/// close() with SO_LINGER returns when the peer has taken all bytes.
fn linger_waits_for_data(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    sock.set_linger(Linger { on: true, secs: 60 })?;
    let span = Span::new(env.seed, 0, env.scaled(1 << 20));
    let job = remote.start(Work::Sink(Span {
        len: span.len + 1,
        ..span
    }))?;
    send(&sock, span)?;
    sock.close()?;
    let got = job.join_received()?;
    expect_received(got, span, "the peer")?;
    expect(got.eof, "no end of file")
}

/// If the peer does not read, close() waits for the time of SO_LINGER.
fn linger_gives_up(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    fill(&sock, env.seed)?;
    sock.set_linger(Linger { on: true, secs: 1 })?;
    let start = Instant::now();
    sock.close()?;
    expect(
        start.elapsed() >= Duration::from_millis(900),
        "close did not wait",
    )?;
    expect(
        start.elapsed() < Duration::from_secs(30),
        "close waited too long",
    )?;
    expect(remote.recv(1, 0)?.len() == 1, "the peer has nothing")
}

/// Nobody reads bytes that arrive while close() waits, so they reset the connection. close() does
/// not wait any longer for a peer that sends before it reads.
fn linger_ends_when_the_peer_sends(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    fill(&sock, env.seed)?;
    let linger = Linger { on: true, secs: 60 };
    sock.set_linger(linger)?;
    let closing = spawn_waiting(move || sock.close())?;
    let start = Instant::now();
    other.send_all(b"x")?;
    joined(closing)??;
    let waited = start.elapsed();
    expect(
        waited < Duration::from_secs(20),
        format!("close waited {waited:?}"),
    )?;
    eventually("a reset", || other.poll(0, 0), |&e| e & libc::POLLERR != 0)
}

/// close() removes the descriptor, but a thread in recv() keeps waiting and receives the next
/// bytes. Then the connection ends.
fn close_wakes_no_recv(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let fd = sock.as_raw_fd();
    let waiting = spawn_waiting(move || -> std::io::Result<Vec<u8>> {
        let mut buf = vec![0; 10];
        let n = sys::read(fd, &mut buf)?;
        buf.truncate(n);
        Ok(buf)
    })?;
    pause();
    sock.close()?;
    pause();
    expect(!waiting.is_finished(), "close woke recv")?;
    let span = Span::new(env.seed, 0, 5);
    remote.send(span, 0)?;
    expect_eq(joined(waiting)??, span.to_vec(), "received")?;
    expect_eq(remote.recv(1, 0)?, Vec::new(), "the peer's end")
}

fn simultaneous(env: &Env) -> Outcome {
    for round in 0..env.scaled(20) {
        let (sock, other) = env.own_pair()?;
        if round % 2 == 0 {
            sock.send_all(b"a")?;
            other.send_all(b"b")?;
            sock.recv_exact(&mut [0])?;
            other.recv_exact(&mut [0])?;
        }
        let there = flow::spawn(move || -> Outcome {
            other.shutdown(SHUT_WR)?;
            expect_eof(&other)?;
            Ok(other.close()?)
        })?;
        sock.shutdown(SHUT_WR)?;
        expect_eof(&sock)?;
        sock.close()?;
        joined(there)??;
    }
    Ok(())
}

fn names_after_the_end(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let (name, peer) = (sock.getsockname()?.to_std(), sock.getpeername()?.to_std());
    remote.shutdown(SHUT_WR)?;
    expect_eof(&sock)?;
    expect_eq(
        sock.getpeername()?.to_std(),
        peer,
        "getpeername after its end",
    )?;
    remote.reset()?;
    eventually("the reset", || sock.poll(0, 0), |&e| e != 0)?;
    expect_errno(sock.getpeername(), ENOTCONN, "getpeername after a reset")?;
    expect_eq(
        sock.getsockname()?.to_std(),
        name,
        "getsockname after a reset",
    )
}

fn close_nonblocking_with_data(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, fill(&sock, env.seed)?);
    sock.set_nonblocking(true)?;
    sock.set_linger(Linger { on: true, secs: 0 })?;
    sock.set_linger(Linger { on: false, secs: 0 })?;
    sock.close()?;
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

/// Sockets are left half closed, or with unread bytes, and then dropped together.
fn many_half_closed(env: &Env) -> Outcome {
    let mut pairs = Vec::new();
    for i in 0..env.scaled(20) {
        let (sock, other) = env.own_pair()?;
        match i % 4 {
            0 => sock.shutdown(SHUT_WR)?,
            1 => other.shutdown(SHUT_WR)?,
            2 => sock.send_all(b"unread")?,
            _ => {}
        }
        pairs.push((sock, other));
    }
    for (i, (sock, other)) in pairs.into_iter().enumerate() {
        match i % 3 {
            0 => drop((sock, other)),
            1 => drop((other, sock)),
            _ => sock.reset()?,
        }
    }
    let (sock, remote) = env.pair()?;
    sock.send_all(b"fine")?;
    expect_eq(remote.recv(9, 0)?, b"fine".to_vec(), "afterwards")
}
