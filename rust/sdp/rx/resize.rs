// SPDX-License-Identifier: GPL-2.0

//! The size of the receives, which grows when the peer has much to send, and shrinks when the peer has sent
//! nothing for some time.

use kernel::prelude::*;

use super::ring::LEAST_BUFFER;
use crate::inet::memory;
use crate::kern::time::ms_since;
use crate::proto::bsdh::Class;
use crate::proto::hello::Features;
use crate::proto::state::{
    Event,
    State, //
};
use crate::proto::violation::Violation;
use crate::rdma::link::RECV_DEPTH;
use crate::rdma::receive::PART_BYTES;
use crate::sdp::conn::guard::SockGuard;
use crate::sdp::flush::flush;
use crate::sdp::output::abort::end_for;
use crate::sdp::parts::ring::{
    LARGE_BYTES,
    SMALL_BYTES, //
};
use crate::stats::counters::Counter;

/// How long a peer sends no payload before the receives become smaller; and how long if the sockets are
/// short of memory.
const IDLE_MS: u32 = 10_000;
const SHORT_IDLE_MS: u32 = 2000;

/// Looks of the watch, a second apart, that find no progress of a peer that has larger receives to use up
/// (rule R4), or does not let us tell it so, before its connection ends for the memory that it keeps from
/// others. A peer that is out of reach is found by other means; this is longer than a link may be down.
const PATIENCE: u32 = 60;

impl SockGuard<'_> {
    /// The peer asks for larger receives because it has much to send.
    pub(in crate::sdp) fn grow_receives(&mut self, wanted: u32) {
        let sk = self.sk();
        let rcvbuf = sk.rcvbuf().max(LEAST_BUFFER);
        let conn = self.conn();
        let is_shrinking = conn.ring.receives.is_shrinking();
        if wanted > SMALL_BYTES && !is_shrinking {
            conn.ring.target = RECV_DEPTH;
        }
        let bytes = conn.ring.receives.bytes();
        let may_grow = conn.adverts.features.contains(Features::SHRINK) && !is_shrinking;
        let most = conn.link.as_ref().map_or(0, |l| l.max_receive());
        let larger = [LARGE_BYTES, LARGE_BYTES / 2, PART_BYTES, SMALL_BYTES]
            .into_iter()
            .find(|&size| {
                // The buffer takes many of them: those that wait to be read, and control messages' too.
                let share = if size < LARGE_BYTES { 8 } else { 16 };
                let fits = size <= wanted.min(rcvbuf / share).min(most);
                fits && (size == SMALL_BYTES || memory::has_room(size * RECV_DEPTH))
            });
        if let Some(size) = larger.filter(|&size| may_grow && size > bytes) {
            if !memory::is_short() && self.conn().ring.reserve(sk, size).is_ok() {
                let posted = self.receives_posted();
                self.conn().ring.receives.grow(size, posted);
                // Looks for the time when nothing comes any more.
                self.watch_sends();
            }
        }
        self.conn().ring.receives.owe_answer();
    }

    /// Has the peer told of smaller receives if it sends nothing any more, and has it use up the larger
    /// ones. Whether there is something to look after.
    pub(in crate::sdp) fn shrink_receives(&mut self) -> bool {
        let conn = self.conn();
        let may_shrink = matches!(
            conn.state,
            State::Established | State::FinWait1 | State::FinWait2 | State::CloseWait
        ) && conn.adverts.features.contains(Features::SHRINK);
        let receives = &mut conn.ring.receives;
        if !may_shrink || (receives.bytes() <= SMALL_BYTES && !receives.is_shrinking()) {
            return false;
        }
        let idle_ms = if memory::is_short() {
            SHORT_IDLE_MS
        } else {
            IDLE_MS
        };
        if ms_since(conn.measured.pacing.received_at) >= idle_ms {
            receives.shrink(SMALL_BYTES);
            flush(self);
            self.look_after_shrinking();
        }
        true
    }

    /// Ends a connection whose peer keeps memory from others.
    fn look_after_shrinking(&mut self) {
        let conn = self.conn();
        // A peer with a single credit keeps it.
        let may_use_up = conn.credits.peer_has_left() >= Class::Control.min_credits();
        let uses_nothing_up = conn.ring.receives.is_shrinking() && may_use_up;
        let is_not_told = conn.ring.receives.answer().is_some();
        if !uses_nothing_up && !is_not_told {
            conn.ring.unused_looks = 0;
            return;
        }
        conn.ring.unused_looks += 1;
        if conn.ring.unused_looks < PATIENCE || memory::has_room(LARGE_BYTES * RECV_DEPTH) {
            return;
        }
        if uses_nothing_up {
            end_for(self, Violation::ReceivesNotUsedUp.into());
        } else {
            self.stats.inc(Counter::TimedOut);
            self.fail(Event::Timeout, ETIMEDOUT);
        }
    }

    /// The peer says what its receives take from now on.
    pub(in crate::sdp) fn size_received(&mut self, size: u32) {
        let conn = self.conn();
        let may_shrink = conn.adverts.features.contains(Features::SHRINK);
        let credits = may_shrink.then(|| conn.credits.available());
        if let Err(why) = conn.out.peer_receives.answered(size, credits) {
            return end_for(self, why.into());
        }
        let (_, flags) = self.gfp();
        let link = self.conn().link.as_mut();
        if let Some(link) = link.filter(|_| size > PART_BYTES) {
            if link.lengthen_messages(flags).is_err() {
                self.stats.inc(Counter::NoSendMemory);
            }
        }
    }
}
