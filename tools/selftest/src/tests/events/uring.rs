// SPDX-License-Identifier: GPL-2.0
//! io_uring: a program that makes all calls by requests, and the completions of requests that wait.

use crate::support::flow::{spawn, Span};
use crate::support::harness::{
    expect, expect_eq, expect_errno, expect_errno_of, expect_received, joined, receive, send, skip,
    tests, Env, Fail, Family, Outcome, QUIET_MS,
};
use crate::support::sys::{Area, Request, Ring, Sock, PAGE};
use crate::tests::uncopied::inflight::Growth;
use libc::{
    ECANCELED, ECONNREFUSED, ECONNRESET, EINPROGRESS, EISCONN, ENOBUFS, EPIPE, ETIME, MSG_DONTWAIT,
    POLLIN, POLLOUT, POLLRDHUP, SHUT_RD, SHUT_WR, SOL_SOCKET, SO_PROTOCOL, SO_RCVBUF, SO_RCVLOWAT,
    SO_SNDBUF,
};
use std::io;
use std::thread;
use std::time::Duration;
use uapi::socket::{SDP_ZCOPY_MODE, SDP_ZCOPY_THRESH, SOL_SDP};

tests!("uring";
    all_calls,
    accepts_by_one_request,
    connects,
    connects_to_nobody,
    connects_twice,
    receives_by_one_request,
    receives_late,
    receives_a_reset,
    time_of_a_receive,
    cancelled_receive,
    closed_while_it_receives,
    polls_by_one_request,
    polls_beside_sends,
    polls_before_the_end,
    polls_for_enough,
    sends_more_than_there_is_room,
);

fn ring() -> Result<Ring, Fail> {
    match Ring::new()? {
        Some(ring) => Ok(ring),
        None => skip("there is no io_uring"),
    }
}

/// Expects that the request has no completion for a while.
fn is_quiet(ring: &mut Ring, request: Request, what: &str) -> Outcome {
    thread::sleep(Duration::from_millis(QUIET_MS as u64));
    match ring.already(request) {
        None => Ok(()),
        Some(told) => expect(false, format!("{what}: {told:?}")),
    }
}

/// Expects these bytes as the next ones of the receive.
fn receives(ring: &mut Ring, request: Request, want: &[u8], what: &str) -> Outcome {
    let mut got = Vec::new();
    while got.len() < want.len() {
        let told = ring.next(request)?;
        expect(
            told.ok()? > 0,
            format!("{what}: {told:?} after {} bytes", got.len()),
        )?;
        got.extend(told.bytes);
    }
    expect_eq(got.as_slice(), want, what)
}

/// socket(), bind(), listen(), accept(), connect(), send(), recv(), shutdown() and close().
fn all_calls(env: &Env) -> Outcome {
    let mut ring = ring()?;
    let (domain, protocol) = (env.family.domain(env.local), env.family.protocol());
    let listener = ring.socket(domain, protocol)?;
    let usual = env.socket()?.get_int(SOL_SOCKET, SO_PROTOCOL)?;
    expect_eq(
        listener.get_int(SOL_SOCKET, SO_PROTOCOL)?,
        usual,
        "SO_PROTOCOL",
    )?;
    ring.bind(&listener, &env.here(0))?;
    ring.listen(&listener, 4)?;
    let accept = ring.accept_all(&listener)?;
    let sock = ring.socket(domain, protocol)?;
    let connect = ring.connect(&sock, &listener.getsockname()?)?;
    expect_eq(ring.next(connect)?.ok()?, 0, "connect")?;
    let accepted = ring.next(accept)?.sock()?;
    let receive = ring.receive_all(&accepted)?;
    expect_eq(ring.send(&sock, b"all of it")?, 9, "send")?;
    receives(&mut ring, receive, b"all of it", "the server's receive")?;
    let answer = ring.receive(&sock)?;
    expect_eq(ring.send(&accepted, b"answer")?, 6, "send of the server")?;
    receives(&mut ring, answer, b"answer", "the client's receive")?;
    ring.shutdown(&sock, SHUT_WR)?;
    let end = ring.next(receive)?;
    expect_eq((end.ok()?, end.more), (0, false), "the end of the stream")?;
    ring.close(accepted)?;
    let end = ring.receive(&sock)?;
    expect_eq(ring.next(end)?.ok()?, 0, "the end for the client")?;
    ring.close(sock)?;
    ring.cancel(accept)?;
    expect_errno(ring.next(accept)?.ok(), ECANCELED, "accept")?;
    ring.close(listener)?;
    Ok(())
}

fn accepts_by_one_request(env: &Env) -> Outcome {
    let mut ring = ring()?;
    let (listener, addr) = env.listener(8)?;
    let peer = env.peer()?;
    let before = env.remote_socket(&peer)?;
    before.connect(&addr)?;
    let accept = ring.accept_all(&listener)?;
    let mut accepted = vec![ring.next(accept)?.sock()?];
    let mut remotes = vec![before];
    for _ in 0..4 {
        is_quiet(&mut ring, accept, "nobody connects")?;
        let remote = env.remote_socket(&peer)?;
        remote.connect(&addr)?;
        let told = ring.next(accept)?;
        expect(told.more, "it goes on")?;
        accepted.push(told.sock()?);
        remotes.push(remote);
    }
    for (sock, remote) in accepted.iter().zip(&remotes) {
        expect_eq(
            sock.getpeername()?.to_std(),
            remote.getsockname()?.to_std(),
            "the peer",
        )?;
    }
    listener.shutdown(SHUT_RD)?;
    let told = ring.next(accept)?;
    expect_errno(told.ok(), libc::EINVAL, "after shutdown() of the listener")?;
    expect(!told.more, "it ends")
}

fn connects(env: &Env) -> Outcome {
    let mut ring = ring()?;
    for nonblocking in [false, true] {
        let (listener, addr) = env.remote_listener(2)?;
        let sock = env.socket()?;
        sock.set_nonblocking(nonblocking)?;
        let connect = ring.connect(&sock, &addr)?;
        match ring.next(connect)?.ok() {
            // Such a request does not wait; it succeeds only if the connection is made at once.
            Err(e) if nonblocking && e.raw_os_error() == Some(EINPROGRESS) => {}
            told => expect_eq(told?, 0, "connect")?,
        }
        let (remote, from) = listener.accept()?;
        expect_eq(from.to_std(), sock.getsockname()?.to_std(), "accepted")?;
        sock.poll(POLLOUT, -1)?;
        expect_eq(sock.take_error()?, 0, "SO_ERROR")?;
        sock.send_all(b"connected")?;
        expect_eq(remote.recv(16, 0)?, b"connected".to_vec(), "received")?;
    }
    Ok(())
}

fn connects_to_nobody(env: &Env) -> Outcome {
    let mut ring = ring()?;
    let (listener, addr) = env.remote_listener(1)?;
    listener.close()?;
    let sock = env.socket()?;
    for round in 0..2 {
        let connect = ring.connect(&sock, &addr)?;
        expect_errno(
            ring.next(connect)?.ok(),
            ECONNREFUSED,
            format!("round {round}"),
        )?;
        expect_eq(sock.take_error()?, 0, "SO_ERROR")?;
    }
    Ok(())
}

fn connects_twice(env: &Env) -> Outcome {
    let mut ring = ring()?;
    let (_listener, addr) = env.remote_listener(1)?;
    let sock = env.socket()?;
    let connect = ring.connect(&sock, &addr)?;
    expect_eq(ring.next(connect)?.ok()?, 0, "once")?;
    let connect = ring.connect(&sock, &addr)?;
    expect_errno(ring.next(connect)?.ok(), EISCONN, "twice")
}

fn receives_by_one_request(env: &Env) -> Outcome {
    let mut ring = ring()?;
    let (sock, remote) = env.pair()?;
    let receive = ring.receive_all(&sock)?;
    is_quiet(&mut ring, receive, "nothing was sent")?;
    let mut at = Span::new(env.seed, 0, 0);
    for len in [1, 63, 64, 65, 1000] {
        let span = at.after(len);
        remote.send(span, 0)?;
        receives(&mut ring, receive, &span.to_vec(), &format!("{len} bytes"))?;
        is_quiet(&mut ring, receive, "all was received")?;
        at = span;
    }
    remote.shutdown(SHUT_WR)?;
    let end = ring.next(receive)?;
    expect_eq((end.ok()?, end.more), (0, false), "the end")?;
    // Pieces are not provided again after their use, and those that are left do not suffice.
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 8192);
    remote.send(span, 0)?;
    let receive = ring.receive_all(&sock)?;
    let mut got = Vec::new();
    let end = loop {
        let told = ring.next(receive)?;
        if told.result <= 0 {
            break told;
        }
        got.extend(told.bytes);
    };
    expect_errno(end.ok(), ENOBUFS, "no memory is left")?;
    let mut rest = vec![0; span.to_vec().len() - got.len()];
    sock.recv_exact(&mut rest)?;
    got.extend(rest);
    expect_eq(got, span.to_vec(), "and no byte is lost")
}

/// The bytes and the end arrive before the request begins.
fn receives_late(env: &Env) -> Outcome {
    let mut ring = ring()?;
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 100);
    remote.send(span, 0)?;
    remote.shutdown(SHUT_WR)?;
    sock.poll(POLLRDHUP, -1)?;
    let receive = ring.receive_all(&sock)?;
    receives(&mut ring, receive, &span.to_vec(), "all that was sent")?;
    expect_eq(ring.next(receive)?.ok()?, 0, "the end")
}

fn receives_a_reset(env: &Env) -> Outcome {
    let mut ring = ring()?;
    let (sock, remote) = env.pair()?;
    let receive = ring.receive(&sock)?;
    is_quiet(&mut ring, receive, "nothing was sent")?;
    remote.reset()?;
    expect_errno(ring.next(receive)?.ok(), ECONNRESET, "receive")?;
    expect_errno_of(ring.send(&sock, b"late"), &[EPIPE], "send")
}

fn time_of_a_receive(env: &Env) -> Outcome {
    let mut ring = ring()?;
    let (sock, remote) = env.pair()?;
    let (receive, time) = ring.receive_for(&sock, 100)?;
    expect_errno(ring.next(receive)?.ok(), ECANCELED, "the receive")?;
    expect_errno(ring.next(time)?.ok(), ETIME, "its time")?;
    // The next receive gets the bytes.
    let span = Span::new(env.seed, 0, 20);
    remote.send(span, 0)?;
    sock.poll(POLLIN, -1)?;
    let (receive, time) = ring.receive_for(&sock, 900)?;
    receives(&mut ring, receive, &span.to_vec(), "in time")?;
    expect_errno(ring.next(time)?.ok(), ECANCELED, "the time")
}

fn cancelled_receive(env: &Env) -> Outcome {
    let mut ring = ring()?;
    let (sock, remote) = env.pair()?;
    for round in 0..3 {
        let receive = ring.receive(&sock)?;
        is_quiet(&mut ring, receive, "nothing was sent")?;
        ring.cancel(receive)?;
        expect_errno(
            ring.next(receive)?.ok(),
            ECANCELED,
            format!("round {round}"),
        )?;
    }
    let span = Span::new(env.seed, 0, 30);
    remote.send(span, 0)?;
    let receive = ring.receive(&sock)?;
    receives(&mut ring, receive, &span.to_vec(), "afterwards")
}

/// A request has a reference to its socket, so the connection lasts until the request has ended.
fn closed_while_it_receives(env: &Env) -> Outcome {
    let mut ring = ring()?;
    let (sock, remote) = env.pair()?;
    let receive = ring.receive(&sock)?;
    is_quiet(&mut ring, receive, "nothing was sent")?;
    ring.close(sock)?;
    is_quiet(&mut ring, receive, "closed")?;
    let span = Span::new(env.seed, 0, 40);
    remote.send(span, 0)?;
    receives(&mut ring, receive, &span.to_vec(), "received")?;
    expect_eq(remote.recv(1, 0)?, Vec::new(), "then the peer sees the end")
}

fn polls_by_one_request(env: &Env) -> Outcome {
    let mut ring = ring()?;
    let (sock, remote) = env.pair()?;
    let poll = ring.poll_all(&sock, POLLIN | POLLRDHUP)?;
    is_quiet(&mut ring, poll, "nothing was sent")?;
    for round in 0..3 {
        remote.send(Span::new(env.seed, round, 1), 0)?;
        let told = ring.next(poll)?;
        expect_eq(told.ok()?, i32::from(POLLIN), format!("round {round}"))?;
        expect(told.more, "it goes on")?;
        sock.recv_exact(&mut [0])?;
        // Other wake-ups must not be reported as events.
        is_quiet(&mut ring, poll, "all was received")?;
    }
    remote.shutdown(SHUT_WR)?;
    let told = ring.next(poll)?.ok()?;
    expect_eq(told, i32::from(POLLIN | POLLRDHUP), "the end of the stream")
}

/// Wake-ups of threads that wait in a call on the socket are not events.
fn polls_beside_sends(env: &Env) -> Outcome {
    let mut ring = ring()?;
    let (sock, remote) = env.pair()?;
    if env.family == Family::Sdp {
        // Each send waits until the peer has read its memory.
        sock.set_int(SOL_SDP, SDP_ZCOPY_THRESH, 16384)?;
        sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, 2)?;
    }
    let poll = ring.poll_all(&sock, POLLIN | POLLRDHUP)?;
    let adverts = Growth::of(env, "advert_posted")?;
    let seed = env.seed;
    let sending =
        spawn(move || (0..8).try_for_each(|n| send(&sock, Span::new(seed, n << 18, 1 << 18))))?;
    for n in 0..8 {
        let span = Span::new(seed, n << 18, 1 << 18);
        expect_received(remote.recv_span(span, 1 << 18)?, span, "at the peer")?;
        is_quiet(&mut ring, poll, "nothing was sent to this side")?;
    }
    joined(sending)??;
    match env.family {
        Family::Tcp => Ok(()),
        Family::Sdp => adverts.at_least(4),
    }
}

/// The end of the stream is not an event as long as bytes before it have to be read from the peer,
/// and neither is the wake-up of a thread that reads them.
fn polls_before_the_end(env: &Env) -> Outcome {
    const ROUNDS: u64 = 10;
    const LEN: u64 = 1 << 20;
    for round in 0..ROUNDS {
        // A ring holds the sockets for which it waits.
        let mut ring = ring()?;
        let (one, other) = env.own_pair()?;
        if env.family == Family::Sdp {
            // Sends return before the peer has read their memory.
            one.set_int(SOL_SDP, SDP_ZCOPY_THRESH, 16384)?;
            one.set_int(SOL_SDP, SDP_ZCOPY_MODE, 3)?;
        }
        let poll = ring.poll_all(&other, POLLIN)?;
        let span = Span::new(env.seed, round * LEN, LEN);
        // Whole pages: the message with their advert carries no bytes.
        let mut pages = Area::new(LEN as usize / PAGE)?;
        pages.bytes(LEN as usize).copy_from_slice(&span.to_vec());
        one.send_raw(pages.at(0), LEN as usize, 0)?;
        one.shutdown(SHUT_WR)?;
        ring.next(poll)?.ok()?;
        let mut first = [0];
        let got = other.recv(&mut first, MSG_DONTWAIT);
        expect(
            got.is_ok(),
            format!("an event without bytes in round {round}: {got:?}"),
        )?;
        expect_eq(first[0], span.to_vec()[0], "the first byte")?;
        let rest = Span::new(env.seed, span.offset + 1, LEN - 1);
        receive(&other, rest)?;
        expect_eq(other.recv(&mut first, 0)?, 0, "the end")?;
    }
    Ok(())
}

/// Fewer bytes than SO_RCVLOWAT are no event.
fn polls_for_enough(env: &Env) -> Outcome {
    const ENOUGH: u64 = 100;
    for round in 0..3 {
        let mut ring = ring()?;
        let (one, other) = env.own_pair()?;
        other.set_int(SOL_SOCKET, SO_RCVLOWAT, ENOUGH as i32)?;
        let poll = ring.poll_all(&other, POLLIN)?;
        let span = Span::new(env.seed, round * ENOUGH, ENOUGH);
        let bytes = span.to_vec();
        one.send(&bytes[..1], 0)?;
        is_quiet(&mut ring, poll, "an event for one byte")?;
        one.send(&bytes[1..], 0)?;
        ring.next(poll)?.ok()?;
        receive(&other, span)?;
    }
    Ok(())
}

/// A send that waits for room goes on when the peer reads.
fn sends_more_than_there_is_room(env: &Env) -> Outcome {
    const BUFFER: i32 = 1 << 16;
    let mut ring = ring()?;
    let (sock, remote) = env.pair_with(
        |sock| sock.set_int(SOL_SOCKET, SO_SNDBUF, BUFFER),
        |remote| remote.set_int(SOL_SOCKET, SO_RCVBUF, BUFFER),
    )?;
    sock.set_nonblocking(true)?;
    let sent = fill_up(&sock)?;
    sock.set_nonblocking(false)?;
    let reader = {
        let remote = remote.clone();
        thread::spawn(move || -> io::Result<usize> {
            thread::sleep(Duration::from_millis(QUIET_MS as u64));
            let mut got = 0;
            while got < sent + 9 {
                match remote.recv(1 << 16, 0)?.len() {
                    0 => break,
                    n => got += n,
                }
            }
            Ok(got)
        })
    };
    expect_eq(ring.send(&sock, b"the last!")?, 9, "send")?;
    let got = reader
        .join()
        .map_err(|_| io::Error::other("the reader panicked"))??;
    expect_eq(got, sent + 9, "the bytes that the peer has read")
}

/// Sends until there is no room; returns the number of bytes sent.
fn fill_up(sock: &Sock) -> Result<usize, Fail> {
    let mut sent = 0;
    loop {
        match sock.send(&[7; 4096], 0) {
            Ok(len) => sent += len,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                // More room appears as long as messages are in transit.
                if sock.poll(POLLOUT, QUIET_MS)? == 0 {
                    return Ok(sent);
                }
            }
            Err(e) => return Err(e.into()),
        }
    }
}
