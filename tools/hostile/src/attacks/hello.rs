// SPDX-License-Identifier: GPL-2.0
//! Requests that a listening victim must refuse.

use super::{counter, each, Attack};
use crate::counters::{moves, Counters};
use crate::fail::{expect, Fail, Result, Step};
use crate::ffi;
use crate::queue::Queue;
use crate::session::{hello, pattern, resolved, Ctx, POSTED};
use crate::sock::Sock;
use proto_host::proto::hello::{Refusal, HELLO_LEN, HELLO_ROOM};
use proto_host::proto::violation::Violation;
use std::net::{Ipv4Addr, SocketAddrV4};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "hello.fields",
        run: fields,
    },
    Attack {
        name: "hello.lengths",
        run: lengths,
    },
    Attack {
        name: "hello.identifiers",
        run: identifiers,
    },
    Attack {
        name: "hello.empty",
        run: empty,
    },
    Attack {
        name: "hello.noise",
        run: noise,
    },
    Attack {
        name: "hello.random_nonce",
        run: random_nonce,
    },
];

/// The reason of a rejection by the user of the CM.
const CONSUMER_DEFINED: i32 = 28;

/// A change of a valid message: bytes that are put at an offset.
pub(super) type Patch = (usize, Vec<u8>);

pub(super) fn patched(mut bytes: Vec<u8>, patch: &Patch) -> Vec<u8> {
    bytes[patch.0..patch.0 + patch.1.len()].copy_from_slice(&patch.1);
    bytes
}

/// Changes that are wrong both in a Hello and in a HelloAck.
pub(super) fn common_fields() -> Vec<(String, (Patch, Violation))> {
    use Violation as V;
    let be32 = |n: u32| n.to_be_bytes().to_vec();
    let mut cases = vec![
        ("magic of a refusal", 16, b"nSDP".to_vec(), V::BadMagic),
        ("no magic", 16, vec![0; 4], V::BadMagic),
        ("version 0", 20, vec![0], V::BadVersion),
        ("version 2", 20, vec![2], V::BadVersion),
        ("version 4", 20, vec![4], V::BadVersion),
        ("version 255", 20, vec![255], V::BadVersion),
        ("no adverts", 22, vec![0], V::NoAdverts),
        ("reserved byte", 23, vec![1], V::BadBody),
        ("size 0", 28, be32(0), V::BadReceiveSize),
        ("size 511", 28, be32(511), V::BadReceiveSize),
        ("size 2^20+1", 28, be32((1 << 20) + 1), V::BadReceiveSize),
        ("size 2^32-1", 28, be32(u32::MAX), V::BadReceiveSize),
        ("0 receives", 2, vec![0, 0], V::TooFewBuffers),
        ("4 receives", 2, vec![0, 4], V::TooFewBuffers),
        ("mseq 1", 8, be32(1), V::BadSequence),
        ("mseq 2^32-1", 8, be32(u32::MAX), V::BadSequence),
        ("mseq_ack 1", 12, be32(1), V::BadSequence),
        ("flag OOB_PRES", 1, vec![1], V::BadFlags),
        ("flag OOB_PEND", 1, vec![2], V::BadFlags),
        ("flag REQ_PIPE", 1, vec![4], V::BadFlags),
        ("reserved flag", 1, vec![8], V::BadFlags),
        ("all flags", 1, vec![255], V::BadFlags),
    ];
    cases.push(("all ones in the magic", 16, vec![255; 4], V::BadMagic));
    cases
        .into_iter()
        .map(|(name, at, bytes, why)| (name.to_owned(), ((at, bytes), why)))
        .collect()
}

/// Wrong lengths in the header of a message that has `len` bytes. The victim looks at `room` bytes
/// of it.
pub(super) fn wrong_lengths(len: usize, room: usize) -> Vec<(String, (Patch, Violation))> {
    use Violation as V;
    let len = len as u32;
    let room = room as u32;
    [
        (0, V::LengthMismatch),
        (15, V::LengthMismatch),
        (16, V::BadMagic),
        (19, V::BadMagic),
        (20, V::ShortMessage),
        (21, V::LengthMismatch),
        (len - 1, V::LengthMismatch),
        (len + 1, V::LengthMismatch),
        (room, V::LengthMismatch),
        (room + 1, V::LengthMismatch),
        (1 << 31, V::LengthMismatch),
        (u32::MAX, V::LengthMismatch),
    ]
    .into_iter()
    .map(|(n, why)| (format!("length {n}"), ((4, n.to_be_bytes().to_vec()), why)))
    .collect()
}

/// Every identifier but `own`.
pub(super) fn wrong_identifiers(own: u8) -> Vec<(String, (Patch, Violation))> {
    use proto_host::proto::bsdh::Mid;
    (0..=255u8)
        .filter(|mid| *mid != own)
        .map(|mid| {
            let why = match Mid::from_wire(mid) {
                Some(_) => Violation::UnexpectedMid,
                None => Violation::UnknownMid,
            };
            (format!("mid {mid:#04x}"), ((0, vec![mid]), why))
        })
        .collect()
}

fn valid() -> Vec<u8> {
    hello(POSTED).encode().to_vec()
}

fn fields(ctx: &Ctx) -> Result<()> {
    let mut cases = common_fields();
    for (name, at, bytes) in [
        ("ipv_cap 0", 21, vec![0]),
        ("ipv_cap of neither", 21, vec![0x50]),
        ("source port 0", 40, vec![0, 0]),
        ("reserved end", 42, vec![0, 1]),
    ] {
        cases.push((name.to_owned(), ((at, bytes), Violation::BadBody)));
    }
    each(ctx, cases, refused)
}

fn lengths(ctx: &Ctx) -> Result<()> {
    each(ctx, wrong_lengths(HELLO_LEN, HELLO_ROOM), refused)
}

fn identifiers(ctx: &Ctx) -> Result<()> {
    each(ctx, wrong_identifiers(0), refused)
}

fn empty(ctx: &Ctx) -> Result<()> {
    // The CM fills missing bytes with zeros.
    refused_bytes(ctx, &[], Violation::LengthMismatch)?;
    refused_bytes(ctx, &[0], Violation::LengthMismatch).step("one byte")?;
    refused_bytes(ctx, &valid()[..16], Violation::BadMagic).step("only the header")
}

fn refused(ctx: &Ctx, (patch, why): (Patch, Violation)) -> Result<()> {
    refused_bytes(ctx, &patched(valid(), &patch), why)
}

/// Expects that a listening victim refuses the request, and reports and counts the reason.
fn refused_bytes(ctx: &Ctx, private: &[u8], why: Violation) -> Result<()> {
    let addr = ctx.fresh();
    let listener = Sock::listen(addr, 4, ctx.limit)?;
    let before = Counters::read()?;
    let answer = rejection(ctx, addr, private)?;
    expect(tells(ctx, answer, Refusal::of(why)), || {
        format!("the answer is {answer:?} instead of {:?}", Refusal::of(why))
    })?;
    before.expect(
        &moves(&[("refused_bad_hello", 1), (&counter(why), 1)]),
        ctx.limit,
    )?;
    expect(!listener.has_connection()?, || {
        "accept() would have a connection".to_owned()
    })
}

/// Sends a request that must be rejected; returns the reason that came with it.
fn rejection(ctx: &Ctx, addr: SocketAddrV4, private: &[u8]) -> Result<Option<Refusal>> {
    let id = resolved(addr, ctx.limit)?;
    let queue = Queue::new(&id)?;
    id.connect(private, queue.number())?;
    let event = id.expect(ffi::RDMA_CM_EVENT_REJECTED, ctx.limit)?;
    // iWARP does not tell rejections by the CM from those by its user.
    expect(id.is_iwarp() || event.status == CONSUMER_DEFINED, || {
        format!("rejected by the CM itself, with status {}", event.status)
    })?;
    Ok(Refusal::decode(&event.private))
}

/// Whether the answer to a request has the reason `why`. soft-iWARP loses the answer of a rejection
/// if the end of the TCP connection arrives with it: `siw_cm_llp_data_ready()` ignores the bytes of a
/// socket that is no longer established. In this case, only the victim's counters tell the reason.
fn tells(ctx: &Ctx, answer: Option<Refusal>, why: Refusal) -> bool {
    answer == Some(why) || (ctx.is_iwarp && answer.is_none())
}

/// Random bytes are refused, for any reason.
fn noise(ctx: &Ctx) -> Result<()> {
    let addr = ctx.fresh();
    let listener = Sock::listen(addr, 4, ctx.limit)?;
    for seed in 1..=20 {
        let before = Counters::read()?;
        rejection(ctx, addr, &pattern(seed, HELLO_ROOM)).step(&format!("seed {seed}"))?;
        let bad = before.since("refused_bad_hello")?;
        expect(bad == 1, || format!("refused_bad_hello went up by {bad}"))?;
    }
    expect(!listener.has_connection()?, || {
        "accept() would have a connection".to_owned()
    })
}

/// A request with an invented nonce, or with none, does not reach a listener on loopback.
fn random_nonce(ctx: &Ctx) -> Result<()> {
    let outside = ctx.fresh();
    let loopback = SocketAddrV4::new(Ipv4Addr::LOCALHOST, outside.port());
    let listener = Sock::listen(loopback, 4, ctx.limit)?;
    for nonce in [0, 1, 0x1234_5678_9abc_def1, u64::MAX] {
        let before = Counters::read()?;
        let mut offer = hello(POSTED);
        offer.nonce = nonce;
        let answer = rejection(ctx, outside, &offer.encode()).step(&format!("nonce {nonce:#x}"))?;
        expect(tells(ctx, answer, Refusal::NoListener), || {
            format!("the answer is {answer:?}")
        })?;
        before.expect(&moves(&[("refused_no_listener", 1)]), ctx.limit)?;
    }
    expect(!listener.has_connection()?, || {
        "a connection from outside has reached a listener on loopback".to_owned()
    })?;
    // A real local connection must succeed; otherwise the refusals above would prove nothing.
    let here = Sock::connect(loopback, ctx.limit).step("a local connection")?;
    let there = listener.accept(ctx.limit)?;
    here.send(b"local")?;
    if there.recv(5)? == b"local" {
        Ok(())
    } else {
        Err(Fail::new("the local connection changed its bytes"))
    }
}
