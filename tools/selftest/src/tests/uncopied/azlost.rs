// SPDX-License-Identifier: GPL-2.0
//! Bytes that recv() has promised but that never come, because the peer's machine is gone: a thread
//! that touches their pages gets a signal, and the next call returns an error.
//!
//! The peer's machine must be killed when the test prints its note.

use super::azrecv::{settled, Incoming};
use super::inflight::{in_child, Growth, Signal, LEN};
use crate::support::harness::{expect, expect_eq, failed, note, skip, tests, Env, Outcome};
use crate::support::sys::{self, Ended, Pages};
use libc::POLLERR;
use std::io;
use std::time::{Duration, Instant};

tests!("azlost";
    peer_vanishes,
);

/// The number of buffers, which are used by turns, so that several Reads are in flight.
const BUFFERS: usize = 4;
/// How long the module waits for bytes, and some time for a slow machine.
const WAITS: Duration = Duration::from_secs(30);

/// When a program touches its pages.
#[derive(Clone, Copy, PartialEq)]
enum Touch {
    AtOnce,
    AfterTheError,
}

/// Receives until there is an error, into buffers that begin `odd` bytes behind the start of a
/// page. Gives the signal `ready` after several rounds. Returns `true` after a time-out, and
/// `false` at the end of the stream.
fn receive_on(
    incoming: &mut Incoming<'_>,
    touch: Touch,
    odd: usize,
    ready: &Signal,
) -> io::Result<bool> {
    let buffers = Pages::new(BUFFERS * LEN, false)?;
    for turn in 0.. {
        if turn == 4 * BUFFERS {
            ready.give()?;
        }
        let pages = buffers.part(turn % BUFFERS * LEN + odd, LEN - odd);
        match incoming.take(pages, 0) {
            Ok(_) if touch == Touch::AtOnce => pages.look(),
            Ok(got) if got.is_end() => return Ok(false),
            Ok(_) => {}
            Err(e) if e.raw_os_error() == Some(libc::ETIMEDOUT) => break,
            Err(e) => return Err(e),
        }
    }
    if touch == Touch::AfterTheError {
        buffers.look();
    }
    Ok(true)
}

/// Some programs touch their pages only after the error. Others touch them at once, so they wait
/// when the peer vanishes; one of these is killed while it waits.
fn peer_vanishes(env: &Env) -> Outcome {
    if env.local == env.remote {
        return skip("the peer is in this machine");
    }
    let lost = Growth::of(env, "absent_failed")?;
    let mut children = Vec::new();
    for (touch, odd) in [
        (Touch::AtOnce, 0),
        (Touch::AfterTheError, 0),
        (Touch::AtOnce, 16),
        (Touch::AfterTheError, 16),
        (Touch::AtOnce, 0),
    ] {
        let mut incoming = Incoming::endless(env)?;
        let ready = Signal::new()?;
        let child = in_child(|| receive_on(&mut incoming, touch, odd, &ready))?;
        ready.await_it()?;
        children.push((child, incoming));
    }
    note("the peer may vanish");
    std::thread::sleep(Duration::from_secs(4));
    let killed = Instant::now();
    sys::kill(children[0].0, libc::SIGKILL)?;
    let ended = sys::wait_child(children[0].0, true)?;
    expect_eq(ended, Ended::Signal(libc::SIGKILL), "who was killed")?;
    let took = killed.elapsed();
    expect(
        took < Duration::from_secs(3),
        format!("its end took {took:?}"),
    )?;
    let end = Instant::now() + WAITS;
    let mut told = 0;
    for (child, incoming) in &children[1..] {
        match end_until(end, *child)? {
            Ended::Signal(libc::SIGSEGV) => told += 1,
            // All bytes that the program touches had come.
            Ended::Exit(0) => {}
            // If no Read was in flight, the program does not learn that the peer is gone, as over
            // TCP.
            Ended::Running => {
                let has_failed = incoming.socket()?.poll(POLLERR, 0)? & POLLERR != 0;
                sys::kill(*child, libc::SIGKILL)?;
                expect(
                    !has_failed,
                    "a program still waits for bytes that do not come",
                )?;
            }
            ended => return failed(format!("a program ended with {ended:?}")),
        }
    }
    drop(children);
    settled(env)?;
    note(&format!("{told} had a signal"));
    // What the killed program has lost is counted, too, and tells nothing about the others.
    match told {
        0 => skip("nothing was under way when the peer vanished"),
        _ => lost.at_least(1),
    }
}

/// How a child has ended, or [`Ended::Running`] if it still runs at the time `end`.
fn end_until(end: Instant, child: i32) -> io::Result<Ended> {
    loop {
        match sys::wait_child(child, false)? {
            Ended::Running if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(100));
            }
            ended => return Ok(ended),
        }
    }
}
