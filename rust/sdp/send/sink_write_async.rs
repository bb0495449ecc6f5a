// SPDX-License-Identifier: GPL-2.0

//! sendmsg() to the buffer with which a reader of the peer waits; the call itself does not wait.
//!
//! As in [`super::azsdp`] the call takes a snapshot of whole pages; it returns when the Write of
//! the snapshot is posted. Then the program can receive at once: if it advertises a buffer directly
//! behind the Write, the peer can write its reply to this buffer. The Write is not taken back. If
//! it fails, the connection ends with an error for the next call.

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
    /// Posts the Write of `memory` and the answer behind it, if the peer still has room: the lock
    /// was not held meanwhile.
    ///
    /// # Errors
    ///
    /// The memory, if the Write is not posted.
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
            // The link keeps the memory until its queue pair is gone.
            self.stats.inc(Counter::PostFailed);
            self.fail(Event::Abort, ECONNRESET);
            return Ok(());
        }
        self.count(Kept::WriteAsync, 1);
        send.iter.advance(len as usize);
        send.copied += len as usize;
        self.watch_sends();
        // Send the answer.
        flush(self);
        Ok(())
    }

    /// Writes the next bytes of a send to the peer's memory without waiting for the Write. Returns
    /// `false` if the send is not eligible. Otherwise the attempt was made, with or without
    /// success, and the lock was not held meanwhile.
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
