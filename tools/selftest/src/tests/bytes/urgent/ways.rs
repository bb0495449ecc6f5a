// SPDX-License-Identifier: GPL-2.0
//! Urgent bytes among bytes that go without a copy, and in random streams.

use super::{at_mark, comes, mark_comes, pair, urge, urgent_byte};
use crate::support::counters::stat;
use crate::support::flow::{spawn, Span};
use crate::support::harness::{
    eventually, expect, expect_eq, expect_errno, joined, spawn_waiting, Env, Family, Outcome,
    QUIET_MS,
};
use crate::support::pattern::Rng;
use crate::support::sys::{Area, Sock, PAGE};
use crate::tests::uncopied::inflight::{SDP_ZCOPY_MODE, SDP_ZCOPY_THRESH, SOL_SDP};
use libc::{
    EAGAIN, EINVAL, MSG_OOB, MSG_PEEK, MSG_WAITALL, POLLPRI, SHUT_WR, SOL_SOCKET, SO_OOBINLINE,
    SO_RCVBUF,
};
use std::io::{self};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

// The ways of the bytes: by copy; by adverts, and the send waits until they were read, or returns
// at once; by Writes to the buffers of waiting readers; or the best of these.
const BY_COPY: i32 = 1;
const WAITS: i32 = 2;
const RETURNS: i32 = 3;
const TO_BUFFERS: i32 = 4;
const BEST: i32 = 0;

/// The number of bytes from which on sends go without a copy.
const LONG: usize = 16384;

/// The ways that the family supports.
fn ways(env: &Env) -> &'static [i32] {
    match env.family {
        Family::Tcp => &[BEST],
        Family::Sdp => &[BY_COPY, WAITS, RETURNS, TO_BUFFERS, BEST],
    }
}

/// A connection whose sends and receives go a given way.
fn pair_by(env: &Env, way: i32) -> io::Result<(Arc<Sock>, Arc<Sock>)> {
    let (one, other) = pair(env)?;
    if env.family == Family::Sdp {
        for sock in [&one, &other] {
            sock.set_int(SOL_SDP, SDP_ZCOPY_THRESH, LONG as i32)?;
            sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, way)?;
        }
    }
    Ok((Arc::new(one), Arc::new(other)))
}

/// The number of bytes that went without a copy.
fn uncopied(env: &Env) -> io::Result<u64> {
    if env.family == Family::Tcp {
        return Ok(0);
    }
    Ok(stat(env, "tx_zcopy_bytes")? + stat(env, "sink_written_bytes")?)
}

/// Sends ordinary bytes, an urgent byte and ordinary bytes, each part in calls of its own and from
/// whole pages.
fn send_around(
    sock: &Arc<Sock>,
    before: Span,
    after: Span,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let sock = Arc::clone(sock);
    spawn(move || {
        let most = before.len.max(after.len) as usize;
        let mut area = Area::new(most.div_ceil(PAGE).max(1))?;
        for (span, urgent) in [(before, true), (after, false)] {
            let buf = area.bytes(span.len as usize);
            buf.copy_from_slice(&span.to_vec());
            sock.send_all(buf)?;
            buf.fill(0xdb);
            if urgent {
                urge(&sock, b"U")?;
            }
        }
        Ok(())
    })
}

/// Receives into memory that begins `misalign` bytes behind the start of a page. Checks that the
/// memory behind the received bytes was not written to.
fn receive_into(sock: &Sock, misalign: usize, len: usize, flags: i32) -> io::Result<Vec<u8>> {
    let mut area = Area::new((misalign + len + 64).div_ceil(PAGE))?;
    let buf = &mut area.bytes(misalign + len + 64)[misalign..];
    buf.fill(0xee);
    let n = sock.recv(&mut buf[..len], flags)?;
    // The copy waits for pages whose bytes are still on their way.
    let got = buf[..n].to_vec();
    if buf[n..].iter().any(|b| *b != 0xee) {
        return Err(io::Error::other("bytes behind those received"));
    }
    Ok(got)
}

/// Whichever way the bytes around the urgent byte go, a receive ends at the mark, also if it has
/// room for all bytes.
pub(super) fn each_way_of_sending(env: &Env) -> Outcome {
    for &way in ways(env) {
        let before_all = uncopied(env)?;
        let (one, other) = pair_by(env, way)?;
        let mut offset = 0;
        for len in [100, 16_384, 65_536, 100_001, 300_000, (1 << 20) + 5] {
            for (flags, misalign) in [(0, 0), (MSG_WAITALL, 0), (0, 100), (MSG_WAITALL, 4000)] {
                let what = format!("way {way}, {len} bytes, flags {flags:#x}, from {misalign}");
                let before = Span::new(env.seed, offset, len);
                let after = before.after(len);
                let after = Span {
                    len: 50_000,
                    ..after
                };
                let room = (len + 50_000) as usize;
                let sending = send_around(&one, before, after)?;
                let mut got = Vec::new();
                while (got.len() as u64) < len {
                    let part = receive_into(&other, misalign, room, flags)?;
                    expect(!part.is_empty(), format!("{what}: an early end of file"))?;
                    got.extend(part);
                    expect(
                        flags == 0 || got.len() as u64 == len,
                        format!("{what}: {} at once", got.len()),
                    )?;
                }
                expect_eq(got.len() as u64, len, &what)?;
                expect(got == before.to_vec(), format!("{what}: wrong bytes"))?;
                mark_comes(&other)?;
                expect_eq(urgent_byte(&other, 0)?, b'U', &what)?;
                let got = receive_into(&other, misalign, 50_000, MSG_WAITALL)?;
                expect(got == after.to_vec(), format!("{what}: wrong bytes behind"))?;
                expect_eq(at_mark(&other)?, false, &what)?;
                joined(sending)??;
                offset += len + 50_000;
            }
        }
        let moved = uncopied(env)? - before_all;
        let expected = env.family == Family::Sdp && way != BY_COPY;
        expect(
            (moved > 0) == expected || way == BEST,
            format!("way {way}: {moved} bytes without a copy"),
        )?;
    }
    Ok(())
}

/// The urgent byte is the first byte that arrives for a receive with a large buffer.
pub(super) fn before_a_waiting_buffer(env: &Env) -> Outcome {
    for &way in ways(env) {
        let (one, other) = pair_by(env, way)?;
        for round in 0..5_u8 {
            let sock = Arc::clone(&other);
            let reader = spawn_waiting(move || receive_into(&sock, 0, 300_000, 0))?;
            urge(&one, &[round])?;
            // The receive goes past the mark, and waits for ordinary bytes.
            std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
            expect(!reader.is_finished(), "the byte has ended a receive")?;
            eventually("no POLLPRI", || other.poll(POLLPRI, 0), |&e| e == 0)?;
            one.send_all(b"ab")?;
            expect_eq(joined(reader)??, b"ab".to_vec(), "behind it")?;
            expect_errno(other.recv(&mut [0], MSG_OOB), EINVAL, "MSG_OOB")?;
        }
    }
    Ok(())
}

/// A receive with MSG_WAITALL gets some of its bytes, and then the urgent byte comes.
pub(super) fn into_waiting_buffers(env: &Env) -> Outcome {
    for &way in ways(env) {
        let (one, other) = pair_by(env, way)?;
        let mut offset = 0;
        for len in [1_000, 50_000, 1 << 20, (1 << 20) + 100_000, 2_500_000] {
            let sock = Arc::clone(&other);
            let reader = spawn_waiting(move || receive_into(&sock, 0, 3 << 20, MSG_WAITALL))?;
            let before = Span::new(env.seed, offset, len);
            let after = Span::new(env.seed, offset + len, 30_000);
            let sending = send_around(&one, before, after)?;
            let got = joined(reader)??;
            expect_eq(got.len() as u64, len, format!("way {way}: received"))?;
            expect(got == before.to_vec(), format!("way {way}: wrong bytes"))?;
            expect_eq(at_mark(&other)?, true, "at the mark")?;
            expect_eq(urgent_byte(&other, 0)?, b'U', "the byte")?;
            let got = receive_into(&other, 0, 30_000, MSG_WAITALL)?;
            expect(got == after.to_vec(), "wrong bytes behind")?;
            joined(sending)??;
            offset += len + 30_000;
        }
    }
    Ok(())
}

/// Several urgent bytes follow while the bytes before them are on their way to a receive, which may
/// have returned. An earlier urgent byte is lost if the program has read all bytes before it when
/// the next one comes; otherwise it becomes an ordinary byte.
pub(super) fn some_behind_a_waiting_buffer(env: &Env) -> Outcome {
    let rounds = env.scaled(20).max(5);
    for &way in ways(env) {
        let (one, other) = pair_by(env, way)?;
        let mut offset = 0;
        for round in 0..rounds {
            let sock = Arc::clone(&other);
            let reader = spawn_waiting(move || receive_into(&sock, 0, 1 << 20, MSG_WAITALL))?;
            let before = Span::new(env.seed, offset, 1 << 20);
            let after = Span::new(env.seed, offset + (1 << 20), 30_000);
            offset += before.len + after.len;
            let sock = Arc::clone(&one);
            let sending = spawn(move || -> io::Result<()> {
                let mut area = Area::new(before.len as usize / PAGE)?;
                let buf = area.bytes(before.len as usize);
                buf.copy_from_slice(&before.to_vec());
                sock.send_all(buf)?;
                std::thread::sleep(Duration::from_micros(4000 * round / rounds));
                for mark in b"UVW" {
                    urge(&sock, &[*mark])?;
                }
                sock.send_all(&after.to_vec())
            })?;
            let got = joined(reader)??;
            expect(got == before.to_vec(), format!("way {way}: wrong bytes"))?;
            let last = || {
                let mut byte = [0];
                match other.recv(&mut byte, MSG_OOB | MSG_PEEK) {
                    Err(e) if matches!(e.raw_os_error(), Some(EAGAIN | EINVAL)) => Ok(None),
                    result => result.map(|_| Some(byte[0])),
                }
            };
            eventually("the last mark", last, |&byte| byte == Some(b'W'))?;
            let mut between = Vec::new();
            while !at_mark(&other)? {
                between.extend(receive_into(&other, 0, 100, 0)?);
            }
            let some: [&[u8]; 3] = [b"", b"V", b"UV"];
            expect(
                some.contains(&&between[..]),
                format!("way {way}: {between:?} before the last mark"),
            )?;
            expect_eq(urgent_byte(&other, 0)?, b'W', "the byte")?;
            let got = receive_into(&other, 0, 30_000, MSG_WAITALL)?;
            expect(
                got == after.to_vec(),
                format!("way {way}: wrong bytes behind"),
            )?;
            joined(sending)??;
        }
    }
    Ok(())
}

/// Several marks among bytes that are still in the peer's memory. Only the last mark counts, and a
/// receive gets all bytes except the last urgent one.
pub(super) fn among_adverts(env: &Env) -> Outcome {
    for &way in ways(env) {
        if way == WAITS {
            // A send waits until its bytes were read, but the test reads only after the sends.
            continue;
        }
        let (one, other) = pair_by(env, way)?;
        other.set_int(SOL_SOCKET, SO_RCVBUF, 1 << 20)?;
        let part = LONG as u64 * 2;
        let mut want = Vec::new();
        for (n, mark) in b"UVW".iter().enumerate() {
            let span = Span::new(env.seed, n as u64 * part, part);
            one.send_all(&span.to_vec())?;
            urge(&one, &[*mark])?;
            want.extend(span.to_vec());
            want.push(*mark);
        }
        let tail = Span::new(env.seed, 3 * part, part);
        one.send_all(&tail.to_vec())?;
        // EAGAIN: the byte was announced, but has not arrived.
        let last = || {
            let mut byte = [0];
            match other.recv(&mut byte, MSG_OOB | MSG_PEEK) {
                Err(e) if e.raw_os_error() == Some(EAGAIN) => Ok(0),
                result => result.map(|_| byte[0]),
            }
        };
        comes(&other)?;
        eventually("the last mark", last, |&b| b == b'W')?;
        want.pop();
        let got = receive_into(&other, 0, 8 * part as usize, MSG_WAITALL)?;
        expect_eq(got.len(), want.len(), format!("way {way}: received"))?;
        expect(got == want, format!("way {way}: wrong bytes"))?;
        expect_eq(at_mark(&other)?, true, "at the mark")?;
        expect_eq(urgent_byte(&other, 0)?, b'W', "the byte")?;
        let got = receive_into(&other, 0, part as usize, MSG_WAITALL)?;
        expect(
            got == tail.to_vec(),
            format!("way {way}: wrong bytes behind"),
        )?;
    }
    Ok(())
}

/// Sends `total` bytes in calls of all lengths, some of which end with an urgent byte. `bytes`
/// makes the bytes of a call from their offset, their number, and whether the last one is urgent.
fn send_at_random(
    sock: &Arc<Sock>,
    seed: u64,
    total: usize,
    bytes: impl Fn(usize, usize, bool) -> Vec<u8> + Send + 'static,
) -> io::Result<JoinHandle<io::Result<u32>>> {
    let sock = Arc::clone(sock);
    spawn(move || {
        let mut rng = Rng::new(seed);
        let (mut sent, mut marks) = (0, 0);
        while sent < total {
            let urgent = rng.below(4) == 0;
            let most = if urgent { 2000 } else { 200_000 };
            let len = rng.length(most).min(total - sent);
            let piece = bytes(sent, len, urgent);
            // The urgent byte has a call of its own: a longer send that has to wait in its middle
            // would make another byte urgent for a while.
            let (ordinary, last) = piece.split_at(len - usize::from(urgent));
            sock.send_all(ordinary)?;
            if urgent {
                urge(&sock, last)?;
            }
            marks += u32::from(urgent);
            sent += len;
        }
        sock.shutdown(SHUT_WR)?;
        Ok(marks)
    })
}

/// Receives the whole stream in calls of all lengths, and counts the calls that have ended at a
/// mark.
fn receive_at_random(sock: &Sock, seed: u64) -> io::Result<(Vec<u8>, u32)> {
    let mut rng = Rng::new(seed ^ 1);
    let (mut all, mut marks) = (Vec::new(), 0);
    loop {
        let flags = if rng.below(3) == 0 { MSG_WAITALL } else { 0 };
        let len = rng.length(400_000);
        let part = receive_into(sock, rng.below(PAGE), len, flags)?;
        if part.is_empty() {
            return Ok((all, marks));
        }
        all.extend(part);
        marks += u32::from(at_mark(sock)?);
        if rng.below(4) == 0 {
            // There may be an urgent byte, or not.
            let _ = sock.recv(&mut [0], MSG_OOB);
        }
    }
}

/// Inline, all bytes are received in order.
pub(super) fn whole_streams_inline(env: &Env) -> Outcome {
    for &way in ways(env) {
        let (one, other) = pair_by(env, way)?;
        other.set_int(SOL_SOCKET, SO_OOBINLINE, 1)?;
        let total = env.scaled(8 << 20);
        let seed = env.seed + way as u64;
        let sending = send_at_random(&one, seed, total as usize, move |at, len, _| {
            Span::new(seed, at as u64, len as u64).to_vec()
        })?;
        let (got, marks) = receive_at_random(&other, seed)?;
        let sent = joined(sending)??;
        expect_eq(got.len() as u64, total, format!("way {way}: received"))?;
        let want = Span::new(seed, 0, total).to_vec();
        expect(got == want, format!("way {way}: wrong bytes"))?;
        expect(
            marks > 0 && marks <= sent,
            format!("way {way}: {marks} marks of {sent}"),
        )?;
    }
    Ok(())
}

/// Whether `got` is `whole` without some of the urgent bytes, which have the highest bit set.
fn lacks_only_urgent(got: &[u8], whole: &[u8]) -> bool {
    let mut got = got.iter().peekable();
    let is_there = |byte: &u8| got.next_if_eq(&byte).is_some() || *byte >= 0x80;
    whole.iter().all(is_there) && got.next().is_none()
}

/// Out of line, all ordinary bytes are received, and those urgent bytes that another one has
/// followed before the program reached them. An urgent byte has the highest bit set. Its other bits
/// are its position, so that it differs from its neighbours.
pub(super) fn whole_streams_out_of_line(env: &Env) -> Outcome {
    for &way in ways(env) {
        let (one, other) = pair_by(env, way)?;
        let total = env.scaled(8 << 20) as usize;
        let seed = env.seed + way as u64;
        let bytes = move |at: usize, len: usize, urgent: bool| {
            let mut bytes = Span::new(seed, at as u64, len as u64).to_vec();
            for byte in &mut bytes {
                *byte &= 0x7f;
            }
            if let Some(last) = bytes.last_mut().filter(|_| urgent) {
                *last = (at + len) as u8 | 0x80;
            }
            bytes
        };
        let whole = {
            let mut all = Vec::new();
            let mut rng = Rng::new(seed);
            while all.len() < total {
                let urgent = rng.below(4) == 0;
                let most = if urgent { 2000 } else { 200_000 };
                let len = rng.length(most).min(total - all.len());
                all.extend(bytes(all.len(), len, urgent));
            }
            all
        };
        let sending = send_at_random(&one, seed, total, bytes)?;
        let (got, marks) = receive_at_random(&other, seed)?;
        let sent = joined(sending)??;
        expect(
            marks > 0 && marks <= sent,
            format!("way {way}: {marks} marks of {sent}"),
        )?;
        expect(
            lacks_only_urgent(&got, &whole),
            format!("way {way}: wrong bytes"),
        )?;
        expect(
            got.len() < total,
            format!("way {way}: no urgent byte was out of line"),
        )?;
    }
    Ok(())
}
