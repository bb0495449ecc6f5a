// SPDX-License-Identifier: GPL-2.0

//! sendmsg() to the buffer with which a reader of the peer waits; the call itself does not wait.
//!
//! As in [`super::azsdp`] the call takes a snapshot of whole pages; it returns when the Write of
//! the snapshot is posted. Then the program can receive at once: if it advertises a buffer directly
//! behind the Write, the peer can write its reply to this buffer. The Write is not taken back. If
//! it fails, the connection ends with an error for the next call.

use kernel::prelude::*;

use super::choose::Chooser;
use super::sendmsg::Send;
use super::sink_write::WriteRegions;
use crate::kern::errno::ECONNRESET;
use crate::kern::iov::Access;
use crate::mm::memory::Memory;
use crate::proto::choice::Reason;
use crate::proto::half::Half;
use crate::proto::state::Event;
use crate::rdma::region::{
    Call,
    Use, //
};
use crate::sdp::conn::guard::SockOwner;
use crate::sdp::flush::flush;
use crate::sdp::reclaim::give_back_in_turn;
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;

impl Send<'_> {
    /// Posts the Write of `memory` and the answer behind it, if the peer still has room: the lock
    /// was not held meanwhile.
    ///
    /// # Errors
    ///
    /// The memory, if the Write is not posted.
    pub(super) fn post_ahead(
        &mut self,
        guard: &mut SockOwner<'_>,
        memory: Memory,
    ) -> Result<(), Memory> {
        let len = memory.len();
        let same = guard.generation() == self.began;
        if !same || !guard.conn().state.can_send() || Chooser::of(guard).sink_room() < len {
            return Err(memory);
        }
        if !guard.sk().wmem_schedule(len) {
            guard.stats.inc(Counter::NoSendMemory);
            self.by_copy = len as usize;
            return Err(memory);
        }
        let added = match &mut guard.conn().link {
            Some(link) => link.add_region(memory, Use::OwnWrites(Call::Returns)),
            None => Err(memory),
        };
        let region = added.inspect_err(|_| {
            guard.count_by_copy(Reason::NotPinnable);
            self.by_copy = len as usize;
        })?;
        guard.sk().wmem_charge(len);
        if let Some(sinks) = &mut guard.conn().adverts.sinks {
            sinks.charged_bytes += len;
        }
        let (stats, conn) = (guard.stats, guard.conn());
        let regions = WriteRegions::one(region, len);
        let posted = regions.post(&mut conn.link, &mut conn.adverts, stats);
        if posted.is_err() {
            // The link keeps the memory until its queue pair is gone.
            guard.stats.inc(Counter::PostFailed);
            guard.fail(Event::Abort, ECONNRESET);
            return Ok(());
        }
        guard.count(Kept::WriteAsync, 1);
        self.iter.advance(len as usize);
        self.copied += len as usize;
        guard.watch_sends();
        // Send the answer.
        flush(guard);
        Ok(())
    }

    /// Writes the next bytes of a send to the peer's memory without waiting for the Write. Returns
    /// `false` if the send is not eligible. Otherwise the attempt was made, with or without
    /// success, and the lock was not held meanwhile.
    pub(super) fn write_ahead(&mut self, guard: &mut SockOwner<'_>) -> bool {
        let (_, flags) = guard.gfp();
        if !Chooser::of(guard).may_write_ahead(self, flags) {
            return false;
        }
        let half = Half::TakingMemory;
        let snapshot = guard.keep(Access::Read, half, |guard| self.take_snapshot(guard));
        match snapshot {
            Ok(snapshot) => {
                if let Err(memory) = self.post_ahead(guard, Memory::Snapshot(snapshot)) {
                    give_back_in_turn(guard, memory, Use::OwnWrites(Call::Returns));
                }
            }
            Err(e) => Chooser::of(guard).no_snapshot(self, e),
        }
        true
    }
}
