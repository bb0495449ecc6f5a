// SPDX-License-Identifier: GPL-2.0

//! Reads of the peer's adverts: those into memory of the kernel, and the end of all.
//!
//! The bytes are put behind what was received before, so that every kind of read finds them there.
//! Who does not read gets no more than the receive buffer holds: a peer that advertises is blocked
//! where one that copies would be.

use kernel::alloc::Flags;
use kernel::prelude::*;

use crate::bindings::gfp_t;
use crate::kern::errno::{
    ECONNRESET,
    ENOBUFS, //
};
use crate::proto::pull::{
    pull,
    Pull,
    PullReason,
    Waiting, //
};
use crate::proto::state::{
    Event,
    State, //
};
use crate::rdma::mr::RegionId;
use crate::rdma::post::READS;
use crate::rdma::receive::{
    Receive,
    MAX_PARTS, //
};
use crate::sdp::conn::guard::SockGuard;
use crate::sdp::conn::sock::{
    Alarm,
    Want, //
};
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

impl SockGuard<'_> {
    /// Posts the Reads that are due.
    pub(crate) fn pull(&mut self) {
        let mut posted = false;
        while self.pull_one() {
            posted = true;
        }
        if posted {
            self.arm_for_reads();
        }
    }

    /// Posts one Read of an advert of which too little is left for the reader to take it itself. Sleeps.
    pub(in crate::sdp) fn pull_rest(&mut self) {
        self.prepare_reads();
        self.set_pull_now(Some(PullReason::Reader));
        if self.pull_one() {
            self.arm_for_reads();
        }
        self.set_pull_now(None);
    }

    fn set_pull_now(&mut self, now: Option<PullReason>) {
        if let Some(zcopy) = &mut self.conn().adverts.zcopy {
            zcopy.pull_now = now;
        }
    }

    /// The end of Reads must be noticed, whoever is next to look.
    fn arm_for_reads(&mut self) {
        if self.arm() {
            self.sock().requeue_bh();
        }
    }

    /// Posts one Read, if one is due.
    fn pull_one(&mut self) -> bool {
        let Some(bytes) = self.pull_due() else {
            return false;
        };
        if !self.conn().link.as_ref().is_some_and(|l| l.can_read()) {
            // The worker makes what is missing, and comes back: the time is over then as it is now.
            self.want(Want::Refill);
            return false;
        }
        match self.read_some(bytes) {
            Ok(()) => return true,
            Err(e) if e == ENOBUFS => {
                self.stats.inc(Counter::NoReceiveMemory);
                self.want(Want::Refill);
            }
            Err(_) => {
                self.stats.inc(Counter::PostFailed);
                self.fail(Event::Abort, ECONNRESET);
            }
        }
        false
    }

    /// Bytes to read now: a power of two, at least a page.
    fn pull_due(&mut self) -> Option<u32> {
        let conn = self.conn();
        // Nearly always: before anything is counted.
        if conn.adverts.zcopy.as_ref()?.hold.untaken() == 0 || !conn.state.is_connected() {
            return None;
        }
        let room = self.pull_room();
        let polls = self.has_poller();
        let glance = &self.sock().glance;
        let conn = self.conn();
        let halves = &conn.halves;
        let link = conn.link.as_ref()?;
        let zcopy = conn.adverts.zcopy.as_ref()?;
        let longest = link.max_read();
        if link.reads_in_flight() >= READS || link.send_room() < MESSAGE_PLACES + link.read_places()
        {
            return None;
        }
        let waiting = Waiting {
            untaken_bytes: zcopy.hold.untaken().into(),
            room_bytes: room.into(),
            now: zcopy.pull_now,
            own_sender_waits: halves.sender_waits_for_room() || halves.sender_waits_for_peer(),
            reader_bytes: conn.inq.reader_bytes.map(|bytes| bytes as u64),
            end_of_stream: conn.inq.fin_received,
            polls: polls || conn.inq.polled,
        };
        let starts_timer = !zcopy.pull_later;
        if waiting.untaken_bytes > 0 && room == 0 {
            // Who polls for more than this must come before.
            glance.starved.set(true);
        }
        match pull(waiting, LEAST_DIRECT as u64) {
            Pull::Later if starts_timer => {
                if let Some(zcopy) = &mut conn.adverts.zcopy {
                    zcopy.pull_later = true;
                    zcopy.reader_came = false;
                }
                self.start_timer(Alarm::Pull, PULL_DELAY_MS);
                None
            }
            Pull::Now { bytes, why } => {
                self.stats.pulled(why);
                let bytes = bytes.min(longest.into()) as u32;
                // At most what is there, and what there is room for.
                let most = room.min(longest);
                let size = bytes.max(SMALL_BYTES).next_power_of_two();
                Some(if size <= most { size } else { size / 2 }.max(SMALL_BYTES))
            }
            _ => None,
        }
    }

    /// The time is over. A reader whose bytes are still on their way is not late for what is behind them;
    /// one who has come since then is waited for once more, for each advert.
    pub(in crate::sdp) fn pull_overdue(&mut self) {
        let reads = self.has_direct_reads();
        let Some(zcopy) = &mut self.conn().adverts.zcopy else {
            return;
        };
        zcopy.pull_later = false;
        let came = zcopy.reader_came && !zcopy.pull_renewed;
        if reads || came {
            zcopy.pull_renewed |= !reads;
            self.pull();
        } else if self.conn().inq.reader_bytes.is_none() {
            self.pull_because(PullReason::Delay);
        }
    }

    /// Reads what the peer has advertised for a reader that cannot take it itself. Sleeps.
    pub(in crate::sdp) fn pull_for_reader(&mut self) {
        self.pull_because(PullReason::Reader);
    }

    /// Reads what the peer has advertised into the kernel's memory. Sleeps.
    fn pull_because(&mut self, why: PullReason) {
        self.prepare_reads();
        let Some(zcopy) = &mut self.conn().adverts.zcopy else {
            return;
        };
        zcopy.pull_now = (zcopy.hold.untaken() > 0).then_some(why);
        self.pull();
    }

    /// Makes what Reads into the kernel's memory need, if there are adverts. Sleeps.
    pub(in crate::sdp) fn prepare_reads(&mut self) {
        let conn = self.conn();
        if let (Some(link), Some(_)) = (&mut conn.link, &conn.adverts.zcopy) {
            // Without, the next attempt comes here again.
            let _ = link.prepare_reads();
        }
    }

    /// Bytes for which the receive buffer has room, whole pages. As for messages, what is posted
    /// does not count, and one page is always taken if there is nothing to read: what is held may have
    /// all the room.
    fn pull_room(&mut self) -> u32 {
        let sk = self.sk();
        let conn = self.conn();
        let posted = conn.link.as_ref().map_or(0, |l| l.posted_bytes());
        let unread = (sk.rmem() - conn.ring.reserve).saturating_sub(posted);
        let room = sk.rcvbuf().saturating_sub(unread);
        let room = room - room % SMALL_BYTES;
        if room == 0 && conn.inq.queue.is_empty() {
            SMALL_BYTES
        } else {
            room
        }
    }

    /// Posts one Read of at most `size` bytes, into so much memory.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` without memory, and nothing has happened; else what the provider returns.
    fn read_some(&mut self, size: u32) -> Result {
        let gfp = self.gfp();
        let (_, flags) = gfp;
        let places = self.places_due() + MAX_PARTS;
        self.reserve_unread(places, flags).map_err(|_| ENOBUFS)?;
        let conn = self.conn();
        let (Some(zcopy), Some(link)) = (&mut conn.adverts.zcopy, &mut conn.link) else {
            return Err(ENOBUFS);
        };
        zcopy.hold.reserve(flags).map_err(|_| ENOBUFS)?;
        link.reserve_reading(flags).map_err(|_| ENOBUFS)?;
        let memory = self.read_memory(size, gfp)?;
        let charge = memory.len();
        let conn = self.conn();
        let (Some(zcopy), Some(link)) = (&mut conn.adverts.zcopy, &mut conn.link) else {
            drop(memory);
            self.release_receive(charge);
            return Err(ENOBUFS);
        };
        let Some(read) = zcopy.reader.take(charge) else {
            drop(memory);
            self.release_receive(charge);
            return Err(ENOBUFS);
        };
        zcopy.pull_renewed &= read.len < zcopy.hold.untaken();
        zcopy.hold.read(read.len);
        if zcopy.hold.untaken() == 0 {
            zcopy.pull_now = None;
        }
        let result = link.read(&read, memory);
        self.stats.inc(Counter::ReadPosted);
        self.watch_sends();
        result.map_err(|_| ECONNRESET)
    }

    /// Memory for a Read, of `size` bytes or fewer, which is charged.
    fn read_memory(&mut self, size: u32, gfp: (gfp_t, Flags)) -> Result<Receive> {
        let mut size = size;
        loop {
            let sk = self.sk();
            let conn = self.conn();
            if !conn.ring.charge(sk, size) {
                return Err(ENOBUFS);
            }
            let memory = match &conn.link {
                Some(link) => link.receive_memory(size, &mut conn.ring.spares, gfp),
                None => Err(ENOBUFS),
            };
            match memory {
                Ok(memory) => return Ok(memory),
                Err(_) => self.release_receive(size),
            }
            size /= 2;
            if size < SMALL_BYTES {
                return Err(ENOBUFS);
            }
        }
    }

    /// The oldest Read has finished: its bytes are the next of the stream.
    pub(in crate::sdp) fn read_finished(&mut self, memory: Receive) {
        let charge = memory.len();
        let finished = self.conn().adverts.zcopy.as_mut().and_then(|zcopy| {
            let len = zcopy.reader.on_read_done()?;
            zcopy.hold.finish_read().then_some(len)
        });
        let Some(len) = finished else {
            drop(memory);
            return self.release_receive(charge);
        };
        self.stats.inc(Counter::ReadDone);
        let (sink, bytes) = (false, len);
        trace::advert_read(self.sk(), Advert { sink, len, bytes });
        self.count(Kept::RxPulledBytes, len.into());
        let stats = self.stats;
        self.conn().measured.data_received(stats, len);
        if self.conn().state == State::Dead {
            drop(memory);
            return self.release_receive(charge);
        }
        self.queue_bytes(memory, 0, len);
        self.conn().inq.readable = true;
        self.drain_hold();
    }

    /// The oldest Read has finished: a reader has them, and perhaps waits for them.
    pub(in crate::sdp) fn direct_read_finished(&mut self, awaited: bool) {
        let mut len = 0;
        if let Some(zcopy) = &mut self.conn().adverts.zcopy {
            len = zcopy.reader.on_read_done().unwrap_or(0);
            zcopy.hold.finish_read();
            zcopy.reader_came = true;
            if awaited {
                zcopy.direct_bytes += len as usize;
            }
        }
        self.stats.inc(Counter::ReadDone);
        let (sink, bytes) = (false, len);
        trace::advert_read(self.sk(), Advert { sink, len, bytes });
        let stats = self.stats;
        self.conn().measured.data_received(stats, len);
        self.count(Kept::RxZcopyBytes, len.into());
        self.drain_hold();
    }

    /// The Read into this region has finished: who touches its memory need not wait.
    pub(in crate::sdp) fn early_read_finished(&mut self, region: RegionId) {
        if let Some(link) = &mut self.conn().link {
            link.open_region(region);
        }
        self.direct_read_finished(false);
        self.sk().wake_waiters();
    }
}
