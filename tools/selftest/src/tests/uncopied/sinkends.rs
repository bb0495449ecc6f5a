// SPDX-License-Identifier: GPL-2.0
//! Interruptions of receives that wait with a large buffer: nobody sends, signals, other readers,
//! bad memory, the end of either side.

use super::inflight::{pause, Growth};
use super::sink::{
    advertised, grown, own_pair, pair, receive_in_thread, receive_there, same, send_once, Writes,
};
use crate::support::counters::stat;
use crate::support::flow::{spawn, Span};
use crate::support::harness::{
    eventually, expect, expect_eof, expect_eq, expect_errno, expect_waited, joined, spawn_waiting,
    tests, Env, Fail, Outcome, QUIET_MS,
};
use crate::support::sys::{self, Area, Ended, Fork, MissingPages, Sock, PAGE};
use libc::{
    EAGAIN, ECONNRESET, EFAULT, EINTR, EPIPE, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, MSG_WAITALL,
    POLLIN, SIGALRM, SO_RCVTIMEO,
};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

tests!("sinkends";
    nobody_sends_in_time,
    waits_for_long,
    interrupted,
    polled_and_peeked,
    nonblocking_senders,
    two_readers,
    beside_another_reader,
    advert_gone_while_pinning,
    into_bad_memory,
    without_leave_to_lock,
    fork_while_waiting,
    peer_shuts_down,
    shut_down_here,
    peer_closes,
    peer_dies,
    reader_is_killed,
    sender_is_killed,
);

/// A receive that ends by a time-out has its buffer back. The more such receives there are, the
/// fewer of them advertise.
fn nobody_sends_in_time(env: &Env) -> Outcome {
    const WAITS: u64 = 8;
    /// The waits with an advert: the first one, the one after a pause of one wait, and the one
    /// after a pause of three waits.
    const ADVERTISED: [u64; 3] = [0, 2, 6];
    let (one, other) = own_pair(env)?;
    other.set_timeout(SO_RCVTIMEO, 150)?;
    let mut buf = vec![0xee; 100_000];
    for wait in 0..WAITS {
        let cancels = Growth::of(env, "sent_SinkAvailCancel")?;
        let start = Instant::now();
        expect_errno(other.recv(&mut buf, 0), EAGAIN, "nothing came")?;
        expect_waited(start)?;
        expect(buf.iter().all(|b| *b == 0xee), "bytes of nowhere")?;
        let want = u64::from(ADVERTISED.contains(&wait));
        expect_eq(grown(&cancels)?, want, format!("cancels of wait {wait}"))?;
    }
    other.set_timeout(SO_RCVTIMEO, 20_000)?;
    for round in 0..4 {
        let span = Span::new(env.seed, round * 50_000, 50_000);
        let sender = Arc::clone(&one);
        let sending = spawn(move || {
            pause();
            send_once(&sender, span, 0, 0)
        })?;
        let n = other.recv(&mut buf[..50_000], MSG_WAITALL)?;
        same(&buf[..n], span, "in time")?;
        expect_eq(joined(sending)??, 50_000, "sent")?;
    }
    expect(buf[50_000..].iter().all(|b| *b == 0xee), "bytes behind")
}

/// A buffer is not advertised for ever, but the receive goes on waiting.
fn waits_for_long(env: &Env) -> Outcome {
    let (one, other) = own_pair(env)?;
    let cancels = Growth::of(env, "sent_SinkAvailCancel")?;
    let adverts = Growth::of(env, "sink_advert_sent")?;
    let span = Span::new(env.seed, 0, 100_000);
    let start = Instant::now();
    let reading = receive_there(env, &other, 100_000, MSG_WAITALL)?;
    eventually("the end of the advert", || grown(&cancels), |n| *n == 1)?;
    let lasted = start.elapsed();
    expect(lasted >= Duration::from_secs(4), format!("{lasted:?}"))?;
    pause();
    expect(!reading.is_finished(), "the receive has ended")?;
    expect_eq(grown(&adverts)?, 1, "adverts of one receive")?;
    expect_eq(send_once(&one, span, 0, 0)?, 100_000, "sent")?;
    same(&joined(reading)??, span, "received")
}

extern "C" fn ignore(_: libc::c_int) {}

/// A signal ends the wait, or the kernel restarts the call. No byte is lost.
fn interrupted(env: &Env) -> Outcome {
    let (one, other) = own_pair(env)?;
    let cancels = Growth::of(env, "sent_SinkAvailCancel")?;
    // The buffer was written to, because pages that are not present are not advertised.
    let mut buf = vec![0xee; 100_000];
    for round in 0..4 {
        sys::install_handler(SIGALRM, ignore, false)?;
        sys::alarm_every(100)?;
        let result = other.recv(&mut buf, 0);
        sys::alarm_every(0)?;
        expect_errno(result, EINTR, "the receive")?;
        sys::install_handler(SIGALRM, ignore, true)?;
        sys::alarm_every(20)?;
        let span = Span::new(env.seed, round * 80_000, 80_000);
        let sender = Arc::clone(&one);
        let sending = spawn(move || {
            sys::block_signal(SIGALRM)?;
            pause();
            send_once(&sender, span, 0, 0)
        })?;
        let n = other.recv(&mut buf, 0);
        sys::alarm_every(0)?;
        expect_eq(joined(sending)??, 80_000, "sent")?;
        let mut n = n?;
        while n < 80_000 {
            n += other.recv(&mut buf[n..80_000], 0)?;
        }
        same(&buf[..n], span, "received")?;
    }
    expect(grown(&cancels)? > 0, "no advert was in the way")
}

fn polled_and_peeked(env: &Env) -> Outcome {
    let (one, other) = own_pair(env)?;
    let span = Span::new(env.seed, 0, 100_000);
    let reading = receive_there(env, &other, 100_000, MSG_WAITALL)?;
    expect_eq(other.poll(POLLIN, QUIET_MS)?, 0, "poll while a call waits")?;
    expect_eq(send_once(&one, span, 0, 0)?, 100_000, "sent")?;
    same(&joined(reading)??, span, "received")?;
    expect_eq(other.poll(POLLIN, 0)?, 0, "poll when all was received")?;
    // A receive with MSG_PEEK does not advertise.
    let sent = stat(env, "sink_advert_sent")?;
    let peeking = receive_in_thread(&other, 100_000, MSG_PEEK)?;
    pause();
    expect_eq(stat(env, "sink_advert_sent")?, sent, "adverts of a peek")?;
    let span = span.after(0);
    expect_eq(send_once(&one, span, 0, 0)?, 100_000, "sent")?;
    let seen = joined(peeking)??;
    same(&seen, Span::new(span.seed, 0, seen.len() as u64), "seen")?;
    let got = joined(receive_in_thread(&other, 100_000, MSG_WAITALL)?)??;
    same(&got, span, "received")
}

/// A send that must not wait does not write to the reader's memory.
fn nonblocking_senders(env: &Env) -> Outcome {
    let (one, other) = own_pair(env)?;
    let writes = Writes::since_now(env)?;
    let span = Span::new(env.seed, 0, 60_000);
    let reading = receive_there(env, &other, 60_000, 0)?;
    let sent = send_once(&one, span, 0, MSG_DONTWAIT)?;
    let mut got = joined(reading)??;
    while got.len() < sent {
        got.append(&mut joined(receive_in_thread(
            &other,
            sent - got.len(),
            0,
        )?)??);
    }
    same(&got, Span::new(span.seed, 0, sent as u64), "received")?;
    expect_eq(writes.bytes()?, 0, "bytes written")
}

/// Two calls wait on one socket. Each call gets bytes that belong together.
fn two_readers(env: &Env) -> Outcome {
    for round in 0..10 {
        let (one, other) = own_pair(env)?;
        let spans = [0, 1].map(|i| Span::new(env.seed, (round * 2 + i) * 70_000, 70_000));
        let readers = [
            receive_there(env, &other, 70_000, MSG_WAITALL)?,
            receive_in_thread(&other, 70_000, MSG_WAITALL)?,
        ];
        expect_errno(other.recv(&mut [0], MSG_DONTWAIT), EAGAIN, "a third")?;
        for span in spans {
            expect_eq(send_once(&one, span, 0, 0)?, 70_000, "sent")?;
        }
        let mut got = Vec::new();
        for reader in readers {
            got.push(joined(reader)??);
        }
        let fits = |i: usize, j: usize| same(&got[i], spans[j], "").is_ok();
        expect(
            (fits(0, 0) && fits(1, 1)) || (fits(0, 1) && fits(1, 0)),
            "wrong bytes",
        )?;
    }
    Ok(())
}

/// A receive beside another receive that advertises its buffer need not wait for that one. A buffer
/// that is not present is not advertised, and is not faulted in before there are bytes for it.
fn beside_another_reader(env: &Env) -> Outcome {
    const LEN: usize = 100_000;
    let (one, other) = own_pair(env)?;
    let reading = receive_there(env, &other, LEN, MSG_WAITALL)?;
    other.set_timeout(SO_RCVTIMEO, 150)?;
    ends_soon(&other, MSG_DONTWAIT)?;
    ends_soon(&other, 0)?;
    other.set_timeout(SO_RCVTIMEO, 0)?;
    let span = Span::new(env.seed, 0, LEN as u64);
    expect_eq(send_once(&one, span, 0, 0)?, LEN, "sent")?;
    same(&joined(reading)??, span, "received")?;

    let sent = Growth::of(env, "sink_advert_sent")?;
    let pages = Arc::new(MissingPages::new(LEN.div_ceil(PAGE), 0)?);
    let reading = {
        let (sock, pages) = (Arc::clone(&other), Arc::clone(&pages));
        // SAFETY: the area is used by nobody else until the thread is joined.
        spawn_waiting(move || unsafe { sock.recv_raw(pages.at(0), LEN, MSG_WAITALL) })?
    };
    pause();
    other.set_timeout(SO_RCVTIMEO, 150)?;
    ends_soon(&other, MSG_DONTWAIT)?;
    ends_soon(&other, 0)?;
    expect_eq(grown(&sent)?, 0, "adverts of what is not there")?;
    let span = Span::new(env.seed, LEN as u64, LEN as u64);
    let sender = Arc::clone(&one);
    let sending = spawn(move || send_once(&sender, span, 0, 0))?;
    pages.await_touch()?;
    bring_all(&pages, LEN, &[0xee; LEN.next_multiple_of(PAGE)])?;
    expect_eq(joined(sending)??, LEN, "sent")?;
    expect_eq(joined(reading)??, LEN, "received")?;
    let mut pages = Arc::into_inner(pages).ok_or_else(|| Fail::Failed("still used".into()))?;
    same(pages.bytes(LEN), span, "received")
}

/// A receive beside another one gets nothing, and ends before the other buffer is withdrawn, which
/// happens after five seconds.
#[track_caller]
fn ends_soon(sock: &Arc<Sock>, flags: i32) -> Outcome {
    let sock = Arc::clone(sock);
    let start = Instant::now();
    let second = spawn(move || sock.recv(&mut [0; 100], flags))?;
    while !second.is_finished() && start.elapsed() < Duration::from_secs(4) {
        std::thread::sleep(Duration::from_millis(1));
    }
    expect(second.is_finished(), "it waits for the other one")?;
    expect_errno(joined(second)?, EAGAIN, "the second receive")
}

/// Provides the pages of the first `len` bytes, with this content.
fn bring_all(pages: &MissingPages, len: usize, content: &[u8]) -> io::Result<()> {
    for (number, start) in (0..len).step_by(PAGE).enumerate() {
        let mut page = [0; PAGE];
        let bytes = &content[start..content.len().min(start + PAGE)];
        page[..bytes.len()].copy_from_slice(bytes);
        pages.bring(number, &page)?;
    }
    Ok(())
}

/// The reader goes while a sender pins its pages, which may take any time. The bytes are sent
/// another way, all of them and only once.
fn advert_gone_while_pinning(env: &Env) -> Outcome {
    const LEN: usize = 100_000;
    let (one, other) = own_pair(env)?;
    let mut offset = 0;
    // A send that begins within a page waits for its Write; a send that begins with a page does
    // not.
    for start in [7, 7, 0] {
        write_once(env, &one, &other, &mut offset)?;
        let span = Span::new(env.seed, offset, LEN as u64);
        other.set_timeout(SO_RCVTIMEO, 300)?;
        let reading = receive_there(env, &other, LEN, MSG_WAITALL)?;
        let pages = Arc::new(MissingPages::new((start + LEN).div_ceil(PAGE), 0)?);
        let sending = {
            let (sock, pages) = (Arc::clone(&one), Arc::clone(&pages));
            spawn(move || sock.send_raw(pages.at(start), LEN, MSG_NOSIGNAL))?
        };
        pages.await_touch()?;
        expect_errno(joined(reading)?, EAGAIN, "the receive")?;
        let content = [vec![0; start], span.to_vec()].concat();
        bring_all(&pages, content.len(), &content)?;
        other.set_timeout(SO_RCVTIMEO, 20_000)?;
        let got = joined(receive_in_thread(&other, LEN, MSG_WAITALL)?)??;
        same(&got, span, &format!("from {start}"))?;
        expect_eq(joined(sending)??, LEN, "sent")?;
        offset += LEN as u64;
    }
    expect_errno(other.recv(&mut [0], MSG_DONTWAIT), EAGAIN, "one more byte")
}

/// Makes a send that waits until all of its bytes were written to the memory of a reader.
fn write_once(env: &Env, one: &Sock, other: &Arc<Sock>, offset: &mut u64) -> Outcome {
    const LEN: u64 = 15 * PAGE as u64;
    let mut written = false;
    // Repeats until the reader advertises again. A send of whole pages arrives as a whole, so each
    // receive waits only once.
    for _ in 0..20 {
        let writes = Writes::since_now(env)?;
        let span = Span::new(env.seed, *offset, LEN);
        let reading = receive_in_thread(other, LEN as usize, MSG_WAITALL)?;
        pause();
        expect_eq(send_once(one, span, 0, 0)? as u64, LEN, "sent")?;
        same(&joined(reading)??, span, "received")?;
        *offset += LEN;
        written = writes.bytes()? > 0;
        if written {
            break;
        }
    }
    expect(written, "the reader has given up for good")?;
    let writes = Writes::since_now(env)?;
    let span = Span::new(env.seed, *offset, LEN);
    let reading = receive_there(env, other, LEN as usize, MSG_WAITALL)?;
    expect_eq(send_once(one, span, 7, 0)? as u64, LEN, "sent")?;
    same(&joined(reading)??, span, "received")?;
    *offset += LEN;
    expect_eq(writes.bytes()?, LEN, "bytes written")
}

/// Buffers that are not accessible, or only in part.
fn into_bad_memory(env: &Env) -> Outcome {
    let (one, other) = own_pair(env)?;
    let span = Span::new(env.seed, 0, 300_000);
    let mut area = Area::new(100)?;
    area.forbid_from(20)?;
    let sender = Arc::clone(&one);
    let sending = spawn(move || {
        pause();
        send_once(&sender, span, 0, 0)
    })?;
    // SAFETY: nobody uses the pages, which the kernel must not write to.
    let result = unsafe { other.recv_raw(area.at(20 * PAGE), 70 * PAGE, 0) };
    expect_errno(result, EFAULT, "into nowhere")?;
    let got = joined(receive_in_thread(&other, 300_000, MSG_WAITALL)?)??;
    same(&got, span, "received")?;
    expect_eq(joined(sending)??, 300_000, "sent")?;
    let span = Span::new(env.seed, 300_000, 300_000);
    let sender = Arc::clone(&one);
    let sending = spawn(move || {
        pause();
        send_once(&sender, span, 0, 0)
    })?;
    // SAFETY: the first pages are ours, and the others as above.
    let n = unsafe { other.recv_raw(area.at(0), 90 * PAGE, 0) }?;
    expect(n > 0 && n <= 20 * PAGE, format!("{n} bytes in 20 pages"))?;
    same(
        area.bytes(n),
        Span::new(span.seed, span.offset, n as u64),
        "a part",
    )?;
    let left = 300_000 - n;
    let got = joined(receive_in_thread(&other, left, MSG_WAITALL)?)??;
    same(&got, span.after(n as u64), "the rest")?;
    expect_eq(joined(sending)??, 300_000, "sent")
}

/// A user who may lock no memory receives by copy.
fn without_leave_to_lock(env: &Env) -> Outcome {
    let (one, other) = own_pair(env)?;
    let (refused, sent) = (
        stat(env, "memlock_refused")?,
        stat(env, "sink_advert_sent")?,
    );
    sys::limit_locked_memory(0)?;
    sys::become_nobody()?;
    let span = Span::new(env.seed, 0, 200_000);
    let reading = receive_in_thread(&other, 200_000, MSG_WAITALL)?;
    eventually(
        "refusals",
        || Ok(stat(env, "memlock_refused")? - refused),
        |n| *n > 0,
    )?;
    expect_eq(send_once(&one, span, 0, 0)?, 200_000, "sent")?;
    same(&joined(reading)??, span, "received")?;
    expect_eq(stat(env, "sink_advert_sent")?, sent, "adverts")
}

/// A child that is forked while a receive waits has its own copy of the buffer.
fn fork_while_waiting(env: &Env) -> Outcome {
    let (one, other) = own_pair(env)?;
    let span = Span::new(env.seed, 0, 200_000);
    let mut buf = vec![0xee_u8; 200_000];
    let start = buf.as_mut_ptr() as usize;
    let before = stat(env, "sink_advert_received")?;
    let reader = Arc::clone(&other);
    // SAFETY: the buffer outlives the thread, which is joined below, and nobody
    // else looks at it until then.
    let reading = spawn(move || unsafe { reader.recv_raw(start, 200_000, MSG_WAITALL) })?;
    advertised(env, before, 1)?;
    let pid = match sys::fork()? {
        Fork::Child => {
            let at = start as *mut u8;
            let mut same = true;
            for i in (0..200_000).step_by(512) {
                // SAFETY: the byte is in the buffer, which is the child's own
                // and which nothing else in the child uses.
                unsafe {
                    same &= at.add(i).read_volatile() == 0xee;
                    at.add(i).write_volatile(0xdb);
                }
            }
            sys::exit_now(i32::from(!same))
        }
        Fork::Parent(pid) => pid,
    };
    let ended = sys::wait_child(pid, true)?;
    expect_eq(send_once(&one, span, 0, 0)?, 200_000, "sent")?;
    expect_eq(joined(reading)??, 200_000, "received")?;
    same(&buf, span, "received")?;
    expect_eq(ended, Ended::Exit(0), "the child")
}

fn peer_shuts_down(env: &Env) -> Outcome {
    let (one, other) = own_pair(env)?;
    let reading = receive_there(env, &other, 100_000, MSG_WAITALL)?;
    one.shutdown(libc::SHUT_WR)?;
    expect_eq(joined(reading)??.len(), 0, "received")?;
    expect_eof(&other)?;
    // The other direction works as before.
    let span = Span::new(env.seed, 0, 200_000);
    let reading = receive_there(env, &one, 200_000, MSG_WAITALL)?;
    expect_eq(send_once(&other, span, 0, 0)?, 200_000, "sent")?;
    same(&joined(reading)??, span, "received")?;
    other.shutdown(libc::SHUT_WR)?;
    expect_eof(&one)
}

/// Another thread shuts down one direction of the socket on which a receive waits.
fn shut_down_here(env: &Env) -> Outcome {
    let (one, other) = own_pair(env)?;
    let span = Span::new(env.seed, 0, 100_000);
    let reading = receive_there(env, &other, 100_000, MSG_WAITALL)?;
    other.shutdown(libc::SHUT_WR)?;
    expect_eof(&one)?;
    expect_eq(send_once(&one, span, 0, 0)?, 100_000, "sent")?;
    same(&joined(reading)??, span, "received")?;
    let reading = receive_there(env, &other, 100_000, 0)?;
    other.shutdown(libc::SHUT_RD)?;
    expect_eq(joined(reading)??.len(), 0, "received")
}

fn peer_closes(env: &Env) -> Outcome {
    let (sock, remote) = pair(env)?;
    let sent = stat(env, "sink_advert_sent")?;
    let reading = receive_in_thread(&sock, 100_000, MSG_WAITALL)?;
    eventually(
        "an advert",
        || Ok(stat(env, "sink_advert_sent")? - sent),
        |n| *n > 0,
    )?;
    remote.close()?;
    expect_eq(joined(reading)??.len(), 0, "received")?;
    expect_eof(&sock)
}

fn peer_dies(env: &Env) -> Outcome {
    let (sock, remote) = pair(env)?;
    let sent = stat(env, "sink_advert_sent")?;
    let reading = receive_in_thread(&sock, 100_000, 0)?;
    eventually(
        "an advert",
        || Ok(stat(env, "sink_advert_sent")? - sent),
        |n| *n > 0,
    )?;
    remote.session().die()?;
    match joined(reading)? {
        Ok(got) => expect_eq(got.len(), 0, "received"),
        Err(e) => expect_errno::<()>(Err(e), ECONNRESET, "the receive"),
    }
}

/// A connection with one end in a child, which calls `work` with it.
fn with_child(
    env: &Env,
    work: impl FnOnce(&Sock) -> io::Result<()>,
) -> Result<(Arc<Sock>, i32), Fail> {
    let (one, other) = own_pair(env)?;
    match sys::fork()? {
        Fork::Child => {
            drop(one);
            let result = sys::die_with_parent().and_then(|()| work(&other));
            sys::exit_now(i32::from(result.is_err()))
        }
        Fork::Parent(pid) => Ok((one, pid)),
    }
}

/// A process that waits with an outstanding advert is killed. The peer learns of its end.
fn reader_is_killed(env: &Env) -> Outcome {
    for _ in 0..3 {
        let before = stat(env, "sink_advert_received")?;
        let (one, pid) = with_child(env, |sock| {
            let mut buf = vec![0xee; 100_000];
            sock.recv(&mut buf, MSG_WAITALL).map(drop)
        })?;
        advertised(env, before, 1)?;
        sys::kill(pid, libc::SIGKILL)?;
        expect_eq(
            sys::wait_child(pid, true)?,
            Ended::Signal(libc::SIGKILL),
            "the reader",
        )?;
        let result = eventually(
            "the end",
            || match send_once(&one, Span::new(1, 0, 100_000), 0, 0) {
                Ok(_) => Ok(0),
                Err(e) => Ok(e.raw_os_error().unwrap_or(-1)),
            },
            |errno| [ECONNRESET, EPIPE].contains(errno),
        );
        result?;
    }
    Ok(())
}

/// A process that writes to a reader's memory is killed at any time. The reader has received a part
/// of the sent bytes.
fn sender_is_killed(env: &Env) -> Outcome {
    let seed = env.seed;
    for round in 0..env.scaled(6) {
        let (one, pid) = with_child(env, |sock| {
            let mut offset = 0;
            loop {
                let n = send_once(sock, Span::new(seed, offset, 250_000), 0, 0)?;
                offset += n as u64;
            }
        })?;
        let mut buf = vec![0; 250_000];
        let mut done = 0;
        let start = Instant::now();
        let mut killed = false;
        loop {
            match one.recv(&mut buf, 0) {
                Ok(0) => break,
                Ok(n) => {
                    same(&buf[..n], Span::new(seed, done, n as u64), "received")?;
                    done += n as u64;
                }
                Err(e) => {
                    expect_errno::<()>(Err(e), ECONNRESET, "the receive")?;
                    break;
                }
            }
            if !killed && start.elapsed() > Duration::from_millis(40 + 7 * round) {
                sys::kill(pid, libc::SIGKILL)?;
                killed = true;
            }
        }
        sys::wait_child(pid, true)?;
        expect(done > 0, "nothing was received")?;
    }
    Ok(())
}
