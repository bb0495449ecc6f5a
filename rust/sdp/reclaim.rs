// SPDX-License-Identifier: GPL-2.0

//! Gives memory of programs back when the adapters are done with it.

use kernel::prelude::*;

use super::conn::guard::{
    SockGuard,
    SockOwner, //
};
use super::conn::half::Generation;
use super::conn::sock::{
    SdpSock,
    Want, //
};
use crate::kern::iov::Access;
use crate::mm::memory::Memory;
use crate::mm::snapshot::Outcome;
use crate::proto::source::Kind;
use crate::rdma::link::Link;
use crate::rdma::region::{
    Call,
    RegionId,
    Use, //
};
use crate::stats::counters::Counter;
use crate::stats::tally::{
    Kept,
    Tally, //
};

/// What nobody waits for. Who has received is sooner about to use it.
const LATER: [Use; 5] = [
    Use::OwnReads(Call::Returns),
    Use::PeerReads(Kind::Asynchronous),
    Use::OwnWrites(Call::Returns),
    Use::OwnReads(Call::Killed),
    Use::OwnWrites(Call::Killed),
];

/// The memory of programs that a connection's adapter has, or had.
pub(super) struct Reclaim<'a> {
    sock: &'a SdpSock,
    link: &'a mut Option<Link>,
}

impl<'a> Reclaim<'a> {
    pub(super) fn new(sock: &'a SdpSock, link: &'a mut Option<Link>) -> Self {
        Self { sock, link }
    }

    pub(super) fn of(guard: &'a mut SockGuard<'_>) -> Self {
        Self::new(guard.sock(), &mut guard.conn().link)
    }

    /// Whether adapters have finished with memory of programs that have returned.
    fn has_finished(&self) -> bool {
        let link = self.link.as_ref();
        link.is_some_and(|link| link.has_dead_regions(&LATER))
    }

    fn take_finished(&mut self) -> Option<(Memory, Use)> {
        let link = self.link.as_mut()?;
        LATER
            .into_iter()
            .find_map(|purpose| Some((link.take_dead_region(purpose)?, purpose)))
    }

    /// The key of a region may be dead: whoever sent its bytes has them back.
    pub(super) fn region_is_free(&self) {
        if self.has_finished() {
            self.sock.want(Want::Restore);
        }
        self.sock.sk().wake_waiters();
    }

    /// The key of a region is dead: whoever sent its bytes may have them back.
    pub(super) fn region_invalidated(&mut self, region: RegionId) {
        self.sock.stats.inc(Counter::MrInvalidated);
        if let Some(link) = &mut self.link {
            link.invalidated(region);
        }
        self.region_is_free();
    }

    /// Our own requests for a region are finished. Without a key there is nothing else to wait for.
    pub(super) fn region_used(&mut self, region: RegionId) {
        let link = self.link.as_mut();
        if link.is_some_and(|link| link.region_used(region)) {
            self.region_is_free();
        }
    }
}

/// Counts for the connection how memory was given back; the namespace has counted it.
fn tally_outcome(tally: &mut Tally, outcome: &Outcome, purpose: Use) {
    let counts = match purpose {
        Use::OwnReads(Call::Returns) => &[
            (Kept::AbsentFreed, outcome.pages),
            (Kept::AbsentTouched, outcome.touched),
            (Kept::AbsentWaits, outcome.waits),
        ][..],
        _ => &[
            (Kept::SnapshotFreed, outcome.pages),
            (Kept::SnapshotCopied, outcome.copied),
            (Kept::PagesTouched, outcome.written),
            (Kept::SnapshotWaits, outcome.waits),
            (Kept::PagesRestored, outcome.restored),
        ],
    };
    for (what, n) in counts {
        tally.add(*what, (*n).into());
    }
}

impl SockOwner<'_> {
    /// Gives programs back what adapters have finished with. Gives the lock back in the meantime.
    pub(super) fn restore_read(&mut self) {
        let connection = self.generation();
        while let Some((memory, purpose)) = Reclaim::of(self).take_finished() {
            // There is a place for another region.
            self.sk().wake_waiters();
            let lent = matches!(memory, Memory::Lent(_));
            let outcome = self.give_back(memory, purpose);
            if self.generation() != connection {
                return;
            }
            // A reader may wait for its buffer.
            self.sk().wake_waiters();
            if lent {
                continue;
            }
            if let Some(zcopy) = &mut self.conn().adverts.zcopy {
                let record = match purpose {
                    Use::OwnReads(Call::Returns) => &mut zcopy.early_fallback,
                    Use::PeerReads(Kind::Asynchronous) | Use::OwnWrites(Call::Returns) => {
                        &mut zcopy.fallback
                    }
                    _ => continue,
                };
                record.on_transfer(outcome.pages, outcome.touched);
            }
        }
    }

    /// The same in the middle of a call of the half that accesses memory so. Others of that half wait:
    /// their bytes do not come between its. Returns whether there was something to give back; the
    /// lock was not held meanwhile then.
    pub(super) fn restore_in_turn(&mut self, access: Access) -> bool {
        let finished = Reclaim::of(self).has_finished();
        if finished {
            self.in_turn(access, Self::restore_read);
        }
        finished
    }

    /// Gives back what a send has no use for; others wait meanwhile.
    pub(super) fn give_back_in_turn(&mut self, memory: Memory, purpose: Use) {
        self.in_turn(Access::Read, |guard| guard.give_back(memory, purpose));
    }

    /// Gives a program back what no adapter needs, or ever had. Gives the lock, too, in the meantime.
    pub(super) fn give_back(&mut self, memory: Memory, purpose: Use) -> Outcome {
        let connection = self.generation();
        // It takes the address space's lock, or those of pages.
        let outcome = self.unlocked(|| match memory {
            Memory::Snapshot(snapshot) => snapshot.finish(),
            Memory::Receiving(receiving) => receiving.finish(),
            // Of a call that was killed; or the program is told.
            memory @ (Memory::Pinned(_) | Memory::Lent(_)) => {
                drop(memory);
                Outcome::default()
            }
        });
        if self.generation() == connection {
            tally_outcome(&mut self.conn().measured.counts.tally, &outcome, purpose);
        }
        outcome
    }

    /// Unpins what the adapter, or the peer's, has finished with; returns whether that was all of this
    /// use.
    ///
    /// # Errors
    ///
    /// `EPIPE` if the connection is not the one of `began` any more, also because the socket was not
    /// locked meanwhile: the pages went with the queues of that one. Nobody would wake the caller.
    pub(super) fn unpin_finished(&mut self, began: Generation, purpose: Use) -> Result<bool> {
        loop {
            if self.generation() != began {
                return Err(EPIPE);
            }
            let link = self.conn().link.as_mut();
            let Some(memory) = link.and_then(|link| link.take_dead_region(purpose)) else {
                break;
            };
            // To mark a page as written to may take time.
            self.unlocked(|| drop(memory));
        }
        let link = self.conn().link.as_ref();
        Ok(link.is_some_and(|link| !link.has_regions(purpose)))
    }
}
