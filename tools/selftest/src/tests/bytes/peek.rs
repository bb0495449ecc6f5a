// SPDX-License-Identifier: GPL-2.0
//! SO_PEEK_OFF: each peek continues where the last one ended.

use crate::support::flow::{self, Span};
use crate::support::harness::{
    eventually, expect, expect_eq, expect_errno, joined, receive, tests, Env, Outcome, QUIET_MS,
};
use crate::support::sys::Sock;
use libc::{EAGAIN, MSG_DONTWAIT, MSG_PEEK, SOL_SOCKET, SO_PEEK_OFF};
use std::io;
use std::time::Duration;

tests!("peek";
    goes_on,
    goes_back_by_what_is_read,
    goes_back_while_others_look,
    waits_for_what_is_behind,
    of_adverts,
    forgotten_with_the_connection,
);

fn offset(sock: &Sock) -> io::Result<i32> {
    sock.get_int(SOL_SOCKET, SO_PEEK_OFF)
}

/// Peeks at `len` bytes, which must be the bytes of the stream from `from` on.
#[track_caller]
fn look(sock: &Sock, env: &Env, from: u64, len: usize) -> Outcome {
    let mut buf = vec![0; len];
    sock.recv(&mut buf, MSG_PEEK | libc::MSG_WAITALL)?;
    let want = Span::new(env.seed, from, len as u64).to_vec();
    expect(buf == want, format!("not the {len} bytes from {from} on"))
}

fn goes_on(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    expect_eq(offset(&sock)?, -1, "at first")?;
    remote.send(Span::new(env.seed, 0, 100), 0)?;
    // Without an offset each peek begins at the first byte.
    look(&sock, env, 0, 10)?;
    look(&sock, env, 0, 10)?;
    expect_eq(offset(&sock)?, -1, "without one")?;
    sock.set_int(SOL_SOCKET, SO_PEEK_OFF, 0)?;
    look(&sock, env, 0, 10)?;
    look(&sock, env, 10, 30)?;
    expect_eq(offset(&sock)?, 40, "after two looks")?;
    sock.set_int(SOL_SOCKET, SO_PEEK_OFF, 90)?;
    look(&sock, env, 90, 10)?;
    let nothing = sock.recv(&mut [0; 10], MSG_PEEK | MSG_DONTWAIT);
    expect_errno(nothing, EAGAIN, "a look at no more bytes")?;
    sock.set_int(SOL_SOCKET, SO_PEEK_OFF, -1)?;
    look(&sock, env, 0, 100)?;
    receive(&sock, Span::new(env.seed, 0, 100))
}

fn goes_back_by_what_is_read(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    remote.send(Span::new(env.seed, 0, 100), 0)?;
    sock.set_int(SOL_SOCKET, SO_PEEK_OFF, 0)?;
    look(&sock, env, 0, 50)?;
    receive(&sock, Span::new(env.seed, 0, 30))?;
    expect_eq(offset(&sock)?, 20, "after a read")?;
    look(&sock, env, 50, 10)?;
    receive(&sock, Span::new(env.seed, 30, 60))?;
    expect_eq(offset(&sock)?, 0, "after more than was looked at")?;
    look(&sock, env, 90, 10)
}

/// Bytes that another thread reads while a peek waits lower the offset of this peek, and do not
/// hold the peek up.
fn goes_back_while_others_look(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    sock.set_int(SOL_SOCKET, SO_PEEK_OFF, 0)?;
    remote.send(Span::new(env.seed, 0, 10), 0)?;
    let looking = {
        let sock = sock.dup()?;
        let flags = MSG_PEEK | libc::MSG_WAITALL;
        flow::spawn(move || -> io::Result<(usize, [u8; 20])> {
            let mut buf = [0; 20];
            Ok((sock.recv(&mut buf, flags)?, buf))
        })?
    };
    eventually("a look at the first bytes", || offset(&sock), |&n| n == 10)?;
    receive(&sock, Span::new(env.seed, 0, 10))?;
    expect_eq(offset(&sock)?, 0, "after the read")?;
    // The peek goes on with the next byte that is not read, and does not wait for more bytes than
    // it has room for.
    remote.send(Span::new(env.seed, 10, 10), 0)?;
    let (seen, buf) = joined(looking)??;
    let end = || Span::new(env.seed, 10, 10);
    expect_eq(seen, 20, "looked at")?;
    expect(
        buf[10..] == end().to_vec(),
        "not the bytes behind those that were read",
    )?;
    receive(&sock, end())?;
    expect_eq(offset(&sock)?, 0, "in the end")
}

/// A peek waits for the first byte behind its offset.
fn waits_for_what_is_behind(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    remote.send(Span::new(env.seed, 0, 100), 0)?;
    sock.set_int(SOL_SOCKET, SO_PEEK_OFF, 0)?;
    look(&sock, env, 0, 100)?;
    let waiting = {
        let sock = sock.dup()?;
        flow::spawn(move || -> io::Result<usize> { sock.recv(&mut [0; 500], MSG_PEEK) })?
    };
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    expect(!waiting.is_finished(), "a look did not wait")?;
    remote.send(Span::new(env.seed, 100, 7), 0)?;
    expect_eq(joined(waiting)??, 7, "looked at")?;
    remote.shutdown(libc::SHUT_WR)?;
    expect_eq(sock.recv(&mut [0; 500], MSG_PEEK)?, 0, "at the end")?;
    receive(&sock, Span::new(env.seed, 0, 107))
}

/// Peeks at bytes that may still be in the peer's memory.
fn of_adverts(env: &Env) -> Outcome {
    const PART: usize = 10_000;
    const PARTS: usize = 20;
    let (sock, remote) = env.own_pair()?;
    sock.set_int(SOL_SOCKET, SO_PEEK_OFF, 0)?;
    sock.set_int(SOL_SOCKET, libc::SO_RCVBUF, 1 << 20)?;
    let len = PART * PARTS;
    let span = Span::new(env.seed, 0, len as u64);
    let bytes = span.to_vec();
    let sending = flow::spawn(move || remote.send_all(&bytes).map(|()| remote))?;
    for part in 0..PARTS {
        look(&sock, env, (part * PART) as u64, PART)?;
    }
    receive(&sock, span)?;
    joined(sending)??;
    expect_eq(offset(&sock)?, 0, "in the end")
}

/// The next connection of the socket begins without an offset, unless the program sets one between
/// the connections.
fn forgotten_with_the_connection(env: &Env) -> Outcome {
    let unspec = env.here(0).with_family(libc::AF_UNSPEC);
    let (sock, _remote) = env.pair()?;
    for (between, then) in [(None, -1), (Some(7), 7)] {
        sock.set_int(SOL_SOCKET, SO_PEEK_OFF, 5)?;
        sock.connect(&unspec)?;
        expect_eq(offset(&sock)?, -1, "of the last connection")?;
        if let Some(bytes) = between {
            sock.set_int(SOL_SOCKET, SO_PEEK_OFF, bytes)?;
        }
        let (listener, addr) = env.remote_listener(1)?;
        sock.connect(&addr)?;
        listener.accept()?;
        expect_eq(offset(&sock)?, then, "of the next connection")?;
    }
    Ok(())
}
