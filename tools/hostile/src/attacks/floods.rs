// SPDX-License-Identifier: GPL-2.0
//! Floods of messages.

use super::{counter, Attack};
use crate::counters::moves;
use crate::fail::{expect, Result, Step};
use crate::peer::wire;
use crate::session::{pattern, Ctx, Session, Start};
use proto_host::proto::bsdh::{Bsdh, Mid, BSDH_LEN};
use proto_host::proto::hello::Features;
use proto_host::proto::message::Body;
use proto_host::proto::violation::Violation;
use std::io;

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "flood.updates",
        run: updates,
    },
    Attack {
        name: "flood.small_data",
        run: small_data,
    },
    Attack {
        name: "flood.receive_questions",
        run: receive_questions,
    },
    Attack {
        name: "flood.without_credits",
        run: without_credits,
    },
    Attack {
        name: "flood.unread",
        run: unread,
    },
];

/// Very many credit updates, each within the rules. The victim has no reason to abort, nor to send
/// as many updates.
fn updates(ctx: &Ctx) -> Result<()> {
    let mut session = Session::open_and_greet(ctx)?;
    for _ in 0..2000 / ctx.every {
        session.peer.send(Body::Data, &[])?;
    }
    session.greet().step("after the flood")?;
    session.expect_only(&[])
}

/// More messages of one byte than the victim has receives. The victim reads all of them.
fn small_data(ctx: &Ctx) -> Result<()> {
    let mut session = Session::open_and_greet(ctx)?;
    let bytes = pattern(11, 4000 / ctx.every);
    for part in bytes.chunks(1) {
        session.peer.send(Body::Data, part)?;
    }
    expect(session.victim.recv(bytes.len())? == bytes, || {
        "the bytes changed".to_owned()
    })?;
    session.greet().step("after the flood")?;
    session.expect_only(&[])
}

/// Many requests for other receive sizes.
fn receive_questions(ctx: &Ctx) -> Result<()> {
    for features in [Features::NONE, Features::SHRINK] {
        questions(ctx, features)?;
    }
    Ok(())
}

fn questions(ctx: &Ctx, features: Features) -> Result<()> {
    let start = Start {
        features,
        ..Start::default()
    };
    let mut session = Session::open(ctx, &start)?;
    session.greet()?;
    for n in 0..400 / ctx.every as u32 {
        let size = 512 + (n * 7919) % ((1 << 20) - 512);
        session.peer.send(Body::ChRcvBuf { size }, &[])?;
    }
    session.greet().step("after the flood")?;
    session.expect_only(&[])
}

/// Messages of one byte each, without regard to the victim's credits, and without new credits for
/// the victim. Soon the victim cannot announce receives any more.
fn without_credits(ctx: &Ctx) -> Result<()> {
    for _ in 0..2 {
        let start = Start {
            bufs: 5,
            posted: 5,
            features: Features::NONE,
        };
        let mut session = Session::open(ctx, &start)?;
        let peer = &mut session.peer;
        peer.gives_credits = false;
        peer.is_deaf = true;
        // The announcement of this side's last message, or else that of its private data.
        let last = match peer.last {
            last if last.mseq > 0 => last,
            first => Bsdh { bufs: 5, ..first },
        };
        for mseq in last.mseq + 1..=400u32 {
            let header = Bsdh {
                len: 17,
                mseq,
                mseq_ack: last.mseq_ack,
                bufs: last.bufs,
                ..data_header()
            };
            peer.send_raw(&wire(&header, Body::Data, b"x"))?;
            // Send one message after the other, so that the victim can post its receives again.
            peer.finish_sends()?;
            if peer.is_over() {
                break;
            }
        }
        let why = Violation::CreditOverrun;
        let counted = moves(&[("aborted_violation", 1), (&counter(why), 1)]);
        session.expect_death(libc::EPROTO, &counted)?;
    }
    Ok(())
}

const fn data_header() -> Bsdh {
    Bsdh {
        mid: Mid::Data,
        flags: 0,
        bufs: 0,
        len: 0,
        mseq: 0,
        mseq_ack: 0,
    }
}

/// Full messages to a victim that does not read, first within the credits, then beyond them. Either
/// the adapter refuses the messages beyond the credits, or the victim does.
fn unread(ctx: &Ctx) -> Result<()> {
    let mut session = Session::open(ctx, &Start::default())?;
    let size = session.victim_rcv_size as usize;
    let full = pattern(12, size);
    let peer = &mut session.peer;
    let mut within = 0usize;
    // The victim takes as many bytes as fit into its receive buffer, and then gives no more
    // credits.
    while peer.until_credits(Body::Data, size)? {
        peer.send(Body::Data, &full)?;
        within += 1;
        expect(within * size < 64 << 20, || {
            "64 MiB went to a victim that does not read".to_owned()
        })?;
    }
    // No other message may be sent in between, because the sequence numbers are made here.
    peer.gives_credits = false;
    peer.is_deaf = true;
    let mut header = Bsdh {
        len: (BSDH_LEN + size) as u32,
        ..peer.last
    };
    for _ in 0..64 {
        header.mseq += 1;
        peer.send_with(&header, Body::Data, &full)?;
    }
    peer.finish_sends()?;
    let refused = peer.broken.is_some();
    if refused {
        // The victim has noticed nothing, so this side has to end the connection.
        let _ = peer.id.disconnect();
    }
    let errno = session.victim.await_error(ctx.limit)?;
    expect(
        errno
            == if refused {
                libc::ECONNRESET
            } else {
                libc::EPROTO
            }
            || errno == libc::EPROTO,
        || format!("errno {errno}, refused by the adapter: {refused}"),
    )?;
    session.expect_only(&[
        "aborted_violation",
        "violation_CreditOverrun",
        "reset_by_peer",
    ])?;
    // The bytes that were received before stay readable, and are right.
    let mut got = vec![0; size];
    for n in 0..within {
        let mut at = 0;
        while at < size {
            match session.victim.recv_some(&mut got[at..]) {
                Ok(more) if more > 0 => at += more,
                other => return lost(n, within, &other),
            }
        }
        expect(got == full, || {
            format!("message {n} of {within} has changed")
        })?;
    }
    Ok(())
}

fn lost(n: usize, within: usize, how: &io::Result<usize>) -> Result<()> {
    expect(false, || {
        format!("message {n} of {within} was taken and is lost: {how:?}")
    })
}
