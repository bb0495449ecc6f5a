// SPDX-License-Identifier: GPL-2.0

//! sendmsg() without a copy and without a wait: AZ-SDP.
//!
//! # Normal operation
//!
//! The call takes a snapshot of whole pages of the program's buffer, advertises it, and returns. What
//! is before and behind them goes by copy. When the peer has read the pages and the key is dead, the
//! worker, or the next send, gives the program its right to write to them back. Until then their
//! bytes count as waiting in the send buffer.
//!
//! # When it ends otherwise
//!
//! What the program does to its memory, or that it ends, does not matter to the snapshot. Nobody
//! takes such an advert back (rule A3 of the protocol): the peer reads it, or the connection ends
//! with an error for the next call. A program that writes to the pages has copies of them from then
//! on; or it waits, if that is the socket's fault policy. Where the program writes to the pages too
//! soon too often, sends go another way for a while. Bytes for which the send buffer has room, but for
//! some time the peer has not, go by copy: the program may be the one who must read before the peer
//! can.

use kernel::prelude::*;

use super::choose::{
    Ways,
    PAGE_SHIFT, //
};
use super::sendmsg::{
    Lack,
    Send, //
};
use super::zsdp::{
    may_advertise,
    post_advert,
    Advertiser, //
};
use crate::inet::memory;
use crate::kern::errno::{
    ENOBUFS,
    ENOTCONN, //
};
use crate::kern::iov::Access;
use crate::kern::signal::signal_pending;
use crate::kern::time::Timeout;
use crate::mm::memory::Memory;
use crate::mm::snapshot::Snapshot;
use crate::mm::Refused;
use crate::params;
use crate::proto::bsdh::Class;
use crate::proto::choice::Reason;
use crate::proto::source::Kind;
use crate::proto::split::piece_bytes;
use crate::proto::state::State;
use crate::rdma::region::Use;
use crate::sdp::conn::guard::SockOwner;
use crate::sdp::cq::poll::{
    poll_cq_if_due,
    rearm_cq, //
};
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;

/// How long a send waits for the peer to have room while there is room in the send buffer: a program
/// may count on that.
pub(super) const ROOM_MS: u32 = 50;

/// The same for places in the adapter's send queue, which gets empty by itself; but others may fill
/// it again and again.
const PLACES_MS: u32 = 2000;

/// Bytes that go by copy if there is no room, or no snapshot, before adverts are thought of again.
const BYTES_BY_COPY: usize = 1 << 20;

impl Ways<'_> {
    /// How the bytes go of which there is no snapshot.
    pub(super) fn no_snapshot(&mut self, send: &mut Send<'_>, why: Refused) {
        match why {
            Refused::Unfit(why) => {
                self.fallback(why);
                send.unprotectable = Some(why);
                return;
            }
            Refused::Error(e) if e == ENOBUFS => {
                self.sock.stats.inc(Counter::MemlockRefused);
                self.fallback(Reason::PinLimit);
            }
            Refused::Error(_) => {}
        }
        // The copy will report a bad address.
        send.by_copy = send.piece_bytes().min(BYTES_BY_COPY);
    }
}

impl SockOwner<'_> {
    /// Advertises the next piece of a send, which begins with a whole page. What cannot go this way
    /// is left to another.
    ///
    /// # Errors
    ///
    /// As for [`super::sendmsg::sendmsg`].
    pub(super) fn send_later(&mut self, send: &mut Send<'_>) -> Result {
        let result = self.send_piece_later(send);
        if self.generation() == send.began {
            let conn = self.conn();
            let waits = conn.adverts.waits && conn.halves.sender_waits_for_peer();
            let sk = self.sk();
            self.conn().adverts.set_waits(waits, sk);
        }
        result
    }

    fn take_memory(&mut self, send: &mut Send<'_>) -> Result<Memory, Refused> {
        Ok(match &send.lending {
            Some(lending) => {
                let notification = lending.share();
                Memory::Lent(self.take_lent(send, notification)?)
            }
            None => Memory::Snapshot(self.take_snapshot(send)?),
        })
    }

    fn send_piece_later(&mut self, send: &mut Send<'_>) -> Result {
        if !self.await_advert(send, None)? {
            return Ok(());
        }
        let memory = self.in_turn(Access::Read, |guard| guard.take_memory(send));
        let memory = match memory {
            Ok(memory) => memory,
            Err(e) => {
                Ways::of(self).no_snapshot(send, e);
                return Ok(());
            }
        };
        if (memory.len() as usize) < send.least_lent() {
            // Small pieces seldom come alone.
            send.by_copy = send.piece_bytes().min(BYTES_BY_COPY);
            self.give_back_in_turn(memory, Use::PeerReads(Kind::Asynchronous));
            return Ok(());
        }
        // The peer's reader may have begun to wait meanwhile.
        poll_cq_if_due(self);
        let mut memory = if Ways::of(self).fits_sink(send, memory.len() as usize) {
            self.post_ahead(send, memory).err()
        } else {
            Some(memory)
        };
        let result = if memory.is_some() && send.by_copy == 0 {
            self.advertise_later(send, &mut memory)
        } else {
            Ok(())
        };
        match memory {
            Some(memory) if result.is_ok() => {
                self.give_back_in_turn(memory, Use::PeerReads(Kind::Asynchronous));
            }
            // The turn may be another one's, and the call is over.
            Some(memory) => drop(self.give_back(memory, Use::PeerReads(Kind::Asynchronous))),
            None => {}
        }
        result
    }

    /// Waits for the turn, and until there is room for an advert, in the send buffer and at the peer;
    /// `false` if the latter takes too long, so that the bytes go by copy, or if a reader of the peer
    /// waits for them. A send of memory that needs no protection does not wait if it can write to that
    /// reader's buffer: the next piece, or the `taken` bytes whose pages are there.
    fn await_advert(&mut self, send: &mut Send<'_>, taken: Option<usize>) -> Result<bool> {
        let mut patience = Timeout::from_ms(ROOM_MS);
        let mut patience_for_places = Timeout::from_ms(PLACES_MS);
        loop {
            poll_cq_if_due(self);
            rearm_cq(self);
            // Where the lock was not held another send may have begun.
            self.await_turn(Access::Read, send.began, &mut send.timeo)?;
            if self.restore_in_turn(Access::Read) {
                continue;
            }
            let sk = self.sk();
            self.conn().check_sendable(sk)?;
            if !self.sk().stream_memory_free() {
                let bytes = self.conn().options.sndbuf_bytes;
                if memory::is_short() || !self.sk().restore_sndbuf(bytes) {
                    self.wait_memory(send, Lack::Room)?;
                }
                continue;
            }
            let link = self.conn().link.as_ref();
            let has_room = link.is_some_and(|link| link.has_region_room());
            match (&send.lending, taken) {
                (None, _) if Ways::of(self).prefers_sink(send) => return Ok(false),
                (Some(_), None) if Ways::of(self).lends_to_sink(send) => return Ok(true),
                (Some(_), Some(bytes)) if Ways::of(self).fits_sink(send, bytes) => return Ok(true),
                _ => {}
            }
            if has_room && may_advertise(self, Kind::Asynchronous) {
                return Ok(true);
            }
            if self.conn().state == State::Dead {
                // The provider has refused a message.
                continue;
            }
            let patience = if has_room && Advertiser::of(self).lacks_places() {
                &mut patience_for_places
            } else {
                &mut patience
            };
            if send.timeo.is_over() || patience.is_over() {
                let has_credits = self.conn().credits.may_send(Class::Payload);
                self.fallback(if has_credits {
                    Reason::AdvertsFull
                } else {
                    Reason::NoCredits
                });
                send.by_copy = send.piece_bytes().min(BYTES_BY_COPY);
                return Ok(false);
            }
            if signal_pending() {
                return Err(send.timeo.interrupted());
            }
            // What makes room may have come before somebody waits for it.
            if self.arm() {
                continue;
            }
            self.wait_for_room(&mut send.timeo, patience);
        }
    }

    pub(super) fn take_snapshot(&mut self, send: &Send<'_>) -> Result<Snapshot, Refused> {
        let link = self.conn().link.as_ref().ok_or(ENOTCONN)?;
        let max_pages = link.max_region_pages();
        let piece = send.iter.piece().ok_or(EFAULT)?;
        let bytes = piece_bytes(piece.len as u64, max_pages, PAGE_SHIFT);
        let pages = (bytes >> PAGE_SHIFT) as usize;
        // It may not be the program that has chosen.
        let blocks = self.conn().options.blocks && params::may_hold_up();
        let stats = self.stats;
        self.unlocked(|| Snapshot::take(piece.addr, pages, blocks, stats))
    }

    /// Advertises `memory`; what is left there was not needed.
    fn advertise_later(&mut self, send: &mut Send<'_>, memory: &mut Option<Memory>) -> Result {
        // The lock was not held meanwhile.
        let len = memory.as_ref().map_or(0, Memory::len);
        if !self.await_advert(send, Some(len as usize))? {
            return Ok(());
        }
        if send.lending.is_some() && Ways::of(self).fits_sink(send, len as usize) {
            // Its reader waits by now.
            if let Some(lent) = memory.take() {
                *memory = self.post_ahead(send, lent).err();
            }
            return Ok(());
        }
        if !self.sk().wmem_schedule(len) {
            self.stats.inc(Counter::NoSendMemory);
            send.by_copy = len as usize;
            return Ok(());
        }
        let Some(snapshot) = memory.take() else {
            return Ok(());
        };
        self.sk().wmem_charge(len);
        match post_advert(self, snapshot, Kind::Asynchronous) {
            Ok(None) => {}
            refused => {
                self.sk().wmem_uncharge(len);
                *memory = refused?;
                // Nor can it have them in another way.
                self.fallback(Reason::NotPinnable);
                send.by_copy = len as usize;
                return Ok(());
            }
        }
        self.count(Kept::AdvertAsync, 1);
        send.iter.advance(len as usize);
        send.copied += len as usize;
        Ok(())
    }
}
