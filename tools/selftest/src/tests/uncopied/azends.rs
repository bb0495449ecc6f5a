// SPDX-License-Identifier: GPL-2.0
//! Limits and ends of sends that have returned: programs that end, memory that cannot be protected,
//! readers that do not come, connections that end.

use super::inflight::{
    huge_page, in_child, in_flight, pause, return_at_once, settled, Growth, Signal, Stream, LEN,
    RETURNS, SDP_ZCOPY_MODE, SDP_ZCOPY_THRESH, SOL_SDP, WAITS,
};
use crate::support::counters::stat;
use crate::support::flow::{recv_span, spawn, Span};
use crate::support::harness::{
    eventually, expect, expect_eof, expect_eq, expect_errno, expect_errno_of, expect_received,
    failed, joined, receive, skip, tests, Env, Fail, Family, Outcome, QUIET_MS,
};
use crate::support::pattern::Rng;
use crate::support::sys::{self, Area, Ended, Kind, Linger, MissingPages, Pages, Sock, HUGE, PAGE};
use libc::{
    EAGAIN, ECONNRESET, EPIPE, MSG_DONTWAIT, MSG_NOSIGNAL, POLLHUP, POLLIN, POLLOUT, POLLRDHUP,
    SHUT_WR, SOL_SOCKET, SO_RCVBUF, SO_SNDBUF, SO_SNDBUFFORCE, SO_SNDTIMEO,
};
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

tests!("azends";
    one_flush_for_a_send,
    exits_in_flight,
    becomes_another_program_in_flight,
    killed_in_flight,
    killed_while_sending,
    other_memory_goes_another_way,
    watched_memory_goes_by_copy,
    without_leave_to_lock,
    huge_page_counts_whole,
    refused_while_others_map,
    nobody_reads,
    without_credits,
    returns_while_there_is_room,
    behind_sends_that_have_returned,
    behind_sends_that_are_being_read,
    closes_when_both_have_ended,
    peer_closes_when_both_have_ended,
    end_comes_last,
    peer_resets,
    peer_dies,
    everything_is_given_back,
);

/// However many pages a send protects, the TLBs are flushed once.
fn one_flush_for_a_send(env: &Env) -> Outcome {
    if env.family == Family::Tcp {
        return skip("TCP copies what it sends");
    }
    let mut stream = Stream::new(env)?;
    let pages = Pages::new(LEN, false)?;
    let flushes = Growth::of(env, "tlb_flush")?;
    stream.send(pages)?;
    expect_eq(stat(env, "tlb_flush")? - flushes.before, 1, "flushes")?;
    stream.receive()
}

/// A child connects, sends a span, and then calls `and_then`. The parent reads after the child has
/// ended in the expected way.
fn gone_in_flight(env: &Env, and_then: impl FnOnce(), end: Ended) -> Outcome {
    if env.family == Family::Tcp {
        return skip("TCP copies what it sends");
    }
    let (listener, addr) = env.listener(1)?;
    listener.set_int(SOL_SOCKET, SO_RCVBUF, 8192)?;
    let span = Span::new(env.seed, 0, 3 * LEN as u64);
    let adverts = Growth::of(env, "advert_async")?;
    let ready = Signal::new()?;
    let child = in_child(|| {
        let sock = env.socket()?;
        sock.connect(&addr)?;
        return_at_once(&sock)?;
        let pages = Pages::new(3 * LEN, false)?;
        pages.write(0, &span.to_vec());
        for offset in [0, LEN, 2 * LEN] {
            sock.send_raw(pages.at(offset), LEN, MSG_NOSIGNAL)?;
        }
        ready.give()?;
        and_then();
        pages.touch(1);
        Ok(true)
    })?;
    let (sock, _) = listener.accept()?;
    ready.await_it()?;
    if end == Ended::Signal(libc::SIGKILL) {
        sys::kill(child, libc::SIGKILL)?;
    }
    expect_eq(sys::wait_child(child, true)?, end, "the child's end")?;
    adverts.at_least(1)?;
    pause();
    expect(in_flight(env)? > 0, "nothing is in flight")?;
    receive(&sock, span)?;
    expect_eof(&sock)?;
    drop(sock);
    settled(env)
}

fn exits_in_flight(env: &Env) -> Outcome {
    gone_in_flight(env, || {}, Ended::Exit(0))
}

fn becomes_another_program_in_flight(env: &Env) -> Outcome {
    let exec = || drop(sys::become_another_program());
    gone_in_flight(env, exec, Ended::Exit(0))
}

fn killed_in_flight(env: &Env) -> Outcome {
    let sleep = || std::thread::sleep(Duration::from_secs(60));
    gone_in_flight(env, sleep, Ended::Signal(libc::SIGKILL))
}

/// If a sender is killed, the peer has received a prefix of its stream.
fn killed_while_sending(env: &Env) -> Outcome {
    if env.family == Family::Tcp {
        return skip("TCP copies what it sends");
    }
    let mut rng = Rng::new(env.seed ^ 0x9111);
    let adverts = Growth::of(env, "advert_async")?;
    for _ in 0..env.scaled(6).max(2) {
        let (listener, addr) = env.listener(1)?;
        let seed = rng.next();
        let child = in_child(|| {
            let sock = env.socket()?;
            sock.connect(&addr)?;
            return_at_once(&sock)?;
            let pages = Pages::new(LEN, false)?;
            let mut at = 0;
            loop {
                pages.write(0, &Span::new(seed, at, LEN as u64).to_vec());
                let n = sock.send_raw(pages.at(0), LEN, MSG_NOSIGNAL)?;
                at += n as u64;
            }
        })?;
        let (sock, _) = listener.accept()?;
        let got = recv_span(&sock, Span::new(seed, 0, 500_000), 50_000);
        expect_received(got, Span::new(seed, 0, 500_000), "before")?;
        std::thread::sleep(Duration::from_millis(rng.below(60) as u64));
        sys::kill(child, libc::SIGKILL)?;
        let ended = sys::wait_child(child, true)?;
        expect_eq(ended, Ended::Signal(libc::SIGKILL), "the child's end")?;
        let got = recv_span(&sock, Span::new(seed, 500_000, u64::MAX), 50_000);
        expect(got.eof && got.verdict.wrong == 0, got.to_string())?;
    }
    adverts.at_least(3)
}

/// Sends the span from `addr`. Expects that all of it goes by copy, and that the reason is counted.
#[track_caller]
fn goes_by_copy(stream: &mut Stream<'_>, addr: usize, span: Span, why: &str) -> Outcome {
    let env = stream.env;
    let why = format!("by_copy_{why}");
    let refused = stat(env, &why)?;
    let before = stat(env, "advert_async")?;
    let n = stream.one.send_raw(addr, span.len as usize, MSG_NOSIGNAL)?;
    expect_eq(n as u64, span.len, "sent")?;
    receive(&stream.other, span)?;
    // The reason is counted once for the whole call.
    expect_eq(stat(env, &why)?, refused + 1, &why)?;
    expect_eq(stat(env, "advert_async")?, before, "adverts")
}

fn other_memory_goes_another_way(env: &Env) -> Outcome {
    const PAGES: usize = 8;
    let span = Span::new(env.seed, 0, (PAGES * PAGE) as u64);
    let mut stream = Stream::new(env)?;
    let kinds = [
        (Kind::Shared, "SharedMapping"),
        (Kind::File, "SharedMapping"),
        (Kind::FileCopy, "FileMapping"),
    ];
    for (kind, why) in kinds {
        let mut area = Area::of(kind, PAGES)?;
        area.bytes(PAGES * PAGE).copy_from_slice(&span.to_vec());
        goes_by_copy(&mut stream, area.at(0), span, why)?;
    }
    let pages = Pages::new(PAGES * PAGE, false)?;
    pages.write(0, &span.to_vec());
    pages.protect(false)?;
    goes_by_copy(&mut stream, pages.at(0), span, "NotProtectable")?;
    let nr_hugepages = "/proc/sys/vm/nr_hugepages";
    if fs::write(nr_hugepages, "4").is_ok() {
        if let Ok(mut area) = Area::of(Kind::Huge, HUGE / PAGE) {
            area.bytes(PAGES * PAGE).copy_from_slice(&span.to_vec());
            goes_by_copy(&mut stream, area.at(0), span, "HugeTlb")?;
        }
        fs::write(nr_hugepages, "0")?;
    }
    let missing = MissingPages::new(PAGES, 0)?;
    for (i, bytes) in span.to_vec().chunks(PAGE).enumerate() {
        let mut page = [0; PAGE];
        page.copy_from_slice(bytes);
        missing.bring(i, &page)?;
    }
    goes_by_copy(&mut stream, missing.at(0), span, "Userfaultfd")?;
    // Pages that were never written to cannot be protected either, so they are copied.
    let copied = Growth::of(env, "snapshot_copied")?;
    let pages = Pages::new(LEN, false)?;
    expect_eq(pages.load(0), 0, "a new page")?;
    expect_eq(stream.one.send_raw(pages.at(0), LEN, 0)?, LEN, "sent")?;
    copied.at_least((LEN / PAGE) as u64)?;
    pages.touch(1);
    let mut got = vec![1; LEN];
    stream.other.recv_exact(&mut got)?;
    expect(got.iter().all(|b| *b == 0), "zeros")
}

/// The module does not protect memory whose owner may protect it against reads.
fn watched_memory_goes_by_copy(env: &Env) -> Outcome {
    const PAGES: usize = 8;
    let span = Span::new(env.seed, 0, (PAGES * PAGE) as u64);
    let Some(mut watched) = MissingPages::unprotected(PAGES)? else {
        return skip("userfaultfd has no read-write protection here");
    };
    watched.bytes(PAGES * PAGE).copy_from_slice(&span.to_vec());
    goes_by_copy(&mut Stream::new(env)?, watched.at(0), span, "Userfaultfd")
}

/// If the peer has no receive for another message, bytes that could go without a copy are copied,
/// and wait as copies.
fn without_credits(env: &Env) -> Outcome {
    // On a slow machine the peer may give credits after it seemed to have none.
    for _ in 0..5 {
        if copies_without_credits(env)? {
            return Ok(());
        }
    }
    failed("the bytes do not go by copy")
}

fn copies_without_credits(env: &Env) -> Result<bool, Fail> {
    let stream = Stream::new(env)?;
    let waits = || stream.one.ioctl_int(libc::TIOCOUTQ).map(|bytes| bytes > 0);
    let mut sent = 0;
    while !(waits()? && {
        std::thread::sleep(Duration::from_millis(100));
        waits()?
    }) {
        let bytes = Span::new(env.seed, sent, 2000);
        stream.one.send(&bytes.to_vec(), MSG_NOSIGNAL)?;
        sent += bytes.len;
    }
    let without = Growth::of(env, "by_copy_NoCredits")?;
    let adverts = stat(env, "advert_async")?;
    let pages = Pages::new(LEN, false)?;
    pages.write(0, &Span::new(env.seed, sent, LEN as u64).to_vec());
    let n = stream.one.send_raw(pages.at(0), LEN, MSG_NOSIGNAL)?;
    expect_eq(n, LEN, "sent")?;
    let copied = without.at_least(1).is_ok() && stat(env, "advert_async")? == adverts;
    receive(&stream.other, Span::new(env.seed, 0, sent + LEN as u64))?;
    Ok(copied)
}

/// The user's limit of locked memory limits the bytes in flight. When these bytes were read, the
/// limit can be used again.
fn without_leave_to_lock(env: &Env) -> Outcome {
    let mut stream = Stream::new(env)?;
    let pages: Vec<_> = (0..6)
        .map(|_| Pages::new(LEN, false))
        .collect::<io::Result<_>>()?;
    // Room for two buffers, and for other memory that counts.
    sys::limit_locked_memory((2 * LEN + 8 * PAGE) as u64)?;
    sys::become_nobody()?;
    for _ in 0..2 {
        let refused = Growth::of(env, "memlock_refused")?;
        stream.send(pages[0])?;
        stream.send(pages[1])?;
        expect_eq(stat(env, "memlock_refused")?, refused.before, "refused")?;
        for part in &pages[2..] {
            stream.fill(*part);
            let n = stream.one.send_raw(part.at(0), LEN, MSG_NOSIGNAL)?;
            expect_eq(n, LEN, "sent")?;
            stream.sent += n as u64;
            part.touch(1);
        }
        refused.at_least(1)?;
        stream.receive()?;
    }
    Ok(())
}

/// A reference to a part of a huge page keeps the whole huge page, so the limit must have room for
/// all of it.
fn huge_page_counts_whole(env: &Env) -> Outcome {
    let mut stream = Stream::new(env)?;
    let (one, other) = (huge_page()?, huge_page()?.part(0, LEN));
    sys::limit_locked_memory((HUGE + 16 * PAGE) as u64)?;
    sys::become_nobody()?;
    let refused = Growth::of(env, "memlock_refused")?;
    stream.send(one.part(0, LEN))?;
    stream.receive()?;
    expect_eq(stat(env, "memlock_refused")?, refused.before, "refused")?;
    // Room for the bytes, but not for the huge page.
    sys::limit_locked_memory((LEN + 16 * PAGE) as u64)?;
    let adverts = stat(env, "advert_async")?;
    stream.fill(other);
    let n = stream.one.send_raw(other.at(0), LEN, MSG_NOSIGNAL)?;
    expect_eq(n, LEN, "sent")?;
    stream.sent += n as u64;
    other.touch(1);
    refused.at_least(1)?;
    expect_eq(stat(env, "advert_async")?, adverts, "adverts")?;
    stream.receive()
}

/// A send that may not lock memory is sent another way, whatever other threads do with the address
/// space.
fn refused_while_others_map(env: &Env) -> Outcome {
    if env.family == Family::Tcp {
        return skip("TCP copies what it sends");
    }
    let (one, other) = env.own_pair()?;
    return_at_once(&one)?;
    let refused = Growth::of(env, "memlock_refused")?;
    sys::limit_locked_memory(0)?;
    sys::become_nobody()?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut mappers = Vec::new();
    for _ in 0..2 {
        let stop = Arc::clone(&stop);
        mappers.push(spawn(move || -> io::Result<()> {
            while !stop.load(Ordering::Relaxed) {
                sys::map_and_unmap()?;
            }
            Ok(())
        })?);
    }
    let rounds = env.scaled(1500).max(300);
    let reading = spawn(move || other.recv_exact(&mut vec![0; 8 * PAGE * rounds as usize]))?;
    let pages = Pages::new(8 * PAGE, false)?;
    pages.touch(1);
    for _ in 0..rounds {
        let n = one.send_raw(pages.at(0), pages.len(), MSG_NOSIGNAL)?;
        expect_eq(n, pages.len(), "sent")?;
    }
    stop.store(true, Ordering::Relaxed);
    for mapper in mappers {
        joined(mapper)??;
    }
    joined(reading)??;
    refused.at_least(rounds / 10)
}

/// The send buffer limits the bytes in flight. poll() is woken when there is room again.
fn nobody_reads(env: &Env) -> Outcome {
    let mut stream = Stream::new(env)?;
    stream.one.set_int(SOL_SOCKET, SO_SNDBUF, 200_000)?;
    let bound = stream.one.get_int(SOL_SOCKET, SO_SNDBUF)? as u64;
    let adverts = Growth::of(env, "advert_async")?;
    for _ in 0..3 {
        let before = stream.sent;
        // Each send has its own memory: after too many writes to memory in flight, the next bytes
        // would go by copy.
        let pages = Pages::new(64 * 16 * PAGE, false)?;
        let mut is_full = false;
        for send in 0..64 {
            let part = pages.part(send * 16 * PAGE, 16 * PAGE);
            stream.fill(part);
            let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
            match stream.one.send_raw(part.at(0), part.len(), flags) {
                Ok(n) => stream.sent += n as u64,
                Err(e) => {
                    expect_errno::<()>(Err(e), EAGAIN, "the last send")?;
                    is_full = true;
                    break;
                }
            }
        }
        expect(is_full, "no bound")?;
        let held = stream.sent - before;
        let text = format!("{held} bytes in a buffer of {bound}");
        expect(held <= bound + (1 << 20), text)?;
        expect_eq(stream.one.poll(POLLOUT, 0)?, 0, "poll")?;
        // A slow peer may make the later sends go by copy.
        adverts.at_least(1)?;
        let (other, span) = (
            stream.other.dup()?,
            Span::new(env.seed, stream.received, held),
        );
        let reading = spawn(move || {
            pause();
            recv_span(&other, span, 20_000)
        })?;
        expect_eq(stream.one.poll(POLLOUT, 20_000)?, POLLOUT, "poll")?;
        expect_received(joined(reading)?, span, "the reader")?;
        stream.received = stream.sent;
    }
    settled(env)
}

/// As long as the send buffer has room, a send returns, also behind bytes for which the peer has no
/// room.
fn returns_while_there_is_room(env: &Env) -> Outcome {
    let mut stream = Stream::new(env)?;
    let pages = Pages::new(4 * LEN, false)?;
    let adverts = Growth::of(env, "advert_async")?;
    for i in 0..4 {
        let part = pages.part(i * LEN, LEN);
        // Every second send goes by copy.
        let threshold = [0, 16384][i % 2];
        stream
            .one
            .set_int(SOL_SDP, SDP_ZCOPY_MODE, RETURNS * (i as i32 % 2))?;
        stream.one.set_int(SOL_SDP, SDP_ZCOPY_THRESH, threshold)?;
        stream.fill(part);
        let n = stream.one.send_raw(part.at(0), LEN, MSG_NOSIGNAL)?;
        expect_eq(n, LEN, "sent in one call")?;
        stream.sent += n as u64;
        part.touch(1);
    }
    stream.receive()?;
    return_at_once(&stream.one)?;
    stream.send(pages)?;
    stream.receive()?;
    adverts.at_least(1)
}

/// A send that waits behind sends that have returned gives up after its time-out. The other sends
/// are not affected.
fn behind_sends_that_have_returned(env: &Env) -> Outcome {
    let mut stream = Stream::new(env)?;
    let pages = Pages::new(4 * LEN, false)?;
    stream.send(pages.part(0, LEN))?;
    stream.send(pages.part(LEN, LEN))?;
    stream.one.set_int(SOL_SDP, SDP_ZCOPY_MODE, WAITS)?;
    stream.one.set_timeout(SO_SNDTIMEO, 300)?;
    let begin = Instant::now();
    let last = pages.part(2 * LEN, LEN);
    stream.fill(last);
    let result = stream.one.send_raw(last.at(0), LEN, MSG_NOSIGNAL);
    expect_errno(result, EAGAIN, "a send that waits")?;
    let took = begin.elapsed();
    let limit = Duration::from_secs(5).mul_f64(env.timeout_scale);
    expect(took < limit, format!("it took {took:?}"))?;
    expect_eq(stream.one.take_error()?, 0, "the error")?;
    stream.receive()?;
    return_at_once(&stream.one)?;
    stream.send(last)?;
    stream.receive()
}

/// A send that waits does not count bytes of earlier sends that the peer reads meanwhile.
fn behind_sends_that_are_being_read(env: &Env) -> Outcome {
    let mut stream = Stream::new(env)?;
    let pages = Pages::new(6 * LEN, false)?;
    for i in 0..3 {
        stream.send(pages.part(i * LEN, LEN))?;
    }
    stream.one.set_int(SOL_SDP, SDP_ZCOPY_MODE, WAITS)?;
    stream.one.set_timeout(SO_SNDTIMEO, 1500)?;
    let last = pages.part(3 * LEN, 2 * LEN);
    stream.fill(last);
    let first = Span::new(env.seed, 0, (2 * LEN) as u64);
    let other = stream.other.dup()?;
    let reading = spawn(move || {
        pause();
        recv_span(&other, first, LEN)
    })?;
    let result = stream.one.send_raw(last.at(0), last.len(), MSG_NOSIGNAL);
    expect_received(joined(reading)?, first, "the first")?;
    stream.received += first.len;
    match result {
        Ok(n) => stream.sent += n as u64,
        Err(e) => expect_errno::<()>(Err(e), EAGAIN, "a send that waits")?,
    }
    // Exactly these bytes come, and then the end of the stream.
    stream.one.shutdown(SHUT_WR)?;
    stream.receive()?;
    expect_eof(&stream.other)
}

/// The number of pages that the processors of a test machine may keep in batches for the LRU lists,
/// with a reference to each: two batches of `PAGEVEC_SIZE`. A snapshot that was not given back
/// would have more pages.
const ON_THE_WAY: u64 = 62;

/// After the end of a connection nobody has a reference to its pages, so a write to a page makes no
/// copy.
#[track_caller]
fn expect_unreferenced(pages: Pages) -> Outcome {
    if pages.frame(0)? == 0 {
        return Ok(());
    }
    let mut offset = 0;
    eventually(
        "pages that are copied",
        || {
            let page = pages.part(offset % pages.len(), PAGE);
            offset += PAGE;
            let before = page.frame(0)?;
            page.touch(1);
            Ok(page.frame(0)? == before)
        },
        |same| *same,
    )?;
    let mut moved = 0;
    for offset in (offset..pages.len()).step_by(PAGE) {
        let before = pages.frame(offset)?;
        pages.store(offset, 2);
        moved += u64::from(pages.frame(offset)? != before);
    }
    expect(
        moved <= ON_THE_WAY,
        format!("{moved} pages to which somebody has a reference"),
    )
}

fn peer_ends(env: &Env, huge: bool, end: impl FnOnce(Sock) -> io::Result<()>) -> Outcome {
    let mut stream = Stream::new(env)?;
    let pages = Pages::new(HUGE, huge)?;
    pages.touch(0);
    let aborted = Growth::of(env, "advert_aborted")?;
    stream.send(pages.part(0, LEN))?;
    stream.send(pages.part(LEN, 5 * LEN))?;
    let other = stream.other;
    end(other)?;
    let one = stream.one;
    eventually(
        "the end",
        || one.poll(POLLOUT, 0),
        |events| events & POLLHUP != 0,
    )?;
    let result = one.send_raw(pages.at(0), LEN, MSG_NOSIGNAL);
    expect_errno_of(result, &[ECONNRESET, EPIPE], "the next send")?;
    settled(env)?;
    aborted.at_least(2)?;
    expect_unreferenced(pages.part(0, 6 * LEN))
}

/// A connection whose two sides have shut down sending, while bytes of one side are in flight.
fn ended_both_ways(env: &Env, pages: Pages) -> Result<Stream<'_>, Fail> {
    let mut stream = Stream::new(env)?;
    for offset in (0..pages.len()).step_by(LEN) {
        stream.send(pages.part(offset, LEN))?;
    }
    stream.one.shutdown(SHUT_WR)?;
    stream.other.shutdown(SHUT_WR)?;
    expect_eof(&stream.one)?;
    Ok(stream)
}

/// close() leaves the bytes in flight to the connection, and waits for them with SO_LINGER.
fn closes_when_both_have_ended(env: &Env) -> Outcome {
    let pages = Pages::new(8 * LEN, false)?;
    for wait in [0, 30] {
        let stream = ended_both_ways(env, pages)?;
        let span = Span::new(env.seed, 0, stream.sent);
        if wait > 0 {
            stream.one.set_linger(Linger {
                on: true,
                secs: wait,
            })?;
        }
        let Stream { one, other, .. } = stream;
        let begin = Instant::now();
        let reading = spawn(move || {
            pause();
            let received = recv_span(&other, span, LEN);
            (received, other)
        })?;
        one.close()?;
        let took = begin.elapsed();
        let (received, other) = joined(reading)?;
        expect_received(received, span, "what was in flight")?;
        expect_eof(&other)?;
        if wait > 0 {
            let least = Duration::from_millis(QUIET_MS as u64 / 2);
            expect(took >= least, format!("close() took {took:?}"))?;
        }
        settled(env)?;
    }
    Ok(())
}

/// A reader that closes instead of reading ends the connection at once.
fn peer_closes_when_both_have_ended(env: &Env) -> Outcome {
    let pages = Pages::new(8 * LEN, false)?;
    let stream = ended_both_ways(env, pages)?;
    let Stream { one, other, .. } = stream;
    other.close()?;
    eventually("the error", || one.take_error(), |e| *e == ECONNRESET)?;
    settled(env)?;
    expect_unreferenced(pages)
}

/// poll() reports the end of the stream only when no bytes are left before it, and reports no bytes
/// that are not there.
fn end_comes_last(env: &Env) -> Outcome {
    let pages = Pages::new(8 * LEN, false)?;
    let stream = ended_both_ways(env, pages)?;
    let mut room = vec![0; 3 * PAGE];
    let mut got = 0;
    while got < stream.sent {
        let events = stream.other.poll(POLLIN | POLLRDHUP, -1)?;
        expect(
            events & (POLLHUP | POLLRDHUP) == 0 || events & POLLIN != 0,
            format!("{events:#x} after {got} bytes"),
        )?;
        match stream.other.recv(&mut room, MSG_DONTWAIT) {
            Ok(0) => return failed(format!("the end after {got} bytes")),
            Ok(n) => got += n as u64,
            Err(e) => {
                return failed(format!(
                    "poll() said {events:#x}, recv() {e} after {got} bytes"
                ))
            }
        }
    }
    expect_eof(&stream.other)
}

fn peer_resets(env: &Env) -> Outcome {
    peer_ends(env, false, Sock::reset)?;
    peer_ends(env, true, Sock::reset)
}

/// The peer is another process, which is killed while it does not read.
fn peer_dies(env: &Env) -> Outcome {
    if env.family == Family::Tcp {
        return skip("TCP copies what it sends");
    }
    let (one, remote) = env.pair()?;
    return_at_once(&one)?;
    one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
    let pages = Pages::new(16 * LEN, false)?;
    pages.touch(0);
    let adverts = Growth::of(env, "advert_async")?;
    for offset in (0..pages.len()).step_by(2 * LEN) {
        one.send_raw(pages.at(offset), 2 * LEN, MSG_NOSIGNAL)?;
    }
    adverts.at_least(1)?;
    remote.session().die()?;
    eventually(
        "an error",
        || Ok(one.send(&[1], MSG_NOSIGNAL | MSG_DONTWAIT)),
        |result| {
            let error = result.as_ref().err().and_then(io::Error::raw_os_error);
            matches!(error, Some(ECONNRESET | EPIPE))
        },
    )?;
    settled(env)?;
    expect_unreferenced(pages)
}

/// After all these tests no advert is outstanding, and no memory is pinned or locked.
fn everything_is_given_back(env: &Env) -> Outcome {
    if env.family == Family::Tcp {
        return Ok(());
    }
    settled(env)?;
    eventually(
        "pinned bytes",
        || Ok(stat(env, "pinned_bytes")?.saturating_sub(stat(env, "unpinned_bytes")?)),
        |left| *left == 0,
    )?;
    expect_eq(stat(env, "flush_missed")?, 0, "missed flushes")?;
    expect_eq(stat(env, "illegal_transition")?, 0, "illegal transitions")?;
    // The user's limit of locked memory can be used again as a whole.
    let mut stream = Stream::new(env)?;
    sys::limit_locked_memory((LEN + 8 * PAGE) as u64)?;
    sys::become_nobody()?;
    let pages = Pages::new(LEN, false)?;
    for _ in 0..4 {
        stream.send(pages)?;
        stream.receive()?;
    }
    Ok(())
}
