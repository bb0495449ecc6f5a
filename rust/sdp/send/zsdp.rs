// SPDX-License-Identifier: GPL-2.0

//! sendmsg() without a copy: the program's pages are advertised, and the call waits until the peer
//! has read them.
//!
//! # Normal operation
//!
//! The pages of a piece of the buffer are pinned without the lock, then made a region of the adapter
//! and advertised; up to [`ADVERTS`](crate::params::ADVERTS) pieces are out at a time. Whoever handles
//! the peer's report, or the end of a region's key, wakes the call, which then unpins the pages.
//! Other sends of the socket wait for their turn.
//!
//! # When it ends otherwise
//!
//! A signal, a time-out, or a shutdown takes the adverts back (rule A2 of the protocol). The call
//! waits for the answer, for the peer may be reading; only a fatal signal ends the wait, with the
//! connection. When the connection has ended, the call waits until its queue pair is gone. So a
//! program that has its buffer back can be sure that nobody reads it any more. The bytes that were
//! not read are the program's again, as after any send that took a part.

use kernel::prelude::*;

use super::choose::{
    Ways,
    LEAST_BYTES, //
};
use super::sendmsg::Send;
use crate::kern::errno::{
    ECONNRESET,
    ENOBUFS, //
};
use crate::kern::iov::Access;
use crate::kern::signal::fatal_signal_pending;
use crate::kern::time::Timeout;
use crate::mm::frag::Frag;
use crate::mm::memory::Memory;
use crate::mm::pin::{
    Pinned,
    Term, //
};
use crate::proto::bsdh::Class;
use crate::proto::choice::Reason;
use crate::proto::message::Body;
use crate::proto::source::Kind;
use crate::proto::state::State;
use crate::rdma::link::{
    Tag,
    With,
    MAX_FRAGS, //
};
use crate::rdma::mr::Use;
use crate::sdp::advert::sink;
use crate::sdp::conn::guard::{
    SockGuard,
    SockOwner, //
};
use crate::sdp::conn::half::Half;
use crate::sdp::flush::flush;
use crate::sdp::output::abort::{
    abort,
    settle, //
};
use crate::sdp::output::{
    Output,
    CONTROL_PLACES, //
};
use crate::sdp::parts::posted::Posted;
use crate::sdp::parts::source::ZeroCopy;
use crate::sdp::timers::tx_watchdog::CANCEL_MS;
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;
use crate::trace::{
    self,
    Advert, //
};

/// Bytes of a SrcAvail that are not payload, beyond the header.
const ADVERT_BODY: u32 = 16;

/// What a send has out.
struct Out {
    /// Bytes taken from the program's buffer.
    taken: usize,
    /// The piece that is advertised next.
    next: Option<Pinned>,
    /// Nothing more can be advertised: the rest goes by copy.
    stop: Option<Reason>,
}

impl SockGuard<'_> {
    /// Whether another piece shall be pinned.
    fn may_pin(&mut self, send: &Send<'_>, out: &Out) -> bool {
        let room = self.conn().link.as_ref();
        wants_more(send, out) && room.is_some_and(|link| link.has_region_room())
    }

    /// Why the rest goes by copy: which will report a bad address.
    pub(super) fn no_pin(&mut self, e: Error) -> Reason {
        if e == ENOBUFS {
            self.stats.inc(Counter::MemlockRefused);
            Reason::PinLimit
        } else {
            Reason::NotPinnable
        }
    }

    /// Whether an advert may be sent now, with what waits in the send queue inside. If not, the call
    /// is woken when something changes.
    pub(super) fn may_advertise(&mut self, kind: Kind) -> bool {
        if !self.fits_advert() {
            self.conn().adverts.waits = true;
            flush(self);
        }
        let waiting = self.conn().out.queue.bytes();
        let (_, flags) = self.gfp();
        let zcopy = self.conn().adverts.source(flags);
        let may = zcopy.is_some_and(|z| z.source.may_post(kind, waiting).is_ok());
        let places = self.advert_places();
        let may = may && self.fits_advert() && Output::of(self).may_post(Class::Payload, places);
        // The answers take credits, too.
        let answered = may.then(|| sink::answer_all(&mut Output::of(self)));
        let may = answered.is_some_and(|all| settle(self, all))
            && Output::of(self).may_post(Class::Payload, places);
        self.set_advert_waits(!may);
        may
    }

    /// Says whether somebody waits to advertise, so that it is woken by what makes room.
    pub(super) fn set_advert_waits(&mut self, waits: bool) {
        if core::mem::replace(&mut self.conn().adverts.waits, waits) && !waits {
            // Others may wait, too: they say so again.
            self.sk().wake_waiters();
        }
    }

    /// Whether the adapter's send queue has no places for an advert at present.
    pub(super) fn lacks_places(&mut self) -> bool {
        let places = self.advert_places();
        let link = self.conn().link.as_ref();
        link.is_some_and(|link| link.send_room() < places)
    }

    /// Places in the send queue that an advert takes or leaves to control messages.
    fn advert_places(&mut self) -> u32 {
        let link = self.conn().link.as_ref();
        1 + link.map_or(1, |link| link.registration_places()) + CONTROL_PLACES
    }

    /// Whether what waits in the send queue fits into the message of an advert.
    fn fits_advert(&mut self) -> bool {
        let limit = Output::of(self).message_limit();
        let conn = self.conn();
        let frags = conn.link.as_ref().map_or(0, |link| link.max_frags());
        // Only Data ends with an urgent byte.
        !conn.out.urgent.waits()
            && conn.out.queue.bytes() <= limit.saturating_sub(ADVERT_BODY)
            && conn.out.queue.len() <= frags.min(MAX_FRAGS)
    }

    fn post_pinned(&mut self, pinned: Pinned, send: &mut Send<'_>, out: &mut Out) -> Result {
        let len = pinned.len() as usize;
        // The adapter may refuse it.
        if self
            .post_advert(Memory::Pinned(pinned), Kind::Synchronous)?
            .is_some()
        {
            send.iter.revert(len);
            out.taken -= len;
            out.stop = Some(Reason::NotPinnable);
        }
        Ok(())
    }

    /// Advertises memory, with what waits in the send queue before it. [`SockGuard::may_advertise`] has
    /// said that this is possible. Returns the memory if the adapter cannot have it.
    ///
    /// # Errors
    ///
    /// `ECONNRESET` if the connection has ended.
    pub(super) fn post_advert(&mut self, memory: Memory, kind: Kind) -> Result<Option<Memory>> {
        let len = memory.len();
        let link = self.conn().link.as_mut().ok_or(ECONNRESET)?;
        let region = match link.add_region(memory, Use::PeerReads(kind)) {
            Ok(region) => region,
            Err(memory) => return Ok(Some(memory)),
        };
        let address = link.region(region).ok_or(ECONNRESET)?;
        let conn = self.conn();
        let waiting = conn.out.queue.bytes();
        let mut frags: [Option<Frag>; MAX_FRAGS] = [const { None }; MAX_FRAGS];
        // All of it, whatever the limit has become: the memory of all sockets may have run out since.
        if Output::of(self).cut_message(waiting, &mut frags) != waiting {
            // `fits_advert` has counted them: bytes would be lost.
            self.stats.inc(Counter::IllegalTransition);
            abort(self, Some(ECONNRESET));
            return Err(ECONNRESET);
        }
        let zcopy = self.conn().adverts.zcopy.as_mut().ok_or(ECONNRESET)?;
        let posted = zcopy.source.post(kind, waiting, len, Posted::now(region));
        posted.map_err(|_| ECONNRESET)?;
        let body = Body::SrcAvail {
            len,
            rkey: address.key,
            addr: address.addr,
        };
        let with = With::Registration(region);
        let posted = Output::of(self).post_with(body, &mut frags, waiting, Tag::Control, with);
        if settle(self, posted) {
            self.count(Kept::AdvertPosted, 1);
            let (sink, bytes) = (false, 0);
            trace::advert_posted(self.sk(), Advert { sink, len, bytes });
            self.stats.inc(Counter::MrRegistered);
        }
        Ok(None)
    }

    /// Whether the peer has read all that a send waits for, and has no way to read more. Those of sends
    /// that have returned are not its business: all adverts that are out are of one kind.
    fn all_back(&mut self) -> bool {
        let conn = self.conn();
        let returned = |z: &KBox<ZeroCopy>| {
            let oldest = z.source.iter().next();
            oldest.is_some_and(|oldest| oldest.kind == Kind::Asynchronous)
        };
        let none = |z: &KBox<ZeroCopy>| z.source.is_idle() || returned(z);
        conn.adverts.zcopy.as_ref().is_none_or(none)
            && match &conn.link {
                Some(link) => !link.has_regions(Use::PeerReads(Kind::Synchronous)),
                // The worker may be about to destroy the queue pair.
                None => conn.lifetime.torn_down,
            }
    }

    /// Unpins what nobody can reach any more.
    fn unpin_dead(&mut self) {
        while let Some(pinned) = self
            .conn()
            .link
            .as_mut()
            .and_then(|link| link.take_dead_region(Use::PeerReads(Kind::Synchronous)))
        {
            drop(pinned);
        }
    }
}

impl SockOwner<'_> {
    /// Advertises what `send` has left, and waits until the peer has read it. What cannot be
    /// advertised is left to be copied.
    ///
    /// # Errors
    ///
    /// As for [`super::sendmsg::sendmsg`]; what the peer has read until then is counted in `send`.
    pub(super) fn send_by_adverts(&mut self, send: &mut Send<'_>) -> Result {
        let (_, flags) = self.gfp();
        if self.conn().adverts.source(flags).is_none() {
            // There is no memory.
            send.by_copy = send.iter.len();
            return Ok(());
        }
        self.keep(Access::Read, Half::AwaitingPeer, |guard| {
            guard.pin_and_advertise(send)
        })
    }

    fn pin_and_advertise(&mut self, send: &mut Send<'_>) -> Result {
        if let Some(zcopy) = &mut self.conn().adverts.zcopy {
            zcopy.read_bytes = 0;
        }
        let mut out = Out {
            taken: 0,
            next: None,
            stop: None,
        };
        let result = self.advertise(send, &mut out);
        drop(out.next.take());
        if result.is_err() {
            self.take_back(send);
        }
        let same = self.generation() == send.began;
        let read = match &self.conn().adverts.zcopy {
            Some(zcopy) if same => zcopy.read_bytes.min(out.taken),
            _ => 0,
        };
        send.iter.revert(out.taken - read);
        send.copied += read;
        if let Some(why) = out.stop {
            self.fallback(why);
            send.by_copy = send.iter.len();
        }
        if same {
            self.set_advert_waits(false);
        }
        result
    }

    fn advertise(&mut self, send: &mut Send<'_>, out: &mut Out) -> Result {
        loop {
            self.poll_cq();
            self.rearm_cq();
            self.unpin_dead();
            self.restore_read();
            self.check_sendable()?;
            if self.generation() != send.began {
                return Err(EPIPE);
            }
            if out.taken == 0 && Ways::of(self).prefers_sink(send) {
                return Ok(());
            }
            if out.next.is_none() && self.may_pin(send, out) {
                match self.pin_next(send) {
                    Ok(pinned) => {
                        out.taken += pinned.len() as usize;
                        out.next = Some(pinned);
                    }
                    Err(e) => out.stop = Some(self.no_pin(e)),
                }
                // The lock was not held meanwhile.
                continue;
            }
            if out.next.is_some() && self.may_advertise(Kind::Synchronous) {
                if let Some(pinned) = out.next.take() {
                    self.post_pinned(pinned, send, out)?;
                }
                continue;
            }
            if out.next.is_none() && self.all_back() && !wants_more(send, out) {
                return Ok(());
            }
            send.timeo.check()?;
            self.wait(&mut send.timeo);
        }
    }

    fn pin_next(&mut self, send: &mut Send<'_>) -> Result<Pinned> {
        let link = self.conn().link.as_ref().ok_or(ECONNRESET)?;
        let pages = link.max_region_pages() as usize;
        let (iter, stats) = (&mut send.iter, self.stats);
        self.unlocked(|| Pinned::new(iter, usize::MAX, pages, Term::Short, stats))
    }

    /// Takes all adverts back, and waits until nobody can read them.
    fn take_back(&mut self, send: &Send<'_>) {
        if self.generation() != send.began {
            // They went with the queues of the former connection.
            return;
        }
        if let Some(zcopy) = &mut self.conn().adverts.zcopy {
            zcopy.cancel_due = zcopy.source.cancel().is_ok();
        }
        flush(self);
        let mut left = Timeout::from_ms(CANCEL_MS);
        loop {
            if self.generation() != send.began {
                return;
            }
            self.poll_cq();
            self.rearm_cq();
            self.unpin_dead();
            if fatal_signal_pending() {
                return abort(self, Some(ECONNRESET));
            }
            if self.conn().state == State::Dead {
                if self.conn().lifetime.torn_down {
                    return;
                }
                self.wait_killable(&mut Timeout::endless());
                continue;
            }
            if self.all_back() {
                return;
            }
            if left.is_over() {
                self.stats.inc(Counter::TimedOut);
                abort(self, Some(ETIMEDOUT));
                continue;
            }
            self.wait_killable(&mut left);
        }
    }
}

/// Whether another piece of the send could go by an advert.
fn wants_more(send: &Send<'_>, out: &Out) -> bool {
    out.stop.is_none() && send.iter.piece_bytes() >= LEAST_BYTES
}
