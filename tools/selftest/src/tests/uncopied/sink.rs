// SPDX-License-Identifier: GPL-2.0
//! Receives that wait with a large buffer, to which the peer writes. A program sees the same as
//! with a receive that copies. The group `sinkends` tests interruptions.

use super::inflight::{pause, Growth, SDP_ZCOPY_MODE, SDP_ZCOPY_THRESH, SOL_SDP};
use super::zcopy::exchanged;
use crate::support::counters::{stat, violations};
use crate::support::flow::{spawn, Exchange, Span};
use crate::support::harness::{
    eventually, expect, expect_eq, expect_errno, failed, joined, skip, tests, Env, Fail, Family,
    Outcome,
};
use crate::support::pattern::{Pattern, Rng};
use crate::support::peer::Remote;
use crate::support::sys::{Area, Kind, Sock, PAGE};
use libc::{EAGAIN, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_WAITALL};
use std::io;
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

tests!("sink";
    one_buffer,
    every_size,
    anywhere_in_memory,
    ping_pong,
    one_buffer_for_both_ways,
    both_ways_at_once,
    waited_for_as_a_whole,
    more_than_the_buffer,
    small_messages,
    copies_cross,
    forced,
    many_of_all_kinds,
    everything_is_given_back,
);

/// The smallest send or receive without a copy, in bytes.
const THRESHOLD: i32 = 16384;

/// The mode in which sends are written to the buffers of waiting readers, or are copied.
pub(in crate::tests) const FORCED: i32 = 4;

/// Lets the socket send and receive without copies from the threshold on.
fn automatic(sock: &Sock) -> io::Result<()> {
    sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, 0)?;
    sock.set_int(SOL_SDP, SDP_ZCOPY_THRESH, THRESHOLD)
}

/// The growth of a counter.
pub(in crate::tests) fn grown(counter: &Growth<'_>) -> io::Result<u64> {
    Ok(stat(counter.env, counter.name)? - counter.before)
}

/// The Writes to sinks in this machine since some time.
pub(in crate::tests) struct Writes<'a> {
    posted: Growth<'a>,
    done: Growth<'a>,
    bytes: Growth<'a>,
}

impl<'a> Writes<'a> {
    pub(in crate::tests) fn since_now(env: &'a Env) -> io::Result<Writes<'a>> {
        Ok(Writes {
            posted: Growth::of(env, "write_posted")?,
            done: Growth::of(env, "write_done")?,
            bytes: Growth::of(env, "sink_written_bytes")?,
        })
    }

    /// The number of written bytes when all Writes are done: a sender may learn of a Write's end
    /// after the reader has used the bytes.
    #[track_caller]
    pub(in crate::tests) fn bytes(&self) -> Result<u64, Fail> {
        eventually(
            "Writes under way",
            || Ok(grown(&self.posted)?.saturating_sub(grown(&self.done)?)),
            |n| *n == 0,
        )?;
        Ok(grown(&self.bytes)?)
    }
}

/// A connection within this machine, which sends and receives without copies.
pub(in crate::tests) fn own_pair(env: &Env) -> Result<(Arc<Sock>, Arc<Sock>), Fail> {
    if env.family == Family::Tcp {
        return skip("TCP copies what it receives");
    }
    let (one, other) = env.own_pair()?;
    automatic(&one)?;
    automatic(&other)?;
    Ok((Arc::new(one), Arc::new(other)))
}

pub(in crate::tests) type Reading = std::thread::JoinHandle<io::Result<Vec<u8>>>;

/// Receives in a thread. The thread returns the received bytes.
pub(in crate::tests) fn receive_in_thread(
    sock: &Arc<Sock>,
    len: usize,
    flags: i32,
) -> io::Result<Reading> {
    let sock = Arc::clone(sock);
    spawn(move || {
        let mut buf = vec![0xee; len + 64];
        let result = sock.recv(&mut buf[..len], flags);
        let n = *result.as_ref().unwrap_or(&0);
        if buf[n..].iter().any(|b| *b != 0xee) {
            return Err(io::Error::other("bytes behind those received"));
        }
        buf.truncate(n);
        result.map(|_| buf)
    })
}

/// Waits until `count` sink adverts more than `before` were received.
#[track_caller]
pub(in crate::tests) fn advertised(env: &Env, before: u64, count: u64) -> Outcome {
    eventually(
        "sink adverts",
        || Ok(stat(env, "sink_advert_received")? - before),
        |n| *n >= count,
    )
}

/// As [`receive_in_thread`], but returns when the peer knows the buffer.
#[track_caller]
pub(in crate::tests) fn receive_there(
    env: &Env,
    sock: &Arc<Sock>,
    len: usize,
    flags: i32,
) -> Result<Reading, Fail> {
    let before = stat(env, "sink_advert_received")?;
    let reading = receive_in_thread(sock, len, flags)?;
    advertised(env, before, 1)?;
    Ok(reading)
}

/// Sends a span in one call, from memory that begins `misalign` bytes behind the start of a page
/// and is overwritten when the call has returned.
pub(in crate::tests) fn send_once(
    sock: &Sock,
    span: Span,
    misalign: usize,
    flags: i32,
) -> io::Result<usize> {
    let len = span.len as usize;
    let mut area = Area::new((misalign + len).div_ceil(PAGE))?;
    let buf = &mut area.bytes(misalign + len)[misalign..];
    Pattern::new(span.seed).fill(span.offset, buf);
    let result = sock.send(buf, flags | MSG_NOSIGNAL);
    buf.fill(0xdb);
    result
}

#[track_caller]
pub(in crate::tests) fn same(got: &[u8], span: Span, what: &str) -> Outcome {
    expect_eq(got.len() as u64, span.len, what)?;
    let verdict = Pattern::new(span.seed).check(span.offset, got);
    expect(verdict.wrong == 0, format!("{what}: {verdict:?}"))
}

fn one_buffer(env: &Env) -> Outcome {
    let (one, other) = own_pair(env)?;
    let writes = Writes::since_now(env)?;
    let received = Growth::of(env, "sink_received_bytes")?;
    let span = Span::new(env.seed, 0, 65536);
    let reading = receive_there(env, &other, 65536, 0)?;
    expect_eq(send_once(&one, span, 0, 0)?, 65536, "sent")?;
    same(&joined(reading)??, span, "received")?;
    expect_eq(writes.bytes()?, 65536, "written")?;
    expect_eq(grown(&received)?, 65536, "written to")
}

fn every_size(env: &Env) -> Outcome {
    let writes = Writes::since_now(env)?;
    let (mut total, mut offset) = (0, 0);
    for len in [
        20_000, 65_535, 65_536, 65_537, 262_144, 1_044_480, 1_048_575, 1_048_576, 3_000_001,
    ] {
        for (from, flags) in [(0, MSG_WAITALL), (1, 0), (4080 - 16, MSG_WAITALL)] {
            // Each send has a new connection: the bytes behind the first advert may be sent before
            // the next advert comes, and then the next reader would not advertise.
            let (one, other) = own_pair(env)?;
            let span = Span::new(env.seed, offset, len);
            let reading = receive_there(env, &other, len as usize, flags)?;
            expect_eq(send_once(&one, span, from, 0)? as u64, len, "sent")?;
            let mut got = joined(reading)??;
            while flags == 0 && (got.len() as u64) < len {
                let left = len as usize - got.len();
                got.append(&mut joined(receive_in_thread(&other, left, flags)?)??);
            }
            same(&got, span, &format!("{len} from {from}"))?;
            (offset, total) = (offset + len, total + len);
        }
    }
    let written = writes.bytes()?;
    expect(
        written > total / 3 && written <= total,
        format!("{written} of {total} bytes were written"),
    )
}

/// Sends a span in a thread, as soon as the peer has advertised a buffer.
fn send_when_awaited(
    env: &Env,
    sock: &Arc<Sock>,
    span: Span,
) -> Result<std::thread::JoinHandle<Result<usize, Fail>>, Fail> {
    let before = stat(env, "sink_advert_received")?;
    let (env, sock) = (env.clone(), Arc::clone(sock));
    Ok(spawn(move || {
        advertised(&env, before, 1)?;
        Ok(send_once(&sock, span, 7, 0)?)
    })?)
}

/// Buffers begin anywhere in memory of any kind. The memory beside a buffer is not touched.
fn anywhere_in_memory(env: &Env) -> Outcome {
    const LEN: usize = 300_003;
    let (one, other) = own_pair(env)?;
    for (i, kind) in [Kind::Private, Kind::Shared, Kind::File, Kind::FileCopy]
        .into_iter()
        .enumerate()
    {
        let mut area = Area::of(kind, LEN / PAGE + 3)?;
        for start in [0, 1, 4080] {
            let written = stat(env, "sink_received_bytes")?;
            let span = Span::new(env.seed + i as u64, start as u64, LEN as u64);
            let room = area.bytes(LEN + start + 64);
            room.fill(0xee);
            let sending = send_when_awaited(env, &one, span)?;
            let got = other.recv(&mut room[start..start + LEN], MSG_WAITALL)?;
            expect_eq(joined(sending)??, LEN, "sent")?;
            expect_eq(got, LEN, "received")?;
            let text = format!("at {start} of {kind:?}");
            same(&room[start..start + LEN], span, &text)?;
            let beside = room[..start].iter().chain(&room[start + LEN..]);
            expect(beside.copied().all(|b| b == 0xee), format!("beside {text}"))?;
            let written = stat(env, "sink_received_bytes")? - written;
            expect_eq(written, LEN as u64, &text)?;
        }
    }
    Ok(())
}

/// Each side sends when the other side waits, so nearly all bytes are written to buffers of waiting
/// readers. A receive that has some of its bytes may advertise the rest just when the peer sends
/// it. Such an advert is wasted, and the next receive sends no advert.
fn ping_pong(env: &Env) -> Outcome {
    let (one, other) = own_pair(env)?;
    let ahead = stat(env, "write_async")?;
    let writes = Writes::since_now(env)?;
    let rounds = env.scaled(60);
    let (mut total, mut offset, mut without) = (0, 0, 0);
    for round in 0..rounds {
        let len = [65_536, 100_001, 262_144, 1_048_576][(round % 4) as usize];
        for (from, to) in [(&one, &other), (&other, &one)] {
            let span = Span::new(env.seed, offset, len);
            let adverts = Growth::of(env, "sink_advert_received")?;
            let reading = receive_in_thread(to, len as usize, MSG_WAITALL)?;
            let end = Instant::now() + Duration::from_secs(2);
            while adverts.at_least(1).is_err() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            without += u64::from(adverts.at_least(1).is_err());
            expect_eq(send_once(from, span, 0, 0)? as u64, len, "sent")?;
            same(&joined(reading)??, span, &format!("round {round}"))?;
            (offset, total) = (offset + len, total + len);
        }
    }
    let ahead = stat(env, "write_async")? - ahead;
    expect(ahead > 0, "each send has waited")?;
    let written = writes.bytes()?;
    // The bytes behind the whole pages of a region go by copy.
    expect(
        written <= total && written >= total - total / 4 - rounds * PAGE as u64,
        format!("{written} of {total} bytes were written, {without} receives had no advert"),
    )
}

/// Each side sends from the buffer into which it receives, as most programs do. A receive that
/// waits for the answer does not count as a write to the pages that are being sent.
fn one_buffer_for_both_ways(env: &Env) -> Outcome {
    const ROUNDS: u64 = 40;
    let (one, other) = own_pair(env)?;
    let snapshots = Growth::of(env, "snapshot_pages")?;
    let touched = Growth::of(env, "pages_touched")?;
    let copied = Growth::of(env, "snapshot_copied")?;
    let seed = env.seed;
    let echoing = spawn(move || -> Outcome {
        let mut area = Area::new(SHARED_PAGES)?;
        for round in 0..ROUNDS {
            let buf = area.bytes(SHARED_PAGES * PAGE);
            let n = other.recv(buf, MSG_WAITALL)?;
            same(&buf[..n], shared_span(seed, round), "at the echo")?;
            expect_eq(other.send(buf, MSG_NOSIGNAL)?, n, "sent back")?;
        }
        Ok(())
    })?;
    let mut area = Area::new(SHARED_PAGES)?;
    let buf = area.bytes(SHARED_PAGES * PAGE);
    for round in 0..ROUNDS {
        let span = shared_span(seed, round);
        Pattern::new(span.seed).fill(span.offset, buf);
        expect_eq(one.send(buf, MSG_NOSIGNAL)?, buf.len(), "sent")?;
        let n = one.recv(buf, MSG_WAITALL)?;
        same(&buf[..n], span, "back")?;
    }
    joined(echoing)??;
    let pages = grown(&snapshots)?;
    let all = 2 * ROUNDS * SHARED_PAGES as u64;
    // Measured: if each side writes to its buffer before it receives, a fifth of the pages are sent
    // from snapshots, and at least four fifths of these are touched. Without such writes all pages
    // are sent from snapshots, and none is touched; on a busy machine a quarter to three fifths of
    // the pages are, and a twentieth of these is touched.
    expect(
        pages >= all / 8,
        format!("{pages} of {all} pages went ahead"),
    )?;
    let (touched, copied) = (grown(&touched)?, grown(&copied)?);
    expect(
        touched + copied <= pages / 4,
        format!("of {pages} pages {touched} were touched and {copied} copied"),
    )
}

/// The number of pages of a buffer in [`one_buffer_for_both_ways`].
const SHARED_PAGES: usize = 64;

fn shared_span(seed: u64, round: u64) -> Span {
    let len = (SHARED_PAGES * PAGE) as u64;
    Span::new(seed, round * len, len)
}

/// A connection with the peer, which sends and receives without copies.
pub(in crate::tests) fn pair(env: &Env) -> Result<(Arc<Sock>, Remote), Fail> {
    if env.family == Family::Tcp {
        return skip("TCP copies what it receives");
    }
    let (sock, remote) = env.pair()?;
    automatic(&sock)?;
    remote.set_int(SOL_SDP, SDP_ZCOPY_MODE, 0)?;
    remote.set_int(SOL_SDP, SDP_ZCOPY_THRESH, THRESHOLD)?;
    Ok((Arc::new(sock), remote))
}

fn both_ways_at_once(env: &Env) -> Outcome {
    let adverts = Growth::of(env, "sink_advert_sent")?;
    // If both sides are slow, each side may always find bytes to read, and then no reader waits.
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        for max in [20_000, 70_000, 300_000, 1 << 20] {
            let (sock, remote) = pair(env)?;
            let exchange = Exchange {
                send_seed: env.seed,
                recv_seed: env.seed + 1,
                bytes: env.scaled(8_000_000),
                max,
            };
            exchanged(&sock, &remote, exchange)?;
        }
        let sent = grown(&adverts)?;
        if sent > 0 || Instant::now() > limit {
            return expect(sent > 0, "no reader has advertised");
        }
    }
}

/// A receive with MSG_WAITALL gets the bytes of sends of other sizes.
fn waited_for_as_a_whole(env: &Env) -> Outcome {
    const LEN: usize = 4_000_000;
    let mut rng = Rng::new(env.seed);
    for round in 0..env.scaled(8) {
        let (one, other) = own_pair(env)?;
        let span = Span::new(env.seed, round * LEN as u64, LEN as u64);
        let reading = receive_there(env, &other, LEN, MSG_WAITALL)?;
        let mut done = 0;
        while done < span.len {
            let len = (1 + rng.below(600_000) as u64).min(span.len - done);
            let part = Span::new(span.seed, span.offset + done, len);
            done += send_once(&one, part, rng.below(4096), 0)? as u64;
        }
        same(&joined(reading)??, span, "received")?;
    }
    Ok(())
}

/// Bytes for which the buffer has no room go another way, behind the bytes in the buffer.
fn more_than_the_buffer(env: &Env) -> Outcome {
    for round in 0..8 {
        let (one, other) = own_pair(env)?;
        let writes = Writes::since_now(env)?;
        let span = Span::new(env.seed, round * 400_000, 400_000);
        let reading = receive_there(env, &other, 50_000, 0)?;
        let sender = Arc::clone(&one);
        let sending = spawn(move || send_once(&sender, span, 0, 0))?;
        same(
            &joined(reading)??,
            Span::new(span.seed, span.offset, 50_000),
            "first",
        )?;
        let rest = joined(receive_in_thread(&other, 350_000, MSG_WAITALL)?)??;
        same(&rest, span.after(50_000), "the rest")?;
        expect_eq(joined(sending)??, 400_000, "sent")?;
        let written = writes.bytes()?;
        expect(written >= 50_000, format!("{written} bytes were written"))?;
    }
    Ok(())
}

/// If a peer sends few bytes at a time, readers soon wait without adverts.
fn small_messages(env: &Env) -> Outcome {
    const ROUNDS: u64 = 200;
    let (one, other) = own_pair(env)?;
    let sent = stat(env, "sink_advert_sent")?;
    for round in 0..ROUNDS {
        let span = Span::new(env.seed, round * 100, 100);
        let reading = receive_in_thread(&other, 100_000, 0)?;
        expect_eq(send_once(&one, span, 0, 0)?, 100, "sent")?;
        same(&joined(reading)??, span, "received")?;
    }
    let sent = stat(env, "sink_advert_sent")? - sent;
    expect(sent < 20, format!("{sent} adverts for nothing"))?;
    // One advert to which the peer writes is enough.
    let writes = Writes::since_now(env)?;
    for round in 0..70 {
        let span = Span::new(env.seed, (ROUNDS + round * 1000) * 100, 100_000);
        let reading = receive_in_thread(&other, 100_000, MSG_WAITALL)?;
        pause();
        expect_eq(send_once(&one, span, 0, 0)?, 100_000, "sent")?;
        same(&joined(reading)??, span, "received")?;
        if writes.bytes()? > 0 {
            return Ok(());
        }
    }
    failed("readers have given up for good")
}

/// Small sends that go by copy cross the adverts of the reader.
fn copies_cross(env: &Env) -> Outcome {
    let adverts = Growth::of(env, "sink_advert_sent")?;
    // On each connection readers advertise until they learn that the adverts are wasted.
    for i in 0..8 {
        copies_cross_once(env, env.seed + i)?;
    }
    expect(grown(&adverts)? > 0, "no reader has advertised")
}

fn copies_cross_once(env: &Env, seed: u64) -> Outcome {
    let (one, other) = own_pair(env)?;
    let total = env.scaled(1_500_000);
    let sender = Arc::clone(&one);
    let sending = spawn(move || -> io::Result<u64> {
        let mut rng = Rng::new(seed ^ 0xc0c0);
        let mut done = 0;
        while done < total {
            let len = [1, 700, 16_384, 50_000, 200_000][rng.below(5)];
            let span = Span::new(seed, done, len.min(total - done));
            done += send_once(&sender, span, rng.below(64), 0)? as u64;
            if rng.below(3) == 0 {
                std::thread::sleep(Duration::from_micros(rng.below(600) as u64));
            }
        }
        Ok(done)
    })?;
    let mut rng = Rng::new(seed ^ 0xc1c1);
    let mut buf = vec![0; 400_000];
    let mut done = 0;
    while done < total {
        let len = (1 + rng.below(buf.len())).min((total - done) as usize);
        let flags = [0, 0, MSG_WAITALL][rng.below(3)];
        buf.fill(0xee);
        let n = other.recv(&mut buf[..len], flags)?;
        same(&buf[..n], Span::new(seed, done, n as u64), "received")?;
        expect(buf[n..].iter().all(|b| *b == 0xee), "bytes behind")?;
        done += n as u64;
    }
    expect_eq(joined(sending)??, total, "sent")
}

/// Both sides allow this way only. Senders wait for readers, but not for long.
fn forced(env: &Env) -> Outcome {
    const PIECE: usize = 1 << 20;
    let (one, other) = own_pair(env)?;
    for sock in [&one, &other] {
        sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, FORCED)?;
        expect_eq(sock.get_int(SOL_SDP, SDP_ZCOPY_MODE)?, FORCED, "the mode")?;
    }
    let writes = Writes::since_now(env)?;
    let pieces = env.scaled(16).max(6);
    let span = |piece: u64| Span::new(env.seed, piece * PIECE as u64, PIECE as u64);
    let (sender, spans) = (Arc::clone(&one), (0..pieces).map(span).collect::<Vec<_>>());
    // Both sides have their buffers ready before a send begins to wait: on a slow machine it takes
    // longer to make and to check a piece than a send waits.
    let (begin, begins) = mpsc::channel();
    let sending = spawn(move || -> io::Result<usize> {
        let mut area = Area::new(PIECE / PAGE)?;
        let mut sent = 0;
        for span in spans {
            let buf = area.bytes(PIECE);
            Pattern::new(span.seed).fill(span.offset, buf);
            begins.recv().map_err(io::Error::other)?;
            sent += sender.send(buf, MSG_NOSIGNAL)?;
            buf.fill(0xdb);
        }
        Ok(sent)
    })?;
    for piece in 0..pieces {
        // Half of the sends find a waiting reader. The others begin at the same time as a reader,
        // and may give up.
        let reading = if piece % 2 == 0 {
            receive_there(env, &other, PIECE, MSG_WAITALL)?
        } else {
            receive_in_thread(&other, PIECE, MSG_WAITALL)?
        };
        begin.send(()).map_err(io::Error::other)?;
        same(&joined(reading)??, span(piece), &format!("piece {piece}"))?;
    }
    let total = pieces * PIECE as u64;
    expect_eq(joined(sending)?? as u64, total, "sent")?;
    let got = writes.bytes()?;
    expect(
        got >= total / 4 && got <= total,
        format!("{got} of {total} bytes were written"),
    )?;
    to_small_reads(env, &one, &other)
}

/// A reader that never advertises gets all bytes of a sender that wants to write to the reader's
/// memory.
fn to_small_reads(env: &Env, one: &Arc<Sock>, other: &Sock) -> Outcome {
    const SENDS: u64 = 10;
    const LEN: u64 = 30_000;
    let writes = Writes::since_now(env)?;
    let (seed, sender) = (env.seed, Arc::clone(one));
    let start = Instant::now();
    let sending = spawn(move || {
        let send = |i| send_once(&sender, Span::new(seed, i * LEN, LEN), 0, 0);
        (0..SENDS).map(send).sum::<io::Result<usize>>()
    })?;
    let all = Span::new(seed, 0, SENDS * LEN);
    let mut got = Vec::new();
    while (got.len() as u64) < all.len {
        let mut buf = [0; 1000];
        let n = other.recv(&mut buf, 0)?;
        expect(n > 0, "the end")?;
        got.extend_from_slice(&buf[..n]);
    }
    same(&got, all, "in small pieces")?;
    expect_eq(joined(sending)?? as u64, all.len, "sent")?;
    let took = start.elapsed();
    let limit = Duration::from_secs(10).mul_f64(env.timeout_scale);
    expect(took < limit, format!("{took:?}"))?;
    expect_eq(writes.bytes()?, 0, "bytes written")
}

/// Sends and receives of all kinds and sizes, in both directions, on both sides.
fn many_of_all_kinds(env: &Env) -> Outcome {
    let (one, other) = own_pair(env)?;
    let total = env.scaled(6_000_000);
    let seed = env.seed;
    let mut threads = Vec::new();
    for (i, (sock, peer)) in [(&one, &other), (&other, &one)].into_iter().enumerate() {
        let (sender, receiver) = (Arc::clone(sock), Arc::clone(peer));
        let span = Span::new(seed + i as u64, 0, total);
        threads.push(spawn(move || send_at_random(&sender, span))?);
        threads.push(spawn(move || receive_at_random(&receiver, span))?);
    }
    for thread in threads {
        joined(thread)??;
    }
    Ok(())
}

fn send_at_random(sock: &Sock, span: Span) -> Outcome {
    let mut rng = Rng::new(span.seed ^ 0x5e17);
    let mut done = 0;
    while done < span.len {
        let mode = [0, 0, 0, 1, 2, 3][rng.below(6)];
        sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, mode)?;
        let len = (rng.length(400_000) as u64).min(span.len - done);
        let part = Span::new(span.seed, span.offset + done, len);
        let flags = [0, 0, 0, MSG_DONTWAIT][rng.below(4)];
        match send_once(sock, part, rng.below(4096), flags) {
            Ok(n) => done += n as u64,
            Err(e) => {
                expect_errno::<()>(Err(e), EAGAIN, "a send")?;
                std::thread::yield_now();
            }
        }
    }
    Ok(())
}

fn receive_at_random(sock: &Sock, span: Span) -> Outcome {
    let mut rng = Rng::new(span.seed ^ 0x4ec5);
    let mut room = vec![0; 500_000 + 4096];
    let mut done = 0;
    while done < span.len {
        let len = (rng.length(500_000) as u64).min(span.len - done) as usize;
        let start = rng.below(4096);
        let flags = [0, 0, MSG_WAITALL, MSG_DONTWAIT][rng.below(4)];
        room.fill(0xee);
        let n = match sock.recv(&mut room[start..start + len], flags) {
            Ok(n) => n,
            Err(e) => {
                expect_errno::<()>(Err(e), EAGAIN, "a receive")?;
                std::thread::yield_now();
                continue;
            }
        };
        expect(n > 0, "the end")?;
        let part = Span::new(span.seed, span.offset + done, n as u64);
        same(&room[start..start + n], part, "received")?;
        let beside = room[..start].iter().chain(&room[start + n..]);
        expect(beside.copied().all(|b| b == 0xee), "bytes beside")?;
        done += n as u64;
    }
    Ok(())
}

/// After all these tests no page is pinned, and nothing is advertised.
fn everything_is_given_back(env: &Env) -> Outcome {
    if env.family == Family::Tcp {
        return skip("TCP copies what it receives");
    }
    for (taken, given) in [
        ("pinned_bytes", "unpinned_bytes"),
        ("sink_advert_sent", "sink_advert_ended"),
        ("snapshot_pages", "snapshot_freed"),
    ] {
        eventually(
            taken,
            || Ok(stat(env, taken)?.saturating_sub(stat(env, given)?)),
            |left| *left == 0,
        )?;
    }
    expect_eq(stat(env, "illegal_transition")?, 0, "illegal transitions")?;
    expect_eq(violations(env)?, 0, "violations")
}
