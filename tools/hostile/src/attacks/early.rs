// SPDX-License-Identifier: GPL-2.0
//! Source adverts to victims whose recv() returns before the bytes have arrived. The memory is not
//! as the advert says, or the peer takes the advert back.
//!
//! A victim may be told by a failing call or, for bytes that a call has returned, by SIGSEGV. It
//! must not see other bytes than the peer's, and must not wait forever.

use super::{adverts, Attack};
use crate::cm::{Channel, Id};
use crate::counters::{moves, settled};
use crate::fail::{expect, Fail, Result, Step};
use crate::ffi;
use crate::loan::Lent;
use crate::pages::Pages;
use crate::peer::Peer;
use crate::queue::{Completion, Queue};
use crate::reader::{Fate, Reader, Seen, OLD};
use crate::session::{pattern, resolved, Ctx, Session};
use proto_host::proto::bsdh::Mid;
use proto_host::proto::message::Body;
use std::thread;
use std::time::{Duration, Instant};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "early.honest_lender",
        run: honest_lender,
    },
    Attack {
        name: "early.honest_cancel",
        run: honest_cancel,
    },
    Attack {
        name: "early.into_registered_memory",
        run: into_registered_memory,
    },
    Attack {
        name: "early.into_memory_on_demand",
        run: into_memory_on_demand,
    },
    Attack {
        name: "early.lies_about_length",
        run: lies_about_length,
    },
    Attack {
        name: "early.key_of_nobody",
        run: key_of_nobody,
    },
    Attack {
        name: "early.cancels_and_forgets",
        run: cancels_and_forgets,
    },
    Attack {
        name: "early.takes_memory_back",
        run: takes_memory_back,
    },
    Attack {
        name: "early.says_goodbye",
        run: says_goodbye,
    },
    Attack {
        name: "early.goes_away",
        run: goes_away,
    },
    Attack {
        name: "early.never_answers",
        run: never_answers,
    },
];

/// The number of bytes of an advert.
const BYTES: usize = 256 << 10;
/// The number of bytes of an advert that takes long enough for another event in between.
const MANY: usize = 2 << 20;
/// The offset in its first page of a buffer that does not begin with a page.
const ODD: usize = 16;
/// The number of bytes at the start of such a buffer for which the call waits.
const HEAD: usize = 4096 - ODD;
/// The least number of tries of an attack, and the maximum number of tries until it has succeeded.
const TRIES: usize = 4;
const MOST_TRIES: usize = 40;

/// A session with a victim that waits in recv() for the `bytes`, and the memory that contains the
/// first `lent` of them.
struct Attacked {
    session: Session,
    reader: Reader,
    lent: Option<Lent>,
}

impl Attacked {
    fn new(ctx: &Ctx, bytes: &[u8], odd: usize, lent: usize) -> Result<Attacked> {
        let mut session = adverts::open(ctx)?;
        session.victim.set_early_threshold(16_384)?;
        let lent = match lent {
            0 => None,
            len => Some(session.peer.queue()?.lend(&bytes[..len])?),
        };
        let reader = Reader::start(&session.victim, bytes, odd, ctx.limit)?;
        Ok(Attacked {
            session,
            reader,
            lent,
        })
    }

    /// Sends an advert of `len` bytes.
    fn advertise(&mut self, len: usize) -> Result<()> {
        let len = len as u32;
        let advert = match self.lent {
            Some(Lent { rkey, addr, .. }) => Body::SrcAvail { len, rkey, addr },
            None => Body::SrcAvail {
                len,
                rkey: 0xdead_beef,
                addr: 4096,
            },
        };
        self.session.peer.send(advert, &[])
    }

    /// Waits until a counter of the victim has changed. The wait is short, because the counter may
    /// never change.
    fn await_counted(&mut self, name: &str, ctx: &Ctx) -> Result<()> {
        let end = Instant::now() + ctx.limit / 10;
        while self.session.since(name)? == 0 && Instant::now() < end {
            self.session.peer.pump()?;
        }
        Ok(())
    }

    /// Waits until the victim ends.
    fn seen(&mut self, ctx: &Ctx) -> Result<Seen> {
        self.reader.end(&mut self.session.peer, ctx.limit * 6)
    }

    /// The number of calls that have returned before their bytes had arrived.
    fn early(&self) -> Result<u64> {
        self.session.since("read_early")
    }

    /// Expects that the victim's connection has ended with one of `errnos`, which a call of the
    /// victim may have reported.
    fn expect_death(&mut self, seen: &Seen, errnos: &[i32], allowed: &[&str]) -> Result<()> {
        if seen.is_told_by_errno(errnos) {
            self.session.peer.await_disconnect()?;
            return self.session.expect_only(allowed);
        }
        expect(seen.is_told_by_signal(), || format!("{seen:?}"))?;
        self.session.expect_some_death(errnos, allowed)
    }
}

/// Tries an attack several times, and until it has succeeded once (`attack` returns true). It is
/// tried with buffers of whole pages, and with buffers that begin in the middle of a page.
fn tried(ctx: &Ctx, attack: impl Fn(&Ctx, usize) -> Result<bool>) -> Result<()> {
    let tries = (TRIES / ctx.every).max(2);
    for odd in [0, ODD] {
        let mut hits = 0;
        for turn in 0..MOST_TRIES {
            if turn >= tries && hits > 0 {
                break;
            }
            let what = format!("{odd} bytes behind a page, try {turn}");
            hits += usize::from(attack(ctx, odd).step(&what)?);
            settled(ctx.limit).step(&what)?;
        }
        expect(hits > 0, || {
            format!("it has not hit once, {odd} bytes behind a page")
        })?;
    }
    Ok(())
}

/// As [`tried`], for an attack that follows an advert: first at once, which may be too early to
/// succeed, and then after a call has returned.
fn tried_behind(ctx: &Ctx, attack: impl Fn(&Ctx, usize, bool) -> Result<bool>) -> Result<()> {
    for waits in [false, true] {
        tried(ctx, |ctx, odd| Ok(attack(ctx, odd, waits)? || !waits))?;
    }
    Ok(())
}

/// The number of bytes that the victim has reported as read.
fn reported(peer: &Peer) -> usize {
    let bytes = |body: &Body| match *body {
        Body::RdmaRdCompl { bytes } => bytes as usize,
        _ => 0,
    };
    peer.heard.iter().map(bytes).sum()
}

fn honest_lender(ctx: &Ctx) -> Result<()> {
    let bytes = pattern(31, BYTES);
    tried(ctx, |ctx, odd| {
        let mut attacked = Attacked::new(ctx, &bytes, odd, BYTES)?;
        attacked.advertise(BYTES)?;
        let seen = attacked.seen(ctx)?;
        expect(seen.fate == Fate::All, || format!("{seen:?}"))?;
        let peer = &mut attacked.session.peer;
        peer.until("reports of all bytes", |p| reported(p) == BYTES)?;
        attacked.session.expect_only(&[])?;
        Ok(attacked.early()? > 0)
    })
}

/// A peer that takes an advert back waits for the answer, and sends the bytes that were not read.
fn honest_cancel(ctx: &Ctx) -> Result<()> {
    let bytes = pattern(32, MANY);
    cancelled(ctx, &bytes, &[], |peer| {
        await_answer(peer)?;
        for payload in bytes[reported(peer)..].chunks(4000) {
            peer.send(Body::Data, payload)?;
        }
        Ok(())
    })
}

/// Takes an advert back and then calls `act`. The victim's connection may end with one of `deaths`.
fn cancelled(
    ctx: &Ctx,
    bytes: &[u8],
    deaths: &[(i32, &str)],
    act: impl Fn(&mut Peer) -> Result<()>,
) -> Result<()> {
    let (errnos, allowed): (Vec<_>, Vec<_>) = deaths.iter().copied().unzip();
    tried_behind(ctx, |ctx, odd, waits| {
        let mut attacked = Attacked::new(ctx, bytes, odd, bytes.len())?;
        attacked.advertise(bytes.len())?;
        if waits {
            attacked.await_counted("read_early", ctx)?;
        }
        let peer = &mut attacked.session.peer;
        peer.send(Body::SrcAvailCancel, &[])?;
        act(peer)?;
        let seen = attacked.seen(ctx)?;
        let early = attacked.early()? > 0;
        if seen.fate == Fate::All {
            attacked.session.expect_only(&allowed)?;
        } else {
            attacked.expect_death(&seen, &errnos, &allowed)?;
        }
        Ok(early)
    })
}

fn await_answer(peer: &mut Peer) -> Result<()> {
    peer.until("an answer", |p| {
        p.is_over() || p.heard.iter().any(|b| b.mid() == Mid::SendSm)
    })
}

/// Two queue pairs of this process that are connected to each other.
///
/// The fields are dropped in this order: the queues use the ids' device.
struct Pair {
    from: Queue,
    to: Queue,
    _ids: (Id, Id),
}

impl Pair {
    /// Connects two queue pairs. The second one can receive `receives` messages.
    fn new(ctx: &Ctx, receives: usize) -> Result<Pair> {
        let addr = ctx.fresh();
        let listener = Id::new(&Channel::new()?)?;
        listener.listen(addr)?;
        let one = resolved(addr, ctx.limit)?;
        let from = Queue::new(&one)?;
        one.connect(&[], from.number())?;
        let event = listener.expect(ffi::RDMA_CM_EVENT_CONNECT_REQUEST, ctx.limit)?;
        let other = Id::of_request(&event, &listener)?;
        let to = Queue::new(&other)?;
        for slot in 0..receives {
            to.post_receive(slot)?;
        }
        to.ready(&other)?;
        other.accept(&[], to.number())?;
        one.accepted(ctx.limit)?;
        from.ready(&one)?;
        one.establish()?;
        let _ids = (one, other);
        Ok(Pair { from, to, _ids })
    }

    /// The bytes at an address, as the adapter sees them.
    fn seen(&mut self, addr: usize, len: usize, lkey: u32, limit: Duration) -> Result<Vec<u8>> {
        self.from.send_from(addr, len, lkey)?;
        let end = Instant::now() + limit;
        let mut sent = false;
        let mut received = None;
        loop {
            if let Some((_, completion)) = self.from.poll()? {
                sent = true;
                expect(matches!(completion, Completion::Sent), || {
                    "the send has failed".to_owned()
                })?;
            }
            if let Some((slot, Completion::Received(bytes))) = self.to.poll()? {
                received = Some(bytes);
                self.to.post_receive(slot)?;
            }
            match received.take() {
                Some(bytes) if sent => return Ok(bytes),
                other => received = other,
            }
            expect(Instant::now() < end, || "no message".to_owned())?;
        }
    }
}

/// The victim's buffer is registered for another connection of the same program. The adapter sends
/// from its pages regardless of the page tables, so no call may return before the bytes have
/// arrived.
fn into_registered_memory(ctx: &Ctx) -> Result<()> {
    into_memory_of_an_adapter(ctx, false)
}

/// As above, but the adapter does not pin the pages: it has mapped them, and its driver has a
/// notifier, which was registered after that of the module.
fn into_memory_on_demand(ctx: &Ctx) -> Result<()> {
    honest_lender(ctx)?;
    into_memory_of_an_adapter(ctx, true)
}

fn into_memory_of_an_adapter(ctx: &Ctx, on_demand: bool) -> Result<()> {
    /// The number of bytes of a message.
    const PIECE: usize = 4096;
    let pages = Pages::new(BYTES)?;
    let mut pair = Pair::new(ctx, 4)?;
    // SAFETY: the pages are declared before the pair, so they are dropped after it.
    let key = unsafe { pair.from.register(&pages, on_demand)? };
    let bytes = pattern(40, BYTES);
    let mut hits = 0;
    for _ in 0..MOST_TRIES {
        pages.fill(OLD);
        for at in (0..BYTES).step_by(PIECE) {
            let seen = pair.seen(pages.addr() + at, PIECE, key, ctx.limit)?;
            expect(seen.iter().all(|byte| *byte == OLD), || {
                format!("the adapter has sent other bytes at {at}")
            })?;
        }
        let mut session = adverts::open(ctx)?;
        session.victim.set_early_threshold(16_384)?;
        let Lent { len, rkey, addr } = session.peer.queue()?.lend(&bytes)?;
        let mut got = 0;
        while got < BYTES {
            let victim = &session.victim;
            let (at, left) = (pages.addr() + got, BYTES - got);
            let n = thread::scope(|scope| {
                let receiving = scope.spawn(move || victim.recv_at(at, left));
                if got == 0 {
                    // The receive should be waiting by now.
                    thread::sleep(Duration::from_millis(20));
                    session.peer.send(Body::SrcAvail { len, rkey, addr }, &[])?;
                }
                let received = receiving.join();
                received
                    .map_err(|_| Fail::new("a thread panics"))?
                    .step("recv")
            })?;
            expect(n > 0, || format!("the end after {got} bytes"))?;
            // Check the end first, because its bytes arrive last.
            let ends = [got + n - PIECE.min(n), got];
            for from in ends {
                let len = PIECE.min(got + n - from);
                let seen = pair.seen(pages.addr() + from, len, key, ctx.limit)?;
                expect(seen == bytes[from..from + len], || {
                    format!("the adapter has sent other bytes than those from {from} on")
                })?;
            }
            got += n;
        }
        let peer = &mut session.peer;
        peer.until("reports of all bytes", |p| reported(p) == BYTES)?;
        session.expect_only(&[])?;
        let early = session.since("read_early")?;
        expect(early == 0, || format!("{early} calls have returned early"))?;
        hits += session.since("by_copy_NotProtectable")?;
        drop(session);
        settled(ctx.limit)?;
        if hits > 0 {
            return Ok(());
        }
    }
    Err(Fail::new("no call would have returned early"))
}

/// The memory is shorter than the advert says.
fn lies_about_length(ctx: &Ctx) -> Result<()> {
    let bytes = pattern(33, BYTES);
    for there in [1000, HEAD, 128 << 10, (128 << 10) + HEAD, BYTES - 5000] {
        tried(ctx, |ctx, odd| {
            let mut attacked = Attacked::new(ctx, &bytes, odd, there)?;
            attacked.advertise(BYTES)?;
            let seen = attacked.seen(ctx)?;
            expect(seen.right <= there, || format!("{seen:?}"))?;
            let early = attacked.early()? > 0;
            let (errno, counter) = ctx.told_of_refusal();
            attacked.expect_death(&seen, &[errno], &[counter])?;
            let refused = moves(&[(counter, 1)]);
            attacked.session.expect_counted(&refused)?;
            if odd > 0 {
                // No call returns before the head has arrived, nor if the rest fails at once.
                let none = seen.received == 0 && !early;
                expect(none || there >= HEAD, || format!("{seen:?}"))?;
                return Ok(true);
            }
            Ok(early && seen.is_told_by_signal())
        })
        .step(&format!("{there} bytes are there"))?;
    }
    Ok(())
}

fn key_of_nobody(ctx: &Ctx) -> Result<()> {
    let bytes = pattern(34, BYTES);
    tried(ctx, |ctx, odd| {
        let mut attacked = Attacked::new(ctx, &bytes, odd, 0)?;
        attacked.advertise(BYTES)?;
        let seen = attacked.seen(ctx)?;
        let early = attacked.early()? > 0;
        let (errno, counter) = ctx.told_of_refusal();
        attacked.expect_death(&seen, &[errno], &[counter])?;
        let refused = moves(&[(counter, 1)]);
        attacked.session.expect_counted(&refused)?;
        expect(seen.right == 0, || format!("{seen:?}"))?;
        if odd > 0 {
            let none = seen.received == 0 && !early;
            expect(none, || format!("{seen:?}"))?;
            return Ok(true);
        }
        Ok(early && seen.is_told_by_signal())
    })
}

/// Takes the advert back, and withdraws the memory without waiting for the answer.
fn cancels_and_forgets(ctx: &Ctx) -> Result<()> {
    let deaths = [ctx.told_of_refusal(), (libc::ECONNRESET, "reset_by_peer")];
    cancelled(ctx, &pattern(35, MANY), &deaths, |peer| {
        peer.queue()?.take_back();
        await_answer(peer)?;
        // If the victim has lost nothing, it waits for more bytes.
        peer.id.disconnect()
    })
}

/// The advert stays, but its memory is withdrawn while the victim reads.
fn takes_memory_back(ctx: &Ctx) -> Result<()> {
    let bytes = pattern(36, MANY);
    tried(ctx, |ctx, odd| {
        let mut attacked = Attacked::new(ctx, &bytes, odd, MANY)?;
        attacked.advertise(MANY)?;
        attacked.await_counted("read_early", ctx)?;
        attacked.session.peer.queue()?.take_back();
        let seen = attacked.seen(ctx)?;
        let early = attacked.early()? > 0;
        if seen.fate == Fate::All {
            return Ok(false);
        }
        let (errno, counter) = ctx.told_of_refusal();
        attacked.expect_death(&seen, &[errno], &[counter])?;
        Ok(early && seen.is_told_by_signal())
    })
}

/// The CM ends the connection, while the adapter still answers.
fn says_goodbye(ctx: &Ctx) -> Result<()> {
    let bytes = pattern(37, MANY);
    tried_behind(ctx, |ctx, odd, waits| {
        let mut attacked = Attacked::new(ctx, &bytes, odd, MANY)?;
        attacked.advertise(MANY)?;
        if waits {
            attacked.await_counted("read_early", ctx)?;
        }
        attacked.session.peer.id.disconnect()?;
        let seen = attacked.seen(ctx)?;
        let early = attacked.early()? > 0;
        if seen.fate != Fate::All {
            attacked.expect_death(&seen, &[libc::ECONNRESET], &["reset_by_peer"])?;
        }
        Ok(early)
    })
}

/// The CM ends the connection, and the adapter does not answer any more.
fn goes_away(ctx: &Ctx) -> Result<()> {
    let bytes = pattern(38, MANY);
    tried(ctx, |ctx, odd| {
        let mut attacked = Attacked::new(ctx, &bytes, odd, MANY)?;
        attacked.advertise(MANY)?;
        attacked.await_counted("read_early", ctx)?;
        attacked.session.peer.queue = None;
        attacked.session.peer.id.disconnect()?;
        let seen = attacked.seen(ctx)?;
        if seen.fate == Fate::All {
            return Ok(false);
        }
        attacked.expect_death(&seen, &[libc::ECONNRESET], &["reset_by_peer"])?;
        Ok(seen.is_told_by_signal())
    })
}

/// The queue pair is destroyed, and the CM does not report this. A victim that touches the pages
/// waits until its adapter gives up.
fn never_answers(ctx: &Ctx) -> Result<()> {
    let bytes = pattern(39, MANY);
    for _ in 0..MOST_TRIES {
        let mut attacked = Attacked::new(ctx, &bytes, 0, MANY)?;
        attacked.advertise(MANY)?;
        attacked.await_counted("read_early", ctx)?;
        attacked.session.peer.queue = None;
        let seen = attacked.seen(ctx)?;
        if seen.fate == Fate::All {
            continue;
        }
        let errnos = [libc::ETIMEDOUT, libc::ECONNRESET];
        attacked.expect_death(&seen, &errnos, &["timed_out", "reset_by_peer"])?;
        if seen.is_told_by_signal() {
            // The wait is counted last.
            settled(ctx.limit)?;
            attacked.await_counted("absent_waits", ctx)?;
            let waits = attacked.session.since("absent_waits")?;
            return expect(waits > 0, || "nobody has waited".to_owned());
        }
    }
    expect(false, || "it has not hit once".to_owned())
}
