// SPDX-License-Identifier: GPL-2.0
//! What a program may do to a stream without copies that waits for its reader:
//! signals at any time, and a socket that becomes another one under a call.

use super::inflight::{SDP_ZCOPY_MODE, SDP_ZCOPY_THRESH, SOL_SDP, WAITS};
use crate::flow::{spawn, Span};
use crate::harness::{eventually, expect, expect_eq, failed, joined, tests, Env, Family, Outcome};
use crate::pattern::{Pattern, Rng};
use crate::sys::{self, Sock};
use libc::{EINTR, MSG_NOSIGNAL, SIGALRM};
use std::io;
use std::sync::Arc;
use std::time::Duration;

tests!("zabuse";
    signals_at_random,
    listens_while_reading,
    connects_while_reading,
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

/// Reads a span in calls of all sizes, which signals interrupt; returns the
/// offset of the first wrong byte.
fn read_all(sock: &Sock, span: Span) -> io::Result<Option<u64>> {
    let mut rng = Rng::new(span.seed ^ 0x51a1);
    let mut room = vec![0; 700_064];
    let mut done = 0;
    while done < span.len {
        let at = rng.below(64);
        let len = (rng.length(700_000) as u64).min(span.len - done) as usize;
        let flags = [0, 0, 0, libc::MSG_WAITALL, libc::MSG_DONTWAIT][rng.below(5)];
        let buf = &mut room[at..at + len];
        buf.fill(0xee);
        match sock.recv(buf, flags) {
            Ok(0) => return Err(io::Error::other(format!("the end after {done} bytes"))),
            Ok(n) => {
                let verdict = Pattern::new(span.seed).check(span.offset + done, &buf[..n]);
                if verdict.wrong > 0 {
                    return Ok(verdict.first);
                }
                done += n as u64;
            }
            Err(e) if matches!(e.raw_os_error(), Some(EINTR | libc::EAGAIN)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

/// Each interrupted call says how many bytes it took: none is lost or doubled.
fn signals_at_random(env: &Env) -> Outcome {
    let (one, other) = env.own_pair()?;
    go_without_copies(env, &one)?;
    sys::install_handler(SIGALRM, ignore, false)?;
    let total = env.scaled(24 << 20);
    let span = Span::new(env.seed, 0, total);
    let reading = spawn(move || read_all(&other, span))?;
    let mut rng = Rng::new(env.seed ^ 0xa1a);
    let (mut done, mut cut) = (0, 0);
    while done < total {
        let len = (rng.length(3 << 20) as u64).min(total - done);
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
    expect_eq(joined(reading)??, None, "the first wrong byte")?;
    expect(cut > 0, "no signal came in time")
}

/// Takes a socket from under a receive that waits for its bytes.
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
                while matches!(one.recv(&mut room, libc::MSG_WAITALL), Ok(n) if n > 0) {}
            })?
        };
        let sending = spawn(move || {
            let bytes = vec![7; 4 << 20];
            while other.send(&bytes, MSG_NOSIGNAL).is_ok() {}
        })?;
        std::thread::sleep(Duration::from_millis(20 + rng.below(60) as u64));
        one.connect(&unspec)?;
        renew(&one)?;
        // For a receive that began later.
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
