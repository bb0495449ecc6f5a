// SPDX-License-Identifier: GPL-2.0
//! Which receives return before their bytes have arrived, depending on the buffer and on the
//! program.

use super::azrecv::{receive_into, settled, Expected, Incoming};
use super::disk::Disk;
use super::inflight::{
    expect_content, huge_page, in_child, return_at_once, Growth, Stream, LEN, SDP_ZCOPY_MODE,
    SDP_ZCOPY_THRESH, SOL_SDP, WAITS,
};
use super::sink::grown;
use crate::support::counters::{changed, stat, stats};
use crate::support::flow::{spawn, Span};
use crate::support::harness::{
    eventually, expect, expect_eq, failed, joined, skip, tests, Env, Fail, Family, Outcome,
};
use crate::support::sys::{self, MissingPages, Pages, Registered, Sock, HUGE, PAGE};
use libc::{MSG_NOSIGNAL, MSG_WAITALL, SOL_SOCKET, SO_RCVBUF};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

tests!("azwhen";
    behind_copied_bytes,
    behind_bytes_of_the_same_advert,
    in_odd_pieces,
    short_and_odd,
    comes_back_too_soon,
    odd_and_too_soon,
    odd_and_waits_for_the_rest,
    comes_back_in_time,
    header_and_body_in_time,
    without_leave_to_lock,
    huge_page_counts_whole,
    into_locked_memory,
    into_watched_memory,
    into_registered_buffers,
    into_pages_in_a_pipe,
    into_pages_of_direct_io,
);

/// A child sends `span` from its own pages, in one call.
fn sends_in_child(from: &Sock, span: Span) -> io::Result<i32> {
    let len = span.len as usize;
    in_child(|| {
        let pages = Pages::new(len, false)?;
        pages.write(0, &span.to_vec());
        Ok(from.send_raw(pages.at(0), len, MSG_NOSIGNAL)? == len)
    })
}

/// A receive into memory that may be protected against reads does not return early, because
/// somebody else handles the faults of this memory.
fn into_watched_memory(env: &Env) -> Outcome {
    const ALL: usize = 4 * LEN;
    let Some(mut to) = MissingPages::unprotected(ALL / PAGE)? else {
        return skip("userfaultfd has no read-write protection here");
    };
    // The pages must be present.
    to.bytes(ALL).fill(0xee);
    let stream = Stream::new(env)?;
    return_at_once(&stream.other)?;
    let span = Span::new(env.seed, 0, ALL as u64);
    let child = sends_in_child(&stream.one, span)?;
    let early = stat(env, "read_early")?;
    let why = Growth::of(env, "by_copy_Userfaultfd")?;
    stream.other.recv_exact(to.bytes(ALL))?;
    expect(to.bytes(ALL) == span.to_vec(), "other bytes")?;
    expect_eq(stat(env, "read_early")?, early, "read early")?;
    why.at_least(1)?;
    expect_content(child, "the sender")
}

/// Receives into memory to which somebody else has references. `look` reads the memory by these
/// references after each call, and must see the bytes, so no call may return early. Returns whether
/// a call would have returned early without the references.
fn into_held_memory(
    env: &Env,
    to: Pages,
    mut look: impl FnMut(usize, usize) -> io::Result<Vec<u8>>,
) -> Result<bool, Fail> {
    let stream = Stream::new(env)?;
    return_at_once(&stream.other)?;
    let span = Span::new(env.seed, 0, to.len() as u64);
    let (want, from) = (span.to_vec(), Pages::new(to.len(), false)?);
    from.write(0, &want);
    let early = stat(env, "read_early")?;
    let refused = stat(env, "by_copy_NotProtectable")?;
    // The sender is a thread, because a child would have the memory, too.
    let sock = stream.one.dup()?;
    let sender = spawn(move || sock.send_raw(from.at(0), from.len(), MSG_NOSIGNAL))?;
    let mut got = 0;
    while got < to.len() {
        let rest = to.part(got, to.len() - got);
        // SAFETY: no reference to the pages exists.
        let n = unsafe { stream.other.recv_raw(rest.at(0), rest.len(), 0)? };
        expect(n > 0, format!("the end after {got} bytes"))?;
        expect(
            look(got, n)? == want[got..got + n],
            format!("other bytes behind {got}"),
        )?;
        got += n;
    }
    expect_eq(joined(sender)??, to.len(), "sent")?;
    expect_eq(stat(env, "read_early")?, early, "read early")?;
    Ok(stat(env, "by_copy_NotProtectable")? > refused)
}

/// Repeats `attempt` until one call would have returned early.
fn sometimes(mut attempt: impl FnMut() -> Result<bool, Fail>) -> Outcome {
    for _ in 0..20 {
        if attempt()? {
            return Ok(());
        }
    }
    skip("all bytes come before the reader: this machine is too slow")
}

fn into_registered_buffers(env: &Env) -> Outcome {
    for huge in [false, true] {
        let to = Pages::new(if huge { HUGE } else { 4 * LEN }, huge)?.part(0, 4 * LEN);
        to.touch(1);
        let mut registered = Registered::new(to)?;
        sometimes(|| {
            into_held_memory(env, to, |from, len| {
                let mut file = sys::memory_file(&[])?;
                registered.write(file.as_raw_fd(), from, len)?;
                file.rewind()?;
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes)?;
                Ok(bytes)
            })
        })?;
    }
    Ok(())
}

fn into_pages_in_a_pipe(env: &Env) -> Outcome {
    let to = Pages::new(4 * LEN, false)?;
    to.touch(1);
    sometimes(|| {
        let (from_pipe, to_pipe) = sys::pipe()?;
        sys::set_pipe_size(to_pipe.as_raw_fd(), to.len())?;
        let given = to.give_to_pipe(to_pipe.as_raw_fd(), to.len())?;
        expect_eq(given, to.len(), "bytes in the pipe")?;
        let mut pipe = File::from(from_pipe);
        into_held_memory(env, to, |_, len| {
            let mut bytes = vec![0; len];
            pipe.read_exact(&mut bytes)?;
            Ok(bytes)
        })
    })
}

/// A device is to write to disk what will be in the buffer. It has pinned the buffer's pages, and
/// does not begin before the last page of the same write is present.
fn into_pages_of_direct_io(env: &Env) -> Outcome {
    const ALL: usize = 3 * LEN;
    if env.family == Family::Tcp {
        return skip("TCP copies what it receives");
    }
    let Some(disk) = Disk::new()? else {
        return skip("no zram here");
    };
    let to = Pages::new(ALL, false)?;
    let mut file = disk.file()?;
    sometimes(|| {
        to.touch(1);
        let last = MissingPages::new(1, 0)?;
        let pieces = [(to.at(0), ALL), (last.at(0), PAGE)];
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| sys::writev_at(file.as_raw_fd(), &pieces));
            last.await_touch()?;
            // The content of the disk shows later what the device has seen, so this check is always
            // true.
            let expected = |from, len| Ok(Span::new(env.seed, from as u64, len as u64).to_vec());
            let held = into_held_memory(env, to, expected);
            last.bring(0, &[0; PAGE])?;
            let written = writing.join();
            let is_refused = held?;
            let written = written.map_err(|_| io::Error::other("a thread panics"))??;
            expect_eq(written, ALL + PAGE, "written")?;
            let on_disk = Pages::new(ALL, false)?;
            file.rewind()?;
            let read = on_disk.take_from(file.as_raw_fd(), ALL)?;
            file.rewind()?;
            expect_eq(read, ALL, "read")?;
            let want = Span::new(env.seed, 0, ALL as u64).to_vec();
            expect(on_disk.read(0, ALL) == want, "other bytes on disk")?;
            Ok(is_refused)
        })
    })
}

/// A user who may lock no memory receives as others do, but the calls wait for the bytes.
fn without_leave_to_lock(env: &Env) -> Outcome {
    const ALL: usize = 4 * LEN;
    let stream = Stream::new(env)?;
    return_at_once(&stream.other)?;
    let span = Span::new(env.seed, 0, ALL as u64);
    let child = sends_in_child(&stream.one, span)?;
    sys::limit_locked_memory(PAGE as u64)?;
    sys::become_nobody()?;
    let refused = Growth::of(env, "memlock_refused")?;
    let early = stat(env, "read_early")?;
    let to = Pages::new(ALL, false)?;
    let mut got = 0;
    while got < ALL {
        let rest = to.part(got, ALL - got);
        // SAFETY: no reference to the pages exists.
        let n = unsafe { stream.other.recv_raw(rest.at(0), rest.len(), 0)? };
        expect(n > 0, format!("the end after {got} bytes"))?;
        got += n;
    }
    expect(to.read(0, ALL) == span.to_vec(), "other bytes")?;
    refused.at_least(1)?;
    expect_eq(stat(env, "read_early")?, early, "read early")?;
    expect_content(child, "the sender")
}

/// Receives until the buffer is full. Returns whether a call has returned early.
fn returns_early(env: &Env, to: Pages) -> Result<bool, Fail> {
    // The send is made by a thread of its own, so the send buffer needs no room for all bytes.
    let (one, other) = env.own_pair()?;
    return_at_once(&one)?;
    return_at_once(&other)?;
    other.set_int(SOL_SOCKET, SO_RCVBUF, 8192)?;
    let want = Span::new(env.seed, 0, to.len() as u64).to_vec();
    let from = Pages::new(to.len(), false)?;
    from.write(0, &want);
    to.touch(1);
    let early = stat(env, "read_early")?;
    // The sender is a thread, because a child would have the memory, too.
    let sender = spawn(move || one.send_raw(from.at(0), from.len(), MSG_NOSIGNAL))?;
    let mut got = 0;
    while got < to.len() {
        let rest = to.part(got, to.len() - got);
        // SAFETY: no reference to the pages exists.
        let n = unsafe { other.recv_raw(rest.at(0), rest.len(), 0)? };
        expect(n > 0, format!("the end after {got} bytes"))?;
        got += n;
    }
    expect(to.read(0, to.len()) == want, "other bytes")?;
    expect_eq(joined(sender)??, to.len(), "sent")?;
    settled(env)?;
    Ok(stat(env, "read_early")? > early)
}

/// A receive into a part of a huge page keeps the whole huge page, so the limit must have room for
/// all of it.
fn huge_page_counts_whole(env: &Env) -> Outcome {
    if env.family == Family::Tcp {
        return skip("TCP locks no memory");
    }
    let to = huge_page()?.part(0, LEN);
    // The bytes are read in two halves, and each half counts the whole huge page. The rest is for
    // the sender.
    sys::limit_locked_memory(3 * HUGE as u64)?;
    sys::become_nobody()?;
    sometimes(|| returns_early(env, to))?;
    // Room for the bytes of both sides, but not for a huge page.
    sys::limit_locked_memory(4 * LEN as u64)?;
    sometimes(|| {
        let refused = Growth::of(env, "memlock_refused")?;
        expect(!returns_early(env, to)?, "a call has returned early")?;
        Ok(refused.at_least(1).is_ok())
    })
}

/// The amount of locked memory of the machine in bytes.
fn machines_locked_memory() -> io::Result<usize> {
    let all = fs::read_to_string("/proc/meminfo")?;
    let line = all.lines().find_map(|line| line.strip_prefix("Mlocked:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    let kib: usize = kib
        .ok_or(io::ErrorKind::InvalidData)?
        .parse()
        .map_err(io::Error::other)?;
    Ok(kib << 10)
}

/// The calls of a user with a limit wait for the bytes if the buffer is locked: the core would not
/// unlock pages that are away, and the user could lock more memory than the limit permits.
fn into_locked_memory(env: &Env) -> Outcome {
    if env.family == Family::Tcp {
        return skip("TCP copies what it receives");
    }
    let to = Pages::new(4 * LEN, false)?;
    // Room for the locked pages, and for the bytes of both sides.
    sys::limit_locked_memory(16 * LEN as u64)?;
    // Only some users receive early by default, so the program stays root.
    sys::lose_ipc_lock()?;
    sometimes(|| returns_early(env, to))?;
    let before = machines_locked_memory()?;
    to.lock()?;
    sometimes(|| {
        let refused = Growth::of(env, "by_copy_NotProtectable")?;
        expect(!returns_early(env, to)?, "a call has returned early")?;
        Ok(refused.at_least(1).is_ok())
    })?;
    to.unlock()?;
    // Each processor counts some pages for itself for about a second.
    eventually("locked memory", machines_locked_memory, |now| {
        *now < before + LEN / 2
    })
}

/// The buffers of both sides begin in the middle of a page, as those of malloc() do. The bytes
/// before the first whole page are copied, and the same call returns the whole pages behind them
/// early.
fn behind_copied_bytes(env: &Env) -> Outcome {
    let mut stream = Stream::new(env)?;
    return_at_once(&stream.other)?;
    let (from, to) = (Pages::new(LEN, false)?, Pages::new(LEN, false)?);
    let limit = Instant::now() + Duration::from_secs(20);
    for head in [1, 16, PAGE - 1] {
        let part = |pages: Pages| pages.part(PAGE - head, LEN - PAGE + head);
        let mut tries = 0;
        loop {
            match takes_pages_along(&mut stream, part(from), part(to), head)? {
                Some(true) => break,
                Some(false) => tries += 1,
                None if Instant::now() > limit => {
                    return skip("the bytes come before the reader: this machine is too slow");
                }
                None => {}
            }
            expect(tries < 20, format!("nothing behind {head} bytes"))?;
        }
    }
    settled(env)
}

/// Whether a call that copies the first `head` bytes also returns whole pages early; `None` if it
/// does not because it came too late: the first of these pages are then being read into the
/// kernel's memory.
fn takes_pages_along(
    stream: &mut Stream<'_>,
    from: Pages,
    to: Pages,
    head: usize,
) -> Result<Option<bool>, Fail> {
    let early = Growth::of(stream.env, "read_early")?;
    let advert = Growth::of(stream.env, "advert_received")?;
    let late = Growth::of(stream.env, "pulled_Delay")?;
    stream.send(from)?;
    // The advert comes in a message behind the copied bytes.
    advert.reaches(1)?;
    // SAFETY: no reference to the pages exists.
    let n = unsafe { stream.other.recv_raw(to.at(0), to.len(), 0)? };
    let is_late = grown(&late)? > 0;
    let along = n >= head + 4 * PAGE && early.at_least(1).is_ok();
    Expected::next_of(stream, to.part(0, n)).check()?;
    stream.received += n as u64;
    stream.receive()?;
    Ok((along || !is_late).then_some(along))
}

/// The number of bytes of a buffer before its first whole page.
const HEADS: [usize; 3] = [1, 16, PAGE - 1];

/// A receive waits for the bytes before the first whole page of its buffer, but not for the bytes
/// in the pages. Memory beside the buffer is accessible all the time.
fn behind_bytes_of_the_same_advert(env: &Env) -> Outcome {
    const BEHIND: usize = 100;
    let mut incoming = Incoming::endless(env)?;
    let all = Pages::new(LEN, false)?;
    for head in HEADS {
        let (before, len) = (PAGE - head, LEN - PAGE + head - BEHIND);
        all.write(0, &vec![1; before]);
        all.write(before + len, &[2; BEHIND]);
        let waits = stat(env, "absent_waits")?;
        let got = incoming.take_early(all.part(before, len))?;
        // Accesses to these bytes do not wait.
        expect(
            all.read(0, before).iter().all(|b| *b == 1),
            "bytes before it",
        )?;
        all.write(0, &vec![3; before]);
        let pages = (got.pages.len() - head) / PAGE;
        expect(
            before + got.pages.len() == (1 + pages) * PAGE,
            "bytes in a part of a page",
        )?;
        expect(
            all.read(LEN - BEHIND, BEHIND) == [2; BEHIND],
            "bytes behind it",
        )?;
        settled(env)?;
        let waits = stat(env, "absent_waits")? - waits;
        expect_eq(waits, 0, "waits for what is beside it")?;
        got.check()?;
        expect(
            all.read(0, before).iter().all(|b| *b == 3),
            "what was written",
        )?;
    }
    incoming.leave()
}

/// One call fills several pieces of memory, which begin anywhere in a page.
fn in_odd_pieces(env: &Env) -> Outcome {
    let mut incoming = Incoming::endless(env)?;
    let all = Pages::new(3 * LEN, false)?;
    let piece = |at: usize, odd: usize, len| all.part(at * LEN + odd, len);
    let pieces = [
        piece(0, 0, 40 * PAGE + 9),
        piece(1, 16, LEN - PAGE),
        piece(2, 1, 40 * PAGE),
    ];
    for _ in 0..10 {
        for got in incoming.take_pieces(&pieces)? {
            got.check()?;
        }
    }
    incoming.leave()
}

/// A call that waits for the bytes before the first whole page does not return early for a few
/// pages behind these bytes.
fn short_and_odd(env: &Env) -> Outcome {
    let mut incoming = Incoming::endless(env)?;
    let pages = Pages::new(LEN, false)?.part(16, LEN / 4);
    let early = stat(env, "read_early")?;
    for _ in 0..20 {
        incoming.take(pages, 0)?.check()?;
    }
    let early = stat(env, "read_early")? - early;
    expect_eq(early, 0, "Reads that nobody waited for")?;
    incoming.leave()
}

/// Receives into several buffers by turns.
struct Turns<'a> {
    incoming: Incoming<'a>,
    buffers: Vec<Pages>,
    last: VecDeque<Expected>,
    calls: usize,
}

impl<'a> Turns<'a> {
    const BUFFERS: usize = 4;

    /// Each buffer has `len` bytes and begins `odd` bytes behind the start of a page.
    fn new(env: &'a Env, len: usize, odd: usize) -> Result<Turns<'a>, Fail> {
        let buffer = |_| Ok(Pages::new(odd + len, false)?.part(odd, len));
        Ok(Turns {
            incoming: Incoming::endless(env)?,
            buffers: (0..Self::BUFFERS).map(buffer).collect::<io::Result<_>>()?,
            last: VecDeque::new(),
            calls: 0,
        })
    }

    /// Receives `calls` times. Returns the number of early Reads.
    fn take(&mut self, calls: usize) -> Result<u64, Fail> {
        let early = stat(self.incoming.env, "read_early")?;
        for _ in 0..calls {
            let buffer = self.buffers[self.calls % Self::BUFFERS];
            self.calls += 1;
            if self.last.len() == Self::BUFFERS {
                self.last.pop_front();
            }
            let got = self.incoming.take(buffer, 0)?;
            self.last.push_back(got);
        }
        Ok(stat(self.incoming.env, "read_early")? - early)
    }

    /// Checks the bytes in the buffers.
    fn end(self) -> Outcome {
        for got in self.last {
            got.check()?;
        }
        self.incoming.leave()
    }
}

/// If a program does nothing else until its bytes arrive, receives wait in the call, which is
/// cheaper.
fn comes_back_too_soon(env: &Env) -> Outcome {
    too_soon(env, 16 * PAGE, 0)
}

/// The same for buffers that begin in the middle of a page: each call waits for the bytes before
/// the first whole page anyway.
fn odd_and_too_soon(env: &Env) -> Outcome {
    too_soon(env, LEN, 16)
}

/// A program that waits for the bytes behind the last whole page, in the same call or in the next
/// one, has no time for anything else either.
fn odd_and_waits_for_the_rest(env: &Env) -> Outcome {
    if !reads_outlast_calls(env)? {
        return skip("the bytes are there too soon: nothing is left to wait for");
    }
    for flags in [MSG_WAITALL, 0] {
        let waited = stat(env, "by_copy_NoOverlap")?;
        let mut incoming = Incoming::endless(env)?;
        let buffer = Pages::new(LEN, false)?.part(16, LEN - 16 - 100);
        let early = Growth::of(env, "read_early")?;
        let limit = Instant::now() + Duration::from_secs(20);
        while stat(env, "by_copy_NoOverlap")? == waited {
            expect(early.at_least(200).is_err(), "nobody minds that calls wait")?;
            if Instant::now() > limit {
                return skip("no call returns early: this machine is too slow");
            }
            let mut done = 0;
            while done < buffer.len() {
                let rest = buffer.part(done, buffer.len() - done);
                done += incoming.take(rest, flags)?.pages.len();
            }
        }
        incoming.leave()?;
    }
    Ok(())
}

/// The number of Reads in flight, of all connections. The number may be too large, but never too
/// small: the Reads that are done are counted first.
fn in_flight(env: &Env) -> io::Result<u64> {
    let done = stat(env, "read_done")?;
    Ok(stat(env, "read_posted")?.saturating_sub(done))
}

/// Whether the Reads of receives that return early are mostly still in flight when the receives
/// have returned. A fast adapter has finished them by then.
fn reads_outlast_calls(env: &Env) -> Result<bool, Fail> {
    let others = in_flight(env)?;
    let mut turns = Turns::new(env, LEN, 0)?;
    let (mut early, mut outlasted) = (0, 0);
    for _ in 0..32 {
        if turns.take(1)? > 0 {
            early += 1;
            outlasted += u32::from(in_flight(env)? > others);
        }
    }
    turns.end()?;
    Ok(outlasted > early / 2)
}

fn too_soon(env: &Env, len: usize, odd: usize) -> Outcome {
    let waited = stat(env, "by_copy_NoOverlap")?;
    let mut turns = Turns::new(env, len, odd)?;
    // Reads into the kernel's memory do not show how soon a call comes.
    let pulled = || stat(env, "rx_pulled_bytes");
    // Reads of connections that were cut off never finish.
    let others = in_flight(env)?;
    let limit = Instant::now() + Duration::from_secs(20);
    let (mut rounds, mut too_soon) = (0, 0);
    while stat(env, "by_copy_NoOverlap")? == waited {
        let often = too_soon > 8 && too_soon > rounds / 2;
        expect(!often, "nobody minds that calls come too soon")?;
        if Instant::now() > limit {
            return skip("the bytes are there too soon: this machine is too slow");
        }
        let before = pulled()?;
        let early = turns.take(16)?;
        rounds += 1;
        too_soon += u32::from(early > 0 && in_flight(env)? > others && pulled()? == before);
    }
    let early = turns.take(32)?;
    expect_eq(early, 0, "Reads that nobody waited for all the same")?;
    turns.end()
}

/// A program that comes back after its bytes have arrived is not made to wait, if the bytes take
/// long. If they come soon, the program gains less time than taking the pages away costs.
fn comes_back_in_time(env: &Env) -> Outcome {
    frames_in_time(env, &[16 * PAGE], None)
}

/// The same for a program that receives a header and a body in one call. Each receive is judged by
/// its own cost and time, although the small buffer for the header comes first. So a program that
/// mostly comes back after its bytes have arrived is not made to wait.
fn header_and_body_in_time(env: &Env) -> Outcome {
    frames_in_time(env, &[16, 16 * PAGE], Some(8))
}

/// Receives frames of pieces of these sizes, each frame in one call, and waits for the bytes of
/// each frame before the next call, except for one of `soon` frames. The peer sends each piece when
/// the former one was read, so no bytes arrive ahead.
fn frames_in_time(env: &Env, sizes: &'static [usize], soon: Option<u64>) -> Outcome {
    const FRAMES: u64 = 80;
    if env.family == Family::Tcp {
        return skip("TCP copies what it receives");
    }
    let (sock, remote) = env.pair()?;
    return_at_once(&sock)?;
    remote.set_int(SOL_SDP, SDP_ZCOPY_THRESH, 16384)?;
    remote.set_int(SOL_SDP, SDP_ZCOPY_MODE, WAITS)?;
    let before_all = stats(env)?;
    let (seed, sender) = (env.seed, remote.clone());
    let sending = spawn(move || -> io::Result<()> {
        let mut offset = 0;
        for _ in 0..FRAMES {
            for len in sizes {
                // A send that waits sends all bytes.
                offset += sender.send(Span::new(seed, offset, *len as u64), 0)? as u64;
            }
        }
        Ok(())
    })?;
    let waited = Growth::of(env, "by_copy_NoOverlap")?;
    let early = Growth::of(env, "read_early")?;
    // The Reads of connections that were cut are never done; those of a connection that is just
    // being cut may still be.
    let mut others = in_flight(env)?;
    let pieces: Vec<_> = sizes
        .iter()
        .map(|size| Ok(Pages::new(size.next_multiple_of(PAGE), false)?.part(0, *size)))
        .collect::<io::Result<_>>()?;
    let all: usize = sizes.iter().sum();
    let (mut too_soon, mut unclear) = (0, 0);
    for frame in 0..FRAMES {
        others = others.min(in_flight(env)?);
        let before = grown(&early)?;
        let called = Instant::now();
        let got = receive_into(&sock, &pieces, MSG_WAITALL)?;
        expect_eq(got, all, "received with MSG_WAITALL")?;
        let comes_soon = soon.is_some_and(|soon| frame % soon == soon - 1);
        if comes_soon {
            continue;
        }
        let returned = Instant::now();
        let took = returned - called;
        while in_flight(env)? > others {
            if returned.elapsed() > Duration::from_secs(10) {
                return failed("a Read takes more than 10 s");
            }
            std::thread::yield_now();
        }
        if grown(&early)? > before {
            too_soon += u64::from(returned.elapsed() < Duration::from_millis(10));
            // The call took the pages away, and may have waited for the peer before.
            unclear += u32::from(returned.elapsed() < 2 * took);
        }
        let offset = frame * all as u64;
        let bytes: Vec<u8> = pieces.iter().flat_map(|p| p.read(0, p.len())).collect();
        let want = Span::new(env.seed, offset, all as u64).to_vec();
        expect(bytes == want, format!("other bytes in frame {frame}"))?;
    }
    joined(sending)??;
    let (early, waited) = (grown(&early)?, grown(&waited)?);
    drop(sock);
    settled(env)?;
    // Taking 16 pages away takes less than a millisecond, or a few milliseconds under the checkers.
    if too_soon > early / 4 {
        return skip(format!(
            "the bytes arrive too soon: {too_soon} of {early} times"
        ));
    }
    // On a busy machine it may take long to take the pages, too. Over a slow link, a skipped test is a
    // failure (adverts.slow_link).
    if early < FRAMES / 2 {
        let changed = changed(env, &before_all)?;
        return skip(format!(
            "only {early} Reads that nobody waited for; counters: {changed}"
        ));
    }
    // A single receive that was not worth its cost changes nothing.
    if waited > 0 && unclear > 1 {
        return skip(format!(
            "{unclear} calls may have taken too long: {waited} have waited"
        ));
    }
    expect_eq(waited, 0, "receives that have waited")
}
