// SPDX-License-Identifier: GPL-2.0
//! Sink adverts: adverts of memory that does not exist, reports of bytes that were not written, and
//! Writes to memory that is no longer lent.

use super::adverts::counted;
use super::orphans;
use super::states::await_state;
use super::Attack;
use crate::counters::{moves, Counters};
use crate::fail::{expect, Fail, Result, Step};
use crate::loan::Lent;
use crate::peer::Peer;
use crate::session::{pattern, Ctx, Session, Start};
use crate::sock::Sock;
use proto_host::proto::bsdh::Mid;
use proto_host::proto::hello::{Features, BUFS_MIN};
use proto_host::proto::message::Body;
use proto_host::proto::violation::Violation;
use std::io;
use std::thread;
use std::time::Instant;

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "sinks.honest_writer",
        run: honest_writer,
    },
    Attack {
        name: "sinks.key_of_nobody",
        run: key_of_nobody,
    },
    Attack {
        name: "sinks.impossible_memory",
        run: impossible_memory,
    },
    Attack {
        name: "sinks.too_many",
        run: too_many,
    },
    Attack {
        name: "sinks.nothing_to_cancel",
        run: nothing_to_cancel,
    },
    Attack {
        name: "sinks.answers_to_nothing",
        run: answers_to_nothing,
    },
    Attack {
        name: "sinks.false_reports",
        run: false_reports,
    },
    Attack {
        name: "sinks.end_instead",
        run: end_instead,
    },
    Attack {
        name: "sinks.orphan_owes_answers",
        run: orphan_owes_answers,
    },
    Attack {
        name: "sinks.write_beside",
        run: write_beside,
    },
    Attack {
        name: "sinks.read_instead",
        run: read_instead,
    },
    Attack {
        name: "sinks.write_afterwards",
        run: write_afterwards,
    },
    Attack {
        name: "sinks.stale_advert",
        run: stale_advert,
    },
];

/// The number of bytes of a victim's buffer.
const BYTES: usize = 50_000;
/// The number of bytes of a Write of this side.
const WRITE: usize = 4000;
/// The number of adverts of each kind that a victim can hold.
const ADVERTS: usize = 32;

fn open(ctx: &Ctx) -> Result<Session> {
    let start = Start {
        features: Features::SOURCE
            .union(Features::ORDERED)
            .union(Features::SINK),
        ..Start::default()
    };
    let mut session = Session::open(ctx, &start)?;
    // Exchange messages in both directions first.
    session.greet().step("greeting")?;
    Ok(session)
}

fn violates(ctx: &Ctx, why: Violation, bodies: &[Body]) -> Result<()> {
    let mut session = open(ctx)?;
    for body in bodies {
        session.peer.send(*body, &[])?;
    }
    session.expect_death(libc::EPROTO, &counted(why))
}

/// Has the victim wait for bytes, and calls `act` with the memory that the victim lends. Returns
/// the result of `act`, and the bytes that the victim has received.
fn lent<T>(
    session: &mut Session,
    act: impl FnOnce(&mut Peer, Lent) -> Result<T>,
) -> Result<(T, io::Result<Vec<u8>>)> {
    let (victim, peer): (&Sock, &mut Peer) = (&session.victim, &mut session.peer);
    victim.set_automatic_threshold(16_384)?;
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let mut buf = vec![0xee; BYTES];
            let result = victim.recv_some(&mut buf);
            let n = *result.as_ref().unwrap_or(&0);
            if buf[n..].iter().any(|b| *b != 0xee) {
                return Err(io::Error::other("bytes behind those received"));
            }
            buf.truncate(n);
            result.map(|_| buf)
        });
        let lent = peer.hear_advert()?;
        let done = act(peer, lent)?;
        let got = receiving
            .join()
            .map_err(|_| Fail::new("a thread panicked"))?;
        Ok((done, got))
    })
}

/// Writes some bytes to the start of the lent memory; returns the bytes.
fn write_some(peer: &mut Peer, lent: Lent) -> Result<Vec<u8>> {
    peer.finish_sends()?;
    let before = peer.succeeded;
    let at = peer.queue()?.rdma_at(false, lent.addr, lent.rkey, WRITE)?;
    peer.finish_sends()?;
    expect(peer.succeeded > before && !peer.is_over(), || {
        format!("a Write that was allowed failed: {:?}", peer.broken)
    })?;
    Ok(peer.queue()?.read_back(at, WRITE))
}

fn received(got: &io::Result<Vec<u8>>, want: &[u8]) -> Result<()> {
    let got = match got {
        Ok(got) => got,
        Err(e) => return Err(Fail::new(format!("recv() failed: {e}"))),
    };
    expect(got == want, || {
        format!("{} other bytes than the {} written", got.len(), want.len())
    })
}

fn honest_writer(ctx: &Ctx) -> Result<()> {
    let mut session = open(ctx)?;
    let (written, got) = lent(&mut session, |peer, lent| {
        expect(lent.addr < 4096 && lent.len as usize == BYTES, || {
            format!("{} bytes at {:#x}", lent.len, lent.addr)
        })?;
        let written = write_some(peer, lent)?;
        let bytes = WRITE as u32;
        peer.send(Body::RdmaWrCompl { bytes }, &[])?;
        Ok(written)
    })?;
    received(&got, &written)?;
    session.expect_only(&[])
}

/// The victim cannot write to the offered memory, whose key does not exist.
fn key_of_nobody(ctx: &Ctx) -> Result<()> {
    for (rkey, addr) in [(1, 4096), (0xdead_beef, 0), (u32::MAX, 1 << 63)] {
        let mut session = open(ctx)?;
        session.victim.set_automatic_threshold(16_384)?;
        let advert = Body::SinkAvail {
            len: BYTES as u32,
            rkey,
            addr,
            count: 1,
        };
        session.peer.send(advert, &[])?;
        session.peer.finish_sends()?;
        session.await_counted("received_SinkAvail", 1)?;
        let sent = session.victim.send_some(&pattern(21, BYTES));
        let told = match sent {
            // On iWARP the Write is finished when TCP has its bytes.
            Ok(_) if ctx.is_iwarp => Some(session.victim.await_error(ctx.limit)?),
            sent => sent.err().and_then(|e| e.raw_os_error()),
        };
        let (errno, counter) = ctx.told_of_refusal();
        expect(told == Some(errno), || {
            format!("send() ended with {told:?}")
        })?;
        session.peer.await_disconnect()?;
        if ctx.is_iwarp {
            // The victim may notice by its next message.
            session.expect_only(&[counter, "post_failed"])?;
        } else {
            session.expect_counted(&moves(&[(counter, 1)]))?;
        }
    }
    Ok(())
}

fn advert(count: u32) -> Body {
    Body::SinkAvail {
        len: 100,
        rkey: 1,
        addr: 4096,
        count,
    }
}

fn impossible_memory(ctx: &Ctx) -> Result<()> {
    for (len, addr) in [(0, 4096), (2, u64::MAX), (u32::MAX, u64::MAX - 1000)] {
        let body = Body::SinkAvail {
            len,
            rkey: 1,
            addr,
            count: 1,
        };
        violates(ctx, Violation::BadBody, &[body])?;
    }
    Ok(())
}

fn too_many(ctx: &Ctx) -> Result<()> {
    violates(ctx, Violation::TooManyAdverts, &[advert(1); ADVERTS + 1])
}

fn nothing_to_cancel(ctx: &Ctx) -> Result<()> {
    violates(ctx, Violation::NothingToCancel, &[Body::SinkAvailCancel])?;
    let twice = [advert(1), Body::SinkAvailCancel, Body::SinkAvailCancel];
    violates(ctx, Violation::NothingToCancel, &twice)?;
    violates(ctx, Violation::UnexpectedMid, &[Body::SinkCancelAck])
}

fn answers_to_nothing(ctx: &Ctx) -> Result<()> {
    for bytes in [0, 1] {
        violates(ctx, Violation::NoAnswerDue, &[Body::RdmaWrCompl { bytes }])?;
    }
    Ok(())
}

/// Reports that do not fit the victim's advert.
fn false_reports(ctx: &Ctx) -> Result<()> {
    let too_much = [(Body::RdmaWrCompl { bytes: u32::MAX }, 0)];
    let after_payload = [(Body::Data, 10), (Body::RdmaWrCompl { bytes: 10 }, 0)];
    let after_the_end = [(Body::DisConn, 0), (Body::RdmaWrCompl { bytes: 10 }, 0)];
    let cases: [(Violation, &[(Body, usize)]); 3] = [
        (Violation::AdvertOverrun, &too_much),
        (Violation::WriteVoided, &after_payload),
        (Violation::WriteVoided, &after_the_end),
    ];
    for (why, messages) in cases {
        let mut session = open(ctx)?;
        let ((), got) = lent(&mut session, |peer, _| {
            for (body, payload) in messages {
                peer.send(*body, &pattern(22, *payload))?;
            }
            Ok(())
        })?;
        let told = match got {
            // The call has returned the payload, or the end of the stream.
            Ok(_) => session.victim.await_error(ctx.limit)?,
            Err(e) => e.raw_os_error().unwrap_or(0),
        };
        expect(told == libc::EPROTO, || {
            format!("{}: recv() ended with {told}", why.name())
        })?;
        session.peer.await_disconnect()?;
        session.expect_counted(&counted(why))?;
    }
    Ok(())
}

/// The stream may end while memory is lent. The memory is given back then.
fn end_instead(ctx: &Ctx) -> Result<()> {
    let mut session = open(ctx)?;
    let ((), got) = lent(&mut session, |peer, _| {
        peer.send(Body::DisConn, &[])?;
        peer.send(Body::RdmaWrCompl { bytes: 0 }, &[])
    })?;
    received(&got, &[])?;
    session.expect_only(&[])
}

/// A closed socket that owes an answer, but gets no credit for it from its peer, does not wait
/// forever.
fn orphan_owes_answers(ctx: &Ctx) -> Result<()> {
    let start = Start {
        // The DisConn takes one credit, three answers take three, and the last credit may only be
        // used to give credits.
        bufs: BUFS_MIN,
        posted: usize::from(BUFS_MIN),
        features: Features::SOURCE
            .union(Features::ORDERED)
            .union(Features::SINK),
    };
    let mut session = Session::open(ctx, &start)?;
    session.peer.gives_credits = false;
    session.victim.shutdown()?;
    session.peer.hear(Mid::DisConn)?;
    for _ in 0..4 {
        session.peer.send(advert(0), &[])?;
    }
    session.peer.send(Body::DisConn, &[])?;
    await_state(ctx, "Draining")?;
    let before = Counters::read()?;
    // The peer keeps its end of the connection.
    let Session { victim, peer, .. } = session;
    drop(victim);
    orphans::given_up(ctx, &before, Instant::now())?;
    drop(peer);
    Ok(())
}

/// Expects that the adapter refuses the operation of `act`, a Read or a Write, on lent memory.
fn refused(ctx: &Ctx, read: bool, act: impl FnOnce(&mut Peer, Lent) -> Result<()>) -> Result<()> {
    let mut session = open(ctx)?;
    let (done, got) = lent(&mut session, |peer, lent| {
        peer.finish_sends()?;
        let had = peer.succeeded;
        act(peer, lent)?;
        peer.finish_sends()?;
        Ok(peer.succeeded - had)
    })?;
    expect(done == 0 || !session.peer.is_end_to_end(read), || {
        "the adapter did it".to_owned()
    })?;
    let errno = got.err().and_then(|e| e.raw_os_error());
    expect(errno == Some(libc::ECONNRESET), || {
        format!("recv() ended with {errno:?}")
    })?;
    session.peer.await_disconnect()?;
    session.expect_only(&["reset_by_peer"])
}

/// Bytes beside the lent memory cannot be written.
fn write_beside(ctx: &Ctx) -> Result<()> {
    for before in [false, true] {
        refused(ctx, false, |peer, lent| {
            let addr = if before {
                lent.addr.wrapping_sub(8)
            } else {
                lent.addr + u64::from(lent.len) - 8
            };
            peer.queue()?.rdma(false, addr, lent.rkey, 16)
        })?;
    }
    Ok(())
}

/// The memory of a sink advert cannot be read.
fn read_instead(ctx: &Ctx) -> Result<()> {
    refused(ctx, true, |peer, lent| {
        peer.queue()?.rdma(true, lent.addr, lent.rkey, 16)
    })
}

/// After recv() has returned, only the program can use the memory.
fn write_afterwards(ctx: &Ctx) -> Result<()> {
    for payload in [false, true] {
        let mut session = open(ctx)?;
        let ((lent, bytes), got) = lent(&mut session, |peer, lent| {
            if payload {
                // Payload also ends the advert.
                let bytes = pattern(23, 100);
                peer.send(Body::Data, &bytes)?;
                return Ok((lent, bytes));
            }
            let bytes = write_some(peer, lent)?;
            let body = Body::RdmaWrCompl {
                bytes: WRITE as u32,
            };
            peer.send(body, &[])?;
            Ok((lent, bytes))
        })?;
        received(&got, &bytes)?;
        session.expect_refused(false, lent.addr, lent.rkey)?;
        received(&got, &bytes).step("after the Write")?;
    }
    Ok(())
}

/// An advert that has crossed payload is answered with a report of no bytes, and is not written to.
fn stale_advert(ctx: &Ctx) -> Result<()> {
    for count in [0, 2, u32::MAX] {
        let mut session = open(ctx)?;
        session.victim.set_automatic_threshold(16_384)?;
        session.peer.send(advert(count), &[])?;
        session
            .peer
            .until("an answer", |p| {
                p.heard.contains(&Body::RdmaWrCompl { bytes: 0 })
            })
            .step(&format!("count {count}"))?;
        session.expect_only(&[])?;
    }
    Ok(())
}
