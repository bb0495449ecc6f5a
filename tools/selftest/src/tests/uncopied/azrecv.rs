// SPDX-License-Identifier: GPL-2.0
//! What programs may do to memory into which a receive still writes after it has returned: every
//! access sees the peer's bytes, never the previous content.

mod pieces;
mod threads;

use super::inflight::{
    expect_content, in_child, return_at_once, Growth, Stream, BLOCK, COPY, LEN, RETURNS,
    SDP_FAULT_POLICY, SDP_ZCOPY_MODE, SDP_ZCOPY_THRESH, SENDS, SOL_SDP, WAITS,
};
use crate::support::counters::stat;
use crate::support::flow::{recv_span, spawn, Span};
use crate::support::harness::{
    eventually, expect, expect_eq, failed, joined, skip, tests, Env, Fail, Family, Outcome,
};
use crate::support::pattern::{Pattern, Rng};
use crate::support::peer::{Job, Peer, Remote, Work};
use crate::support::sys::{self, Fork, Pages, RawVec, Sock, HUGE, PAGE};
use libc::MSG_WAITALL;
use pieces::{
    header_and_body_by_adverts, header_and_body_by_copy, header_and_body_in_one_advert,
    header_and_body_mixed, header_into_the_last_body, overlapping_pieces,
};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use threads::{
    by_two_threads, by_two_threads_and_peeked, by_two_threads_as_a_whole, by_two_threads_in_pieces,
    by_two_threads_into_one_buffer, by_two_threads_one_as_a_whole,
};

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
    received_into_twice,
    closed_at_once,
    disconnected_at_once,
    killed_at_once,
    odd_buffers_at_random,
    whole_buffers,
    by_two_threads,
    by_two_threads_and_peeked,
    by_two_threads_as_a_whole,
    by_two_threads_one_as_a_whole,
    by_two_threads_in_pieces,
    by_two_threads_into_one_buffer,
    header_and_body_by_copy,
    header_and_body_by_adverts,
    header_and_body_in_one_advert,
    header_and_body_mixed,
    overlapping_pieces,
    header_into_the_last_body,
);

/// A stream from the peer that goes without copies, as far as the sender decides this.
pub(in crate::tests) struct Incoming<'a> {
    pub(in crate::tests) env: &'a Env,
    sock: Sock,
    remote: Remote,
    job: Job,
    seed: u64,
    bytes: u64,
    received: u64,
}

impl<'a> Incoming<'a> {
    fn new(env: &'a Env, bytes: u64) -> Result<Incoming<'a>, Fail> {
        match env.family {
            Family::Tcp => skip("TCP copies what it receives"),
            Family::Sdp => Incoming::by_any(env, bytes),
        }
    }

    /// As [`Incoming::new`], also over TCP.
    fn by_any(env: &'a Env, bytes: u64) -> Result<Incoming<'a>, Fail> {
        let (sock, remote) = uncopied_pair(env)?;
        if env.family == Family::Sdp {
            // Otherwise its sends would go by copy in the end, because it writes the next bytes
            // into the memory of the last ones.
            remote.set_int(SOL_SDP, SDP_ZCOPY_MODE, WAITS)?;
        }
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

    /// Receives into the pages. Returns the bytes that must be there now.
    pub(in crate::tests) fn take(&mut self, pages: Pages, flags: i32) -> io::Result<Expected> {
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

    /// Fills all pieces in one call.
    pub(in crate::tests) fn take_pieces(
        &mut self,
        pieces: &[Pages],
    ) -> Result<Vec<Expected>, Fail> {
        let n = receive_into(&self.sock, pieces, MSG_WAITALL)?;
        let wanted: usize = pieces.iter().map(|p| p.len()).sum();
        expect_eq(n, wanted, "received with MSG_WAITALL")?;
        let mut all = Vec::new();
        for &pages in pieces {
            let (seed, offset) = (self.seed, self.received);
            all.push(Expected {
                pages,
                seed,
                offset,
            });
            self.received += pages.len() as u64;
        }
        Ok(all)
    }

    /// A stream without an end.
    pub(in crate::tests) fn endless(env: &'a Env) -> Result<Incoming<'a>, Fail> {
        Incoming::new(env, 1 << 40)
    }

    /// Receives until a call has returned early.
    pub(in crate::tests) fn take_early(&mut self, pages: Pages) -> Result<Expected, Fail> {
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

    /// Another descriptor of the socket, for another thread.
    pub(in crate::tests) fn socket(&self) -> io::Result<Sock> {
        self.sock.dup()
    }

    /// The session of the sender.
    pub(in crate::tests) fn sender(&self) -> Peer {
        self.remote.session().clone()
    }

    /// Closes the socket before the end of the stream, and waits until programs have their pages
    /// back.
    #[track_caller]
    pub(in crate::tests) fn leave(self) -> Outcome {
        drop(self.sock);
        settled(self.env)
    }

    /// Receives the rest of the stream, and expects that the peer has sent all of it.
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

/// A connection to the peer, whose receives on this side return early over SDP.
fn uncopied_pair(env: &Env) -> io::Result<(Sock, Remote)> {
    let (sock, remote) = env.pair()?;
    if env.family == Family::Sdp {
        return_at_once(&sock)?;
        remote.set_int(SOL_SDP, SDP_ZCOPY_THRESH, 16384)?;
    }
    Ok((sock, remote))
}

/// Repeats `round` for some time. If `must_be_early` is set, goes on until some receives have
/// returned early, because on a slow machine the module may read all bytes before a reader comes.
/// Over TCP no receive returns early.
fn for_some_time(env: &Env, must_be_early: bool, mut round: impl FnMut() -> Outcome) -> Outcome {
    let early = Growth::of(env, "read_early")?;
    let began = Instant::now();
    let end = began + Duration::from_millis(env.scaled(2000).max(500));
    let limit = began + Duration::from_secs(20);
    loop {
        round()?;
        let enough = !must_be_early || env.family == Family::Tcp || early.at_least(2).is_ok();
        let now = Instant::now();
        if enough && now > end {
            return Ok(());
        }
        if now > limit {
            return skip("no call has returned early: this machine is too slow");
        }
    }
}

/// One recvmsg() call with several buffers.
pub(in crate::tests) fn receive_into(
    sock: &Sock,
    pieces: &[Pages],
    flags: i32,
) -> io::Result<usize> {
    let vec = |p: &Pages| RawVec {
        base: p.at(0),
        len: p.len(),
    };
    let vecs: Vec<_> = pieces.iter().map(vec).collect();
    // SAFETY: no reference to the pages exists.
    unsafe { sock.recvmsg_raw(vecs.as_ptr() as usize, vecs.len(), flags) }
}

/// Waits until programs have all of their pages back.
#[track_caller]
pub(in crate::tests) fn settled(env: &Env) -> Outcome {
    eventually(
        "pages away",
        || Ok(stat(env, "absent_pages")?.saturating_sub(stat(env, "absent_freed")?)),
        |left| *left == 0,
    )
    .map(drop)
}

/// The bytes that a range of memory must contain.
#[derive(Clone, Copy)]
pub(in crate::tests) struct Expected {
    pub(in crate::tests) pages: Pages,
    seed: u64,
    offset: u64,
}

impl Expected {
    /// The next bytes of `stream`, which were received into the pages.
    pub(in crate::tests) fn next_of(stream: &Stream<'_>, pages: Pages) -> Expected {
        Expected {
            pages,
            seed: stream.env.seed,
            offset: stream.received,
        }
    }

    /// The bytes of the stream behind these, which were received into other pages.
    pub(in crate::tests) fn behind(self, pages: Pages) -> Expected {
        Expected {
            pages,
            offset: self.offset + self.pages.len() as u64,
            ..self
        }
    }

    pub(in crate::tests) fn part(self, from: usize, len: usize) -> Expected {
        Expected {
            pages: self.pages.part(from, len),
            offset: self.offset + from as u64,
            ..self
        }
    }

    /// The same bytes in other pages.
    pub(in crate::tests) fn at(self, pages: Pages) -> Expected {
        Expected { pages, ..self }
    }

    /// Whether the last whole page is mapped, so that a touch does not wait.
    pub(in crate::tests) fn is_there(self) -> io::Result<bool> {
        let whole = self.pages.len() / PAGE * PAGE;
        self.pages.is_mapped(whole.saturating_sub(PAGE))
    }

    /// Whether the stream has ended.
    pub(in crate::tests) fn is_end(self) -> bool {
        self.pages.len() == 0
    }

    fn is(self, bytes: &[u8]) -> bool {
        Pattern::new(self.seed).check(self.offset, bytes).wrong == 0
    }

    pub(in crate::tests) fn holds(self) -> bool {
        self.is(&self.pages.read(0, self.pages.len()))
    }

    #[track_caller]
    pub(in crate::tests) fn check(self) -> Outcome {
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
    // On a slow machine the module may read all bytes before the reader comes.
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let mut incoming = Incoming::new(env, bytes)?;
        while incoming.received < bytes {
            incoming.take(pages, 0)?.check()?;
        }
        incoming.end(pages)?;
        if early.at_least(1).is_ok() {
            return Ok(());
        }
        if Instant::now() > limit {
            return skip("no call has returned early: this machine is too slow");
        }
    }
}

/// What the program writes after recv() stays, and so do the peer's bytes beside it.
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

/// Does a random thing to received memory whose bytes may not have arrived yet. Returns whether the
/// content is right.
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
            // This may fail: there may be no free huge page.
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

/// Kinds of buffers.
#[derive(Clone, Copy, PartialEq)]
enum Buffers {
    Small,
    Huge,
    /// Buffers that begin in the middle of a page.
    Odd,
}

fn at_random(env: &Env, buffers: Buffers) -> Outcome {
    let huge = buffers == Buffers::Huge;
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
    let mut heads = Rng::new(env.seed ^ 0x0dd);
    let mut turn = 0;
    let mut result = Ok(());
    // On a slow machine the module reads many bytes before the reader comes, so the loop goes on
    // until enough calls have returned early.
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
                let start = match buffers {
                    Buffers::Odd => 1 + heads.below(PAGE - 1),
                    _ => 0,
                };
                let got = incoming.take(pages.part(start, len - start), 0)?;
                // The call has waited for the bytes in a page that the buffer shares with other
                // memory.
                let head = (start.next_multiple_of(PAGE) - start).min(got.pages.len());
                got.part(0, head).check()?;
                let got = got.part(head, got.pages.len() - head);
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
    if !enough() {
        return skip("no calls have returned early: this machine is too slow");
    }
    Ok(())
}

fn small_buffers_at_random(env: &Env) -> Outcome {
    at_random(env, Buffers::Small)
}

fn huge_buffers_at_random(env: &Env) -> Outcome {
    at_random(env, Buffers::Huge)
}

fn odd_buffers_at_random(env: &Env) -> Outcome {
    at_random(env, Buffers::Odd)
}

/// A forked child has the bytes that its parent has received, and fork() works while other threads
/// wait for the bytes.
fn forked_at_once(env: &Env) -> Outcome {
    let mut incoming = Incoming::endless(env)?;
    let pages = Pages::new(LEN, false)?;
    for _ in 0..6 {
        let got = incoming.take_early(pages)?;
        let others: Vec<_> = (0..2)
            .map(|_| spawn(move || got.holds()))
            .collect::<Result<_, _>>()?;
        // The core only tries to lock a page, so fork() may fail while another thread has the lock.
        let mut forks = (0..5).map(|_| in_child(|| Ok(got.holds())));
        let is_refused = |e: &io::Error| e.raw_os_error() == Some(libc::ENOMEM);
        let child = forks.find(|child| !child.as_ref().is_err_and(is_refused));
        let Some(child) = child else {
            return failed("fork() fails again and again");
        };
        let child = child?;
        got.check()?;
        expect_content(child, "the child")?;
        for other in others {
            expect(joined(other)?, "a thread has seen other bytes")?;
        }
    }
    incoming.leave()
}

/// mremap(), as in realloc(), moves pages together with the bytes that are still to come.
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

/// Memory that the program has discarded stays discarded, and the bytes do not come later.
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

/// A process that reads the memory of a program from outside waits for the bytes, too.
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

/// A buffer into which bytes are still on their way is sent at once, in every way.
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

/// The next recv() may have the same buffer or an overlapping one. A range that was in one memory
/// area may be in two areas when it is given back.
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
            // The bytes before the new ones are still there.
            if from < got.pages.at(0) {
                let len = (got.pages.at(0) - from).min(before.pages.len());
                before.part(0, len).check()?;
            }
        }
        if rng.below(2) == 0 {
            got.check()?;
            // The worker may be about to give the pages back, before the next call can do so.
            std::thread::sleep(Duration::from_millis(1));
        }
        last = Some(got);
    }
    incoming.end(pages)
}

/// Two receives have the same buffer. When the first one gives its pages back, however late, it
/// must not give back pages into which bytes of the second one are on their way.
fn received_into_twice(env: &Env) -> Outcome {
    let pages = Pages::new(LEN, false)?;
    let mut rng = Rng::new(env.seed ^ 0x27);
    for _ in 0..8 {
        // Few receives for each connection: these ones are not worth returning early.
        let mut incoming = Incoming::endless(env)?;
        for _ in 0..3 {
            incoming.take_early(pages)?;
            let got = incoming.take(pages, 0)?;
            // Bytes may be on their way for this long if the link is slow.
            std::thread::sleep(Duration::from_millis(rng.below(25) as u64));
            got.check()?;
        }
        incoming.leave()?;
    }
    Ok(())
}

/// close() takes no bytes back that a receive has promised.
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

/// The bytes that a receive has promised arrive, even if another thread disconnects the socket.
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
        let odd = [0, 16][rng.below(2)];
        for turn in 0.. {
            let pages = all.part(turn % 4 * LEN + odd, LEN - odd);
            match incoming.take(pages, [0, MSG_WAITALL][turn & 1]) {
                Ok(next) if next.pages.len() > 0 => got.push(next),
                _ => break,
            }
        }
        joined(ending)??;
        // Later receives have overwritten the other buffers.
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

/// A program may end at any time: all pages are given back.
fn killed_at_once(env: &Env) -> Outcome {
    for way in 0..8 {
        let mut incoming = Incoming::new(env, BYTES)?;
        let child = in_child(|| {
            let start = [0, 16][way / 2 % 2];
            let pages = Pages::new(LEN, false)?.part(start, LEN - start);
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

/// MSG_WAITALL fills the whole buffer, also if it does not consist of whole pages.
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
