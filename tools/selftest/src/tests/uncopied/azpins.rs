// SPDX-License-Identifier: GPL-2.0
//! io_uring takes references to memory whose bytes are on their way. It keeps a registered buffer,
//! and reads and writes it without the page table.

use super::azrecv::settled;
use super::inflight::{return_at_once, Growth, Stream, LEN};
use crate::support::counters::stat;
use crate::support::flow::{spawn, Span};
use crate::support::harness::{expect, expect_eq, joined, skip, tests, Env, Fail, Outcome};
use crate::support::sys::{self, Pages, Registered, Sock, HUGE};
use libc::MSG_NOSIGNAL;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Barrier};

tests!("azpins";
    registered_in_flight,
    registered_while_being_sent,
    registered_while_being_received,
);

/// The bytes that io_uring writes to the memory.
const NEW: u8 = 0xee;

fn pages(huge: bool) -> io::Result<Pages> {
    let len = if huge { HUGE } else { 4 * LEN };
    Ok(Pages::new(len, huge)?.part(0, 4 * LEN))
}

fn rounds(env: &Env) -> u32 {
    env.scaled(32).max(12) as u32
}

/// A pipe with room for `bytes` bytes, so that io_uring needs no other thread to read or write it.
fn pipe(bytes: usize) -> io::Result<(File, File)> {
    let (from, to) = sys::pipe()?;
    sys::set_pipe_size(to.as_raw_fd(), bytes)?;
    Ok((File::from(from), File::from(to)))
}

/// io_uring overwrites the memory, and the program sees the new bytes.
fn overwrite(registered: &mut Registered, pages: Pages) -> Outcome {
    let new = vec![NEW; pages.len()];
    let (from, mut to) = pipe(new.len())?;
    to.write_all(&new)?;
    let n = registered.read(from.as_raw_fd(), 0, pages.len())?;
    expect_eq(n, pages.len(), "bytes that io_uring has written")?;
    let shown = pages.read(0, pages.len()) == new;
    expect(shown, "the program sees other bytes than io_uring wrote")
}

/// Registers the memory in another thread, at about the time when `work` runs.
fn beside_registration<T>(
    pages: Pages,
    round: u32,
    work: impl FnOnce() -> Result<T, Fail>,
) -> Result<(Registered, T), Fail> {
    let start = Arc::new(Barrier::new(2));
    let registration = {
        let start = Arc::clone(&start);
        spawn(move || {
            start.wait();
            // The registration comes before or after `work`, depending on the round.
            for _ in 0..round % 16 * 200 {
                std::hint::spin_loop();
            }
            Registered::new(pages)
        })?
    };
    start.wait();
    let result = work();
    let registered = joined(registration)??;
    Ok((registered, result?))
}

/// The peer gets the bytes that were there at the send, even if io_uring writes to the memory
/// afterwards, by references that it has taken after the send.
fn registered_in_flight(env: &Env) -> Outcome {
    for huge in [false, true] {
        let mut stream = Stream::new(env)?;
        let pages = pages(huge)?;
        stream.send(pages)?;
        let mut registered = Registered::new(pages)?;
        overwrite(&mut registered, pages)?;
        stream.receive()?;
    }
    Ok(())
}

/// As [`registered_in_flight`], but io_uring takes the references during the send.
fn registered_while_being_sent(env: &Env) -> Outcome {
    for huge in [false, true] {
        let pages = pages(huge)?;
        let adverts = Growth::of(env, "advert_async")?;
        for round in 0..rounds(env) {
            // Each round has a new connection: after so many faults the next bytes of a connection
            // would go by copy.
            let mut stream = Stream::new(env)?;
            stream.fill(pages);
            let (mut registered, sent) = beside_registration(pages, round, || {
                Ok(stream
                    .one
                    .send_raw(pages.at(0), pages.len(), MSG_NOSIGNAL)?)
            })?;
            expect_eq(sent, pages.len(), "sent in one call")?;
            stream.sent += sent as u64;
            overwrite(&mut registered, pages)?;
            stream.receive()?;
            registered.end()?;
        }
        adverts.at_least(1)?;
    }
    Ok(())
}

/// io_uring takes references during a receive. By these references it sees the bytes that the
/// receive has promised, even if the receive has returned early.
fn registered_while_being_received(env: &Env) -> Outcome {
    let early = Growth::of(env, "read_early")?;
    for huge in [false, true] {
        let (from, to) = (Pages::new(4 * LEN, false)?, pages(huge)?);
        let want = Span::new(env.seed, 0, to.len() as u64).to_vec();
        from.write(0, &want);
        for round in 0..rounds(env) {
            to.touch(1);
            let stream = Stream::new(env)?;
            return_at_once(&stream.other)?;
            let sock = stream.one.dup()?;
            let sender = spawn(move || sock.send_raw(from.at(0), from.len(), MSG_NOSIGNAL))?;
            receive_beside_registrations(&stream.other, to, round, &want)?;
            expect_eq(joined(sender)??, to.len(), "sent")?;
            drop(stream);
            settled(env)?;
        }
    }
    if stat(env, "read_early")? == early.before {
        return skip("no call has returned early: this machine is too slow");
    }
    Ok(())
}

fn receive_beside_registrations(from: &Sock, to: Pages, round: u32, want: &[u8]) -> Outcome {
    let mut got = 0;
    while got < to.len() {
        let rest = to.part(got, to.len() - got);
        let (mut registered, n) = beside_registration(rest, round, || {
            // SAFETY: no reference to the pages exists.
            Ok(unsafe { from.recv_raw(rest.at(0), rest.len(), 0)? })
        })?;
        expect(n > 0, format!("the end after {got} bytes"))?;
        let (mut from_pipe, to_pipe) = pipe(n)?;
        let written = registered.write(to_pipe.as_raw_fd(), 0, n)?;
        expect_eq(written, n, "bytes that io_uring has read")?;
        let mut seen = vec![0; n];
        from_pipe.read_exact(&mut seen)?;
        expect(
            seen == want[got..got + n],
            format!("io_uring sees other bytes behind {got}"),
        )?;
        registered.end()?;
        got += n;
    }
    Ok(())
}
