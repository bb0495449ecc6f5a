// SPDX-License-Identifier: GPL-2.0
//! Source adverts: adverts of memory that does not exist, reports of bytes that were not read, and
//! Reads of memory that is no longer lent.

use super::{counter, Attack};
use crate::counters::{moves, Moves};
use crate::fail::{expect, Fail, Result, Step};
use crate::loan::Lent;
use crate::missing::Missing;
use crate::peer::Peer;
use crate::session::{pattern, Ctx, Session, Start};
use crate::sock::Sock;
use proto_host::proto::hello::Features;
use proto_host::proto::message::Body;
use proto_host::proto::violation::Violation;
use std::thread;
use std::time::Duration;

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "adverts.honest_reader",
        run: honest_reader,
    },
    Attack {
        name: "adverts.key_of_nobody",
        run: key_of_nobody,
    },
    Attack {
        name: "adverts.impossible_memory",
        run: impossible_memory,
    },
    Attack {
        name: "adverts.nothing_to_cancel",
        run: nothing_to_cancel,
    },
    Attack {
        name: "adverts.answers_to_nothing",
        run: answers_to_nothing,
    },
    Attack {
        name: "adverts.false_reports",
        run: false_reports,
    },
    Attack {
        name: "adverts.read_beside",
        run: read_beside,
    },
    Attack {
        name: "adverts.read_afterwards",
        run: read_afterwards,
    },
    Attack {
        name: "adverts.payload_behind",
        run: payload_behind,
    },
];

/// The number of bytes of a victim's send.
const BYTES: usize = 50_000;
/// The maximum number of bytes of a Read of this side.
const READ: usize = 4096;

pub(super) fn open(ctx: &Ctx) -> Result<Session> {
    let start = Start {
        features: Features::SOURCE.union(Features::ORDERED),
        ..Start::default()
    };
    let mut session = Session::open(ctx, &start)?;
    session.greet().step("greeting")?;
    Ok(session)
}

/// The counters that change when a victim finds this violation.
pub(super) fn counted(why: Violation) -> Moves {
    moves(&[("aborted_violation", 1), (&counter(why), 1)])
}

fn violates(ctx: &Ctx, why: Violation, body: Body) -> Result<()> {
    let mut session = open(ctx)?;
    session.peer.send(body, &[])?;
    session.expect_death(libc::EPROTO, &counted(why))
}

/// Has the victim send without a copy, and calls `act` with the memory that the victim lends.
/// Returns the results of `act` and of the victim's send().
fn lent<T>(
    session: &mut Session,
    bytes: &[u8],
    act: impl FnOnce(&mut Peer, Lent) -> Result<T>,
) -> Result<(T, std::io::Result<usize>)> {
    let (victim, peer): (&Sock, &mut Peer) = (&session.victim, &mut session.peer);
    victim.set_zcopy_threshold(16_384)?;
    thread::scope(|scope| {
        let sending = scope.spawn(|| victim.send_some(bytes));
        let lent = peer.hear_advert()?;
        let done = act(peer, lent)?;
        let sent = sending.join().map_err(|_| Fail::new("a thread panicked"))?;
        Ok((done, sent))
    })
}

/// Reads all of the lent memory.
pub(super) fn read_all(peer: &mut Peer, lent: Lent) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while bytes.len() < lent.len as usize {
        let len = READ.min(lent.len as usize - bytes.len());
        let before = peer.succeeded;
        peer.finish_sends()?;
        let addr = lent.addr + bytes.len() as u64;
        let at = peer.queue()?.rdma_at(true, addr, lent.rkey, len)?;
        peer.finish_sends()?;
        expect(peer.succeeded > before && !peer.is_over(), || {
            format!("a Read that was allowed failed: {:?}", peer.broken)
        })?;
        bytes.extend(peer.queue()?.read_back(at, len));
    }
    Ok(bytes)
}

fn honest_reader(ctx: &Ctx) -> Result<()> {
    let mut session = open(ctx)?;
    let bytes = pattern(11, BYTES);
    let (read, sent) = lent(&mut session, &bytes, |peer, lent| {
        expect(lent.addr < 4096, || {
            "it tells where its memory is".to_owned()
        })?;
        let read = read_all(peer, lent)?;
        peer.send(Body::RdmaRdCompl { bytes: 1000 }, &[])?;
        let rest = lent.len - 1000;
        peer.send(Body::RdmaRdCompl { bytes: rest }, &[])?;
        Ok(read)
    })?;
    expect(read == bytes, || "other bytes than it sent".to_owned())?;
    let sent = sent.map_err(|e| Fail::new(format!("send() failed: {e}")))?;
    expect(sent == BYTES, || format!("send() returned {sent}"))?;
    session.expect_only(&[])
}

/// The victim cannot read the offered memory, whose key does not exist.
fn key_of_nobody(ctx: &Ctx) -> Result<()> {
    for (len, rkey, addr) in [
        (100, 1, 4096),
        (1 << 20, 0xdead_beef, 0),
        (u32::MAX, u32::MAX, 0xffff_8880_0010_0000),
    ] {
        let mut session = open(ctx)?;
        let advert = Body::SrcAvail { len, rkey, addr };
        session.peer.send(advert, &pattern(3, 10))?;
        let (errno, counter) = ctx.told_of_refusal();
        session.expect_death(errno, &moves(&[(counter, 1)]))?;
    }
    Ok(())
}

fn impossible_memory(ctx: &Ctx) -> Result<()> {
    for (len, addr) in [(0, 4096), (2, u64::MAX), (u32::MAX, u64::MAX - 1000)] {
        let rkey = 1;
        violates(ctx, Violation::BadBody, Body::SrcAvail { len, rkey, addr })?;
    }
    Ok(())
}

fn nothing_to_cancel(ctx: &Ctx) -> Result<()> {
    violates(ctx, Violation::NothingToCancel, Body::SrcAvailCancel)
}

fn answers_to_nothing(ctx: &Ctx) -> Result<()> {
    for body in [Body::SendSm, Body::RdmaRdCompl { bytes: 1 }] {
        violates(ctx, Violation::NoAnswerDue, body)?;
    }
    let body = Body::RdmaRdCompl { bytes: 0 };
    violates(ctx, Violation::EmptyCompletion, body)
}

/// Reports that do not fit the victim's advert.
fn false_reports(ctx: &Ctx) -> Result<()> {
    let bytes = pattern(12, BYTES);
    let cases = [
        (Violation::AdvertOverrun, Body::RdmaRdCompl { bytes: 0 }, 1),
        (
            Violation::EmptyCompletion,
            Body::RdmaRdCompl { bytes: 0 },
            0,
        ),
        (Violation::NoAnswerDue, Body::SendSm, 0),
    ];
    for (why, body, beyond) in cases {
        let mut session = open(ctx)?;
        let ((), sent) = lent(&mut session, &bytes, |peer, lent| {
            let body = match body {
                Body::RdmaRdCompl { .. } if beyond > 0 => Body::RdmaRdCompl {
                    bytes: lent.len + beyond,
                },
                body => body,
            };
            peer.send(body, &[])
        })?;
        // send() returns the error, so the socket has none afterwards.
        let errno = sent.err().and_then(|e| e.raw_os_error());
        expect(errno == Some(libc::EPROTO), || {
            format!("{}: send() ended with {errno:?}", why.name())
        })?;
        session.peer.await_disconnect()?;
        session.expect_counted(&counted(why))?;
    }
    Ok(())
}

/// Bytes beside the lent memory cannot be read.
fn read_beside(ctx: &Ctx) -> Result<()> {
    let bytes = pattern(13, BYTES);
    for before in [false, true] {
        let mut session = open(ctx)?;
        let (done, sent) = lent(&mut session, &bytes, |peer, lent| {
            peer.finish_sends()?;
            let had = peer.succeeded;
            let addr = if before {
                lent.addr.wrapping_sub(8)
            } else {
                lent.addr + u64::from(lent.len) - 8
            };
            peer.queue()?.rdma(true, addr, lent.rkey, 16)?;
            peer.finish_sends()?;
            Ok(peer.succeeded - had)
        })?;
        expect(done == 0, || "the adapter did it".to_owned())?;
        expect(sent.is_err(), || "send() has succeeded".to_owned())?;
        session.peer.await_disconnect()?;
        session.expect_only(&["reset_by_peer"])?;
    }
    Ok(())
}

/// After send() has returned, only the program can use the memory.
fn read_afterwards(ctx: &Ctx) -> Result<()> {
    let bytes = pattern(14, BYTES);
    let mut session = open(ctx)?;
    let (lent, sent) = lent(&mut session, &bytes, |peer, lent| {
        let bytes = lent.len;
        peer.send(Body::RdmaRdCompl { bytes }, &[])?;
        Ok(lent)
    })?;
    let sent = sent.map_err(|e| Fail::new(format!("send() failed: {e}")))?;
    expect(sent == BYTES, || format!("send() returned {sent}"))?;
    session.expect_refused(true, lent.addr, lent.rkey)
}

/// Payload after an advert that was not read fills the receive buffer like other bytes. Here the
/// reader sleeps because a page of its own buffer is missing.
fn payload_behind(ctx: &Ctx) -> Result<()> {
    const MOST: usize = 2 << 20;
    let mut session = open(ctx)?;
    let mut pages = Missing::new(256 << 10)?;
    let (addr, len) = (pages.addr(), pages.len());
    let (victim, peer): (&Sock, &mut Peer) = (&session.victim, &mut session.peer);
    let bytes = pattern(15, 4000);
    let taken = thread::scope(|scope| {
        scope.spawn(move || victim.recv_at(addr, len));
        thread::sleep(Duration::from_millis(200));
        let advert = Body::SrcAvail {
            len: len as u32,
            rkey: 1,
            addr: 0,
        };
        peer.send(advert, &[])?;
        let mut taken = 0;
        while taken <= 2 * MOST && peer.until_credits(Body::Data, bytes.len())? {
            peer.send(Body::Data, &bytes)?;
            taken += bytes.len();
        }
        pages.come();
        Ok::<_, Fail>(taken)
    })?;
    expect(taken <= MOST, || {
        format!("{taken} bytes were taken that nobody reads")
    })
}
