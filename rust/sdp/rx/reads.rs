// SPDX-License-Identifier: GPL-2.0

//! Reads of the peer's adverts: those into memory of the kernel, and the end of all.
//!
//! The bytes are put behind what was received before, so that every kind of read finds them there.
//! Who does not read gets no more than the receive buffer holds: a peer that advertises is blocked
//! where one that copies would be.

use kernel::prelude::*;

use super::Receiver;
use crate::proto::pull::{
    self,
    Pull,
    PullReason,
    Waiting, //
};
use crate::proto::state::State;
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
use crate::sdp::output::abort::settle;
use crate::sdp::parts::fatal::Fatal;
use crate::sdp::parts::ring::SMALL_BYTES;
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;
use crate::trace::{
    self,
    Advert, //
};

/// Bytes of the smallest Read into a program's memory: for fewer, pinning costs more than copying.
pub(in crate::sdp) const LEAST_DIRECT: usize = 16384;

/// How long an advert waits for a reader, who can take it without a copy.
const PULL_DELAY_MS: u32 = 4;

/// Places in the send queue that Reads leave to messages.
pub(in crate::sdp) const MESSAGE_PLACES: u32 = 4;

/// Posts the Reads that are due.
pub(in crate::sdp) fn pull(guard: &mut SockGuard<'_>) {
    // Nearly always.
    if guard.conn().adverts.untaken() == 0 {
        return;
    }
    let posted = Receiver::of(guard).pull();
    arm_for(guard, posted);
}

/// Posts one Read of an advert of which too little is left for the reader to take it itself. Sleeps.
pub(in crate::sdp) fn pull_rest(guard: &mut SockOwner<'_>) {
    let posted = Receiver::of(guard).pull_rest();
    arm_for(guard, posted);
}

/// Reads what the peer has advertised for a reader that cannot take it itself. Sleeps.
pub(in crate::sdp) fn pull_for_reader(guard: &mut SockOwner<'_>) {
    let posted = Receiver::of(guard).pull_because(PullReason::Reader);
    arm_for(guard, posted);
}

/// The time is over for which adverts wait for a reader.
pub(in crate::sdp) fn pull_overdue(guard: &mut SockOwner<'_>) {
    let reads = guard.has_direct_reads();
    let posted = Receiver::of(guard).pull_overdue(reads);
    arm_for(guard, posted);
}

/// The end of Reads that were posted must be noticed, whoever is next to look.
fn arm_for(guard: &mut SockGuard<'_>, posted: Result<bool, Fatal>) {
    if settle(guard, posted) && guard.arm() {
        guard.requeue_bh();
    }
}

impl Receiver<'_> {
    /// Posts the Reads that are due; whether there were any.
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
        self.set_pull_now(Some(PullReason::Reader));
        let posted = self.pull_one();
        self.set_pull_now(None);
        posted
    }

    fn set_pull_now(&mut self, now: Option<PullReason>) {
        if let Some(zcopy) = &mut self.adverts.zcopy {
            zcopy.pull_now = now;
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
            // The worker makes what is missing, and comes back: the time is over then as it is now.
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

    /// Bytes to read now: a power of two, at least a page.
    fn pull_due(&mut self) -> Option<u32> {
        if self.adverts.untaken() == 0 || !self.state.is_connected() {
            return None;
        }
        let room = self.pull_room();
        let polls = self.sock.has_poller();
        let link = self.link.as_ref()?;
        let zcopy = self.adverts.zcopy.as_mut()?;
        let longest = link.max_read();
        if link.reads_in_flight() >= READS || link.send_room() < MESSAGE_PLACES + link.read_places()
        {
            return None;
        }
        let halves = self.halves;
        let waiting = Waiting {
            untaken_bytes: zcopy.hold.untaken().into(),
            room_bytes: room.into(),
            now: zcopy.pull_now,
            own_sender_waits: halves.sender_waits_for_room() || halves.sender_waits_for_peer(),
            reader_bytes: self.inq.reader_bytes.map(|bytes| bytes as u64),
            end_of_stream: self.inq.fin_received,
            polls: polls || self.inq.polled,
        };
        let starts_timer = !zcopy.pull_later;
        if waiting.untaken_bytes > 0 && room == 0 {
            // Who polls for more than this must come before.
            self.sock.glance.starved.set(true);
        }
        match pull::pull(waiting, LEAST_DIRECT as u64) {
            Pull::Later if starts_timer => {
                zcopy.pull_later = true;
                zcopy.reader_came = false;
                self.sock.start_timer(Alarm::Pull, PULL_DELAY_MS);
                None
            }
            Pull::Now { bytes, why } => {
                self.sock.stats.pulled(why);
                let bytes = bytes.min(longest.into()) as u32;
                // At most what is there, and what there is room for.
                let most = room.min(longest);
                let size = bytes.max(SMALL_BYTES).next_power_of_two();
                Some(if size <= most { size } else { size / 2 }.max(SMALL_BYTES))
            }
            _ => None,
        }
    }

    /// A reader whose bytes are still on their way, which `reads` says, is not late for what is behind them;
    /// one who has come since the timer was started is waited for once more, for each advert.
    fn pull_overdue(&mut self, reads: bool) -> Result<bool, Fatal> {
        let Some(zcopy) = &mut self.adverts.zcopy else {
            return Ok(false);
        };
        zcopy.pull_later = false;
        let came = zcopy.reader_came && !zcopy.pull_renewed;
        if reads || came {
            zcopy.pull_renewed |= !reads;
            self.pull()
        } else if self.inq.reader_bytes.is_none() {
            self.pull_because(PullReason::Delay)
        } else {
            Ok(false)
        }
    }

    /// Reads what the peer has advertised into the kernel's memory. Sleeps.
    fn pull_because(&mut self, why: PullReason) -> Result<bool, Fatal> {
        self.prepare_reads();
        let Some(zcopy) = &mut self.adverts.zcopy else {
            return Ok(false);
        };
        zcopy.pull_now = (zcopy.hold.untaken() > 0).then_some(why);
        self.pull()
    }

    /// Makes what Reads into the kernel's memory need, if there are adverts. Sleeps.
    pub(in crate::sdp) fn prepare_reads(&mut self) {
        if let (Some(link), Some(_)) = (&mut *self.link, &self.adverts.zcopy) {
            // Without, the next attempt comes here again.
            let _ = link.prepare_reads();
        }
    }

    /// Bytes for which the receive buffer has room, whole pages. As for messages, what is posted
    /// does not count, and one page is always taken if there is nothing to read: what is held may have
    /// all the room.
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

    /// Posts one Read of at most `size` bytes, into so much memory.
    ///
    /// # Errors
    ///
    /// [`Fatal::NoMemory`], and nothing has happened; [`Fatal::Refused`].
    fn read_some(&mut self, size: u32) -> Result<(), Fatal> {
        let (_, flags) = self.gfp;
        let places = self.places_due() + MAX_PARTS;
        self.reserve_unread(places).map_err(|_| Fatal::NoMemory)?;
        let (Some(zcopy), Some(link)) = (&mut self.adverts.zcopy, &mut *self.link) else {
            return Err(Fatal::NoMemory);
        };
        zcopy.hold.reserve(flags).map_err(|_| Fatal::NoMemory)?;
        link.reserve_reading(flags).map_err(|_| Fatal::NoMemory)?;
        let memory = self.read_memory(size).ok_or(Fatal::NoMemory)?;
        let charge = memory.len();
        let zcopy = self.adverts.zcopy.as_mut();
        let (Some((zcopy, read)), Some(link)) = (
            zcopy.and_then(|zcopy| zcopy.reader.take(charge).map(|read| (zcopy, read))),
            &mut *self.link,
        ) else {
            drop(memory);
            self.release(charge);
            return Err(Fatal::NoMemory);
        };
        zcopy.pull_renewed &= read.len < zcopy.hold.untaken();
        zcopy.hold.read(read.len);
        if zcopy.hold.untaken() == 0 {
            zcopy.pull_now = None;
        }
        let result = link.read(&read, memory);
        self.sock.stats.inc(Counter::ReadPosted);
        self.watch.begin(self.sock);
        result.map_err(Fatal::Refused)
    }

    /// Memory for a Read, of `size` bytes or fewer, which is charged; `None` if there is none.
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

    /// The oldest Read has finished: its bytes are the next of the stream.
    ///
    /// # Errors
    ///
    /// [`Fatal::NoMemory`].
    pub(in crate::sdp) fn read_finished(&mut self, memory: Receive) -> Result<(), Fatal> {
        let charge = memory.len();
        let finished = self.adverts.zcopy.as_mut().and_then(|zcopy| {
            let len = zcopy.reader.on_read_done()?;
            zcopy.hold.finish_read().then_some(len)
        });
        let Some(len) = finished else {
            drop(memory);
            self.release(charge);
            return Ok(());
        };
        self.count_read(len, Kept::RxPulledBytes);
        if self.state == State::Dead {
            drop(memory);
            self.release(charge);
            return Ok(());
        }
        self.queue_bytes(memory, 0, len)?;
        self.inq.readable = true;
        self.drain_hold()
    }

    /// The oldest Read has finished: a reader has them, and perhaps waits for them.
    ///
    /// # Errors
    ///
    /// [`Fatal::NoMemory`].
    pub(in crate::sdp) fn direct_read_finished(&mut self, awaited: bool) -> Result<(), Fatal> {
        let mut len = 0;
        if let Some(zcopy) = &mut self.adverts.zcopy {
            len = zcopy.reader.on_read_done().unwrap_or(0);
            zcopy.hold.finish_read();
            zcopy.reader_came = true;
            if awaited {
                zcopy.direct_bytes += len as usize;
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

    /// The Read into this region has finished: who touches its memory need not wait.
    ///
    /// # Errors
    ///
    /// [`Fatal::NoMemory`].
    pub(in crate::sdp) fn early_read_finished(&mut self, region: RegionId) -> Result<(), Fatal> {
        if let Some(link) = &mut *self.link {
            link.open_region(region);
        }
        let result = self.direct_read_finished(false);
        if let Some(returned) = self.adverts.returned() {
            returned.read_finished();
        }
        self.sock.sk().wake_waiters();
        result
    }
}
