// SPDX-License-Identifier: GPL-2.0
//! What a program may do to a stream without copies whose calls wait: signals at any time, a socket
//! that is connected again or becomes a listener during a call, and the end of a process that
//! waits.

use super::inflight::{in_child, SDP_ZCOPY_MODE, SDP_ZCOPY_THRESH, SOL_SDP, WAITS};
use super::sink::FORCED;
use crate::support::counters::stat;
use crate::support::flow::{spawn, Span};
use crate::support::harness::{
    eventually, expect, expect_eq, failed, joined, tests, Env, Family, Outcome,
};
use crate::support::pattern::{Pattern, Rng};
use crate::support::sys::{self, Sock};
use libc::{EINTR, MSG_NOSIGNAL, MSG_WAITALL, SIGALRM, SO_RCVTIMEO, SO_SNDTIMEO};
use std::io;
use std::sync::Arc;
use std::time::Duration;

tests!("zabuse";
    signals_at_random,
    listens_while_reading,
    connects_while_reading,
    killed_readers_leave_nothing,
    killed_writers_leave_nothing,
);

fn go_without_copies(env: &Env, sock: &Sock) -> io::Result<()> {
    match env.family {
        Family::Tcp => Ok(()),
        Family::Sdp => {
            sock.set_int(SOL_SDP, SDP_ZCOPY_THRESH, 16_384)?;
            sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, WAITS)
        }
    }
}

extern "C" fn ignore(_: libc::c_int) {}

/// Reads a span up to the end of the stream, in calls of all sizes, which signals interrupt.
/// Returns the number of bytes and the offset of the first wrong byte.
fn read_all(sock: &Sock, span: Span) -> io::Result<(u64, Option<u64>)> {
    let mut rng = Rng::new(span.seed ^ 0x51a1);
    let mut room = vec![0; 700_064];
    let mut done = 0;
    while done < span.len {
        let at = rng.below(64);
        let len = (rng.length(700_000) as u64).min(span.len - done) as usize;
        let flags = [0, 0, 0, MSG_WAITALL, libc::MSG_DONTWAIT][rng.below(5)];
        let buf = &mut room[at..at + len];
        buf.fill(0xee);
        match sock.recv(buf, flags) {
            Ok(0) => return Ok((done, None)),
            Ok(n) => {
                let verdict = Pattern::new(span.seed).check(span.offset + done, &buf[..n]);
                if verdict.wrong > 0 {
                    return Ok((done, verdict.first));
                }
                done += n as u64;
            }
            Err(e) if matches!(e.raw_os_error(), Some(EINTR | libc::EAGAIN)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok((done, None))
}

/// Each interrupted call returns the number of bytes that it took, so no byte is lost or sent
/// twice.
fn signals_at_random(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    go_without_copies(env, &one)?;
    sys::install_handler(SIGALRM, ignore, false)?;
    let total = env.scaled(24 << 20);
    // With a fast adapter, all of these sends may end before a signal comes. Then the test sends
    // more.
    let most = 16 * total;
    let span = Span::new(env.seed, 0, most + 1);
    let reading = spawn(move || read_all(&other, span))?;
    let mut rng = Rng::new(env.seed ^ 0xa1a);
    let (mut done, mut cut) = (0, 0);
    while done < total || (cut == 0 && done < most) {
        let len = (rng.length(3 << 20) as u64).min(most - done);
        let mut bytes = Span::new(env.seed, done, len).to_vec();
        sys::alarm_every(1 + rng.below(40) as i64)?;
        let result = one.send(&bytes, MSG_NOSIGNAL);
        sys::alarm_every(0)?;
        bytes.fill(0xdb);
        match result {
            Ok(n) => {
                cut += u64::from((n as u64) < len);
                done += n as u64;
            }
            Err(e) if e.raw_os_error() == Some(EINTR) => cut += 1,
            Err(e) => return failed(format!("after {done} bytes: {e}")),
        }
    }
    one.shutdown(libc::SHUT_WR)?;
    let came = joined(reading)??;
    expect_eq(came, (done, None), "what came, and the first wrong byte")?;
    expect(cut > 0, "no signal came in time")
}

/// Disconnects a socket while a receive waits for its bytes, and calls `renew` with the socket.
fn renewed_while_reading(env: &Env, renew: impl Fn(&Sock) -> io::Result<()>) -> Outcome {
    if env.family == Family::Tcp {
        return Ok(());
    }
    let unspec = env.here(0).with_family(libc::AF_UNSPEC);
    let mut rng = Rng::new(env.seed ^ 0x11e);
    for round in 0..env.scaled(24) {
        let (one, other) = env.own_pair()?;
        go_without_copies(env, &other)?;
        let one = Arc::new(one);
        let reader = {
            let one = Arc::clone(&one);
            spawn(move || {
                let mut room = vec![0; 1 << 20];
                while matches!(one.recv(&mut room, MSG_WAITALL), Ok(n) if n > 0) {}
            })?
        };
        let sending = spawn(move || {
            let bytes = vec![7; 4 << 20];
            while other.send(&bytes, MSG_NOSIGNAL).is_ok() {}
        })?;
        std::thread::sleep(Duration::from_millis(20 + rng.below(60) as u64));
        one.connect(&unspec)?;
        renew(&one)?;
        // Ends a receive that has begun after the disconnect.
        let _ = one.shutdown(libc::SHUT_RDWR);
        eventually(
            &format!("the end of the receive of round {round}"),
            || Ok(reader.is_finished()),
            |&done| done,
        )?;
        joined(sending)?;
        joined(reader)?;
    }
    Ok(())
}

fn listens_while_reading(env: &Env) -> Outcome {
    renewed_while_reading(env, |sock| sock.listen(1))
}

fn connects_while_reading(env: &Env) -> Outcome {
    let (_listener, addr) = env.listener(100)?;
    renewed_while_reading(env, |sock| sock.connect(&addr))
}

/// A child calls `its` with one end of a connection again and again, and a thread calls `mine` with
/// the other end. Then the child is killed. None of its memory stays pinned, although this process
/// has the child's socket, too, and does not use it.
fn killed_in_flight(
    env: &Env,
    mode: i32,
    its: impl Fn(&Sock) -> io::Result<usize>,
    mine: impl Fn(&Sock) -> io::Result<usize> + Copy + Send + 'static,
) -> Outcome {
    if env.family == Family::Tcp {
        return Ok(());
    }
    let mut rng = Rng::new(env.seed ^ 0x6e9);
    for round in 0..env.scaled(6).max(4) {
        let (one, other) = env.own_pair()?;
        for sock in [&one, &other] {
            go_without_copies(env, sock)?;
            sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, mode)?;
            // By the time-outs this process gets its own memory back, too.
            sock.set_timeout(SO_SNDTIMEO, 300)?;
            sock.set_timeout(SO_RCVTIMEO, 300)?;
        }
        let child = in_child(|| loop {
            its(&other)?;
        })?;
        let working = spawn(move || while matches!(mine(&one), Ok(n) if n > 0) {})?;
        std::thread::sleep(Duration::from_millis(60 + rng.below(60) as u64));
        sys::kill(child, libc::SIGKILL)?;
        sys::wait_child(child, true)?;
        joined(working)?;
        eventually(
            &format!("pinned bytes of round {round}"),
            || Ok(stat(env, "pinned_bytes")?.saturating_sub(stat(env, "unpinned_bytes")?)),
            |left| *left == 0,
        )?;
        drop(other);
    }
    Ok(())
}

const LARGE: usize = 2 << 20;

fn receives(sock: &Sock) -> io::Result<usize> {
    sock.recv(&mut vec![0; LARGE], MSG_WAITALL)
}

fn sends(sock: &Sock) -> io::Result<usize> {
    sock.send(&vec![7; LARGE], MSG_NOSIGNAL)
}

fn killed_readers_leave_nothing(env: &Env) -> Outcome {
    killed_in_flight(env, WAITS, receives, sends)
}

fn killed_writers_leave_nothing(env: &Env) -> Outcome {
    killed_in_flight(env, FORCED, sends, receives)
}
