// SPDX-License-Identifier: GPL-2.0
//! No attacks, but tests of the honest side. They show that the results of the attacks are due to
//! the attacks.

use super::Attack;
use crate::fail::{expect, Result, Step};
use crate::session::{normal_connection, pattern, Ctx, Session, Start};
use proto_host::proto::bsdh::Mid;
use proto_host::proto::hello::{Features, RCV_SIZE_MAX, RCV_SIZE_MIN};
use proto_host::proto::message::Body;

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "control.normal_connection",
        run: normal_connection,
    },
    Attack {
        name: "control.to_listener",
        run: to_listener,
    },
    Attack {
        name: "control.from_connector",
        run: from_connector,
    },
    Attack {
        name: "control.receive_sizes",
        run: receive_sizes,
    },
    Attack {
        name: "control.larger_receives",
        run: larger_receives,
    },
];

fn to_listener(ctx: &Ctx) -> Result<()> {
    whole_life(Session::to_listener(ctx, &Start::default())?)
}

fn from_connector(ctx: &Ctx) -> Result<()> {
    whole_life(Session::from_connector(ctx, &Start::default())?)
}

/// Sends bytes in both directions, then ends both directions in an orderly way.
fn whole_life(mut session: Session) -> Result<()> {
    session.greet()?;
    let there = pattern(5, 30_011);
    session.victim.send(&there)?;
    expect(session.peer.take_bytes(there.len())? == there, || {
        "the victim's bytes changed".to_owned()
    })?;
    let back = pattern(6, 20_011);
    for part in back.chunks(1501) {
        session.peer.send(Body::Data, part)?;
    }
    expect(session.victim.recv(back.len())? == back, || {
        "our bytes changed".to_owned()
    })?;
    session.peer.send(Body::DisConn, &[])?;
    session.victim.expect_end()?;
    session.victim.shutdown()?;
    session.peer.hear(Mid::DisConn)?;
    session.peer.await_disconnect()?;
    session.expect_only(&[])
}

/// The smallest and the largest receive sizes that are permitted.
fn receive_sizes(ctx: &Ctx) -> Result<()> {
    for features in [Features::NONE, Features::SHRINK] {
        for size in [RCV_SIZE_MIN, 4096, RCV_SIZE_MAX] {
            let start = Start {
                features,
                ..Start::default()
            };
            let mut session = Session::open(ctx, &start)?;
            session.peer.send(Body::ChRcvBuf { size }, &[])?;
            session.greet().step(&format!("after ChRcvBuf {size}"))?;
            session.expect_only(&[])?;
        }
    }
    Ok(())
}

/// A peer that is asked for larger receives may answer that their size does not change.
fn larger_receives(ctx: &Ctx) -> Result<()> {
    let mut session = Session::open_and_greet(ctx)?;
    let bytes = pattern(7, 50_000);
    session.victim.send(&bytes)?;
    session.peer.until("ChRcvBuf", |p| {
        p.heard.iter().any(|b| b.mid() == Mid::ChRcvBuf)
    })?;
    session.peer.send(Body::ChRcvBufAck { size: 4096 }, &[])?;
    expect(session.peer.take_bytes(bytes.len())? == bytes, || {
        "the victim's bytes changed".to_owned()
    })?;
    session.expect_only(&[])
}
