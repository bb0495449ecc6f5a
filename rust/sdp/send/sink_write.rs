// SPDX-License-Identifier: GPL-2.0

//! sendmsg() without a copy: the program's pages are written to the buffer with which a reader of
//! the peer waits.
//!
//! # Normal operation
//!
//! The pages are pinned without the lock, then made regions of the adapter. The Writes are put into
//! the send queue, and behind them the answer with the number of bytes written. The call waits
//! until the Writes have finished, which depends on the peer's adapter but on no program of the
//! peer, and until the keys of the regions are invalid. Then the call unpins the pages. Other sends
//! of the socket wait for their turn.
//!
//! # Exceptions
//!
//! Writes are not taken back. When the connection ends, the call waits until its queue pair is
//! gone. Only a thread that is being killed leaves earlier: the worker unpins its pages when the
//! Writes have finished.

use kernel::prelude::*;

use super::azsdp::ROOM_MS;
use super::choose::Chooser;
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
use crate::proto::half::Half;
use crate::proto::sink_writer::Write;
use crate::proto::state::Event;
use crate::rdma::link::Link;
use crate::rdma::region::{
    Call,
    RegionId,
    Use, //
};
use crate::sdp::conn::guard::SockOwner;
use crate::sdp::cq::poll::{
    await_adapter,
    catch_up, //
};
use crate::sdp::flush::flush;
use crate::sdp::output::CONTROL_PLACES;
use crate::sdp::parts::adverts::Adverts;
use crate::stats::counters::{
    Counter,
    Stats, //
};

/// The maximum number of pieces that are written to one advert. If the peer's buffer has as many
/// pages as a region can have, and the program's bytes do not begin with a page, they need a second
/// region. The send queue has no places for a third one.
const WRITE_PIECES: usize = 2;

/// The pieces that a send has taken from the program's buffer, in order.
struct Pieces {
    pinned: [Option<Pinned>; WRITE_PIECES],
    bytes: usize,
}

/// The regions that are to be written to the peer's memory, in order.
pub(super) struct WriteRegions {
    ids: [Option<RegionId>; WRITE_PIECES],
    bytes: u32,
}

impl WriteRegions {
    const NONE: Self = Self {
        ids: [None; WRITE_PIECES],
        bytes: 0,
    };

    /// A single region of `bytes` bytes.
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
    /// `ECONNRESET` if there is no room for them; otherwise the error of the provider.
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
    /// Makes regions of the pieces, as far as the send queue has places for their Writes.
    fn register(&mut self, link: &mut Link) -> WriteRegions {
        let mut regions = WriteRegions::NONE;
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

impl Send<'_> {
    /// Waits until a reader of the peer waits with a buffer, but only for a short time: the peer's
    /// program may wait for the bytes in another way.
    pub(super) fn await_sink(&mut self, guard: &mut SockOwner<'_>) -> Result {
        self.by_copy = 0;
        let mut patience = Timeout::from_ms(ROOM_MS);
        loop {
            catch_up(guard);
            let sk = guard.sk();
            guard.conn().check_sendable(sk)?;
            if guard.generation() != self.began {
                return Err(EPIPE);
            }
            if Chooser::of(guard).sink_room() > 0 || self.timeo.is_over() || patience.is_over() {
                return Ok(());
            }
            if signal_pending() {
                return Err(self.timeo.interrupted());
            }
            // Bytes in the send queue come first, so they are sent now; and this call must be woken
            // when the send queue has places.
            guard.conn().adverts.waits = true;
            flush(guard);
            if !guard.arm() {
                guard.wait_for_room(&mut self.timeo, &mut patience);
            }
            let waits = guard.conn().halves.sender_waits_for_peer();
            let sk = guard.sk();
            guard.conn().adverts.set_waits(waits, sk);
        }
    }

    /// Writes some of the bytes that `send` has left to the peer's memory, and waits until they are
    /// there. Bytes that cannot be written are left to another way.
    ///
    /// # Errors
    ///
    /// `EPIPE` if the connection has ended, `EINTR` if the thread is being killed; only if no bytes
    /// were written.
    pub(super) fn send_by_writes(&mut self, guard: &mut SockOwner<'_>) -> Result {
        guard.keep(Access::Read, Half::AwaitingPeer, |guard| {
            self.pin_and_write(guard)
        })
    }

    fn pin_and_write(&mut self, guard: &mut SockOwner<'_>) -> Result {
        if let Some(sinks) = &mut guard.conn().adverts.sinks {
            sinks.written_bytes = 0;
        }
        let mut pieces = self.pin_pieces(guard);
        let result = if self.post_pieces(guard, &mut pieces) {
            // The same error as for every send whose connection has ended.
            let result = await_adapter(guard, self.began, Use::OwnWrites(Call::Waits));
            result.map_err(|e| if e == ECONNRESET { EPIPE } else { e })
        } else {
            Ok(())
        };
        let same = guard.generation() == self.began;
        let written = match &guard.conn().adverts.sinks {
            Some(sinks) if same => sinks.written_bytes.min(pieces.bytes),
            _ => 0,
        };
        self.iter.revert(pieces.bytes - written);
        self.copied += written;
        match result {
            Err(e) if written == 0 => Err(e),
            _ => Ok(()),
        }
    }

    /// Posts the Writes of the pinned pieces, and the answer behind them, if the peer still has
    /// room: the lock was not held meanwhile. Returns whether the call must wait for the adapter.
    fn post_pieces(&mut self, guard: &mut SockOwner<'_>, pieces: &mut Pieces) -> bool {
        let same = guard.generation() == self.began;
        let may = same && pieces.bytes > 0 && guard.conn().state.can_send();
        if !may || (Chooser::of(guard).sink_room() as usize) < pieces.bytes {
            return false;
        }
        let link = guard.conn().link.as_mut();
        let regions = link.map_or(WriteRegions::NONE, |link| pieces.register(link));
        if regions.bytes == 0 {
            guard.count_by_copy(Reason::NotPinnable);
            self.iter.revert(pieces.bytes);
            pieces.bytes = 0;
            self.by_copy = self.iter.len();
            return false;
        }
        let stats = guard.stats;
        let conn = guard.conn();
        let posted = regions.post(&mut conn.link, &mut conn.adverts, stats);
        if posted.is_err() {
            // The call waits until the link has given the regions back.
            guard.stats.inc(Counter::PostFailed);
            guard.fail(Event::Abort, ECONNRESET);
            return true;
        }
        guard.watch_sends();
        // Send the answer.
        flush(guard);
        true
    }

    /// Pins as many bytes as the peer has room for, in at most [`WRITE_PIECES`] pieces.
    fn pin_pieces(&mut self, guard: &mut SockOwner<'_>) -> Pieces {
        let mut pieces = Pieces {
            pinned: [const { None }; WRITE_PIECES],
            bytes: 0,
        };
        let room = Chooser::of(guard).sink_room() as usize;
        let link = guard.conn().link.as_ref();
        let pages = link.map_or(0, |link| link.max_region_pages() as usize);
        let (iter, stats) = (&mut self.iter, guard.stats);
        let mut failed = None;
        guard.unlocked(|| {
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
            let why = no_pin(e);
            guard.count_by_copy(why);
            // The copy will report a bad address.
            self.by_copy = self.iter.len();
        }
        pieces
    }
}
