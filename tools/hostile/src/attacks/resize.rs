// SPDX-License-Identifier: GPL-2.0
//! Receives that grow because the peer asks for this, and the duties of the peer when they are to
//! shrink again.

use super::{counter, Attack};
use crate::counters::moves;
use crate::fail::{expect, Result, Step};
use crate::session::{pattern, Ctx, Session, Start, POSTED};
use proto_host::proto::bsdh::Class;
use proto_host::proto::hello::{Features, BUFS_MIN};
use proto_host::proto::message::Body;
use proto_host::proto::violation::Violation;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "resize.keeps_the_rules",
        run: keeps_the_rules,
    },
    Attack {
        name: "resize.asks_and_is_silent",
        run: asks_and_is_silent,
    },
    Attack {
        name: "resize.uses_nothing_up",
        run: uses_nothing_up,
    },
    Attack {
        name: "resize.gives_no_credits",
        run: gives_no_credits,
    },
    Attack {
        name: "resize.makes_the_victim_use_up",
        run: makes_the_victim_use_up,
    },
    Attack {
        name: "resize.knows_no_smaller_ones",
        run: knows_no_smaller_ones,
    },
];

/// The receive size for which the peer asks.
const LARGE: u32 = 1 << 17;
/// The time after which the module reduces its receives, and the time that it then gives a peer to
/// do its part.
const IDLE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);

/// A first number of net.sdp.mem that leaves no room for larger receives; dropping the value
/// restores the old setting. Only without room does the module end a connection whose peer does not
/// let the receives shrink.
struct NoRoom(String);

const MEM: &str = "/proc/sys/net/sdp/mem";

impl NoRoom {
    fn new() -> Result<NoRoom> {
        let before = fs::read_to_string(MEM).step(MEM)?;
        fs::write(MEM, "3 4000000 6000000").step(MEM)?;
        Ok(NoRoom(before))
    }
}

impl Drop for NoRoom {
    fn drop(&mut self) {
        // An error cannot be handled here; the next test would show it.
        let _ = fs::write(MEM, &self.0);
    }
}

/// A connection whose victim has posted larger receives, and the initial size.
fn grown(ctx: &Ctx) -> Result<(Session, u32)> {
    let start = Start {
        features: Features::SHRINK,
        ..Start::default()
    };
    let mut session = Session::open(ctx, &start)?;
    session.greet()?;
    let first = session.victim_rcv_size;
    session.peer.send(Body::ChRcvBuf { size: LARGE }, &[])?;
    // The answer arrives when the last of the small receives is used.
    let size = loop {
        if let Some(size) = told(&mut session)? {
            break size;
        }
        session.peer.send(Body::Data, &[1])?;
        session.victim.recv(1)?;
    };
    expect(size > first, || {
        format!("receives grew from {first} to {size}")
    })?;
    // From here on, all posted receives are large.
    session.peer.send(Body::Data, &[1])?;
    session.victim.recv(1)?;
    Ok((session, first))
}

/// The size that the victim has announced, if it has done so.
fn told(session: &mut Session) -> Result<Option<u32>> {
    session.peer.pump()?;
    let heard = std::mem::take(&mut session.peer.heard);
    Ok(heard.iter().rev().find_map(|body| match *body {
        Body::ChRcvBufAck { size } => Some(size),
        _ => None,
    }))
}

/// Waits until the victim announces receives that are no larger than at first.
fn shrunk(session: &mut Session, ctx: &Ctx, first: u32) -> Result<()> {
    let end = Instant::now() + IDLE + ctx.limit;
    let size = loop {
        if let Some(size) = told(session)? {
            break size;
        }
        expect(Instant::now() < end, || {
            "the receives do not shrink".to_owned()
        })?;
        sleep(Duration::from_millis(20));
    };
    expect(size <= first, || {
        format!("receives shrank to {size}, not {first}")
    })
}

/// Handles the events of the connection for this time.
fn wait(session: &mut Session, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end && !session.peer.is_over() {
        session.peer.pump()?;
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Sends a message without payload for each credit.
fn use_up(session: &mut Session) -> Result<()> {
    for _ in 0..session.peer.credits.available() {
        session.peer.send(Body::Data, &[])?;
    }
    Ok(())
}

/// Waits until the victim's receives take no more memory than at first.
fn takes_little(session: &Session, ctx: &Ctx, first: u32) -> Result<()> {
    let end = Instant::now() + ctx.limit;
    loop {
        let bytes = session.victim.receive_memory()?;
        if bytes <= u32::from(BUFS_MIN) * first {
            return Ok(());
        }
        expect(Instant::now() < end, || {
            format!("the victim's receives take {bytes} bytes")
        })?;
        sleep(Duration::from_millis(20));
    }
}

/// A peer that uses up the larger receives with empty messages keeps its connection.
fn keeps_the_rules(ctx: &Ctx) -> Result<()> {
    let (mut session, first) = grown(ctx)?;
    let bytes = session.victim.receive_memory()?;
    expect(bytes > 8 * u32::from(BUFS_MIN) * first, || {
        format!("the victim's receives take only {bytes} bytes")
    })?;
    shrunk(&mut session, ctx, first)?;
    use_up(&mut session)?;
    takes_little(&session, ctx, first)?;
    session.greet().step("after the receives have shrunk")?;
    expect(session.since("receives_shrunk")? == 1, || {
        "the receives have not shrunk once".to_owned()
    })?;
    session.expect_only(&[])
}

/// If the peer asks for larger receives and then sends nothing, the receives shrink again.
fn asks_and_is_silent(ctx: &Ctx) -> Result<()> {
    let start = Start {
        features: Features::SHRINK,
        ..Start::default()
    };
    let mut session = Session::open(ctx, &start)?;
    let first = session.victim_rcv_size;
    session.peer.send(Body::ChRcvBuf { size: LARGE }, &[])?;
    let end = Instant::now() + ctx.limit;
    loop {
        wait(&mut session, Duration::from_millis(20))?;
        let bytes = session.victim.receive_memory()?;
        if bytes > 8 * u32::from(BUFS_MIN) * first {
            break;
        }
        expect(Instant::now() < end, || {
            format!("the victim's receives take only {bytes} bytes")
        })?;
    }
    shrunk(&mut session, ctx, first)?;
    use_up(&mut session)?;
    takes_little(&session, ctx, first)?;
    session.greet().step("after the growth was taken back")?;
    session.expect_only(&[])
}

/// A peer that does not use up the larger receives, and asks for larger ones again, loses the
/// connection when others need the memory.
fn uses_nothing_up(ctx: &Ctx) -> Result<()> {
    let (mut session, first) = grown(ctx)?;
    shrunk(&mut session, ctx, first)?;
    let size = ask(&mut session, ctx)?;
    expect(size <= first, || format!("the receives grew to {size}"))?;
    let _no_room = NoRoom::new()?;
    wait(&mut session, PATIENCE - Duration::from_secs(5))?;
    expect(!session.peer.is_over(), || {
        "the victim does not wait".to_owned()
    })?;
    wait(&mut session, Duration::from_secs(5))?;
    let why = counter(Violation::ReceivesNotUsedUp);
    session.expect_death(libc::EPROTO, &moves(&[("aborted_violation", 1), (&why, 1)]))
}

/// A peer that gives no credits, so that the victim cannot announce smaller receives, loses the
/// connection, too.
fn gives_no_credits(ctx: &Ctx) -> Result<()> {
    let (mut session, _) = grown(ctx)?;
    session.peer.gives_credits = false;
    for _ in 0..3 * POSTED {
        session.peer.pump()?;
        if session.peer.credits.may_send(Class::Control) {
            session.peer.send(Body::ChRcvBuf { size: LARGE }, &[])?;
        }
        sleep(Duration::from_millis(5));
    }
    let _no_room = NoRoom::new()?;
    wait(&mut session, IDLE + PATIENCE - Duration::from_secs(5))?;
    session.expect_death(libc::ETIMEDOUT, &moves(&[("timed_out", 1)]))
}

/// The victim does its part when the peer's receives shrink. It accepts only sizes of at most half
/// of the former size.
fn makes_the_victim_use_up(ctx: &Ctx) -> Result<()> {
    let start = Start {
        features: Features::SHRINK,
        ..Start::default()
    };
    let mut session = Session::open(ctx, &start)?;
    session.greet()?;
    session.peer.pump()?;
    session.peer.heard.clear();
    session.peer.send(Body::ChRcvBufAck { size: 2048 }, &[])?;
    let is_empty = |body: &&Body| **body == Body::Data;
    session
        .peer
        .until("messages that use receives up", |peer| {
            peer.heard.iter().filter(is_empty).count() + 2 >= usize::from(POSTED)
        })?;
    session.greet().step("after the victim has used them up")?;
    let bytes = pattern(7, 50_000);
    session.victim.send(&bytes)?;
    expect(session.peer.take_bytes(bytes.len())? == bytes, || {
        "the victim's bytes changed".to_owned()
    })?;
    session.peer.send(Body::ChRcvBufAck { size: 1025 }, &[])?;
    let why = counter(Violation::BadReceiveSize);
    session.expect_death(libc::EPROTO, &moves(&[("aborted_violation", 1), (&why, 1)]))
}

/// If the peer does not know that receives may shrink, the victim's receives do not grow.
fn knows_no_smaller_ones(ctx: &Ctx) -> Result<()> {
    let mut session = Session::open_and_greet(ctx)?;
    let first = session.victim_rcv_size;
    let size = ask(&mut session, ctx)?;
    expect(size == first, || format!("the receives grew to {size}"))
}

/// Asks for larger receives; returns the size in the answer, which arrives at once.
fn ask(session: &mut Session, ctx: &Ctx) -> Result<u32> {
    session.peer.send(Body::ChRcvBuf { size: LARGE }, &[])?;
    let end = Instant::now() + ctx.limit;
    loop {
        if let Some(size) = told(session)? {
            return Ok(size);
        }
        expect(Instant::now() < end, || {
            "the question is not answered".to_owned()
        })?;
        sleep(Duration::from_millis(5));
    }
}
