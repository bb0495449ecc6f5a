// SPDX-License-Identifier: GPL-2.0

//! sendmsg() without a copy: the program's pages are written to the buffer of a reader of the peer
//! that waits.
//!
//! # Normal operation
//!
//! The pages are pinned without the lock, then made regions of the adapter. The Writes go into the
//! send queue, and the answer that says how many bytes they have behind them. The call waits until the
//! Writes have finished, which takes as long as the peer's adapter does and no program there, and
//! until the keys of the regions are dead. Then it unpins the pages. Other sends of the socket wait
//! for their turn.
//!
//! # When it ends otherwise
//!
//! Nothing is taken back. When the connection ends, the call waits until its queue pair is gone. Only
//! a thread that is being killed leaves: the worker unpins its pages when the Writes have finished.

use kernel::prelude::*;

use super::azsdp::ROOM_MS;
use super::choose::Ways;
use super::sendmsg::Send;
use super::zsdp::no_pin;
use crate::kern::errno::ECONNRESET;
use crate::kern::iov::Access;
use crate::kern::signal::signal_pending;
use crate::kern::time::Timeout;
use crate::mm::memory::Memory;
use crate::mm::pin::{
    Pinned,
    Term, //
};
use crate::proto::choice::Reason;
use crate::proto::state::Event;
use crate::proto::write::Write;
use crate::rdma::link::Link;
use crate::rdma::region::{
    Call,
    RegionId,
    Use, //
};
use crate::sdp::conn::guard::SockOwner;
use crate::sdp::conn::half::Half;
use crate::sdp::cq::poll::{
    poll_cq_if_due,
    rearm_cq, //
};
use crate::sdp::flush::flush;
use crate::sdp::output::CONTROL_PLACES;
use crate::sdp::parts::adverts::Adverts;
use crate::stats::counters::{
    Counter,
    Stats, //
};

/// Pieces that are written to one advert: a buffer of the most pages that a region has may need one
/// more if it does not begin with a page. The send queue has no places for three.
const PIECES: usize = 2;

/// What a send has taken from the program's buffer, in its order.
struct Pieces {
    pinned: [Option<Pinned>; PIECES],
    bytes: usize,
}

/// Regions that are going to be written, in their order.
pub(super) struct Regions {
    ids: [Option<RegionId>; PIECES],
    bytes: u32,
}

impl Regions {
    const NONE: Self = Self {
        ids: [None; PIECES],
        bytes: 0,
    };

    /// One of so many bytes.
    pub(super) fn one(region: RegionId, bytes: u32) -> Self {
        let mut regions = Self {
            bytes,
            ..Self::NONE
        };
        if let Some(first) = regions.ids.first_mut() {
            *first = Some(region);
        }
        regions
    }

    /// Posts the Writes to the peer's memory.
    ///
    /// # Errors
    ///
    /// `ECONNRESET` if there is no room for them; else what the provider returns.
    pub(super) fn post(
        &self,
        link: &mut Option<Link>,
        adverts: &mut Adverts,
        stats: Stats,
    ) -> Result {
        let (Some(sinks), Some(link)) = (&mut adverts.sinks, link) else {
            return Err(ECONNRESET);
        };
        let mut write = sinks.writer.write(self.bytes).ok_or(ECONNRESET)?;
        if write.len != self.bytes {
            return Err(ECONNRESET);
        }
        for region in self.ids.iter().flatten() {
            let len = link.region_bytes(*region);
            link.write_from(&Write { len, ..write }, *region)?;
            write.addr = write.addr.wrapping_add(len.into());
            stats.inc(Counter::WritePosted);
            stats.add(Counter::MrRegistered, link.has_key(*region).into());
        }
        Ok(())
    }
}

impl Pieces {
    /// Makes regions of the pieces, as far as there are places for them.
    fn register(&mut self, link: &mut Link) -> Regions {
        let mut regions = Regions::NONE;
        let mut places = 1 + CONTROL_PLACES;
        for (place, id) in self.pinned.iter_mut().zip(&mut regions.ids) {
            places += link.write_places();
            if link.send_room() < places {
                break;
            }
            let Some(pinned) = place.take() else { break };
            let len = pinned.len();
            match link.add_region(Memory::Pinned(pinned), Use::OwnWrites(Call::Waits)) {
                Ok(region) => *id = Some(region),
                Err(_) => break,
            }
            regions.bytes += len;
        }
        regions
    }
}

impl SockOwner<'_> {
    /// Waits for that, but not for long: the peer's program may be the one who waits for bytes.
    pub(super) fn await_sink(&mut self, send: &mut Send<'_>) -> Result {
        send.by_copy = 0;
        let mut patience = Timeout::from_ms(ROOM_MS);
        loop {
            poll_cq_if_due(self);
            rearm_cq(self);
            let sk = self.sk();
            self.conn().check_sendable(sk)?;
            if self.generation() != send.began {
                return Err(EPIPE);
            }
            if Ways::of(self).sink_room() > 0 || send.timeo.is_over() || patience.is_over() {
                return Ok(());
            }
            if signal_pending() {
                return Err(send.timeo.interrupted());
            }
            // What waits comes first, and for places in the send queue.
            self.conn().adverts.waits = true;
            flush(self);
            if !self.arm() {
                self.wait_for_room(&mut send.timeo, &mut patience);
            }
            let waits = self.conn().halves.sender_waits_for_peer();
            let sk = self.sk();
            self.conn().adverts.set_waits(waits, sk);
        }
    }

    /// Writes some of what `send` has left to the peer's memory, and waits until it is there. What
    /// cannot be written is left to another way.
    ///
    /// # Errors
    ///
    /// What ended the connection; `EINTR` if the thread is being killed.
    pub(super) fn send_by_writes(&mut self, send: &mut Send<'_>) -> Result {
        self.keep(Access::Read, Half::AwaitingPeer, |guard| {
            guard.pin_and_write(send)
        })
    }

    fn pin_and_write(&mut self, send: &mut Send<'_>) -> Result {
        if let Some(sinks) = &mut self.conn().adverts.sinks {
            sinks.written_bytes = 0;
        }
        let mut pieces = self.pin_pieces(send);
        let result = if self.post_pieces(send, &mut pieces) {
            // As for every send whose connection has ended.
            let result = self.await_adapter(send.began, Use::OwnWrites(Call::Waits));
            result.map_err(|e| if e == ECONNRESET { EPIPE } else { e })
        } else {
            Ok(())
        };
        let same = self.generation() == send.began;
        let written = match &self.conn().adverts.sinks {
            Some(sinks) if same => sinks.written_bytes.min(pieces.bytes),
            _ => 0,
        };
        send.iter.revert(pieces.bytes - written);
        send.copied += written;
        match result {
            Err(e) if written == 0 => Err(e),
            _ => Ok(()),
        }
    }

    /// Posts the Writes of what is pinned, with the answer behind them, if the peer still has the
    /// room: the lock was not held. Returns whether there is something to wait for.
    fn post_pieces(&mut self, send: &mut Send<'_>, pieces: &mut Pieces) -> bool {
        let same = self.generation() == send.began;
        let may = same && pieces.bytes > 0 && self.conn().state.can_send();
        if !may || (Ways::of(self).sink_room() as usize) < pieces.bytes {
            return false;
        }
        let link = self.conn().link.as_mut();
        let regions = link.map_or(Regions::NONE, |link| pieces.register(link));
        if regions.bytes == 0 {
            self.fallback(Reason::NotPinnable);
            send.iter.revert(pieces.bytes);
            pieces.bytes = 0;
            send.by_copy = send.iter.len();
            return false;
        }
        let stats = self.stats;
        let conn = self.conn();
        let posted = regions.post(&mut conn.link, &mut conn.adverts, stats);
        if posted.is_err() {
            // The call waits until the link has given the regions back.
            self.stats.inc(Counter::PostFailed);
            self.fail(Event::Abort, ECONNRESET);
            return true;
        }
        self.watch_sends();
        // The answer.
        flush(self);
        true
    }

    /// Pins as much as the peer has room for, in a few pieces.
    fn pin_pieces(&mut self, send: &mut Send<'_>) -> Pieces {
        let mut pieces = Pieces {
            pinned: [const { None }; PIECES],
            bytes: 0,
        };
        let room = Ways::of(self).sink_room() as usize;
        let link = self.conn().link.as_ref();
        let pages = link.map_or(0, |link| link.max_region_pages() as usize);
        let (iter, stats) = (&mut send.iter, self.stats);
        let mut failed = None;
        self.unlocked(|| {
            for place in &mut pieces.pinned {
                let most = room.saturating_sub(pieces.bytes).min(iter.len());
                if most == 0 {
                    break;
                }
                match Pinned::new(iter, most, pages, Term::Short, stats) {
                    Ok(pinned) => {
                        pieces.bytes += pinned.len() as usize;
                        *place = Some(pinned);
                    }
                    Err(e) => {
                        failed = Some(e);
                        break;
                    }
                }
            }
        });
        if let Some(e) = failed.filter(|_| pieces.bytes == 0) {
            let why = no_pin(e, self.stats);
            self.fallback(why);
            // The copy will report a bad address.
            send.by_copy = send.iter.len();
        }
        pieces
    }
}
