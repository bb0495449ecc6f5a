// SPDX-License-Identifier: GPL-2.0
//! Buffers that are not there, or not all of them: what was taken or given is
//! told rightly, and the stream is whole.

use super::badinput::{stream_goes_on, NOWHERE};
use crate::flow::Span;
use crate::harness::{
    eventually, expect, expect_errno, expect_received, readable_bytes, receive, tests, Env, Fail,
    Outcome,
};
use crate::peer::Remote;
use crate::sys::{Area, RawVec, Sock, PAGE};
use libc::{EFAULT, MSG_DONTWAIT, MSG_NOSIGNAL};

tests!("memory";
    send_from_nowhere,
    send_partly_from_nowhere,
    send_iovecs_partly_from_nowhere,
    send_whole_file_of_holes,
    recv_to_nowhere,
    recv_partly_to_nowhere,
    recv_to_read_only_memory,
    recv_iovecs_partly_to_nowhere,
);

fn send_from_nowhere(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    for addr in NOWHERE {
        for len in [1, 100, 10_000, 1 << 20] {
            let result = sock.send_raw(addr, len, MSG_NOSIGNAL);
            expect_errno(result, EFAULT, format!("{len} bytes at {addr:#x}"))?;
        }
    }
    stream_goes_on(env, &sock, &remote, 0)
}

/// What is sent of a buffer that ends too early is a prefix of it, or nothing.
fn send_partly_from_nowhere(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let mut offset = 0;
    for (good_pages, skip, beyond) in [(1, 0, 1), (1, 4000, 5000), (16, 77, 1 << 20), (64, 1, 1)] {
        let mut area = Area::new(good_pages + 300)?;
        let good = good_pages * PAGE - skip;
        let span = Span::new(env.seed, offset, good as u64);
        let bytes = span.to_vec();
        area.bytes(good_pages * PAGE)[skip..].copy_from_slice(&bytes);
        area.forbid_from(good_pages)?;
        let sent = match sock.send_raw(area.at(skip), good + beyond, MSG_NOSIGNAL) {
            Ok(n) => n as u64,
            Err(e) => {
                expect_errno::<()>(Err(e), EFAULT, "send")?;
                0
            }
        };
        expect(sent <= span.len, format!("{sent} of {} sent", span.len))?;
        let taken = Span { len: sent, ..span };
        expect_received(remote.recv_span(taken, 9000)?, taken, "the prefix")?;
        offset += sent;
        stream_goes_on(env, &sock, &remote, offset)?;
        offset += 5000;
    }
    Ok(())
}

fn send_iovecs_partly_from_nowhere(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 20_000);
    let bytes = span.to_vec();
    let at = bytes.as_ptr() as usize;
    let vecs = [
        RawVec {
            base: at,
            len: 7000,
        },
        RawVec {
            base: at + 7000,
            len: 3000,
        },
        RawVec {
            base: PAGE - 100,
            len: 4000,
        },
        RawVec {
            base: at + 10_000,
            len: 10_000,
        },
    ];
    let sent = match sock.sendmsg_raw(vecs.as_ptr() as usize, vecs.len(), MSG_NOSIGNAL) {
        Ok(n) => n as u64,
        Err(e) => {
            expect_errno::<()>(Err(e), EFAULT, "sendmsg")?;
            0
        }
    };
    expect(sent <= 10_000, format!("{sent} sent beyond the hole"))?;
    let taken = Span { len: sent, ..span };
    expect_received(remote.recv_span(taken, 9000)?, taken, "the prefix")?;
    stream_goes_on(env, &sock, &remote, sent)
}

/// Large, with every other page missing.
fn send_whole_file_of_holes(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let mut offset = 0;
    for first in [3, 9, 100] {
        let mut area = Area::new(200)?;
        let span = Span::new(env.seed, offset, (first * PAGE) as u64);
        area.bytes(first * PAGE).copy_from_slice(&span.to_vec());
        area.forbid_from(first)?;
        let vecs: Vec<RawVec> = (0..200)
            .map(|i| RawVec {
                base: area.at(i * PAGE),
                len: PAGE,
            })
            .collect();
        let result = sock.sendmsg_raw(vecs.as_ptr() as usize, vecs.len(), MSG_NOSIGNAL);
        let sent = match result {
            Ok(n) => n as u64,
            Err(e) => {
                expect_errno::<()>(Err(e), EFAULT, "sendmsg")?;
                0
            }
        };
        expect(sent <= span.len, format!("{sent} sent"))?;
        let taken = Span { len: sent, ..span };
        expect_received(remote.recv_span(taken, 9000)?, taken, "the prefix")?;
        offset += sent;
    }
    stream_goes_on(env, &sock, &remote, offset)
}

/// A connection with `len` bytes of the pattern waiting to be received.
pub(super) fn waiting(env: &Env, len: u64) -> Result<(Sock, Remote, Span), Fail> {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, len);
    remote.send_span(span, 10_000)?;
    eventually(
        "readable bytes",
        || readable_bytes(&sock),
        |&n| n as u64 == len,
    )?;
    Ok((sock, remote, span))
}

fn recv_to_nowhere(env: &Env) -> Outcome {
    let (sock, _remote, span) = waiting(env, 20_000)?;
    for addr in NOWHERE {
        for len in [1, 4096, 30_000] {
            // SAFETY: nothing is mapped there.
            let result = unsafe { sock.recv_raw(addr, len, MSG_DONTWAIT) };
            expect_errno(result, EFAULT, format!("{len} bytes to {addr:#x}"))?;
        }
    }
    receive(&sock, span)
}

/// Checks what a recv() into the start of `area` gave, and the rest of the
/// stream behind it: nothing is lost, nothing comes twice.
fn nothing_lost(sock: &Sock, span: Span, result: std::io::Result<usize>, bytes: &[u8]) -> Outcome {
    let got = match result {
        Ok(n) => n,
        Err(e) => {
            expect_errno::<()>(Err(e), EFAULT, "recv")?;
            0
        }
    };
    expect(
        got <= bytes.len(),
        format!("{got} where {} fit", bytes.len()),
    )?;
    expect(bytes[..got] == span.to_vec()[..got], "wrong bytes")?;
    receive(sock, span.after(got as u64))
}

fn recv_partly_to_nowhere(env: &Env) -> Outcome {
    for (good_pages, skip) in [(1, 0), (1, 4000), (3, 77), (5, 0)] {
        let (sock, _remote, span) = waiting(env, 30_000)?;
        let mut area = Area::new(good_pages + 20)?;
        area.forbid_from(good_pages)?;
        // SAFETY: all that is writable there is the area's.
        let result = unsafe { sock.recv_raw(area.at(skip), 30_000, MSG_DONTWAIT) };
        let bytes = &area.bytes(good_pages * PAGE)[skip..];
        nothing_lost(&sock, span, result, bytes)?;
    }
    Ok(())
}

fn recv_to_read_only_memory(env: &Env) -> Outcome {
    let (sock, _remote, span) = waiting(env, 10_000)?;
    let mut area = Area::new(4)?;
    area.read_only_from(1)?;
    // SAFETY: all that is writable there is the area's.
    let result = unsafe { sock.recv_raw(area.at(PAGE), 10_000, MSG_DONTWAIT) };
    expect_errno(result, EFAULT, "recv")?;
    // SAFETY: as above.
    let result = unsafe { sock.recv_raw(area.at(PAGE - 10), 10_000, MSG_DONTWAIT) };
    let bytes = &area.bytes(PAGE)[PAGE - 10..];
    nothing_lost(&sock, span, result, bytes)
}

fn recv_iovecs_partly_to_nowhere(env: &Env) -> Outcome {
    let (sock, _remote, span) = waiting(env, 20_000)?;
    let mut area = Area::new(10)?;
    area.forbid_from(3)?;
    let vecs = [
        RawVec {
            base: area.at(0),
            len: 5000,
        },
        RawVec {
            base: area.at(5000),
            len: 0,
        },
        RawVec {
            base: area.at(5000),
            len: 3000,
        },
        RawVec {
            base: area.at(3 * PAGE),
            len: 1000,
        },
        RawVec {
            base: area.at(8000),
            len: 1000,
        },
    ];
    // SAFETY: all that is writable there is the area's.
    let result = unsafe { sock.recvmsg_raw(vecs.as_ptr() as usize, vecs.len(), MSG_DONTWAIT) };
    nothing_lost(&sock, span, result, &area.bytes(8000)[..])
}
