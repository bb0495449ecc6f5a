// SPDX-License-Identifier: GPL-2.0

//! recvmsg() without a copy: a call that waits advertises its buffer, and the peer writes to the
//! buffer.
//!
//! # Normal operation
//!
//! The pages are pinned without the lock, then made regions of the adapter and advertised. The
//! peer's answer, or other payload, ends the adverts. Then the keys are invalidated, and the call
//! continues with the bytes that it has got. Other readers of the socket wait for their turn.
//!
//! # Exceptions
//!
//! After a signal, a time-out, a shutdown, or too long a wait the adverts are cancelled (rule S5 of
//! the protocol). The call waits for the answers, because the peer may be writing. If the answers
//! take too long, the connection is aborted; a fatal signal aborts the connection, too, and ends
//! the wait. When the connection has ended, the call waits until its queue pair is gone. So when a
//! program has its buffer back, the peer cannot write to it any more.

use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

use super::recvmsg::Recv;
use super::Direct;
use crate::inet::sock::Sk;
use crate::kern::errno::ECONNRESET;
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
use crate::proto::choice::SINK_NEEDS;
use crate::proto::half::Half;
use crate::proto::message::Control;
use crate::proto::offer::{
    Advertising,
    Waiting, //
};
use crate::proto::state::{
    Event,
    State, //
};
use crate::rdma::link::With;
use crate::rdma::region::{
    RegionId,
    Use, //
};
use crate::sdp::conn::guard::SockOwner;
use crate::sdp::cq::poll::{
    catch_up,
    wait_and_poll, //
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
use crate::sdp::reclaim::unpin_finished;
use crate::sdp::rx::reads::LEAST_DIRECT;
use crate::sdp::timers::tx_watchdog::CANCEL_MS;
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;
use crate::trace::{
    self,
    Advert, //
};

/// The maximum number of adverts that one call has out at a time.
const OFFER_PIECES: usize = 4;

/// The maximum time for which a buffer is advertised: pinned pages obstruct memory management.
const OFFER_MS: u32 = 5000;

impl Direct<'_> {
    /// Whether a receive that is about to wait shall advertise its buffer.
    pub(super) fn may_offer(&mut self, recv: &mut Recv<'_>) -> bool {
        let room = recv.direct_room();
        let waiting = Waiting {
            wanted: self.options.wanted,
            threshold_bytes: self.threshold as u64,
            call_bytes: recv.len as u64,
            room_bytes: room as u64,
            excluded: recv.excluded.adverts,
        };
        // Most receives that wait do not want an advert.
        if !waiting.wants_advert() || !self.may_advertise(false) {
            return false;
        }
        let Some(sinks) = self.adverts.sinks_or_new(self.flags) else {
            return false;
        };
        // A pause is counted in calls and not in waits: some calls wait once, others for each part
        // of their bytes.
        recv.excluded.adverts = !sinks.offers.may_offer();
        !recv.excluded.adverts && self.is_buffer_free(recv, room)
    }

    /// Whether the pages of the next piece of the buffer are present, and in no snapshot of a send.
    /// Pinning pages of a snapshot would copy them, although the peer may reply only when the
    /// snapshot is over.
    fn is_buffer_free(&self, recv: &Recv<'_>, room: usize) -> bool {
        let link = self.link.as_ref();
        let pages = link.map_or(0, |link| link.max_region_pages() as usize);
        let piece = recv.iter.piece();
        piece.is_some_and(|piece| pin::is_writable(piece.addr, room.min(pages * PAGE_SIZE)))
    }

    /// [`Advertising::may_advertise`].
    fn may_advertise(&self, behind: bool) -> bool {
        let Some(link) = self.link else {
            return false;
        };
        let places = 1 + link.registration_places() + CONTROL_PLACES;
        // The state of sink adverts is created only for a receive that may need it.
        let sinks = self.adverts.sinks.as_ref();
        let now = Advertising {
            agreed: self.adverts.features.contains(SINK_NEEDS),
            read_out: self.is_read_out(),
            can_receive: self.state.can_receive(),
            has_region_room: link.has_region_room(),
            has_places: link.send_room() >= places,
            has_credits: self.credits.may_send(Class::Payload),
            is_live: sinks.is_some_and(|sinks| sinks.adverts.is_live()),
            hold: sinks.and_then(|sinks| sinks.adverts.may_post().err()),
        };
        now.may_advertise(behind)
    }

    /// Whether all received bytes were read, and all bytes of the peer's source adverts.
    fn is_read_out(&self) -> bool {
        self.inq.queue.is_empty() && !self.adverts.holds()
    }
}

/// Posts the advert of a region of `len` bytes; `false` if there is no room for it. `read_out` is
/// [`Direct::is_read_out`].
///
/// # Errors
///
/// [`Fatal::Refused`].
fn post_sink(
    output: &mut Output<'_>,
    read_out: bool,
    len: u32,
    region: RegionId,
) -> Result<bool, Fatal> {
    let (Some(link), Some(sinks)) = (&*output.link, &mut output.adverts.sinks) else {
        return Ok(false);
    };
    let (Some(address), Ok(count)) = (
        link.region(region),
        sinks.adverts.post(read_out, len, Posted::now(region)),
    ) else {
        return Ok(false);
    };
    // Counted here: if the provider refuses the message, the advert ends with the connection, and
    // is counted then.
    let (sk, stats) = (output.sock.sk(), output.sock.stats);
    output.measured.counts.add(stats, Kept::SinkSent, 1);
    let message = Control::SinkAvail {
        len,
        rkey: address.key,
        addr: address.addr,
        count,
    };
    let with = With::Registration(region);
    let posted = output.post_with(message, with)?;
    if posted {
        let (sink, bytes) = (true, 0);
        trace::advert_posted(sk, Advert { sink, len, bytes });
        stats.inc(Counter::MrRegistered);
    }
    Ok(posted)
}

impl Recv<'_> {
    /// Whether the call must stop waiting.
    fn must_not_wait(&self, sk: Sk, inq: &RecvQueue) -> bool {
        inq.fin_received
            || sk.err() != 0
            || sk.rcv_shutdown()
            || self.timeo.is_over()
            || signal_pending()
    }
}

impl Recv<'_> {
    /// Advertises the buffer of a receive, and waits until bytes have come, or until the call must
    /// stop waiting.
    ///
    /// # Errors
    ///
    /// The error that ended the connection; `EINTR` if the thread is being killed.
    pub(super) fn offer(&mut self, guard: &mut SockOwner<'_>) -> Result {
        guard.keep(Access::Write, Half::AwaitingPeer, |guard| {
            self.pin_and_offer(guard)
        })
    }

    fn pin_and_offer(&mut self, guard: &mut SockOwner<'_>) -> Result {
        guard.conn().ring.spares.clear();
        if let Some(sinks) = &mut guard.conn().adverts.sinks {
            sinks.declined = false;
            sinks.received_bytes = 0;
        }
        let taken = self.offer_pieces(guard);
        let result = if taken > 0 {
            self.await_offers(guard)
        } else {
            if let Some(sinks) = guard
                .conn()
                .adverts
                .sinks
                .as_mut()
                .filter(|_| self.excluded.adverts)
            {
                sinks.offers.on_unused();
            }
            Ok(())
        };
        let same = guard.generation() == self.began;
        let got = match &guard.conn().adverts.sinks {
            Some(sinks) if same => sinks.received_bytes.min(taken),
            _ => 0,
        };
        self.iter.revert(taken - got);
        self.got_direct(guard, got);
        if got > 0 {
            Ok(())
        } else {
            result
        }
    }

    /// Advertises the buffer in pieces, until these are enough bytes for the call to return; at
    /// most [`OFFER_PIECES`]. Returns the number of bytes advertised.
    fn offer_pieces(&mut self, guard: &mut SockOwner<'_>) -> usize {
        let mut taken = 0;
        for _ in 0..OFFER_PIECES {
            let left = self.len - self.copied - taken;
            if taken > 0 && (self.copied + taken >= self.target || left < LEAST_DIRECT) {
                break;
            }
            if taken > 0 && !Direct::of(guard).is_buffer_free(self, left) {
                break;
            }
            let Some(pinned) = self.pin_offer(guard, left) else {
                break;
            };
            let len = pinned.len() as usize;
            // The core may have pinned fewer bytes than requested.
            self.excluded.adverts |= len < LEAST_DIRECT;
            match self.post_offer(guard, pinned, taken > 0) {
                Ok(()) => taken += len,
                Err(memory) => {
                    self.iter.revert(len);
                    // Unpinning takes locks of the pages.
                    guard.unlocked(|| drop(memory));
                    break;
                }
            }
        }
        taken
    }

    fn pin_offer(&mut self, guard: &mut SockOwner<'_>, most: usize) -> Option<Pinned> {
        let pages = guard.conn().link.as_ref()?.max_region_pages() as usize;
        let (iter, stats) = (&mut self.iter, guard.stats);
        let pinned = guard.unlocked(|| Pinned::new(iter, most, pages, Term::Long, stats));
        match pinned {
            Ok(pinned) => Some(pinned),
            Err(_) => {
                // The memory may still be pinned for a shorter time, for a Read of bytes that are
                // already available.
                self.excluded.adverts = true;
                None
            }
        }
    }

    /// Advertises a piece, if this is still allowed: the lock was not held meanwhile. `behind` says
    /// that the piece comes behind another one, whose advert must still be out.
    ///
    /// # Errors
    ///
    /// The memory, if the piece is not advertised.
    fn post_offer(
        &mut self,
        guard: &mut SockOwner<'_>,
        pinned: Pinned,
        behind: bool,
    ) -> Result<(), Memory> {
        let memory = Memory::Pinned(pinned);
        let len = memory.len();
        let same = guard.generation() == self.began;
        if !same || self.excluded.adverts || !Direct::of(guard).may_advertise(behind) {
            return Err(memory);
        }
        let region = match &mut guard.conn().link {
            Some(link) => link.add_region(memory, Use::PeerWrites).inspect_err(|_| {
                self.excluded.adverts = true;
            })?,
            None => return Err(memory),
        };
        let read_out = Direct::of(guard).is_read_out();
        let posted = post_sink(&mut Output::of(guard), read_out, len, region);
        // The call waits until the link has given the region back.
        match posted {
            Ok(true) => {}
            Ok(false) => {
                // This should not happen: `may_advertise` has found room for the advert.
                guard.stats.inc(Counter::PostFailed);
                guard.fail(Event::Abort, ECONNRESET);
            }
            Err(why) => end_for(guard, why),
        }
        Ok(())
    }

    /// Waits until the peer cannot write to the buffers any more, and unpins them.
    fn await_offers(&mut self, guard: &mut SockOwner<'_>) -> Result {
        let mut left = Timeout::from_ms(OFFER_MS);
        let mut cancelled = false;
        loop {
            catch_up(guard);
            if unpin_finished(guard, self.began, Use::PeerWrites)? {
                return Ok(());
            }
            if fatal_signal_pending() {
                abort(guard, Some(ECONNRESET));
                return Err(EINTR);
            }
            match guard.conn().state {
                // The caller sees from the bytes that have come before whether this is an error.
                State::Released => return Ok(()),
                State::Dead => {
                    guard.wait_killable(&mut Timeout::endless());
                    continue;
                }
                _ => {}
            }
            let (sk, conn) = (guard.sk(), guard.conn());
            if !cancelled && (left.is_over() || self.must_not_wait(sk, &conn.inq)) {
                self.excluded.adverts |= left.is_over();
                cancelled = true;
                left = Timeout::from_ms(CANCEL_MS);
                cancel_offers(guard);
                continue;
            }
            if !cancelled {
                self.await_writer(guard, &mut left);
            } else if left.is_over() {
                guard.stats.inc(Counter::TimedOut);
                abort(guard, Some(ETIMEDOUT));
            } else {
                guard.wait_killable(&mut left);
            }
        }
    }

    /// Waits for the peer, at most for the time that is `left`, and not longer than the receive may
    /// wait.
    fn await_writer(&mut self, guard: &mut SockOwner<'_>, left: &mut Timeout) {
        // If the peer sends a source advert instead, its bytes can be read into the buffer.
        let room = self.len - self.copied;
        self.set_room(guard, Some(room));
        Timeout::wait_both(&mut self.timeo, left, |limit| wait_and_poll(guard, limit));
        self.set_room(guard, None);
    }
}

/// Asks the peer to give all buffers back (rule S5).
fn cancel_offers(guard: &mut SockOwner<'_>) {
    if let Some(sinks) = &mut guard.conn().adverts.sinks {
        // There may be nothing to cancel, or a cancel may be due already.
        let _ = sinks.adverts.cancel();
    }
    flush(guard);
}
