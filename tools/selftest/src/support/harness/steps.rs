// SPDX-License-Identifier: GPL-2.0
//! Steps that tests are put together from.

use super::{expect, expect_received, failed, Fail, Outcome};
use crate::support::flow::{recv_span, send_span, spawn, Span};
use crate::support::sys::{self, Sock};
use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long something that must happen soon may take: generous, as an
/// emulated machine with all checkers on is slow.
const SOON: Duration = Duration::from_secs(30);
/// How long a step waits, in milliseconds, to see that nothing happens.
pub(crate) const QUIET_MS: i32 = 200;

/// Sees that something has waited for its time, of 150 ms. The kernel counts that in
/// ticks, of which the last may be overdue when it begins: then it is shorter.
#[track_caller]
pub(crate) fn expect_waited(since: Instant) -> Outcome {
    let waited = since.elapsed();
    expect(waited >= Duration::from_millis(100), format!("{waited:?}"))
}

/// Waits until `holds` does; the last answer is in the failure.
#[track_caller]
pub(crate) fn eventually<T: std::fmt::Debug>(
    what: &str,
    mut now: impl FnMut() -> io::Result<T>,
    holds: impl Fn(&T) -> bool,
) -> Outcome {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        let value = now()?;
        if holds(&value) {
            return Ok(());
        }
        if start.elapsed() > SOON {
            return failed(format!("{what}: still {value:?}"));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// Runs `work` in a thread, and returns when that waits for something, or has
/// ended: on a busy machine a thread takes its time to begin.
#[track_caller]
pub(crate) fn spawn_waiting<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Fail> {
    let (tell, told) = mpsc::channel();
    let thread = spawn(move || {
        let _ = tell.send(sys::thread_id());
        work()
    })?;
    let id = told.recv().map_err(io::Error::other)?;
    eventually(
        "a thread that waits",
        || Ok(thread.is_finished() || sys::is_asleep(id)),
        |waits| *waits,
    )?;
    Ok(thread)
}

/// Sends a whole span with calls of many lengths.
#[track_caller]
pub(crate) fn send(sock: &Sock, span: Span) -> Outcome {
    match send_span(sock, span, 64 << 10) {
        Ok(_) => Ok(()),
        Err((sent, e)) => failed(format!("sending: {e} after {sent} bytes of {}", span.len)),
    }
}

/// Receives a whole span and checks it.
#[track_caller]
pub(crate) fn receive(sock: &Sock, span: Span) -> Outcome {
    expect_received(recv_span(sock, span, 64 << 10), span, "receiving")
}

/// Expects the end of file, twice.
#[track_caller]
pub(crate) fn expect_eof(sock: &Sock) -> Outcome {
    for _ in 0..2 {
        match sock.recv(&mut [0; 16], 0)? {
            0 => {}
            n => return failed(format!("{n} bytes where the end of file should be")),
        }
    }
    Ok(())
}

/// The bytes that wait to be received.
pub(crate) fn readable_bytes(sock: &Sock) -> io::Result<i32> {
    sock.ioctl_int(libc::FIONREAD)
}

/// Sends from the start of a pattern without blocking until the way to the
/// peer stays full; returns the bytes sent.
///
/// It counts as full when no room has come for eight times as long as the room
/// that took longest until then: a busy machine or a checked kernel is slow to
/// take bytes from the socket, and nothing says from outside that it has ended.
pub(crate) fn fill(sock: &Sock, seed: u64) -> io::Result<u64> {
    let mut sent = 0;
    let mut quiet = false;
    let mut longest_ms = 0;
    loop {
        let buf = Span::new(seed, sent, 10_007).to_vec();
        match sock.send(&buf, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) {
            Ok(n) => {
                sent += n as u64;
                quiet = false;
            }
            Err(e) if e.raw_os_error() != Some(libc::EAGAIN) => return Err(e),
            Err(_) if quiet => return Ok(sent),
            // poll() may call a socket full that still has some room.
            Err(_) => {
                let began = Instant::now();
                quiet = sock.poll(libc::POLLOUT, QUIET_MS.max(8 * longest_ms))? == 0;
                if !quiet {
                    longest_ms = longest_ms.max(began.elapsed().as_millis() as i32);
                }
            }
        }
    }
}
