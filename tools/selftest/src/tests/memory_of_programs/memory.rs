// SPDX-License-Identifier: GPL-2.0
//! Buffers in memory of every kind, and buffers that are not accessible, or only in part: calls
//! return the right numbers of bytes, and the stream stays whole.

use super::badinput::{stream_goes_on, waiting, NOWHERE};
use crate::support::flow::{spawn, Exchange, Span};
use crate::support::harness::{
    expect, expect_eq, expect_errno, expect_received, joined, receive, tests, Child, Env, Family,
    Outcome,
};
use crate::support::peer::Work;
use crate::support::sys::{Area, Kind, RawVec, Sock, PAGE};
use libc::{
    EFAULT, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, MSG_ZEROCOPY, SOL_SOCKET, SO_SNDBUF, SO_ZEROCOPY,
};
use std::io;
use uapi::socket::{SDP_ZCOPY_MODE, SDP_ZCOPY_THRESH, SOL_SDP};

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
    send_with_a_part_nowhere,
    recv_to_nowhere,
    recv_partly_to_nowhere,
    recv_to_read_only_memory,
    recv_iovecs_partly_to_nowhere,
    recv_with_a_part_nowhere,
    recv_uncopied_with_a_part_nowhere,
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

/// Parts of a vector: their lengths, and whether they are accessible.
type Parts = [(usize, bool)];

/// The vector of these parts: the accessible ones follow each other from `at` on, and the others
/// are at `nowhere`.
fn vector(parts: &Parts, mut at: usize, nowhere: usize) -> Vec<RawVec> {
    let place = |&(len, there): &(usize, bool)| {
        let base = if there { at } else { nowhere };
        at += if there { len } else { 0 };
        RawVec { base, len }
    };
    parts.iter().map(place).collect()
}

/// The paths of a send without a copy, by SDP_ZCOPY_MODE.
const MODES: [i32; 3] = [1, 2, 3];

/// A socket that sends 16 KiB or more on the path of this mode.
fn by_mode(env: &Env, sock: &Sock, mode: i32) -> io::Result<()> {
    match env.family {
        Family::Tcp => Ok(()),
        Family::Sdp => {
            sock.set_int(SOL_SDP, SDP_ZCOPY_THRESH, 16_384)?;
            sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, mode)
        }
    }
}

/// A send copies up to 32 KiB at a time. If a part of these bytes is not accessible, the send takes
/// none of them, so a short send fails. A send of many bytes takes those before.
fn send_with_a_part_nowhere(env: &Env) -> Outcome {
    const MUCH: usize = 100 << 10;
    // TCP takes at most so much from the program at a time: a page fragment, or with MSG_ZEROCOPY
    // a packet.
    const AT_A_TIME: usize = 64 << 10;
    let (there, nowhere) = (true, false);
    let short: [&Parts; 7] = [
        &[(10, there), (10, nowhere)],
        &[(10, there), (MUCH, nowhere)],
        &[(10, nowhere), (10, there)],
        &[(10, there), (10, nowhere), (10, there)],
        &[(10, there), (10, nowhere), (MUCH, there)],
        &[(0, there), (10, nowhere)],
        &[(5, there), (0, nowhere), (5, there), (MUCH, nowhere)],
    ];
    for mode in MODES {
        for flags in [0, MSG_ZEROCOPY] {
            let (sock, remote) = env.pair()?;
            by_mode(env, &sock, mode)?;
            sock.set_int(SOL_SOCKET, SO_ZEROCOPY, 1)?;
            let mut area = Area::new(40)?;
            area.forbid_from(30)?;
            let forbidden = area.at(30 * PAGE);
            let mut offset = 0;
            let mut send = |parts: &Parts, nowhere| -> (io::Result<usize>, Span) {
                let good: usize = parts.iter().filter(|part| part.1).map(|part| part.0).sum();
                let span = Span::new(env.seed, offset, good as u64);
                area.bytes(good).copy_from_slice(&span.to_vec());
                let vecs = vector(parts, area.at(0), nowhere);
                let at = vecs.as_ptr() as usize;
                let sent = sock.sendmsg_raw(at, vecs.len(), flags | MSG_NOSIGNAL);
                offset += *sent.as_ref().unwrap_or(&0) as u64;
                (sent, span)
            };
            for nowhere in [PAGE - 100, forbidden] {
                for parts in short {
                    let (sent, _) = send(parts, nowhere);
                    let text = format!("mode {mode}, flags {flags:#x}, {parts:?}");
                    expect_errno(sent, EFAULT, text)?;
                }
                for parts in [&[(0, false), (10, there)], &[(10, there), (0, false)]] {
                    let (sent, span) = send(parts, nowhere);
                    expect_eq(sent?, 10, "an empty part nowhere")?;
                    expect_received(remote.recv_span(span, 100)?, span, "10 bytes")?;
                }
                let (sent, span) = send(&[(MUCH, there), (10, false)], nowhere);
                let sent = sent?;
                let text = format!("mode {mode}, flags {flags:#x}: {sent} of {MUCH} bytes sent");
                expect((MUCH - AT_A_TIME..=MUCH).contains(&sent), text)?;
                let taken = Span {
                    len: sent as u64,
                    ..span
                };
                expect_received(remote.recv_span(taken, 9000)?, taken, "the prefix")?;
            }
            stream_goes_on(env, &sock, &remote, offset)?;
        }
    }
    Ok(())
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
fn nothing_lost(sock: &Sock, span: Span, result: io::Result<usize>, bytes: &[u8]) -> Outcome {
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

/// A receive that would copy bytes of one send to a part that is not accessible takes none of them,
/// and they can be received again.
fn recv_with_a_part_nowhere(env: &Env) -> Outcome {
    let (there, nowhere) = (true, false);
    let parts: [&Parts; 5] = [
        &[(10, there), (10, nowhere)],
        &[(10, nowhere), (10, there)],
        &[(10, there), (5, nowhere), (5, there)],
        &[(0, there), (1, nowhere)],
        &[(19, there), (1000, nowhere)],
    ];
    let area = Area::new(2)?;
    area.forbid_from(1)?;
    for bytes in [20, 100_000] {
        let (sock, _remote, span) = waiting(env, bytes)?;
        for parts in parts {
            for at in [PAGE - 100, area.at(PAGE)] {
                let vecs = vector(parts, area.at(PAGE - 30), at);
                for flags in [MSG_PEEK, 0] {
                    let vec = vecs.as_ptr() as usize;
                    // SAFETY: all that is writable there is the area's.
                    let got = unsafe { sock.recvmsg_raw(vec, vecs.len(), flags | MSG_DONTWAIT) };
                    expect_errno(got, EFAULT, format!("{parts:?} of {bytes} bytes"))?;
                }
            }
        }
        receive(&sock, span)?;
    }
    // The bytes that are there do not reach the part.
    let (sock, _remote, span) = waiting(env, 10)?;
    let vecs = vector(
        &[(10, there), (10, nowhere)],
        area.at(PAGE - 30),
        PAGE - 100,
    );
    let vec = vecs.as_ptr() as usize;
    for flags in [MSG_PEEK, 0] {
        // SAFETY: all that is writable there is the area's.
        let got = unsafe { sock.recvmsg_raw(vec, vecs.len(), flags | MSG_DONTWAIT) }?;
        expect_eq(got, 10, "10 bytes")?;
    }
    let mut area = area;
    expect(
        area.bytes(PAGE)[PAGE - 30..PAGE - 20] == span.to_vec(),
        "wrong bytes",
    )
}

/// The same for bytes that the peer sends without a copy.
fn recv_uncopied_with_a_part_nowhere(env: &Env) -> Outcome {
    let area = Area::new(2)?;
    area.forbid_from(1)?;
    let parts = [(10, true), (100_000, false)];
    let vecs = vector(&parts, area.at(0), area.at(PAGE));
    for mode in MODES {
        let (sock, other) = env.own_pair()?;
        by_mode(env, &other, mode)?;
        other.set_int(SOL_SOCKET, SO_SNDBUF, 1 << 20)?;
        let span = Span::new(env.seed, 0, 200_000);
        let bytes = span.to_vec();
        let sending = spawn(move || other.send_all(&bytes).map(|()| other))?;
        sock.poll(libc::POLLIN, -1)?;
        for flags in [MSG_PEEK, 0, 0] {
            let vec = vecs.as_ptr() as usize;
            // SAFETY: all that is writable there is the area's.
            let got = unsafe { sock.recvmsg_raw(vec, vecs.len(), flags) };
            expect_errno(got, EFAULT, format!("mode {mode}, flags {flags:#x}"))?;
        }
        receive(&sock, span)?;
        joined(sending)??;
    }
    Ok(())
}
