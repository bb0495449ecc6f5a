// SPDX-License-Identifier: GPL-2.0
//! Urgent data: bytes that are announced and do not arrive, and bytes that arrive where there can
//! be none or among adverts. Also the messages of a victim that has an urgent byte and may not send
//! it.

use super::adverts::counted;
use super::{each, Attack};
use crate::counters::moves;
use crate::fail::{expect, Fail, Result, Step};
use crate::session::{pattern, Ctx, Session, Start};
use proto_host::proto::bsdh::{FLAG_OOB_PEND, FLAG_OOB_PRES};
use proto_host::proto::hello::{Features, BUFS_MIN};
use proto_host::proto::message::Body;
use proto_host::proto::violation::Violation;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "urgent.honest_sender",
        run: honest_sender,
    },
    Attack {
        name: "urgent.right_behind_its_announcement",
        run: right_behind_its_announcement,
    },
    Attack {
        name: "urgent.where_none_can_be",
        run: where_none_can_be,
    },
    Attack {
        name: "urgent.announced_for_ever",
        run: announced_for_ever,
    },
    Attack {
        name: "urgent.announced_by_everything",
        run: announced_by_everything,
    },
    Attack {
        name: "urgent.two_in_a_message",
        run: two_in_a_message,
    },
    Attack {
        name: "urgent.one_after_the_other",
        run: one_after_the_other,
    },
    Attack {
        name: "urgent.behind_what_is_not_there",
        run: behind_what_is_not_there,
    },
    Attack {
        name: "urgent.behind_an_advert",
        run: behind_an_advert,
    },
    Attack {
        name: "urgent.behind_what_is_taken_back",
        run: behind_what_is_taken_back,
    },
    Attack {
        name: "urgent.instead_of_a_write",
        run: instead_of_a_write,
    },
    Attack {
        name: "urgent.told_without_credits",
        run: told_without_credits,
    },
];

/// A time that is longer than the longest wait of SIOCATMARK.
const MARK_WAIT: Duration = Duration::from_secs(2);

fn all_features() -> Features {
    Features::SOURCE
        .union(Features::ORDERED)
        .union(Features::SINK)
}

fn open(ctx: &Ctx) -> Result<Session> {
    let start = Start {
        features: all_features(),
        ..Start::default()
    };
    let mut session = Session::open(ctx, &start)?;
    session.greet().step("greeting")?;
    Ok(session)
}

fn expect_byte(session: &Session, want: u8) -> Result<()> {
    let got = session.victim.urgent_byte().step("MSG_OOB")?;
    expect(got == Some(want), || format!("{got:?} is urgent"))
}

fn expect_no_byte(session: &Session, errno: i32) -> Result<()> {
    let got = session.victim.urgent_byte();
    let is = matches!(&got, Err(e) if e.raw_os_error() == Some(errno));
    expect(is, || format!("MSG_OOB: {got:?} instead of errno {errno}"))
}

fn expect_mark(session: &Session, want: bool) -> Result<()> {
    let began = Instant::now();
    let got = session.victim.is_at_mark()?;
    expect(got == want, || format!("SIOCATMARK says {got}"))?;
    expect(began.elapsed() < MARK_WAIT, || {
        format!("SIOCATMARK took {:?}", began.elapsed())
    })
}

fn await_byte(ctx: &Ctx, session: &mut Session) -> Result<()> {
    let end = Instant::now() + ctx.limit;
    while !session.victim.is_urgent()? {
        session.peer.pump()?;
        expect(Instant::now() < end, || "no urgent byte came".to_owned())?;
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Expects that one call of recv() returns these bytes.
fn expect_some(session: &Session, want: &[u8]) -> Result<()> {
    let mut buf = [0; 200];
    let n = session.victim.recv_some(&mut buf).step("recv")?;
    expect(buf[..n] == *want, || {
        format!("received {:?} instead of {want:?}", &buf[..n])
    })
}

/// Waits until the victim's adapter has received all messages. The victim's answers are not waited
/// for.
fn arrive(session: &mut Session) -> Result<()> {
    session.peer.finish_sends()
}

fn honest_sender(ctx: &Ctx) -> Result<()> {
    let mut session = open(ctx)?;
    session.peer.send_flagged(FLAG_OOB_PEND, Body::Data, b"")?;
    arrive(&mut session)?;
    expect_no_byte(&session, libc::EAGAIN)?;
    expect_mark(&session, false)?;
    session
        .peer
        .send_flagged(FLAG_OOB_PEND, Body::Data, b"ab")?;
    session
        .peer
        .send_flagged(FLAG_OOB_PRES, Body::Data, b"cdU")?;
    session.peer.send(Body::Data, b"ef")?;
    await_byte(ctx, &mut session)?;
    arrive(&mut session)?;
    expect_some(&session, b"abcd")?;
    expect_mark(&session, true)?;
    expect_byte(&session, b'U')?;
    expect_no_byte(&session, libc::EINVAL)?;
    expect_some(&session, b"ef")?;
    expect_mark(&session, false)?;
    session.expect_only(&[])
}

/// An announcement does not tell the position of the byte. A program that has read all bytes calls
/// SIOCATMARK while the position is unknown, and learns it from the next message.
fn right_behind_its_announcement(ctx: &Ctx) -> Result<()> {
    for payload in [&b"U"[..], b"aU"] {
        let want = payload.len() == 1;
        let mut hits = 0;
        // The message may arrive too late, because the victim does not wait forever.
        for _ in 0..10 {
            let mut session = open(ctx)?;
            session.peer.send_flagged(FLAG_OOB_PEND, Body::Data, b"")?;
            arrive(&mut session)?;
            expect_no_byte(&session, libc::EAGAIN)?;
            let (victim, peer) = (&session.victim, &mut session.peer);
            let (asked, answered) = thread::scope(|scope| -> Result<_> {
                let asking = scope.spawn(|| {
                    let began = Instant::now();
                    (victim.is_at_mark(), began.elapsed())
                });
                thread::sleep(Duration::from_millis(10));
                peer.send_flagged(FLAG_OOB_PRES, Body::Data, payload)?;
                let (is, took) = asking.join().map_err(|_| Fail::new("a thread panicked"))?;
                Ok((is?, took))
            })?;
            expect(!asked || want, || "a byte too early".to_owned())?;
            hits += usize::from(asked == want && answered < Duration::from_millis(90));
            await_byte(ctx, &mut session)?;
            expect_mark(&session, want)?;
            expect_byte(&session, b'U')?;
            if hits > 0 {
                break;
            }
        }
        expect(hits > 0, || {
            format!("SIOCATMARK never waits for {} bytes", payload.len())
        })?;
    }
    Ok(())
}

fn where_none_can_be(ctx: &Ctx) -> Result<()> {
    let source = Body::SrcAvail {
        len: 100,
        rkey: 1,
        addr: 4096,
    };
    let sink = Body::SinkAvail {
        len: 100,
        rkey: 1,
        addr: 4096,
        count: 1,
    };
    let cases: [(&str, Body, &[u8]); 12] = [
        ("an update", Body::Data, b""),
        ("SrcAvail", source, b""),
        ("SrcAvail with payload", source, b"U"),
        ("SinkAvail", sink, b""),
        ("SrcAvailCancel", Body::SrcAvailCancel, b""),
        ("SinkAvailCancel", Body::SinkAvailCancel, b""),
        ("RdmaRdCompl", Body::RdmaRdCompl { bytes: 1 }, b""),
        ("RdmaWrCompl", Body::RdmaWrCompl { bytes: 0 }, b""),
        ("SendSm", Body::SendSm, b""),
        ("ChRcvBuf", Body::ChRcvBuf { size: 4096 }, b""),
        ("AbortConn", Body::AbortConn, b""),
        ("DisConn", Body::DisConn, b""),
    ];
    let mut all = Vec::new();
    for (name, body, payload) in cases {
        for flags in [FLAG_OOB_PRES, FLAG_OOB_PRES | FLAG_OOB_PEND] {
            all.push((format!("{name}, flags {flags}"), (body, payload, flags)));
        }
    }
    each(ctx, all, |ctx, (body, payload, flags)| {
        let mut session = open(ctx)?;
        session.peer.send_flagged(flags, body, payload)?;
        session.expect_death(libc::EPROTO, &counted(Violation::BadFlags))?;
        expect_no_byte(&session, libc::EINVAL)
    })
}

/// The byte never arrives. No call may hang because of this.
fn announced_for_ever(ctx: &Ctx) -> Result<()> {
    let mut session = open(ctx)?;
    for _ in 0..500 {
        session.peer.send_flagged(FLAG_OOB_PEND, Body::Data, b"")?;
    }
    arrive(&mut session)?;
    expect_no_byte(&session, libc::EAGAIN)?;
    // All calls at one position of the stream together wait no longer than one call.
    // Otherwise each of them would wait for 100 ms.
    let mut slow = 0;
    for _ in 0..20 {
        session.peer.send_flagged(FLAG_OOB_PEND, Body::Data, b"")?;
        let began = Instant::now();
        expect_mark(&session, false)?;
        slow += u32::from(began.elapsed() >= Duration::from_millis(80));
    }
    expect(slow < 10, || {
        format!("{slow} of 20 calls of SIOCATMARK have waited")
    })?;
    for _ in 0..50 {
        session
            .peer
            .send_flagged(FLAG_OOB_PEND, Body::Data, b"abc")?;
        expect_some(&session, b"abc")?;
    }
    expect_mark(&session, false)?;
    session
        .peer
        .send_flagged(FLAG_OOB_PEND, Body::DisConn, b"")?;
    session.victim.expect_end()?;
    expect_mark(&session, false)?;
    let got = session.victim.urgent_byte().step("MSG_OOB at the end")?;
    expect(got.is_none(), || format!("{got:?} is urgent"))?;
    session.expect_only(&[])
}

/// Every message may announce an urgent byte.
fn announced_by_everything(ctx: &Ctx) -> Result<()> {
    let mut session = open(ctx)?;
    let bytes = pattern(61, 30_000);
    let lent = session.peer.queue()?.lend(&bytes)?;
    let source = Body::SrcAvail {
        len: lent.len,
        rkey: lent.rkey,
        addr: lent.addr,
    };
    let sink = Body::SinkAvail {
        len: 100,
        rkey: 1,
        addr: 4096,
        count: 1,
    };
    let messages: [(Body, &[u8]); 6] = [
        (Body::ChRcvBuf { size: 4096 }, b""),
        (sink, b""),
        (Body::SinkAvailCancel, b""),
        (source, b"xyz"),
        (Body::Data, b"uvw"),
        (Body::Data, b""),
    ];
    for (body, payload) in messages {
        session.peer.send_flagged(FLAG_OOB_PEND, body, payload)?;
    }
    let mut want = b"xyz".to_vec();
    want.extend(&bytes);
    want.extend(b"uvw");
    let peer = &mut session.peer;
    let victim = &session.victim;
    let got = thread::scope(|scope| {
        let receiving = scope.spawn(|| victim.recv(want.len()));
        peer.until("the report", |p| {
            p.heard
                .iter()
                .any(|b| matches!(b, Body::RdmaRdCompl { .. }))
        })?;
        receiving
            .join()
            .map_err(|_| Fail::new("a thread panicked"))?
    })?;
    expect(got == want, || "the victim received other bytes".to_owned())?;
    expect_no_byte(&session, libc::EAGAIN)?;
    session
        .peer
        .send_flagged(FLAG_OOB_PEND, Body::DisConn, b"")?;
    session.victim.expect_end()?;
    session.expect_only(&[])
}

/// A message contains an urgent byte and also announces another one. The announcement counts,
/// because it comes last.
fn two_in_a_message(ctx: &Ctx) -> Result<()> {
    let mut session = open(ctx)?;
    let both = FLAG_OOB_PRES | FLAG_OOB_PEND;
    session.peer.send_flagged(both, Body::Data, b"abU")?;
    arrive(&mut session)?;
    expect_some(&session, b"abU")?;
    expect_no_byte(&session, libc::EAGAIN)?;
    session.peer.send_flagged(both, Body::Data, b"cV")?;
    session
        .peer
        .send_flagged(FLAG_OOB_PRES, Body::Data, b"dW")?;
    // For a moment poll() may also have reported V, before the announcement in the message of V was
    // processed.
    await_byte(ctx, &mut session)?;
    arrive(&mut session)?;
    expect_some(&session, b"cVd")?;
    expect_mark(&session, true)?;
    expect_byte(&session, b'W')?;
    // The program has read all bytes before this one, so this byte is lost as soon as it arrives,
    // but no other byte is lost.
    for payload in [&b"X"[..], b"Y"] {
        session.peer.send_flagged(both, Body::Data, payload)?;
    }
    arrive(&mut session)?;
    expect_no_byte(&session, libc::EAGAIN)?;
    session.peer.send(Body::Data, b"ef")?;
    arrive(&mut session)?;
    expect_some(&session, b"ef")?;
    let bytes = pattern(64, 20_000);
    let lent = session.peer.queue()?.lend(&bytes)?;
    let source = Body::SrcAvail {
        len: lent.len,
        rkey: lent.rkey,
        addr: lent.addr,
    };
    session.peer.send(source, b"g")?;
    session.peer.send(Body::Data, b"hi")?;
    let mut want = b"g".to_vec();
    want.extend(&bytes);
    want.extend(b"hi");
    let got = session.victim.recv(want.len())?;
    expect(got == want, || "other bytes behind".to_owned())?;
    session.expect_only(&[])
}

/// There are very many urgent bytes, each of which replaces the one before.
fn one_after_the_other(ctx: &Ctx) -> Result<()> {
    let mut session = open(ctx)?;
    let (victim, peer) = (&session.victim, &mut session.peer);
    const MANY: usize = 3000;
    const URGENT: u8 = 0x80;
    let ordinary = |n: usize| (n % 0x80) as u8;
    let got = thread::scope(|scope| {
        let receiving = scope.spawn(|| -> io::Result<Vec<u8>> {
            let mut all = Vec::new();
            loop {
                let mut buf = [0; 1000];
                match victim.recv_some(&mut buf)? {
                    0 => return Ok(all),
                    n => all.extend_from_slice(&buf[..n]),
                }
                // There may be an urgent byte or not.
                let _ = victim.urgent_byte();
            }
        });
        for n in 0..MANY {
            let flags = if n % 3 == 0 { FLAG_OOB_PEND } else { 0 };
            peer.send_flagged(flags, Body::Data, &[ordinary(n)])?;
            peer.send_flagged(FLAG_OOB_PRES, Body::Data, &[ordinary(n) | URGENT])?;
        }
        peer.send(Body::DisConn, b"")?;
        receiving
            .join()
            .map_err(|_| Fail::new("a thread panicked"))?
            .step("recv")
    })?;
    // All ordinary bytes must be there. Each is followed by its urgent byte, unless the program had
    // reached that byte while it was urgent.
    let mut rest = got.iter().copied().peekable();
    for n in 0..MANY {
        let next = rest.next();
        expect(next == Some(ordinary(n)), || {
            format!("{next:?} in place of the ordinary byte {n}")
        })?;
        rest.next_if_eq(&(ordinary(n) | URGENT));
    }
    let more = rest.count();
    expect(more == 0, || format!("{more} bytes too many"))?;
    session.expect_only(&[])
}

/// The victim cannot read the memory of the advert before the urgent byte, but it has the urgent
/// byte.
fn behind_what_is_not_there(ctx: &Ctx) -> Result<()> {
    const TRIES: usize = 20;
    for _ in 0..TRIES {
        if is_urgent_behind_what_is_not_there(ctx)? {
            return Ok(());
        }
    }
    Err(Fail::new("the refusal always comes before the byte"))
}

/// After a few milliseconds the victim reads an advert even without a call of recv(). Returns
/// whether the urgent byte arrived before the connection ended because of this.
fn is_urgent_behind_what_is_not_there(ctx: &Ctx) -> Result<bool> {
    let mut session = open(ctx)?;
    let before = session.since("received_Data")?;
    let nobody = Body::SrcAvail {
        len: 1 << 20,
        rkey: 0xdead_beef,
        addr: 4096,
    };
    session.peer.send(nobody, b"ab")?;
    session
        .peer
        .send_flagged(FLAG_OOB_PRES, Body::Data, b"cU")?;
    let (errno, counter) = ctx.told_of_refusal();
    session.expect_death(errno, &moves(&[(counter, 1)]))?;
    if session.since("received_Data")? == before {
        return Ok(false);
    }
    expect(session.victim.is_urgent()?, || {
        "the byte is lost".to_owned()
    })?;
    expect_no_byte(&session, libc::ENOTCONN)?;
    expect_some(&session, b"ab")?;
    expect_mark(&session, false)?;
    session.victim.expect_end()?;
    Ok(true)
}

/// The urgent byte can be read out of band before the bytes in front of it, which are still in the
/// sender's memory. A receive into a large buffer ends before the urgent byte.
fn behind_an_advert(ctx: &Ctx) -> Result<()> {
    for threshold in [0, 16_384] {
        let mut session = open(ctx)?;
        if threshold > 0 {
            session.victim.set_early_threshold(threshold)?;
        }
        let bytes = pattern(62, 60_000);
        let lent = session.peer.queue()?.lend(&bytes)?;
        let source = Body::SrcAvail {
            len: lent.len,
            rkey: lent.rkey,
            addr: lent.addr,
        };
        session.peer.send(source, b"ab")?;
        session
            .peer
            .send_flagged(FLAG_OOB_PRES, Body::Data, b"cU")?;
        session.peer.send(source, b"de")?;
        await_byte(ctx, &mut session)?;
        expect_byte(&session, b'U')?;
        expect_mark(&session, false)?;
        let mut want = b"ab".to_vec();
        want.extend(&bytes);
        want.extend(b"c");
        let (victim, peer) = (&session.victim, &mut session.peer);
        let mut got = vec![0; 200_000];
        let mut n = 0;
        while n < want.len() {
            peer.pump()?;
            let more = victim.recv_some(&mut got[n..]).step("recv")?;
            expect(more > 0, || "an early end of file".to_owned())?;
            n += more;
        }
        expect(got[..n] == want, || {
            format!("{n} bytes before the mark, or others")
        })?;
        expect_mark(&session, true)?;
        let mut want = b"de".to_vec();
        want.extend(&bytes);
        let got = session.victim.recv(want.len())?;
        expect(got == want, || "other bytes behind the mark".to_owned())?;
        session.expect_only(&[])?;
    }
    Ok(())
}

fn behind_what_is_taken_back(ctx: &Ctx) -> Result<()> {
    // No payload may follow an advert that is taken back.
    let mut session = open(ctx)?;
    let nobody = Body::SrcAvail {
        len: 1 << 20,
        rkey: 0xdead_beef,
        addr: 4096,
    };
    // The victim is still waiting for a reader.
    session.peer.send(nobody, b"")?;
    session.peer.send_flagged(FLAG_OOB_PRES, Body::Data, b"U")?;
    session.peer.send(Body::SrcAvailCancel, b"")?;
    let (errno, counter) = ctx.told_of_refusal();
    session.expect_some_death(
        &[libc::EPROTO, errno],
        &[
            counter,
            "violation_CancelBehindPayload",
            "aborted_violation",
        ],
    )?;
    // The position of the mark does not include bytes that were taken back.
    let mut session = open(ctx)?;
    let bytes = pattern(63, 100_000);
    let lent = session.peer.queue()?.lend(&bytes)?;
    let source = Body::SrcAvail {
        len: lent.len,
        rkey: lent.rkey,
        addr: lent.addr,
    };
    session.peer.send(source, b"")?;
    session.peer.send(Body::SrcAvailCancel, b"")?;
    session
        .peer
        .until("SendSm", |p| p.heard.contains(&Body::SendSm))?;
    let reported = |body: &Body| match *body {
        Body::RdmaRdCompl { bytes } => bytes as usize,
        _ => 0,
    };
    let read: usize = session.peer.heard.iter().map(reported).sum();
    session
        .peer
        .send_flagged(FLAG_OOB_PRES, Body::Data, b"abU")?;
    await_byte(ctx, &mut session)?;
    let mut want = bytes[..read].to_vec();
    want.extend(b"ab");
    let got = session.victim.recv(want.len())?;
    expect(got == want, || "other bytes before the mark".to_owned())?;
    expect_mark(&session, true)?;
    expect_byte(&session, b'U')?;
    session.expect_only(&[])
}

/// A victim that waits with a buffer gets the urgent byte, and the bytes before it, in a message
/// instead of a Write.
fn instead_of_a_write(ctx: &Ctx) -> Result<()> {
    for (payload, want) in [(&b"abU"[..], &b"ab"[..]), (b"U", b"cd")] {
        let mut session = open(ctx)?;
        session.victim.set_automatic_threshold(16_384)?;
        let (victim, peer) = (&session.victim, &mut session.peer);
        let got = thread::scope(|scope| -> Result<Vec<u8>> {
            let receiving = scope.spawn(|| -> io::Result<Vec<u8>> {
                let mut buf = vec![0; 50_000];
                let n = victim.recv_some(&mut buf)?;
                buf.truncate(n);
                Ok(buf)
            });
            peer.hear_advert()?;
            let nothing = Body::RdmaWrCompl { bytes: 0 };
            peer.send_flagged(FLAG_OOB_PEND, nothing, b"")?;
            peer.send_flagged(FLAG_OOB_PRES, Body::Data, payload)?;
            if payload.len() == 1 {
                // The receive continues behind the mark and waits for bytes.
                peer.finish_sends()?;
                thread::sleep(Duration::from_millis(50));
                peer.send(Body::Data, b"cd")?;
            }
            let got = receiving
                .join()
                .map_err(|_| Fail::new("a thread panicked"))?;
            got.step("recv")
        })?;
        expect(got == want, || format!("received {got:?}"))?;
        if payload.len() > 1 {
            expect_mark(&session, true)?;
            expect_byte(&session, b'U')?;
        } else {
            expect_no_byte(&session, libc::EINVAL)?;
        }
        session.expect_only(&[])?;
    }
    Ok(())
}

/// A victim that may not send payload announces the urgent byte once, and keeps the last credit.
/// When it has credits again, the last urgent byte is at the end of a message.
fn told_without_credits(ctx: &Ctx) -> Result<()> {
    let start = Start {
        bufs: BUFS_MIN,
        posted: usize::from(BUFS_MIN),
        features: Features::NONE,
    };
    let mut session = Session::open(ctx, &start)?;
    session.peer.gives_credits = false;
    // Payload uses at most two of five credits.
    for part in [b"a", b"b"] {
        let had = session.peer.inbox.len();
        session.victim.send(part)?;
        session.peer.until("a byte", |p| p.inbox.len() == had + 1)?;
    }
    session.victim.send(b"c")?;
    session.victim.urge(b"dU")?;
    session
        .peer
        .until("an announcement", |p| !p.flags_heard.is_empty())?;
    for _ in 0..5 {
        session.victim.urge(b"V")?;
        session.peer.pump()?;
    }
    thread::sleep(Duration::from_millis(50));
    session.peer.pump()?;
    let told = std::mem::take(&mut session.peer.flags_heard);
    expect(told == [(FLAG_OOB_PEND, 0)], || {
        format!("flags and payload lengths {told:?}")
    })?;
    expect(session.peer.inbox == b"ab", || {
        format!("{:?} came", session.peer.inbox)
    })?;
    session.peer.give_credits()?;
    session.peer.until("all bytes", |p| p.inbox.len() == 10)?;
    expect(session.peer.inbox == b"abcdUVVVVV", || {
        format!("{:?} came", session.peer.inbox)
    })?;
    let told = std::mem::take(&mut session.peer.flags_heard);
    let last = told.last().map(|(flags, _)| *flags);
    expect(last == Some(FLAG_OOB_PRES), || {
        format!("flags and payload lengths {told:?}")
    })?;
    session.victim.send(b"e")?;
    session.peer.until("a byte", |p| p.inbox.len() == 11)?;
    expect(session.peer.flags_heard.is_empty(), || {
        "flags on what follows".to_owned()
    })?;
    session.expect_only(&[])
}
