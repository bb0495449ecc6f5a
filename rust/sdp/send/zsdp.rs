// SPDX-License-Identifier: GPL-2.0

//! sendmsg() without a copy: the program's pages are advertised, and the call waits until the peer
//! has read them.
//!
//! # Normal operation
//!
//! The pages of a piece of the buffer are pinned without the lock, then made a region of the
//! adapter and advertised; at most [`ADVERTS`](crate::params::ADVERTS) pieces are advertised at a
//! time. The thread that handles the peer's report, or the end of a region's key, wakes the call,
//! which then unpins the pages. Other sends of the socket wait for their turn.
//!
//! # Exceptions
//!
//! After a signal, a time-out, or a shutdown the adverts are taken back (rule A2 of the protocol).
//! The call waits for the answer, because the peer may be reading. If the answer takes too long,
//! the connection is aborted; a fatal signal aborts the connection, too, and ends the wait. When
//! the connection has ended, the call waits until its queue pair is gone. So when a program has its
//! buffer back, the peer cannot read it any more. The bytes that the peer has not read are not
//! sent, as after any other partial send.

use kernel::alloc::Flags;
use kernel::prelude::*;

use super::choose::Chooser;
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
use crate::proto::choice::{
    Reason,
    MIN_UNCOPIED_BYTES, //
};
use crate::proto::half::Half;
use crate::proto::message::InStream;
use crate::proto::source::Kind;
use crate::proto::state::State;
use crate::rdma::link::{
    Link,
    With,
    MAX_FRAGS, //
};
use crate::rdma::region::Use;
use crate::sdp::conn::connection::Connection;
use crate::sdp::conn::guard::{
    SockGuard,
    SockOwner, //
};
use crate::sdp::cq::poll::catch_up;
use crate::sdp::flush::{
    flush,
    permit_payload, //
};
use crate::sdp::output::abort::{
    abort,
    end_for,
    settle, //
};
use crate::sdp::output::{
    Output,
    CONTROL_PLACES, //
};
use crate::sdp::parts::fatal::Fatal;
use crate::sdp::parts::posted::Posted;
use crate::sdp::parts::source::Sources;
use crate::sdp::reclaim::restore_read;
use crate::sdp::timers::tx_watchdog::CANCEL_MS;
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;
use crate::trace::{
    self,
    Advert, //
};

/// The size of the body of a SrcAvail in bytes: neither header nor payload.
const ADVERT_BODY: u32 = 16;

/// The progress of a send by adverts.
struct Out {
    /// Bytes taken from the program's buffer.
    taken: usize,
    /// The piece that is advertised next.
    next: Option<Pinned>,
    /// Set if nothing more can be advertised, and the rest goes by copy.
    stop: Option<Reason>,
}

/// Why the rest goes by copy after pinning has failed with `e`. The copy will report a bad address.
pub(super) fn no_pin(e: Error) -> Reason {
    if e == ENOBUFS {
        Reason::PinLimit
    } else {
        Reason::NotPinnable
    }
}

/// Why memory was not advertised.
pub(super) enum Unposted {
    /// The connection has ended.
    Gone,
    /// The connection must end.
    Fatal(Fatal),
}

/// Posts adverts of memory. The bytes that wait in the send queue go before the memory, in the
/// message of the advert.
pub(super) struct Advertiser<'a> {
    output: Output<'a>,
    /// For allocations in the context of the lock.
    flags: Flags,
}

impl<'a> Advertiser<'a> {
    pub(super) fn of(guard: &'a mut SockGuard<'_>) -> Self {
        let (_, flags) = guard.gfp();
        let output = Output::of(guard);
        Self { output, flags }
    }

    /// Whether the adapter's send queue has no places for an advert at present.
    pub(super) fn lacks_places(&self) -> bool {
        let places = self.places();
        let link = self.output.link.as_ref();
        link.is_some_and(|link| link.send_room() < places)
    }

    /// Places in the send queue that an advert takes, and those that it leaves to control messages.
    fn places(&self) -> u32 {
        let link = self.output.link.as_ref();
        1 + link.map_or(1, |link| link.registration_places()) + CONTROL_PLACES
    }

    /// Whether the bytes that wait in the send queue fit into the message of an advert.
    fn fits(&self) -> bool {
        let limit = self.output.message_limit();
        let Output { link, out, .. } = &self.output;
        let frags = link.as_ref().map_or(0, |link| link.max_frags());
        // Of all messages only Data can end with an urgent byte.
        !out.urgent.waits()
            && out.queue.bytes() <= limit.saturating_sub(ADVERT_BODY)
            && out.queue.len() <= frags.min(MAX_FRAGS)
    }

    /// Whether an advert may be sent now. If so, answers the peer's sink adverts first.
    ///
    /// # Errors
    ///
    /// [`Fatal::Refused`].
    fn may_post(&mut self, kind: Kind) -> Result<bool, Fatal> {
        let waiting = self.output.out.queue.bytes();
        let sources = self.output.adverts.sources_or_new(self.flags);
        let may = sources.is_some_and(|s| s.adverts.may_post(kind, waiting).is_ok());
        let places = self.places();
        let may = may && self.fits() && self.output.may_post(Class::Payload, places);
        // The answers take credits, too.
        Ok(may
            && permit_payload(&mut self.output)?.is_some()
            && self.output.may_post(Class::Payload, places))
    }

    /// Posts the advert. Returns the memory if there is no place for a region, if the adapter cannot
    /// use the memory, or if [`Advertiser::may_post`] has not answered the peer's sink adverts.
    fn post(&mut self, memory: Memory, kind: Kind) -> Result<Option<Memory>, Unposted> {
        let output = &mut self.output;
        let len = memory.len();
        let Some(permit) = output.adverts.payload_permit() else {
            return Ok(Some(memory));
        };
        let link = output.link.as_mut().ok_or(Unposted::Gone)?;
        let region = match link.add_region(memory, Use::PeerReads(kind)) {
            Ok(region) => region,
            Err(memory) => return Ok(Some(memory)),
        };
        let address = link.region(region).ok_or(Unposted::Gone)?;
        let waiting = output.out.queue.bytes();
        let mut frags: [Option<Frag>; MAX_FRAGS] = [const { None }; MAX_FRAGS];
        // Send all waiting bytes, even if the limit is smaller by now: the memory of all sockets
        // may have run out meanwhile.
        if output.cut_message(waiting, &mut frags) != waiting {
            // `fits` has counted the fragments: if some are left, the stream would lose bytes.
            return Err(Unposted::Fatal(Fatal::Inconsistent));
        }
        let sources = output.adverts.sources.as_mut().ok_or(Unposted::Gone)?;
        let posted = sources
            .adverts
            .post(kind, waiting, len, Posted::now(region));
        posted.map_err(|_| Unposted::Gone)?;
        // Counted here: if the provider refuses the message, the advert is aborted with the
        // connection, and counted as such.
        let stats = output.sock.stats;
        output.measured.counts.add(stats, Kept::AdvertPosted, 1);
        let message = InStream::SrcAvail {
            len,
            rkey: address.key,
            addr: address.addr,
        };
        let with = With::Registration(region);
        if output
            .post_in_stream(permit, message, &mut frags, waiting, with)
            .map_err(Unposted::Fatal)?
        {
            let sk = output.sock.sk();
            let (sink, bytes) = (false, 0);
            trace::advert_posted(sk, Advert { sink, len, bytes });
            stats.inc(Counter::MrRegistered);
        }
        Ok(None)
    }
}

/// Whether an advert may be sent now, together with the bytes that wait in the send queue. If not,
/// the call is woken when something changes.
pub(super) fn may_advertise(guard: &mut SockGuard<'_>, kind: Kind) -> bool {
    if !Advertiser::of(guard).fits() {
        guard.conn().adverts.waits = true;
        flush(guard);
        // The provider may have refused a message: then no other message can follow.
        if !guard.conn().may_transmit() {
            return false;
        }
    }
    let may = Advertiser::of(guard).may_post(kind);
    let may = settle(guard, may);
    let sk = guard.sk();
    guard.conn().adverts.set_waits(!may, sk);
    may
}

/// Advertises memory; the bytes that wait in the send queue go before it. [`may_advertise`] has
/// returned `true`. Returns the memory if there is no place for a region, or the adapter cannot use
/// the memory.
///
/// # Errors
///
/// `ECONNRESET` if the connection has ended.
pub(super) fn post_advert(
    guard: &mut SockOwner<'_>,
    memory: Memory,
    kind: Kind,
) -> Result<Option<Memory>> {
    match Advertiser::of(guard).post(memory, kind) {
        Ok(left) => return Ok(left),
        Err(Unposted::Gone) => {}
        Err(Unposted::Fatal(why)) => {
            // The region has the memory, and gives it back when the queue pair is gone.
            let is_taken = matches!(why, Fatal::Refused(_));
            end_for(guard, why);
            if is_taken {
                return Ok(None);
            }
        }
    }
    Err(ECONNRESET)
}

/// Whether the peer has read all adverts of the waiting send, and can no longer read its memory.
/// Adverts of sends that have returned do not count; all outstanding adverts are of one kind.
fn all_back(conn: &Connection) -> bool {
    let returned = |s: &KBox<Sources>| {
        let oldest = s.adverts.iter().next();
        oldest.is_some_and(|oldest| oldest.kind == Kind::Asynchronous)
    };
    let none = |s: &KBox<Sources>| s.adverts.is_idle() || returned(s);
    conn.adverts.sources.as_ref().is_none_or(none)
        && match &conn.link {
            Some(link) => !link.has_regions(Use::PeerReads(Kind::Synchronous)),
            // The worker may be about to destroy the queue pair.
            None => conn.state == State::Released,
        }
}

/// Unpins the pages of regions that the peer cannot access any more.
fn unpin_dead(link: &mut Option<Link>) {
    let Some(link) = link else { return };
    while let Some(pinned) = link.take_dead_region(Use::PeerReads(Kind::Synchronous)) {
        drop(pinned);
    }
}

impl Send<'_> {
    /// Advertises the bytes that `send` has left, and waits until the peer has read them. Bytes
    /// that cannot be advertised are left to be copied.
    ///
    /// # Errors
    ///
    /// As for [`super::sendmsg::sendmsg`]; the bytes that the peer has read until then are counted
    /// in `send`.
    pub(super) fn send_by_adverts(&mut self, guard: &mut SockOwner<'_>) -> Result {
        let (_, flags) = guard.gfp();
        if guard.conn().adverts.sources_or_new(flags).is_none() {
            // There is no memory for the records of adverts.
            self.by_copy = self.iter.len();
            return Ok(());
        }
        guard.keep(Access::Read, Half::AwaitingPeer, |guard| {
            self.pin_and_advertise(guard)
        })
    }

    fn pin_and_advertise(&mut self, guard: &mut SockOwner<'_>) -> Result {
        if let Some(sources) = &mut guard.conn().adverts.sources {
            sources.read_bytes = 0;
        }
        let mut out = Out {
            taken: 0,
            next: None,
            stop: None,
        };
        let result = self.advertise(guard, &mut out);
        drop(out.next.take());
        if result.is_err() {
            self.take_back(guard);
        }
        let same = guard.generation() == self.began;
        let read = match &guard.conn().adverts.sources {
            Some(sources) if same => sources.read_bytes.min(out.taken),
            _ => 0,
        };
        self.iter.revert(out.taken - read);
        self.copied += read;
        if let Some(why) = out.stop {
            guard.count_by_copy(why);
            self.by_copy = self.iter.len();
        }
        if same {
            let sk = guard.sk();
            guard.conn().adverts.set_waits(false, sk);
        }
        result
    }

    fn advertise(&mut self, guard: &mut SockOwner<'_>, out: &mut Out) -> Result {
        loop {
            catch_up(guard);
            unpin_dead(&mut guard.conn().link);
            restore_read(guard);
            let sk = guard.sk();
            guard.conn().check_sendable(sk)?;
            if guard.generation() != self.began {
                return Err(EPIPE);
            }
            if out.taken == 0 && Chooser::of(guard).prefers_sink(self) {
                return Ok(());
            }
            let link = guard.conn().link.as_ref();
            let has_room = link.is_some_and(|link| link.has_region_room());
            if out.next.is_none() && has_room && wants_more(self, out) {
                match self.pin_next(guard) {
                    Ok(pinned) => {
                        out.taken += pinned.len() as usize;
                        out.next = Some(pinned);
                    }
                    Err(e) => out.stop = Some(no_pin(e)),
                }
                // The lock was not held during the pinning: check all conditions again.
                continue;
            }
            if out.next.is_some() && may_advertise(guard, Kind::Synchronous) {
                if let Some(pinned) = out.next.take() {
                    let len = pinned.len() as usize;
                    let memory = Memory::Pinned(pinned);
                    // The adapter may be unable to use the memory.
                    if post_advert(guard, memory, Kind::Synchronous)?.is_some() {
                        self.iter.revert(len);
                        out.taken -= len;
                        out.stop = Some(Reason::NotPinnable);
                    }
                }
                continue;
            }
            if guard.conn().state.has_ended() {
                // The provider has refused a message. The next iteration returns the error.
                continue;
            }
            if out.next.is_none() && all_back(guard.conn()) && !wants_more(self, out) {
                return Ok(());
            }
            self.timeo.check()?;
            // The call may now wait for completions of other requests, too: then it must be
            // notified of them.
            if guard.conn().adverts.waits && guard.arm() {
                continue;
            }
            guard.wait_for_peer(&mut self.timeo);
        }
    }

    fn pin_next(&mut self, guard: &mut SockOwner<'_>) -> Result<Pinned> {
        let link = guard.conn().link.as_ref().ok_or(ECONNRESET)?;
        let pages = link.max_region_pages() as usize;
        let (iter, stats) = (&mut self.iter, guard.stats);
        guard.unlocked(|| Pinned::new(iter, usize::MAX, pages, Term::Short, stats))
    }

    /// Takes all adverts back, and waits until the peer cannot read them any more.
    fn take_back(&self, guard: &mut SockOwner<'_>) {
        if guard.generation() != self.began {
            // The adverts ended with the queues of the former connection.
            return;
        }
        if let Some(sources) = &mut guard.conn().adverts.sources {
            // There may be nothing to cancel, or a cancel may be due already.
            let _ = sources.adverts.cancel();
        }
        flush(guard);
        let mut left = Timeout::from_ms(CANCEL_MS);
        loop {
            if guard.generation() != self.began {
                return;
            }
            catch_up(guard);
            unpin_dead(&mut guard.conn().link);
            if fatal_signal_pending() {
                return abort(guard, Some(ECONNRESET));
            }
            match guard.conn().state {
                State::Released => return,
                State::Dead => {
                    guard.wait_killable(&mut Timeout::endless());
                    continue;
                }
                _ => {}
            }
            if all_back(guard.conn()) {
                return;
            }
            if left.is_over() {
                guard.stats.inc(Counter::TimedOut);
                abort(guard, Some(ETIMEDOUT));
                continue;
            }
            guard.wait_killable(&mut left);
        }
    }
}

/// Whether another piece of the send could go by an advert.
fn wants_more(send: &Send<'_>, out: &Out) -> bool {
    out.stop.is_none() && send.iter.piece_bytes() >= MIN_UNCOPIED_BYTES as usize
}
