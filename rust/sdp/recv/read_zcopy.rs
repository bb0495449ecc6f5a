// SPDX-License-Identifier: GPL-2.0

//! recvmsg() without a copy: the memory that the peer advertises is read into the program's pages.
//!
//! The reader pins its buffer without the lock. It waits until the Reads have finished and the key
//! of its pages, if they have one, is invalid. Any thread may handle the completions. Other readers
//! of the socket wait for their turn. If the connection ends, the reader waits until its queue pair
//! is gone, because the adapter may still write. Only a thread that is being killed leaves earlier:
//! the worker unpins its pages when the Reads have finished.

use kernel::prelude::*;

use super::recvmsg::Recv;
use super::Direct;
use crate::bindings;
use crate::kern::errno::{
    ECONNRESET,
    ENOBUFS, //
};
use crate::kern::iov::Access;
use crate::mm::memory::Memory;
use crate::mm::pin::{
    Pinned,
    Term, //
};
use crate::proto::half::Half;
use crate::proto::source_reader::Destination;
use crate::proto::state::Event;
use crate::rdma::link::Link;
use crate::rdma::post::READS;
use crate::rdma::region::{
    Call,
    Use, //
};
use crate::sdp::conn::guard::{
    SockGuard,
    SockOwner, //
};
use crate::sdp::cq::poll::await_adapter;
use crate::sdp::reclaim::give_back;
use crate::sdp::rx::reads::{
    pull_for_reader,
    pull_rest,
    LEAST_DIRECT,
    MESSAGE_PLACES, //
};
use crate::stats::counters::Counter;

impl Recv<'_> {
    /// The number of bytes that a call can get without a copy, if the peer has so many; 0 if the
    /// call must not, or should not, get bytes without a copy.
    pub(super) fn direct_room(&self) -> usize {
        let left = self.len - self.copied;
        if left < LEAST_DIRECT
            || self.is(bindings::MSG_PEEK | bindings::MSG_TRUNC)
            || self.timeo.is_over()
            || self.excluded.reads
        {
            return 0;
        }
        let room = self.iter.piece_bytes().min(left);
        if room < LEAST_DIRECT {
            0
        } else {
            room
        }
    }
}

impl Direct<'_> {
    /// Whether the next bytes of the stream shall be read into the memory of a program that has
    /// room for them.
    fn may_read(&self) -> bool {
        if !self.inq.queue.is_empty() || !self.has_places_for(1) {
            return false;
        }
        let (Some(link), Some(sources)) = (self.link, &self.adverts.sources) else {
            return false;
        };
        self.state.is_connected()
            && link.has_region_room()
            && sources.reader.next_untaken() as usize >= LEAST_DIRECT
    }

    /// Whether `reads` Reads into a program's memory can be posted in addition to those in flight.
    pub(super) fn has_places_for(&self, reads: u32) -> bool {
        let Some(link) = self.link else {
            return false;
        };
        link.send_room() >= reads * link.direct_places() + MESSAGE_PLACES
            && link.reads_in_flight() + reads <= READS
    }

    /// Whether a Read into memory of `len` bytes for this purpose can be posted.
    fn may_post(&self, recv: &Recv<'_>, len: u32, purpose: Use) -> bool {
        let (Some(link), Some(sources)) = (self.link, &self.adverts.sources) else {
            return false;
        };
        self.state.is_connected()
            && self.inq.queue.is_empty()
            && sources.reader.next_untaken() >= len
            && !(purpose == Use::OwnReads(Call::Returns) && sources.early_ends)
            && link.send_room() >= link.direct_places()
            && link.has_region_room()
            && link.reads_in_flight() < READS
            && recv.copied + len as usize <= recv.len
    }
}

/// Whether the next bytes of the stream shall be read into the program's memory.
pub(super) fn may_read_directly(guard: &mut SockGuard<'_>, recv: &Recv<'_>) -> bool {
    // For most calls the first condition is false.
    recv.direct_room() > 0 && Direct::of(guard).may_read()
}

/// Called before a reader waits. A reader that can take adverts itself will be woken for them; for
/// other readers, and for the short rest of an advert, the bytes are read into the kernel's memory.
pub(super) fn reader_waits(guard: &mut SockOwner<'_>, recv: &mut Recv<'_>) {
    let room = recv.direct_room();
    let has_short_rest = |guard: &mut SockOwner<'_>| {
        let sources = guard.conn().adverts.sources.as_ref();
        let next = sources.map_or(0, |sources| sources.reader.next_untaken() as usize);
        (1..LEAST_DIRECT).contains(&next)
    };
    recv.set_room(guard, None);
    if room > 0 && has_short_rest(guard) {
        pull_rest(guard);
    }
    // Without a Read in flight, nothing wakes the reader: if there was no memory for the rest, the
    // worker must try again.
    let is_idle = |link: &Link| link.reads_in_flight() == 0;
    if room == 0 || (has_short_rest(guard) && guard.conn().link.as_ref().is_some_and(is_idle)) {
        pull_for_reader(guard);
        return recv.set_room(guard, Some(0));
    }
    recv.set_room(guard, Some(room));
    if let Some(sources) = &mut guard.conn().adverts.sources {
        sources.reader_wait.set_over(None);
    }
}

impl Recv<'_> {
    /// Reads some bytes of the peer's advert into the program's memory. If this is not possible,
    /// the bytes will be read into the kernel's memory.
    ///
    /// # Errors
    ///
    /// The error that ended the connection; `EINTR` if the thread is being killed.
    pub(super) fn read_directly(&mut self, guard: &mut SockOwner<'_>) -> Result {
        guard.keep(Access::Write, Half::AwaitingPeer, |guard| {
            self.read_pinned(guard)
        })
    }

    fn read_pinned(&mut self, guard: &mut SockOwner<'_>) -> Result {
        self.set_room(guard, Some(self.len - self.copied));
        let conn = guard.conn();
        let (Some(link), Some(sources)) = (&conn.link, &mut conn.adverts.sources) else {
            return Err(ECONNRESET);
        };
        sources.direct_bytes = 0;
        let most = sources.reader.next_untaken() as usize;
        let most = most.min(self.len - self.copied);
        let pages = link.max_region_pages() as usize;
        let (iter, stats) = (&mut self.iter, guard.stats);
        let pinned = guard.unlocked(|| Pinned::new(iter, most, pages, Term::Short, stats));
        let Ok(pinned) = pinned else {
            self.excluded.reads = true;
            return Ok(());
        };
        let taken = pinned.len() as usize;
        let posted = self.post_direct(guard, Memory::Pinned(pinned), Use::OwnReads(Call::Waits));
        // The reader comes back for the bytes behind these, if its buffer has room for them.
        let left = self.len - self.copied - taken;
        self.set_room(guard, (left >= LEAST_DIRECT).then_some(left));
        let read = if posted? {
            self.await_direct(guard, taken)?
        } else {
            0
        };
        self.iter.revert(taken - read);
        self.got_direct(guard, read);
        Ok(())
    }

    /// Waits until the Read of `len` bytes into pinned memory has finished; returns how many bytes
    /// have arrived.
    ///
    /// # Errors
    ///
    /// As for [`await_adapter`], or the error that ended the connection; only if no
    /// bytes have arrived.
    pub(super) fn await_direct(&self, guard: &mut SockOwner<'_>, len: usize) -> Result<usize> {
        let waited = await_adapter(guard, self.began, Use::OwnReads(Call::Waits));
        let same = guard.generation() == self.began;
        let sources = guard.conn().adverts.sources.as_ref().filter(|_| same);
        let read = sources.map_or(0, |s| s.direct_bytes).min(len);
        match waited {
            Err(e) if read == 0 => {
                // Report the error that ended the connection, as the next call would have done. A
                // call that already has bytes leaves the error to the next call.
                if e == ECONNRESET && self.copied == 0 {
                    guard.sk().take_err()?;
                }
                Err(e)
            }
            _ => Ok(read),
        }
    }

    /// Posts a Read into `memory`, if its bytes are still the next of the stream: the lock was not
    /// held meanwhile. Returns whether the Read was posted.
    pub(super) fn post_direct(
        &mut self,
        guard: &mut SockOwner<'_>,
        memory: Memory,
        purpose: Use,
    ) -> Result<bool> {
        let len = memory.len();
        // The condition does not depend on the iterator, from which the buffer may already be
        // taken.
        let same = guard.generation() == self.began;
        let may = same && Direct::of(guard).may_post(self, len, purpose);
        let region = match &mut guard.conn().link {
            Some(link) if may => link.add_region(memory, purpose).inspect_err(|_| {
                self.excluded.reads = true;
            }),
            _ => Err(memory),
        };
        let region = match region {
            Ok(region) => region,
            Err(memory) => {
                memory.open();
                give_back(guard, memory, purpose);
                return Ok(false);
            }
        };
        let conn = guard.conn();
        let (Some(link), Some(sources)) = (&mut conn.link, &mut conn.adverts.sources) else {
            return Err(ECONNRESET);
        };
        sources.reader_wait.reader_came();
        let result = match sources.take(len, Destination::Program) {
            Some(read) => link.read_into(&read, region),
            None => Err(ENOBUFS),
        };
        match result {
            Ok(()) => {
                guard.note_taken(len);
                let keyed = guard
                    .conn()
                    .link
                    .as_ref()
                    .is_some_and(|l| l.has_key(region));
                guard.stats.inc(Counter::ReadPosted);
                guard.stats.add(Counter::MrRegistered, keyed.into());
                guard.watch_sends();
                Ok(true)
            }
            Err(_) => {
                // The call reports that no bytes have come, so it has not promised them.
                link.excuse_region(region);
                guard.stats.inc(Counter::PostFailed);
                guard.fail(Event::Abort, ECONNRESET);
                Err(ECONNRESET)
            }
        }
    }
}
