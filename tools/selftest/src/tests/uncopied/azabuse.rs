// SPDX-License-Identifier: GPL-2.0
//! What programs may do to memory that a send reads after it has returned. The peer gets the bytes
//! that were there at the call. No other process sees or changes memory that is not its own.

use super::inflight::{
    expect_content, in_child, in_flight, return_at_once, settled, Growth, Signal, Stream, BLOCK,
    COPY, LEN, SDP_FAULT_POLICY, SDP_ZCOPY_THRESH, SENDS, SOL_SDP,
};
use crate::support::flow::{recv_span, spawn, Span};
use crate::support::harness::{
    eventually, expect, expect_eq, expect_errno, failed, joined, note, skip, tests, Env, Fail,
    Family, Outcome,
};
use crate::support::pattern::{Pattern, Rng};
use crate::support::sys::{self, Ended, Fork, Pages, HUGE, PAGE};
use libc::{EFAULT, MSG_NOSIGNAL, SHUT_WR, SOL_SOCKET, SO_RCVBUF};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc, Arc, Barrier};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

tests!("azabuse";
    written_to_again,
    small_pages_at_random,
    huge_pages_at_random,
    child_keeps_a_page,
    child_keeps_a_huge_page,
    read_only_in_flight,
    discarded_in_flight,
    unmapped_in_flight,
    moved_in_flight,
    merged_in_flight,
    counted_in_while_sent,
    sent_again_in_flight,
    sent_by_many_while_written,
    forked_in_flight,
    received_into_in_flight,
    written_to_by_others_in_flight,
);

/// The program sees its own writes at once, and the peer sees none of them. Afterwards the program
/// may write without a fault.
fn written_to_again(env: &Env) -> Outcome {
    for huge in [false, true] {
        let mut stream = Stream::new(env)?;
        let pages = Pages::new(if huge { HUGE } else { 4 * LEN }, huge)?;
        let part = pages.part(0, 4 * LEN);
        let taken = Growth::of(env, "snapshot_pages")?;
        let touched = Growth::of(env, "pages_touched")?;
        let restored = Growth::of(env, "pages_restored")?;
        stream.send(part)?;
        taken.at_least((part.len() / PAGE) as u64)?;
        part.part(0, LEN).touch(7);
        stream.receive()?;
        touched.at_least((LEN / PAGE) as u64)?;
        restored.at_least((LEN / PAGE) as u64)?;
        for offset in (0..LEN).step_by(PAGE) {
            expect_eq(part.load(offset), 7, "what was written")?;
        }
    }
    Ok(())
}

/// Does random things to memory that may be in flight. In the end it is again private memory that
/// may be written to.
pub(in crate::tests) fn abuse(pages: Pages, spare: Pages, rng: &mut Rng) -> io::Result<()> {
    for _ in 0..1 + rng.below(4) {
        let first = rng.below(pages.len() / PAGE);
        let count = 1 + rng.below(pages.len() / PAGE - first);
        let part = pages.part(first * PAGE, count * PAGE);
        match rng.below(16) {
            0..=2 => part.touch(rng.next()),
            3 => part.write(0, &vec![0xdb; part.len()]),
            4 => part.look(),
            5 => {
                let value = rng.next();
                match sys::fork()? {
                    Fork::Child => {
                        part.touch(value);
                        sys::exit_now(0)
                    }
                    Fork::Parent(pid) => {
                        part.touch(!value);
                        sys::wait_child(pid, true)?;
                    }
                }
            }
            6 => part.replace()?,
            7 => part.move_to(spare.part(first * PAGE, part.len()))?,
            8 => part.advise(libc::MADV_DONTNEED)?,
            9 => part.advise(libc::MADV_FREE)?,
            10 => part.advise(sys::MADV_COLD)?,
            11 => part.advise(sys::MADV_PAGEOUT)?,
            12 => {
                pages.advise(libc::MADV_HUGEPAGE)?;
                // This may fail: there may be no free huge page.
                let _ = pages.advise(sys::MADV_COLLAPSE);
            }
            13 => part.advise(libc::MADV_MERGEABLE)?,
            // Makes the kernel move pages, if this process may do so.
            _ if rng.below(16) == 0 => drop(fs::write("/proc/sys/vm/compact_memory", "1")),
            14 => {
                part.protect(false)?;
                part.read(0, PAGE);
                part.protect(true)?;
            }
            _ => std::thread::sleep(Duration::from_millis(rng.below(8) as u64)),
        }
    }
    Ok(())
}

/// The number of sends of a random test.
const SENDS_AT_RANDOM: u64 = 1000;
/// The number of sends of a random test in which writers wait, which takes longer.
const BLOCKING_SENDS_AT_RANDOM: u64 = 100;

/// Sends buffers, to which other threads do the things of [`abuse`] as soon as they are sent.
pub(in crate::tests) fn at_random(env: &Env, huge: bool, policy: i32) -> Outcome {
    if env.family == Family::Tcp {
        return skip("TCP copies what it sends");
    }
    const BYTES: usize = 1 << 19;
    // On a slow machine few writers wait, because each of them may wait for a second.
    let (most, writes, least) = match policy {
        BLOCK => (BLOCKING_SENDS_AT_RANDOM, "snapshot_waits", 4),
        _ => (SENDS_AT_RANDOM, "pages_touched", 20),
    };
    let growths = [
        (Growth::of(env, "advert_async")?, 20),
        (Growth::of(env, "pages_restored")?, 20),
        (Growth::of(env, writes)?, least),
    ];
    let (give_back, ready) = mpsc::channel();
    let mut abusers = Vec::new();
    let mut threads = Vec::new();
    for i in 0..2 {
        let (abuser, todo) = mpsc::channel::<(Pages, Pages)>();
        abusers.push(abuser);
        let give_back = give_back.clone();
        let mut rng = Rng::new(env.seed ^ 0xab05e ^ i);
        threads.push(spawn(move || -> io::Result<()> {
            for (pages, spare) in todo {
                abuse(pages, spare, &mut rng)?;
                let _ = give_back.send((pages, spare));
            }
            Ok(())
        })?);
    }
    for _ in 0..4 {
        let len = if huge { HUGE } else { BYTES };
        let slot = (Pages::new(len, huge)?, Pages::new(len, huge)?);
        give_back.send(slot).map_err(io::Error::other)?;
    }
    drop(give_back);
    let mut rng = Rng::new(env.seed ^ 0xaa);
    let mut result = Ok(());
    let mut sends = 0;
    // A slow machine sends much by copy, so the loop goes on until the counters show enough sends
    // of the tested kind. A very slow machine makes fewer sends.
    let enough = || {
        growths
            .iter()
            .all(|(growth, least)| growth.at_least(*least).is_ok())
    };
    let started = Instant::now();
    let goes_on = |sends| match started.elapsed().as_secs() {
        ..40 => sends < env.scaled(most) || !enough(),
        40..100 => sends < env.scaled(most),
        _ => false,
    };
    while result.is_ok() && goes_on(sends) {
        result = seven_sends(env, policy, &ready, &abusers, &mut rng);
        sends += SENDS as u64;
        if sends % 1000 < SENDS as u64 {
            note(&format!("{sends} sends"));
        }
    }
    drop(abusers);
    for thread in threads {
        joined(thread)??;
    }
    result?;
    for (growth, least) in growths {
        growth.at_least(least)?;
    }
    Ok(())
}

type Slot = (Pages, Pages);

fn seven_sends(
    env: &Env,
    policy: i32,
    ready: &mpsc::Receiver<Slot>,
    abusers: &[mpsc::Sender<Slot>],
    rng: &mut Rng,
) -> Outcome {
    let (one, other) = env.own_pair()?;
    return_at_once(&one)?;
    one.set_int(SOL_SDP, SDP_FAULT_POLICY, policy)?;
    if rng.below(2) == 0 {
        other.set_int(SOL_SOCKET, SO_RCVBUF, 8192)?;
    }
    let seed = rng.next();
    let lazy = rng.below(4) as u64;
    let reading = spawn(move || {
        std::thread::sleep(Duration::from_millis(3 * lazy));
        recv_span(&other, Span::new(seed, 0, u64::MAX), 300_000)
    })?;
    let mut sent = 0;
    for i in 0..SENDS {
        let (pages, spare) = ready
            .recv_timeout(Duration::from_secs(60))
            .map_err(io::Error::other)?;
        let start = [0, 0, rng.below(PAGE)][rng.below(3)];
        // More short sends than long ones.
        let most = (pages.len() - 17 * PAGE) >> rng.below(8);
        let len = 16 * PAGE + rng.below(most);
        if rng.below(3) == 0 {
            pages.replace()?;
        }
        let mut buf = vec![0; len];
        Pattern::new(seed).fill(sent, &mut buf);
        pages.write(start, &buf);
        drop(buf);
        let mut done = 0;
        while done < len {
            done += one.send_raw(pages.at(start + done), len - done, MSG_NOSIGNAL)?;
        }
        sent += len as u64;
        let slot = (pages, spare);
        abusers[i % abusers.len()]
            .send(slot)
            .map_err(io::Error::other)?;
    }
    one.shutdown(SHUT_WR)?;
    let got = joined(reading)?;
    let text = format!("{got}, of {sent}");
    expect(got.eof && got.bytes == sent, &text)?;
    expect(got.verdict.wrong == 0 && got.errno == 0, &text)
}

fn small_pages_at_random(env: &Env) -> Outcome {
    at_random(env, false, COPY)
}

fn huge_pages_at_random(env: &Env) -> Outcome {
    at_random(env, true, COPY)
}

/// A child has put a page into a pipe and unmapped it. It must not read from the pipe what its
/// parent writes to the page later.
fn child_keeps(env: &Env, pages: Pages, part: Pages) -> Outcome {
    let mut stream = Stream::new(env)?;
    pages.touch(0);
    stream.fill(part);
    let want = part.read(0, 64);
    stream.send_filled(part)?;
    let (ready, go) = (Signal::new()?, Signal::new()?);
    let child = in_child(|| {
        let (from, to) = sys::pipe()?;
        part.give_to_pipe(to.as_raw_fd(), want.len())?;
        pages.unmap()?;
        ready.give()?;
        go.await_it()?;
        let mut got = vec![0; want.len()];
        sys::read(from.as_raw_fd(), &mut got)?;
        Ok(got == want)
    })?;
    ready.await_it()?;
    expect(in_flight(env)? > 0, "nothing is in flight any more")?;
    stream.receive()?;
    part.touch(0x5ec2e7);
    go.give()?;
    expect_content(child, "the child reads what is not its own")?;
    expect_eq(part.load(0), 0x5ec2e7, "what the parent wrote")
}

fn child_keeps_a_page(env: &Env) -> Outcome {
    let pages = Pages::new(LEN, false)?;
    child_keeps(env, pages, pages)
}

fn child_keeps_a_huge_page(env: &Env) -> Outcome {
    let pages = Pages::new(HUGE, true)?;
    child_keeps(env, pages, pages.part(0, 4 * LEN))?;
    let pages = Pages::new(HUGE, true)?;
    child_keeps(env, pages, pages.part(100 * PAGE, LEN))
}

/// Memory that the program makes read-only meanwhile stays read-only.
fn read_only_in_flight(env: &Env) -> Outcome {
    for huge in [false, true] {
        let mut stream = Stream::new(env)?;
        let pages = Pages::new(HUGE, huge)?;
        pages.touch(0);
        let part = pages.part(0, LEN);
        stream.send(part)?;
        let half = part.part(0, LEN / 2);
        half.protect(false)?;
        stream.receive()?;
        let signal = Signal::new()?;
        for offset in (0..half.len()).step_by(PAGE) {
            signal.give()?;
            let page = half.part(offset, PAGE);
            let result = page.take_from(signal.0.as_raw_fd(), 1);
            expect_errno(result, EFAULT, "a write to a read-only page")?;
            expect_eq(signal.await_it().is_ok(), true, "the byte")?;
        }
        part.part(LEN / 2, LEN / 2).touch(1);
        half.protect(true)?;
        half.touch(2);
        expect_eq(half.load(0), 2, "what was written")?;
    }
    Ok(())
}

/// New pages in the place of discarded ones belong to the program: the old pages do not come back.
fn discarded_in_flight(env: &Env) -> Outcome {
    for huge in [false, true] {
        let mut stream = Stream::new(env)?;
        let pages = Pages::new(HUGE, huge)?;
        pages.touch(0);
        let part = pages.part(0, 2 * LEN);
        let touched = Growth::of(env, "pages_touched")?;
        stream.send(part)?;
        pages.advise(libc::MADV_DONTNEED)?;
        part.part(0, LEN).touch(3);
        stream.receive()?;
        touched.at_least((LEN / PAGE) as u64)?;
        for offset in (0..2 * LEN).step_by(PAGE) {
            let want = if offset < LEN { 3 } else { 0 };
            expect_eq(part.load(offset), want, "what is there")?;
            expect_eq(part.load(offset + 8), 0, "what is behind")?;
        }
        part.touch(4);
        expect_eq(part.load(LEN), 4, "what was written")?;
    }
    Ok(())
}

fn unmapped_in_flight(env: &Env) -> Outcome {
    for huge in [false, true] {
        let mut stream = Stream::new(env)?;
        let pages = Pages::new(2 * HUGE, huge)?;
        pages.touch(0);
        stream.send(pages.part(0, LEN))?;
        stream.send(pages.part(HUGE, LEN))?;
        // The first half is gone for good, and the second half has new pages.
        pages.part(0, HUGE).unmap()?;
        let other = pages.part(HUGE, LEN);
        other.replace()?;
        other.touch(9);
        stream.receive()?;
        expect_eq(other.load(0), 9, "what was written")?;
        expect_eq(other.load(8), 0, "what is behind")?;
    }
    Ok(())
}

/// mremap() moves the pages with their content. The pages that come into their place are new.
fn moved_in_flight(env: &Env) -> Outcome {
    for huge in [false, true] {
        let mut stream = Stream::new(env)?;
        let pages = Pages::new(HUGE, huge)?;
        let spare = Pages::new(HUGE, huge)?;
        pages.touch(0);
        let part = pages.part(0, LEN);
        stream.fill(part);
        let want = part.read(0, LEN);
        stream.send_filled(part)?;
        pages.move_to(spare)?;
        spare.part(0, PAGE).touch(5);
        part.part(LEN / 2, LEN / 2).touch(6);
        stream.receive()?;
        let moved = spare.part(0, LEN);
        expect_eq(moved.load(0), 5, "what was written")?;
        expect(moved.read(8, LEN - 8) == want[8..], "what was moved")?;
        expect_eq(part.load(0), 0, "what is in its place")?;
        expect_eq(part.load(LEN / 2), 6, "what was written there")?;
        moved.touch(8);
        stream.send(moved)?;
        stream.receive()?;
    }
    Ok(())
}

const KSM: &str = "/sys/kernel/mm/ksm";

fn ksm(name: &str, value: u64) -> io::Result<()> {
    fs::write(format!("{KSM}/{name}"), value.to_string())
}

fn ksm_scans() -> io::Result<u64> {
    let text = fs::read_to_string(format!("{KSM}/full_scans"))?;
    text.trim().parse().map_err(io::Error::other)
}

#[track_caller]
fn await_scans(count: u64) -> Outcome {
    let end = ksm_scans()? + count;
    eventually("scans of KSM", ksm_scans, |n| *n >= end)
}

/// KSM finds that pages in flight and pages of another process are equal. If one process writes to
/// its pages, the pages of the other process do not change.
fn merged_in_flight(env: &Env) -> Outcome {
    const MERGED: u64 = 1 << 21;
    let stream = Stream::new(env)?;
    if fs::metadata(KSM).is_err() || !sys::is_root() {
        return skip("no KSM");
    }
    let pages = Pages::new(LEN, false)?;
    // All pages are equal, here and in the child.
    let one = stream.next(PAGE).to_vec();
    let all_alike = |pages: Pages| {
        for offset in (0..pages.len()).step_by(PAGE) {
            pages.write(offset, &one);
        }
    };
    let (listed, ready, go) = (Signal::new()?, Signal::new()?, Signal::new()?);
    let other = in_child(|| {
        let own = Pages::new(4 * PAGE, false)?;
        all_alike(own);
        own.advise(libc::MADV_MERGEABLE)?;
        listed.give()?;
        let merged = eventually("", || own.flags(0), |f| f & MERGED != 0).is_ok();
        ready.give()?;
        go.await_it()?;
        Ok(merged && own.read(0, PAGE) == one && own.read(3 * PAGE, PAGE) == one)
    })?;
    all_alike(pages);
    let early = stream.one.send_raw(pages.at(0), LEN, MSG_NOSIGNAL)?;
    expect_eq(early, LEN, "sent")?;
    expect(in_flight(env)? > 0, "nothing is in flight")?;
    // KSM scans processes in the order in which they were registered, and compares a page with the
    // first page of the same content. If that were a page in flight, which cannot be merged, the
    // child's pages would not be merged either. Therefore the child registers first.
    listed.await_it()?;
    pages.advise(libc::MADV_MERGEABLE)?;
    ksm("pages_to_scan", 2000)?;
    ksm("sleep_millisecs", 2)?;
    ksm("run", 1)?;
    ready.await_it()?;
    await_scans(3)?;
    let mut got = vec![0; LEN];
    stream.other.recv_exact(&mut got)?;
    expect(got.chunks(PAGE).all(|page| page == one), "what came")?;
    settled(env)?;
    await_scans(3)?;
    // Now all of them are one page, which is copied for a send.
    eventually("merged pages", || pages.flags(0), |f| f & MERGED != 0)?;
    let copied = Growth::of(env, "snapshot_copied")?;
    let late = stream.one.send_raw(pages.at(0), LEN, MSG_NOSIGNAL)?;
    expect_eq(late, LEN, "sent")?;
    copied.at_least(1)?;
    pages.touch(0xe5);
    stream.other.recv_exact(&mut got)?;
    expect(got.chunks(PAGE).all(|page| page == one), "what came then")?;
    pages.touch(0xe6);
    go.give()?;
    expect_content(other, "the other process's pages")?;
    ksm("run", 2)
        .and_then(|()| ksm("run", 0))
        .map_err(Fail::from)
}

/// Two threads count, each in its own word of every page, while a third thread sends the pages all
/// the time. No store is lost.
fn counted_in_while_sent(env: &Env) -> Outcome {
    if env.family == Family::Tcp {
        return skip("TCP copies what it sends");
    }
    for huge in [false, true] {
        let len = 128 * PAGE;
        let pages = Pages::new(if huge { HUGE } else { len }, huge)?.part(0, len);
        pages.touch(0);
        let stop = Arc::new(AtomicBool::new(false));
        let stores = Arc::new(AtomicU64::new(0));
        let mut counters = Vec::new();
        for i in 1..3 {
            let (stop, stores) = (Arc::clone(&stop), Arc::clone(&stores));
            counters.push(spawn(move || {
                let (mut lost, mut round) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    for offset in (0..len).step_by(PAGE) {
                        let at = offset + 64 * i;
                        lost += u64::from(pages.load(at) != round);
                        pages.store(at, round + 1);
                    }
                    round += 1;
                    stores.fetch_add((len / PAGE) as u64, Ordering::Relaxed);
                }
                lost
            })?);
        }
        let touched = Growth::of(env, "pages_touched")?;
        let adverts = Growth::of(env, "advert_async")?;
        let end = Instant::now() + Duration::from_millis(env.scaled(3000).max(1500));
        let mut result = Ok(());
        // A slow machine needs more time, so the loop goes on until the counters show enough sends
        // of the tested kind.
        let enough = || adverts.at_least(3).is_ok() && touched.at_least(3).is_ok();
        let limit = end + Duration::from_secs(20);
        while result.is_ok() && (Instant::now() < end || !enough() && Instant::now() < limit) {
            result = send_often(env, pages);
        }
        stop.store(true, Ordering::Relaxed);
        for counter in counters {
            expect_eq(joined(counter)?, 0, "lost stores")?;
        }
        result?;
        adverts.at_least(3)?;
        touched.at_least(3)?;
        expect(stores.load(Ordering::Relaxed) > 1000, "nobody counted")?;
    }
    Ok(())
}

fn send_often(env: &Env, pages: Pages) -> Outcome {
    let (one, other) = env.own_pair()?;
    return_at_once(&one)?;
    let reading = spawn(move || -> io::Result<usize> {
        let mut room = vec![0; 300_000];
        let mut total = 0;
        loop {
            match other.recv(&mut room, 0)? {
                0 => return Ok(total),
                n => total += n,
            }
        }
    })?;
    for _ in 0..SENDS {
        expect_eq(
            one.send_raw(pages.at(0), pages.len(), 0)?,
            pages.len(),
            "sent",
        )?;
    }
    one.shutdown(SHUT_WR)?;
    expect_eq(joined(reading)??, SENDS * pages.len(), "received")
}

/// Three sends are in flight at the same time. The second and the third send have the same pages,
/// which include half of the pages of the first send.
fn sent_again_in_flight(env: &Env) -> Outcome {
    for huge in [false, true] {
        // The peer may read adverts without a reader after some milliseconds, on a busy machine
        // before the third send. Therefore there are several attempts.
        let mut seen = false;
        for _ in 0..10 {
            seen = seen || send_again(env, huge)?;
        }
        expect(seen, "not all was in flight, ten times")?;
    }
    Ok(())
}

/// Returns whether all three sends were in flight at the same time.
fn send_again(env: &Env, huge: bool) -> Result<bool, Fail> {
    let mut stream = Stream::new(env)?;
    let pages = Pages::new(HUGE, huge)?;
    pages.touch(0);
    let restored = Growth::of(env, "pages_restored")?;
    let (first, second) = (pages.part(0, LEN), pages.part(LEN / 2, LEN));
    stream.fill(first);
    let bytes = first.read(0, LEN);
    stream.send_filled(first)?;
    // Half of the pages of the first send, and as many others.
    second.part(LEN / 2, LEN / 2).write(0, &bytes[..LEN / 2]);
    let n = stream.one.send_raw(second.at(0), LEN, MSG_NOSIGNAL)?;
    expect_eq(n, LEN, "sent again")?;
    let n = stream.one.send_raw(second.at(0), LEN, MSG_NOSIGNAL)?;
    expect_eq(n, LEN, "sent once more")?;
    let all = in_flight(env)? >= 3;
    second.part(0, PAGE).touch(1);
    let mut got = vec![0; 3 * LEN];
    stream.other.recv_exact(&mut got)?;
    expect(got[..LEN] == bytes, "the first")?;
    for copy in [&got[LEN..2 * LEN], &got[2 * LEN..]] {
        expect(copy[..LEN / 2] == bytes[LEN / 2..], "the begin")?;
        expect(copy[LEN / 2..] == bytes[..LEN / 2], "the end")?;
    }
    settled(env)?;
    if all {
        restored.at_least(16)?;
    }
    first.touch(2);
    second.touch(3);
    expect_eq(first.load(0), 2, "what was written")?;
    Ok(all)
}

/// The number of threads that send the same pages at the same time, while another thread writes to
/// these pages.
const SENDERS: usize = 6;
const APART: Duration = Duration::from_millis(10);

/// The first word of each page.
fn words(pages: Pages) -> Vec<u64> {
    (0..pages.len())
        .step_by(PAGE)
        .map(|offset| pages.load(offset))
        .collect()
}

/// Each peer gets bytes that were there at some moment of its sender's call, and nothing that was
/// written later, although snapshots of the same pages are taken at the same time.
fn sent_by_many_while_written(env: &Env) -> Outcome {
    let pages = Pages::new(LEN, false)?;
    let rounds = env.scaled(2);
    let returned = Growth::of(env, "advert_async")?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 1.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                pages.touch(value);
            }
        });
        let result = (0..rounds).try_for_each(|round| new_senders(env, pages, round));
        over.store(true, Ordering::Relaxed);
        result
    })?;
    returned.at_least(rounds * (SENDS * SENDERS) as u64 / 2)?;
    settled(env)
}

/// Makes new connections, and sends on each of them [`SENDS`] times: after more sends the module
/// would find that their pages are written to.
fn new_senders(env: &Env, pages: Pages, round: u64) -> Outcome {
    let mut streams = Vec::new();
    for _ in 0..SENDERS {
        streams.push(Stream::new(env)?);
    }
    (0..SENDS).try_for_each(|_| sent_by_many(&streams, pages, round))
}

/// Sends on all connections at the same time, and checks the received bytes.
fn sent_by_many(streams: &[Stream<'_>], pages: Pages, round: u64) -> Outcome {
    let begin = Barrier::new(streams.len());
    let sent: Vec<_> = std::thread::scope(|scope| {
        let senders: Vec<_> = streams
            .iter()
            .zip(0..)
            .map(|(stream, number)| {
                let (one, begin) = (&stream.one, &begin);
                scope.spawn(move || -> io::Result<_> {
                    begin.wait();
                    // Some calls begin while others are under way.
                    std::thread::sleep(APART * number);
                    let before = words(pages);
                    let n = one.send_raw(pages.at(0), pages.len(), MSG_NOSIGNAL)?;
                    Ok((n, before, words(pages)))
                })
            })
            .collect();
        senders.into_iter().map(ScopedJoinHandle::join).collect()
    });
    // The writer writes to the pages after the sends, too.
    std::thread::sleep(Duration::from_millis(2));
    for (stream, sent) in streams.iter().zip(sent) {
        let Ok(sent) = sent else {
            return failed("a sender panics");
        };
        let (n, before, after) = sent?;
        expect_eq(n, pages.len(), "sent in one call")?;
        let mut got = vec![0; n];
        stream.other.recv_exact(&mut got)?;
        for (page, bytes) in got.chunks_exact(PAGE).enumerate() {
            let word = u64::from_ne_bytes(bytes[..8].try_into().expect("8 bytes"));
            let then = before[page]..=after[page];
            expect(
                then.contains(&word),
                format!("round {round}, page {page}: {word}, not of {then:?}"),
            )?;
        }
    }
    Ok(())
}

/// Parent and child write to the same pages in flight, and the child sends the pages again. Each
/// process has its own pages, and the peer gets the bytes that were sent.
fn forked_in_flight(env: &Env) -> Outcome {
    for huge in [false, true] {
        let mut stream = Stream::new(env)?;
        let pages = Pages::new(HUGE, huge)?;
        pages.touch(0);
        let part = pages.part(0, 2 * LEN);
        stream.send(part)?;
        let next = stream.next(2 * LEN).to_vec();
        let (ready, go) = (Signal::new()?, Signal::new()?);
        let child = in_child(|| {
            part.part(0, LEN).write(0, &next[..LEN]);
            ready.give()?;
            go.await_it()?;
            // The parent has written to all pages meanwhile.
            part.part(LEN, LEN).write(0, &next[LEN..]);
            let n = stream.one.send_raw(part.at(0), 2 * LEN, MSG_NOSIGNAL)?;
            let own = part.read(0, 2 * LEN) == next;
            part.touch(0xc);
            Ok(n == 2 * LEN && own)
        })?;
        ready.await_it()?;
        part.touch(0xa);
        go.give()?;
        expect_content(child, "the child's pages")?;
        stream.sent += (2 * LEN) as u64;
        for offset in (0..2 * LEN).step_by(PAGE) {
            expect_eq(part.load(offset), 0xa, "the parent's pages")?;
        }
        expect(in_flight(env)? > 1, "not all is in flight")?;
        stream.receive()?;
        part.touch(0xb);
    }
    Ok(())
}

/// Bytes of the peer go into pages whose previous content the peer has not read yet.
fn received_into_in_flight(env: &Env) -> Outcome {
    for huge in [false, true] {
        let mut stream = Stream::new(env)?;
        stream.other.set_int(SOL_SDP, SDP_ZCOPY_THRESH, 16384)?;
        let pages = Pages::new(HUGE, huge)?;
        pages.touch(0);
        let part = pages.part(0, 2 * LEN);
        stream.send(part)?;
        let back = Span::new(env.seed + 1, 0, part.len() as u64);
        let other = stream.other.dup()?;
        let sending = spawn(move || other.send_all(&back.to_vec()))?;
        let mut done = 0;
        while done < part.len() {
            let left = part.part(done, part.len() - done);
            let n = left.take_from(stream.one.as_raw_fd(), left.len())?;
            expect(n > 0, "the end")?;
            done += n;
        }
        joined(sending)??;
        expect(in_flight(env)? > 0, "nothing is in flight any more")?;
        let want = back.to_vec();
        expect(part.read(0, part.len()) == want, "what came back")?;
        stream.receive()?;
        expect(part.read(0, part.len()) == want, "what was there then")?;
        // The pages with the received bytes can be sent without a copy again.
        stream.send(part)?;
        stream.receive()?;
    }
    Ok(())
}

/// Another process, such as a debugger, may also write to memory in flight, even where the program
/// itself may not write.
fn written_to_by_others_in_flight(env: &Env) -> Outcome {
    let mut stream = Stream::new(env)?;
    let pages = Pages::new(LEN, false)?;
    let touched = Growth::of(env, "pages_touched")?;
    stream.send(pages)?;
    let parent = sys::pid();
    let write_there = |offset: usize, bytes: &[u8]| {
        in_child(|| {
            let memory = fs::OpenOptions::new()
                .write(true)
                .open(format!("/proc/{parent}/mem"))?;
            let at = pages.at(offset) as u64;
            Ok(memory.write_all_at(bytes, at).is_ok())
        })
    };
    let child = write_there(0, &[0xd6; LEN / 2])?;
    expect_content(child, "the child's writes")?;
    pages.part(LEN / 2, LEN / 2).protect(false)?;
    let child = write_there(LEN / 2, &[0xde; PAGE])?;
    // The kernel may allow this write to debuggers only.
    let forced = sys::wait_child(child, true)? == Ended::Exit(0);
    expect(in_flight(env)? > 0, "nothing is in flight any more")?;
    stream.receive()?;
    touched.at_least((LEN / PAGE / 2) as u64)?;
    let written = pages.read(0, LEN / 2).iter().all(|b| *b == 0xd6);
    expect(written, "what was written")?;
    let there = pages.load(LEN / 2 + 8) == 0xdede_dede_dede_dede;
    expect_eq(there, forced, "what was written by force")
}
