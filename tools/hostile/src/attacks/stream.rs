// SPDX-License-Identifier: GPL-2.0
//! Messages of an established connection that break a rule. Each test sends one such message, after
//! bytes were exchanged in both directions.

use super::{counter, each, Attack};
use crate::counters::moves;
use crate::fail::{expect, Result, Step};
use crate::peer::{wire, Peer};
use crate::session::{hello, hello_ack, pattern, Ctx, Session, POSTED};
use proto_host::proto::bsdh::{Bsdh, Mid, BSDH_LEN};
use proto_host::proto::message::{Body, FlowMode, Mode};
use proto_host::proto::violation::Violation;

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "stream.unknown_mids",
        run: unknown_mids,
    },
    Attack {
        name: "stream.unexpected_mids",
        run: unexpected_mids,
    },
    Attack {
        name: "stream.hello_inside",
        run: hello_inside,
    },
    Attack {
        name: "stream.short_header",
        run: short_header,
    },
    Attack {
        name: "stream.wrong_length",
        run: wrong_length,
    },
    Attack {
        name: "stream.wrong_sequence",
        run: wrong_sequence,
    },
    Attack {
        name: "stream.wrong_ack",
        run: wrong_ack,
    },
    Attack {
        name: "stream.shrunken_limit",
        run: shrunken_limit,
    },
    Attack {
        name: "stream.reserved_flags",
        run: reserved_flags,
    },
    Attack {
        name: "stream.long_bodies",
        run: long_bodies,
    },
    Attack {
        name: "stream.short_bodies",
        run: short_bodies,
    },
    Attack {
        name: "stream.bad_bodies",
        run: bad_bodies,
    },
    Attack {
        name: "stream.receive_sizes",
        run: receive_sizes,
    },
    Attack {
        name: "stream.unasked_answer",
        run: unasked_answer,
    },
    Attack {
        name: "stream.shrunken_receives",
        run: shrunken_receives,
    },
    Attack {
        name: "stream.after_disconn",
        run: after_disconn,
    },
    Attack {
        name: "stream.too_long",
        run: too_long,
    },
];

/// Sends the attack's message on a new connection, which must end with this violation.
fn violates(
    ctx: &Ctx,
    why: Violation,
    attack: impl FnOnce(&mut Session) -> Result<()>,
) -> Result<()> {
    let mut session = Session::open_and_greet(ctx)?;
    attack(&mut session)?;
    let counted = moves(&[("aborted_violation", 1), (&counter(why), 1)]);
    session.expect_death(libc::EPROTO, &counted)
}

/// Sends a message whose header is right except for the changes of `spoil`.
fn spoiled(
    peer: &mut Peer,
    body: Body,
    payload: &[u8],
    spoil: impl FnOnce(&mut Bsdh),
) -> Result<()> {
    let mut header = peer.next(body, payload.len())?;
    spoil(&mut header);
    peer.send_with(&header, body, payload)
}

fn unknown_mids(ctx: &Ctx) -> Result<()> {
    let cases = (0..=255u8)
        .filter(|mid| Mid::from_wire(*mid).is_none())
        .map(|mid| (format!("mid {mid:#04x}"), mid))
        .collect();
    each(ctx, cases, |ctx, mid| {
        violates(ctx, Violation::UnknownMid, |s| {
            let header = s.peer.next(Body::DisConn, 0)?;
            let mut bytes = wire(&header, Body::DisConn, &[]);
            bytes[0] = mid;
            s.peer.send_raw(&bytes)
        })
    })
}

const SINK: Body = Body::SinkAvail {
    len: 100,
    rkey: 1,
    addr: 4096,
    count: 0,
};
const SOURCE: Body = Body::SrcAvail {
    len: 100,
    rkey: 1,
    addr: 4096,
};
const MODE: Body = Body::ModeChange {
    mode: Mode {
        flow: FlowMode::Buffered,
        sending: true,
    },
};

/// Well-formed messages of features that were not agreed on.
const UNEXPECTED: [Body; 11] = [
    Body::SendSm,
    Body::RdmaWrCompl { bytes: 1 },
    Body::RdmaRdCompl { bytes: 1 },
    MODE,
    Body::SrcAvailCancel,
    Body::SinkAvailCancel,
    Body::SinkCancelAck,
    Body::Suspend { argument: 1 },
    Body::SuspendAck,
    SINK,
    SOURCE,
];

fn unexpected_mids(ctx: &Ctx) -> Result<()> {
    let cases = UNEXPECTED.map(|body| (body.mid().name().to_owned(), body));
    each(ctx, cases.to_vec(), |ctx, body| {
        violates(ctx, Violation::UnexpectedMid, |s| s.peer.send(body, &[]))
    })
}

/// The messages of the set-up, sent in the stream.
fn hello_inside(ctx: &Ctx) -> Result<()> {
    let hellos = [
        hello(POSTED).encode().to_vec(),
        hello_ack(POSTED).encode().to_vec(),
    ];
    let mut cases = Vec::new();
    for bytes in hellos {
        cases.push(("whole".to_owned(), bytes.clone()));
        cases.push(("only the header".to_owned(), bytes[..BSDH_LEN].to_vec()));
    }
    each(ctx, cases, |ctx, mut bytes| {
        violates(ctx, Violation::UnexpectedMid, |s| {
            let header = s.peer.next(Body::DisConn, 0)?;
            let len = bytes.len() as u32;
            bytes[2..4].copy_from_slice(&header.bufs.to_be_bytes());
            bytes[4..8].copy_from_slice(&len.to_be_bytes());
            bytes[8..12].copy_from_slice(&header.mseq.to_be_bytes());
            bytes[12..16].copy_from_slice(&header.mseq_ack.to_be_bytes());
            s.peer.send_raw(&bytes)
        })
    })
}

fn short_header(ctx: &Ctx) -> Result<()> {
    let cases = (0..BSDH_LEN).map(|n| (format!("{n} bytes"), n)).collect();
    each(ctx, cases, |ctx, n| {
        violates(ctx, Violation::ShortMessage, |s| {
            let header = s.peer.next(Body::DisConn, 0)?;
            let bytes = wire(&header, Body::DisConn, &[]);
            s.peer.send_raw(&bytes[..n])
        })
    })
}

fn wrong_length(ctx: &Ctx) -> Result<()> {
    let real = (BSDH_LEN + 100) as u32;
    let cases = [0, 15, 16, 17, real - 1, real + 1, 4096, 1 << 31, u32::MAX]
        .map(|len| (format!("length {len} of {real}"), len));
    each(ctx, cases.to_vec(), |ctx, len| {
        violates(ctx, Violation::LengthMismatch, |s| {
            spoiled(&mut s.peer, Body::Data, &pattern(1, 100), |h| h.len = len)
        })
    })
}

/// A change of a correct number.
type Change = fn(u32) -> u32;

fn wrong_sequence(ctx: &Ctx) -> Result<()> {
    let cases: [(&str, Change); 7] = [
        ("0", |_| 0),
        ("repeated", |n| n - 1),
        ("skipped", |n| n + 1),
        ("2^31 ahead", |n| n.wrapping_add(1 << 31)),
        ("2^31 - 1 ahead", |n| n.wrapping_add((1 << 31) - 1)),
        ("2^32 - 1", |_| u32::MAX),
        ("other byte order", u32::swap_bytes),
    ];
    let cases = cases.map(|(name, number)| (name.to_owned(), number));
    each(ctx, cases.to_vec(), |ctx, number| {
        violates(ctx, Violation::BadSequence, |s| {
            spoiled(&mut s.peer, Body::Data, b"x", |h| h.mseq = number(h.mseq))
        })
    })
}

fn wrong_ack(ctx: &Ctx) -> Result<()> {
    let cases: [(&str, Change); 5] = [
        ("a little ahead", |n| n + 8),
        ("far ahead", |n| n + 1000),
        ("2^31 ahead", |n| n.wrapping_add(1 << 31)),
        ("less than before", |n| n - 1),
        ("2^32 - 1", |_| u32::MAX),
    ];
    let cases = cases.map(|(name, number)| (name.to_owned(), number));
    each(ctx, cases.to_vec(), |ctx, number| {
        violates(ctx, Violation::BadAck, |s| {
            // This acknowledges all messages that the victim has sent.
            s.peer.send(Body::Data, b"y")?;
            s.victim.recv(1)?;
            s.peer.pump()?;
            // Start from the last number that was sent, because another message may arrive
            // meanwhile.
            let last = s.peer.last.mseq_ack;
            spoiled(&mut s.peer, Body::Data, b"x", |h| {
                h.mseq_ack = number(last);
            })
        })
    })
}

fn shrunken_limit(ctx: &Ctx) -> Result<()> {
    let cases = [("by one", 1), ("to nothing", u16::MAX)].map(|(name, by)| (name.to_owned(), by));
    each(ctx, cases.to_vec(), |ctx, by: u16| {
        violates(ctx, Violation::CreditShrunk, |s| {
            let mut header = s.peer.next(Body::Data, 1)?;
            let left = s.peer.last.limit().wrapping_sub(header.mseq_ack);
            header.bufs = (left as u16).saturating_sub(by);
            s.peer.send_with(&header, Body::Data, b"x")
        })
    })
}

fn reserved_flags(ctx: &Ctx) -> Result<()> {
    let mut cases: Vec<_> = (3..8)
        .map(|bit| {
            (
                format!("bit {bit} on Data"),
                (Body::Data, 1usize, 1u8 << bit),
            )
        })
        .collect();
    cases.push(("all on Data".to_owned(), (Body::Data, 1, 255)));
    cases.push(("all on DisConn".to_owned(), (Body::DisConn, 0, 255)));
    // These messages have no byte that could be urgent.
    cases.push(("OOB_PRES on an update".to_owned(), (Body::Data, 0, 1)));
    cases.push(("OOB_PRES on DisConn".to_owned(), (Body::DisConn, 0, 1)));
    cases.push((
        "OOB_PRES on ChRcvBuf".to_owned(),
        (Body::ChRcvBuf { size: 4096 }, 0, 1),
    ));
    each(ctx, cases, |ctx, (body, len, flags)| {
        violates(ctx, Violation::BadFlags, |s| {
            spoiled(&mut s.peer, body, &pattern(1, len), |h| h.flags = flags)
        })
    })
}

/// All messages that take no payload.
fn without_payload() -> Vec<Body> {
    let more = [
        Body::DisConn,
        Body::AbortConn,
        Body::ChRcvBuf { size: 4096 },
        Body::ChRcvBufAck { size: 4096 },
    ];
    UNEXPECTED
        .into_iter()
        .filter(|b| !b.mid().is_payload())
        .chain(more)
        .collect()
}

fn long_bodies(ctx: &Ctx) -> Result<()> {
    let cases: Vec<_> = without_payload()
        .into_iter()
        .enumerate()
        .map(|(n, body)| (body.mid().name().to_owned(), (body, 1 + n * 17)))
        .collect();
    each(ctx, cases, |ctx, (body, more)| {
        violates(ctx, Violation::BadBody, |s| {
            spoiled(&mut s.peer, body, &pattern(1, more), |_| {})
        })
    })
}

fn short_bodies(ctx: &Ctx) -> Result<()> {
    let bodies = UNEXPECTED
        .into_iter()
        .chain([
            Body::ChRcvBuf { size: 4096 },
            Body::ChRcvBufAck { size: 4096 },
        ])
        .filter(|b| !b.is_empty());
    let mut cases = Vec::new();
    for body in bodies {
        for len in [0, 1, body.len() - 1] {
            cases.push((
                format!("{} with {len} bytes", body.mid().name()),
                (body, len),
            ));
        }
    }
    each(ctx, cases, |ctx, (body, len)| {
        violates(ctx, Violation::ShortMessage, |s| {
            let mut header = s.peer.next(body, 0)?;
            header.len = (BSDH_LEN + len) as u32;
            let bytes = wire(&header, body, &[]);
            s.peer.send_raw(&bytes[..BSDH_LEN + len])
        })
    })
}

fn bad_bodies(ctx: &Ctx) -> Result<()> {
    let edge = u64::MAX - 98;
    let cases = [
        (
            "source of nothing",
            Body::SrcAvail {
                len: 0,
                rkey: 1,
                addr: 4096,
            },
            None,
        ),
        (
            "source past the end",
            Body::SrcAvail {
                len: 100,
                rkey: 1,
                addr: edge,
            },
            None,
        ),
        (
            "sink of nothing",
            Body::SinkAvail {
                len: 0,
                rkey: 1,
                addr: 4096,
                count: 0,
            },
            None,
        ),
        (
            "sink past the end",
            Body::SinkAvail {
                len: 100,
                rkey: 1,
                addr: edge,
                count: 0,
            },
            None,
        ),
        ("mode 3", MODE, Some((0, 0x30))),
        ("mode with low bits", MODE, Some((0, 0x01))),
        ("mode with a reserved byte", MODE, Some((3, 0x01))),
    ];
    let cases = cases.map(|(name, body, patch)| (name.to_owned(), (body, patch)));
    each(ctx, cases.to_vec(), |ctx, (body, patch)| {
        violates(ctx, Violation::BadBody, |s| {
            let header = s.peer.next(body, 0)?;
            let mut bytes = wire(&header, body, &[]);
            if let Some((at, byte)) = patch {
                bytes[BSDH_LEN + at] = byte;
            }
            s.peer.send_raw(&bytes)
        })
    })
}

fn receive_sizes(ctx: &Ctx) -> Result<()> {
    let mut cases = Vec::new();
    for size in [0, 1, 511, (1 << 20) + 1, u32::MAX] {
        cases.push((format!("ChRcvBuf {size}"), Body::ChRcvBuf { size }));
        cases.push((format!("ChRcvBufAck {size}"), Body::ChRcvBufAck { size }));
    }
    each(ctx, cases, |ctx, body| {
        violates(ctx, Violation::BadReceiveSize, |s| s.peer.send(body, &[]))
    })
}

/// An answer to a question that the victim has not asked, and a second answer to one question.
fn unasked_answer(ctx: &Ctx) -> Result<()> {
    for size in [4096, 32768, 1 << 20] {
        violates(ctx, Violation::NoAnswerDue, |s| {
            s.peer.send(Body::ChRcvBufAck { size }, &[])
        })
        .step(&format!("unasked, size {size}"))?;
    }
    violates(ctx, Violation::NoAnswerDue, |s| {
        asked_for_larger(s)?;
        s.peer.send(Body::ChRcvBufAck { size: 4096 }, &[])?;
        s.peer.send(Body::ChRcvBufAck { size: 4096 }, &[])
    })
    .step("a second answer")
}

/// Makes the victim ask for larger receives.
fn asked_for_larger(s: &mut Session) -> Result<()> {
    s.victim.send(&pattern(8, 40_000))?;
    s.peer.hear(Mid::ChRcvBuf)?;
    s.peer.take_bytes(40_000).map(|_| ())
}

fn shrunken_receives(ctx: &Ctx) -> Result<()> {
    for size in [512, 4095] {
        violates(ctx, Violation::BadReceiveSize, |s| {
            asked_for_larger(s)?;
            s.peer.send(Body::ChRcvBufAck { size }, &[])
        })
        .step(&format!("size {size}"))?;
    }
    Ok(())
}

fn after_disconn(ctx: &Ctx) -> Result<()> {
    let cases: [(&str, Body, &[u8]); 4] = [
        ("Data", Body::Data, b"x"),
        ("a second DisConn", Body::DisConn, b""),
        ("SrcAvail", SOURCE, b""),
        ("SrcAvailCancel", Body::SrcAvailCancel, b""),
    ];
    let cases = cases.map(|(name, body, payload)| (name.to_owned(), (body, payload)));
    each(ctx, cases.to_vec(), |ctx, (body, payload)| {
        violates(ctx, Violation::WrongState, |s| {
            s.peer.send(Body::DisConn, &[])?;
            s.peer.send(body, payload)
        })
    })
}

/// More bytes than a receive takes. The victim's adapter refuses them, which breaks the connection.
fn too_long(ctx: &Ctx) -> Result<()> {
    for more in [1usize, 4096, 32 << 10] {
        let mut session = Session::open_and_greet(ctx)?;
        let len = session.victim_rcv_size as usize + more;
        session.peer.finish_sends()?;
        let before = session.peer.succeeded;
        session.peer.send(Body::Data, &pattern(1, len))?;
        session.peer.finish_sends()?;
        let taken = session.peer.succeeded - before;
        expect(taken == 0 || !session.peer.is_end_to_end(false), || {
            format!("the adapter took {more} bytes too many")
        })?;
        // If a receive fails in the middle of a message, soft-RoCE wakes no sleeping thread, so a
        // call has to look.
        let result = session.victim.recv_some(&mut [0]);
        expect(
            matches!(&result, Err(e) if e.raw_os_error() == Some(libc::ECONNRESET)),
            || format!("{more} bytes too many: recv() returned {result:?}"),
        )?;
        session.peer.await_disconnect()?;
        session.expect_only(&["reset_by_peer"])?;
    }
    Ok(())
}
