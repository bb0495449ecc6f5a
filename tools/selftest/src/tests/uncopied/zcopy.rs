// SPDX-License-Identifier: GPL-2.0
//! Sends without a copy: the peer reads the sender's own memory. A program sees the same as with a
//! send that copies.

use super::inflight::{SDP_ZCOPY_MODE, SDP_ZCOPY_THRESH, SOL_SDP, WAITS};
use crate::support::counters::stat;
use crate::support::flow::{recv_span, spawn, Exchange, Span};
use crate::support::harness::{
    eventually, expect, expect_eof, expect_eq, expect_errno, expect_errno_of, expect_received,
    failed, joined, receive, skip, spawn_waiting, tests, Env, Fail, Family, Outcome, QUIET_MS,
};
use crate::support::pattern::Rng;
use crate::support::peer::{Remote, Work};
use crate::support::sys::{self, Area, Fork, Kind, Sock, PAGE};
use libc::{
    EAGAIN, ECONNRESET, EFAULT, EINTR, EPIPE, ETIMEDOUT, IPPROTO_TCP, MSG_DONTWAIT, MSG_NOSIGNAL,
    MSG_PEEK, MSG_WAITALL, POLLIN, POLLOUT, SHUT_RDWR, SIGALRM, SOL_SOCKET, SO_RCVBUF, SO_RCVLOWAT,
    SO_SNDTIMEO, TCP_NOTSENT_LOWAT,
};
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

tests!("zcopy";
    of_every_size,
    to_us,
    into_our_memory,
    into_bad_memory,
    not_one_copy,
    both_ways_at_once,
    both_senders_first,
    few_unsent_bytes_beside_a_stream,
    peeked_and_read_in_bits,
    waited_for_as_a_whole,
    polled_for,
    polled_for_beyond_the_buffer,
    read_slowly_in_parts,
    behind_a_small_send,
    of_many_iovecs,
    ends_with_an_iovec,
    nobody_reads_in_time,
    nobody_reads_and_the_user_has_a_limit,
    interrupted,
    nonblocking_goes_by_copy,
    adverts_need_no_updates,
    poller_is_not_waited_for,
    small_readers_are_not_waited_for,
    others_wait_or_are_refused,
    without_leave_to_lock,
    fork_under_way,
    peer_closes,
    peer_dies,
    shutdown_under_way,
    many_of_all_kinds,
    everything_is_given_back,
);

/// The smallest send without a copy in these tests, in bytes.
const THRESHOLD: i32 = 16384;

/// Expects a counter to have grown by `want` since it was `before`.
#[track_caller]
fn grown(env: &Env, name: &str, before: u64, want: u64) -> Outcome {
    let want = if env.family == Family::Tcp { 0 } else { want };
    expect_eq(stat(env, name)? - before, want, name)
}

/// Expects nearly all of `total` bytes to be counted since the counter was `before`: a few bytes
/// behind the last whole advert of a send may go by copy.
#[track_caller]
fn nearly_all(env: &Env, name: &str, before: u64, total: u64) -> Outcome {
    let counted = stat(env, name)? - before;
    let least = match env.family {
        Family::Tcp => 0,
        Family::Sdp => total - total / 32,
    };
    expect(
        (least..=total).contains(&counted),
        format!("{name}: {counted} of {total} bytes"),
    )
}

fn set_threshold(env: &Env, sock: &Sock, bytes: i32) -> io::Result<()> {
    match env.family {
        Family::Tcp => Ok(()),
        Family::Sdp => {
            sock.set_int(SOL_SDP, SDP_ZCOPY_THRESH, bytes)?;
            sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, WAITS)
        }
    }
}

fn pause() {
    thread::sleep(Duration::from_millis(QUIET_MS as u64));
}

/// Sends a span in one call, from memory that is overwritten at once. Returns the result of the
/// call.
fn send_once(sock: &Sock, span: Span, misalign: usize, flags: i32) -> io::Result<usize> {
    let mut buf = vec![0; misalign];
    buf.extend_from_slice(&span.to_vec());
    let result = sock.send(&buf[misalign..], flags | MSG_NOSIGNAL);
    buf.fill(0xdb);
    result
}

type Sending = thread::JoinHandle<io::Result<usize>>;

fn send_in_thread(sock: &Arc<Sock>, span: Span) -> io::Result<Sending> {
    let sock = Arc::clone(sock);
    spawn(move || send_once(&sock, span, 9, 0))
}

/// Waits until a send of more bytes than the peer has room for has begun in another thread, which
/// may first take a while to make the bytes. Then waits a little longer.
#[track_caller]
fn until_stuck(sock: &Sock) -> Outcome {
    eventually("a full socket", || sock.poll(POLLOUT, 0), |e| *e == 0)?;
    pause();
    Ok(())
}

fn of_every_size(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    set_threshold(env, &sock, THRESHOLD)?;
    let sizes = [
        16_383,
        16_384,
        16_385,
        65_535,
        65_536,
        65_537,
        100_001,
        1_044_480,
        1_048_575,
        1_048_576,
        1_048_577,
        3_000_000,
        4 << 20,
    ];
    let read = stat(env, "tx_zcopy_bytes")?;
    let mut total = 0;
    let mut offset = 0;
    for len in sizes {
        for misalign in [0, 1, 4080 - 16] {
            let span = Span::new(env.seed, offset, len);
            let job = remote.start(Work::Sink(span))?;
            let n = send_once(&sock, span, misalign, 0)?;
            expect_eq(n as u64, len, "sent in one call")?;
            expect_received(job.join_received()?, span, format!("{len} at {misalign}"))?;
            offset += len;
            total += if len < THRESHOLD as u64 { 0 } else { len };
        }
    }
    nearly_all(env, "tx_zcopy_bytes", read, total)
}

fn to_us(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    if env.family == Family::Sdp {
        remote.set_int(SOL_SDP, SDP_ZCOPY_THRESH, THRESHOLD)?;
        remote.set_int(SOL_SDP, SDP_ZCOPY_MODE, WAITS)?;
    }
    let pulled = stat(env, "advert_received")?;
    for (i, max) in [1000, 5000, 40_000, 300_000, 1 << 20]
        .into_iter()
        .enumerate()
    {
        let span = Span::new(env.seed + i as u64, 0, env.scaled(2_000_000));
        let job = remote.start(Work::Source { span, max: 400_000 })?;
        expect_received(recv_span(&sock, span, max), span, format!("by {max}"))?;
        job.join()?;
    }
    let more = stat(env, "advert_received")? > pulled;
    expect(more == (env.family == Family::Sdp), "no advert came")
}

fn both_ways_at_once(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    set_threshold(env, &sock, THRESHOLD)?;
    if env.family == Family::Sdp {
        remote.set_int(SOL_SDP, SDP_ZCOPY_THRESH, THRESHOLD)?;
        remote.set_int(SOL_SDP, SDP_ZCOPY_MODE, WAITS)?;
    }
    let sock = Arc::new(sock);
    let exchange = Exchange {
        send_seed: env.seed,
        recv_seed: env.seed + 1,
        bytes: env.scaled(4_000_000),
        max: 300_000,
    };
    exchanged(&sock, &remote, exchange)
}

/// Sends and receives on both sides, and checks the bytes of both directions.
#[track_caller]
pub(in crate::tests) fn exchanged(
    sock: &Arc<Sock>,
    remote: &Remote,
    exchange: Exchange,
) -> Outcome {
    let job = remote.start(Work::Exchange(exchange.mirrored()))?;
    let got = exchange.run(sock)?;
    if let Some(text) = exchange.complaint(&got) {
        return failed(text);
    }
    job.join()?;
    Ok(())
}

/// A reader that waits with a large buffer, anywhere in memory of any kind, gets the bytes into the
/// buffer.
fn into_our_memory(env: &Env) -> Outcome {
    const LEN: usize = 2_000_003;
    let (sock, remote) = env.pair()?;
    if env.family == Family::Sdp {
        remote.set_int(SOL_SDP, SDP_ZCOPY_THRESH, THRESHOLD)?;
        remote.set_int(SOL_SDP, SDP_ZCOPY_MODE, WAITS)?;
    }
    let direct = stat(env, "rx_zcopy_bytes")?;
    let mut total = 0;
    for (i, kind) in [Kind::Private, Kind::Shared, Kind::File, Kind::FileCopy]
        .into_iter()
        .enumerate()
    {
        let mut area = Area::of(kind, LEN / PAGE + 3)?;
        for start in [0, 1, 4080] {
            let span = Span::new(env.seed + i as u64, start as u64, LEN as u64);
            let room = area.bytes(LEN + start + 64);
            room.fill(0xee);
            let job = remote.start(Work::Source { span, max: LEN })?;
            let got = sock.recv(&mut room[start..start + LEN], MSG_WAITALL)?;
            expect_eq(got, LEN, "received in one call")?;
            job.join()?;
            let text = format!("at {start} of {kind:?}");
            expect(room[start..start + LEN] == span.to_vec(), &text)?;
            let beside = room[..start].iter().chain(&room[start + LEN..]);
            expect(beside.copied().all(|b| b == 0xee), format!("beside {text}"))?;
            total += LEN as u64;
        }
    }
    let direct = stat(env, "rx_zcopy_bytes")? - direct;
    let some = direct > 0 || env.family == Family::Tcp;
    expect(
        some && direct <= total,
        format!("{direct} of {total} bytes"),
    )
}

/// Between a sender and a reader with large buffers nothing is copied. The module reads an advert
/// into its own memory if no reader comes within 4 ms, which can happen on a busy machine.
/// Therefore there are several attempts, and those with such a read do not count.
fn not_one_copy(env: &Env) -> Outcome {
    let limit = Instant::now() + Duration::from_secs(20);
    let direct = stat(env, "rx_zcopy_bytes")?;
    let mut counted = 0;
    loop {
        let late = stat(env, "pulled_Delay")?;
        let result = moves_without_a_copy(env)?;
        if result.is_ok() {
            return Ok(());
        }
        if stat(env, "pulled_Delay")? == late {
            counted += 1;
            if counted == 5 {
                return result;
            }
        }
        if Instant::now() > limit {
            // Some bytes must go directly on a slow machine, too.
            if stat(env, "rx_zcopy_bytes")? == direct {
                return result;
            }
            return skip("the readers come late: this machine is too slow");
        }
    }
}

/// Moves bytes, which must arrive. The inner result tells whether they were not copied.
fn moves_without_a_copy(env: &Env) -> Result<Outcome, Fail> {
    const LEN: usize = 3_000_000;
    let (one, other) = env.own_pair()?;
    set_threshold(env, &one, THRESHOLD)?;
    let (sent, direct) = (stat(env, "tx_zcopy_bytes")?, stat(env, "rx_zcopy_bytes")?);
    let copied = stat(env, "tx_copied_bytes")?;
    let span = Span::new(env.seed, 0, LEN as u64);
    let reading = spawn_waiting(move || -> io::Result<(usize, bool)> {
        let mut buf = vec![0; LEN];
        let n = other.recv(&mut buf, MSG_WAITALL)?;
        Ok((n, buf == span.to_vec()))
    })?;
    pause();
    expect_eq(send_once(&one, span, 5, 0)?, LEN, "sent")?;
    expect_eq(joined(reading)??, (LEN, true), "received")?;
    let copied = stat(env, "tx_copied_bytes")? - copied;
    Ok(nearly_all(env, "tx_zcopy_bytes", sent, LEN as u64)
        .and_then(|()| nearly_all(env, "rx_zcopy_bytes", direct, LEN as u64))
        .and_then(|()| expect(copied < 20_000, format!("{copied} bytes were copied"))))
}

/// Buffers that are not accessible, or only in part.
fn into_bad_memory(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    let one = Arc::new(one);
    set_threshold(env, &one, THRESHOLD)?;
    let span = Span::new(env.seed, 0, 900_000);
    let sending = send_in_thread(&one, span)?;
    let mut area = Area::new(100)?;
    area.forbid_from(20)?;
    pause();
    // SAFETY: nobody uses the pages, which the kernel must not write to.
    let result = unsafe { other.recv_raw(area.at(20 * PAGE), 70 * PAGE, 0) };
    expect_errno(result, EFAULT, "into nowhere")?;
    // SAFETY: the first pages are ours, and the others as above.
    let n = unsafe { other.recv_raw(area.at(0), 90 * PAGE, 0) }?;
    expect(n > 0 && n <= 20 * PAGE, format!("{n} bytes in 20 pages"))?;
    expect(area.bytes(n) == &span.to_vec()[..n], "wrong bytes")?;
    receive(&other, span.after(n as u64))?;
    expect_eq(joined(sending)??, 900_000, "sent")
}

/// If both sides send before they read, both sends succeed as with TCP: up to the size of the
/// receive buffers.
fn both_senders_first(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    let socks = [Arc::new(one), Arc::new(other)];
    let span = |i: usize| Span::new(env.seed + i as u64, 0, 150_000);
    let mut sending = Vec::new();
    for (i, sock) in socks.iter().enumerate() {
        sock.set_int(SOL_SOCKET, SO_RCVBUF, 400_000)?;
        set_threshold(env, sock, THRESHOLD)?;
        sending.push(send_in_thread(sock, span(i))?);
    }
    for thread in sending {
        expect_eq(joined(thread)??, 150_000, "sent")?;
    }
    receive(&socks[0], span(1))?;
    receive(&socks[1], span(0))
}

/// A send that waits because too many of its bytes are unsent (TCP_NOTSENT_LOWAT) goes on although
/// Reads for the other direction are always in flight.
fn few_unsent_bytes_beside_a_stream(env: &Env) -> Outcome {
    const SENT: usize = 60_000;
    const COPIES: i32 = 1;
    let (one, other) = env.own_pair()?;
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buf = vec![0; 1 << 20];
            while other.recv(&mut buf, 0).is_ok_and(|n| n > 0) {}
        });
        scope.spawn(|| {
            let mut buf = vec![0; 8192];
            while one.recv(&mut buf, 0).is_ok_and(|n| n > 0) {}
        });
        let result = (|| -> Outcome {
            // The peer's receives grow, so these bytes are a part of a message.
            one.set_int(SOL_SDP, SDP_ZCOPY_MODE, COPIES)?;
            one.send_all(&vec![1; 1 << 20])?;
            other.set_int(SOL_SDP, SDP_ZCOPY_MODE, WAITS)?;
            let (other, ends) = (&other, &ends);
            scope.spawn(move || {
                let bytes = vec![2; 1 << 20];
                while !ends.load(Ordering::Relaxed)
                    && other.send(&bytes, MSG_NOSIGNAL).is_ok_and(|n| n > 0)
                {}
            });
            thread::sleep(Duration::from_millis(QUIET_MS as u64));
            one.set_int(IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384)?;
            one.set_timeout(SO_SNDTIMEO, 5000)?;
            for _ in 0..5 {
                expect_eq(one.send(&[3; SENT], MSG_NOSIGNAL)?, SENT, "sent")?;
            }
            Ok(())
        })();
        ends.store(true, Ordering::Relaxed);
        for sock in [&one, &other] {
            // The connection may have ended.
            let _ = sock.shutdown(SHUT_RDWR);
        }
        result
    })
}

fn peeked_and_read_in_bits(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    let one = Arc::new(one);
    set_threshold(env, &one, THRESHOLD)?;
    let span = Span::new(env.seed, 0, 700_001);
    let sending = send_in_thread(&one, span)?;
    let want = span.to_vec();
    let mut seen = vec![0; 3000];
    let n = other.recv(&mut seen, MSG_PEEK | MSG_WAITALL)?;
    expect(n > 0 && seen[..n] == want[..n], "peeked bytes")?;
    let mut done = 0;
    for len in [1, 2, 3000, 77, 4096, 5] {
        let mut buf = vec![0; len];
        let n = other.recv(&mut buf, MSG_PEEK)?;
        expect(buf[..n] == want[done..done + n], "peeked bytes")?;
        let n = other.recv(&mut buf, 0)?;
        expect(buf[..n] == want[done..done + n], "bytes")?;
        done += n;
    }
    receive(&other, span.after(done as u64))?;
    expect_eq(joined(sending)??, 700_001, "sent")
}

fn waited_for_as_a_whole(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    let one = Arc::new(one);
    set_threshold(env, &one, THRESHOLD)?;
    let span = Span::new(env.seed, 0, 2_500_000);
    let sending = send_in_thread(&one, span)?;
    let mut buf = vec![0; span.len as usize];
    let n = other.recv(&mut buf, MSG_WAITALL)?;
    expect_eq(n as u64, span.len, "received in one call")?;
    expect(buf == span.to_vec(), "wrong bytes")?;
    expect_eq(joined(sending)??, n, "sent")
}

fn polled_for(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    let one = Arc::new(one);
    set_threshold(env, &one, THRESHOLD)?;
    for i in 0..5 {
        let span = Span::new(env.seed, i * 300_000, 300_000);
        expect_eq(other.poll(POLLIN, 0)?, 0, "poll before")?;
        let sending = send_in_thread(&one, span)?;
        let mut done = 0;
        let mut buf = vec![0; 50_000];
        let want = span.to_vec();
        while done < want.len() {
            expect_eq(other.poll(POLLIN, -1)?, POLLIN, "poll")?;
            let n = other.recv(&mut buf, MSG_DONTWAIT)?;
            expect(buf[..n] == want[done..done + n], "wrong bytes")?;
            done += n;
        }
        expect_eq(joined(sending)??, done, "sent")?;
    }
    Ok(())
}

/// Bytes that were held back go with the advert, or before the advert.
fn behind_a_small_send(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    set_threshold(env, &sock, THRESHOLD)?;
    let mut offset = 0;
    for small in [1, 100, 3000, 4090, 9000, 70_000] {
        let first = Span::new(env.seed, offset, small);
        let second = Span::new(env.seed, offset + small, 200_000);
        let both = Span::new(env.seed, offset, small + 200_000);
        let job = remote.start(Work::Sink(both))?;
        set_threshold(env, &sock, 0)?;
        expect_eq(
            send_once(&sock, first, 0, libc::MSG_MORE)? as u64,
            small,
            "the first",
        )?;
        set_threshold(env, &sock, THRESHOLD)?;
        expect_eq(send_once(&sock, second, 3, 0)?, 200_000, "the second")?;
        expect_received(job.join_received()?, both, format!("behind {small}"))?;
        offset += both.len;
    }
    Ok(())
}

fn of_many_iovecs(env: &Env) -> Outcome {
    send_in_pieces(
        env,
        &[1, 20_000, 5, 70_000, 4096, 300_001, 0, 16_384, 16_383, 2],
    )
}

/// The last iovec of an array is advertised as a whole, so no iovec is left while the send waits
/// until the peer has read the bytes. Some arrays are on the kernel's stack, and one fills an
/// object of the kernel's allocator.
fn ends_with_an_iovec(env: &Env) -> Outcome {
    for count in [2, 8, 12, 256] {
        let mut lens = vec![3; count - 1];
        lens.push(40_000);
        send_in_pieces(env, &lens)?;
    }
    Ok(())
}

/// Sends iovecs of these lengths in one call.
fn send_in_pieces(env: &Env, lens: &[usize]) -> Outcome {
    let (sock, remote) = env.pair()?;
    set_threshold(env, &sock, THRESHOLD)?;
    let total: usize = lens.iter().sum();
    let span = Span::new(env.seed, 0, total as u64);
    let job = remote.start(Work::Sink(span))?;
    let bytes = span.to_vec();
    let mut bufs = Vec::new();
    let mut rest = &bytes[..];
    for &len in lens {
        let (first, behind) = rest.split_at(len);
        bufs.push(first.to_vec());
        rest = behind;
    }
    let slices: Vec<_> = bufs.iter().map(|b| IoSlice::new(b)).collect();
    expect_eq(sock.sendmsg(&slices, 0)?, total, "sent")?;
    expect_received(job.join_received()?, span, "the peer")
}

/// Sends to a peer that does not read, until a call ends with this error and some bytes were sent.
/// Returns their number. The number of bytes of each call depends on how fast the machines are.
fn until_refused(sock: &Sock, span: Span, errno: i32) -> Result<u64, Fail> {
    let mut sent = 0;
    loop {
        let misalign = (sent % 4096) as usize;
        match send_once(sock, span.after(sent), misalign, 0) {
            Ok(n) => sent += n as u64,
            Err(e) => {
                expect_errno::<()>(Err(e), errno, "the last send")?;
                if sent > 0 {
                    return Ok(sent);
                }
            }
        }
        expect(sent < span.len, "everything was sent")?;
    }
}

/// If no reader comes, the sender gets its memory back in time, and the stream has exactly the
/// bytes that the calls have reported.
fn nobody_reads_in_time(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    set_threshold(env, &one, THRESHOLD)?;
    one.set_timeout(SO_SNDTIMEO, 300)?;
    let cancels = stat(env, "cancel_answered")?;
    let mut offset = 0;
    for _ in 0..4 {
        let span = Span::new(env.seed, offset, 12 << 20);
        let n = until_refused(&one, span, EAGAIN)?;
        receive(&other, Span::new(env.seed, offset, n))?;
        offset += n;
    }
    expect_errno(other.recv(&mut [0; 1], MSG_DONTWAIT), EAGAIN, "more bytes")?;
    let cancels = stat(env, "cancel_answered")? - cancels;
    expect(
        cancels >= 4 || env.family == Family::Tcp,
        format!("{cancels} cancels"),
    )
}

/// TCP_USER_TIMEOUT also applies to a peer that does not read.
fn nobody_reads_and_the_user_has_a_limit(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    set_threshold(env, &one, THRESHOLD)?;
    one.set_int(IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 1000)?;
    let result = send_once(&one, Span::new(env.seed, 0, 12 << 20), 0, 0);
    match result {
        Ok(n) => expect(n < 12 << 20, "everything was sent")?,
        Err(e) => expect_errno::<()>(Err(e), ETIMEDOUT, "the send")?,
    }
    drop(other);
    Ok(())
}

extern "C" fn ignore(_: libc::c_int) {}

fn interrupted(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    set_threshold(env, &one, THRESHOLD)?;
    sys::install_handler(SIGALRM, ignore, false)?;
    let mut offset = 0;
    for _ in 0..4 {
        let span = Span::new(env.seed, offset, 12 << 20);
        sys::alarm_every(150)?;
        let n = until_refused(&one, span, EINTR)?;
        sys::alarm_every(0)?;
        receive(&other, Span::new(env.seed, offset, n))?;
        offset += n;
    }
    Ok(())
}

fn nonblocking_goes_by_copy(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    set_threshold(env, &one, THRESHOLD)?;
    let fallbacks = stat(env, "by_copy_NonBlocking")?;
    let span = Span::new(env.seed, 0, 60_000);
    let n = send_once(&one, span, 0, MSG_DONTWAIT)? as u64;
    receive(&other, Span::new(env.seed, 0, n))?;
    grown(env, "by_copy_NonBlocking", fallbacks, 1)
}

/// A slow reader of small parts holds up the sender only while the receive buffer has no room: the
/// module reads the other bytes ahead of the reader.
/// A program polls for more bytes than its buffer has room for. When the buffer is full and the
/// peer advertises more, the program must be woken: the peer waits until the program reads.
fn polled_for_beyond_the_buffer(env: &Env) -> Outcome {
    const EACH: u64 = 65536;
    const LONG_MS: i32 = 20_000;
    let (sock, other) = env.own_pair()?;
    set_threshold(env, &other, THRESHOLD)?;
    sock.set_int(SOL_SOCKET, SO_RCVLOWAT, 1_000_000)?;
    // Twice as many bytes.
    sock.set_int(SOL_SOCKET, SO_RCVBUF, EACH as i32 / 2)?;
    let (sock, other) = (Arc::new(sock), Arc::new(other));
    let poller = Arc::clone(&sock);
    let polling = spawn_waiting(move || poller.poll(POLLIN, LONG_MS))?;
    let first = Span::new(env.seed, 0, EACH);
    expect_eq(send_once(&other, first, 9, 0)?, EACH as usize, "the first")?;
    let sending = send_in_thread(&other, Span::new(env.seed, EACH, EACH))?;
    // At the end of its time, too, poll() finds that the program can read.
    let begun = Instant::now();
    expect_eq(joined(polling)??, POLLIN, "poll")?;
    let limit = Duration::from_millis(LONG_MS as u64 / 2);
    expect(begun.elapsed() < limit, "poll() was not woken")?;
    receive(&sock, Span::new(env.seed, 0, 2 * EACH))?;
    expect_eq(joined(sending)??, EACH as usize, "the second")
}

fn read_slowly_in_parts(env: &Env) -> Outcome {
    const PART: usize = 16384;
    let (one, other) = env.own_pair()?;
    let one = Arc::new(one);
    set_threshold(env, &one, THRESHOLD)?;
    other.set_int(SOL_SOCKET, SO_RCVBUF, 2 << 20)?;
    let ahead = stat(env, "rx_pulled_bytes")?;
    let span = Span::new(env.seed, 0, 1 << 20);
    let sending = send_in_thread(&one, span)?;
    let mut buf = vec![0; PART];
    let mut got = 0;
    while got < span.len {
        let n = other.recv(&mut buf, 0)?;
        let want = Span::new(span.seed, got, n as u64).to_vec();
        expect(buf[..n] == want, format!("other bytes behind {got}"))?;
        got += n as u64;
        thread::sleep(Duration::from_millis(3));
    }
    expect_eq(joined(sending)??, 1 << 20, "sent")?;
    if env.family == Family::Sdp {
        let ahead = stat(env, "rx_pulled_bytes")? - ahead;
        expect(ahead > 0, "nothing was read ahead of him")?;
    }
    Ok(())
}

/// If only adverts flow, each side returns credits with the messages about adverts.
fn adverts_need_no_updates(env: &Env) -> Outcome {
    const ROUNDS: u64 = 60;
    const LEN: u64 = 65_536;
    let (one, other) = env.own_pair()?;
    set_threshold(env, &one, THRESHOLD)?;
    let one = Arc::new(one);
    let (adverts, updates) = (
        stat(env, "advert_posted")?,
        stat(env, "credit_update_sent")?,
    );
    let span = Span::new(env.seed, 0, ROUNDS * LEN);
    let sending = {
        let one = Arc::clone(&one);
        spawn(move || -> io::Result<()> {
            for round in 0..ROUNDS {
                let part = Span::new(span.seed, round * LEN, LEN);
                send_once(&one, part, 9, 0)?;
            }
            Ok(())
        })?
    };
    receive(&other, span)?;
    joined(sending)??;
    if env.family == Family::Sdp {
        let adverts = stat(env, "advert_posted")? - adverts;
        let updates = stat(env, "credit_update_sent")? - updates;
        // The counters include both sides, which are in this machine.
        let text = format!("{updates} updates beside {adverts} adverts");
        expect(adverts >= ROUNDS / 2 && updates < adverts / 3, text)?;
    }
    Ok(())
}

/// A program that polls before each read comes only when bytes are there, so the module does not
/// wait for it.
fn poller_is_not_waited_for(env: &Env) -> Outcome {
    not_waited_for(env, |sock, buf| {
        expect_eq(sock.poll(POLLIN, -1)?, POLLIN, "poll")?;
        Ok(sock.recv(buf, 0)?)
    })
}

/// A reader whose buffer is too small to take an advert itself is not waited for either, although it
/// already waits when the advert comes; nor is a reader that peeks.
fn small_readers_are_not_waited_for(env: &Env) -> Outcome {
    const SMALL: usize = 1000;
    not_waited_for(env, |sock, buf| Ok(sock.recv(&mut buf[..SMALL], 0)?))?;
    not_waited_for(env, |sock, buf| {
        expect(sock.recv(buf, MSG_PEEK)? > 0, "nothing to peek at")?;
        Ok(sock.recv(buf, 0)?)
    })
}

/// Sends adverts to a thread that waits in `read`, and expects that none of them waited for a reader
/// with a large buffer.
fn not_waited_for(env: &Env, read: fn(&Sock, &mut [u8]) -> Result<usize, Fail>) -> Outcome {
    const ROUNDS: u64 = 10;
    const LEN: u64 = 10 * PAGE as u64;
    let (one, other) = env.own_pair()?;
    set_threshold(env, &one, THRESHOLD)?;
    let (tell, told) = std::sync::mpsc::channel();
    let seed = env.seed;
    let reading = spawn(move || -> Result<(), Fail> {
        let mut buf = vec![0; LEN as usize];
        for round in 0..ROUNDS {
            // The sender waits until this thread sleeps.
            let _ = tell.send(sys::thread_id());
            let mut got = 0;
            while got < LEN {
                let n = read(&other, &mut buf)?;
                let want = Span::new(seed, round * LEN + got, n as u64).to_vec();
                expect(buf[..n] == want, format!("other bytes in round {round}"))?;
                got += n as u64;
            }
        }
        Ok(())
    })?;
    let late = stat(env, "pulled_Delay")?;
    for (round, reader) in told.iter().enumerate() {
        eventually(
            "the reader waits",
            || io::Result::Ok(sys::is_asleep(reader)),
            |&s| s,
        )?;
        // Whole pages: the message with such an advert carries no bytes.
        let mut pages = Area::new(10)?;
        let span = Span::new(seed, round as u64 * LEN, LEN);
        pages.bytes(LEN as usize).copy_from_slice(&span.to_vec());
        let sent = one.send_raw(pages.at(0), LEN as usize, MSG_NOSIGNAL)?;
        expect_eq(sent as u64, LEN, "sent")?;
    }
    joined(reading)??;
    let late = stat(env, "pulled_Delay")? - late;
    expect_eq(late, 0, "adverts that waited for the reader")
}

/// While a send waits for its reader, other sends do not get between its bytes.
fn others_wait_or_are_refused(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    let one = Arc::new(one);
    set_threshold(env, &one, THRESHOLD)?;
    let span = Span::new(env.seed, 0, 12 << 20);
    let sending = send_in_thread(&one, span)?;
    until_stuck(&one)?;
    expect_eq(one.poll(POLLOUT, 0)?, 0, "poll")?;
    expect_errno(one.send(&[1], MSG_DONTWAIT), EAGAIN, "one byte")?;
    let behind = Span::new(env.seed, span.len, 30_000);
    let second = send_in_thread(&one, behind)?;
    receive(&other, span)?;
    if env.family == Family::Sdp {
        // Over TCP the bytes of the second send may have come between.
        receive(&other, behind)?;
    } else {
        let mut left = vec![0; 30_000];
        other.recv_exact(&mut left)?;
    }
    expect_eq(joined(sending)??, 12 << 20, "sent first")?;
    expect_eq(joined(second)??, 30_000, "sent second")?;
    expect_eq(one.poll(POLLOUT, -1)?, POLLOUT, "poll in the end")
}

/// A user who may lock no memory sends by copy.
fn without_leave_to_lock(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    let one = Arc::new(one);
    set_threshold(env, &one, THRESHOLD)?;
    let fallbacks = stat(env, "by_copy_PinLimit")?;
    sys::limit_locked_memory(0)?;
    sys::become_nobody()?;
    let span = Span::new(env.seed, 0, 500_000);
    let sending = send_in_thread(&one, span)?;
    receive(&other, span)?;
    expect_eq(joined(sending)??, 500_000, "sent")?;
    // The reader may be refused, too, but its refusals are not counted here.
    grown(env, "by_copy_PinLimit", fallbacks, 1)
}

/// A child that writes to its copy of the buffer does not change the sent bytes.
fn fork_under_way(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    let one = Arc::new(one);
    set_threshold(env, &one, THRESHOLD)?;
    let span = Span::new(env.seed, 0, 12 << 20);
    let buf = Arc::new(span.to_vec());
    let (from, sock) = (Arc::clone(&buf), Arc::clone(&one));
    let sending = spawn(move || sock.send(&from, MSG_NOSIGNAL))?;
    until_stuck(&one)?;
    let pid = match sys::fork()? {
        Fork::Child => {
            let start = buf.as_ptr().cast_mut();
            for i in (0..buf.len()).step_by(512) {
                // SAFETY: the byte is in the buffer, which is the child's own
                // and which nothing else in the child uses.
                unsafe { start.add(i).write_volatile(0xdb) };
            }
            sys::exit_now(0)
        }
        Fork::Parent(pid) => pid,
    };
    sys::wait_child(pid, true)?;
    receive(&other, span)?;
    expect_eq(joined(sending)??, buf.len(), "sent")
}

fn peer_closes(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    set_threshold(env, &sock, THRESHOLD)?;
    let sock = Arc::new(sock);
    let sending = send_in_thread(&sock, Span::new(env.seed, 0, 12 << 20))?;
    until_stuck(&sock)?;
    remote.close()?;
    // The bytes that the peer had read count as sent.
    match joined(sending)? {
        Ok(n) => expect(n < 12 << 20, "everything was sent")?,
        Err(e) => expect_errno::<()>(Err(e), ECONNRESET, "the send")?,
    }
    expect_errno_of(
        send_once(&sock, Span::new(1, 0, 20_000), 0, 0),
        &[ECONNRESET, EPIPE],
        "the next",
    )
}

fn peer_dies(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    set_threshold(env, &sock, THRESHOLD)?;
    let sock = Arc::new(sock);
    let sending = send_in_thread(&sock, Span::new(env.seed, 0, 12 << 20))?;
    until_stuck(&sock)?;
    remote.session().die()?;
    match joined(sending)? {
        Ok(n) => expect(n < 12 << 20, "everything was sent"),
        Err(e) => expect_errno::<()>(Err(e), ECONNRESET, "the send"),
    }
}

/// Another thread shuts down the sending direction. The send ends, and has sent exactly the bytes
/// that the peer has.
fn shutdown_under_way(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    let one = Arc::new(one);
    set_threshold(env, &one, THRESHOLD)?;
    let sending = send_in_thread(&one, Span::new(env.seed, 0, 12 << 20))?;
    until_stuck(&one)?;
    one.shutdown(libc::SHUT_WR)?;
    let sent = match joined(sending)? {
        Ok(n) => n as u64,
        Err(e) => return expect_errno::<()>(Err(e), EPIPE, "the send"),
    };
    expect(sent < 12 << 20, "everything was sent")?;
    receive(&other, Span::new(env.seed, 0, sent))?;
    expect_eof(&other)
}

fn many_of_all_kinds(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let mut rng = Rng::new(env.seed ^ 0x2c09);
    let mut offset = 0;
    let rounds = env.scaled(200);
    let total_seed = env.seed;
    for round in 0..rounds {
        let len = rng.length(300_000) as u64;
        let span = Span::new(total_seed, offset, len);
        let threshold = [0, 4096, THRESHOLD, 100_000][rng.below(4)];
        let job = remote.start(Work::Sink(span))?;
        set_threshold(env, &sock, threshold)?;
        let flags = [0, 0, libc::MSG_MORE, 0][rng.below(4)];
        let mut done = 0;
        while done < len {
            let n = send_once(&sock, span.after(done), rng.below(4096), flags)?;
            expect(n > 0, "nothing was sent")?;
            done += n as u64;
        }
        if flags != 0 {
            // Sends the bytes that were held back.
            sock.set_int(IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
            set_threshold(env, &sock, 0)?;
            let tail = Span::new(total_seed, offset + len, 1);
            let both = Span::new(total_seed, offset, len);
            send_once(&sock, tail, 0, 0)?;
            expect_received(job.join_received()?, both, format!("round {round}"))?;
            expect_received(remote.recv_span(tail, 1)?, tail, "the tail")?;
            offset += 1;
        } else {
            expect_received(job.join_received()?, span, format!("round {round}"))?;
        }
        offset += len;
    }
    Ok(())
}

/// After all these tests no page is pinned, and no advert is outstanding.
fn everything_is_given_back(env: &Env) -> Outcome {
    eventually(
        "pinned bytes",
        || Ok(stat(env, "pinned_bytes")? - stat(env, "unpinned_bytes")?),
        |left| *left == 0,
    )?;
    eventually(
        "adverts",
        || {
            let ended = stat(env, "advert_consumed")?
                + stat(env, "advert_cancelled")?
                + stat(env, "advert_aborted")?;
            Ok(stat(env, "advert_posted")? - ended)
        },
        |left| *left == 0,
    )
}
