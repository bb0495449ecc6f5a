// SPDX-License-Identifier: GPL-2.0

//! sendmsg() to the buffer of a reader of the peer that waits, without a wait of its own.
//!
//! As in [`super::azsdp`] the call takes a snapshot of whole pages and returns when the Write of them
//! is posted. Then the program can advertise a buffer of its own right behind it, and the peer's answer
//! finds that. Nobody takes such a Write back; if it fails so does the connection, with an error for
//! the next call.

use kernel::prelude::*;

use super::choose::Ways;
use super::sendmsg::Send;
use super::sink_write::Regions;
use crate::kern::errno::ECONNRESET;
use crate::kern::iov::Access;
use crate::mm::memory::Memory;
use crate::proto::choice::Reason;
use crate::proto::state::Event;
use crate::rdma::region::{
    Call,
    Use, //
};
use crate::sdp::conn::guard::SockOwner;
use crate::sdp::flush::flush;
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;

impl SockOwner<'_> {
    /// Posts the Write, if the peer still has the room: the lock was not held.
    ///
    /// # Errors
    ///
    /// The memory, if not.
    pub(super) fn post_ahead(&mut self, send: &mut Send<'_>, memory: Memory) -> Result<(), Memory> {
        let len = memory.len();
        let same = self.generation() == send.began;
        if !same || !self.conn().state.can_send() || Ways::of(self).sink_room() < len {
            return Err(memory);
        }
        if !self.sk().wmem_schedule(len) {
            self.stats.inc(Counter::NoSendMemory);
            send.by_copy = len as usize;
            return Err(memory);
        }
        let added = match &mut self.conn().link {
            Some(link) => link.add_region(memory, Use::OwnWrites(Call::Returns)),
            None => Err(memory),
        };
        let region = added.inspect_err(|_| {
            self.fallback(Reason::NotPinnable);
            send.by_copy = len as usize;
        })?;
        self.sk().wmem_charge(len);
        if let Some(sinks) = &mut self.conn().adverts.sinks {
            sinks.charged_bytes += len;
        }
        let (stats, conn) = (self.stats, self.conn());
        let regions = Regions::one(region, len);
        let posted = regions.post(&mut conn.link, &mut conn.adverts, stats);
        if posted.is_err() {
            // The snapshot goes with the link.
            self.stats.inc(Counter::PostFailed);
            self.fail(Event::Abort, ECONNRESET);
            return Ok(());
        }
        self.count(Kept::WriteAsync, 1);
        send.iter.advance(len as usize);
        send.copied += len as usize;
        self.watch_sends();
        // The answer.
        flush(self);
        Ok(())
    }

    /// Writes the next bytes of a send to the peer's memory without waiting for that; `false` if it
    /// cannot be. Else the lock was not held meanwhile, whether or not it could.
    pub(super) fn write_ahead(&mut self, send: &mut Send<'_>) -> bool {
        let (_, flags) = self.gfp();
        if !Ways::of(self).may_write_ahead(send, flags) {
            return false;
        }
        let snapshot = self.in_turn(Access::Read, |guard| guard.take_snapshot(send));
        match snapshot {
            Ok(snapshot) => {
                if let Err(memory) = self.post_ahead(send, Memory::Snapshot(snapshot)) {
                    self.give_back_in_turn(memory, Use::OwnWrites(Call::Returns));
                }
            }
            Err(e) => Ways::of(self).no_snapshot(send, e),
        }
        true
    }
}
