// SPDX-License-Identifier: GPL-2.0

//! Looks after what was sent: whether the peer's adapter acknowledges it, in time; and how long other things
//! that are up to the peer may take.

use kernel::prelude::*;

use crate::proto::message::Body;
use crate::proto::state::{
    Event,
    State, //
};
use crate::rdma::link::Tag;
use crate::sdp::conn::guard::SockGuard;
use crate::sdp::conn::sock::{
    Alarm,
    WATCH_MS, //
};
use crate::sdp::flush::Flush;
use crate::sdp::output::abort::settle;
use crate::sdp::output::Output;
use crate::sdp::rx::resize::shrink;
use crate::stats::counters::Counter;

/// How long the answer to the first message may take before the peer's adapter is woken, at first.
const WAKE_MS: u32 = 20;

/// How long the peer's adapter may take to acknowledge the oldest message, some seconds more than
/// an adapter with [`crate::rdma::cm`]'s settings tries.
const UNANSWERED_MS: u32 = 20_000;
/// How long the peer may take to answer a cancel: it only lets its Reads or Writes finish. More than
/// that, for it is for the adapter to say that there is no way to the peer.
pub(in crate::sdp) const CANCEL_MS: u32 = UNANSWERED_MS + 10_000;
/// The least of it that a program can ask for: an adapter sends a lost packet again after some two
/// seconds, and may lose that, too.
pub(super) const LEAST_UNANSWERED_MS: u32 = 7000;

/// How long the bytes of a receive that has returned may take: longer than an adapter tries by itself,
/// seven times two seconds, before it reports that they do not come.
pub(in crate::sdp) const EARLY_MS: u32 = 20_000;

impl SockGuard<'_> {
    /// Sends a message that says nothing, for which the peer waits where we have to send the first one,
    /// and which the peer answers in the same way.
    pub(in crate::sdp) fn send_first(&mut self) {
        let posted = Output::of(self).post(Body::Data, &mut [], 0, Tag::Control);
        if settle(self, posted) {
            let watch = &mut self.conn().liveness.watch;
            (watch.running, watch.wake_ms) = (true, WAKE_MS);
            self.sock().start_timer(Alarm::Watch, WAKE_MS);
        }
    }

    /// Has the peer's adapter look at what has come, if the first message was not answered.
    ///
    /// soft-iWARP (Linux 7.3) may sleep over that message: `siw_accept()` sends the MPA reply before it
    /// has `siw_qp_llp_data_ready()` called for what comes. A message that comes in between lies in
    /// the receive queue of TCP until the next one. So another one follows, which only the adapter
    /// notices, later each time.
    fn wake_peer(&mut self) -> bool {
        let wake_ms = self.conn().liveness.watch.wake_ms;
        if wake_ms == 0 || !self.conn().may_transmit() {
            return false;
        }
        let next_ms = if wake_ms < WATCH_MS { 2 * wake_ms } else { 0 };
        self.conn().liveness.watch.wake_ms = next_ms;
        let link = self.conn().link.as_ref();
        // With a full queue, enough follows.
        let has_room = link.is_some_and(|link| link.send_room() > 0);
        if next_ms > 0 && (!has_room || self.probe()) {
            self.conn().liveness.watch.running = true;
            self.sock().start_timer(Alarm::Watch, next_ms);
        }
        next_ms > 0
    }

    /// Asks for an acknowledgement of the peer's adapter ([`Output::probe`]).
    fn probe(&mut self) -> bool {
        let probed = Output::of(self).probe(Counter::Probe);
        settle(self, probed)
    }

    /// The timer of [`Watch::begin`](crate::sdp::parts::watch::Watch::begin) has run out.
    pub(crate) fn check_sends(&mut self) {
        self.conn().liveness.watch.running = false;
        self.poll_cq();
        if self.wake_peer() {
            return;
        }
        let conn = self.conn();
        let link = conn.link.as_ref().filter(|_| conn.state != State::Dead);
        if link.is_some_and(|link| link.has_unwanted_regions(EARLY_MS)) {
            // Nobody shall wait longer, nor who is being killed for the rest.
            self.stats.inc(Counter::TimedOut);
            return self.fail(Event::Timeout, ETIMEDOUT);
        }
        let short_messages = self.conn().inq.drop_idle_page();
        let large_receives = shrink(self);
        let user_timeout_ms = self.conn().options.user_timeout_ms.unsigned_abs();
        let waits = self.conn().adverts.awaits_reads() || Flush::of(self).data_is_due();
        let unsent = self.unsent_bytes();
        let conn = self.conn();
        let Some(link) = &conn.link else { return };
        let held_up = link.sends_in_flight() == 0;
        if conn.state == State::Dead || (held_up && !waits) {
            conn.liveness.watch.looks = 0;
            if short_messages || large_receives {
                self.watch_sends();
            }
            return;
        }
        if held_up {
            // The peer's program makes no room; but is the peer's machine still there?
            self.probe();
        }
        let conn = self.conn();
        let Some(link) = &conn.link else { return };
        let limit_ms = match (user_timeout_ms, held_up) {
            (0, true) => u32::MAX,
            (0, false) => UNANSWERED_MS,
            // As for TCP, the user's limit is also one for a peer that leaves no room.
            (ms, true) => ms,
            // Shorter than this, one lost packet would be the end.
            (ms, false) => ms.max(LEAST_UNANSWERED_MS),
        };
        let oldest = if held_up {
            link.posted_messages()
        } else {
            link.oldest_send()
        };
        let watch = &mut conn.liveness.watch;
        // What the peer has read of an advert is progress, too.
        let got_on = core::mem::replace(&mut watch.unsent, unsent) > unsent;
        if got_on || (watch.oldest, watch.held_up) != (oldest, held_up) {
            (watch.oldest, watch.held_up, watch.looks) = (oldest, held_up, 0);
        }
        watch.looks += 1;
        // The first look may have come right after the send.
        if (watch.looks - 1).saturating_mul(WATCH_MS) >= limit_ms {
            self.stats.inc(Counter::TimedOut);
            return self.fail(Event::Timeout, ETIMEDOUT);
        }
        self.watch_sends();
    }

    /// Whether the watch looks after something already: what was sent, or cannot be.
    pub(super) fn awaits_acknowledgement(&mut self) -> bool {
        let waits = self.conn().adverts.awaits_reads() || Flush::of(self).data_is_due();
        let link = self.conn().link.as_ref();
        waits || link.is_some_and(|link| link.sends_in_flight() > 0)
    }
}
