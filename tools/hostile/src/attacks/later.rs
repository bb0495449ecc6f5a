// SPDX-License-Identifier: GPL-2.0
//! Source adverts of victims whose send() has returned. The peer may read the bytes that were in
//! the pages at the time of the send, and nothing else, until it has reported that it has read
//! them.

use super::adverts::{self, counted, read_all};
use super::Attack;
use crate::counters::settled;
use crate::fail::{expect, Fail, Result, Step};
use crate::loan::Lent;
use crate::pages::Pages;
use crate::session::{pattern, sockets, Ctx, Session};
use proto_host::proto::message::Body;
use proto_host::proto::violation::Violation;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "later.honest_reader",
        run: honest_reader,
    },
    Attack {
        name: "later.overwritten",
        run: overwritten,
    },
    Attack {
        name: "later.read_beside",
        run: read_beside,
    },
    Attack {
        name: "later.read_afterwards",
        run: read_afterwards,
    },
    Attack {
        name: "later.false_reports",
        run: false_reports,
    },
    Attack {
        name: "later.leaves_without_a_report",
        run: leaves_without_a_report,
    },
    Attack {
        name: "later.holds_writers_up",
        run: holds_writers_up,
    },
];

/// The number of bytes of a victim's send.
const BYTES: usize = 64 << 10;

/// A victim that has sent the pages, and the memory that it lends for this.
struct Sent {
    session: Session,
    pages: Pages,
    lent: Lent,
    /// When the send began.
    began: Instant,
}

impl Sent {
    fn new(ctx: &Ctx, bytes: &[u8], blocks: bool) -> Result<Sent> {
        let mut session = adverts::open(ctx)?;
        session.victim.set_early_threshold(16_384)?;
        if blocks {
            session.victim.block_writers()?;
        }
        let pages = Pages::new(bytes.len())?;
        pages.write(bytes);
        // send() returns before the peer has read the advert.
        let began = Instant::now();
        let sent = session.victim.send_at(pages.addr(), pages.len());
        let sent = sent.step("send")?;
        expect(sent == bytes.len(), || format!("send() returned {sent}"))?;
        let lent = session.peer.hear_advert()?;
        expect(lent.len as usize == bytes.len(), || {
            format!("{} bytes are lent", lent.len)
        })?;
        let later = session.since("advert_async")?;
        expect(later == 1, || {
            "it is not counted as asynchronous".to_owned()
        })?;
        Ok(Sent {
            session,
            pages,
            lent,
            began,
        })
    }

    fn report(&mut self, bytes: u32) -> Result<()> {
        self.session.peer.send(Body::RdmaRdCompl { bytes }, &[])
    }

    /// Expects that the peer reads these bytes.
    fn expect_read(&mut self, lent: Lent, want: &[u8]) -> Result<()> {
        let read = read_all(&mut self.session.peer, lent)?;
        expect(read == want, || {
            format!("{} other bytes than it sent", want.len())
        })
    }

    /// Expects that a Read by the peer fails and ends the connection.
    fn expect_refused(&mut self, addr: u64) -> Result<()> {
        self.session.expect_refused(true, addr, self.lent.rkey)
    }

    /// Expects that the victim has its pages back: they contain `want`, and the victim can write to
    /// them.
    fn expect_back(&self, ctx: &Ctx, want: &[u8]) -> Result<()> {
        settled(ctx.limit)?;
        expect(self.pages.read() == want, || {
            "the victim's pages have changed".to_owned()
        })?;
        let new = pattern(49, want.len());
        self.pages.write(&new);
        expect(self.pages.read() == new, || {
            "what the victim has written is not there".to_owned()
        })
    }
}

fn honest_reader(ctx: &Ctx) -> Result<()> {
    let bytes = pattern(41, BYTES);
    let mut sent = Sent::new(ctx, &bytes, false)?;
    expect(sent.lent.addr < 4096, || {
        "it tells where its memory is".to_owned()
    })?;
    sent.expect_read(sent.lent, &bytes)?;
    sent.report(1000)?;
    sent.report(sent.lent.len - 1000)?;
    sent.expect_back(ctx, &bytes)?;
    sent.session.greet().step("greeting afterwards")?;
    sent.session.expect_only(&[])
}

/// The peer does not see bytes that the victim writes after its send, even if it reads several
/// times.
fn overwritten(ctx: &Ctx) -> Result<()> {
    let (old, new) = (pattern(42, BYTES), pattern(43, BYTES));
    for looks_before in [false, true] {
        let mut sent = Sent::new(ctx, &old, false)?;
        if looks_before {
            let half = Lent {
                len: sent.lent.len / 2,
                ..sent.lent
            };
            sent.expect_read(half, &old[..BYTES / 2])?;
        }
        sent.pages.write(&new);
        sent.expect_read(sent.lent, &old).step("once")?;
        sent.pages.fill(0x5e);
        sent.expect_read(sent.lent, &old).step("twice")?;
        sent.report(sent.lent.len)?;
        sent.expect_back(ctx, &[0x5e; BYTES])?;
        sent.session.expect_only(&[])?;
        sent.expect_refused(sent.lent.addr)?;
    }
    Ok(())
}

/// Bytes beside the lent memory cannot be read.
fn read_beside(ctx: &Ctx) -> Result<()> {
    let bytes = pattern(44, BYTES);
    for before in [false, true] {
        let mut sent = Sent::new(ctx, &bytes, false)?;
        let lent = sent.lent;
        sent.expect_refused(if before {
            lent.addr.wrapping_sub(8)
        } else {
            lent.addr + u64::from(lent.len) - 8
        })?;
        sent.expect_back(ctx, &bytes)?;
    }
    Ok(())
}

/// After the peer has reported that it has read the pages, only the program can use them.
fn read_afterwards(ctx: &Ctx) -> Result<()> {
    let bytes = pattern(45, BYTES);
    for reads_before in [false, true] {
        let mut sent = Sent::new(ctx, &bytes, false)?;
        if reads_before {
            sent.expect_read(sent.lent, &bytes)?;
        }
        sent.report(sent.lent.len)?;
        sent.expect_back(ctx, &bytes)?;
        sent.expect_refused(sent.lent.addr)?;
    }
    Ok(())
}

/// Reports that do not fit the victim's advert.
fn false_reports(ctx: &Ctx) -> Result<()> {
    let bytes = pattern(46, BYTES);
    let len = BYTES as u32;
    let too_much = [Body::RdmaRdCompl { bytes: len + 1 }];
    let bit_by_bit = [
        Body::RdmaRdCompl { bytes: len - 1 },
        Body::RdmaRdCompl { bytes: 2 },
    ];
    let twice = [Body::RdmaRdCompl { bytes: len }; 2];
    let nothing = [Body::RdmaRdCompl { bytes: 0 }];
    // The victim has not taken its advert back.
    let not_taken_back = [Body::SendSm];
    let cases: [(Violation, &[Body]); 5] = [
        (Violation::AdvertOverrun, &too_much),
        (Violation::AdvertOverrun, &bit_by_bit),
        (Violation::NoAnswerDue, &twice),
        (Violation::EmptyCompletion, &nothing),
        (Violation::NoAnswerDue, &not_taken_back),
    ];
    for (why, reports) in cases {
        let mut sent = Sent::new(ctx, &bytes, false)?;
        for body in reports {
            sent.session.peer.send(*body, &[])?;
        }
        sent.session.expect_death(libc::EPROTO, &counted(why))?;
        sent.expect_back(ctx, &bytes).step(why.name())?;
    }
    Ok(())
}

/// The peer reports some bytes or none, and then disconnects by the CM.
fn leaves_without_a_report(ctx: &Ctx) -> Result<()> {
    let (old, new) = (pattern(47, BYTES), pattern(48, BYTES));
    let len = BYTES as u32;
    for (reports, writes) in [(0, false), (0, true), (1, true), (len - 1, false)] {
        let mut sent = Sent::new(ctx, &old, false)?;
        if writes {
            sent.pages.write(&new);
        }
        if reports > 0 {
            sent.report(reports)?;
        }
        sent.session.peer.finish_sends()?;
        sent.session.peer.id.disconnect()?;
        let error = sent.session.victim.await_error(ctx.limit);
        let state = || format!("{reports} bytes reported; sockets: {:?}", sockets());
        let errno = error.or_else(|e| Err(e).step(&state()))?;
        expect(errno == libc::ECONNRESET, || format!("errno {errno}"))?;
        sent.session.expect_only(&["reset_by_peer"])?;
        sent.expect_back(ctx, if writes { &new } else { &old })?;
    }
    Ok(())
}

/// A program that has to wait before it writes does not wait forever.
fn holds_writers_up(ctx: &Ctx) -> Result<()> {
    let (old, new) = (pattern(47, BYTES), pattern(48, BYTES));
    for leaves in [false, true] {
        // A snapshot of pages at the same address soon afterwards would extend the same wait.
        thread::sleep(Duration::from_millis(300));
        let mut sent = Sent::new(ctx, &old, true)?;
        let (pages, peer, first) = (&sent.pages, &mut sent.session.peer, &new[..1]);
        let sent_at = sent.began;
        let late = thread::scope(|scope| {
            let (begins, begun) = mpsc::channel();
            let writing = scope.spawn(move || {
                let begin = Instant::now();
                // The receiver is not dropped before.
                let _ = begins.send(begin);
                pages.write(first);
                begin.elapsed()
            });
            let begin = begun.recv().step("the writer")?;
            // A write waits until the snapshot is a second old. On a slow machine it may begin only
            // then.
            let late = begin - sent_at > Duration::from_millis(500);
            thread::sleep(Duration::from_millis(300));
            if leaves {
                peer.id.disconnect()?;
            }
            let waited = writing.join().map_err(|_| Fail::new("a thread panicked"))?;
            // The snapshot may also end by itself.
            let least = Duration::from_millis(if leaves && !late { 250 } else { 0 });
            expect(least < waited && waited < ctx.limit, || {
                format!("who writes has waited {waited:?}")
            })?;
            Ok::<_, Fail>(late)
        })?;
        if !leaves {
            sent.expect_read(sent.lent, &old)?;
            sent.report(sent.lent.len)?;
        }
        let mut want = old.clone();
        want[0] = new[0];
        sent.expect_back(ctx, &want)?;
        let waits = sent.session.since("snapshot_waits")?;
        expect(waits > 0 || late, || "nobody has waited".to_owned())?;
        let allowed: &[&str] = if leaves { &["reset_by_peer"] } else { &[] };
        sent.session.expect_only(allowed)?;
    }
    Ok(())
}
