// SPDX-License-Identifier: GPL-2.0
//! MSG_ZEROCOPY, and the similar requests of io_uring: the program does not change the memory until
//! a notification allows it.

use super::inflight::{return_at_once, Growth, Stream, LEN, SDP_ZCOPY_THRESH, SENDS, SOL_SDP};
use crate::support::counters::{stat, without_room};
use crate::support::flow::{spawn, Span};
use crate::support::harness::{
    eventually, expect, expect_eof, expect_eq, expect_errno, expect_received, fill, joined,
    receive, skip, tests, Child, Env, Fail, Family, Outcome, QUIET_MS,
};
use crate::support::pattern::Rng;
use crate::support::peer::Work;
use crate::support::sys::{self, Pages, SendZc, Sock, PAGE};
use libc::{
    EAGAIN, EINVAL, ENOBUFS, EPIPE, MSG_DONTWAIT, MSG_ERRQUEUE, MSG_NOSIGNAL, MSG_ZEROCOPY,
    POLLERR, SHUT_WR, SOL_SOCKET, SO_RCVBUF, SO_SNDBUFFORCE, SO_ZEROCOPY,
};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

tests!("zerocopy";
    option,
    told_when_the_peer_has_read,
    every_send_has_a_number,
    nothing_is_told_without_the_option,
    a_send_that_fails_has_no_number,
    a_refused_notification_sends_nothing,
    by_many_threads,
    closed_at_once,
    to_a_reader_that_waits,
    to_a_large_reader_from_within_a_page,
    readers_come_meanwhile,
    memory_that_ends,
    of_empty_pieces,
    unmapped_before_it_is_read,
    of_memory_that_another_sends,
    ends_with_all_in_flight,
    closed_by_both_with_bytes_left,
    peer_dies,
    everything_is_given_back,
    by_io_uring,
    by_io_uring_of_registered_memory,
    messages_by_io_uring,
    messages_by_io_uring_of_registered_memory,
    io_uring_is_told_at_the_end,
    registered_memory_without_a_request_of_its_kind,
    files,
    pages_of_a_pipe,
);

/// From linux/errqueue.h.
const ORIGIN_ZEROCOPY: u8 = 5;
const CODE_COPIED: u8 = 1;

/// A notification: the numbers of the first and of the last send that it is about, and whether they
/// were copied.
type Told = (u32, u32, bool);

/// Receives the next notification, if there is one.
fn told(sock: &Sock) -> io::Result<Told> {
    let mut control = [0u64; 16];
    let (n, len, flags) = sock.recvmsg_with(&mut [0; 8], &mut control, MSG_ERRQUEUE)?;
    let bytes: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let word = |at: usize| {
        let mut four = [0; 4];
        four.copy_from_slice(&bytes[at..at + 4]);
        u32::from_ne_bytes(four)
    };
    // A cmsghdr consists of its length, the level and the type. A sock_extended_err follows.
    let kind = (word(8) as i32, word(12) as i32);
    let expected = [
        (libc::SOL_IP, libc::IP_RECVERR),
        (libc::SOL_IPV6, libc::IPV6_RECVERR),
    ];
    let is_one = n == 0
        && len >= 32
        && flags & MSG_ERRQUEUE != 0
        && expected.contains(&kind)
        && word(16) == 0
        && bytes[20] == ORIGIN_ZEROCOPY;
    if !is_one {
        return Err(io::Error::other(format!(
            "no notification: {n}, {flags:#x}, {bytes:?}"
        )));
    }
    Ok((word(24), word(28), bytes[22] & CODE_COPIED != 0))
}

/// Waits until each of `count` sends has its notification, and expects no second one. Returns the
/// number of copied sends.
#[track_caller]
fn all_told(sock: &Sock, count: u32) -> Result<u32, Fail> {
    let mut seen = vec![false; count as usize];
    let mut copied = 0;
    while seen.contains(&false) {
        // If both sides have ended, poll() does not wait, although the worker may still have to
        // send notifications.
        let is_told = || Ok(sock.poll(0, 20_000)? & POLLERR);
        eventually("POLLERR", is_told, |events| *events != 0)?;
        let (first, last, was_copied) = told(sock)?;
        for number in first..=last {
            let place = seen.get_mut(number as usize);
            let again = place.is_none_or(|place| std::mem::replace(place, true));
            expect(
                !again,
                format!("{number} is told of again, or was not sent"),
            )?;
            copied += u32::from(was_copied);
        }
    }
    expect_errno(told(sock), EAGAIN, "one more")?;
    expect_eq(sock.poll(0, 0)? & POLLERR, 0, "POLLERR of none")?;
    Ok(copied)
}

fn allow(sock: &Sock) -> io::Result<()> {
    sock.set_int(SOL_SOCKET, SO_ZEROCOPY, 1)
}

fn lend(sock: &Sock, bytes: &[u8], flags: i32) -> io::Result<usize> {
    sock.send(bytes, flags | MSG_ZEROCOPY | MSG_NOSIGNAL)
}

#[track_caller]
fn lend_all(sock: &Sock, bytes: &[u8]) -> Outcome {
    expect_eq(lend(sock, bytes, 0)?, bytes.len(), "sent")
}

fn option(env: &Env) -> Outcome {
    let (_listener, addr) = env.listener(1)?;
    let sock = env.socket()?;
    let get = |sock: &Sock| sock.get_int(SOL_SOCKET, SO_ZEROCOPY);
    expect_eq(get(&sock)?, 0, "at first")?;
    for value in [2, -1] {
        expect_errno(sock.set_int(SOL_SOCKET, SO_ZEROCOPY, value), EINVAL, value)?;
    }
    let short = sock.set_bytes(SOL_SOCKET, SO_ZEROCOPY, &[1; 3]);
    expect_errno(short, EINVAL, "three bytes")?;
    allow(&sock)?;
    expect_eq(get(&sock)?, 1, "set")?;
    sock.connect(&addr)?;
    sock.set_int(SOL_SOCKET, SO_ZEROCOPY, 0)?;
    expect_eq(get(&sock)?, 0, "connected")
}

/// No notification comes while the peer may still read the memory. Then one comes, for a send
/// without a copy.
fn told_when_the_peer_has_read(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    allow(&one)?;
    one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
    other.set_int(SOL_SOCKET, SO_RCVBUF, 8192)?;
    let span = Span::new(env.seed, 0, 1 << 20);
    let bytes = span.to_vec();
    let sending = stat(env, "send_lent")?;
    // The bytes neither begin nor end with a page.
    lend_all(&one, &bytes[..1_000_000])?;
    let before = stat(env, "send_lent_copied")?;
    expect_eq(one.poll(0, QUIET_MS)? & POLLERR, 0, "POLLERR before")?;
    expect_errno(told(&one), EAGAIN, "before")?;
    receive(&other, Span::new(env.seed, 0, 1_000_000))?;
    let copied = all_told(&one, 1)?;
    drop(bytes);
    if env.family == Family::Sdp {
        expect_eq(copied, 0, "copied")?;
        expect_eq(stat(env, "send_lent")? - sending, 1, "send_lent")?;
        expect_eq(stat(env, "send_lent_copied")?, before, "send_lent_copied")?;
    }
    Ok(())
}

/// Small sends, which are copied, have a number, too.
fn every_send_has_a_number(env: &Env) -> Outcome {
    let (one, other) = env.pair()?;
    allow(&one)?;
    let sizes = [1, 300_000, 5000, 100_000, 16_384, 16_383, 70_001];
    let total: u64 = sizes.iter().sum::<usize>() as u64 * 3;
    let span = Span::new(env.seed, 0, total);
    let work = other.start(Work::Sink(span))?;
    let bytes = span.to_vec();
    let (writes, before) = (stat(env, "write_posted")?, stat(env, "send_lent_copied")?);
    let refused = without_room(env)?;
    let mut at = 0;
    for size in sizes.iter().cycle().take(3 * sizes.len()) {
        lend_all(&one, &bytes[at..at + size])?;
        at += size;
    }
    expect_received(work.join_received()?, span, "what was lent")?;
    // The core may merge the notifications of several sends, and keeps the code of one of them. The
    // counter is exact.
    all_told(&one, 3 * sizes.len() as u32)?;
    if env.family == Family::Sdp {
        // Three of seven sends are too small, unless they go to the buffer of a waiting reader.
        let writes = stat(env, "write_posted")? - writes;
        let least = 9_u64.saturating_sub(writes);
        let copied = stat(env, "send_lent_copied")? - before;
        // Some others may be copied, and more of them if the peer has no room in time.
        let most = 15 + without_room(env)? - refused;
        let text = format!("{copied} of 21 copied, {writes} Writes, at most {most}");
        expect((least..=most).contains(&copied), text)?;
    }
    Ok(())
}

fn nothing_is_told_without_the_option(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    let span = Span::new(env.seed, 0, 200_000);
    let bytes = span.to_vec();
    let sending = spawn(move || lend(&one, &bytes, 0).map(|n| (n, one)))?;
    receive(&other, span)?;
    let (n, one) = joined(sending)??;
    expect_eq(n, 200_000, "sent")?;
    expect_errno(told(&one), EAGAIN, "told")?;
    // Without bytes there is no notification, even with the option.
    allow(&one)?;
    expect_eq(lend(&one, b"", 0)?, 0, "nothing is sent")?;
    expect_eq(one.poll(0, QUIET_MS)? & POLLERR, 0, "POLLERR")
}

fn a_send_that_fails_has_no_number(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    allow(&one)?;
    let mut sent = fill(&one, env.seed)?;
    // A slow kernel may still find room for some bytes. Such a send has a number.
    let (mut lent, mut refused) = (Vec::new(), 0);
    while refused < 3 {
        let memory = Span::new(env.seed, sent, 100_000).to_vec();
        match lend(&one, &memory, MSG_DONTWAIT) {
            Ok(n) => {
                sent += n as u64;
                lent.push(memory);
            }
            full => {
                expect_errno(full, EAGAIN, "full")?;
                refused += 1;
            }
        }
    }
    receive(&other, Span::new(env.seed, 0, sent))?;
    let span = Span::new(env.seed, sent, 100);
    lend_all(&one, &span.to_vec())?;
    receive(&other, span)?;
    all_told(&one, lent.len() as u32 + 1)?;
    let memory = vec![0x55; 100_000];
    one.shutdown(SHUT_WR)?;
    expect_errno(lend(&one, &memory, 0), EPIPE, "after shutdown()")?;
    expect_errno(told(&one), EAGAIN, "told")
}

/// The user may lock no memory.
fn a_refused_notification_sends_nothing(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    allow(&one)?;
    sys::limit_locked_memory(0)?;
    sys::become_nobody()?;
    let memory = vec![0x55; 100_000];
    expect_errno(lend(&one, &memory, 0), ENOBUFS, "with MSG_ZEROCOPY")?;
    one.send_all(b"x")?;
    other.recv_exact(&mut [0])?;
    expect_errno(other.recv(&mut [0], MSG_DONTWAIT), EAGAIN, "more")
}

fn by_many_threads(env: &Env) -> Outcome {
    const THREADS: u64 = 8;
    let sends = env.scaled(20);
    let (one, other) = env.own_pair()?;
    let one = Arc::new(one);
    allow(&one)?;
    let mut threads = Vec::new();
    for i in 0..THREADS {
        let one = Arc::clone(&one);
        threads.push(spawn(move || -> io::Result<Vec<u8>> {
            // The bytes show which thread has sent them. Some sends are so small that they go by
            // copy.
            let memory = vec![i as u8; 9000 + 9000 * i as usize];
            for _ in 0..sends {
                let mut at = 0;
                while at < memory.len() {
                    at += lend(&one, &memory[at..], 0)?;
                }
            }
            Ok(memory)
        })?);
    }
    let total: u64 = (0..THREADS).map(|i| sends * (9000 + 9000 * i)).sum();
    let mut counts = [0u64; THREADS as usize];
    let mut buf = vec![0; 50_000];
    let mut left = total;
    while left > 0 {
        let n = other.recv(&mut buf, 0)?;
        expect(n > 0, "the end")?;
        for byte in &buf[..n] {
            counts[usize::from(*byte)] += 1;
        }
        left -= n as u64;
    }
    let mut memories = Vec::new();
    for thread in threads {
        memories.push(joined(thread)??);
    }
    for (i, count) in counts.iter().enumerate() {
        expect_eq(
            *count,
            sends * (9000 + 9000 * i as u64),
            format!("bytes of {i}"),
        )?;
    }
    all_told(&one, (sends * THREADS) as u32).map(drop)
}

/// The socket is closed at once. The peer gets all bytes nevertheless.
fn closed_at_once(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    allow(&one)?;
    one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
    let span = Span::new(env.seed, 0, 2 << 20);
    // The memory must stay unchanged, so it lives until the end of the process.
    let bytes: &'static [u8] = span.to_vec().leak();
    let mut at = 0;
    while at < bytes.len() {
        at += lend(&one, &bytes[at..], 0)?;
    }
    one.close()?;
    receive(&other, span)?;
    expect_eof(&other)
}

/// A reader with a large buffer waits before the send, so the bytes are written to the buffer.
fn to_a_reader_that_waits(env: &Env) -> Outcome {
    const BYTES: usize = 500_000;
    let (one, other) = env.own_pair()?;
    allow(&one)?;
    let rounds = env.scaled(10);
    let all = Span::new(env.seed, 0, rounds * BYTES as u64);
    let bytes = all.to_vec();
    let reading = spawn(move || -> Outcome {
        for round in 0..rounds {
            let mut buf = vec![0; BYTES];
            other.recv_exact(&mut buf)?;
            let span = Span::new(all.seed, round * BYTES as u64, BYTES as u64);
            expect(buf == span.to_vec(), format!("bytes of round {round}"))?;
        }
        Ok(())
    })?;
    for piece in bytes.chunks(BYTES) {
        std::thread::sleep(Duration::from_millis(20));
        lend_all(&one, piece)?;
    }
    joined(reading)??;
    all_told(&one, rounds as u32).map(drop)
}

/// Sets the threshold, so that large sends go to the buffers of waiting readers, or are advertised.
fn by_thresholds(env: &Env, sock: &Sock) -> io::Result<()> {
    match env.family {
        Family::Tcp => Ok(()),
        Family::Sdp => sock.set_int(SOL_SDP, SDP_ZCOPY_THRESH, 16_384),
    }
}

/// Expects that no illegal transition and no violation was counted since the count was `before`.
fn nothing_wrong(env: &Env, before: u64) -> Outcome {
    expect_eq(wrong(env)?, before, "illegal transitions and violations")
}

fn wrong(env: &Env) -> io::Result<u64> {
    Ok(stat(env, "illegal_transition")? + stat(env, "aborted_violation")?)
}

/// The first send of a connection, with more bytes than one region of the adapter holds. It may
/// begin within a page.
fn to_a_large_reader_from_within_a_page(env: &Env) -> Outcome {
    const BYTES: usize = (4 << 20) + 100;
    let before = wrong(env)?;
    for offset in [0, 100, 4095] {
        let (one, other) = env.own_pair()?;
        allow(&one)?;
        by_thresholds(env, &one)?;
        by_thresholds(env, &other)?;
        one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
        let pages = Pages::new(8 << 20, false)?;
        let span = Span::new(env.seed, offset as u64, BYTES as u64);
        pages.write(offset, &span.to_vec());
        let into = Pages::new(8 << 20, false)?;
        let reading = spawn(move || -> io::Result<Vec<u8>> {
            let mut got = 0;
            while got < BYTES {
                // SAFETY: the memory is this thread's alone.
                let n = unsafe { other.recv_raw(into.at(got), BYTES - got, libc::MSG_WAITALL) }?;
                if n == 0 {
                    break;
                }
                got += n;
            }
            Ok(into.read(0, got))
        })?;
        std::thread::sleep(Duration::from_millis(50));
        let mut at = 0;
        while at < BYTES {
            at += one.send_raw(
                pages.at(offset + at),
                BYTES - at,
                MSG_ZEROCOPY | MSG_NOSIGNAL,
            )?;
        }
        expect(joined(reading)?? == span.to_vec(), "the bytes")?;
        nothing_wrong(env, before)?;
        pages.unmap()?;
        into.unmap()?;
    }
    Ok(())
}

/// A reader begins to wait while the pages of a send are being pinned, or while the send's advert
/// waits for room.
fn readers_come_meanwhile(env: &Env) -> Outcome {
    let before = wrong(env)?;
    let (one, other) = env.own_pair()?;
    allow(&one)?;
    by_thresholds(env, &one)?;
    by_thresholds(env, &other)?;
    one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
    let mut rng = Rng::new(env.seed);
    let mut lengths = Vec::new();
    for _ in 0..env.scaled(150) {
        lengths.push(20_000 + rng.below(3 << 20));
    }
    let total: usize = lengths.iter().sum();
    let all = Span::new(env.seed, 0, total as u64);
    let reading = spawn(move || -> Outcome {
        let mut rng = Rng::new(all.seed + 1);
        let mut buf = vec![0; 2 << 20];
        let mut at = 0;
        while at < total {
            std::thread::sleep(Duration::from_micros(rng.below(1500) as u64));
            let want = (16_384 + rng.below(1 << 20)).min(total - at);
            other.recv_exact(&mut buf[..want])?;
            let span = Span::new(all.seed, at as u64, want as u64);
            expect(buf[..want] == span.to_vec(), format!("bytes from {at} on"))?;
            at += want;
        }
        Ok(())
    })?;
    let mut at = 0;
    for length in lengths {
        let span = Span::new(env.seed, at, length as u64);
        let bytes = span.to_vec();
        let skip = rng.below(5000).min(length / 2);
        one.send_all(&bytes[..skip])?;
        let mut rest = &bytes[skip..];
        let mut open = 0;
        while !rest.is_empty() {
            rest = &rest[lend(&one, rest, 0)?..];
            open += 1;
        }
        at += length as u64;
        // The memory may be freed only when all notifications have come.
        while open > 0 {
            expect_eq(one.poll(0, 20_000)? & POLLERR, POLLERR, "POLLERR")?;
            let (first, last, _) = told(&one)?;
            open -= last - first + 1;
        }
    }
    joined(reading)??;
    nothing_wrong(env, before)
}

/// The memory ends before the send's last byte. The bytes that are there are sent, with and without
/// a waiting reader, and no page stays pinned.
fn memory_that_ends(env: &Env) -> Outcome {
    const THERE: usize = 40 * PAGE;
    let before = stat(env, "pinned_bytes")? - stat(env, "unpinned_bytes")?;
    for waits in [false, true] {
        let (one, other) = env.own_pair()?;
        allow(&one)?;
        by_thresholds(env, &one)?;
        by_thresholds(env, &other)?;
        let pages = Pages::new(80 * PAGE, false)?;
        let span = Span::new(env.seed, 0, THERE as u64);
        pages.write(0, &span.to_vec());
        pages.part(THERE, 40 * PAGE).unmap()?;
        let reading = spawn(move || -> Outcome {
            if !waits {
                std::thread::sleep(Duration::from_millis(100));
            }
            let mut buf = vec![0; 80 * PAGE];
            let mut got = 0;
            loop {
                match other.recv(&mut buf[got..], 0)? {
                    0 => break,
                    n => got += n,
                }
            }
            expect(buf[..got] == span.to_vec()[..got], "the bytes")
        })?;
        if waits {
            std::thread::sleep(Duration::from_millis(50));
        }
        let n = one.send_raw(pages.at(0), 80 * PAGE, MSG_ZEROCOPY | MSG_NOSIGNAL)?;
        // TCP takes the bytes in whole segments.
        let least = match env.family {
            Family::Tcp => 1,
            Family::Sdp => THERE,
        };
        expect((least..=THERE).contains(&n), format!("{n} sent"))?;
        let nothing = one.send_raw(pages.at(THERE), PAGE, MSG_ZEROCOPY | MSG_NOSIGNAL);
        expect_errno(nothing, libc::EFAULT, "what is not there")?;
        one.shutdown(SHUT_WR)?;
        joined(reading)??;
        all_told(&one, 1)?;
    }
    let pinned = || Ok(stat(env, "pinned_bytes")? - stat(env, "unpinned_bytes")?);
    eventually("pinned bytes", pinned, |now| *now <= before)
}

fn of_empty_pieces(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    allow(&one)?;
    one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
    let copied = stat(env, "send_lent_copied")?;
    let span = Span::new(env.seed, 0, 300_000);
    let bytes = span.to_vec();
    let (first, second) = bytes.split_at(100_000);
    let pieces = [b"", first, b"", second, b""].map(IoSlice::new);
    expect_eq(one.sendmsg(&pieces, MSG_ZEROCOPY)?, 300_000, "sent")?;
    receive(&other, span)?;
    all_told(&one, 1)?;
    expect_eq(stat(env, "send_lent_copied")?, copied, "copied")
}

/// The kernel keeps the pages until the peer has read them.
fn unmapped_before_it_is_read(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    allow(&one)?;
    one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
    other.set_int(SOL_SOCKET, SO_RCVBUF, 8192)?;
    for (round, huge) in [false, true].into_iter().enumerate() {
        let span = Span::new(env.seed, (round * LEN) as u64, LEN as u64);
        let pages = Pages::new(LEN, huge)?;
        pages.write(0, &span.to_vec());
        let n = one.send_raw(pages.at(0), LEN, MSG_ZEROCOPY | MSG_NOSIGNAL)?;
        expect_eq(n, LEN, "sent")?;
        pages.unmap()?;
        // If the kernel has freed the sent pages, this memory may get them.
        let others = Pages::new(2 * LEN, huge)?;
        others.write(0, &vec![0xdb; 2 * LEN]);
        receive(&other, span)?;
        others.unmap()?;
    }
    all_told(&one, 2).map(drop)
}

/// Another connection sends the same pages from a snapshot. The program writes to the pages when
/// this connection has its notification.
fn of_memory_that_another_sends(env: &Env) -> Outcome {
    let mut stream = Stream::new(env)?;
    let (one, other) = env.own_pair()?;
    allow(&one)?;
    let pages = Pages::new(LEN, false)?;
    for round in 0..SENDS as u64 {
        let lent = Span::new(env.seed, round * LEN as u64, LEN as u64);
        return_at_once(&stream.one)?;
        stream.fill(pages);
        let bytes = stream.next(LEN).to_vec();
        let first = |stream: &mut Stream<'_>| stream.send_filled(pages);
        let second = || one.send_raw(pages.at(0), LEN, MSG_ZEROCOPY | MSG_NOSIGNAL);
        let n = if round % 2 == 0 {
            first(&mut stream)?;
            second()?
        } else {
            let n = second()?;
            // A page that is pinned cannot be protected, so this send may go by copy.
            expect_eq(
                stream.one.send_raw(pages.at(0), LEN, MSG_NOSIGNAL)?,
                LEN,
                "sent",
            )?;
            stream.sent += LEN as u64;
            n
        };
        expect_eq(n, LEN, "sent")?;
        let mut buf = vec![0; LEN];
        other.recv_exact(&mut buf)?;
        expect(buf == bytes, "what was lent")?;
        expect_eq(one.poll(0, 20_000)? & POLLERR, POLLERR, "POLLERR")?;
        let (number, _, _) = told(&one)?;
        expect_eq(u64::from(number), round, "the number")?;
        // The snapshot keeps its content.
        pages.write(0, &lent.to_vec());
        stream.receive()?;
    }
    Ok(())
}

/// If a program ends while two connections send the same memory, no page stays pinned or in a
/// snapshot.
fn ends_with_all_in_flight(env: &Env) -> Outcome {
    let kept = || -> io::Result<u64> {
        let grown =
            |more: &str, less: &str| Ok::<u64, io::Error>(stat(env, more)? - stat(env, less)?);
        Ok(grown("pinned_bytes", "unpinned_bytes")? + grown("snapshot_pages", "snapshot_freed")?)
    };
    for lends_first in [true, false] {
        let before = kept()?;
        Child::start(|| {
            let mut stream = Stream::new(env)?;
            let (one, _other) = env.own_pair()?;
            allow(&one)?;
            let pages = Pages::new(LEN, false)?;
            stream.fill(pages);
            let lend = || one.send_raw(pages.at(0), LEN, MSG_ZEROCOPY | MSG_NOSIGNAL);
            if lends_first {
                lend()?;
                stream.one.send_raw(pages.at(0), LEN, MSG_NOSIGNAL)?;
            } else {
                stream.send_filled(pages)?;
                lend()?;
            }
            Ok(())
        })?
        .join()?;
        eventually("bytes and pages", kept, |now| *now <= before)?;
    }
    Ok(())
}

/// Both ends are closed at about the same time, when nobody has read the bytes. The bytes were sent
/// in every way. No connection stays until a timer ends it.
fn closed_by_both_with_bytes_left(env: &Env) -> Outcome {
    let mut rng = Rng::new(env.seed);
    let pages = Pages::new(LEN, false)?;
    pages.write(0, &vec![0x33; LEN]);
    let mut ports = Vec::new();
    for round in 0..env.scaled(200) {
        let (one, other) = env.own_pair()?;
        allow(&one)?;
        one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
        other.set_int(SOL_SOCKET, SO_RCVBUF, 8192)?;
        let mut flags = MSG_NOSIGNAL;
        match round % 3 {
            0 => flags |= MSG_ZEROCOPY,
            1 if env.family == Family::Sdp => return_at_once(&one)?,
            _ => {}
        }
        expect_eq(one.send_raw(pages.at(0), LEN, flags)?, LEN, "sent")?;
        ports.push(format!(":{} ", one.getsockname()?.port()));
        std::thread::sleep(Duration::from_micros(rng.below(400) as u64));
        let (first, second) = if rng.below(2) == 0 {
            (one, other)
        } else {
            (other, one)
        };
        drop(first);
        std::thread::sleep(Duration::from_micros(rng.below(200) as u64));
        drop(second);
    }
    if env.family == Family::Tcp {
        return Ok(());
    }
    let left = || -> io::Result<Vec<String>> {
        let text = std::fs::read_to_string("/proc/net/sdp")?;
        let of_ours = |line: &&str| ports.iter().any(|port| line.contains(port.as_str()));
        Ok(text.lines().filter(of_ours).map(String::from).collect())
    };
    eventually("connections", left, Vec::is_empty)
}

/// A notification also comes for bytes that the peer does not read any more.
fn peer_dies(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    allow(&one)?;
    one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
    other.set_int(SOL_SOCKET, SO_RCVBUF, 8192)?;
    let memory = vec![0x77; 300_000];
    for _ in 0..3 {
        lend_all(&one, &memory)?;
    }
    // The peer has not read the bytes.
    drop(other);
    let until = Instant::now() + Duration::from_secs(20);
    let mut seen = 0;
    while seen < 3 {
        expect(Instant::now() < until, format!("{seen} of 3 are told of"))?;
        match told(&one) {
            Ok((first, last, _)) => seen += last - first + 1,
            Err(e) if e.raw_os_error() == Some(EAGAIN) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn everything_is_given_back(env: &Env) -> Outcome {
    let pinned =
        || -> io::Result<u64> { Ok(stat(env, "pinned_bytes")? - stat(env, "unpinned_bytes")?) };
    let before = pinned()?;
    let more = Growth::of(env, "advert_async")?;
    for how in 0..4 {
        let (one, other) = env.own_pair()?;
        allow(&one)?;
        one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
        let memory: &'static [u8] = vec![0x77; 200_000].leak();
        for _ in 0..3 {
            lend_all(&one, memory)?;
        }
        match how {
            0 => drop(other),
            1 => drop(one),
            2 => {
                one.set_bytes(SOL_SOCKET, libc::SO_LINGER, &[1, 0, 0, 0, 0, 0, 0, 0])?;
                drop(one);
            }
            _ => {
                let mut buf = vec![0; 600_000];
                other.recv_exact(&mut buf)?;
            }
        }
    }
    if env.family == Family::Sdp {
        more.at_least(4)?;
    }
    eventually("pinned bytes", pinned, |now| *now <= before).map(drop)
}

/// One completion says how many bytes were sent, and another one that the program may use the
/// memory again.
fn by_io_uring(env: &Env) -> Outcome {
    uring(env, None)
}

fn by_io_uring_of_registered_memory(env: &Env) -> Outcome {
    let pages = Pages::new(1 << 20, false)?;
    uring(env, Some(pages))
}

fn uring(env: &Env, registered: Option<Pages>) -> Outcome {
    let (one, other) = env.own_pair()?;
    one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
    let pages = match registered {
        Some(pages) => pages,
        None => Pages::new(1 << 20, false)?,
    };
    let Some(mut ring) = SendZc::new(pages, registered.is_some())? else {
        return skip("no io_uring here");
    };
    let mut sent = 0;
    // Parts of pages, and few bytes.
    for (from, len) in [
        (0, 1 << 20),
        (100, 500_000),
        (4096, 16_384),
        (7, 100),
        (70_000, 70_000),
    ] {
        let span = Span::new(env.seed, sent, len as u64);
        pages.write(from, &span.to_vec());
        let refused = without_room(env)?;
        expect_eq(ring.send(one.as_raw_fd(), from, len)?, len, "sent")?;
        receive(&other, span)?;
        let copied = ring.told()?;
        let small = len < 16_384;
        if env.family == Family::Sdp && (small || without_room(env)? == refused) {
            expect_eq(copied, small, format!("{len} bytes copied"))?;
        }
        sent += len as u64;
    }
    Ok(())
}

fn messages_by_io_uring(env: &Env) -> Outcome {
    messages(env, false)
}

fn messages_by_io_uring_of_registered_memory(env: &Env) -> Outcome {
    messages(env, true)
}

/// Messages of several pieces of memory.
fn messages(env: &Env, registered: bool) -> Outcome {
    let (one, other) = env.own_pair()?;
    one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
    let pages = Pages::new(1 << 20, false)?;
    let Some(mut ring) = SendZc::new(pages, registered)? else {
        return skip("no io_uring here");
    };
    let mut sent = 0;
    let messages: [&[(usize, usize)]; 4] = [
        &[(0, 1 << 19), (1 << 19, 1 << 19)],
        &[(8192, 4096), (0, 4096), (100_000, 200_000), (40_960, 1)],
        &[(7, 100)],
        &[(5, 70_000), (300_000, 100_000)],
    ];
    for parts in messages {
        let len: usize = parts.iter().map(|(_, len)| len).sum();
        let span = Span::new(env.seed, sent, len as u64);
        let mut bytes = &span.to_vec()[..];
        for &(from, len) in parts {
            let (part, rest) = bytes.split_at(len);
            pages.write(from, part);
            bytes = rest;
        }
        let refused = without_room(env)?;
        expect_eq(ring.send_message(one.as_raw_fd(), parts)?, len, "sent")?;
        receive(&other, span)?;
        let copied = ring.told()?;
        let small = parts.iter().any(|(_, len)| *len < 16_384);
        // Small parts are copied, and their messages use credits, which the adverts of the other
        // parts may then lack.
        if env.family == Family::Sdp && !small && without_room(env)? == refused {
            expect_eq(copied, false, format!("{parts:?}: copied"))?;
        }
        sent += len as u64;
    }
    Ok(())
}

/// A connection ends, or a ring ends, while the bytes are in flight.
fn io_uring_is_told_at_the_end(env: &Env) -> Outcome {
    for ends in [true, false] {
        let (one, other) = env.own_pair()?;
        one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
        other.set_int(SOL_SOCKET, SO_RCVBUF, 8192)?;
        let pages = Pages::new(1 << 20, false)?;
        pages.write(0, &Span::new(env.seed, 0, 1 << 20).to_vec());
        let Some(mut ring) = SendZc::new(pages, true)? else {
            return skip("no io_uring here");
        };
        expect_eq(ring.send(one.as_raw_fd(), 0, 1 << 20)?, 1 << 20, "sent")?;
        if ends {
            drop(other);
            ring.told()?;
        } else {
            drop(ring);
            receive(&other, Span::new(env.seed, 0, 1 << 20))?;
        }
    }
    Ok(())
}

/// A plain send keeps registered memory only until io_uring's request has completed. The peer gets
/// the right bytes nevertheless.
fn registered_memory_without_a_request_of_its_kind(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    allow(&one)?;
    one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
    other.set_int(SOL_SOCKET, SO_RCVBUF, 8192)?;
    let pages = Pages::new(LEN, false)?;
    let span = Span::new(env.seed, 0, LEN as u64);
    pages.write(0, &span.to_vec());
    let Some(mut ring) = SendZc::new(pages, true)? else {
        return skip("no io_uring here");
    };
    match ring.send_plain(one.as_raw_fd(), LEN, MSG_ZEROCOPY) {
        // Older kernels have no plain sends of registered memory.
        Err(e) if e.raw_os_error() == Some(EINVAL) => return skip(e),
        sent => expect_eq(sent?, LEN, "sent")?,
    }
    ring.unregister()?;
    pages.unmap()?;
    let others = Pages::new(2 * LEN, false)?;
    others.write(0, &vec![0xdb; 2 * LEN]);
    receive(&other, span)?;
    all_told(&one, 1).map(drop)
}

/// sendfile() lets the peer read the file's own pages, which may no longer be in the file by then.
fn files(env: &Env) -> Outcome {
    const BYTES: usize = 1_000_003;
    let (one, other) = env.own_pair()?;
    by_thresholds(env, &one)?;
    one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
    other.set_int(SOL_SOCKET, SO_RCVBUF, 8192)?;
    let span = Span::new(env.seed, 0, BYTES as u64);
    let file = sys::memory_file(&span.to_vec())?;
    let copied = stat(env, "tx_copied_bytes")?;
    let adverts = Growth::of(env, "advert_async")?;
    let refused = without_room(env)?;
    let mut sent = 0;
    while sent < BYTES {
        sent += sys::sendfile(one.as_raw_fd(), &file, sent as i64, BYTES - sent)?;
    }
    file.set_len(0)?;
    drop(file);
    let others = Pages::new(4 << 20, false)?;
    others.write(0, &vec![0xdb; 4 << 20]);
    receive(&other, span)?;
    if env.family == Family::Sdp {
        if without_room(env)? > refused {
            return skip("the peer had no room in time: this machine is too slow");
        }
        adverts.at_least(10)?;
        // A short rest goes by copy.
        let copied = stat(env, "tx_copied_bytes")? - copied;
        expect(copied < BYTES as u64 / 8, format!("{copied} bytes copied"))?;
    }
    one.shutdown(SHUT_WR)?;
    expect_eof(&other)
}

/// splice() from a pipe that is written to again while its previous pages may be in flight.
fn pages_of_a_pipe(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    by_thresholds(env, &one)?;
    one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
    other.set_int(SOL_SOCKET, SO_RCVBUF, 8192)?;
    let (reader, writer) = sys::pipe()?;
    sys::set_pipe_size(writer.as_raw_fd(), 1 << 20)?;
    let span = Span::new(env.seed, 0, env.scaled(20) * 150_000);
    for (round, piece) in span.to_vec().chunks(150_000).enumerate() {
        expect_eq(sys::write(writer.as_raw_fd(), piece)?, piece.len(), "write")?;
        let mut rest = piece.len();
        while rest > 0 {
            rest -= sys::splice(reader.as_raw_fd(), one.as_raw_fd(), rest)?;
        }
        if round % 3 == 2 {
            let read = Span::new(env.seed, (round as u64 - 2) * 150_000, 450_000);
            receive(&other, read)?;
        }
    }
    let rest = span.len / 450_000 * 450_000;
    receive(&other, Span::new(env.seed, rest, span.len - rest))
}
