// SPDX-License-Identifier: GPL-2.0
//! Urgent data: a byte of which the receiver is told before it reads it, and the mark that the byte
//! leaves in the stream.

mod ways;

use crate::support::flow::{spawn, Span};
use crate::support::harness::{
    eventually, expect, expect_eof, expect_eq, expect_errno, expect_errno_of, fill, joined,
    readable_bytes, receive, spawn_waiting, tests, Env, Fail, Outcome, QUIET_MS,
};
use crate::support::sys::{self, Ended, Epoll, Fork, Sock};
use libc::{
    EAGAIN, ECONNRESET, EINTR, EINVAL, ENOTCONN, EPIPE, EPOLLET, EPOLLPRI, IPPROTO_TCP,
    MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, POLLIN,
    POLLPRI, SHUT_RD, SHUT_WR, SIGURG, SOL_SOCKET, SO_OOBINLINE, SO_PEEK_OFF, SO_RCVBUF,
    SO_RCVLOWAT, SO_SNDBUF, TCP_CORK, TCP_NODELAY,
};
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use ways::{
    among_adverts, before_a_waiting_buffer, each_way_of_sending, into_waiting_buffers,
    some_behind_a_waiting_buffer, whole_streams_inline, whole_streams_out_of_line,
};

tests!("urgent";
    out_of_line,
    from_the_peer,
    none_there,
    looked_at,
    without_room,
    inline,
    inline_asked_for_later,
    inline_of_the_listener,
    skipped_unread,
    nothing_behind_it,
    nothing_before_it,
    earlier_is_ordinary,
    earlier_is_lost_at_the_mark,
    earlier_is_read_inline_at_the_mark,
    last_of_a_long_send,
    nothing_holds_it_back,
    no_room_to_send,
    waited_for_as_a_whole,
    ends_a_receive_that_waits,
    peeked_past,
    peek_offset_past,
    peeked_past_two,
    received_by_other_calls,
    shared_with_a_child,
    discarded_past,
    spliced_up_to,
    bytes_left,
    polled_for,
    not_readable_at_the_mark,
    least_bytes_at_the_mark,
    epoll_edges,
    signal,
    signal_at_the_mark,
    signal_while_nothing_is_read,
    shut_while_it_comes,
    behind_the_end,
    behind_a_reset,
    closed_unread,
    before_accept,
    forgotten_with_the_connection,
    both_ways_at_once,
    each_way_of_sending,
    before_a_waiting_buffer,
    into_waiting_buffers,
    some_behind_a_waiting_buffer,
    among_adverts,
    whole_streams_inline,
    whole_streams_out_of_line,
);

const SIOCATMARK: libc::c_ulong = 0x8905;

fn at_mark(sock: &Sock) -> io::Result<bool> {
    Ok(sock.ioctl_int(SIOCATMARK)? != 0)
}

/// Waits until the urgent byte has arrived.
#[track_caller]
fn comes(sock: &Sock) -> Outcome {
    eventually("POLLPRI", || sock.poll(POLLPRI, 0), |&e| e & POLLPRI != 0)
}

/// Waits until the next byte is the urgent one.
#[track_caller]
fn mark_comes(sock: &Sock) -> Outcome {
    eventually("the mark", || at_mark(sock), |&at| at)
}

#[track_caller]
fn readable(sock: &Sock, bytes: i32) -> Outcome {
    eventually("readable bytes", || readable_bytes(sock), |&n| n == bytes)
}

/// Reads the urgent byte out of line.
#[track_caller]
fn urgent_byte(sock: &Sock, flags: i32) -> Result<u8, Fail> {
    let mut bytes = [0xee; 2];
    expect_eq(sock.recv(&mut bytes, MSG_OOB | flags)?, 1, "MSG_OOB")?;
    expect_eq(bytes[1], 0xee, "the byte behind it")?;
    Ok(bytes[0])
}

/// The bytes of one receive into a larger buffer.
#[track_caller]
fn once(sock: &Sock, flags: i32) -> Result<Vec<u8>, Fail> {
    let mut buf = vec![0xee; 100];
    let n = sock.recv(&mut buf, flags | MSG_DONTWAIT)?;
    expect(
        buf[n..].iter().all(|b| *b == 0xee),
        "bytes behind those received",
    )?;
    buf.truncate(n);
    Ok(buf)
}

#[track_caller]
fn gets(sock: &Sock, want: &[u8], what: &str) -> Outcome {
    expect_eq(once(sock, 0)?, want.to_vec(), what)
}

fn urge(sock: &Sock, bytes: &[u8]) -> io::Result<()> {
    match sock.send(bytes, MSG_OOB | MSG_NOSIGNAL)? {
        n if n == bytes.len() => Ok(()),
        n => Err(io::Error::other(format!("{n} bytes sent with MSG_OOB"))),
    }
}

/// A connection within this process that sends all bytes at once.
fn pair(env: &Env) -> io::Result<(Sock, Sock)> {
    let (one, other) = env.own_pair()?;
    for sock in [&one, &other] {
        sock.set_int(IPPROTO_TCP, TCP_NODELAY, 1)?;
    }
    Ok((one, other))
}

/// A connection on which `abU` and `cd` were sent and have arrived. The urgent byte is U.
fn with_mark(env: &Env) -> Result<(Sock, Sock), Fail> {
    let (one, other) = pair(env)?;
    urge(&one, b"abU")?;
    comes(&other)?;
    one.send_all(b"cd")?;
    all_come(&other, 5)?;
    Ok((one, other))
}

/// Waits until `bytes` bytes have arrived, including the urgent byte.
#[track_caller]
fn all_come(sock: &Sock, bytes: i32) -> Outcome {
    sock.set_int(SOL_SOCKET, SO_OOBINLINE, 1)?;
    readable(sock, bytes)?;
    Ok(sock.set_int(SOL_SOCKET, SO_OOBINLINE, 0)?)
}

fn out_of_line(env: &Env) -> Outcome {
    let (one, other) = pair(env)?;
    one.send_all(b"ab")?;
    urge(&one, b"U")?;
    comes(&other)?;
    expect_eq(at_mark(&other)?, false, "at the mark")?;
    readable(&other, 2)?;
    expect_eq(urgent_byte(&other, 0)?, b'U', "the byte")?;
    expect_errno(other.recv(&mut [0], MSG_OOB), EINVAL, "again")?;
    expect_eq(other.poll(POLLPRI, 0)?, 0, "POLLPRI after it")?;
    one.send_all(b"cd")?;
    gets(&other, b"ab", "before the mark")?;
    expect_eq(at_mark(&other)?, true, "at the mark")?;
    expect_eq(readable_bytes(&other)?, 0, "readable at the mark")?;
    eventually("bytes", || other.poll(POLLIN, 0), |&e| e == POLLIN)?;
    gets(&other, b"cd", "behind the mark")?;
    expect_eq(at_mark(&other)?, false, "at the mark afterwards")?;
    expect_errno(other.recv(&mut [0], MSG_DONTWAIT), EAGAIN, "at the end")
}

fn from_the_peer(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    for round in 0..5 {
        let at = 7 * round;
        remote.send(Span::new(env.seed, at, 4), MSG_OOB)?;
        comes(&sock)?;
        remote.send(Span::new(env.seed, at + 4, 3), 0)?;
        let want = Span::new(env.seed, at, 4).to_vec();
        expect_eq(urgent_byte(&sock, 0)?, want[3], "the byte")?;
        gets(&sock, &want[..3], "before the mark")?;
        expect_eq(at_mark(&sock)?, true, "at the mark")?;
        receive(&sock, Span::new(env.seed, at + 4, 3))?;
    }
    Ok(())
}

fn none_there(env: &Env) -> Outcome {
    let (one, other) = pair(env)?;
    expect_errno(other.recv(&mut [0], MSG_OOB), EINVAL, "MSG_OOB")?;
    one.send_all(b"ab")?;
    readable(&other, 2)?;
    expect_errno(other.recv(&mut [0], MSG_OOB), EINVAL, "with data")?;
    expect_eq(at_mark(&other)?, false, "at the mark")?;
    // A send of no bytes makes no byte urgent.
    expect_eq(one.send(&[], MSG_OOB)?, 0, "no bytes")?;
    gets(&other, b"ab", "the data")?;
    expect_eq(other.poll(POLLPRI, QUIET_MS)?, 0, "POLLPRI")?;
    let new = env.socket()?;
    expect_errno(new.recv(&mut [0], MSG_OOB), EINVAL, "a new socket")?;
    expect_eq(at_mark(&new)?, false, "of a new socket")?;
    expect_errno(
        new.send(b"U", MSG_OOB | MSG_NOSIGNAL),
        EPIPE,
        "a new socket sends",
    )?;
    let (listener, _) = env.listener(1)?;
    expect_errno(listener.recv(&mut [0], MSG_OOB), ENOTCONN, "a listener")?;
    expect_eq(at_mark(&listener)?, false, "of a listener")
}

fn looked_at(env: &Env) -> Outcome {
    let (_one, other) = with_mark(env)?;
    for _ in 0..2 {
        expect_eq(urgent_byte(&other, MSG_PEEK)?, b'U', "a look")?;
        comes(&other)?;
    }
    let mut byte = [0xee];
    let n = other.recv(&mut byte, MSG_OOB | MSG_TRUNC | MSG_PEEK)?;
    expect_eq((n, byte[0]), (1, 0xee), "with MSG_TRUNC")?;
    expect_eq(urgent_byte(&other, MSG_WAITALL)?, b'U', "the byte")?;
    let looked = other.recv(&mut [0], MSG_OOB | MSG_PEEK);
    expect_errno(looked, EINVAL, "a look afterwards")
}

/// The flags of recvmsg() say that the byte was urgent, and that it did not fit.
fn without_room(env: &Env) -> Outcome {
    let (_one, other) = with_mark(env)?;
    let mut byte = [0xee];
    let got = other.recvmsg(&mut [IoSliceMut::new(&mut byte)], MSG_OOB | MSG_PEEK)?;
    expect_eq(got, (1, MSG_OOB), "with room")?;
    expect_eq(
        other.recvmsg(&mut [], MSG_OOB)?,
        (0, MSG_OOB | MSG_TRUNC),
        "without",
    )?;
    expect_errno(other.recv(&mut byte, MSG_OOB), EINVAL, "afterwards")?;
    let (_one, other) = with_mark(env)?;
    // SAFETY: nothing is mapped at 1, and so nothing is changed.
    let bad = unsafe { other.recv_raw(1, 1, MSG_OOB) };
    expect_errno(bad, libc::EFAULT, "bad memory")?;
    expect_errno(other.recv(&mut byte, MSG_OOB), EINVAL, "after that")
}

fn inline(env: &Env) -> Outcome {
    let (one, other) = pair(env)?;
    other.set_int(SOL_SOCKET, SO_OOBINLINE, 1)?;
    urge(&one, b"abU")?;
    comes(&other)?;
    one.send_all(b"cd")?;
    readable(&other, 5)?;
    expect_errno(other.recv(&mut [0], MSG_OOB), EINVAL, "MSG_OOB")?;
    gets(&other, b"ab", "before the mark")?;
    expect_eq(at_mark(&other)?, true, "at the mark")?;
    expect_eq(other.poll(POLLPRI | POLLIN, 0)?, POLLPRI | POLLIN, "poll")?;
    expect_eq(readable_bytes(&other)?, 3, "readable at the mark")?;
    gets(&other, b"Ucd", "from the mark on")?;
    expect_eq(at_mark(&other)?, false, "at the mark afterwards")?;
    expect_eq(other.poll(POLLPRI, 0)?, 0, "POLLPRI afterwards")
}

/// The value of the option at the time of the receive decides.
fn inline_asked_for_later(env: &Env) -> Outcome {
    let (_one, other) = with_mark(env)?;
    other.set_int(SOL_SOCKET, SO_OOBINLINE, 1)?;
    expect_errno(other.recv(&mut [0], MSG_OOB), EINVAL, "MSG_OOB")?;
    gets(&other, b"ab", "before the mark")?;
    expect_eq(at_mark(&other)?, true, "at the mark")?;
    other.set_int(SOL_SOCKET, SO_OOBINLINE, 0)?;
    expect_eq(urgent_byte(&other, 0)?, b'U', "the byte")?;
    other.set_int(SOL_SOCKET, SO_OOBINLINE, 1)?;
    gets(&other, b"Ucd", "from the mark on")
}

fn inline_of_the_listener(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(1)?;
    listener.set_int(SOL_SOCKET, SO_OOBINLINE, 1)?;
    let one = env.socket()?;
    one.connect(&addr)?;
    let (other, _) = listener.accept()?;
    expect_eq(other.get_int(SOL_SOCKET, SO_OOBINLINE)?, 1, "SO_OOBINLINE")?;
    urge(&one, b"U")?;
    comes(&other)?;
    gets(&other, b"U", "the byte")
}

/// A program that reads past the mark loses the urgent byte.
fn skipped_unread(env: &Env) -> Outcome {
    let (_one, other) = with_mark(env)?;
    gets(&other, b"ab", "before the mark")?;
    comes(&other)?;
    gets(&other, b"cd", "behind the mark")?;
    expect_eq(other.poll(POLLPRI, 0)?, 0, "POLLPRI")?;
    expect_errno(other.recv(&mut [0], MSG_OOB), EINVAL, "MSG_OOB")
}

/// A receive that finds only the urgent byte skips it, and returns no byte.
fn nothing_behind_it(env: &Env) -> Outcome {
    let (one, other) = pair(env)?;
    urge(&one, b"U")?;
    comes(&other)?;
    expect_eq(at_mark(&other)?, true, "at the mark")?;
    expect_eq(other.recv(&mut [], MSG_DONTWAIT)?, 0, "of no bytes")?;
    let looked = other.recv(&mut [0], MSG_PEEK | MSG_DONTWAIT);
    expect_errno(looked, EAGAIN, "a look")?;
    expect_eq(at_mark(&other)?, true, "at the mark after a look")?;
    expect_errno(other.recv(&mut [0], MSG_DONTWAIT), EAGAIN, "recv")?;
    expect_eq(at_mark(&other)?, false, "at the mark afterwards")?;
    expect_eq(other.poll(POLLPRI, 0)?, 0, "POLLPRI")?;
    expect_errno(other.recv(&mut [0], MSG_OOB), EINVAL, "MSG_OOB")?;
    one.send_all(b"cd")?;
    readable(&other, 2)?;
    gets(&other, b"cd", "what follows")
}

fn nothing_before_it(env: &Env) -> Outcome {
    let (one, other) = pair(env)?;
    for round in 0..20_u8 {
        urge(&one, &[round])?;
        comes(&other)?;
        expect_eq(at_mark(&other)?, true, "at the mark")?;
        expect_eq(urgent_byte(&other, 0)?, round, "the byte")?;
        expect_eq(at_mark(&other)?, true, "at the mark still")?;
        if round % 3 == 2 {
            one.send_all(b"x")?;
            eventually("bytes", || other.poll(POLLIN, 0), |&e| e == POLLIN)?;
            gets(&other, b"x", "between")?;
        }
    }
    Ok(())
}

/// There is one mark at a time: if another urgent byte comes before the program has reached the
/// mark, the earlier urgent byte is an ordinary byte.
fn earlier_is_ordinary(env: &Env) -> Outcome {
    let (one, other) = with_mark(env)?;
    urge(&one, b"V")?;
    // The mark moves when the new byte is announced, so there are five bytes before the mark.
    readable(&other, 5)?;
    comes(&other)?;
    expect_eq(urgent_byte(&other, 0)?, b'V', "the byte")?;
    gets(&other, b"abUcd", "before the mark")?;
    expect_eq(at_mark(&other)?, true, "at the mark")?;
    one.send_all(b"e")?;
    eventually("bytes", || other.poll(POLLIN, 0), |&e| e == POLLIN)?;
    gets(&other, b"e", "behind the mark")?;
    // The same holds if the earlier byte was read out of line.
    let (one, other) = with_mark(env)?;
    expect_eq(urgent_byte(&other, 0)?, b'U', "the byte")?;
    urge(&one, b"V")?;
    comes(&other)?;
    gets(&other, b"abUcd", "once more")
}

fn earlier_is_lost_at_the_mark(env: &Env) -> Outcome {
    for read in [false, true] {
        let (one, other) = with_mark(env)?;
        gets(&other, b"ab", "before the mark")?;
        if read {
            expect_eq(urgent_byte(&other, 0)?, b'U', "the byte")?;
        }
        urge(&one, b"eV")?;
        readable(&other, 3)?;
        comes(&other)?;
        expect_eq(at_mark(&other)?, false, "at the mark")?;
        expect_eq(urgent_byte(&other, 0)?, b'V', "the next byte")?;
        gets(&other, b"cde", "before the next mark")?;
    }
    Ok(())
}

fn earlier_is_read_inline_at_the_mark(env: &Env) -> Outcome {
    let (one, other) = with_mark(env)?;
    other.set_int(SOL_SOCKET, SO_OOBINLINE, 1)?;
    gets(&other, b"ab", "before the mark")?;
    urge(&one, b"eV")?;
    readable(&other, 5)?;
    eventually("another mark", || at_mark(&other), |&at| !at)?;
    gets(&other, b"Ucde", "before the next mark")?;
    gets(&other, b"V", "from it on")
}

/// The last byte of a send with MSG_OOB is urgent.
fn last_of_a_long_send(env: &Env) -> Outcome {
    for len in [1_000, 60_000, 300_000, 3_000_000] {
        let (one, other) = pair(env)?;
        let span = Span::new(env.seed, 0, len);
        let bytes = span.to_vec();
        let sending = spawn(move || -> io::Result<Sock> {
            let mut sent = 0;
            while sent < bytes.len() {
                sent += one.send(&bytes[sent..], MSG_OOB | MSG_NOSIGNAL)?;
            }
            Ok(one)
        })?;
        other.set_int(SOL_SOCKET, SO_OOBINLINE, 1)?;
        receive(
            &other,
            Span {
                len: len - 1,
                ..span
            },
        )?;
        let one = joined(sending)??;
        mark_comes(&other)?;
        one.send_all(b"x")?;
        eventually("bytes", || readable_bytes(&other), |&n| n == 2)?;
        let last = span.to_vec()[len as usize - 1];
        gets(&other, &[last, b'x'], "from the mark on")?;
    }
    Ok(())
}

/// Neither Nagle's algorithm nor a cork holds the urgent byte back.
fn nothing_holds_it_back(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    one.set_int(IPPROTO_TCP, TCP_CORK, 1)?;
    let mut slow = 0;
    for round in 0..20_u8 {
        let began = Instant::now();
        one.send_all(b"ab")?;
        expect_eq(one.send(&[round], MSG_OOB | MSG_MORE)?, 1, "send")?;
        comes(&other)?;
        expect_eq(urgent_byte(&other, 0)?, round, "the byte")?;
        gets(&other, b"ab", "before the mark")?;
        slow += u32::from(began.elapsed() >= Duration::from_millis(150));
    }
    // A cork would hold the bytes of each round back for 200 ms.
    expect(slow < 20, "each of the bytes was held back")
}

/// A byte for which a send had no room is not urgent.
fn no_room_to_send(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    let sent = fill(&one, env.seed)?;
    let refused = one.send(b"U", MSG_OOB | MSG_DONTWAIT | MSG_NOSIGNAL);
    // The send may get the last room of the buffer.
    let taken = matches!(refused, Ok(1));
    if !taken {
        expect_errno(refused, EAGAIN, "without room")?;
        expect_eq(other.poll(POLLPRI, QUIET_MS)?, 0, "POLLPRI")?;
    }
    let span = Span::new(env.seed, 0, sent);
    receive(&other, span)?;
    if !taken {
        urge(&one, b"U")?;
    }
    comes(&other)?;
    expect_eq(urgent_byte(&other, 0)?, b'U', "the byte")
}

fn waited_for_as_a_whole(env: &Env) -> Outcome {
    let (_one, other) = with_mark(env)?;
    let mut buf = [0; 100];
    expect_eq(other.recv(&mut buf, MSG_WAITALL)?, 2, "up to the mark")?;
    expect_eq(&buf[..2], b"ab", "bytes")?;
    let mut buf = [0; 2];
    expect_eq(other.recv(&mut buf, MSG_WAITALL)?, 2, "behind it")?;
    expect_eq(&buf, b"cd", "bytes behind it")
}

/// The urgent byte ends a receive that waits already and has some bytes; a receive that has none
/// goes past the mark.
fn ends_a_receive_that_waits(env: &Env) -> Outcome {
    let (one, other) = pair(env)?;
    let other = Arc::new(other);
    let waiting = |flags| {
        let sock = Arc::clone(&other);
        spawn_waiting(move || -> io::Result<Vec<u8>> {
            let mut buf = vec![0xee; 100];
            let n = sock.recv(&mut buf, flags)?;
            buf.truncate(n);
            Ok(buf)
        })
    };
    let reader = waiting(MSG_WAITALL)?;
    one.send_all(b"ab")?;
    readable(&other, 0)?;
    urge(&one, b"U")?;
    expect_eq(joined(reader)??, b"ab".to_vec(), "what it had")?;
    mark_comes(&other)?;
    one.send_all(b"c")?;
    eventually("bytes", || other.poll(POLLIN, 0), |&e| e == POLLIN)?;
    gets(&other, b"c", "behind the mark")?;
    // A receive that has no bytes goes past the mark.
    let reader = waiting(0)?;
    urge(&one, b"V")?;
    one.send_all(b"d")?;
    expect_eq(joined(reader)??, b"d".to_vec(), "behind it")
}

fn peeked_past(env: &Env) -> Outcome {
    let (_one, other) = with_mark(env)?;
    for _ in 0..2 {
        expect_eq(once(&other, MSG_PEEK)?, b"ab".to_vec(), "a look")?;
    }
    gets(&other, b"ab", "before the mark")?;
    for _ in 0..2 {
        expect_eq(once(&other, MSG_PEEK)?, b"cd".to_vec(), "a look there")?;
        expect_eq(at_mark(&other)?, true, "at the mark")?;
        comes(&other)?;
    }
    gets(&other, b"cd", "behind the mark")
}

/// The offset counts the urgent byte as a byte of the stream. But a peek that skips the byte adds
/// only the bytes that it returns, so the next peek returns the last of them again.
fn peek_offset_past(env: &Env) -> Outcome {
    let (one, other) = with_mark(env)?;
    one.send_all(b"efgh")?;
    all_come(&other, 9)?;
    other.set_int(SOL_SOCKET, SO_PEEK_OFF, 0)?;
    let looks: [&[u8]; 3] = [b"ab", b"cdefgh", b"h"];
    for want in looks {
        expect_eq(once(&other, MSG_PEEK)?, want.to_vec(), "a look")?;
    }
    other.set_int(SOL_SOCKET, SO_PEEK_OFF, 3)?;
    expect_eq(once(&other, MSG_PEEK)?, b"cdefgh".to_vec(), "from 3 on")?;
    other.set_int(SOL_SOCKET, SO_PEEK_OFF, 1)?;
    expect_eq(once(&other, MSG_PEEK)?, b"b".to_vec(), "from 1 on")?;
    gets(&other, b"ab", "before the mark")?;
    gets(&other, b"cdefgh", "behind the mark")
}

/// While a peek waits behind an urgent byte, another urgent byte follows.
fn peeked_past_two(env: &Env) -> Outcome {
    for offset in [0, 1] {
        let (one, other) = pair(env)?;
        other.set_int(SOL_SOCKET, SO_PEEK_OFF, offset)?;
        let sock = other.dup()?;
        let looking = spawn_waiting(move || -> io::Result<Vec<u8>> {
            let mut buf = vec![0xee; 10];
            let n = sock.recv(&mut buf, MSG_PEEK)?;
            buf.truncate(n);
            Ok(buf)
        })?;
        urge(&one, &b"aU"[1 - offset as usize..])?;
        for _ in 0..2 {
            comes(&other)?;
            std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
            urge(&one, b"V")?;
        }
        std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
        expect(!looking.is_finished(), "urgent bytes have ended a look")?;
        one.send_all(b"c")?;
        expect_eq(joined(looking)??, b"c".to_vec(), "behind them")?;
    }
    Ok(())
}

/// recvmmsg() continues behind a mark, but ends after a byte that it has read out of line. io_uring
/// can read the byte, too.
fn received_by_other_calls(env: &Env) -> Outcome {
    let (_one, other) = with_mark(env)?;
    let mut buf = [0xee; 12];
    {
        let mut parts: Vec<&mut [u8]> = buf.chunks_mut(4).collect();
        expect_eq(other.recvmmsg(&mut parts, MSG_OOB)?, vec![1], "MSG_OOB")?;
        expect_eq(other.recvmmsg(&mut parts[1..], 0)?, vec![2, 2], "in line")?;
    }
    expect_eq(&buf, b"U\xee\xee\xeeab\xee\xeecd\xee\xee", "bytes")?;
    let (_one, other) = with_mark(env)?;
    let mut byte = [0xee];
    match sys::uring_recv(other.as_raw_fd(), &mut byte, MSG_OOB) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {}
        result => {
            expect_eq((result?, byte), (1, *b"U"), "by io_uring")?;
            let again = sys::uring_recv(other.as_raw_fd(), &mut byte, MSG_OOB);
            expect_errno(again, EINVAL, "again")?;
        }
    }
    gets(&other, b"ab", "before the mark")
}

/// All processes that have the socket share one mark and one urgent byte.
fn shared_with_a_child(env: &Env) -> Outcome {
    let (_one, other) = with_mark(env)?;
    let pid = match sys::fork()? {
        Fork::Child => {
            let byte = urgent_byte(&other, 0).is_ok_and(|byte| byte == b'U');
            let before = once(&other, 0).is_ok_and(|bytes| bytes == b"ab");
            sys::exit_now(i32::from(!byte || !before))
        }
        Fork::Parent(pid) => pid,
    };
    expect_eq(sys::wait_child(pid, true)?, Ended::Exit(0), "the child")?;
    expect_errno(other.recv(&mut [0], MSG_OOB), EINVAL, "MSG_OOB")?;
    expect_eq(other.poll(POLLPRI, 0)?, 0, "POLLPRI")?;
    expect_eq(at_mark(&other)?, true, "at the mark")?;
    gets(&other, b"cd", "behind the mark")
}

fn discarded_past(env: &Env) -> Outcome {
    let (_one, other) = with_mark(env)?;
    // SAFETY: the kernel writes nothing with MSG_TRUNC; there is nothing at 0.
    let n = unsafe { other.recv_raw(0, 4000, MSG_TRUNC) }?;
    expect_eq(n, 2, "before the mark")?;
    // SAFETY: as above.
    let n = unsafe { other.recv_raw(0, 4000, MSG_TRUNC) }?;
    expect_eq(n, 2, "behind the mark")?;
    expect_errno(other.recv(&mut [0], MSG_OOB), EINVAL, "MSG_OOB")
}

/// splice() that begins at the mark takes nothing, as if it had found the end of the stream.
fn spliced_up_to(env: &Env) -> Outcome {
    let (_one, other) = with_mark(env)?;
    let (reader, writer) = sys::pipe()?;
    let splice = || sys::splice(other.as_raw_fd(), writer.as_raw_fd(), 100);
    expect_eq(splice()?, 2, "before the mark")?;
    expect_eq(splice()?, 0, "at the mark")?;
    other.set_nonblocking(true)?;
    expect_errno(splice(), EAGAIN, "without a wait")?;
    other.set_nonblocking(false)?;
    gets(&other, b"cd", "behind the mark")?;
    let mut buf = [0; 10];
    expect_eq(sys::read(reader.as_raw_fd(), &mut buf)?, 2, "in the pipe")?;
    expect_eq(&buf[..2], b"ab", "the bytes")
}

/// TCP_INQ counts the urgent byte, because it is in the stream.
fn bytes_left(env: &Env) -> Outcome {
    const TCP_INQ: i32 = 36;
    let (_one, other) = with_mark(env)?;
    other.set_int(IPPROTO_TCP, TCP_INQ, 1)?;
    let left = |flags: i32| -> io::Result<(usize, u64)> {
        let mut control = [0_u64; 8];
        let (n, _, _) = other.recvmsg_with(&mut [0; 1], &mut control, flags)?;
        Ok((n, control[2]))
    };
    expect_eq(left(MSG_OOB)?, (1, 5), "out of line")?;
    expect_eq(left(0)?, (1, 4), "the first")?;
    expect_eq(left(0)?, (1, 3), "the second")?;
    expect_eq(left(0)?, (1, 1), "that behind the mark")
}

fn polled_for(env: &Env) -> Outcome {
    let (one, other) = pair(env)?;
    let other = Arc::new(other);
    let sock = Arc::clone(&other);
    let polling = spawn_waiting(move || sock.poll(POLLPRI, 30_000))?;
    one.send_all(b"ab")?;
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    expect(!polling.is_finished(), "ordinary bytes have woken it")?;
    urge(&one, b"U")?;
    expect_eq(joined(polling)??, POLLPRI, "POLLPRI")?;
    expect_eq(urgent_byte(&other, 0)?, b'U', "the byte")?;
    expect_eq(other.poll(POLLPRI, 0)?, 0, "after it")
}

/// A socket is not readable if there is only the urgent byte.
fn not_readable_at_the_mark(env: &Env) -> Outcome {
    let (one, other) = pair(env)?;
    urge(&one, b"U")?;
    comes(&other)?;
    let both = POLLIN | POLLPRI;
    expect_eq(other.poll(both, 0)?, POLLPRI, "the byte alone")?;
    expect_eq(urgent_byte(&other, 0)?, b'U', "the byte")?;
    expect_eq(other.poll(both, QUIET_MS)?, 0, "when it was read")?;
    other.set_int(SOL_SOCKET, SO_OOBINLINE, 1)?;
    expect_eq(other.poll(both, 0)?, POLLIN, "inline")?;
    other.set_int(SOL_SOCKET, SO_OOBINLINE, 0)?;
    one.send_all(b"c")?;
    eventually("bytes", || other.poll(both, 0), |&e| e == POLLIN)
}

/// SO_RCVLOWAT does not count the urgent byte.
fn least_bytes_at_the_mark(env: &Env) -> Outcome {
    let (_one, other) = with_mark(env)?;
    gets(&other, b"ab", "before the mark")?;
    urgent_byte(&other, 0)?;
    for (least, want) in [(3, 0), (2, POLLIN), (1, POLLIN)] {
        other.set_int(SOL_SOCKET, SO_RCVLOWAT, least)?;
        expect_eq(other.poll(POLLIN, 0)?, want, format!("{least} bytes"))?;
    }
    Ok(())
}

fn epoll_edges(env: &Env) -> Outcome {
    let (one, other) = pair(env)?;
    let epoll = Epoll::new()?;
    epoll.add(other.as_raw_fd(), EPOLLPRI | EPOLLET, 7)?;
    one.send_all(b"ab")?;
    expect_eq(epoll.wait(QUIET_MS)?, vec![], "ordinary bytes")?;
    for round in 0..5_u8 {
        urge(&one, &[b'c', round])?;
        expect_eq(epoll.wait(-1)?, vec![(7, EPOLLPRI)], "an edge")?;
        expect_eq(epoll.wait(0)?, vec![], "the same edge")?;
        if round % 2 == 1 {
            expect_eq(urgent_byte(&other, 0)?, round, "the byte")?;
        }
    }
    epoll.modify(other.as_raw_fd(), EPOLLPRI, 8)?;
    for _ in 0..2 {
        expect_eq(epoll.wait(0)?, vec![(8, EPOLLPRI)], "the level")?;
    }
    expect_eq(urgent_byte(&other, 0)?, 4, "the last byte")?;
    expect_eq(epoll.wait(0)?, vec![], "after it")
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::SeqCst);
}

fn signals() -> io::Result<u32> {
    Ok(SIGNALS.load(Ordering::SeqCst))
}

fn count_signals(restart: bool) -> io::Result<()> {
    SIGNALS.store(0, Ordering::SeqCst);
    sys::install_handler(SIGURG, count, restart)
}

fn signal(env: &Env) -> Outcome {
    count_signals(true)?;
    let (one, other) = pair(env)?;
    urge(&one, b"U")?;
    comes(&other)?;
    expect_eq(signals()?, 0, "for nobody")?;
    other.set_owner(sys::pid())?;
    for round in 1..=5 {
        one.send_all(b"a")?;
        let byte = round as u8;
        urge(&one, &[byte])?;
        // An urgent byte that still waits to be sent when the next one is sent may cause no signal
        // of its own.
        let peeked = || {
            let mut there = [0];
            let got = other.recv(&mut there, MSG_OOB | MSG_PEEK);
            Ok(got.map_or(0, |_| there[0]))
        };
        eventually("the byte", peeked, |&b| b == byte)?;
        eventually("SIGURG", signals, |&n| n == round)?;
        if round % 2 == 0 {
            urgent_byte(&other, 0)?;
        }
    }
    Ok(())
}

/// A receive that has come to the mark without bytes does not go past the mark if a signal is
/// pending.
fn signal_at_the_mark(env: &Env) -> Outcome {
    count_signals(false)?;
    let (one, other) = pair(env)?;
    other.set_owner(sys::pid())?;
    for flags in [0, MSG_PEEK, MSG_WAITALL] {
        let before = signals()?;
        let sock = other.dup()?;
        // The thread that receives must get the signal, so the other thread blocks it.
        let sending = {
            let one = one.dup()?;
            let main = sys::thread_id();
            spawn(move || -> io::Result<()> {
                sys::block_signal(SIGURG)?;
                while !sys::is_asleep(main) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                urge(&one, b"U")
            })?
        };
        expect_errno(sock.recv(&mut [0; 10], flags), EINTR, "recv")?;
        joined(sending)??;
        eventually("SIGURG", signals, |&n| n == before + 1)?;
        mark_comes(&other)?;
        expect_eq(urgent_byte(&other, 0)?, b'U', "the byte")?;
    }
    Ok(())
}

/// The program gets the signal although there is no room for the urgent byte, and finds the mark
/// behind the waiting bytes.
fn signal_while_nothing_is_read(env: &Env) -> Outcome {
    count_signals(true)?;
    for (behind, inline) in [(0, false), (3, false), (0, true)] {
        let before = signals()?;
        let (listener, addr) = env.listener(1)?;
        listener.set_int(SOL_SOCKET, SO_RCVBUF, 4096)?;
        let one = env.socket()?;
        one.set_int(SOL_SOCKET, SO_SNDBUF, 200_000)?;
        one.set_int(IPPROTO_TCP, TCP_NODELAY, 1)?;
        one.connect(&addr)?;
        let (other, _) = listener.accept()?;
        other.set_owner(sys::pid())?;
        other.set_int(SOL_SOCKET, SO_OOBINLINE, inline.into())?;
        // More bytes than the receive buffer holds, but fewer than the 64 KiB by which TCP can
        // announce the urgent byte ahead.
        let span = Span::new(env.seed, 0, 60_000);
        for part in span.to_vec().chunks(1000) {
            one.send_all(part)?;
        }
        urge(&one, b"U")?;
        eventually("SIGURG", signals, |&n| n > before)?;
        expect_eq(other.poll(POLLPRI, 0)?, 0, "POLLPRI")?;
        let early = other.recv(&mut [0], MSG_OOB);
        expect_errno(early, if inline { EINVAL } else { EAGAIN }, "MSG_OOB")?;
        one.send_all(&b"xyz"[..behind])?;
        // A receive that goes past the mark returns more bytes.
        let mut got = Vec::new();
        while (got.len() as u64) < span.len {
            let mut buf = vec![0; 3000];
            let n = other.recv(&mut buf, 0)?;
            expect(n > 0, "an early end of file")?;
            got.extend_from_slice(&buf[..n]);
        }
        expect_eq(got.len() as u64, span.len, "bytes before the mark")?;
        expect(got == span.to_vec(), "they are others")?;
        mark_comes(&other)?;
        comes(&other)?;
        one.shutdown(SHUT_WR)?;
        let mut rest = b"xyz"[..behind].to_vec();
        if inline {
            rest.insert(0, b'U');
        } else {
            expect_eq(urgent_byte(&other, 0)?, b'U', "the byte")?;
        }
        let mut buf = [0; 10];
        let n = other.recv(&mut buf, MSG_WAITALL)?;
        expect_eq(buf[..n].to_vec(), rest, "from the mark on")?;
        expect_eof(&other)?;
    }
    Ok(())
}

/// After SHUT_RD a receive with MSG_OOB returns neither an error nor the byte.
fn shut_while_it_comes(env: &Env) -> Outcome {
    count_signals(true)?;
    let (listener, addr) = env.listener(1)?;
    listener.set_int(SOL_SOCKET, SO_RCVBUF, 4096)?;
    let one = env.socket()?;
    one.set_int(SOL_SOCKET, SO_SNDBUF, 200_000)?;
    one.connect(&addr)?;
    let (other, _) = listener.accept()?;
    other.set_owner(sys::pid())?;
    for part in Span::new(env.seed, 0, 60_000).to_vec().chunks(1000) {
        one.send_all(part)?;
    }
    urge(&one, b"U")?;
    eventually("SIGURG", signals, |&n| n > 0)?;
    expect_errno(other.recv(&mut [0], MSG_OOB), EAGAIN, "MSG_OOB")?;
    other.shutdown(SHUT_RD)?;
    expect_eq(other.recv(&mut [0], MSG_OOB)?, 0, "MSG_OOB afterwards")?;
    expect_eq(at_mark(&other)?, false, "at the mark")?;
    other.set_int(SOL_SOCKET, SO_OOBINLINE, 1)?;
    expect_errno(other.recv(&mut [0], MSG_OOB), EINVAL, "inline")
}

fn behind_the_end(env: &Env) -> Outcome {
    let (one, other) = with_mark(env)?;
    one.shutdown(SHUT_WR)?;
    let end = libc::POLLRDHUP;
    eventually("the end", || other.poll(end, 0), |&e| e == end)?;
    comes(&other)?;
    expect_eq(urgent_byte(&other, 0)?, b'U', "the byte")?;
    gets(&other, b"ab", "before the mark")?;
    gets(&other, b"cd", "behind the mark")?;
    expect_eof(&other)?;
    expect_errno(other.recv(&mut [0], MSG_OOB), EINVAL, "MSG_OOB")?;
    // The same with nothing behind the byte, and with the end of both directions.
    let (one, other) = pair(env)?;
    urge(&one, b"U")?;
    comes(&other)?;
    other.shutdown(SHUT_WR)?;
    one.shutdown(SHUT_WR)?;
    let both = end | libc::POLLHUP;
    eventually("the end", || other.poll(end, 0), |&e| e == both)?;
    expect_eq(at_mark(&other)?, true, "at the mark")?;
    expect_eq(urgent_byte(&other, 0)?, b'U', "the byte")?;
    expect_eof(&other)
}

fn behind_a_reset(env: &Env) -> Outcome {
    let (one, other) = with_mark(env)?;
    one.reset()?;
    let ended = libc::POLLHUP;
    eventually("a reset", || other.poll(0, 0), |&e| e & ended != 0)?;
    expect_errno(other.recv(&mut [0], MSG_OOB), ENOTCONN, "MSG_OOB")?;
    comes(&other)
}

/// An urgent byte that is still in the stream counts as unread, even if it was read out of line.
fn closed_unread(env: &Env) -> Outcome {
    for read in [false, true] {
        let (one, other) = pair(env)?;
        urge(&one, b"U")?;
        comes(&other)?;
        if read {
            urgent_byte(&other, 0)?;
        }
        other.close()?;
        let ended = libc::POLLHUP;
        eventually("a reset", || one.poll(0, 0), |&e| e & ended != 0)?;
        expect_errno_of(one.recv(&mut [0], 0), &[ECONNRESET], "the sender")?;
    }
    Ok(())
}

fn before_accept(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(1)?;
    let one = env.socket()?;
    one.connect(&addr)?;
    urge(&one, b"abU")?;
    one.send_all(b"cd")?;
    let (other, _) = listener.accept()?;
    comes(&other)?;
    expect_eq(urgent_byte(&other, 0)?, b'U', "the byte")?;
    gets(&other, b"ab", "before the mark")?;
    expect_eq(at_mark(&other)?, true, "at the mark")?;
    receive_exact(&other, b"cd")
}

#[track_caller]
fn receive_exact(sock: &Sock, want: &[u8]) -> Outcome {
    let mut buf = vec![0; want.len()];
    sock.recv_exact(&mut buf)?;
    expect_eq(buf, want.to_vec(), "bytes")
}

fn forgotten_with_the_connection(env: &Env) -> Outcome {
    let unspec = env.here(0).with_family(libc::AF_UNSPEC);
    let (listener, addr) = env.listener(1)?;
    let sock = env.socket()?;
    for round in 0..3 {
        sock.connect(&addr)?;
        let (other, _) = listener.accept()?;
        expect_eq(sock.poll(POLLPRI, 0)?, 0, "POLLPRI at first")?;
        expect_errno(sock.recv(&mut [0], MSG_OOB), EINVAL, "MSG_OOB")?;
        urge(&other, if round == 1 { b"abU" } else { b"U" })?;
        comes(&sock)?;
        sock.connect(&unspec)?;
        expect_eq(at_mark(&sock)?, false, "at the mark")?;
        expect_eq(sock.poll(POLLPRI, 0)? & POLLPRI, 0, "POLLPRI")?;
        expect_errno(sock.recv(&mut [0], MSG_OOB), EINVAL, "MSG_OOB in the end")?;
    }
    Ok(())
}

fn both_ways_at_once(env: &Env) -> Outcome {
    let (one, other) = pair(env)?;
    for round in 0..50_u8 {
        for sock in [&one, &other] {
            sock.send_all(b"ab")?;
            urge(sock, &[round])?;
            sock.send_all(b"cd")?;
        }
        for sock in [&one, &other] {
            comes(sock)?;
            expect_eq(urgent_byte(sock, 0)?, round, "the byte")?;
            receive_exact(sock, b"ab")?;
            expect_eq(at_mark(sock)?, true, "at the mark")?;
            receive_exact(sock, b"cd")?;
        }
    }
    Ok(())
}
