// SPDX-License-Identifier: GPL-2.0
//! Answers that a connecting victim must refuse.

use super::hello::{common_fields, patched, wrong_identifiers, wrong_lengths, Patch};
use super::{counter, each, Attack};
use crate::cm::{Channel, Id};
use crate::counters::{moves, Counters, Moves};
use crate::fail::{expect, Result};
use crate::ffi;
use crate::peer::Peer;
use crate::session::{hello_ack, normal_connection, pattern, request, Ctx, Session, Start, POSTED};
use crate::sock::Sock;
use proto_host::proto::bsdh::Mid;
use proto_host::proto::hello::{Features, Refusal, HELLO_ACK_LEN, HELLO_ACK_ROOM};
use proto_host::proto::violation::Violation;
use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "hello_ack.fields",
        run: fields,
    },
    Attack {
        name: "hello_ack.lengths",
        run: lengths,
    },
    Attack {
        name: "hello_ack.identifiers",
        run: identifiers,
    },
    Attack {
        name: "hello_ack.unknown_features",
        run: unknown_features,
    },
    Attack {
        name: "hello_ack.empty",
        run: empty,
    },
    Attack {
        name: "hello_ack.rejections",
        run: rejections,
    },
    Attack {
        name: "hello_ack.silence",
        run: silence,
    },
    Attack {
        name: "hello_ack.disconnect_at_once",
        run: disconnect_at_once,
    },
    Attack {
        name: "hello_ack.no_answer",
        run: no_answer,
    },
];

fn valid() -> Vec<u8> {
    hello_ack(POSTED).encode().to_vec()
}

fn fields(ctx: &Ctx) -> Result<()> {
    let mut cases = common_fields();
    cases.push((
        "reserved ipv_cap".to_owned(),
        ((21, vec![0x40]), Violation::BadBody),
    ));
    each(ctx, cases, refused)
}

fn lengths(ctx: &Ctx) -> Result<()> {
    each(ctx, wrong_lengths(HELLO_ACK_LEN, HELLO_ACK_ROOM), refused)
}

fn identifiers(ctx: &Ctx) -> Result<()> {
    each(ctx, wrong_identifiers(Mid::HelloAck.wire()), refused)
}

fn empty(ctx: &Ctx) -> Result<()> {
    refused_bytes(ctx, &[], Violation::LengthMismatch)
}

fn refused(ctx: &Ctx, (patch, why): (Patch, Violation)) -> Result<()> {
    refused_bytes(ctx, &patched(valid(), &patch), why)
}

fn refused_bytes(ctx: &Ctx, ack: &[u8], why: Violation) -> Result<()> {
    let counted = moves(&[("aborted_violation", 1), (&counter(why), 1)]);
    let (mut peer, victim) = answered(ctx, ack, libc::EPROTO, &counted)?;
    // The other side must not be left with half a connection.
    peer.await_disconnect()?;
    drop(victim);
    Ok(())
}

/// Accepts a victim's request with these bytes. Expects that the victim's connect() ends with
/// `errno`, and that these counters change.
fn answered(ctx: &Ctx, ack: &[u8], errno: i32, counted: &Moves) -> Result<(Peer, Sock)> {
    let addr = ctx.fresh();
    let listener = Id::new(&Channel::new()?)?;
    listener.listen(addr)?;
    let before = Counters::read()?;
    let victim = Sock::start_connect(addr)?;
    let (id, _) = request(&listener, ctx.limit)?;
    let peer = Peer::new(id, usize::from(POSTED), ctx.limit)?;
    let number = peer.ready()?;
    peer.id.accept(ack, number)?;
    let got = victim.end_connect(ctx.limit)?;
    expect(got == errno, || {
        format!("connect() ended with {got} instead of {errno}")
    })?;
    before.expect(counted, ctx.limit)?;
    Ok((peer, victim))
}

/// Unknown bits count as not set.
fn unknown_features(ctx: &Ctx) -> Result<()> {
    let ack = patched(valid(), &(24, 0xffff_fff0_u32.to_be_bytes().to_vec()));
    answered(ctx, &ack, 0, &Moves::new()).map(|_| ())
}

/// A rejection ends connect() at once, whatever its private data contains.
fn rejections(ctx: &Ctx) -> Result<()> {
    let mut cases: Vec<(String, Vec<u8>)> = [0, 1, 15, 16, 17, 148]
        .into_iter()
        .map(|len| (format!("{len} random bytes"), pattern(9, len)))
        .collect();
    for reason in Refusal::ALL {
        cases.push((reason.name().to_owned(), reason.encode().to_vec()));
    }
    for reason in [0, 9, 255] {
        let bytes = patched(Refusal::NoListener.encode().to_vec(), &(5, vec![reason]));
        cases.push((format!("reason {reason}"), bytes));
    }
    each(ctx, cases, |ctx, private| {
        let addr = ctx.fresh();
        let listener = Id::new(&Channel::new()?)?;
        listener.listen(addr)?;
        let before = Counters::read()?;
        let victim = Sock::start_connect(addr)?;
        let (id, _) = request(&listener, ctx.limit)?;
        id.reject(&private)?;
        let errno = victim.end_connect(ctx.limit)?;
        // With TCP, nobody answers the request of a client that finds the backlog full.
        let wanted = match private == Refusal::BacklogFull.encode() {
            true => libc::ETIMEDOUT,
            false => libc::ECONNREFUSED,
        };
        expect(errno == wanted, || {
            format!("connect() ended with {errno} instead of {wanted}")
        })?;
        before.expect(&Moves::new(), Duration::ZERO)
    })
}

/// Accepts, and then neither sends nor receives anything. The victim's sends stop, but do not hang,
/// and the victim can close.
fn silence(ctx: &Ctx) -> Result<()> {
    let start = Start {
        bufs: POSTED,
        posted: 0,
        features: Features::NONE,
    };
    let session = Session::from_connector(ctx, &start)?;
    session.victim.limit_waits(Duration::from_secs(1))?;
    let bytes = pattern(10, 1 << 16);
    let mut sent = 0usize;
    let errno = loop {
        match session.victim.send_some(&bytes) {
            Ok(n) => sent += n,
            Err(e) => break e.raw_os_error(),
        }
        expect(sent < 64 << 20, || {
            "the victim keeps 64 MiB for a silent peer".to_owned()
        })?;
    };
    expect(errno == Some(libc::EAGAIN), || {
        format!("send() ended with {errno:?}")
    })?;
    session.expect_only(&[])?;
    drop(session.victim);
    drop(session.peer);
    normal_connection(ctx)
}

fn disconnect_at_once(ctx: &Ctx) -> Result<()> {
    for round in 0..10 {
        let addr = ctx.fresh();
        let listener = Id::new(&Channel::new()?)?;
        listener.listen(addr)?;
        let before = Counters::read()?;
        let victim = Sock::start_connect(addr)?;
        let (id, _) = request(&listener, ctx.limit)?;
        let peer = Peer::new(id, usize::from(POSTED), ctx.limit)?;
        let number = peer.ready()?;
        peer.id.accept(&valid(), number)?;
        // The CM may not know the connection yet, because the victim's message has not arrived.
        let _ = peer.id.disconnect();
        drop(peer);
        let mut errno = victim.end_connect(ctx.limit)?;
        if errno == 0 {
            errno = victim.await_error(ctx.limit)?;
        }
        let expected = [libc::ECONNRESET, libc::ECONNREFUSED, libc::ETIMEDOUT];
        expect(expected.contains(&errno), || {
            format!("round {round}: errno {errno}")
        })?;
        let moved = before.moved()?;
        let harmless = |name: &str| name == "reset_by_peer" || name == "timed_out";
        expect(moved.iter().all(|(name, _)| harmless(name)), || {
            format!("counters: {moved:?}")
        })?;
    }
    Ok(())
}

/// Takes the request and never answers. close() must not wait for an answer, and an answer after
/// close() must not make a connection.
fn no_answer(ctx: &Ctx) -> Result<()> {
    let addr = ctx.fresh();
    let listener = Id::new(&Channel::new()?)?;
    listener.listen(addr)?;
    let victim = Sock::start_connect(addr)?;
    let (id, _) = request(&listener, ctx.limit)?;
    sleep(Duration::from_secs(1));
    expect(victim.is_connecting()?, || {
        "connect() has ended without an answer".to_owned()
    })?;
    drop(victim);
    // Each step may fail by now; none may lead to a connection.
    let channel = Rc::clone(&id.channel);
    if let Ok(peer) = Peer::new(id, usize::from(POSTED), ctx.limit) {
        if let Ok(number) = peer.ready() {
            let _ = peer.id.accept(&valid(), number);
        }
        sleep(Duration::from_secs(1));
    }
    let event = channel.next(Duration::ZERO)?;
    expect(
        event.is_none_or(|e| e.kind != ffi::RDMA_CM_EVENT_ESTABLISHED),
        || "a connection was established with a closed socket".to_owned(),
    )
}
