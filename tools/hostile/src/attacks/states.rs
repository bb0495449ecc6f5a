// SPDX-License-Identifier: GPL-2.0
//! AbortConn in every state of the victim.

use super::Attack;
use crate::counters::moves;
use crate::fail::{expect, Result};
use crate::session::{sockets, Ctx, Session, Start, POSTED};
use proto_host::proto::bsdh::Mid;
use proto_host::proto::hello::Features;
use proto_host::proto::message::Body;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "abort.established",
        run: established,
    },
    Attack {
        name: "abort.at_once",
        run: at_once,
    },
    Attack {
        name: "abort.close_wait",
        run: close_wait,
    },
    Attack {
        name: "abort.fin_wait_1",
        run: fin_wait_1,
    },
    Attack {
        name: "abort.fin_wait_2",
        run: fin_wait_2,
    },
    Attack {
        name: "abort.last_ack",
        run: last_ack,
    },
    Attack {
        name: "abort.closing",
        run: closing,
    },
    Attack {
        name: "abort.draining",
        run: draining,
    },
    Attack {
        name: "abort.orphan",
        run: orphan,
    },
];

/// A peer that announces receives and posts none. The victim's messages stay in transit, so the
/// victim stays in its state.
const STUCK: Start = Start {
    bufs: POSTED,
    posted: 0,
    features: Features::NONE,
};

/// Waits until some socket of the module is in this state.
pub(super) fn await_state(ctx: &Ctx, name: &str) -> Result<()> {
    let end = Instant::now() + ctx.limit;
    loop {
        let text = sockets()?;
        if text
            .lines()
            .any(|line| line.split(' ').nth(2) == Some(name))
        {
            return Ok(());
        }
        expect(Instant::now() < end, || {
            format!("no socket is in {name}:\n{text}")
        })?;
        sleep(Duration::from_millis(5));
    }
}

fn abort(session: &mut Session) -> Result<()> {
    abort_as(session, libc::ECONNRESET)
}

/// Sends AbortConn, and expects that the victim's error is `errno`.
fn abort_as(session: &mut Session, errno: i32) -> Result<()> {
    session.peer.send(Body::AbortConn, &[])?;
    session.expect_death(errno, &moves(&[("reset_by_peer", 1)]))
}

fn established(ctx: &Ctx) -> Result<()> {
    abort(&mut Session::open_and_greet(ctx)?)
}

/// AbortConn is the very first message.
fn at_once(ctx: &Ctx) -> Result<()> {
    for _ in 0..4 {
        abort(&mut Session::open(ctx, &Start::default())?)?;
    }
    Ok(())
}

fn close_wait(ctx: &Ctx) -> Result<()> {
    let mut session = Session::open_and_greet(ctx)?;
    session.peer.send(Body::DisConn, &[])?;
    session.victim.expect_end()?;
    await_state(ctx, "CloseWait")?;
    // As in TCP, because the peer had shut its half.
    abort_as(&mut session, libc::EPIPE)
}

fn fin_wait_1(ctx: &Ctx) -> Result<()> {
    let mut session = Session::open(ctx, &STUCK)?;
    session.victim.shutdown()?;
    await_state(ctx, "FinWait1")?;
    abort(&mut session)
}

fn fin_wait_2(ctx: &Ctx) -> Result<()> {
    let mut session = Session::open_and_greet(ctx)?;
    session.victim.shutdown()?;
    session.peer.hear(Mid::DisConn)?;
    await_state(ctx, "FinWait2")?;
    abort(&mut session)
}

fn last_ack(ctx: &Ctx) -> Result<()> {
    let mut session = Session::open(ctx, &STUCK)?;
    session.peer.send(Body::DisConn, &[])?;
    session.victim.expect_end()?;
    session.victim.shutdown()?;
    await_state(ctx, "LastAck")?;
    abort(&mut session)
}

fn closing(ctx: &Ctx) -> Result<()> {
    let mut session = Session::open(ctx, &STUCK)?;
    session.victim.shutdown()?;
    await_state(ctx, "FinWait1")?;
    session.peer.send(Body::DisConn, &[])?;
    await_state(ctx, "Closing")?;
    abort(&mut session)
}

/// After the last message of an orderly end, AbortConn comes too late to matter.
fn draining(ctx: &Ctx) -> Result<()> {
    for _ in 0..4 {
        let mut session = Session::open_and_greet(ctx)?;
        session.victim.shutdown()?;
        session.peer.hear(Mid::DisConn)?;
        session.peer.send(Body::DisConn, &[])?;
        session.peer.send(Body::AbortConn, &[])?;
        session.peer.await_disconnect()?;
        session.expect_only(&["reset_by_peer"])?;
    }
    Ok(())
}

/// A closed socket whose last bytes the peer does not take.
fn orphan(ctx: &Ctx) -> Result<()> {
    let session = Session::open(ctx, &STUCK)?;
    session.victim.send(b"never taken")?;
    let Session {
        victim, mut peer, ..
    } = session;
    drop(victim);
    await_state(ctx, "FinWait1")?;
    peer.send(Body::AbortConn, &[])?;
    peer.await_disconnect()
}
