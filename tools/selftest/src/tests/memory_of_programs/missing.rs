// SPDX-License-Identifier: GPL-2.0
//! Memory of programs that is missing when a call copies from or to it, and whose pages come as
//! late as the program likes. TCP holds the socket's lock meanwhile. With SDP only calls for the
//! same direction of the stream wait for such a program.

use crate::support::flow::{self, Span};
use crate::support::harness::{
    differences, eventually, expect, expect_eq, expect_received, joined, readable_bytes, receive,
    send, skip, tests, Env, Fail, Outcome, QUIET_MS,
};
use crate::support::sys::{self, MissingPages, Sock, PAGE};
use libc::{IPPROTO_TCP, MSG_NOSIGNAL, POLLIN, SOL_SOCKET, SO_RCVTIMEO, SO_SNDTIMEO, TCP_NODELAY};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

tests!("missing";
    send_waits_for_a_page,
    receive_waits_for_a_page,
    peek_waits_for_a_page,
    sends_do_not_mix,
    send_ends_with_its_connection,
    receive_ends_with_its_connection,
    option_waits_for_a_page,
    many_that_wait_stop_nobody,
);

/// More than the module has threads for work that may sleep.
const MANY: usize = 520;

/// If the lock is held during such a fault, the tests would wait for themselves.
fn without_the_lock(env: &Env) -> Outcome {
    if differences::holds_lock_in_faults(env.family) {
        return skip("TCP holds the lock meanwhile");
    }
    Ok(())
}

fn page(seed: u64, number: usize) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    let span = Span::new(seed, (number * PAGE) as u64, PAGE as u64);
    bytes.copy_from_slice(&span.to_vec());
    bytes
}

/// Two pages. The first one is filled, and the second one is missing.
fn half_missing(env: &Env) -> Result<Arc<MissingPages>, Fail> {
    let mut pages = MissingPages::new(2, 1)?;
    pages.bytes(PAGE).copy_from_slice(&page(env.seed, 0));
    Ok(Arc::new(pages))
}

type Sender = JoinHandle<io::Result<usize>>;

fn send_both(sock: &Arc<Sock>, pages: &Arc<MissingPages>) -> io::Result<Sender> {
    let (sock, pages) = (sock.clone(), pages.clone());
    flow::spawn(move || sock.send_raw(pages.at(0), 2 * PAGE, MSG_NOSIGNAL))
}

/// While a send sleeps, the other direction of the stream works, options are set, and poll()
/// answers. Then the send ends with all of its bytes.
fn send_waits_for_a_page(env: &Env) -> Outcome {
    without_the_lock(env)?;
    let (sock, remote) = env.pair()?;
    let sock = Arc::new(sock);
    let pages = half_missing(env)?;
    let sender = send_both(&sock, &pages)?;
    pages.await_touch()?;

    let back = Span::new(env.seed + 1, 0, 300_000);
    remote.send_span(back, 70_000)?;
    expect_eq(sock.poll(POLLIN, 20_000)?, POLLIN, "poll")?;
    sock.set_timeout(SO_RCVTIMEO, 20_000)?;
    receive(&sock, back)?;
    sock.set_int(IPPROTO_TCP, TCP_NODELAY, 1)?;
    expect(sock.getpeername()?.port() > 0, "no name of the peer")?;

    pages.bring(1, &page(env.seed, 1))?;
    expect_eq(joined(sender)??, 2 * PAGE, "bytes sent")?;
    let there = Span::new(env.seed, 0, 2 * PAGE as u64);
    expect_received(remote.recv_span(there, 9000)?, there, "what was sent")
}

/// While a receive sleeps, the other direction of the stream works.
fn receive_waits_for_a_page(env: &Env) -> Outcome {
    receive_with(env, 0)
}

/// The same for a receive with MSG_PEEK, after which the bytes are still there.
fn peek_waits_for_a_page(env: &Env) -> Outcome {
    receive_with(env, libc::MSG_PEEK)
}

fn receive_with(env: &Env, flags: i32) -> Outcome {
    without_the_lock(env)?;
    let (sock, remote) = env.pair()?;
    let sock = Arc::new(sock);
    let pages = half_missing(env)?;
    let span = Span::new(env.seed, 0, 2 * PAGE as u64);
    remote.send_span(span, 9000)?;
    let reader = {
        let (sock, pages) = (sock.clone(), pages.clone());
        let flags = flags | libc::MSG_WAITALL;
        // SAFETY: the area is used by nobody else until the thread is joined.
        flow::spawn(move || unsafe { sock.recv_raw(pages.at(0), 2 * PAGE, flags) })?
    };
    pages.await_touch()?;
    let there = Span::new(env.seed + 1, 0, 300_000);
    sock.set_timeout(SO_SNDTIMEO, 20_000)?;
    send(&sock, there)?;
    expect_received(remote.recv_span(there, 70_000)?, there, "the other half")?;

    pages.bring(1, &[0; PAGE])?;
    expect_eq(joined(reader)??, 2 * PAGE, "bytes received")?;
    let mut pages = Arc::into_inner(pages).ok_or_else(|| Fail::Failed("still used".into()))?;
    expect(
        pages.bytes(2 * PAGE) == span.to_vec(),
        "they are other bytes",
    )?;
    if flags & libc::MSG_PEEK != 0 {
        receive(&sock, span)?;
    }
    Ok(())
}

/// A send that sleeps in its middle keeps its place in the stream.
fn sends_do_not_mix(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let sock = Arc::new(sock);
    let pages = half_missing(env)?;
    let first = send_both(&sock, &pages)?;
    pages.await_touch()?;
    let behind = Span::new(env.seed, 2 * PAGE as u64, 100);
    let second = {
        let sock = sock.clone();
        flow::spawn(move || sock.send(&behind.to_vec(), MSG_NOSIGNAL))?
    };
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    expect(!second.is_finished(), "the second send went ahead")?;
    pages.bring(1, &page(env.seed, 1))?;
    expect_eq(joined(first)??, 2 * PAGE, "bytes of the first")?;
    expect_eq(joined(second)??, 100, "bytes of the second")?;
    let both = Span::new(env.seed, 0, 2 * PAGE as u64 + 100);
    expect_received(remote.recv_span(both, 9000)?, both, "both")
}

/// The core reads the value of this option with the lock held, so the module copies the value
/// before.
fn option_waits_for_a_page(env: &Env) -> Outcome {
    without_the_lock(env)?;
    let (sock, remote) = env.pair()?;
    let sock = Arc::new(sock);
    let pages = half_missing(env)?;
    let setter = {
        let (sock, pages) = (sock.clone(), pages.clone());
        // A struct linger whose second half is missing.
        flow::spawn(move || sock.set_raw(SOL_SOCKET, libc::SO_LINGER, pages.at(PAGE - 4), 8))?
    };
    pages.await_touch()?;
    let back = Span::new(env.seed, 0, 100_000);
    remote.send_span(back, 70_000)?;
    sock.set_timeout(SO_RCVTIMEO, 20_000)?;
    receive(&sock, back)?;
    pages.bring(1, &[0; PAGE])?;
    joined(setter)??;
    Ok(())
}

/// However many connections sleep in this way when their peers go, other connections are set up and
/// end.
fn many_that_wait_stop_nobody(env: &Env) -> Outcome {
    without_the_lock(env)?;
    sys::raise_file_limit()?;
    let pages = Arc::new(MissingPages::new(1, 0)?);
    let mut stuck = Vec::new();
    for _ in 0..MANY {
        let (sock, other) = env.own_pair()?;
        let sock = Arc::new(sock);
        let sender = {
            let (sock, pages) = (sock.clone(), pages.clone());
            flow::spawn(move || sock.send_raw(pages.at(0), PAGE, MSG_NOSIGNAL))?
        };
        stuck.push((sock, other, sender));
    }
    for _ in 0..MANY {
        pages.await_touch()?;
    }
    let mut senders = Vec::new();
    for (sock, other, sender) in stuck {
        drop(other);
        senders.push((sock, sender));
    }
    let span = Span::new(env.seed, 0, 10_000);
    for _ in 0..10 {
        let (sock, remote) = env.pair()?;
        sock.set_timeout(SO_RCVTIMEO, 20_000)?;
        remote.send_span(span, 9000)?;
        receive(&sock, span)?;
    }
    pages.bring(0, &[0; PAGE])?;
    for (sock, sender) in senders {
        // The bytes may have been sent, or it is too late for them, but the send ends.
        let _ = joined(sender)?;
        drop(sock);
    }
    Ok(())
}

/// If the socket gets another connection while a send sleeps, the send ends: the rest of its bytes
/// are not for the new peer.
fn send_ends_with_its_connection(env: &Env) -> Outcome {
    without_the_lock(env)?;
    let (sock, _other) = env.own_pair()?;
    let sock = Arc::new(sock);
    let pages = half_missing(env)?;
    let sender = send_both(&sock, &pages)?;
    pages.await_touch()?;
    let (listener, addr) = env.listener(1)?;
    sock.connect(&env.here(0).with_family(libc::AF_UNSPEC))?;
    sock.connect(&addr)?;
    let (second, _) = listener.accept()?;
    pages.bring(1, &page(env.seed, 1))?;
    let sent = joined(sender)?;
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    let stray = readable_bytes(&second)?;
    expect_eq(
        stray,
        0,
        format!("bytes of the former connection's send ({sent:?})"),
    )
}

/// If the socket gets another connection while a receive sleeps, the receive does not take the
/// bytes of the new peer.
fn receive_ends_with_its_connection(env: &Env) -> Outcome {
    without_the_lock(env)?;
    let (sock, other) = env.own_pair()?;
    let sock = Arc::new(sock);
    let pages = half_missing(env)?;
    send(&other, Span::new(env.seed, 0, 2 * PAGE as u64))?;
    eventually("bytes", || readable_bytes(&sock), |&n| n == 8192)?;
    let reader = {
        let (sock, pages) = (sock.clone(), pages.clone());
        // SAFETY: the area is used by nobody else until the thread is joined.
        flow::spawn(move || unsafe { sock.recv_raw(pages.at(0), 2 * PAGE, 0) })?
    };
    pages.await_touch()?;
    let (listener, addr) = env.listener(1)?;
    sock.connect(&env.here(0).with_family(libc::AF_UNSPEC))?;
    sock.connect(&addr)?;
    let (second, _) = listener.accept()?;
    let span = Span::new(env.seed + 1, 0, 100);
    send(&second, span)?;
    eventually("bytes", || readable_bytes(&sock), |&n| n == 100)?;
    pages.bring(1, &[0; PAGE])?;
    let got = joined(reader)?;
    let left = readable_bytes(&sock)?;
    expect_eq(left, 100, format!("bytes of the new connection ({got:?})"))
}
