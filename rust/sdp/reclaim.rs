// SPDX-License-Identifier: GPL-2.0

//! Returns memory to programs when the adapters have finished with it.

use kernel::prelude::*;

use super::conn::guard::{
    SockGuard,
    SockOwner, //
};
use super::conn::sock::{
    SdpSock,
    Want, //
};
use crate::kern::iov::Access;
use crate::mm::memory::Memory;
use crate::mm::snapshot::Outcome;
use crate::proto::half::Generation;
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

/// The uses of memory that no call waits for. Memory of receives comes first, because its program
/// will use it soonest.
const LATER: [Use; 5] = [
    Use::OwnReads(Call::Returns),
    Use::PeerReads(Kind::Asynchronous),
    Use::OwnWrites(Call::Returns),
    Use::OwnReads(Call::Killed),
    Use::OwnWrites(Call::Killed),
];

/// Memory of programs that the adapter of a connection uses or has used.
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

    /// Whether the adapters have finished with memory that no call waits for.
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

    /// Called when the adapters may have finished with a region: the worker restores memory that no
    /// call waits for, and waiting calls take theirs back.
    pub(super) fn region_is_free(&self) {
        if self.has_finished() {
            self.sock.want(Want::Restore);
        }
        self.sock.sk().wake_waiters();
    }

    /// Called when the key of a region was invalidated, so that its memory may be free.
    pub(super) fn region_invalidated(&mut self, region: RegionId) {
        self.sock.stats.inc(Counter::MrInvalidated);
        if let Some(link) = &mut self.link {
            link.invalidated(region);
        }
        self.region_is_free();
    }

    /// Called when a request of this side for a region has finished. If the region has no key, this
    /// was the last use of its memory.
    pub(super) fn region_used(&mut self, region: RegionId) {
        let link = self.link.as_mut();
        if link.is_some_and(|link| link.region_used(region)) {
            self.region_is_free();
        }
    }
}

/// Counts for the connection how memory was returned. The namespace's counters already include it.
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

/// Returns memory that the adapters have finished with to its programs. Releases the lock
/// meanwhile.
pub(super) fn restore_read(guard: &mut SockOwner<'_>) {
    let connection = guard.generation();
    while let Some((memory, purpose)) = Reclaim::of(guard).take_finished() {
        // The region's place is free for another region.
        guard.sk().wake_waiters();
        let lent = matches!(memory, Memory::Lent(_));
        let outcome = give_back(guard, memory, purpose);
        if guard.generation() != connection {
            return;
        }
        // A reader may wait for the memory.
        guard.sk().wake_waiters();
        if lent {
            continue;
        }
        if let Some(sources) = &mut guard.conn().adverts.sources {
            let record = match purpose {
                Use::OwnReads(Call::Returns) => &mut sources.receive_pause,
                Use::PeerReads(Kind::Asynchronous) | Use::OwnWrites(Call::Returns) => {
                    &mut sources.send_pause
                }
                _ => continue,
            };
            record.on_transfer(outcome.pages, outcome.touched);
        }
    }
}

/// As [`restore_read`], in the middle of a call of the half that accesses memory by
/// `access`. Other calls of that half wait, so that their bytes do not come between those of
/// this call. Returns whether there was memory to return; if so, the lock was released
/// meanwhile.
pub(super) fn restore_in_turn(guard: &mut SockOwner<'_>, access: Access) -> bool {
    let finished = Reclaim::of(guard).has_finished();
    if finished {
        guard.in_turn(access, restore_read);
    }
    finished
}

/// Returns memory that a send does not need; other sends wait meanwhile.
pub(super) fn give_back_in_turn(guard: &mut SockOwner<'_>, memory: Memory, purpose: Use) {
    guard.in_turn(Access::Read, |guard| give_back(guard, memory, purpose));
}

/// Returns memory that no adapter uses any more, or has ever used, to its program. Releases the
/// lock meanwhile.
pub(super) fn give_back(guard: &mut SockOwner<'_>, memory: Memory, purpose: Use) -> Outcome {
    let connection = guard.generation();
    // This takes the lock of the address space, or page locks.
    let outcome = guard.unlocked(|| match memory {
        Memory::Snapshot(snapshot) => snapshot.finish(),
        Memory::Receiving(receiving) => receiving.finish(),
        // Pinned memory belongs to a call that was killed. Dropping lent memory notifies the
        // program.
        memory @ (Memory::Pinned(_) | Memory::Lent(_)) => {
            drop(memory);
            Outcome::default()
        }
    });
    if guard.generation() == connection {
        tally_outcome(&mut guard.conn().measured.counts.tally, &outcome, purpose);
    }
    outcome
}

/// Unpins memory of this use with which both adapters have finished; returns whether there is
/// no memory of this use left.
///
/// # Errors
///
/// `EPIPE` if the connection of `began` is not the current one any more; it may also have
/// changed while the lock was released here. The pages of the former connection were released
/// with its queues, and nothing would wake the caller.
pub(super) fn unpin_finished(
    guard: &mut SockOwner<'_>,
    began: Generation,
    purpose: Use,
) -> Result<bool> {
    loop {
        if guard.generation() != began {
            return Err(EPIPE);
        }
        let link = guard.conn().link.as_mut();
        let Some(memory) = link.and_then(|link| link.take_dead_region(purpose)) else {
            break;
        };
        // Marking a page dirty may take time.
        guard.unlocked(|| drop(memory));
    }
    let link = guard.conn().link.as_ref();
    Ok(link.is_some_and(|link| !link.has_regions(purpose)))
}
