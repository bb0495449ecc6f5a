// SPDX-License-Identifier: GPL-2.0

//! recvmsg() without a copy: a call that waits advertises its buffer, and the peer writes there.
//!
//! # Normal operation
//!
//! The pages are pinned without the lock, then made regions of the adapter and advertised. The peer's
//! answer, or other payload, ends the adverts; then the keys are made invalid, and the call goes on
//! with what it has got. Others that read from the socket wait for their turn.
//!
//! # When it ends otherwise
//!
//! A signal, a time-out, a shutdown, or too long a wait asks for the buffers back (rule S5 of the
//! protocol). The call waits for the answers, for the peer may be writing; only a fatal signal ends
//! that wait, with the connection. When the connection has ended, the call waits until its queue pair
//! is gone. So a program that has its buffer back can be sure that nobody writes to it any more.

use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

use super::recvmsg::Recv;
use super::Direct;
use crate::inet::sock::Sk;
use crate::kern::errno::{
    ECONNRESET,
    ENOBUFS, //
};
use crate::kern::iov::Access;
use crate::kern::signal::{
    fatal_signal_pending,
    signal_pending, //
};
use crate::kern::time::Timeout;
use crate::mm::memory::Memory;
use crate::mm::pin::{
    self,
    Pinned,
    Term, //
};
use crate::proto::bsdh::Class;
use crate::proto::choice::Wanted;
use crate::proto::message::Body;
use crate::proto::state::{
    Event,
    State, //
};
use crate::rdma::link::{
    Tag,
    With, //
};
use crate::rdma::region::{
    RegionId,
    Use, //
};
use crate::sdp::conn::guard::SockOwner;
use crate::sdp::conn::half::Half;
use crate::sdp::cq::poll::{
    poll_cq_if_due,
    rearm_cq, //
};
use crate::sdp::flush::flush;
use crate::sdp::output::abort::{
    abort,
    end_for, //
};
use crate::sdp::output::{
    Output,
    CONTROL_PLACES, //
};
use crate::sdp::parts::fatal::Fatal;
use crate::sdp::parts::posted::Posted;
use crate::sdp::parts::recv_queue::RecvQueue;
use crate::sdp::rx::reads::LEAST_DIRECT;
use crate::sdp::timers::tx_watchdog::CANCEL_MS;
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;
use crate::trace::{
    self,
    Advert, //
};

/// Adverts of one call that are out at a time.
pub(in crate::sdp) const PIECES: usize = 4;

/// How long a buffer is advertised at most: pinned pages are in the way of memory management.
const OFFER_MS: u32 = 5000;

impl Direct<'_> {
    /// Whether a receive that is about to wait shall advertise its buffer.
    pub(super) fn may_offer(&mut self, recv: &mut Recv<'_>) -> bool {
        if recv.no_offer || !self.wants_offers(recv) {
            return false;
        }
        let room = recv.direct_room();
        if room == 0 || !self.can_offer() {
            return false;
        }
        let sinks = self.adverts.sink(self.flags);
        let Some(sinks) = sinks.filter(|s| !s.adverts.is_live()) else {
            return false;
        };
        // A pause is counted in calls: some wait once, others for each part of what comes.
        recv.no_offer = !sinks.offers.may_offer();
        !recv.no_offer && self.is_buffer_free(recv, room)
    }

    /// Whether the next piece of the buffer is there, and in no snapshot of a send: else to pin it now
    /// would make copies of its pages, though the reply may come only when they are free.
    fn is_buffer_free(&self, recv: &Recv<'_>, room: usize) -> bool {
        let link = self.link.as_ref();
        let pages = link.map_or(0, |link| link.max_region_pages() as usize);
        let piece = recv.iter.piece();
        piece.is_some_and(|piece| pin::is_writable(piece.addr, room.min(pages * PAGE_SIZE)))
    }

    /// Whether the user wants this receive without a copy, and to wait for its bytes.
    fn wants_offers(&self, recv: &Recv<'_>) -> bool {
        let (least, options) = (self.threshold, self.options);
        let enough = options.wanted != Wanted::Automatic || (least > 0 && recv.len >= least);
        enough && options.wanted.sinks()
    }

    /// Whether an advert may be sent now: nothing is unread (rule S1), something may come, and there
    /// is room for it everywhere.
    fn can_offer(&mut self) -> bool {
        let read_out = self.inq.queue.is_empty() && !self.adverts.holds();
        let Some(link) = self.link else {
            return false;
        };
        let places = 1 + link.registration_places() + CONTROL_PLACES;
        read_out
            && link.has_region_room()
            && self.state.can_receive()
            && link.send_room() >= places
            && self.credits.may_send(Class::Payload)
            && self
                .adverts
                .sink(self.flags)
                .is_some_and(|sinks| sinks.adverts.may_post(true, 1).is_ok())
    }

    /// Whether another piece can be advertised. `behind` says that it comes behind one, which must still be
    /// out.
    fn may_post_offer(&mut self, behind: bool) -> bool {
        let sinks = &self.adverts.sinks;
        let is_live = sinks.as_ref().is_some_and(|s| s.adverts.is_live());
        is_live == behind && self.can_offer()
    }
}

/// Posts the advert of a region of `len` bytes; `false` if there is no room for it.
///
/// # Errors
///
/// [`Fatal::Refused`].
fn post_sink(output: &mut Output<'_>, len: u32, region: RegionId) -> Result<bool, Fatal> {
    let (Some(link), Some(sinks)) = (&*output.link, &mut output.adverts.sinks) else {
        return Ok(false);
    };
    let (Some(address), Ok(count)) = (
        link.region(region),
        sinks.adverts.post(true, len, Posted::now(region)),
    ) else {
        return Ok(false);
    };
    let body = Body::SinkAvail {
        len,
        rkey: address.key,
        addr: address.addr,
        count,
    };
    let with = With::Registration(region);
    let posted = output.post_with(body, &mut [], 0, Tag::Control, with)?;
    if posted {
        let (sk, stats) = (output.sock.sk(), output.sock.stats);
        output.measured.counts.add(stats, Kept::SinkSent, 1);
        let (sink, bytes) = (true, 0);
        trace::advert_posted(sk, Advert { sink, len, bytes });
        stats.inc(Counter::MrRegistered);
    }
    Ok(posted)
}

impl Recv<'_> {
    /// Whether the call shall not wait any longer.
    fn must_not_wait(&self, sk: Sk, inq: &RecvQueue) -> bool {
        inq.fin_received
            || sk.err() != 0
            || sk.rcv_shutdown()
            || self.timeo.is_over()
            || signal_pending()
    }
}

impl SockOwner<'_> {
    /// Advertises the buffer of a receive, and waits until something has come, or must not be waited
    /// for any more.
    ///
    /// # Errors
    ///
    /// What ended the connection; `EINTR` if the thread is being killed.
    pub(super) fn offer(&mut self, recv: &mut Recv<'_>) -> Result {
        self.keep(Access::Write, Half::AwaitingPeer, |guard| {
            guard.pin_and_offer(recv)
        })
    }

    fn pin_and_offer(&mut self, recv: &mut Recv<'_>) -> Result {
        self.conn().ring.spares.clear();
        if let Some(sinks) = &mut self.conn().adverts.sinks {
            sinks.declined = false;
            sinks.received_bytes = 0;
        }
        let taken = self.offer_pieces(recv);
        let result = if taken > 0 {
            self.await_offers(recv)
        } else {
            if let Some(sinks) = self.conn().adverts.sinks.as_mut().filter(|_| recv.no_offer) {
                sinks.offers.on_unused();
            }
            Ok(())
        };
        let same = self.generation() == recv.began;
        let got = match &self.conn().adverts.sinks {
            Some(sinks) if same => sinks.received_bytes.min(taken),
            _ => 0,
        };
        recv.iter.revert(taken - got);
        recv.copied += got;
        recv.direct += got;
        if got > 0 {
            Ok(())
        } else {
            result
        }
    }

    /// Advertises the buffer, in as many pieces as it takes; a call that returns with less has one.
    /// Returns how many bytes that are.
    fn offer_pieces(&mut self, recv: &mut Recv<'_>) -> usize {
        let mut taken = 0;
        for _ in 0..PIECES {
            let left = recv.len - recv.copied - taken;
            if taken > 0 && (recv.copied + taken >= recv.target || left < LEAST_DIRECT) {
                break;
            }
            if taken > 0 && !Direct::of(self).is_buffer_free(recv, left) {
                break;
            }
            let Some(pinned) = self.pin_offer(recv, left) else {
                break;
            };
            let len = pinned.len() as usize;
            // The core may have found less than it was asked for.
            recv.no_offer |= len < LEAST_DIRECT;
            match self.post_offer(recv, pinned, taken > 0) {
                Ok(()) => taken += len,
                Err(memory) => {
                    recv.iter.revert(len);
                    // It takes locks of the pages.
                    self.unlocked(|| drop(memory));
                    break;
                }
            }
        }
        taken
    }

    fn pin_offer(&mut self, recv: &mut Recv<'_>, most: usize) -> Option<Pinned> {
        let pages = self.conn().link.as_ref()?.max_region_pages() as usize;
        let (iter, stats) = (&mut recv.iter, self.stats);
        let pinned = self.unlocked(|| Pinned::new(iter, most, pages, Term::Long, stats));
        match pinned {
            Ok(pinned) => Some(pinned),
            Err(e) => {
                if e == ENOBUFS {
                    self.stats.inc(Counter::MemlockRefused);
                }
                // It may be good enough for a Read of bytes that are there.
                recv.no_offer = true;
                None
            }
        }
    }

    /// Advertises a piece, if that may be still: the lock was not held. `behind` says that it comes
    /// behind another, which must still be out.
    ///
    /// # Errors
    ///
    /// The memory, if not.
    fn post_offer(
        &mut self,
        recv: &mut Recv<'_>,
        pinned: Pinned,
        behind: bool,
    ) -> Result<(), Memory> {
        let memory = Memory::Pinned(pinned);
        let len = memory.len();
        let same = self.generation() == recv.began;
        if !same || recv.no_offer || !Direct::of(self).may_post_offer(behind) {
            return Err(memory);
        }
        let region = match &mut self.conn().link {
            Some(link) => link.add_region(memory, Use::PeerWrites).inspect_err(|_| {
                recv.no_offer = true;
            })?,
            None => return Err(memory),
        };
        let posted = post_sink(&mut Output::of(self), len, region);
        // The call waits until the link has given the region back.
        match posted {
            Ok(true) => {}
            Ok(false) => {
                // There was room for everything.
                self.stats.inc(Counter::PostFailed);
                self.fail(Event::Abort, ECONNRESET);
            }
            Err(why) => end_for(self, why),
        }
        Ok(())
    }

    /// Asks for all buffers back (rule S5).
    fn cancel_offers(&mut self) {
        if let Some(sinks) = &mut self.conn().adverts.sinks {
            sinks.cancel_due |= sinks.adverts.cancel().is_ok();
        }
        flush(self);
    }

    /// Waits until nobody can write to the buffers any more, and unpins them.
    fn await_offers(&mut self, recv: &mut Recv<'_>) -> Result {
        let mut left = Timeout::from_ms(OFFER_MS);
        let mut cancelled = false;
        loop {
            poll_cq_if_due(self);
            rearm_cq(self);
            if self.unpin_finished(recv.began, Use::PeerWrites)? {
                return Ok(());
            }
            if fatal_signal_pending() {
                abort(self, Some(ECONNRESET));
                return Err(EINTR);
            }
            if self.conn().state == State::Dead {
                if self.conn().lifetime.torn_down {
                    // Whether that is an error is seen from what has come before.
                    return Ok(());
                }
                self.wait_killable(&mut Timeout::endless());
                continue;
            }
            let (sk, conn) = (self.sk(), self.conn());
            if !cancelled && (left.is_over() || recv.must_not_wait(sk, &conn.inq)) {
                recv.no_offer |= left.is_over();
                cancelled = true;
                left = Timeout::from_ms(CANCEL_MS);
                self.cancel_offers();
                continue;
            }
            if !cancelled {
                self.await_writer(recv, &mut left);
            } else if left.is_over() {
                self.stats.inc(Counter::TimedOut);
                abort(self, Some(ETIMEDOUT));
            } else {
                self.wait_killable(&mut left);
            }
        }
    }

    /// Waits for the peer, for at most what is `left`, and no longer than the receive may.
    fn await_writer(&mut self, recv: &mut Recv<'_>, left: &mut Timeout) {
        // What it advertises instead can be read into the buffer, too.
        let room = recv.len - recv.copied;
        self.conn().inq.reader_bytes = Some(room);
        Timeout::wait_both(&mut recv.timeo, left, |limit| self.wait_and_poll(limit));
        self.conn().inq.reader_bytes = None;
    }
}
