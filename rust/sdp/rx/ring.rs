// SPDX-License-Identifier: GPL-2.0

//! The receives that are posted.

use kernel::prelude::*;

use super::Receiver;
use crate::bindings;
use crate::inet::memory;
use crate::kern::errno::{
    ENOBUFS,
    ENOTCONN, //
};
use crate::proto::bsdh::Class;
use crate::proto::policy::post_later;
use crate::proto::resize::SMALL_BYTES;
use crate::rdma::receive::{
    Receive,
    MAX_PARTS, //
};
use crate::rdma::receive_queue::RECV_DEPTH;
use crate::sdp::conn::sock::Want;
use crate::sdp::parts::ring::IDLE_RECEIVES;
use crate::stats::counters::Counter;

/// The number of unread bytes, with all that is charged for them, that even the smallest buffer
/// holds.
pub(super) const MIN_RECEIVE_BUFFER: u32 = 8 * SMALL_BYTES;

/// Receives that only control messages can use: with so few credits the peer sends no payload.
pub(in crate::sdp) const CONTROL_RECEIVES: u32 = Class::Payload.min_credits() - 1;

impl Receiver<'_> {
    /// Uses a receive again that contains no bytes of the stream: a later [`Receiver::refill`] posts
    /// it.
    pub(in crate::sdp) fn recycle(&mut self, receive: Receive) {
        if receive.len() != self.ring.receives.bytes() {
            return self.discard(receive);
        }
        let Some(link) = self.link.as_mut() else {
            return self.discard(receive);
        };
        let truesize = receive.len();
        if link.prepare_again(receive).is_err() {
            self.release(truesize);
            self.sock.stats.inc(Counter::PostFailed);
        }
    }

    pub(in crate::sdp) fn discard(&mut self, receive: Receive) {
        self.release(receive.len());
    }

    /// Raises the number of receives to post if the peer has used up the receives of an idle
    /// connection before it was told of more.
    pub(in crate::sdp) fn lengthen_if_short(&mut self) {
        if self.credits.peer_has_left() < Class::Payload.min_credits() {
            self.ring.target = (self.ring.target * 2).min(RECV_DEPTH);
        }
    }

    /// Posts receives up to the target, as far as the receive buffer and the memory allow. If only
    /// a few are missing, they are posted later ([`post_later`]). Returns whether any were posted.
    pub(in crate::sdp) fn refill(&mut self) -> bool {
        let (posted, target) = (self.receives_posted(), self.target());
        let given = self.link.as_ref().map_or(0, |link| link.receives_given());
        // The peer takes a receive that is posted after an answer for one of the size in the answer.
        let due = !post_later(given, target)
            || self.ring.repost_due
            || self.ring.receives.answer().is_some();
        // Most calls find no receive missing.
        let is_full = posted >= target.max(IDLE_RECEIVES) && self.ring.reserve == 0;
        if is_full && !(due && given < posted) {
            self.note_starved(posted);
            return false;
        }
        self.post_missing(due)
    }

    /// Records whether so few receives are posted that little more will arrive before the next read.
    /// Where adverts of the peer wait, the room for their bytes also counts, and
    /// [`Receiver::pull_due`] decides.
    fn note_starved(&self, posted: u32) {
        let starved = posted < IDLE_RECEIVES;
        if starved || self.adverts.untaken() == 0 {
            self.sock.glance.starved.set(starved);
        }
    }

    /// Prepares the missing receives and posts them, if they are `due`. Otherwise prepares as many as
    /// there is memory for that would be freed.
    fn post_missing(&mut self, due: bool) -> bool {
        let size = self.ring.receives.bytes();
        while (due || self.ring.spares.suffice_for(size)) && self.wants_receive() {
            if self.prepare_one().is_err() {
                self.sock.stats.inc(Counter::NoReceiveMemory);
                self.retry_if_few();
                break;
            }
        }
        let has_posted = due && self.post_prepared();
        if self.ring.reserve > 0 {
            self.ring.trim_reserve(self.sock.sk());
        }
        self.note_starved(self.receives_posted());
        has_posted
    }

    /// Has the worker try again if too few receives are posted for the connection to go on.
    fn retry_if_few(&self) {
        if self.receives_posted() < IDLE_RECEIVES {
            self.sock.want(Want::Refill);
        }
    }

    /// The number of receives to post.
    fn target(&self) -> u32 {
        // The peer still sends credits after its DisConn.
        if self.inq.fin_received {
            IDLE_RECEIVES
        } else {
            self.ring.target
        }
    }

    fn wants_receive(&self) -> bool {
        let sk = self.sock.sk();
        let Some(link) = &*self.link else {
            return false;
        };
        let posted = link.receives_posted();
        if posted >= self.target() || link.recv_room() == 0 || self.state.has_ended() {
            return false;
        }
        // Control messages must get through even if no program reads (rule C2).
        if posted < CONTROL_RECEIVES {
            return true;
        }
        // The smallest number of receives that a connection needs is posted even if the buffer is
        // very small or memory is short.
        if posted < IDLE_RECEIVES {
            return self.may_post_least(0);
        }
        let in_use = sk.rmem() - self.ring.reserve;
        in_use + self.ring.receives.bytes() <= sk.rcvbuf() && !memory::is_short()
    }

    /// Whether the smallest number of receives that a connection needs may be posted in addition to
    /// the unread bytes. `held` bytes of receives are neither posted nor unread. Posted receives do
    /// not count, and a smaller buffer counts as [`MIN_RECEIVE_BUFFER`]: a program that polls for a
    /// few more bytes must get them.
    pub(super) fn may_post_least(&self, held: u32) -> bool {
        let sk = self.sock.sk();
        let posted = self.link.as_ref().map_or(0, |l| l.posted_bytes());
        let unread = (sk.rmem() - self.ring.reserve).saturating_sub(posted + held);
        let sources = self.adverts.sources.as_ref();
        let held = sources.is_some_and(|s| !s.hold.is_empty());
        let nothing_unread = self.inq.queue.is_empty() && !held;
        nothing_unread || unread + self.ring.receives.bytes() <= sk.rcvbuf().max(MIN_RECEIVE_BUFFER)
    }

    fn prepare_one(&mut self) -> Result {
        let (gfp, flags) = self.gfp;
        let size = self.ring.receives.bytes();
        // The receives that the connection needs are worth some effort.
        let gfp = if self.receives_posted() < IDLE_RECEIVES {
            gfp
        } else {
            gfp | bindings::SDP_CONST___GFP_NORETRY
        };
        let places = self.places_due() + MAX_PARTS;
        self.reserve_unread(places)?;
        // If messages come while an advert is unread, their payload is held, perhaps in the context of
        // an interrupt, where memory is scarce. Only the receives that were posted before the first
        // advert have no places.
        let posted = self.link.as_ref().map_or(0, |link| link.posted_parts());
        if let Some(sources) = &mut self.adverts.sources {
            sources.hold.reserve(posted + MAX_PARTS, flags)?;
        }
        if !self.charge(size) {
            return Err(ENOBUFS);
        }
        let result = match &mut *self.link {
            Some(link) => link.prepare_receive(size, &mut self.ring.spares, (gfp, flags)),
            None => Err(ENOTCONN),
        };
        if let Err(e) = result {
            self.release(size);
            return Err(e);
        }
        Ok(())
    }

    /// Posts the prepared receives; returns whether the adapter has accepted at least one.
    fn post_prepared(&mut self) -> bool {
        let Some(link) = self.link.as_mut().filter(|link| link.has_prepared()) else {
            return false;
        };
        self.ring.repost_due = false;
        let given = link.post_prepared();
        let stats = self.sock.stats;
        if given.count > 0 {
            self.credits.posted(given.count);
            stats.add(Counter::RecvPosted, given.count.into());
        }
        if given.refused_bytes > 0 {
            self.release(given.refused_bytes);
            stats.inc(Counter::PostFailed);
            self.retry_if_few();
        }
        given.count > 0
    }
}
