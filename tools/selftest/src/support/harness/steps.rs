// SPDX-License-Identifier: GPL-2.0
//! Steps from which tests are put together.

use super::{expect, expect_received, failed, Fail, Outcome};
use crate::support::flow::{recv_span, send_span, spawn, Span};
use crate::support::sys::{self, Sock};
use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time limit for something that must happen soon. It is generous because an emulated machine
/// with all checkers on is slow.
const SOON: Duration = Duration::from_secs(30);
/// The time in milliseconds that a step waits to see that nothing happens.
pub(crate) const QUIET_MS: i32 = 200;

/// Expects that a wait with a limit of 150 ms has used its time. The kernel counts the limit in
/// ticks, and the count may lag when the wait begins, so the wait may be shorter than its limit.
#[track_caller]
pub(crate) fn expect_waited(since: Instant) -> Outcome {
    let waited = since.elapsed();
    expect(waited >= Duration::from_millis(100), format!("{waited:?}"))
}

/// Waits until `holds` is true for the answer of `now`. The failure contains the last answer.
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

/// Runs `work` in a thread, and returns when the thread sleeps or has ended. On a busy machine a
/// thread may start late.
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

/// Expects the end of file from two calls.
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

/// The number of bytes that can be received.
pub(crate) fn readable_bytes(sock: &Sock) -> io::Result<i32> {
    sock.ioctl_int(libc::FIONREAD)
}

/// Sends the bytes of a pattern without blocking, until the connection stays full; returns the
/// number of bytes sent.
///
/// The connection counts as full when no room has appeared for eight times as long as the longest
/// wait for room so far. A busy machine, or a kernel with checkers, takes the bytes from the socket
/// slowly, and a program cannot see whether the kernel has finished.
pub(crate) fn fill(sock: &Sock, seed: u64) -> io::Result<u64> {
    fill_from(sock, seed, 0)
}

/// As [`fill`], if `sent` bytes of the pattern have already been sent; returns the number of all
/// bytes sent.
pub(crate) fn fill_from(sock: &Sock, seed: u64, mut sent: u64) -> io::Result<u64> {
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
            // poll() may report a socket as full that still has some room.
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
