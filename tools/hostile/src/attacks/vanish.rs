// SPDX-License-Identifier: GPL-2.0
//! Peers that suddenly disappear.

use super::Attack;
use crate::fail::{expect, Result, Step};
use crate::ffi;
use crate::session::{pattern, Ctx, Session};
use proto_host::proto::message::Body;
use std::time::Instant;

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "vanish.while_victim_sends",
        run: while_victim_sends,
    },
    Attack {
        name: "vanish.then_victim_closes",
        run: then_victim_closes,
    },
    Attack {
        name: "vanish.with_farewell_of_the_cm",
        run: with_farewell,
    },
];

/// The queue pair is destroyed, and the CM does not report this, so the victim's adapter gets no
/// more answers.
fn while_victim_sends(ctx: &Ctx) -> Result<()> {
    for _ in 0..2 {
        let mut session = Session::open_and_greet(ctx)?;
        session.peer.send(Body::Data, &pattern(13, 4000))?;
        session.victim.send(&pattern(14, 20_000))?;
        session.peer.pump()?;
        session.peer.queue = None;
        let end = Instant::now() + ctx.limit * 6;
        let errno = loop {
            match session.victim.send_some(&pattern(15, 5000)) {
                Err(e) if e.raw_os_error() != Some(libc::EAGAIN) => break e.raw_os_error(),
                _ => expect(Instant::now() < end, || "send() never fails".to_owned())?,
            }
        };
        let expected = [Some(libc::ETIMEDOUT), Some(libc::ECONNRESET)];
        expect(expected.contains(&errno), || {
            format!("send() failed with {errno:?}")
        })?;
        session.expect_only(&["timed_out", "reset_by_peer"])?;
        // Bytes that had arrived stay readable.
        let got = session.victim.recv(4000).step("bytes from before")?;
        expect(got == pattern(13, 4000), || "the bytes changed".to_owned())?;
    }
    Ok(())
}

/// close() returns without waiting, and the socket disappears later.
fn then_victim_closes(ctx: &Ctx) -> Result<()> {
    let mut session = Session::open_and_greet(ctx)?;
    session.peer.queue = None;
    session.victim.send(b"to nobody")?;
    let Session { victim, peer, .. } = session;
    let start = Instant::now();
    drop(victim);
    expect(start.elapsed() < ctx.limit, || "close() waited".to_owned())?;
    // The victim gives up the connection, and tells this side's CM.
    peer.id
        .await_kind(ffi::RDMA_CM_EVENT_DISCONNECTED, ctx.limit * 6)
}

/// The CM ends the connection in the middle of the stream.
fn with_farewell(ctx: &Ctx) -> Result<()> {
    for _ in 0..4 {
        let mut session = Session::open_and_greet(ctx)?;
        session.victim.send(&pattern(16, 30_000))?;
        session.peer.pump()?;
        let Session { victim, peer, .. } = session;
        drop(peer);
        let errno = victim.await_error(ctx.limit)?;
        expect(
            errno == libc::ECONNRESET || errno == libc::ETIMEDOUT,
            || format!("errno {errno}"),
        )?;
    }
    Ok(())
}
