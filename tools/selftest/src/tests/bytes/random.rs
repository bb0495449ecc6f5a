// SPDX-License-Identifier: GPL-2.0
//! Random calls on both ends of a connection, against a model that knows how
//! many bytes are on their way in each direction.

use crate::support::flow::Span;
use crate::support::harness::{
    expect, expect_eof, expect_eq, readable_bytes, receive, tests, Env, Fail, Outcome,
};
use crate::support::pattern::{Pattern, Rng};
use crate::support::sys::Sock;
use libc::{EAGAIN, IPPROTO_TCP, MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL, MSG_PEEK, MSG_TRUNC};
use std::io::{self, IoSlice, IoSliceMut};

tests!("random";
    calls_with_large_buffers,
    calls_with_small_buffers,
    calls_of_few_bytes,
);

fn calls_with_large_buffers(env: &Env) -> Outcome {
    run(env, 200_000, None)
}

fn calls_with_small_buffers(env: &Env) -> Outcome {
    run(env, 20_000, Some(4096))
}

fn calls_of_few_bytes(env: &Env) -> Outcome {
    run(env, 40, None)
}

/// One direction: the numbers of bytes that were sent and received.
struct Direction {
    pattern: Pattern,
    seed: u64,
    sent: u64,
    received: u64,
}

impl Direction {
    fn new(seed: u64) -> Direction {
        Direction {
            pattern: Pattern::new(seed),
            seed,
            sent: 0,
            received: 0,
        }
    }

    fn on_the_way(&self) -> u64 {
        self.sent - self.received
    }
}

/// The number of bytes, or 0 if the call would have to wait.
fn or_wait(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(e) if e.raw_os_error() == Some(EAGAIN) => Ok(0),
        other => other,
    }
}

fn run(env: &Env, max: usize, buffers: Option<i32>) -> Outcome {
    for round in 0..env.scaled(8) {
        let seed = env.seed.wrapping_mul(1000) + round;
        if let Err(Fail::Failed(text)) = one_run(env, seed, max, buffers) {
            return Err(Fail::Failed(format!("seed {seed}: {text}")));
        }
    }
    Ok(())
}

fn one_run(env: &Env, seed: u64, max: usize, buffers: Option<i32>) -> Outcome {
    let mut rng = Rng::new(seed);
    let (listener, addr) = env.listener(1)?;
    let first = env.socket()?;
    if let Some(size) = buffers {
        for sock in [&listener, &first] {
            sock.set_int(libc::SOL_SOCKET, libc::SO_SNDBUF, size)?;
            sock.set_int(libc::SOL_SOCKET, libc::SO_RCVBUF, size)?;
        }
    }
    first.connect(&addr)?;
    let ends = [first, listener.accept()?.0];
    let mut ways = [Direction::new(seed), Direction::new(seed + 1)];
    for _ in 0..env.scaled(150) {
        let from = rng.below(2);
        let (sender, receiver) = (&ends[from], &ends[1 - from]);
        let way = &mut ways[from];
        match rng.below(10) {
            0..4 => send_some(sender, way, &mut rng, max)?,
            4..7 => receive_some(receiver, way, &mut rng, max)?,
            7 => peek_some(receiver, way, &mut rng, max)?,
            8 => discard_some(receiver, way, &mut rng, max)?,
            _ => change_option(sender, &mut rng)?,
        }
        let readable = readable_bytes(receiver)? as u64;
        let most = way.on_the_way();
        expect(readable <= most, format!("{readable} readable of {most}"))?;
    }
    for (i, way) in ways.iter().enumerate() {
        ends[i].set_int(IPPROTO_TCP, libc::TCP_CORK, 0)?;
        ends[i].shutdown(libc::SHUT_WR)?;
        let rest = Span::new(way.seed, way.received, way.on_the_way());
        receive(&ends[1 - i], rest)?;
        expect_eof(&ends[1 - i])?;
    }
    Ok(())
}

fn send_some(sock: &Sock, way: &mut Direction, rng: &mut Rng, max: usize) -> Outcome {
    let mut buf = vec![0; rng.length(max)];
    way.pattern.fill(way.sent, &mut buf);
    let flags = MSG_DONTWAIT | MSG_NOSIGNAL | [0, 0, MSG_MORE][rng.below(3)];
    let sent = match rng.below(3) {
        0 => {
            let (head, tail) = buf.split_at(rng.below(buf.len() + 1));
            let slices = [IoSlice::new(head), IoSlice::new(&[]), IoSlice::new(tail)];
            or_wait(sock.sendmsg(&slices, flags))?
        }
        _ => or_wait(sock.send(&buf, flags))?,
    };
    expect(sent <= buf.len(), "more was sent than asked")?;
    buf.fill(0xdb);
    way.sent += sent as u64;
    Ok(())
}

/// Checks the first `got` bytes of `buf` against the next bytes of the stream.
fn check(way: &Direction, buf: &[u8], got: usize) -> Outcome {
    let most = way.on_the_way();
    expect(got as u64 <= most, format!("{got} came of {most}"))?;
    let verdict = way.pattern.check(way.received, &buf[..got]);
    expect_eq(
        verdict.wrong,
        0,
        format!("wrong bytes in {got} at {}", way.received),
    )
}

fn receive_some(sock: &Sock, way: &mut Direction, rng: &mut Rng, max: usize) -> Outcome {
    let mut buf = vec![0xee; rng.length(2 * max)];
    let got = match rng.below(3) {
        0 => {
            let middle = rng.below(buf.len() + 1);
            let (head, tail) = buf.split_at_mut(middle);
            let mut slices = [IoSliceMut::new(head), IoSliceMut::new(tail)];
            or_wait(sock.recvmsg(&mut slices, MSG_DONTWAIT).map(|(n, _)| n))?
        }
        _ => or_wait(sock.recv(&mut buf, MSG_DONTWAIT))?,
    };
    check(way, &buf, got)?;
    expect(
        buf[got..].iter().all(|&b| b == 0xee),
        "written beyond the end",
    )?;
    way.received += got as u64;
    Ok(())
}

fn peek_some(sock: &Sock, way: &Direction, rng: &mut Rng, max: usize) -> Outcome {
    let mut buf = vec![0xee; rng.length(2 * max)];
    let got = or_wait(sock.recv(&mut buf, MSG_DONTWAIT | MSG_PEEK))?;
    check(way, &buf, got)
}

fn discard_some(sock: &Sock, way: &mut Direction, rng: &mut Rng, max: usize) -> Outcome {
    let len = rng.length(max);
    // SAFETY: with MSG_TRUNC nothing is written.
    let result = unsafe { sock.recv_raw(0, len, MSG_DONTWAIT | MSG_TRUNC) };
    let got = or_wait(result)? as u64;
    let most = way.on_the_way();
    expect(
        got <= most.min(len as u64),
        format!("{got} discarded of {most}"),
    )?;
    way.received += got;
    Ok(())
}

/// Sets a random option. [`one_run`] removes a cork in the end, so that the rest of the stream is
/// sent.
fn change_option(sock: &Sock, rng: &mut Rng) -> Outcome {
    let value = rng.below(2) as i32;
    match rng.below(3) {
        0 => sock.set_int(IPPROTO_TCP, libc::TCP_NODELAY, value)?,
        1 => sock.set_int(IPPROTO_TCP, libc::TCP_CORK, value)?,
        _ => sock.set_int(libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1)?,
    }
    Ok(())
}
