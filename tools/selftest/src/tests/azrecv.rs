// SPDX-License-Identifier: GPL-2.0
//! What programs may do to memory that is being received into while recv() has
//! returned already: whoever looks sees the peer's bytes, never what was there
//! before.

use super::inflight::{
    expect_content, in_child, return_at_once, Growth, Stream, BLOCK, COPY, LEN, RETURNS,
    SDP_FAULT_POLICY, SDP_ZCOPY_MODE, SDP_ZCOPY_THRESH, SENDS, SOL_SDP, WAITS,
};
use super::zcopy::stat;
use crate::flow::{recv_span, spawn, Span};
use crate::harness::{
    eventually, expect, expect_eq, joined, skip, tests, Env, Fail, Family, Outcome,
};
use crate::pattern::{Pattern, Rng};
use crate::peer::{Job, Remote, Work};
use crate::sys::{self, Fork, Pages, Sock, HUGE, PAGE};
use libc::MSG_WAITALL;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::time::{Duration, Instant};

tests!("azrecv";
    read_at_once,
    written_to_at_once,
    read_by_many,
    small_buffers_at_random,
    huge_buffers_at_random,
    forked_at_once,
    moved_at_once,
    discarded_at_once,
    read_by_others,
    sent_on_at_once,
    received_into_again,
    closed_at_once,
    disconnected_at_once,
    killed_at_once,
    whole_buffers,
    behind_copied_bytes,
    comes_back_too_soon,
    comes_back_in_time,
);

/// A stream of the peer's that goes without copies, as far as that depends on
/// the sender.
pub(super) struct Incoming<'a> {
    env: &'a Env,
    sock: Sock,
    remote: Remote,
    job: Job,
    seed: u64,
    bytes: u64,
    received: u64,
}

impl<'a> Incoming<'a> {
    fn new(env: &'a Env, bytes: u64) -> Result<Incoming<'a>, Fail> {
        if env.family == Family::Tcp {
            return skip("TCP copies what it receives");
        }
        let (sock, remote) = env.pair()?;
        return_at_once(&sock)?;
        remote.set_int(SOL_SDP, SDP_ZCOPY_THRESH, 16384)?;
        // Else it would go by copy in the end, for it makes the next bytes where the last were.
        remote.set_int(SOL_SDP, SDP_ZCOPY_MODE, WAITS)?;
        let span = Span::new(env.seed, 0, bytes);
        let job = remote.start(Work::Source { span, max: 1 << 20 })?;
        Ok(Incoming {
            env,
            sock,
            remote,
            job,
            seed: env.seed,
            bytes,
            received: 0,
        })
    }

    /// Receives into the pages: what must be there now.
    pub(super) fn take(&mut self, pages: Pages, flags: i32) -> io::Result<Expected> {
        // SAFETY: no reference to the pages exists.
        let n = unsafe { self.sock.recv_raw(pages.at(0), pages.len(), flags)? };
        let expected = Expected {
            pages: pages.part(0, n),
            seed: self.seed,
            offset: self.received,
        };
        self.received += n as u64;
        Ok(expected)
    }

    /// A stream without an end.
    pub(super) fn endless(env: &'a Env) -> Result<Incoming<'a>, Fail> {
        Incoming::new(env, 1 << 40)
    }

    /// Receives until a call has returned early.
    fn take_early(&mut self, pages: Pages) -> Result<Expected, Fail> {
        let limit = Instant::now() + Duration::from_secs(20);
        while Instant::now() < limit {
            let before = stat(self.env, "read_early")?;
            let expected = self.take(pages, 0)?;
            if stat(self.env, "read_early")? > before {
                return Ok(expected);
            }
            expected.check()?;
        }
        skip("no call has returned early: this machine is too slow")
    }

    /// Enough was received.
    #[track_caller]
    fn leave(self) -> Outcome {
        drop(self.sock);
        settled(self.env)
    }

    /// The peer has sent all, and it was received.
    #[track_caller]
    fn end(mut self, pages: Pages) -> Outcome {
        while self.received < self.bytes {
            self.take(pages, 0)?.check()?;
        }
        let sent: u64 = self.job.join()?.trim().parse().map_err(io::Error::other)?;
        expect_eq(sent, self.bytes, "sent by the peer")?;
        self.remote.close()?;
        settled(self.env)
    }
}

/// Waits until programs have their pages back.
#[track_caller]
pub(super) fn settled(env: &Env) -> Outcome {
    eventually(
        "pages away",
        || Ok(stat(env, "absent_pages")?.saturating_sub(stat(env, "absent_freed")?)),
        |left| *left == 0,
    )
    .map(drop)
}

/// What must be in some pages.
#[derive(Clone, Copy)]
pub(super) struct Expected {
    pages: Pages,
    seed: u64,
    offset: u64,
}

impl Expected {
    fn part(self, from: usize, len: usize) -> Expected {
        Expected {
            pages: self.pages.part(from, len),
            offset: self.offset + from as u64,
            ..self
        }
    }

    /// As before, in other pages.
    fn at(self, pages: Pages) -> Expected {
        Expected { pages, ..self }
    }

    /// There is no more.
    pub(super) fn is_end(self) -> bool {
        self.pages.len() == 0
    }

    fn is(self, bytes: &[u8]) -> bool {
        Pattern::new(self.seed).check(self.offset, bytes).wrong == 0
    }

    fn holds(self) -> bool {
        self.is(&self.pages.read(0, self.pages.len()))
    }

    #[track_caller]
    fn check(self) -> Outcome {
        let verdict =
            Pattern::new(self.seed).check(self.offset, &self.pages.read(0, self.pages.len()));
        expect(
            verdict.wrong == 0,
            format!(
                "{} bytes from {} on: {verdict:?}",
                self.pages.len(),
                self.offset
            ),
        )
    }
}

const BYTES: u64 = 4 << 20;

fn amount(env: &Env) -> u64 {
    env.scaled(BYTES).max(1 << 20)
}

fn read_at_once(env: &Env) -> Outcome {
    let bytes = amount(env);
    let early = Growth::of(env, "read_early")?;
    let pages = Pages::new(LEN, false)?;
    // A slow machine may read all of it before there is a reader.
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let mut incoming = Incoming::new(env, bytes)?;
        while incoming.received < bytes {
            incoming.take(pages, 0)?.check()?;
        }
        incoming.end(pages)?;
        if early.at_least(1).is_ok() || Instant::now() > limit {
            return early.at_least(1);
        }
    }
}

/// What the program writes after recv() stays, and the peer's bytes beside it.
fn written_to_at_once(env: &Env) -> Outcome {
    let bytes = amount(env);
    let mut incoming = Incoming::new(env, bytes)?;
    let pages = Pages::new(LEN, false)?;
    while incoming.received + LEN as u64 <= bytes {
        let got = incoming.take(pages, 0)?;
        let words = got.pages.len() / PAGE;
        for word in 0..words {
            got.pages.store(word * PAGE, word as u64);
        }
        for word in 0..words {
            expect_eq(got.pages.load(word * PAGE), word as u64, "what was written")?;
            got.part(word * PAGE + 8, PAGE - 8).check()?;
        }
    }
    incoming.end(pages)
}

/// Several threads touch the same pages.
fn read_by_many(env: &Env) -> Outcome {
    let mut incoming = Incoming::endless(env)?;
    let pages = Pages::new(LEN, false)?;
    for _ in 0..6 {
        let got = incoming.take_early(pages)?;
        let threads: Vec<_> = (0..4)
            .map(|_| spawn(move || got.holds()))
            .collect::<Result<_, _>>()?;
        for thread in threads {
            expect(joined(thread)?, "a thread has seen other bytes")?;
        }
    }
    incoming.leave()
}

/// What a thread does with what was received, as soon as it may be there.
fn abuse(got: Expected, spare: Pages, rng: &mut Rng) -> io::Result<bool> {
    let count = got.pages.len() / PAGE;
    if count == 0 {
        return Ok(got.holds());
    }
    let first = rng.below(count);
    let len = (1 + rng.below(count - first)) * PAGE;
    let part = got.part(first * PAGE, len);
    Ok(match rng.below(12) {
        0 => {
            std::thread::sleep(Duration::from_millis(rng.below(8) as u64));
            got.holds()
        }
        1 => match sys::fork()? {
            Fork::Child => sys::exit_now(i32::from(!got.holds())),
            Fork::Parent(pid) => {
                let held = got.holds();
                held & (sys::wait_child(pid, true)? == sys::Ended::Exit(0))
            }
        },
        2 => {
            part.pages.move_to(spare.part(0, len))?;
            part.at(spare.part(0, len)).holds()
        }
        3 => {
            part.pages.protect(false)?;
            let held = got.holds();
            part.pages.protect(true)?;
            held
        }
        4 => {
            part.pages.advise(sys::MADV_PAGEOUT)?;
            got.holds()
        }
        5 => {
            part.pages.advise(sys::MADV_COLD)?;
            got.holds()
        }
        6 => {
            part.pages.advise(libc::MADV_DONTNEED)?;
            part.pages.read(0, len).iter().all(|b| *b == 0)
        }
        7 => {
            got.pages.advise(libc::MADV_HUGEPAGE)?;
            // There may be none.
            let _ = got.pages.advise(sys::MADV_COLLAPSE);
            got.holds()
        }
        8 => {
            part.pages.advise(libc::MADV_MERGEABLE)?;
            got.holds()
        }
        9 => {
            let mut bytes = vec![0; len];
            File::open("/proc/self/mem")?.read_exact_at(&mut bytes, part.pages.at(0) as u64)?;
            part.is(&bytes)
        }
        10 => {
            part.pages.replace()?;
            part.pages.read(0, len).iter().all(|b| *b == 0)
        }
        _ => {
            part.pages.touch(1);
            part.part(8, PAGE - 8).holds()
        }
    })
}

fn at_random(env: &Env, huge: bool) -> Outcome {
    let len = if huge { HUGE } else { LEN };
    let end = Instant::now() + Duration::from_millis(env.scaled(5000).max(2000));
    let (give_back, ready) = mpsc::channel();
    let mut abusers = Vec::new();
    let mut threads = Vec::new();
    for i in 0..2 {
        let (abuser, todo) = mpsc::channel::<(Expected, Pages, Pages)>();
        abusers.push(abuser);
        let give_back = give_back.clone();
        let mut rng = Rng::new(env.seed ^ 0xabe5 ^ i);
        threads.push(spawn(move || -> io::Result<bool> {
            let mut held = true;
            for (got, pages, spare) in todo {
                held &= abuse(got, spare, &mut rng)?;
                pages.replace()?;
                if huge {
                    pages.advise(libc::MADV_HUGEPAGE)?;
                }
                let _ = give_back.send((pages, spare));
            }
            Ok(held)
        })?);
    }
    for _ in 0..4 {
        let slot = (Pages::new(len, huge)?, Pages::new(len, false)?);
        give_back.send(slot).map_err(io::Error::other)?;
    }
    drop(give_back);
    let early = Growth::of(env, "read_early")?;
    let mut turn = 0;
    let mut result = Ok(());
    // A slow machine reads much before there is a reader: until there was enough of what is tested.
    let enough = || early.at_least(2).is_ok();
    let limit = end + Duration::from_secs(40);
    while result.is_ok() && (Instant::now() < end || !enough() && Instant::now() < limit) {
        result = (|| {
            let bytes = (SENDS * len) as u64;
            let mut incoming = Incoming::new(env, bytes)?;
            while incoming.received < bytes {
                let (pages, spare) = ready
                    .recv_timeout(Duration::from_secs(60))
                    .map_err(io::Error::other)?;
                let got = incoming.take(pages, 0)?;
                turn += 1;
                abusers[turn % abusers.len()]
                    .send((got, pages, spare))
                    .map_err(io::Error::other)?;
            }
            incoming.end(Pages::new(PAGE, false)?)
        })();
    }
    drop(abusers);
    for thread in threads {
        expect(joined(thread)??, "a thread has seen other bytes")?;
    }
    result?;
    early.at_least(2)
}

fn small_buffers_at_random(env: &Env) -> Outcome {
    at_random(env, false)
}

fn huge_buffers_at_random(env: &Env) -> Outcome {
    at_random(env, true)
}

/// A child has what its parent was given, and fork() works while others wait.
fn forked_at_once(env: &Env) -> Outcome {
    let mut incoming = Incoming::endless(env)?;
    let pages = Pages::new(LEN, false)?;
    for _ in 0..6 {
        let got = incoming.take_early(pages)?;
        let others: Vec<_> = (0..2)
            .map(|_| spawn(move || got.holds()))
            .collect::<Result<_, _>>()?;
        let child = in_child(|| Ok(got.holds()))?;
        got.check()?;
        expect_content(child, "the child")?;
        for other in others {
            expect(joined(other)?, "a thread has seen other bytes")?;
        }
    }
    incoming.leave()
}

/// mremap(), as in realloc(), takes along what is to come.
fn moved_at_once(env: &Env) -> Outcome {
    let mut incoming = Incoming::endless(env)?;
    let pages = Pages::new(LEN, false)?;
    for _ in 0..6 {
        let got = incoming.take_early(pages)?;
        let to = Pages::new(LEN, false)?.part(0, got.pages.len());
        got.pages.move_to(to)?;
        got.at(to).check()?;
        pages.replace()?;
    }
    incoming.leave()
}

/// What the program has thrown away stays so, and harms nobody.
fn discarded_at_once(env: &Env) -> Outcome {
    let mut incoming = Incoming::endless(env)?;
    let pages = Pages::new(LEN, false)?;
    for way in 0..6 {
        let got = incoming.take_early(pages)?;
        match way % 3 {
            0 => got.pages.advise(libc::MADV_DONTNEED)?,
            1 => got.pages.replace()?,
            _ => {
                got.pages.unmap()?;
                got.pages.replace()?;
            }
        }
        let rest = got.pages.read(0, got.pages.len());
        expect(rest.iter().all(|b| *b == 0), "bytes came later")?;
        got.pages.touch(way);
        settled(env)?;
        expect_eq(got.pages.load(0), way, "what was written")?;
    }
    incoming.leave()
}

/// Who reads a program's memory from outside waits as well.
fn read_by_others(env: &Env) -> Outcome {
    let mut incoming = Incoming::endless(env)?;
    let pages = Pages::new(LEN, false)?;
    let me = std::process::id();
    for _ in 0..6 {
        let got = incoming.take_early(pages)?;
        let child = in_child(|| {
            let mut bytes = vec![0; got.pages.len()];
            File::open(format!("/proc/{me}/mem"))?
                .read_exact_at(&mut bytes, got.pages.at(0) as u64)?;
            Ok(got.is(&bytes))
        })?;
        expect_content(child, "the other process")?;
        got.check()?;
    }
    incoming.leave()
}

/// A buffer that was just received into is sent on, in every way.
fn sent_on_at_once(env: &Env) -> Outcome {
    let bytes = amount(env);
    for (mode, policy) in [(1, COPY), (WAITS, COPY), (RETURNS, COPY), (RETURNS, BLOCK)] {
        let mut incoming = Incoming::new(env, bytes)?;
        let (out, other) = env.own_pair()?;
        return_at_once(&out)?;
        out.set_int(SOL_SDP, SDP_ZCOPY_MODE, mode)?;
        if env.family == Family::Sdp {
            out.set_int(SOL_SDP, SDP_FAULT_POLICY, policy)?;
        }
        let span = Span::new(env.seed, 0, bytes);
        let reading = spawn(move || recv_span(&other, span, 300_000))?;
        let buffers = [Pages::new(LEN, false)?, Pages::new(LEN, false)?];
        let mut turn = 0;
        while incoming.received < bytes {
            let got = incoming.take(buffers[turn % 2], 0)?;
            turn += 1;
            let mut done = 0;
            while done < got.pages.len() {
                done += out.send_raw(got.pages.at(done), got.pages.len() - done, 0)?;
            }
        }
        let got = joined(reading)?;
        expect(
            got.bytes == bytes && got.verdict.wrong == 0,
            format!("{got}, in mode {mode} with policy {policy}"),
        )?;
        incoming.end(buffers[0])?;
    }
    Ok(())
}

/// The next recv() may have the same buffer, or overlap; what was one area then may be two when it is
/// given back.
fn received_into_again(env: &Env) -> Outcome {
    let bytes = amount(env);
    let mut incoming = Incoming::new(env, bytes)?;
    let pages = Pages::new(2 * LEN, false)?;
    let mut last: Option<Expected> = None;
    let mut rng = Rng::new(env.seed);
    while incoming.received + 2 * LEN as u64 <= bytes {
        let start = rng.below(LEN / PAGE) * PAGE;
        pages.advise(libc::MADV_DODUMP)?;
        let got = incoming.take(pages.part(start, LEN), 0)?;
        pages.part(LEN, LEN).advise(libc::MADV_DONTDUMP)?;
        if let Some(before) = last {
            let from = before.pages.at(0);
            // What lies before the new bytes is still there.
            if from < got.pages.at(0) {
                let len = (got.pages.at(0) - from).min(before.pages.len());
                before.part(0, len).check()?;
            }
        }
        if rng.below(2) == 0 {
            got.check()?;
            // Somebody else than the next call may be about to give the pages back.
            std::thread::sleep(Duration::from_millis(1));
        }
        last = Some(got);
    }
    incoming.end(pages)
}

/// close() takes nothing back.
fn closed_at_once(env: &Env) -> Outcome {
    let pages = Pages::new(LEN, false)?;
    for _ in 0..4 {
        let mut incoming = Incoming::new(env, LEN as u64)?;
        let got = incoming.take(pages, 0)?;
        drop(incoming.sock);
        got.check()?;
        settled(env)?;
    }
    Ok(())
}

/// What a receive has returned comes, even if another thread disconnects.
fn disconnected_at_once(env: &Env) -> Outcome {
    let unspec = env.here(0).with_family(libc::AF_UNSPEC);
    let all = Pages::new(4 * LEN, false)?;
    let early = Growth::of(env, "read_early")?;
    let mut rng = Rng::new(env.seed ^ 0xd15c);
    for _ in 0..env.scaled(30).max(6) {
        let mut incoming = Incoming::endless(env)?;
        let (other, unspec) = (incoming.sock.dup()?, unspec);
        let pause = Duration::from_micros(rng.below(30_000) as u64);
        let ending = spawn(move || {
            std::thread::sleep(pause);
            other.connect(&unspec)
        })?;
        let mut got = Vec::new();
        for turn in 0.. {
            let pages = all.part(turn % 4 * LEN, LEN);
            match incoming.take(pages, [0, MSG_WAITALL][turn & 1]) {
                Ok(next) if next.pages.len() > 0 => got.push(next),
                _ => break,
            }
        }
        joined(ending)??;
        // The others were overwritten.
        for last in got.iter().rev().take(3) {
            last.check()?;
        }
        incoming.leave()?;
    }
    match early.at_least(1) {
        Err(_) => skip("no call has returned early: this machine is too slow"),
        fine => fine,
    }
}

/// A program that ends takes nothing with it.
fn killed_at_once(env: &Env) -> Outcome {
    for way in 0..6 {
        let mut incoming = Incoming::new(env, BYTES)?;
        let child = in_child(|| {
            let pages = Pages::new(LEN, false)?;
            loop {
                let got = incoming.take(pages, 0)?;
                if way % 2 == 0 {
                    sys::exit_now(0);
                }
                if !got.holds() {
                    return Ok(false);
                }
            }
        })?;
        if way % 2 == 1 {
            std::thread::sleep(Duration::from_millis(5 * way as u64));
            sys::kill(child, libc::SIGKILL)?;
        }
        sys::wait_child(child, true)?;
        drop(incoming);
        settled(env)?;
    }
    Ok(())
}

/// MSG_WAITALL gives all, and odd lengths come whole.
fn whole_buffers(env: &Env) -> Outcome {
    let bytes = amount(env);
    let mut incoming = Incoming::new(env, bytes)?;
    let pages = Pages::new(LEN, false)?;
    let mut rng = Rng::new(env.seed ^ 7);
    while incoming.received + LEN as u64 <= bytes {
        let start = [0, rng.below(PAGE)][rng.below(2)];
        let len = 1 + rng.below(LEN - start);
        let got = incoming.take(pages.part(start, len), MSG_WAITALL)?;
        expect_eq(got.pages.len(), len, "received with MSG_WAITALL")?;
        got.check()?;
    }
    incoming.end(pages)
}

/// Buffers of both sides that begin in the middle of a page, as those of malloc()
/// do: the bytes up to the next one are copied, and the same call takes the whole
/// pages behind them along.
fn behind_copied_bytes(env: &Env) -> Outcome {
    let mut stream = Stream::new(env)?;
    return_at_once(&stream.other)?;
    let (from, to) = (Pages::new(LEN, false)?, Pages::new(LEN, false)?);
    for head in [1, 16, PAGE - 1] {
        let part = |pages: Pages| pages.part(PAGE - head, LEN - PAGE + head);
        let mut tries = 1;
        while !takes_pages_along(&mut stream, part(from), part(to), head)? {
            expect(tries < 20, format!("nothing behind {head} bytes"))?;
            tries += 1;
        }
    }
    settled(env)
}

/// Whether one call that copies the first `head` bytes takes whole pages along: not if it comes
/// while the first of them are being read for somebody who has not come in time.
fn takes_pages_along(
    stream: &mut Stream<'_>,
    from: Pages,
    to: Pages,
    head: usize,
) -> Result<bool, Fail> {
    let early = Growth::of(stream.env, "read_early")?;
    let advert = Growth::of(stream.env, "advert_received")?;
    stream.send(from)?;
    // It comes in a message behind them.
    advert.reaches(1)?;
    // SAFETY: no reference to the pages exists.
    let n = unsafe { stream.other.recv_raw(to.at(0), to.len(), 0)? };
    let along = n >= head + 4 * PAGE && early.at_least(1).is_ok();
    let got = Expected {
        pages: to.part(0, n),
        seed: stream.env.seed,
        offset: stream.received,
    };
    got.check()?;
    stream.received += n as u64;
    stream.receive()?;
    Ok(along)
}

/// Receives of 64 KiB, into four buffers by turns.
struct Turns<'a> {
    incoming: Incoming<'a>,
    pages: Pages,
    last: VecDeque<Expected>,
    calls: usize,
}

impl<'a> Turns<'a> {
    const PIECE: usize = 16 * PAGE;
    const BUFFERS: usize = 4;

    fn new(env: &'a Env) -> Result<Turns<'a>, Fail> {
        Ok(Turns {
            incoming: Incoming::endless(env)?,
            pages: Pages::new(Self::BUFFERS * Self::PIECE, false)?,
            last: VecDeque::new(),
            calls: 0,
        })
    }

    /// Some more receives, and what is done after each; returns how many Reads nobody waited for.
    fn take(&mut self, calls: usize, after: impl Fn() -> io::Result<()>) -> Result<u64, Fail> {
        let early = stat(self.incoming.env, "read_early")?;
        for _ in 0..calls {
            let at = self.calls % Self::BUFFERS * Self::PIECE;
            self.calls += 1;
            if self.last.len() == Self::BUFFERS {
                self.last.pop_front();
            }
            let got = self.incoming.take(self.pages.part(at, Self::PIECE), 0)?;
            self.last.push_back(got);
            after()?;
        }
        Ok(stat(self.incoming.env, "read_early")? - early)
    }

    /// The buffers have their bytes.
    fn end(self) -> Outcome {
        for got in self.last {
            got.check()?;
        }
        self.incoming.leave()
    }
}

/// A program that does not use the time is made to wait, for that is cheaper.
fn comes_back_too_soon(env: &Env) -> Outcome {
    let waited = stat(env, "by_copy_NoOverlap")?;
    let mut turns = Turns::new(env)?;
    let in_flight = || -> io::Result<u64> {
        Ok(stat(env, "read_posted")?.saturating_sub(stat(env, "read_done")?))
    };
    // Those of connections that were cut are never done.
    let others = in_flight()?;
    let limit = Instant::now() + Duration::from_secs(20);
    let (mut rounds, mut too_soon) = (0, 0);
    while stat(env, "by_copy_NoOverlap")? == waited {
        let often = too_soon > 8 && too_soon > rounds / 2;
        expect(!often, "nobody minds that calls come too soon")?;
        if Instant::now() > limit {
            return skip("the bytes are there too soon: this machine is too slow");
        }
        let early = turns.take(16, || Ok(()))?;
        rounds += 1;
        too_soon += u32::from(early > 0 && in_flight()? > others);
    }
    let early = turns.take(32, || Ok(()))?;
    expect_eq(early, 0, "Reads that nobody waited for all the same")?;
    turns.end()
}

/// One that comes when its bytes are there is not.
fn comes_back_in_time(env: &Env) -> Outcome {
    let waited = stat(env, "by_copy_NoOverlap")?;
    let mut turns = Turns::new(env)?;
    let limit = Instant::now() + Duration::from_secs(10);
    let mut early = 0;
    while early < 16 {
        if Instant::now() > limit {
            return skip(format!("only {early} Reads that nobody waited for"));
        }
        early += turns.take(8, || {
            while stat(env, "absent_pages")? > stat(env, "absent_freed")? {
                std::thread::yield_now();
            }
            Ok(())
        })?;
    }
    let waited = stat(env, "by_copy_NoOverlap")? - waited;
    expect_eq(waited, 0, "receives that have waited")?;
    turns.end()
}
