// SPDX-License-Identifier: GPL-2.0
//! A peer that does not read: senders wait, and nothing is lost. And time limits.

use crate::support::flow::{self, Exchange, Span};
use crate::support::harness::{
    eventually, expect, expect_eq, expect_errno, expect_received, expect_waited, failed, fill,
    fill_from, joined, readable_bytes, receive, send, tests, Env, Outcome, QUIET_MS,
};
use crate::support::peer::Work;
use libc::{
    EAGAIN, MSG_DONTWAIT, POLLIN, POLLOUT, SOL_SOCKET, SO_BUSY_POLL, SO_RCVLOWAT, SO_RCVTIMEO,
    SO_SNDTIMEO,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

tests!("blocking";
    full_then_drained,
    full_with_small_buffers,
    sender_waits_and_resumes,
    both_sides_full,
    partial_nonblocking_send,
    recv_waits,
    recv_timeout,
    recv_timeout_with_waitall,
    busy_poll_timeout,
    busy_poll_receives,
    busy_poll_beside_a_sender,
    send_timeout,
    rcvlowat,
    rcvlowat_falls,
    rcvlowat_beyond_the_buffer,
    peek_into_the_smallest_buffer,
    user_timeout_of_a_full_peer,
    user_timeout_of_a_full_peer_that_sends,
    user_timeout_of_a_quiet_peer,
    unread_and_unsent_counts,
    reader_slower_than_writer,
    buffer_sizes_change_under_way,
);

fn pause() {
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
}

fn full_then_drained(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let mut span = Span::new(env.seed, 0, fill(&sock, env.seed)?);
    expect(span.len > 0, "nothing was sent")?;
    expect_eq(sock.poll(POLLOUT, 0)?, 0, "poll when full")?;
    expect_errno(sock.send(&[0], MSG_DONTWAIT), EAGAIN, "send when full")?;
    // The socket is writable again at the latest when the peer has read all bytes.
    expect_received(remote.recv_span(span, 30_000)?, span, "the peer")?;
    expect_eq(sock.poll(POLLOUT, -1)?, POLLOUT, "poll when drained")?;
    span = Span::new(env.seed + 1, 0, 5000);
    send(&sock, span)?;
    expect_received(remote.recv_span(span, 5000)?, span, "afterwards")
}

fn full_with_small_buffers(env: &Env) -> Outcome {
    let (sock, remote) = env.pair_with(
        |s| s.set_int(SOL_SOCKET, libc::SO_SNDBUF, 1),
        |r| r.set_int(SOL_SOCKET, libc::SO_RCVBUF, 1),
    )?;
    let sent = fill(&sock, env.seed)?;
    expect(sent > 0, "nothing was sent")?;
    expect(
        sent < 4 << 20,
        format!("{sent} bytes fit the smallest buffers"),
    )?;
    let span = Span::new(env.seed, 0, sent);
    expect_received(remote.recv_span(span, 3000)?, span, "the peer")?;
    // A stream also works with such buffers.
    let span = Span::new(env.seed + 1, 0, env.scaled(100_000));
    let job = remote.start(Work::Sink(span))?;
    send(&sock, span)?;
    expect_received(job.join_received()?, span, "the stream")
}

fn sender_waits_and_resumes(env: &Env) -> Outcome {
    let (sock, remote) = env.pair_with(
        |s| s.set_int(SOL_SOCKET, libc::SO_SNDBUF, 50_000),
        |r| r.set_int(SOL_SOCKET, libc::SO_RCVBUF, 50_000),
    )?;
    let span = Span::new(env.seed, 0, 4 << 20);
    let sending = flow::spawn(move || -> std::io::Result<usize> {
        let mut buf = span.to_vec();
        let n = sock.send(&buf, 0)?;
        buf.fill(0xdb);
        Ok(n)
    })?;
    pause();
    expect(!sending.is_finished(), "4 MiB went into small buffers")?;
    let got = remote.recv_span(span, 100_000)?;
    expect_received(got, span, "the peer")?;
    expect_eq(joined(sending)?? as u64, span.len, "sent in one call")
}

/// Both directions are full at the same time. Then each side reads all.
fn both_sides_full(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    let (mut ours, mut theirs) = (0, 0);
    // The messages of one side announce receives to the other side, which may then send more.
    loop {
        let before = (ours, theirs);
        ours = fill_from(&sock, env.seed, ours)?;
        theirs = fill_from(&other, env.seed + 1, theirs)?;
        if (ours, theirs) == before {
            break;
        }
    }
    let ours = Span::new(env.seed, 0, ours);
    let theirs = Span::new(env.seed + 1, 0, theirs);
    expect_eq(sock.poll(POLLIN | POLLOUT, 0)?, POLLIN, "poll of one")?;
    expect_eq(
        other.poll(POLLIN | POLLOUT, 0)?,
        POLLIN,
        "poll of the other",
    )?;
    receive(&sock, theirs)?;
    receive(&other, ours)?;
    for sock in [&sock, &other] {
        expect_eq(sock.poll(POLLOUT, -1)?, POLLOUT, "poll at the end")?;
    }
    Ok(())
}

/// A large nonblocking send takes the bytes that fit, and returns their number.
fn partial_nonblocking_send(env: &Env) -> Outcome {
    let (sock, remote) = env.pair_with(
        |s| s.set_int(SOL_SOCKET, libc::SO_SNDBUF, 100_000),
        |r| r.set_int(SOL_SOCKET, libc::SO_RCVBUF, 100_000),
    )?;
    let mut buf = Span::new(env.seed, 0, 16 << 20).to_vec();
    let n = sock.send(&buf, MSG_DONTWAIT)?;
    buf.fill(0xdb);
    expect(
        n > 0 && n < buf.len(),
        format!("{n} of {} bytes", buf.len()),
    )?;
    let span = Span::new(env.seed, 0, n as u64);
    expect_received(remote.recv_span(span, 50_000)?, span, "the peer")
}

fn recv_waits(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 100);
    let waiting = flow::spawn(move || receive(&sock, span))?;
    pause();
    expect(!waiting.is_finished(), "recv returned without data")?;
    remote.send(span, 0)?;
    joined(waiting)?
}

fn recv_timeout(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    sock.set_timeout(SO_RCVTIMEO, 150)?;
    let start = Instant::now();
    expect_errno(sock.recv(&mut [0], 0), EAGAIN, "recv")?;
    expect_waited(start)?;
    remote.send(Span::new(env.seed, 0, 9), 0)?;
    sock.set_timeout(SO_RCVTIMEO, 0)?;
    receive(&sock, Span::new(env.seed, 0, 9))?;
    // The time limit does not apply to a nonblocking call.
    sock.set_timeout(SO_RCVTIMEO, 100_000)?;
    let start = Instant::now();
    expect_errno(sock.recv(&mut [0], MSG_DONTWAIT), EAGAIN, "recv")?;
    expect(start.elapsed() < Duration::from_secs(50), "it waited")
}

fn recv_timeout_with_waitall(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    remote.send(Span::new(env.seed, 0, 9), 0)?;
    eventually("readable bytes", || readable_bytes(&sock), |&n| n == 9)?;
    sock.set_timeout(SO_RCVTIMEO, 150)?;
    let mut buf = [0; 20];
    expect_eq(sock.recv(&mut buf, libc::MSG_WAITALL)?, 9, "what was there")?;
    expect(
        buf[..9] == Span::new(env.seed, 0, 9).to_vec(),
        "wrong bytes",
    )
}

/// Microseconds of SO_BUSY_POLL that no test waits for.
const LONG_US: i32 = 60_000_000;

/// A receive polls no longer than its time limit.
fn busy_poll_timeout(env: &Env) -> Outcome {
    let (sock, _remote) = env.pair()?;
    sock.set_int(SOL_SOCKET, SO_BUSY_POLL, LONG_US)?;
    expect_eq(sock.get_int(SOL_SOCKET, SO_BUSY_POLL)?, LONG_US, "the time")?;
    sock.set_timeout(SO_RCVTIMEO, 150)?;
    let start = Instant::now();
    expect_errno(sock.recv(&mut [0], 0), EAGAIN, "recv")?;
    expect_waited(start)?;
    expect(start.elapsed() < Duration::from_secs(30), "it polled on")?;
    expect_errno(sock.recv(&mut [0], MSG_DONTWAIT), EAGAIN, "recv")
}

/// Receives that poll get the bytes of small and large sends, and the end of the stream.
fn busy_poll_receives(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    for end in [&sock, &other] {
        end.set_int(SOL_SOCKET, SO_BUSY_POLL, LONG_US)?;
    }
    let lens = [1, 4096, 100_000, 1 << 20];
    let spans = move |turn| lens.map(|len| Span::new(turn, 0, len));
    let (asks, answers) = (env.seed, env.seed + 1);
    let peer = flow::spawn(move || -> Outcome {
        for (asked, answer) in spans(asks).into_iter().zip(spans(answers)) {
            receive(&other, asked)?;
            send(&other, answer)?;
        }
        Ok(())
    })?;
    for (asked, answer) in spans(asks).into_iter().zip(spans(answers)) {
        send(&sock, asked)?;
        receive(&sock, answer)?;
    }
    joined(peer)??;
    expect_eq(sock.recv(&mut [0], 0)?, 0, "the end of the stream")
}

/// A receive that polls does not hold up the socket's other calls.
fn busy_poll_beside_a_sender(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    sock.set_int(SOL_SOCKET, SO_BUSY_POLL, LONG_US)?;
    let sock = Arc::new(sock);
    let reading = Arc::clone(&sock);
    let span = Span::new(env.seed, 0, 5);
    let reader = flow::spawn(move || receive(&reading, span))?;
    pause();
    expect(!reader.is_finished(), "it did not wait")?;
    let sent = Span::new(env.seed + 1, 0, 200_000);
    let job = remote.start(Work::Sink(sent))?;
    send(&sock, sent)?;
    expect_received(job.join_received()?, sent, "the peer")?;
    remote.send(span, 0)?;
    joined(reader)?
}

fn send_timeout(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let full = Span::new(env.seed, 0, fill(&sock, env.seed)?);
    sock.set_timeout(SO_SNDTIMEO, 150)?;
    let start = Instant::now();
    // A socket may have some room left that poll() does not report.
    let mut extra = 0;
    loop {
        let buf = Span::new(env.seed, full.len + extra, 1 << 20).to_vec();
        match sock.send(&buf, 0) {
            Ok(n) => extra += n as u64,
            Err(e) => {
                expect_errno::<()>(Err(e), EAGAIN, "send")?;
                break;
            }
        }
    }
    expect_waited(start)?;
    let all = Span::new(env.seed, 0, full.len + extra);
    expect_received(remote.recv_span(all, 50_000)?, all, "the peer")
}

fn rcvlowat(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    expect_eq(sock.get_int(SOL_SOCKET, SO_RCVLOWAT)?, 1, "at first")?;
    // The receive buffer must have room for so many bytes.
    sock.set_int(SOL_SOCKET, SO_RCVLOWAT, i32::MAX)?;
    let most = sock.get_int(SOL_SOCKET, SO_RCVLOWAT)?;
    expect(most < i32::MAX / 2, format!("at most {most}"))?;
    sock.set_int(SOL_SOCKET, SO_RCVLOWAT, 100)?;
    expect_eq(sock.get_int(SOL_SOCKET, SO_RCVLOWAT)?, 100, "when set")?;
    remote.send(Span::new(env.seed, 0, 60), 0)?;
    eventually("readable bytes", || readable_bytes(&sock), |&n| n == 60)?;
    expect_eq(sock.poll(POLLIN, QUIET_MS)?, 0, "poll below it")?;
    let waiting = {
        let sock = sock.dup()?;
        flow::spawn(move || -> std::io::Result<usize> {
            let mut buf = [0; 1000];
            sock.recv(&mut buf, 0)
        })?
    };
    pause();
    expect(!waiting.is_finished(), "recv returned below it")?;
    // TCP wakes a reader that has taken 60 bytes only when 100 more are there.
    remote.send(Span::new(env.seed, 60, 100), 0)?;
    expect_eq(joined(waiting)??, 160, "received")?;
    remote.send(Span::new(env.seed, 0, 100), 0)?;
    expect_eq(sock.poll(POLLIN, -1)?, POLLIN, "poll at it")?;
    receive(&sock, Span::new(env.seed, 0, 100))?;
    // At the end of the stream any number of bytes is enough.
    remote.send(Span::new(env.seed, 0, 7), 0)?;
    remote.shutdown(libc::SHUT_WR)?;
    expect_eq(sock.poll(POLLIN, -1)?, POLLIN, "poll at the end")?;
    expect_eq(sock.recv(&mut [0; 1000], 0)?, 7, "the rest")
}

/// A waiting poll() returns when SO_RCVLOWAT is set to the number of bytes that are there.
fn rcvlowat_falls(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    sock.set_int(SOL_SOCKET, SO_RCVLOWAT, 100)?;
    remote.send(Span::new(env.seed, 0, 60), 0)?;
    eventually("readable bytes", || readable_bytes(&sock), |&n| n == 60)?;
    let polled = sock.dup()?;
    let waiting = flow::spawn(move || polled.poll(POLLIN, 20_000))?;
    pause();
    sock.set_int(SOL_SOCKET, SO_RCVLOWAT, 61)?;
    pause();
    expect(!waiting.is_finished(), "poll returned below it")?;
    sock.set_int(SOL_SOCKET, SO_RCVLOWAT, 60)?;
    expect_eq(joined(waiting)??, POLLIN, "poll")?;
    sock.set_int(SOL_SOCKET, SO_RCVLOWAT, 0)?;
    expect_eq(sock.get_int(SOL_SOCKET, SO_RCVLOWAT)?, 1, "0 as")
}

/// poll() reports bytes if they fill the buffer, although SO_RCVLOWAT is larger.
fn rcvlowat_beyond_the_buffer(env: &Env) -> Outcome {
    let (sock, remote) = env.own_pair()?;
    fill(&remote, env.seed)?;
    sock.set_int(SOL_SOCKET, SO_RCVLOWAT, i32::MAX)?;
    expect_eq(sock.poll(POLLIN, -1)?, POLLIN, "poll with a full buffer")?;
    expect(
        sock.recv(&mut [0; 1000], MSG_DONTWAIT)? > 0,
        "nothing there",
    )
}

/// A program may wait for a few more bytes with MSG_PEEK, however small its buffer is.
fn peek_into_the_smallest_buffer(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    sock.set_int(SOL_SOCKET, libc::SO_RCVBUF, 1)?;
    other.set_int(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    let span = Span::new(env.seed, 0, 20);
    let bytes = span.to_vec();
    for byte in bytes.chunks(1) {
        other.send(byte, 0)?;
    }
    let mut buf = [0; 20];
    let flags = libc::MSG_PEEK | libc::MSG_WAITALL;
    expect_eq(sock.recv(&mut buf, flags)?, 20, "peeked")?;
    expect_eq(buf.to_vec(), bytes, "the bytes")?;
    receive(&sock, span)
}

/// A peer that reads nothing counts as a peer that does not answer.
fn user_timeout_of_a_full_peer(env: &Env) -> Outcome {
    let (sock, _other) = env.own_pair()?;
    let start = Instant::now();
    // The option is set afterwards, because this may take as long as the time-out.
    fill(&sock, env.seed)?;
    sock.set_int(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 2000)?;
    eventually("the end", || sock.poll(libc::POLLERR, 200), |&p| p != 0)?;
    let error = sock.get_int(SOL_SOCKET, libc::SO_ERROR)?;
    expect_eq(error, libc::ETIMEDOUT, "SO_ERROR")?;
    expect(start.elapsed() >= Duration::from_millis(1900), "too early")
}

/// Bytes of the peer, and messages about them, do not count as an answer to bytes that the peer does
/// not take.
fn user_timeout_of_a_full_peer_that_sends(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    fill(&sock, env.seed)?;
    sock.set_int(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 5000)?;
    let ended = Instant::now() + Duration::from_secs(40);
    while sock.poll(libc::POLLERR, 0)? == 0 {
        expect(Instant::now() < ended, "the connection lives on")?;
        other.send(&[0; 1000], libc::MSG_NOSIGNAL)?;
        std::thread::sleep(Duration::from_millis(600));
        // Ends with the connection.
        let _ = sock.recv(&mut [0; 1000], MSG_DONTWAIT);
    }
    Ok(())
}

/// Bytes that the program itself holds back do not count as unanswered.
fn user_timeout_of_a_quiet_peer(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    sock.set_int(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 500)?;
    sock.send(b"first", 0)?;
    sock.send(b"held", libc::MSG_MORE)?;
    std::thread::sleep(Duration::from_secs(4));
    expect_eq(sock.get_int(SOL_SOCKET, libc::SO_ERROR)?, 0, "SO_ERROR")?;
    sock.send(b"last", 0)?;
    let mut buf = [0; 13];
    expect_eq(other.recv(&mut buf, libc::MSG_WAITALL)?, 13, "received")?;
    expect_eq(&buf, b"firstheldlast", "the bytes")
}

/// SIOCINQ and SIOCOUTQ.
fn unread_and_unsent_counts(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let outq = || sock.ioctl_int(libc::TIOCOUTQ);
    expect_eq(outq()?, 0, "SIOCOUTQ at first")?;
    expect_eq(readable_bytes(&sock)?, 0, "SIOCINQ at first")?;
    remote.send(Span::new(env.seed, 0, 1234), 0)?;
    eventually("SIOCINQ", || readable_bytes(&sock), |&n| n == 1234)?;
    receive(&sock, Span::new(env.seed, 0, 1000))?;
    expect_eq(readable_bytes(&sock)?, 234, "SIOCINQ after recv")?;
    let span = Span::new(env.seed, 0, fill(&sock, env.seed)?);
    expect(outq()? > 0, "SIOCOUTQ when full")?;
    expect(outq()? as u64 <= span.len, "SIOCOUTQ beyond what was sent")?;
    expect_received(remote.recv_span(span, 50_000)?, span, "the peer")?;
    eventually("SIOCOUTQ at the end", outq, |&n| n == 0)?;
    let (listener, _) = env.listener(1)?;
    expect_errno(
        readable_bytes(&listener),
        libc::EINVAL,
        "SIOCINQ of a listener",
    )?;
    let out = listener.ioctl_int(libc::TIOCOUTQ);
    expect_errno(out, libc::EINVAL, "SIOCOUTQ of a listener")
}

fn reader_slower_than_writer(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let exchange = Exchange {
        send_seed: env.seed,
        recv_seed: env.seed + 1,
        bytes: env.scaled(1 << 20),
        max: 1 << 20,
    };
    let theirs = Exchange {
        max: 777,
        ..exchange.mirrored()
    };
    let job = remote.start(Work::Exchange(theirs))?;
    let got = exchange.run(&Arc::new(sock))?;
    if let Some(text) = exchange.complaint(&got) {
        return failed(text);
    }
    job.join()?;
    Ok(())
}

/// Buffers grow and shrink while data flows through them.
fn buffer_sizes_change_under_way(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let exchange = Exchange {
        send_seed: env.seed,
        recv_seed: env.seed + 1,
        bytes: env.scaled(1 << 20),
        max: 50_000,
    };
    let job = remote.start(Work::Exchange(exchange.mirrored()))?;
    let sock = Arc::new(sock);
    let changed = Arc::clone(&sock);
    let stream = flow::spawn(move || exchange.run(&sock))?;
    // The sizes do not become very small: TCP would drop bytes on their way, and become very slow.
    for size in [50_000, 1 << 20, 60_000, 100_000].into_iter().cycle() {
        if stream.is_finished() {
            break;
        }
        changed.set_int(SOL_SOCKET, libc::SO_SNDBUF, size)?;
        changed.set_int(SOL_SOCKET, libc::SO_RCVBUF, size)?;
        std::thread::sleep(Duration::from_millis(2));
    }
    let got = joined(stream)??;
    if let Some(text) = exchange.complaint(&got) {
        return failed(text);
    }
    expect_eq(job.join()?, exchange.bytes.to_string(), "the peer")
}
