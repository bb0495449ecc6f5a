// SPDX-License-Identifier: GPL-2.0
//! Buffers in memory of every kind, and buffers that are not accessible, or only in part: calls
//! return the right numbers of bytes, and the stream stays whole.

use super::badinput::{stream_goes_on, waiting, NOWHERE};
use crate::support::flow::{Exchange, Span};
use crate::support::harness::{
    expect, expect_eq, expect_errno, expect_received, receive, tests, Child, Env, Outcome,
};
use crate::support::peer::Work;
use crate::support::sys::{Area, Kind, RawVec, Sock, PAGE};
use libc::{EFAULT, MSG_DONTWAIT, MSG_NOSIGNAL};

tests!("memory";
    every_kind_of_memory,
    memory_shared_with_a_child,
    read_only_memory,
    same_buffer_both_ways,
    unmapped_after_send,
    send_from_nowhere,
    send_partly_from_nowhere,
    send_iovecs_partly_from_nowhere,
    send_whole_file_of_holes,
    recv_to_nowhere,
    recv_partly_to_nowhere,
    recv_to_read_only_memory,
    recv_iovecs_partly_to_nowhere,
);

/// Bytes are sent from and received into pages of every kind, at odd offsets.
fn every_kind_of_memory(env: &Env) -> Outcome {
    const PAGES: usize = 512;
    let kinds = [
        Kind::Private,
        Kind::Shared,
        Kind::Locked,
        Kind::File,
        Kind::FileCopy,
        Kind::Huge,
    ];
    for kind in kinds {
        let mut area = match Area::of(kind, PAGES) {
            // The system may have no huge pages, and may not allow locked ones.
            Err(_) if matches!(kind, Kind::Huge | Kind::Locked) => continue,
            area => area?,
        };
        let (sock, remote) = env.pair()?;
        for (start, len) in [(0, PAGE), (77, 3), (4095, 2), (1, 300_001), (PAGE, 65_536)] {
            let text = format!("{len} bytes at {start} of {kind:?}");
            let span = Span::new(env.seed, start as u64, len as u64);
            let job = remote.start(Work::Sink(span))?;
            let buf = &mut area.bytes(PAGES * PAGE)[start..start + len];
            buf.copy_from_slice(&span.to_vec());
            sock.send_all(buf)?;
            buf.fill(0xdb);
            expect_received(job.join_received()?, span, &text)?;
            let job = remote.start(Work::Source { span, max: 100_000 })?;
            sock.recv_exact(buf)?;
            expect(buf == span.to_vec(), format!("wrong bytes in {text}"))?;
            job.join()?;
        }
    }
    Ok(())
}

/// A child receives into memory that it shares with its parent. Then both send from pages that they
/// have shared since the fork, until one of them writes.
fn memory_shared_with_a_child(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 50_000);
    let mut area = Area::of(Kind::Shared, 13)?;
    let mut own = span.to_vec();
    remote.send_span(span, 50_000)?;
    Child::start(|| {
        sock.recv_exact(area.bytes(50_000))?;
        // The child changes its own copy of `own`, not that of the parent.
        own.fill(7);
        sock.send_all(&own)?;
        Ok(())
    })?
    .join()?;
    expect(
        area.bytes(50_000) == span.to_vec(),
        "what the child received",
    )?;
    sock.send_all(&own)?;
    let sevens = remote.recv(50_000, libc::MSG_WAITALL)?;
    expect(sevens == [7; 50_000], "what the child sent")?;
    expect_received(remote.recv_span(span, 9000)?, span, "what the parent sent")
}

/// A send only reads the memory, so constants and pages without write access can be sent.
fn read_only_memory(env: &Env) -> Outcome {
    static CONSTANT: [u8; 10_000] = [0x5a; 10_000];
    let (sock, remote) = env.pair()?;
    sock.send_all(&CONSTANT)?;
    let got = remote.recv(CONSTANT.len(), libc::MSG_WAITALL)?;
    expect(got == CONSTANT, "the constant")?;
    for kind in [Kind::Private, Kind::File] {
        let span = Span::new(env.seed, 0, (8 * PAGE) as u64);
        let mut area = Area::of(kind, 8)?;
        area.bytes(8 * PAGE).copy_from_slice(&span.to_vec());
        area.read_only_from(0)?;
        let n = sock.send_raw(area.at(0), 8 * PAGE, MSG_NOSIGNAL)?;
        expect_eq(n, 8 * PAGE, "sent")?;
        expect_received(remote.recv_span(span, 9000)?, span, format!("{kind:?}"))?;
        // Pages that nobody has touched contain zeros.
        let untouched = Area::of(kind, 8)?;
        let n = sock.send_raw(untouched.at(5), 5 * PAGE, MSG_NOSIGNAL)?;
        let zeros = remote.recv(n, libc::MSG_WAITALL)?;
        expect(zeros == vec![0; 5 * PAGE], "zeros")?;
    }
    Ok(())
}

/// One buffer is sent from and received into all the time, as in an echo server.
fn same_buffer_both_ways(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let exchange = Exchange {
        send_seed: env.seed,
        recv_seed: env.seed,
        bytes: env.scaled(1 << 20),
        max: 100_000,
    };
    let job = remote.start(Work::Exchange(exchange))?;
    let mut buf = vec![0; 65_537];
    loop {
        match sock.recv(&mut buf, 0)? {
            0 => break,
            n => sock.send_all(&buf[..n])?,
        }
    }
    sock.shutdown(libc::SHUT_WR)?;
    expect_eq(job.join()?, exchange.bytes.to_string(), "came back")
}

/// The memory is unmapped before the peer reads.
fn unmapped_after_send(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let mut span = Span::new(env.seed, 0, 0);
    loop {
        let mut area = Area::new(16)?;
        let next = Span::new(env.seed, span.len, (16 * PAGE) as u64);
        area.bytes(16 * PAGE).copy_from_slice(&next.to_vec());
        match sock.send_raw(area.at(0), 16 * PAGE, MSG_NOSIGNAL | MSG_DONTWAIT) {
            Ok(n) => span.len += n as u64,
            Err(e) => {
                expect_errno::<()>(Err(e), libc::EAGAIN, "send")?;
                break;
            }
        }
    }
    expect(span.len > 0, "nothing was sent")?;
    expect_received(remote.recv_span(span, 50_000)?, span, "the peer")
}

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

/// A send from a buffer that ends too early sends a prefix of the buffer, or nothing.
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

/// A large send with a vector for each page, where all pages from `first` on are not accessible.
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

/// Checks the result of a recv() into a buffer of which `bytes` are accessible, and receives the
/// rest of the stream. Nothing is lost, and nothing comes twice.
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
