// SPDX-License-Identifier: GPL-2.0

//! recvmsg() without a copy and without a wait: AZ-SDP.
//!
//! # Normal operation
//!
//! The call takes away the program's access to whole pages of its buffer, posts the Read, and
//! returns. A thread that touches a page before its bytes have arrived waits in the page fault.
//! When the Read has finished, threads do not wait any more, and the worker, or the next call,
//! gives back the untouched pages.
//!
//! # Exceptions
//!
//! If the connection fails before the bytes have arrived, a touch gives SIGSEGV, and the next call
//! returns the error. All waits are bounded: the connection ends when the bytes of one call take
//! longer than [`EARLY_MS`], when a waiting thread is being killed, or when a fork has waited for
//! some seconds. close() waits for the bytes of calls that have returned. If programs touch pages
//! too soon too often, receives wait in the call for a while.
//!
//! Taking pages away and giving them back costs time, too. If programs have less time than that for
//! other work before the bytes arrive, or before they ask for more bytes, receives wait in the call
//! for a while.
//!
//! The bytes in front of the first whole page of a long buffer are read first, and the call waits
//! for them. The bytes behind the last whole page are not read early: the call returns without
//! them, unless it must have all bytes.

use kernel::page::PAGE_SHIFT;
use kernel::prelude::*;
use kernel::time::{
    Delta,
    Instant,
    Monotonic, //
};

use super::recvmsg::Recv;
use super::Direct;
use crate::kern::errno::ENOBUFS;
use crate::kern::iov::{
    Access,
    Dest,
    Iov, //
};
use crate::kern::signal::is_killed;
use crate::kern::time::Timeout;
use crate::mm::async_dest::Receiving;
use crate::mm::memory::Memory;
use crate::mm::pin::{
    Pinned,
    Term, //
};
use crate::mm::Refused;
use crate::params;
use crate::proto::choice::Reason;
use crate::proto::early::{
    self,
    Receive, //
};
use crate::proto::half::Half;
use crate::proto::pause::Overlap;
use crate::rdma::region::{
    Call,
    Use, //
};
use crate::sdp::conn::connection::Connection;
use crate::sdp::conn::guard::SockOwner;
use crate::sdp::cq::poll::{
    catch_up,
    rearm_cq, //
};
use crate::sdp::parts::source::EarlyReturn;
use crate::sdp::reclaim::give_back;
use crate::sdp::rx::reads::LEAST_DIRECT;
use crate::sdp::timers::tx_watchdog::EARLY_MS;
use crate::stats::counters::Stats;
use crate::stats::tally::Kept;

/// A part of a buffer that is read into early.
struct Early {
    /// Bytes before the first whole page: the call waits for them.
    head: usize,
    /// The whole pages.
    base: usize,
    pages: usize,
}

impl Early {
    /// Pins the head and takes it from `iter`, then takes away access to the pages.
    ///
    /// # Errors
    ///
    /// As for [`Pinned::new`] and [`Receiving::take`]; in these cases `iter` is unchanged.
    pub(in crate::sdp) fn take(
        &self,
        iter: &mut Iov<'_, Dest>,
        may_wait: bool,
        stats: Stats,
    ) -> Result<(Option<Pinned>, Receiving), Refused> {
        let head = match self.head {
            0 => None,
            head => Some(Pinned::new(iter, head, 1, Term::Short, stats)?),
        };
        let receiving = Receiving::take(self.base, self.pages, may_wait, stats);
        if receiving.is_err() {
            iter.revert(self.head);
        }
        Ok((head, receiving?))
    }
}

impl Direct<'_> {
    /// The next part of the buffer for whose pages the call need not wait.
    fn early_part(&mut self, recv: &mut Recv<'_>) -> Option<Early> {
        let start = recv.iter.piece()?.addr;
        let link = self.link.as_ref()?;
        let sources = self.adverts.sources.as_ref()?;
        let part = early::part(&Receive {
            addr: start as u64,
            room_bytes: recv.direct_room() as u64,
            advert_bytes: sources.reader.next_untaken().into(),
            page_shift: PAGE_SHIFT as u32,
            max_pages: link.max_region_pages(),
            two_reads: self.has_places_for(2),
            call_bytes: recv.len as u64,
            has_enough: recv.has_enough,
            excluded: recv.excluded.early_reads,
            closing: sources.early_ends,
            may_hold_up: params::may_hold_up(),
            wanted: self.options.wanted,
            threshold_bytes: self.threshold as u64,
            few_faults: sources.receive_pause.may_go_async(),
            has_overlap: sources.overlap_pause.may_go_async(),
        });
        match part {
            Ok(part) => {
                let head = part.head_bytes as usize;
                Some(Early {
                    head,
                    base: start.wrapping_add(head),
                    pages: part.pages as usize,
                })
            }
            Err(why) => {
                if let Some(why) = why {
                    self.wait_for_pause(recv, why);
                }
                None
            }
        }
    }

    /// Records that a receive waits for its bytes because of a pause. A pause is counted in calls:
    /// a call is one receive, whatever the number of its Reads.
    fn wait_for_pause(&mut self, recv: &mut Recv<'_>, why: Reason) {
        recv.excluded.early_reads = true;
        if let Some(sources) = &mut self.adverts.sources {
            let pause = match why {
                Reason::NoOverlap => &mut sources.overlap_pause,
                _ => &mut sources.receive_pause,
            };
            pause.on_other_path();
        }
        self.count_by_copy(why);
    }
}

/// Called when a receive begins: records how much time the last receive that returned early gave
/// the program.
pub(super) fn note_next_call(conn: &mut Connection, recv: &Recv<'_>) {
    if recv.direct_room() > 0 {
        note_overlap(conn);
    }
}

/// Called before a receive waits. If bytes of early Reads of this call or of a former one are still
/// on their way, the receive waits for these bytes now: records how much time the early Reads gave
/// the program.
pub(super) fn note_wait(conn: &mut Connection, recv: &mut Recv<'_>) {
    if !conn.awaits_early() {
        return;
    }
    note_overlap(conn);
    if recv.taking.take().is_some() {
        // The program has had no time for other work.
        conn.adverts.note_overlap(Overlap::None);
    }
}

/// Records how much time the last receive that has returned early gave the program, if that is not
/// known yet.
fn note_overlap(conn: &mut Connection) {
    let are_there = !conn.awaits_early();
    if let Some(returned) = conn.adverts.take_early_return() {
        conn.adverts.note_overlap(returned.overlap(are_there));
    }
}

/// Called when a receive returns: if it has posted early Reads, the program's time for other work
/// begins.
pub(super) fn note_return(conn: &mut Connection, recv: &Recv<'_>) {
    let Some(taking) = recv.taking else {
        return;
    };
    // Another thread may have returned meanwhile.
    note_overlap(conn);
    let are_there = !conn.awaits_early();
    conn.adverts
        .set_early_return(EarlyReturn::now(taking, are_there));
}

impl Recv<'_> {
    /// Starts a Read of the next bytes into the program's memory without waiting for it. Returns
    /// `false` if the receive is not eligible. Otherwise the attempt was made, with or without
    /// success, and the lock was not held meanwhile.
    ///
    /// # Errors
    ///
    /// The error that ended the connection; `EINTR` if the thread is being killed.
    pub(super) fn read_early(&mut self, guard: &mut SockOwner<'_>) -> Result<bool> {
        let Some(early) = Direct::of(guard).early_part(self) else {
            return Ok(false);
        };
        // The call may wait for bytes of earlier receives into these pages. Receives of other
        // threads that must not wait for the peer do not wait for this call.
        guard.keep(Access::Write, Half::AwaitingPeer, |guard| {
            self.take_and_read(guard, &early)
        })?;
        Ok(true)
    }

    fn take_and_read(&mut self, guard: &mut SockOwner<'_>, early: &Early) -> Result {
        // When the call began, `note_next_call` has recorded nothing if the first part of the
        // buffer was too small.
        note_overlap(guard.conn());
        self.set_room(guard, Some(self.len - self.copied));
        if let Some(sources) = &mut guard.conn().adverts.sources {
            sources.direct_bytes = 0;
        }
        let (iter, stats, may_wait) = (&mut self.iter, guard.stats, !self.has_enough);
        let (taken, taking) = guard.unlocked(|| {
            let began = Instant::<Monotonic>::now();
            let taken = early.take(iter, may_wait, stats);
            (taken, began.elapsed())
        });
        let (head, receiving) = match taken {
            Ok(taken) => taken,
            Err(e) => {
                self.excluded.early_reads = true;
                match e {
                    _ if self.has_enough => {}
                    Refused::Unfit(why) => guard.count_by_copy(why),
                    // The memory cannot be protected at this moment.
                    Refused::Error(e) if e == EAGAIN => guard.count_by_copy(Reason::NotProtectable),
                    Refused::Error(e) if e == ENOBUFS => guard.count_by_copy(Reason::PinLimit),
                    Refused::Error(_) => {}
                }
                return Ok(());
            }
        };
        let taken = receiving.len() as usize;
        let has_pages = match head {
            None => self.post_direct(
                guard,
                Memory::Receiving(receiving),
                Use::OwnReads(Call::Returns),
            )?,
            Some(head) => self.read_behind_head(guard, head, receiving)?,
        };
        if !has_pages {
            return Ok(());
        }
        *self.taking.get_or_insert(Delta::ZERO) += taking;
        guard.count(Kept::ReadEarly, 1);
        self.iter.advance(taken);
        self.promised_direct(guard, taken);
        rearm_cq(guard);
        Ok(())
    }

    /// Posts the Reads into the `head` of a buffer and into the pages behind the head, and waits
    /// for the Read into the head. Returns whether the call may count the bytes of the pages as
    /// received.
    ///
    /// # Errors
    ///
    /// As for [`Recv::read_early`], if not even the head has arrived.
    fn read_behind_head(
        &mut self,
        guard: &mut SockOwner<'_>,
        head: Pinned,
        receiving: Receiving,
    ) -> Result<bool> {
        let bytes = head.len() as usize;
        // If the head does not arrive, the call has not promised the bytes of the pages.
        let promise = receiving.promise_later();
        let memory = Memory::Receiving(receiving);
        let mut posted = false;
        let read = match self.post_direct(guard, Memory::Pinned(head), Use::OwnReads(Call::Waits)) {
            Ok(true) => {
                // If the second Read cannot be posted, the call has only the head. If the
                // connection ends because of this, the wait returns the error.
                let left = self.len - self.copied - bytes - memory.len() as usize;
                posted = self
                    .post_direct(guard, memory, Use::OwnReads(Call::Returns))
                    .unwrap_or(false);
                // The reader comes back for the bytes behind the pages, if its buffer has room for
                // them.
                self.set_room(guard, (left >= LEAST_DIRECT).then_some(left));
                self.await_direct(guard, bytes)
            }
            other => {
                memory.open();
                give_back(guard, memory, Use::OwnReads(Call::Returns));
                other.map(|_| 0)
            }
        };
        let read_bytes = *read.as_ref().unwrap_or(&0);
        self.iter.revert(bytes - read_bytes);
        self.got_direct(guard, read_bytes);
        let alive = !guard.conn().state.has_ended();
        Ok(read? == bytes && posted && promise.give(alive))
    }
}

/// Called before the program ends the connection: waits for the bytes of receives that have
/// returned, for at most [`EARLY_MS`]. Other threads may still receive, but their calls do not
/// return early any more.
pub(crate) fn await_early(guard: &mut SockOwner<'_>) {
    if let Some(sources) = &mut guard.conn().adverts.sources {
        sources.early_ends = true;
    }
    let mut left = Timeout::from_ms(EARLY_MS);
    while !left.is_over() && !guard.conn().state.has_ended() && !is_killed() {
        catch_up(guard);
        if !guard.conn().awaits_early() {
            return;
        }
        guard.wait_killable(&mut left);
    }
}
