// SPDX-License-Identifier: GPL-2.0
//! Data of every length arrives, in both directions, whole and in order.

use crate::support::flow::{Exchange, Span};
use crate::support::harness::{
    expect_eq, expect_errno, expect_received, failed, receive, send, tests, Env, Outcome,
};
use crate::support::peer::Work;
use crate::support::sys::Sock;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

tests!("lengths";
    zero,
    small_lengths_echoed,
    around_buffer_sizes,
    large_both_ways,
    ping_pong_of_one_byte,
    many_small_sends,
    received_in_small_pieces,
    iovecs,
    iovecs_of_length_zero,
    iovecs_1024,
    iovecs_received,
);

fn zero(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    expect_eq(sock.send(&[], 0)?, 0, "send of nothing")?;
    expect_eq(sock.sendmsg(&[], 0)?, 0, "sendmsg of nothing")?;
    sock.set_nonblocking(true)?;
    expect_errno(sock.recv(&mut [0], 0), libc::EAGAIN, "recv")?;
    remote.send(Span::new(env.seed, 0, 5), 0)?;
    sock.poll(libc::POLLIN, -1)?;
    expect_eq(sock.recv(&mut [], 0)?, 0, "recv of nothing")?;
    receive(&sock, Span::new(env.seed, 0, 5))
}

/// Sends a span to the peer's echo in one call and receives it back.
fn echoed(sock: &Sock, span: Span) -> Outcome {
    let mut buf = span.to_vec();
    let n = sock.send(&buf, 0)?;
    buf.fill(0xdb);
    expect_eq(n as u64, span.len, "sent")?;
    receive(sock, span)
}

fn small_lengths_echoed(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let job = remote.start(Work::Echo)?;
    let mut offset = 0;
    for len in 1..=300 {
        echoed(&sock, Span::new(env.seed, offset, len))?;
        offset += len;
    }
    sock.shutdown(libc::SHUT_WR)?;
    expect_eq(job.join()?, offset.to_string(), "echoed in all")
}

fn around_buffer_sizes(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let job = remote.start(Work::Echo)?;
    let mut offset = 0;
    for size in [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536] {
        for len in [
            size - 17,
            size - 16,
            size - 2,
            size - 1,
            size,
            size + 1,
            size + 2,
        ] {
            echoed(&sock, Span::new(env.seed, offset, len))?;
            offset += len;
        }
    }
    sock.shutdown(libc::SHUT_WR)?;
    expect_eq(job.join()?, offset.to_string(), "echoed in all")
}

/// Single calls of megabytes, in both directions at once.
fn large_both_ways(env: &Env) -> Outcome {
    let (sock, remote) = env.accepted_pair()?;
    let exchange = Exchange {
        send_seed: env.seed,
        recv_seed: env.seed + 1,
        bytes: env.scaled(2 << 20) + 3,
        max: 3 << 20,
    };
    let job = remote.start(Work::Exchange(exchange.mirrored()))?;
    let got = exchange.run(&Arc::new(sock))?;
    if let Some(text) = exchange.complaint(&got) {
        return failed(text);
    }
    expect_eq(job.join()?, exchange.bytes.to_string(), "the peer")
}

fn ping_pong_of_one_byte(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let job = remote.start(Work::Echo)?;
    let rounds = env.scaled(500);
    for i in 0..rounds {
        echoed(&sock, Span::new(env.seed, i, 1))?;
    }
    sock.shutdown(libc::SHUT_WR)?;
    expect_eq(job.join()?, rounds.to_string(), "echoed in all")
}

/// Many small sends without an answer in between.
fn many_small_sends(env: &Env) -> Outcome {
    for nodelay in [0, 1] {
        let (sock, remote) = env.pair()?;
        sock.set_int(libc::IPPROTO_TCP, libc::TCP_NODELAY, nodelay)?;
        let len = env.scaled(20_000);
        let span = Span::new(env.seed, 0, len + 1);
        let job = remote.start(Work::Sink(span))?;
        let bytes = Span::new(env.seed, 0, len).to_vec();
        for piece in bytes.chunks(7) {
            expect_eq(sock.send(piece, 0)?, piece.len(), "sent")?;
        }
        sock.shutdown(libc::SHUT_WR)?;
        let got = job.join_received()?;
        expect_received(
            got,
            Span::new(env.seed, 0, len),
            format!("nodelay {nodelay}"),
        )?;
        expect_eq(got.eof, true, "end of file")?;
    }
    Ok(())
}

/// A large message is received a few bytes at a time.
fn received_in_small_pieces(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, env.scaled(30_000));
    let job = remote.start(Work::Source { span, max: 20_000 })?;
    let mut rest = span;
    for len in (1..=13).cycle() {
        if rest.len == 0 {
            break;
        }
        let piece = Span {
            len: rest.len.min(len),
            ..rest
        };
        receive(&sock, piece)?;
        rest = rest.after(piece.len);
    }
    job.join()?;
    Ok(())
}

/// Cuts bytes into slices, whose lengths are taken from `lengths` by turns.
fn cut<'a>(mut bytes: &'a [u8], lengths: &[usize]) -> Vec<IoSlice<'a>> {
    let mut slices = Vec::new();
    for &len in lengths.iter().cycle() {
        let (head, tail) = bytes.split_at(len.min(bytes.len()));
        slices.push(IoSlice::new(head));
        bytes = tail;
        if bytes.is_empty() {
            return slices;
        }
    }
    slices
}

fn iovecs(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 50_000);
    let bytes = span.to_vec();
    let job = remote.start(Work::Sink(span))?;
    let n = sock.sendmsg(&cut(&bytes, &[1, 4096, 3, 1000, 8191, 17]), 0)?;
    expect_eq(n, bytes.len(), "sendmsg")?;
    expect_received(job.join_received()?, span, "the peer")
}

fn iovecs_of_length_zero(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 3000);
    let bytes = span.to_vec();
    let n = sock.sendmsg(&cut(&bytes, &[0, 0, 5, 0, 700, 0, 0]), 0)?;
    expect_eq(n, bytes.len(), "sendmsg")?;
    let empty = [IoSlice::new(&[]); 5];
    expect_eq(sock.sendmsg(&empty, 0)?, 0, "five times nothing")?;
    expect_received(remote.recv_span(span, 900)?, span, "the peer")
}

/// The maximum number of buffers (IOV_MAX), and one more.
fn iovecs_1024(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 7 * 1024);
    let bytes = span.to_vec();
    let slices = cut(&bytes, &[7]);
    expect_eq(slices.len(), 1024, "slices")?;
    expect_eq(sock.sendmsg(&slices, 0)?, bytes.len(), "sendmsg")?;
    expect_received(remote.recv_span(span, 9000)?, span, "the peer")?;
    let one = IoSlice::new(&bytes[..1]);
    let too_many = sock.sendmsg(&[one; 1025], 0);
    expect_errno(too_many, libc::EMSGSIZE, "1025 buffers")
}

fn iovecs_received(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let lengths = [3, 0, 1000, 1, 0, 0, 4097, 900];
    let total: usize = lengths.iter().sum();
    let span = Span::new(env.seed, 0, total as u64);
    for flags in [libc::MSG_PEEK | libc::MSG_WAITALL, libc::MSG_WAITALL] {
        if flags & libc::MSG_PEEK != 0 {
            remote.send_span(span, 999)?;
        }
        let mut bytes = vec![0xee; total];
        let mut slices = Vec::new();
        let mut rest = bytes.as_mut_slice();
        for len in lengths {
            let (head, tail) = rest.split_at_mut(len);
            slices.push(IoSliceMut::new(head));
            rest = tail;
        }
        let (n, _) = sock.recvmsg(&mut slices, flags)?;
        expect_eq(n, total, "recvmsg")?;
        expect_eq(bytes == span.to_vec(), true, "the bytes are right")?;
    }
    sock.set_nonblocking(true)?;
    expect_errno(sock.recv(&mut [0], 0), libc::EAGAIN, "nothing is left")?;
    send(&sock, Span::new(env.seed, 0, 10))
}
