// SPDX-License-Identifier: GPL-2.0
//! Connection requests that are never completed.

use super::Attack;
use crate::cm::{Channel, Id};
use crate::counters::Counters;
use crate::fail::{expect, Result, Step};
use crate::ffi;
use crate::queue::QueuePair;
use crate::session::{
    hello, normal_connection, resolved, settle, sockets, Ctx, Session, Start, POSTED,
};
use crate::sock::Sock;
use std::fs;
use std::net::SocketAddrV4;
use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "pending.full_backlog",
        run: full_backlog,
    },
    Attack {
        name: "pending.held_shut",
        run: held_shut,
    },
    Attack {
        name: "pending.evicted",
        run: evicted,
    },
    Attack {
        name: "pending.limit_held_shut",
        run: limit_held_shut,
    },
    Attack {
        name: "pending.deferred_one_is_due",
        run: deferred_one_is_due,
    },
    Attack {
        name: "pending.deferred_one_is_due_among_requests",
        run: deferred_one_is_due_among_requests,
    },
    Attack {
        name: "pending.thousand",
        run: thousand,
    },
    Attack {
        name: "pending.abandoned",
        run: abandoned,
    },
    Attack {
        name: "pending.listener_closed",
        run: listener_closed,
    },
];

/// The time that the module gives a peer to complete a connection.
const HANDSHAKE: Duration = Duration::from_secs(20);

/// The number of sockets of the module.
fn count_sockets() -> Result<usize> {
    Ok(sockets()?.lines().count())
}

/// The number of a queue pair that does not exist. The victim's CM takes two requests with the same
/// queue pair for an error, so each request has its own number.
fn made_up_qp(addr: SocketAddrV4, n: usize) -> u32 {
    0x10_0000 + u32::from(addr.port() % 8192) * 1024 + n as u32
}

/// A request that stays half open as long as this value exists. The fields are dropped in this
/// order: the queue pair uses the id's device.
struct HalfOpen {
    _pair: Option<QueuePair>,
    _id: Id,
}

/// Sends `count` requests that stay half open as long as the values exist.
fn half_open(addr: SocketAddrV4, count: usize, limit: Duration) -> Result<Vec<HalfOpen>> {
    let channel = Channel::new()?;
    (0..count)
        .map(|n| half_open_one(&channel, addr, n, limit))
        .collect()
}

/// Sends one request that stays half open.
fn half_open_one(
    channel: &Rc<Channel>,
    addr: SocketAddrV4,
    n: usize,
    limit: Duration,
) -> Result<HalfOpen> {
    let id = Id::new(channel)?;
    // Events of earlier ids do not matter here: they are answers, which are not accepted.
    resolve_among_others(&id, addr, limit).step(&format!("request {n}"))?;
    request_nothing(id, addr, n).step(&format!("request {n}"))
}

/// Sends a request for the `n`-th connection, which this side does not complete. On iWARP, the CM
/// needs a queue pair and completes the connection, but this side does not send the first message.
fn request_nothing(id: Id, addr: SocketAddrV4, n: usize) -> Result<HalfOpen> {
    let pair = if id.is_iwarp() {
        Some(QueuePair::new(&id, 1, 1)?)
    } else {
        None
    };
    let number = pair
        .as_ref()
        .map_or_else(|| made_up_qp(addr, n), QueuePair::number);
    id.connect(&hello(POSTED).encode(), number)?;
    Ok(HalfOpen {
        _pair: pair,
        _id: id,
    })
}

/// As `Id::resolve`, on a channel that also receives answers to the requests of other ids.
fn resolve_among_others(id: &Id, addr: SocketAddrV4, limit: Duration) -> Result<()> {
    id.start_resolve(addr)?;
    id.await_kind(ffi::RDMA_CM_EVENT_ADDR_RESOLVED, limit)?;
    id.start_route()?;
    id.await_kind(ffi::RDMA_CM_EVENT_ROUTE_RESOLVED, limit)
}

fn await_true(what: &str, limit: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + limit;
    while !done()? {
        expect(Instant::now() < end, || format!("{what}: not in {limit:?}"))?;
        sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Whether a request has found the backlog full. The request waits for a place, or gets the place of
/// a request that is older than a second, if this machine needs so long to send them all.
fn found_no_place(before: &Counters) -> Result<bool> {
    let waited = before.since("request_waited")?;
    Ok(waited + before.since("evicted_half_open")? > 0)
}

/// A listener whose backlog is full of half-open requests is free again after the victim's timer
/// has ended them.
fn full_backlog(ctx: &Ctx) -> Result<()> {
    let addr = ctx.fresh();
    let listener = Sock::listen(addr, 4, ctx.limit)?;
    let before = Counters::read()?;
    let ids = half_open(addr, 16, ctx.limit)?;
    await_true("requests find no place", ctx.limit, || {
        found_no_place(&before)
    })?;
    let children = count_sockets()?;
    // Five have places, and as many wait for one. With iWARP, all wait.
    expect(children <= 12 || ctx.is_iwarp, || {
        format!("a backlog of 4 holds {children} sockets")
    })?;
    await_true(
        "the timer ends the half-open ones",
        HANDSHAKE + ctx.limit,
        || Ok(before.since("handshake_timeout")? >= 4),
    )?;
    expect(!listener.has_connection()?, || {
        "accept() would have a half-open connection".to_owned()
    })?;
    let here = Sock::connect(addr, ctx.limit * 4).step("a connection after them")?;
    let there = listener.accept(ctx.limit)?;
    drop(ids);
    here.send(b"free")?;
    expect(there.recv(4)? == b"free", || "other bytes".to_owned())
}

/// Half-open requests that fill the backlog do not keep others out until they end. A client waits
/// for a place, and gets that of a request that is older than a second.
fn held_shut(ctx: &Ctx) -> Result<()> {
    let addr = ctx.fresh();
    let listener = Sock::listen(addr, 4, ctx.limit)?;
    let before = Counters::read()?;
    let begin = Instant::now();
    // A backlog of 4 has 5 places.
    let ids = half_open(addr, 6, ctx.limit)?;
    await_true("a request finds no place", ctx.limit, || {
        found_no_place(&before)
    })?;
    let here = Sock::connect(addr, ctx.limit * 4).step("a connection beside them")?;
    let passed = begin.elapsed();
    expect(passed < HANDSHAKE, || {
        format!("the backlog was shut for {passed:?}")
    })?;
    expect(before.since("evicted_half_open")? > 0, || {
        "none was ended for it".to_owned()
    })?;
    let there = listener.accept(ctx.limit)?;
    here.send(b"free")?;
    expect(there.recv(4)? == b"free", || "other bytes".to_owned())?;
    await_true("the others end", HANDSHAKE + ctx.limit, || {
        Ok(before.since("handshake_timeout")? >= 6)
    })?;
    drop(ids);
    Ok(())
}

/// A half-open request that has lost its place ends then, also if the victim has not answered it
/// yet (`sdp_break` 512), and not only after the time for a handshake.
fn evicted(ctx: &Ctx) -> Result<()> {
    let addr = ctx.fresh();
    // With one place.
    let _listener = Sock::listen(addr, 0, ctx.limit)?;
    let before = Counters::read()?;
    let begin = Instant::now();
    let channel = Channel::new()?;
    let first = half_open_one(&channel, addr, 0, ctx.limit)?;
    await_true("a request is there", ctx.limit, || {
        Ok(before.since("request_received")? > 0)
    })?;
    // It may lose its place after a second. The victim may answer it only after two.
    sleep(Duration::from_millis(1300));
    let other = half_open_one(&channel, addr, 1, ctx.limit)?;
    await_true("a request has lost its place", ctx.limit, || {
        Ok(before.since("evicted_half_open")? > 0)
    })?;
    await_true("a request without a place ends", HANDSHAKE / 2, || {
        Ok(before.since("handshake_timeout")? > 0)
    })?;
    let passed = begin.elapsed();
    expect(passed < HANDSHAKE, || {
        format!("the first request may have ended after its time: {passed:?}")
    })?;
    drop((first, other));
    Ok(())
}

/// A lower limit of connections, which is restored when this value is dropped.
struct MaxConnections(String);

impl MaxConnections {
    const FILE: &str = "/proc/sys/net/sdp/max_connections";

    fn lowered_to(most: usize) -> Result<MaxConnections> {
        let before = fs::read_to_string(Self::FILE).step(Self::FILE)?;
        fs::write(Self::FILE, most.to_string()).step(Self::FILE)?;
        Ok(MaxConnections(before))
    }
}

impl Drop for MaxConnections {
    fn drop(&mut self) {
        // A failure shows in the attacks that follow.
        let _ = fs::write(Self::FILE, &self.0);
    }
}

/// Half-open requests that reach the limit of connections, although the backlog has places, do not
/// keep others out until they end.
fn limit_held_shut(ctx: &Ctx) -> Result<()> {
    settle(ctx)?;
    let addr = ctx.fresh();
    let listener = Sock::listen(addr, 64, ctx.limit)?;
    let _most = MaxConnections::lowered_to(4)?;
    let before = Counters::read()?;
    let begin = Instant::now();
    let ids = half_open(addr, 5, ctx.limit)?;
    await_true("a request finds the limit reached", ctx.limit, || {
        Ok(before.since("refused_max_connections")? > 0)
    })?;
    let mut session = Session::at_listener(ctx, &Start::default(), addr, &listener)
        .step("a connection beside them")?;
    let passed = begin.elapsed();
    expect(passed < HANDSHAKE, || {
        format!("the limit was reached for {passed:?}")
    })?;
    expect(before.since("evicted_half_open")? > 0, || {
        "none was ended for it".to_owned()
    })?;
    session.greet()?;
    drop(ids);
    Ok(())
}

/// The time in which a deferred connection that is due must get the place of a half-open one, which
/// is old after a second. It is shorter than the time after which the half-open one ends by itself.
const SOON: Duration = Duration::from_secs(12);

/// A listener with one place, and a connection that it defers, which takes no place.
fn with_deferred(addr: SocketAddrV4, ctx: &Ctx) -> Result<(Sock, Sock)> {
    let listener = Sock::listen(addr, 0, ctx.limit)?;
    listener.defer_accept(60)?;
    let here = Sock::connect(addr, ctx.limit)?;
    // The listener's end is the last to learn that the connection is made.
    sleep(Duration::from_secs(1));
    expect(!listener.has_connection()?, || {
        "a silent connection was not deferred".to_owned()
    })?;
    Ok((listener, here))
}

/// Expects that the connection of [`with_deferred`] has got the only place from a request, and that
/// its bytes have arrived.
fn has_got_place(listener: &Sock, before: &Counters, limit: Duration) -> Result<()> {
    let dropped = before.since("evicted_half_open")?;
    expect(dropped > 0, || "no half-open one was ended".to_owned())?;
    let there = listener.accept(limit)?;
    expect(there.recv(3)? == b"due", || "other bytes".to_owned())
}

/// Half-open requests that take all places do not keep out a deferred connection that has sent
/// something, even if no other request arrives for which one of them would be ended.
fn deferred_one_is_due(ctx: &Ctx) -> Result<()> {
    let addr = ctx.fresh();
    let (listener, here) = with_deferred(addr, ctx)?;
    let before = Counters::read()?;
    let ids = half_open(addr, 1, ctx.limit)?;
    sleep(Duration::from_millis(300));
    here.send(b"due")?;
    await_true("a deferred one has a place", SOON, || {
        listener.has_connection()
    })?;
    has_got_place(&listener, &before, ctx.limit)?;
    drop(ids);
    Ok(())
}

/// The same if such requests arrive all the time, because each of them is behind the deferred
/// connection.
fn deferred_one_is_due_among_requests(ctx: &Ctx) -> Result<()> {
    let addr = ctx.fresh();
    let (listener, here) = with_deferred(addr, ctx)?;
    let before = Counters::read()?;
    let channel = Channel::new()?;
    let mut ids = vec![half_open_one(&channel, addr, 0, ctx.limit)?];
    sleep(Duration::from_millis(300));
    here.send(b"due")?;
    await_true("a deferred one has a place", SOON, || {
        // Several requests arrive between two looks.
        for _ in 0..3 {
            ids.push(half_open_one(&channel, addr, ids.len(), ctx.limit)?);
        }
        listener.has_connection()
    })?;
    has_got_place(&listener, &before, ctx.limit)?;
    drop(ids);
    Ok(())
}

/// A thousand half-open requests at a time, all within the backlog. All of them end, and their
/// memory is freed.
fn thousand(ctx: &Ctx) -> Result<()> {
    let count = if ctx.is_iwarp {
        // Each request needs a queue pair of its own. The user-space driver of soft-iWARP
        // (rdma-core 56) fails to create the 49th completion queue of a process.
        40
    } else {
        1000 / ctx.every
    };
    let addr = ctx.fresh();
    let listener = Sock::listen(addr, 2000, ctx.limit)?;
    let idle = count_sockets()?;
    let before = Counters::read()?;
    let ids = half_open(addr, count, ctx.limit)?;
    // The first may have timed out before the last was sent.
    await_true("all requests arrive", ctx.limit, || {
        Ok(before.since("request_received")? >= count as u64)
    })?;
    await_true("the timer ends all", HANDSHAKE + ctx.limit * 2, || {
        Ok(count_sockets()? <= idle)
    })?;
    let ended = before.since("handshake_timeout")?;
    let no_memory = before.since("refused_no_memory")?;
    expect(ended + no_memory == count as u64, || {
        format!("{ended} timed out and {no_memory} were refused of {count}")
    })?;
    expect(ended >= count as u64 / 2, || {
        format!("only {ended} of {count} were half open")
    })?;
    expect(!listener.has_connection()?, || {
        "accept() would have a half-open connection".to_owned()
    })?;
    drop(ids);
    normal_connection(ctx)
}

/// Requests whose sender is gone before the answer arrives.
fn abandoned(ctx: &Ctx) -> Result<()> {
    let addr = ctx.fresh();
    let listener = Sock::listen(addr, 200, ctx.limit)?;
    let idle = count_sockets()?;
    let before = Counters::read()?;
    for round in 0..50 {
        let request = request_nothing(resolved(addr, ctx.limit)?, addr, round)?;
        if round % 2 == 1 {
            // Every second request is alive until the victim answers.
            sleep(Duration::from_millis(5));
        }
        drop(request);
    }
    await_true("the victim gives all up", HANDSHAKE + ctx.limit, || {
        Ok(count_sockets()? <= idle)
    })?;
    let illegal = before.since("illegal_transition")?;
    expect(illegal == 0, || {
        format!("{illegal} illegal state transitions")
    })?;
    // On iWARP the connection is up for a peer that has got the answer.
    expect(ctx.is_iwarp || !listener.has_connection()?, || {
        "accept() would have an abandoned connection".to_owned()
    })
}

/// The listener is closed while requests are half open.
fn listener_closed(ctx: &Ctx) -> Result<()> {
    let addr = ctx.fresh();
    let listener = Sock::listen(addr, 64, ctx.limit)?;
    let before = Counters::read()?;
    let idle = count_sockets()? - 1;
    let ids = half_open(addr, 20, ctx.limit)?;
    drop(listener);
    // A half-open connection does not occupy the port, as in TCP.
    drop(Sock::listen(addr, 64, ctx.limit).step("another listener at the port")?);
    await_true("all is given back", HANDSHAKE + ctx.limit, || {
        Ok(count_sockets()? <= idle)
    })?;
    drop(ids);
    let illegal = before.since("illegal_transition")?;
    expect(illegal == 0, || {
        format!("{illegal} illegal state transitions")
    })
}
