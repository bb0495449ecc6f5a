// SPDX-License-Identifier: GPL-2.0
//! Timestamps of received bytes: SO_TIMESTAMP, SO_TIMESTAMPNS and SO_TIMESTAMPING.

use crate::support::flow::spawn;
use crate::support::harness::{
    eventually, expect, expect_eq, joined, spawn_waiting, tests, Env, Fail, Family, Outcome,
};
use crate::support::sys::Sock;
use libc::SOL_SOCKET;
use std::io;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

tests!("timestamps";
    of_every_option,
    of_flags_that_give_none,
    of_bytes_before_the_option,
    of_each_message,
    when_peeked,
    of_long_receives,
    of_many_messages,
    of_two_readers,
    of_accepted_sockets,
    of_the_urgent_byte,
    without_room,
);

const SECOND_NS: u64 = 1_000_000_000;
/// include/uapi/asm-generic/socket.h.
pub(crate) const SO_TIMESTAMP_NEW: i32 = 63;
pub(crate) const SO_TIMESTAMPNS_NEW: i32 = 64;
pub(crate) const SO_TIMESTAMPING_NEW: i32 = 65;
/// The kernel records times, and receives report them.
pub(crate) const SOFTWARE: i32 =
    (libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE) as i32;

/// The options, the values that turn timestamps on, the length of a timestamp, and nanoseconds for
/// each unit of its second number.
const OPTIONS: [(i32, i32, usize, u64); 6] = [
    (libc::SO_TIMESTAMP, 1, 16, 1000),
    (libc::SO_TIMESTAMPNS, 1, 16, 1),
    (libc::SO_TIMESTAMPING, SOFTWARE, 48, 1),
    (SO_TIMESTAMP_NEW, 1, 16, 1000),
    (SO_TIMESTAMPNS_NEW, 1, 16, 1),
    (SO_TIMESTAMPING_NEW, SOFTWARE, 48, 1),
];

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos() as u64)
}

/// What a receive has told about time: the type of the control message, its length without the
/// header, and the first two numbers of its data.
struct Told {
    kind: i32,
    len: usize,
    numbers: [u64; 2],
}

impl Told {
    /// The time that SO_TIMESTAMPNS has told.
    fn ns(&self) -> u64 {
        let [seconds, ns] = self.numbers;
        seconds * SECOND_NS + ns
    }
}

/// Receives at most `buf.len()` bytes; returns their number, and what the only control message has
/// told.
fn receive(sock: &Sock, buf: &mut [u8], flags: i32) -> Result<(usize, Option<Told>), Fail> {
    let mut control = [0; 20];
    let (n, len, _) = sock.recvmsg_with(buf, &mut control, flags)?;
    if len == 0 {
        return Ok((n, None));
    }
    // A cmsghdr consists of its length, the level and the type.
    let [cmsg_len, level_and_type, first, second, ..] = control;
    expect_eq(level_and_type as i32, SOL_SOCKET, "level")?;
    expect_eq(len, cmsg_len as usize, "one control message")?;
    let told = Told {
        kind: (level_and_type >> 32) as i32,
        len: len - 16,
        numbers: [first, second],
    };
    Ok((n, Some(told)))
}

/// Receives exactly `buf.len()` bytes of a socket with SO_TIMESTAMPNS; returns their time.
#[track_caller]
fn time_of(sock: &Sock, buf: &mut [u8], flags: i32) -> Result<u64, Fail> {
    let (n, told) = receive(sock, buf, flags)?;
    expect_eq(n, buf.len(), "bytes")?;
    let told = told.ok_or_else(|| io::Error::other(format!("no time of {n} bytes")))?;
    Ok(told.ns())
}

/// Waits until `bytes` bytes have arrived.
fn arrived(sock: &Sock, bytes: usize) -> Outcome {
    let mut buf = vec![0; bytes];
    let peek = || match sock.recv(&mut buf, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
        Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => Ok(0),
        other => other,
    };
    eventually("bytes", peek, |n| *n == bytes)
}

/// A pair whose first socket sends each message at once, and whose second socket has timestamps.
fn stamped_pair(env: &Env) -> Result<(Sock, Sock), Fail> {
    let (sock, other) = env.own_pair()?;
    sock.set_int(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    other.set_int(SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
    begun(env, &sock, &other)?;
    Ok((sock, other))
}

/// Waits until messages have timestamps: the kernel may begin to stamp TCP's packets only after a
/// moment.
fn begun(env: &Env, sock: &Sock, other: &Sock) -> Outcome {
    for tries in 1.. {
        sock.send(b"x", 0)?;
        if receive(other, &mut [0], 0)?.1.is_some() {
            break;
        }
        expect(
            env.family == Family::Tcp && tries < 1000,
            format!("message {tries} has no timestamp"),
        )?;
        sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn of_every_option(env: &Env) -> Outcome {
    for (option, value, len, unit_ns) in OPTIONS {
        let (sock, other) = env.own_pair()?;
        other.set_int(SOL_SOCKET, option, value)?;
        begun(env, &sock, &other)?;
        // A timestamp in microseconds is rounded down.
        let before = now_ns() / 1000 * 1000;
        sock.send(b"first", 0)?;
        let (n, told) = receive(&other, &mut [0; 100], 0)?;
        let after = now_ns();
        expect_eq(n, 5, "bytes")?;
        let what = format!("option {option}");
        let told = told.ok_or_else(|| io::Error::other(what.clone()))?;
        expect_eq((told.kind, told.len), (option, len), &what)?;
        let [seconds, rest] = told.numbers;
        let at = seconds * SECOND_NS + rest * unit_ns;
        expect(
            (before..=after).contains(&at),
            format!("{what}: {before} <= {at} <= {after}"),
        )?;
        other.set_int(SOL_SOCKET, option, 0)?;
        sock.send(b"second", 0)?;
        let (n, told) = receive(&other, &mut [0; 100], 0)?;
        expect_eq((n, told.is_none()), (6, true), format!("{what} turned off"))?;
    }
    Ok(())
}

/// SO_TIMESTAMPING with flags for timestamps of hardware, or without one of the two for software.
fn of_flags_that_give_none(env: &Env) -> Outcome {
    let mut flags = vec![
        libc::SOF_TIMESTAMPING_RX_SOFTWARE,
        libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE,
    ];
    if env.family == Family::Sdp {
        // With TCP, another socket may make the kernel record times.
        flags.push(libc::SOF_TIMESTAMPING_SOFTWARE);
    }
    for flags in flags {
        let (sock, other) = env.own_pair()?;
        other.set_int(SOL_SOCKET, libc::SO_TIMESTAMPING, flags as i32)?;
        sock.send(b"bytes", 0)?;
        let (n, told) = receive(&other, &mut [0; 100], 0)?;
        expect_eq((n, told.is_none()), (5, true), format!("flags {flags:#x}"))?;
    }
    Ok(())
}

/// Bytes that arrived before the option was set have no timestamp, unless another socket makes the
/// kernel stamp the packets of TCP.
fn of_bytes_before_the_option(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    sock.send(b"before", 0)?;
    arrived(&other, 6)?;
    other.set_int(SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
    let (n, told) = receive(&other, &mut [0; 6], 0)?;
    expect_eq(n, 6, "bytes")?;
    expect(
        env.family == Family::Tcp || told.is_none(),
        "a time that nobody has recorded",
    )?;
    begun(env, &sock, &other)
}

/// Bytes of a message that SDP does not merge with the one before it, as it does with shorter ones.
const ALONE: usize = 2000;

/// A receive has the time of its last byte, however long the bytes wait. TCP may merge packets
/// that wait: the time is then that of the later one.
fn of_each_message(env: &Env) -> Outcome {
    let (sock, other) = stamped_pair(env)?;
    let mut sent = Vec::new();
    for i in 1..=3 {
        sent.push(now_ns());
        sock.send(&[1; ALONE], 0)?;
        arrived(&other, i * ALONE)?;
    }
    let end = now_ns();
    sent.push(end);
    let mut last = 0;
    for (i, times) in sent.windows(2).enumerate() {
        // Two receives for each message.
        for _ in 0..2 {
            let at = time_of(&other, &mut [0; ALONE / 2], 0)?;
            let latest = match env.family {
                Family::Sdp => times[1],
                Family::Tcp => end,
            };
            expect(
                (times[0]..=latest).contains(&at) && at >= last,
                format!(
                    "message {i}: {} <= {at} <= {latest}, after {last}",
                    times[0]
                ),
            )?;
            last = at;
        }
    }
    // One receive of two messages, and one that takes no bytes.
    sock.send(&[1; ALONE], 0)?;
    arrived(&other, ALONE)?;
    let between = now_ns();
    sock.send(&[1; ALONE], 0)?;
    arrived(&other, 2 * ALONE)?;
    let at = time_of(&other, &mut [], 0)?;
    expect(
        at >= last && (env.family == Family::Tcp || at <= between),
        "a receive of no bytes",
    )?;
    let at = time_of(&other, &mut [0; 2 * ALONE], 0)?;
    expect(at >= between, "a receive of two messages")
}

fn when_peeked(env: &Env) -> Outcome {
    let (sock, other) = stamped_pair(env)?;
    let before = now_ns();
    sock.send(&[1; ALONE], 0)?;
    let peeked = time_of(&other, &mut [0; ALONE], libc::MSG_PEEK | libc::MSG_WAITALL)?;
    let after = now_ns();
    expect((before..=after).contains(&peeked), "another time")?;
    // A peek that begins behind the first message has the time of the second one.
    sock.send(&[1; ALONE], 0)?;
    arrived(&other, 2 * ALONE)?;
    other.set_int(SOL_SOCKET, libc::SO_PEEK_OFF, ALONE as i32)?;
    let second = time_of(&other, &mut [0; ALONE / 2], libc::MSG_PEEK)?;
    expect(second >= after, "a peek of the second message")?;
    other.set_int(SOL_SOCKET, libc::SO_PEEK_OFF, -1)?;
    let received = time_of(&other, &mut [0; ALONE], 0)?;
    match env.family {
        Family::Sdp => expect_eq(received, peeked, "received")?,
        Family::Tcp => expect(received >= peeked, "received")?,
    }
    expect_eq(
        time_of(&other, &mut [0; ALONE / 2], 0)?,
        second,
        "the second",
    )
}

/// Receives that get their bytes without a copy, or of several messages, have a time, too.
fn of_long_receives(env: &Env) -> Outcome {
    const LEN: usize = 1 << 20;
    let (sock, other) = stamped_pair(env)?;
    let sender = spawn(move || -> io::Result<Sock> {
        let data = vec![7; LEN];
        for _ in 0..8 {
            let mut sent = 0;
            while sent < LEN {
                sent += sock.send(&data[sent..], 0)?;
            }
        }
        Ok(sock)
    })?;
    let mut buf = vec![0; LEN];
    let (mut got, mut last) = (0, 0);
    while got < 8 * LEN {
        let (n, told) = receive(&other, &mut buf, 0)?;
        expect(n > 0, "the end")?;
        got += n;
        let told = told.ok_or_else(|| io::Error::other(format!("no time of {n} bytes")))?;
        let at = told.ns();
        expect(
            at >= last && at <= now_ns(),
            format!("{at} after {last}, {n} bytes"),
        )?;
        last = at;
    }
    joined(sender)??;
    Ok(())
}

/// Many messages wait. The order stays, and none is in the future.
fn of_many_messages(env: &Env) -> Outcome {
    let (sock, other) = stamped_pair(env)?;
    let before = now_ns();
    for _ in 0..200 {
        sock.send(&[3; 10], 0)?;
    }
    arrived(&other, 2000)?;
    let after = now_ns();
    let mut last = before;
    for i in 0..400 {
        let at = time_of(&other, &mut [0; 5], 0)?;
        expect(
            (last..=after).contains(&at),
            format!("receive {i}: {at} after {last}"),
        )?;
        last = at;
    }
    Ok(())
}

/// Two threads receive from one socket: a thread that waits for more bytes has the time of those
/// that it got, although another thread has read the next ones.
fn of_two_readers(env: &Env) -> Outcome {
    let (sock, other) = stamped_pair(env)?;
    let other = Arc::new(other);
    other.set_timeout(libc::SO_RCVTIMEO, 2000)?;
    let before = now_ns();
    sock.send(&[1; 100], 0)?;
    arrived(&other, 100)?;
    let after = now_ns();
    let waits = Arc::clone(&other);
    // It has taken the bytes when it waits for more.
    let waiting = spawn_waiting(move || {
        let (n, told) = receive(&waits, &mut [0; 150], libc::MSG_WAITALL)?;
        Ok::<_, Fail>((n, told.map(|told| told.ns())))
    })?;
    sock.send(&[1; 20], 0)?;
    // Either thread may get these bytes.
    let second = receive(&other, &mut [0; 20], 0);
    let (n, at) = joined(waiting)??;
    let at = at.ok_or_else(|| io::Error::other(format!("no time of {n} bytes")))?;
    expect(n == 100 || n == 120, format!("{n} bytes"))?;
    let latest = if n == 100 { after } else { now_ns() };
    expect(
        (before..=latest).contains(&at),
        format!("{n} bytes at {at}"),
    )?;
    match second {
        Ok((n, told)) => {
            expect_eq(n, 20, "bytes")?;
            expect(told.is_some_and(|told| told.ns() >= after), "the second")
        }
        Err(_) => expect_eq(n, 120, "both messages"),
    }
}

/// An accepted socket has the option of its listener; two options and TCP_INQ tell in TCP's order.
fn of_accepted_sockets(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(1)?;
    listener.set_int(SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
    let sock = env.socket()?;
    sock.connect(&addr)?;
    let (other, _) = listener.accept()?;
    begun(env, &sock, &other)?;
    other.set_int(SOL_SOCKET, libc::SO_TIMESTAMPING, SOFTWARE)?;
    other.set_int(libc::IPPROTO_TCP, libc::TCP_INQ, 1)?;
    sock.send(b"bytes", 0)?;
    arrived(&other, 5)?;
    let mut control = [0; 30];
    let (n, len, _) = other.recvmsg_with(&mut [0; 2], &mut control, 0)?;
    expect_eq((n, len), (2, 32 + 64 + 24), "bytes")?;
    let kinds = [control[1], control[5], control[13]];
    let head = |level: i32, kind: i32| level as u64 | ((kind as u64) << 32);
    let expected = [
        head(SOL_SOCKET, libc::SO_TIMESTAMPNS),
        head(SOL_SOCKET, libc::SO_TIMESTAMPING),
        head(libc::IPPROTO_TCP, libc::TCP_INQ),
    ];
    expect_eq(kinds, expected, "levels and types")?;
    expect_eq([control[2], control[3]], [control[6], control[7]], "times")?;
    expect_eq(control[14] as u32, 3, "bytes left")
}

/// A receive of the urgent byte alone has no time.
fn of_the_urgent_byte(env: &Env) -> Outcome {
    let (sock, other) = stamped_pair(env)?;
    let before = now_ns();
    sock.send(b"ab", 0)?;
    sock.send(b"!", libc::MSG_OOB)?;
    sock.send(b"cd", 0)?;
    let is_urgent = || other.poll(libc::POLLPRI, 1000);
    eventually("POLLPRI", is_urgent, |events| *events != 0)?;
    let mut byte = [0];
    let urgent = || match receive(&other, &mut byte, libc::MSG_OOB) {
        Ok((n, told)) => Ok((n, told.is_some())),
        Err(_) => Ok((0, false)),
    };
    eventually("the urgent byte without a time", urgent, |got| {
        *got == (1, false)
    })?;
    let (n, told) =
        receive(&other, &mut [0; 1], libc::MSG_OOB | libc::MSG_PEEK).unwrap_or((0, None));
    expect(n == 0 && told.is_none(), "the urgent byte again")?;
    expect(time_of(&other, &mut [0; 2], 0)? >= before, "before it")?;
    expect(
        time_of(&other, &mut [0; 2], libc::MSG_WAITALL)? >= before,
        "behind it",
    )
}

/// A receive whose control buffer is too short has the flag MSG_CTRUNC, and its bytes.
fn without_room(env: &Env) -> Outcome {
    let (sock, other) = stamped_pair(env)?;
    sock.send(b"bytes", 0)?;
    let (n, _, flags) = other.recvmsg_with(&mut [0; 5], &mut [], 0)?;
    expect_eq(
        (n, flags & libc::MSG_CTRUNC),
        (5, libc::MSG_CTRUNC),
        "no room",
    )?;
    sock.send(b"bytes", 0)?;
    expect_eq(other.recv(&mut [0; 5], 0)?, 5, "without control messages")
}
