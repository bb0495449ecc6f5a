// SPDX-License-Identifier: GPL-2.0

//! sendmsg() without a copy and without a wait: AZ-SDP.
//!
//! # Normal operation
//!
//! The call takes a snapshot of whole pages of the program's buffer, advertises the snapshot, and
//! returns. The bytes before and behind these pages go by copy. When the peer has read the pages
//! and their key is invalid, the worker, or the next send, restores the program's right to write to
//! the pages. The bytes count as waiting in the send buffer until the peer reports that it has read
//! them.
//!
//! # Exceptions
//!
//! The snapshot does not depend on what the program does to its memory afterwards, even if the
//! program ends. Such an advert is not taken back (rule A3 of the protocol): either the peer reads
//! it, or the connection ends with an error for the next call. If the program writes to the pages,
//! it gets copies of them; with the other fault policy of the socket it waits instead. If programs
//! write to the pages too soon too often, sends go another way for a while. If the send buffer has
//! room but the peer has none, the send waits only for a short time and then copies its bytes:
//! perhaps the peer makes room only after this program has read.

use kernel::prelude::*;

use super::choose::{
    Chooser,
    PAGE_SHIFT, //
};
use super::sendmsg::Send;
use super::zsdp::{
    may_advertise,
    post_advert,
    Advertiser, //
};
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
use crate::proto::half::Half;
use crate::proto::source::Kind;
use crate::proto::split::piece_bytes;
use crate::rdma::region::Use;
use crate::sdp::conn::guard::SockOwner;
use crate::sdp::cq::poll::{
    catch_up,
    poll_cq_if_due, //
};
use crate::sdp::reclaim::{
    give_back,
    give_back_in_turn,
    restore_in_turn, //
};
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;

/// How long a send waits for room at the peer while the send buffer has room: a program may expect
/// that such a send does not wait.
pub(super) const ROOM_MS: u32 = 50;

/// As [`ROOM_MS`], for places in the adapter's send queue. They become free without the peer's
/// program; but other requests may take them again and again.
const PLACES_MS: u32 = 2000;

/// The number of bytes that go by copy, if there is no room or no snapshot, before the send tries
/// adverts again.
const BYTES_BY_COPY: usize = 1 << 20;

impl Chooser<'_> {
    /// Decides how the next bytes go after their memory could not be taken because of `why`:
    /// another way is chosen if the memory cannot be protected, and after an error they go by copy.
    pub(super) fn no_snapshot(&mut self, send: &mut Send<'_>, why: Refused) {
        match why {
            Refused::Unfit(why) => {
                self.count_by_copy(why);
                send.unprotectable = Some(why);
                return;
            }
            Refused::Error(e) if e == ENOBUFS => self.count_by_copy(Reason::PinLimit),
            Refused::Error(_) => {}
        }
        // The copy will report a bad address.
        send.by_copy = send.piece_bytes().min(BYTES_BY_COPY);
    }
}

impl Send<'_> {
    /// Advertises the next piece of a send without waiting until the peer has read it, or writes
    /// the piece to the buffer of a waiting reader. The piece begins with a whole page, unless its
    /// memory needs no protection. Bytes that cannot go this way are left to another way.
    ///
    /// # Errors
    ///
    /// As for [`super::sendmsg::sendmsg`].
    pub(super) fn send_later(&mut self, guard: &mut SockOwner<'_>) -> Result {
        let result = self.send_piece_later(guard);
        if guard.generation() == self.began {
            let conn = guard.conn();
            let waits = conn.adverts.waits && conn.halves.sender_waits_for_peer();
            let sk = guard.sk();
            guard.conn().adverts.set_waits(waits, sk);
        }
        result
    }

    fn take_memory(&mut self, guard: &mut SockOwner<'_>) -> Result<Memory, Refused> {
        Ok(match &self.lending {
            Some(lending) => {
                let notification = lending.share();
                Memory::Lent(self.take_lent(guard, notification)?)
            }
            None => Memory::Snapshot(self.take_snapshot(guard)?),
        })
    }

    fn send_piece_later(&mut self, guard: &mut SockOwner<'_>) -> Result {
        if !self.await_advert(guard, None)? {
            return Ok(());
        }
        let half = Half::TakingMemory;
        let memory = guard.keep(Access::Read, half, |guard| self.take_memory(guard));
        let memory = match memory {
            Ok(memory) => memory,
            Err(e) => {
                Chooser::of(guard).no_snapshot(self, e);
                return Ok(());
            }
        };
        if memory.len() < self.least_lent() {
            // More small pieces usually follow, so the copy includes them.
            self.by_copy = self.piece_bytes().min(BYTES_BY_COPY);
            give_back_in_turn(guard, memory, Use::PeerReads(Kind::Asynchronous));
            return Ok(());
        }
        // A reader of the peer may have begun to wait meanwhile.
        poll_cq_if_due(guard);
        let mut memory = if Chooser::of(guard).fits_sink(self, memory.len() as usize) {
            self.post_ahead(guard, memory).err()
        } else {
            Some(memory)
        };
        let result = if memory.is_some() && self.by_copy == 0 {
            self.advertise_later(guard, &mut memory)
        } else {
            Ok(())
        };
        match memory {
            Some(memory) if result.is_ok() => {
                give_back_in_turn(guard, memory, Use::PeerReads(Kind::Asynchronous));
            }
            // Another call may have the turn now, and this call is over.
            Some(memory) => drop(give_back(guard, memory, Use::PeerReads(Kind::Asynchronous))),
            None => {}
        }
        result
    }

    /// Waits for the turn, and until the send buffer and the peer have room for an advert. Returns
    /// `false` if the peer has no room for too long, so that the bytes go by copy, or if a reader
    /// of the peer waits for the bytes. A send of memory that needs no protection does not wait for
    /// room if it can write to the buffer of this reader: the next piece, or the `taken` bytes
    /// whose pages it already has.
    fn await_advert(&mut self, guard: &mut SockOwner<'_>, taken: Option<usize>) -> Result<bool> {
        let mut patience = Timeout::from_ms(ROOM_MS);
        let mut patience_for_places = Timeout::from_ms(PLACES_MS);
        loop {
            catch_up(guard);
            // Another send may have begun while the lock was not held.
            guard.await_turn(Access::Read, self.began, &mut self.timeo)?;
            if restore_in_turn(guard, Access::Read) {
                continue;
            }
            let sk = guard.sk();
            guard.conn().check_sendable(sk)?;
            if !self.has_space(guard)? {
                continue;
            }
            let link = guard.conn().link.as_ref();
            let has_room = link.is_some_and(|link| link.has_region_room());
            match (&self.lending, taken) {
                (None, _) if Chooser::of(guard).prefers_sink(self) => return Ok(false),
                (Some(_), None) if Chooser::of(guard).lends_to_sink(self) => return Ok(true),
                (Some(_), Some(bytes)) if Chooser::of(guard).fits_sink(self, bytes) => {
                    return Ok(true)
                }
                _ => {}
            }
            if has_room && may_advertise(guard, Kind::Asynchronous) {
                return Ok(true);
            }
            if guard.conn().state.has_ended() {
                // The provider has refused a message. The next iteration returns the error.
                continue;
            }
            let patience = if has_room && Advertiser::of(guard).lacks_places() {
                &mut patience_for_places
            } else {
                &mut patience
            };
            if self.timeo.is_over() || patience.is_over() {
                let has_credits = guard.conn().credits.may_send(Class::Payload);
                guard.count_by_copy(if has_credits {
                    Reason::AdvertsFull
                } else {
                    Reason::NoCredits
                });
                self.by_copy = self.piece_bytes().min(BYTES_BY_COPY);
                return Ok(false);
            }
            if signal_pending() {
                return Err(self.timeo.interrupted());
            }
            // The completion that makes room may have come before this call waits for it.
            if guard.arm() {
                continue;
            }
            guard.wait_for_room(&mut self.timeo, patience);
        }
    }

    pub(super) fn take_snapshot(&self, guard: &mut SockOwner<'_>) -> Result<Snapshot, Refused> {
        let link = guard.conn().link.as_ref().ok_or(ENOTCONN)?;
        let max_pages = link.max_region_pages();
        let piece = self.iter.piece().ok_or(EFAULT)?;
        let bytes = piece_bytes(piece.len as u64, max_pages, PAGE_SHIFT);
        let pages = (bytes >> PAGE_SHIFT) as usize;
        // Another program, or the namespace, may have set the policy of the socket: the current
        // program needs the permission, too.
        let blocks = guard.conn().options.blocks && params::may_hold_up();
        let stats = guard.stats;
        guard.unlocked(|| Snapshot::take(piece.addr, pages, blocks, stats))
    }

    /// Advertises `memory`. If the option still has the memory afterwards, it was not used.
    fn advertise_later(
        &mut self,
        guard: &mut SockOwner<'_>,
        memory: &mut Option<Memory>,
    ) -> Result {
        // The lock was not held while the memory was taken: check all conditions again.
        let len = memory.as_ref().map_or(0, Memory::len);
        if !self.await_advert(guard, Some(len as usize))? {
            return Ok(());
        }
        if self.lending.is_some() && Chooser::of(guard).fits_sink(self, len as usize) {
            // A reader of the peer waits by now.
            if let Some(lent) = memory.take() {
                *memory = self.post_ahead(guard, lent).err();
            }
            return Ok(());
        }
        if !guard.sk().wmem_schedule(len) {
            guard.stats.inc(Counter::NoSendMemory);
            self.by_copy = len as usize;
            return Ok(());
        }
        let Some(snapshot) = memory.take() else {
            return Ok(());
        };
        guard.sk().wmem_charge(len);
        match post_advert(guard, snapshot, Kind::Asynchronous) {
            Ok(None) => {}
            refused => {
                guard.sk().wmem_uncharge(len);
                *memory = refused?;
                // The adapter cannot use these pages in another way either.
                guard.count_by_copy(Reason::NotPinnable);
                self.by_copy = len as usize;
                return Ok(());
            }
        }
        guard.count(Kept::AdvertAsync, 1);
        self.iter.advance(len as usize);
        self.copied += len as usize;
        Ok(())
    }
}
