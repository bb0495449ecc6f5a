// SPDX-License-Identifier: GPL-2.0
//! The fault policy that makes a program wait before it writes to memory in flight. In the end the
//! program has its own page, and no thread waits for ever.

use super::azabuse;
use super::inflight::{
    expect_content, in_child, in_flight, pause, settled, Growth, Signal, Stream, BLOCK, COPY, LEN,
    SDP_FAULT_POLICY, SDP_ZCOPY_MODE, SDP_ZCOPY_THRESH, SOL_SDP, WAITS,
};
use crate::support::counters::stat;
use crate::support::flow::{spawn, Span};
use crate::support::harness::{
    differences, expect, expect_eq, expect_errno, joined, skip, spawn_waiting, tests, Env, Fail,
    Family, Outcome,
};
use crate::support::sys::{self, Ended, Pages, HUGE, PAGE};
use libc::{EINVAL, EPERM, MSG_NOSIGNAL};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

tests!("azblock";
    option_is_checked,
    not_for_everybody,
    waits_for_the_reader,
    written_to_as_the_wait_ends,
    written_to_by_many,
    goes_on_after_a_second,
    killed_while_it_waits,
    forked_in_flight,
    written_to_by_others,
    never_written_before,
    two_parts_of_a_huge_page,
    received_into_in_flight,
    unmapped_while_others_wait,
    sent_again_while_others_map,
    small_pages_at_random,
    huge_pages_at_random,
);

/// How long a program waits at most.
const LIMIT: Duration = Duration::from_secs(1);

fn with_policy(env: &Env, policy: i32) -> Result<Stream<'_>, Fail> {
    let stream = Stream::new(env)?;
    stream.one.set_int(SOL_SDP, SDP_FAULT_POLICY, policy)?;
    Ok(stream)
}

fn blocking(env: &Env) -> Result<Stream<'_>, Fail> {
    with_policy(env, BLOCK)
}

/// Expects that at least `least` writes have waited, which began at most `begun` after the send. On
/// a slow machine writes may begin when the wait is already over.
#[track_caller]
fn have_waited(waits: &Growth<'_>, least: u64, begun: Duration) -> Outcome {
    let result = waits.at_least(least);
    if result.is_err() && begun > LIMIT / 2 {
        return skip("this machine is too slow");
    }
    result
}

fn option_is_checked(env: &Env) -> Outcome {
    if env.family == Family::Tcp {
        return skip("TCP copies what it sends");
    }
    let sock = env.socket()?;
    for value in [-1, 2, 1 << 30] {
        let result = sock.set_int(SOL_SDP, SDP_FAULT_POLICY, value);
        expect_errno(result, EINVAL, "a policy that there is not")?;
    }
    for value in [BLOCK, 0] {
        sock.set_int(SOL_SDP, SDP_FAULT_POLICY, value)?;
        expect_eq(
            sock.get_int(SOL_SDP, SDP_FAULT_POLICY)?,
            value,
            "the policy",
        )?;
    }
    Ok(())
}

/// A program needs a privilege to choose the policy, because it may make other programs wait. If an
/// unprivileged program was given such a socket, its writes make copies.
fn not_for_everybody(env: &Env) -> Outcome {
    let mut stream = blocking(env)?;
    let pages = Pages::new(LEN, false)?;
    let waits = Growth::of(env, "snapshot_waits")?;
    sys::become_nobody()?;
    let result = env.socket()?.set_int(SOL_SDP, SDP_FAULT_POLICY, BLOCK);
    expect_errno(result, EPERM, "the policy")?;
    stream.send(pages)?;
    pages.touch(3);
    expect(in_flight(env)? > 0, "the write has waited")?;
    stream.receive()?;
    expect(waits.at_least(1).is_err(), "somebody has waited")
}

/// A write happens after the peer has read the page, and goes to the same physical page.
fn waits_for_the_reader(env: &Env) -> Outcome {
    let soon = |taken: Duration| taken < LIMIT * 9 / 10;
    for huge in [false, true] {
        let (mut tries, mut longer) = (0, 0);
        while !soon(written_in_flight(env, huge, BLOCK, soon)?) {
            tries += 1;
            longer += u32::from(written_in_flight(env, huge, COPY, |_| false)? < LIMIT / 2);
            expect(longer < 5, "the transfer takes longer than without a wait")?;
            if tries == 10 {
                return skip("this machine is too slow");
            }
        }
    }
    Ok(())
}

/// Sends pages, and writes to a part of them before the peer has read them. Returns the time until
/// the peer has read all pages. If `soon` holds for this time, it is also checked that the write
/// has waited and that no page was copied.
fn written_in_flight(
    env: &Env,
    huge: bool,
    policy: i32,
    soon: impl Fn(Duration) -> bool,
) -> Result<Duration, Fail> {
    let mut stream = with_policy(env, policy)?;
    let pages = Pages::new(if huge { HUGE } else { 2 * LEN }, huge)?.part(0, 2 * LEN);
    let part = pages.part(0, LEN);
    stream.fill(pages);
    let frames = Frames::of(part)?;
    let touched = Growth::of(env, "pages_touched")?;
    let waits = Growth::of(env, "snapshot_waits")?;
    let began = Instant::now();
    stream.send_filled(pages)?;
    let writer = spawn_waiting(move || {
        part.touch(7);
        Instant::now()
    })?;
    // The writer waits in slices of 4 ms: after this time it has waited for several of them.
    std::thread::sleep(LIMIT / 20);
    let read = Instant::now();
    stream.receive()?;
    let taken = began.elapsed();
    let written = joined(writer)?;
    for offset in (0..LEN).step_by(PAGE) {
        expect_eq(part.load(offset), 7, "what was written")?;
    }
    if soon(taken) {
        expect(written > read, "the write did not wait")?;
        waits.at_least(1)?;
        settled(env)?;
        expect(touched.at_least(1).is_err(), "pages were copied")?;
        frames.are_kept_but(env, 0, format_args!("{taken:?}, huge {huge}"))?;
    }
    Ok(taken)
}

/// When the snapshot ends, some threads have already decided to copy a page, and are about to put
/// the copy into the place of the page.
fn written_to_as_the_wait_ends(env: &Env) -> Outcome {
    // Each round sleeps a little longer, from 8 to 16 ms.
    let rounds = env.scaled(20).max(6) as usize;
    let step_us = 8000 / rounds as u64;
    let all = Pages::new(rounds * LEN, false)?;
    let mut checked = 0;
    for round in 0..rounds {
        // Each round has a new connection: after writes to its pages a connection would send
        // another way for a while.
        let mut stream = blocking(env)?;
        let pages = all.part(round * LEN, LEN);
        stream.fill(pages);
        let frames = Frames::of(pages)?;
        let waits = stat(env, "snapshot_waits")?;
        let began = Instant::now();
        stream.send_filled(pages)?;
        let writers: Vec<_> = (0..LEN)
            .step_by(PAGE)
            .map(|at| spawn(move || pages.store(at, 7)))
            .collect::<Result<_, _>>()?;
        // The writers wait in slices of 4 ms.
        std::thread::sleep(Duration::from_micros(8000 + step_us * round as u64));
        stream.receive()?;
        let taken = began.elapsed();
        for (writer, at) in writers.into_iter().zip((0..LEN).step_by(PAGE)) {
            joined(writer)?;
            expect_eq(pages.load(at), 7, "what was written")?;
        }
        let waited = (stat(env, "snapshot_waits")? - waits) as usize;
        if waited > 0 && taken < LIMIT {
            frames.are_kept_but(env, LEN / PAGE - waited, format_args!("round {round}"))?;
            checked += 1;
        }
    }
    match checked {
        0 => skip("this machine is too slow"),
        _ => Ok(()),
    }
}

/// The physical pages of a range of memory, and the number of pages that the kernel has moved until
/// then.
struct Frames {
    pages: Pages,
    before: Vec<u64>,
    moved: u64,
}

impl Frames {
    /// As long as a processor keeps a new page in a batch for the LRU lists, the page has one more
    /// reference, and a thread on another processor gets a copy of it. Therefore the batches are
    /// emptied first.
    fn of(pages: Pages) -> std::io::Result<Frames> {
        fs::write("/proc/sys/vm/drop_caches", "1")?;
        let moved = moved_pages()?;
        let before = Frames::now(pages)?;
        Ok(Frames {
            pages,
            before,
            moved,
        })
    }

    fn now(pages: Pages) -> std::io::Result<Vec<u64>> {
        let all = (0..pages.len()).step_by(PAGE);
        all.map(|at| pages.frame(at)).collect()
    }

    /// Expects that at most `most` of the pages were replaced, unless the kernel has moved pages.
    ///
    /// Soft-iWARP passes pages to TCP with MSG_SPLICE_PAGES. TCP keeps a reference to a page until
    /// the peer has acknowledged its bytes, and until then a write to the page gets a copy. So
    /// nothing is expected with iWARP.
    #[track_caller]
    fn are_kept_but(&self, env: &Env, most: usize, when: std::fmt::Arguments<'_>) -> Outcome {
        if differences::over_iwarp(env.family) {
            return Ok(());
        }
        let after = Frames::now(self.pages)?;
        let others = after.iter().zip(&self.before).filter(|(a, b)| a != b);
        let count = others.count();
        expect(
            count <= most || moved_pages()? > self.moved,
            format!("it has {count} other pages, not {most}: {when}"),
        )
    }
}

/// The number of pages of all processes that the kernel has moved for reasons of its own.
fn moved_pages() -> std::io::Result<u64> {
    const REASONS: [&str; 2] = ["pgmigrate_success", "thp_collapse_alloc"];
    let text = fs::read_to_string("/proc/vmstat")?;
    let count = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        REASONS.contains(&name).then(|| value.parse::<u64>().ok())?
    };
    Ok(text.lines().filter_map(count).sum::<u64>())
}

/// All stores are there in the end, and the peer sees none of them.
fn written_to_by_many(env: &Env) -> Outcome {
    let mut stream = blocking(env)?;
    let waits = Growth::of(env, "snapshot_waits")?;
    for round in 1..4 {
        // Each round has new pages: the limit of the wait holds for all snapshots of a page
        // together, if they follow each other closely.
        let pages = Pages::new(LEN, false)?;
        stream.send(pages)?;
        let begun = Arc::new(AtomicU32::new(0));
        let writers: Vec<_> = (0..6)
            .map(|i| {
                let begun = begun.clone();
                spawn(move || {
                    begun.fetch_add(1, Ordering::Relaxed);
                    for offset in (0..LEN).step_by(PAGE) {
                        pages.store(offset + 64 * i, round);
                    }
                })
            })
            .collect::<Result<_, _>>()?;
        // On a busy machine threads begin late. spawn_waiting() for one thread after the other
        // could take longer than the threads are made to wait.
        while begun.load(Ordering::Relaxed) < 6 {
            pause();
        }
        pause();
        stream.receive()?;
        for writer in writers {
            joined(writer)?;
        }
        for at in (0..LEN).step_by(PAGE) {
            for i in 0..6 {
                expect_eq(pages.load(at + 64 * i), round, "what was written")?;
            }
        }
    }
    waits.at_least(3)
}

/// A write waits for a second at most, even if the peer does not read: the peer may wait for this
/// very program.
fn goes_on_after_a_second(env: &Env) -> Outcome {
    let mut stream = blocking(env)?;
    let pages = Pages::new(LEN, false)?;
    let touched = Growth::of(env, "pages_touched")?;
    let began = Instant::now();
    stream.send(pages)?;
    pages.touch(9);
    let waited = began.elapsed();
    expect(waited >= LIMIT, format!("waited for {waited:?}"))?;
    expect(in_flight(env)? > 0, "nothing is in flight any more")?;
    stream.receive()?;
    touched.at_least((LEN / PAGE) as u64)?;
    expect_eq(pages.load(0), 9, "what was written")
}

fn killed_while_it_waits(env: &Env) -> Outcome {
    if env.family == Family::Tcp {
        return skip("TCP copies what it sends");
    }
    let waits = Growth::of(env, "snapshot_waits")?;
    let (mut fastest, mut soonest) = (LIMIT, Duration::MAX);
    for _ in 0..3 {
        let ready = Signal::new()?;
        let began = Instant::now();
        let child = in_child(|| {
            let pages = Pages::new(LEN, false)?;
            let Ok(mut stream) = blocking(env) else {
                return Ok(false);
            };
            if stream.send(pages).is_err() {
                return Ok(false);
            }
            let others: Vec<_> = (0..2)
                .map(|_| spawn(move || pages.touch(1)))
                .collect::<Result<_, _>>()?;
            ready.give()?;
            pages.touch(2);
            others.into_iter().for_each(|other| drop(other.join()));
            std::thread::sleep(Duration::from_secs(60));
            Ok(true)
        })?;
        ready.await_it()?;
        std::thread::sleep(Duration::from_millis(50));
        soonest = soonest.min(began.elapsed());
        let killed = Instant::now();
        sys::kill(child, libc::SIGKILL)?;
        let ended = sys::wait_child(child, true)?;
        expect_eq(ended, Ended::Signal(libc::SIGKILL), "the child's end")?;
        fastest = fastest.min(killed.elapsed());
    }
    expect(fastest < LIMIT * 7 / 10, format!("it took {fastest:?}"))?;
    settled(env)?;
    have_waited(&waits, 1, soonest)
}

/// A forked child has its own address space, in which no write waits.
fn forked_in_flight(env: &Env) -> Outcome {
    let waits = Growth::of(env, "snapshot_waits")?;
    let mut soonest = Duration::MAX;
    for huge in [false, true] {
        let mut stream = blocking(env)?;
        let pages = Pages::new(if huge { HUGE } else { LEN }, huge)?.part(0, LEN);
        stream.fill(pages);
        let want = pages.read(0, LEN);
        let began = Instant::now();
        stream.send_filled(pages)?;
        let child = in_child(|| {
            let same = pages.read(0, LEN) == want;
            pages.touch(5);
            Ok(same && pages.load(0) == 5)
        })?;
        expect_content(child, "the child")?;
        let writer = spawn_waiting(move || pages.touch(6))?;
        soonest = soonest.min(began.elapsed());
        pause();
        stream.receive()?;
        joined(writer)?;
        expect_eq(pages.load(LEN - PAGE), 6, "what was written")?;
    }
    have_waited(&waits, 1, soonest)
}

/// A process that writes to another program's memory has not chosen the policy, so it does not
/// wait.
fn written_to_by_others(env: &Env) -> Outcome {
    let mut stream = blocking(env)?;
    let pages = Pages::new(LEN, false)?;
    let waits = Growth::of(env, "snapshot_waits")?;
    stream.send(pages)?;
    let parent = sys::pid();
    let child = in_child(|| {
        let memory = fs::OpenOptions::new()
            .write(true)
            .open(format!("/proc/{parent}/mem"))?;
        memory.write_all_at(&[0xd6; LEN], pages.at(0) as u64)?;
        Ok(true)
    })?;
    expect_content(child, "the child's writes")?;
    expect(in_flight(env)? > 0, "nothing is in flight any more")?;
    let written = pages.read(0, LEN).iter().all(|b| *b == 0xd6);
    expect(written, "what was written")?;
    stream.receive()?;
    // The counter is updated when the peer has read the bytes.
    expect(waits.at_least(1).is_err(), "somebody has waited")
}

/// A send copies the page of zeros at once, so a write to such memory does not wait.
fn never_written_before(env: &Env) -> Outcome {
    let stream = blocking(env)?;
    let pages = Pages::new(LEN, false)?;
    pages.replace()?;
    // All of the memory is mapped to the page of zeros.
    expect(pages.read(0, LEN).iter().all(|b| *b == 0), "zeros")?;
    let waits = Growth::of(env, "snapshot_waits")?;
    let sent = stream.one.send_raw(pages.at(0), LEN, MSG_NOSIGNAL)?;
    expect_eq(sent, LEN, "sent")?;
    pages.touch(4);
    let mut got = vec![1; LEN];
    stream.other.recv_exact(&mut got)?;
    expect(got.iter().all(|b| *b == 0), "what came")?;
    settled(env)?;
    expect(waits.at_least(1).is_err(), "somebody has waited")
}

/// Two snapshots have references to the same large folio.
fn two_parts_of_a_huge_page(env: &Env) -> Outcome {
    let mut stream = blocking(env)?;
    let pages = Pages::new(HUGE, true)?;
    let waits = Growth::of(env, "snapshot_waits")?;
    let (one, other) = (pages.part(0, LEN), pages.part(4 * LEN, LEN));
    let began = Instant::now();
    stream.send(one)?;
    stream.send(other)?;
    let writers = [one, other].map(|part| spawn_waiting(move || part.touch(8)));
    let begun = began.elapsed();
    pause();
    stream.receive()?;
    for writer in writers {
        joined(writer?)?;
    }
    expect_eq(
        (one.load(0), other.load(LEN - PAGE)),
        (8, 8),
        "what was written",
    )?;
    have_waited(&waits, 2, begun)
}

/// recv() into memory in flight waits as a write of the program itself would, and no longer.
fn received_into_in_flight(env: &Env) -> Outcome {
    let mut stream = blocking(env)?;
    let waits = Growth::of(env, "snapshot_waits")?;
    let pages = Pages::new(LEN, false)?;
    let began = Instant::now();
    stream.send(pages)?;
    let back = Span::new(env.seed + 1, 0, LEN as u64);
    let other = stream.other.dup()?;
    let sending = spawn(move || other.send_all(&back.to_vec()))?;
    let (mut done, mut begun) = (0, Duration::ZERO);
    while done < LEN {
        let left = pages.part(done, LEN - done);
        let n = left.take_from(stream.one.as_raw_fd(), left.len())?;
        expect(n > 0, "the end")?;
        // The bytes may come late, so this includes the first wait.
        if done == 0 {
            begun = began.elapsed();
        }
        done += n;
    }
    joined(sending)??;
    expect(pages.read(0, LEN) == back.to_vec(), "what came back")?;
    stream.receive()?;
    expect(pages.read(0, LEN) == back.to_vec(), "what was there then")?;
    have_waited(&waits, 1, begun)
}

/// While threads wait for a page, the address space can be changed: memory is mapped and unmapped,
/// and other pages are replaced and discarded.
fn unmapped_while_others_wait(env: &Env) -> Outcome {
    let mut stream = blocking(env)?;
    let waits = Growth::of(env, "snapshot_waits")?;
    let pages = Pages::new(LEN, false)?;
    let began = Instant::now();
    stream.send(pages)?;
    let half = pages.part(0, LEN / 2);
    let writers: Vec<_> = (0..3)
        .map(|i| spawn_waiting(move || half.store(64 * i, 3)))
        .collect::<Result<_, _>>()?;
    let begun = began.elapsed();
    pause();
    for _ in 0..20 {
        sys::map_and_unmap()?;
    }
    pages.part(LEN / 2, LEN / 2).replace()?;
    pages.part(LEN / 4, PAGE).advise(libc::MADV_DONTNEED)?;
    stream.receive()?;
    for writer in writers {
        joined(writer)?;
    }
    expect_eq(half.load(0), 3, "what was written")?;
    have_waited(&waits, 1, begun)
}

/// Another connection sends the same pages and waits for its peer, so it pins the pages. For the
/// pin the program must have its own pages, so the send waits with the lock of the address space
/// held. Meanwhile other threads change the address space, and send and write to more pages.
fn sent_again_while_others_map(env: &Env) -> Outcome {
    let mut stream = blocking(env)?;
    let waits = Growth::of(env, "snapshot_waits")?;
    let pages = Pages::new(LEN, false)?;
    let mut soonest = Duration::MAX;
    for _ in 0..3 {
        stream.send(pages)?;
        let same = pages.read(0, LEN);
        let (second, reader) = env.own_pair()?;
        second.set_int(SOL_SDP, SDP_ZCOPY_THRESH, 16384)?;
        second.set_int(SOL_SDP, SDP_ZCOPY_MODE, WAITS)?;
        let sending = spawn(move || second.send_raw(pages.at(0), LEN, MSG_NOSIGNAL))?;
        let mapping = spawn(|| (0..50).try_for_each(|_| sys::map_and_unmap()))?;
        let more = Pages::new(LEN, false)?;
        let began = Instant::now();
        stream.send(more)?;
        let writing = spawn_waiting(move || more.touch(1))?;
        soonest = soonest.min(began.elapsed());
        let mut got = vec![0; LEN];
        reader.recv_exact(&mut got)?;
        expect(got == same, "what the other connection's peer has")?;
        expect_eq(joined(sending)??, LEN, "sent again")?;
        stream.receive()?;
        joined(mapping)??;
        joined(writing)?;
        expect_eq(more.load(0), 1, "what was written")?;
    }
    have_waited(&waits, 1, soonest)
}

fn small_pages_at_random(env: &Env) -> Outcome {
    azabuse::at_random(env, false, BLOCK)
}

fn huge_pages_at_random(env: &Env) -> Outcome {
    azabuse::at_random(env, true, BLOCK)
}
