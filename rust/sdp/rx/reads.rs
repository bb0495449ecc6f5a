// SPDX-License-Identifier: GPL-2.0

//! Reads of the peer's adverts: the Reads into memory of the kernel, and the end of Reads of all
//! kinds.
//!
//! The bytes are put behind those received before, so every kind of receive finds them in the
//! receive queue. If no program reads, no more than the receive buffer holds is read from the peer:
//! a peer that advertises is blocked where a peer that copies would be blocked.

use kernel::prelude::*;

use super::Receiver;
use crate::proto::choice::MIN_UNCOPIED_BYTES;
use crate::proto::pull::{
    self,
    Expired,
    Pull,
    PullReason,
    Waiting, //
};
use crate::proto::resize::SMALL_BYTES;
use crate::proto::source_reader::Destination;
use crate::rdma::post::READS;
use crate::rdma::receive::{
    Receive,
    MAX_PARTS, //
};
use crate::rdma::region::RegionId;
use crate::sdp::conn::guard::{
    SockGuard,
    SockOwner, //
};
use crate::sdp::conn::sock::{
    Alarm,
    Want, //
};
use crate::sdp::conn::watchdog;
use crate::sdp::output::abort::settle;
use crate::sdp::parts::fatal::Fatal;
use crate::sdp::parts::ring::IDLE_RECEIVES;
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;
use crate::trace::{
    self,
    Advert, //
};

/// The size in bytes of the smallest Read into a program's memory.
pub(in crate::sdp) const LEAST_DIRECT: usize = MIN_UNCOPIED_BYTES as usize;

/// How long an advert waits for a reader, which can take the bytes without a copy.
const PULL_DELAY_MS: u32 = 4;

/// Places in the send queue that Reads leave to messages.
pub(in crate::sdp) const MESSAGE_PLACES: u32 = 4;

/// Posts the Reads that are due.
pub(in crate::sdp) fn pull(guard: &mut SockGuard<'_>) {
    // This is nearly always the case.
    if guard.conn().adverts.untaken() == 0 {
        return;
    }
    let posted = Receiver::of(guard).pull();
    arm_for(guard, posted);
}

/// Posts one Read of an advert of which too little is left for the reader to take it itself.
/// Sleeps.
pub(in crate::sdp) fn pull_rest(guard: &mut SockOwner<'_>) {
    let posted = Receiver::of(guard).pull_rest();
    arm_for(guard, posted);
}

/// Reads the peer's adverts into the kernel's memory for a reader that cannot take them itself.
/// Sleeps.
pub(in crate::sdp) fn pull_for_reader(guard: &mut SockOwner<'_>) {
    let posted = Receiver::of(guard).pull_because(PullReason::Reader);
    arm_for(guard, posted);
}

/// Called when the time is over for which adverts wait for a reader.
pub(in crate::sdp) fn pull_overdue(guard: &mut SockOwner<'_>) {
    let reads = guard.has_direct_reads();
    let posted = Receiver::of(guard).pull_overdue(reads);
    arm_for(guard, posted);
}

/// If Reads were posted, ensures that their end is noticed, even if no other thread polls.
fn arm_for(guard: &mut SockGuard<'_>, posted: Result<bool, Fatal>) {
    if settle(guard, posted) && guard.arm() {
        guard.requeue_bh();
    }
}

impl Receiver<'_> {
    /// Posts the Reads that are due; returns whether there were any.
    ///
    /// # Errors
    ///
    /// [`Fatal::Refused`].
    fn pull(&mut self) -> Result<bool, Fatal> {
        let mut posted = false;
        while self.pull_one()? {
            posted = true;
        }
        Ok(posted)
    }

    fn pull_rest(&mut self) -> Result<bool, Fatal> {
        self.prepare_reads();
        self.set_over(Some(PullReason::Reader));
        let posted = self.pull_one();
        self.set_over(None);
        posted
    }

    fn set_over(&mut self, why: Option<PullReason>) {
        if let Some(sources) = &mut self.adverts.sources {
            sources.reader_wait.set_over(why);
        }
    }

    /// Posts one Read, if one is due.
    ///
    /// # Errors
    ///
    /// [`Fatal::Refused`].
    fn pull_one(&mut self) -> Result<bool, Fatal> {
        let Some(bytes) = self.pull_due() else {
            return Ok(false);
        };
        if !self.link.as_ref().is_some_and(|l| l.can_read()) {
            // The worker creates the missing MRs and tries again; the reason not to wait for a
            // reader still holds.
            self.sock.want(Want::Refill);
            return Ok(false);
        }
        match self.read_some(bytes) {
            Ok(()) => Ok(true),
            Err(Fatal::NoMemory) => {
                self.sock.stats.inc(Counter::NoReceiveMemory);
                self.sock.want(Want::Refill);
                Ok(false)
            }
            Err(why) => Err(why),
        }
    }

    /// The size of the Read that is due, if any: a power of two, at least a page.
    fn pull_due(&mut self) -> Option<u32> {
        if self.adverts.untaken() == 0 || !self.state.is_connected() {
            return None;
        }
        let room = self.pull_room();
        let link = self.link.as_ref()?;
        let sources = self.adverts.sources.as_mut()?;
        let longest = link.max_read();
        if link.reads_in_flight() >= READS || link.send_room() < MESSAGE_PLACES + link.read_places()
        {
            return None;
        }
        let halves = self.halves;
        let waiting = Waiting {
            untaken_bytes: sources.reader.untaken().into(),
            room_bytes: room.into(),
            now: sources.reader_wait.over(),
            own_sender_waits: halves.sender_waits_for_room() || halves.sender_waits_for_peer(),
            reader_bytes: self.inq.reader_bytes.map(|bytes| bytes as u64),
            end_of_stream: self.inq.fin_received,
            polls: self.sock.has_poller(),
        };
        // A program that polls for more bytes than the buffer has room for must be woken to read
        // earlier: no other message of the peer may follow.
        let lacks_room = room == 0;
        self.inq.readable |=
            lacks_room && !self.inq.queue.is_empty() && !self.sock.glance.starved.get();
        let starved = lacks_room || link.receives_posted() < IDLE_RECEIVES;
        self.sock.glance.starved.set(starved);
        match pull::pull(waiting) {
            Pull::Later if sources.reader_wait.must_start_timer() => {
                self.sock.start_timer(Alarm::Pull, PULL_DELAY_MS);
                None
            }
            Pull::Now { bytes, why } => {
                self.sock.stats.pulled(why);
                let bytes = bytes.min(longest.into()) as u32;
                // The memory for the bytes is rounded up to a power of two, if there is room for so
                // much.
                let most = room.min(longest);
                let size = bytes.max(SMALL_BYTES).next_power_of_two();
                Some(if size <= most { size } else { size / 2 }.max(SMALL_BYTES))
            }
            _ => None,
        }
    }

    /// Called when the time is over for which adverts wait for a reader. `reads` says that bytes of
    /// a reader are still on their way.
    fn pull_overdue(&mut self, reads: bool) -> Result<bool, Fatal> {
        let Some(sources) = &mut self.adverts.sources else {
            return Ok(false);
        };
        let reader_waits = self.inq.has_direct_reader();
        match sources.reader_wait.expired(reads, reader_waits) {
            Expired::Decide => self.pull(),
            Expired::Pull => self.pull_because(PullReason::Delay),
            Expired::Nothing => Ok(false),
        }
    }

    /// Reads the peer's adverts into the kernel's memory, for the reason `why`. Sleeps.
    fn pull_because(&mut self, why: PullReason) -> Result<bool, Fatal> {
        self.prepare_reads();
        let Some(sources) = &mut self.adverts.sources else {
            return Ok(false);
        };
        let why = (sources.reader.untaken() > 0).then_some(why);
        sources.reader_wait.set_over(why);
        self.pull()
    }

    /// Creates the MRs that Reads into the kernel's memory need, if there are adverts. Sleeps.
    pub(in crate::sdp) fn prepare_reads(&mut self) {
        if let (Some(link), Some(_)) = (&mut *self.link, &self.adverts.sources) {
            // If this fails, the next attempt to post a Read has the worker call this function
            // again.
            let _ = link.prepare_reads();
        }
    }

    /// The number of bytes for which the receive buffer has room, in whole pages. As for messages,
    /// the memory of posted receives does not count. If the receive queue is empty, there is always
    /// room for one page: payload held behind the adverts may use all the room.
    fn pull_room(&self) -> u32 {
        let sk = self.sock.sk();
        let posted = self.link.as_ref().map_or(0, |l| l.posted_bytes());
        let unread = (sk.rmem() - self.ring.reserve).saturating_sub(posted);
        let room = sk.rcvbuf().saturating_sub(unread);
        let room = room - room % SMALL_BYTES;
        if room == 0 && self.inq.queue.is_empty() {
            SMALL_BYTES
        } else {
            room
        }
    }

    /// Posts one Read of at most `size` bytes, into at most this much memory.
    ///
    /// # Errors
    ///
    /// [`Fatal::NoMemory`], after which nothing has changed; [`Fatal::Refused`].
    fn read_some(&mut self, size: u32) -> Result<(), Fatal> {
        let (_, flags) = self.gfp;
        let places = self.places_due() + MAX_PARTS;
        self.reserve_unread(places).map_err(|_| Fatal::NoMemory)?;
        let Some(link) = &mut *self.link else {
            return Err(Fatal::NoMemory);
        };
        link.reserve_reading(flags).map_err(|_| Fatal::NoMemory)?;
        let memory = self.read_memory(size).ok_or(Fatal::NoMemory)?;
        let charge = memory.len();
        let sources = self.adverts.sources.as_mut();
        let (Some(read), Some(link)) = (
            sources.and_then(|sources| sources.take(charge, Destination::Kernel)),
            &mut *self.link,
        ) else {
            drop(memory);
            self.release(charge);
            return Err(Fatal::NoMemory);
        };
        let result = link.read(&read, memory);
        self.sock.stats.inc(Counter::ReadPosted);
        watchdog::begin(self.watch, self.sock);
        result.map_err(Fatal::Refused)
    }

    /// Allocates and charges memory for a Read, of `size` bytes or fewer; `None` if there is none.
    fn read_memory(&mut self, size: u32) -> Option<Receive> {
        let mut size = size;
        loop {
            if !self.charge(size) {
                return None;
            }
            let link = self.link.as_ref();
            let spares = &mut self.ring.spares;
            let memory = link.and_then(|l| l.receive_memory(size, spares, self.gfp).ok());
            if memory.is_some() {
                return memory;
            }
            self.release(size);
            size /= 2;
            if size < SMALL_BYTES {
                return None;
            }
        }
    }

    /// The oldest Read has finished: its bytes, in `memory`, are the next of the stream.
    ///
    /// # Errors
    ///
    /// [`Fatal::NoMemory`].
    pub(in crate::sdp) fn read_finished(&mut self, memory: Receive) -> Result<(), Fatal> {
        let charge = memory.len();
        let sources = self.adverts.sources.as_mut();
        let Some(len) = sources.and_then(|sources| sources.reader.on_read_done()) else {
            drop(memory);
            self.release(charge);
            return Ok(());
        };
        self.count_read(len, Kept::RxPulledBytes);
        if self.state.has_ended() {
            drop(memory);
            self.release(charge);
            return Ok(());
        }
        self.queue_bytes(memory, 0, len)?;
        self.inq.readable = true;
        self.drain_hold()
    }

    /// The oldest Read has finished: its bytes are in the memory of a reader. `awaited` says that
    /// the reader waits for them in its call.
    ///
    /// # Errors
    ///
    /// [`Fatal::NoMemory`].
    pub(in crate::sdp) fn direct_read_finished(&mut self, awaited: bool) -> Result<(), Fatal> {
        let mut len = 0;
        if let Some(sources) = &mut self.adverts.sources {
            len = sources.reader.on_read_done().unwrap_or(0);
            sources.reader_wait.reader_came();
            if awaited && len > 0 {
                sources.direct_bytes += len as usize;
                self.inq.direct_arrived = self.sock.sk().arrival_time();
            }
        }
        self.count_read(len, Kept::RxZcopyBytes);
        self.drain_hold()
    }

    fn count_read(&mut self, len: u32, how: Kept) {
        let (sk, stats) = (self.sock.sk(), self.sock.stats);
        stats.inc(Counter::ReadDone);
        let (sink, bytes) = (false, len);
        trace::advert_read(sk, Advert { sink, len, bytes });
        self.measured.counts.add(stats, how, len.into());
        self.measured.data_received(stats, len);
    }

    /// The Read into this region has finished: threads that touch the region's memory need not wait
    /// any more.
    ///
    /// # Errors
    ///
    /// [`Fatal::NoMemory`].
    pub(in crate::sdp) fn early_read_finished(&mut self, region: RegionId) -> Result<(), Fatal> {
        if let Some(link) = &mut *self.link {
            link.open_region(region);
        }
        let result = self.direct_read_finished(false);
        if let Some(returned) = self.adverts.early_return() {
            returned.read_finished();
        }
        self.sock.sk().wake_waiters();
        result
    }
}
