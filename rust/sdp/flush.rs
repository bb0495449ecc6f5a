// SPDX-License-Identifier: GPL-2.0

//! The order in which things are sent. [`SockGuard::flush`] is called whenever something may have become
//! possible: a message is there, or a credit, or a place in the send queue.

use super::conn::connection::{
    IDLE_RECEIVES,
    LARGE_BYTES,
    SMALL_BYTES, //
};
use super::conn::guard::SockGuard;
use super::conn::sock::Alarm;
use super::output::CONTROL_PLACES;
use super::parts::send_queue::HeldBack;
use crate::kern::time::{
    ms_since,
    now, //
};
use crate::proto::bsdh::{
    Class,
    FLAG_OOB_PRES, //
};
use crate::proto::message::Body;
use crate::proto::policy::{
    message_bytes,
    push_now,
    Tail, //
};
use crate::rdma::link::{
    Tag,
    With,
    MAX_FRAGS, //
};
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;

/// How long a peer that gave smaller receives than it was asked for is not asked again.
const ASK_AGAIN_MS: u32 = 1000;

/// How long TCP_CORK and MSG_MORE hold back a partial message (`man 7 tcp`).
const HOLD_MS: u32 = 200;

impl SockGuard<'_> {
    /// Sends all that may be sent now: control messages, data, the end of the stream, credits.
    pub(crate) fn flush(&mut self) {
        if !self.may_transmit() {
            return;
        }
        // Larger receives are of use to all that follows.
        self.flush_control();
        // The peer's calls wait for these reports and answers.
        self.flush_adverts();
        self.flush_sinks();
        // Programs wait for their memory until its key is dead.
        self.invalidate_condemned();
        // Data may use all places but those for control messages.
        self.flush_data();
        // The program of the peer shall hear of an urgent byte although that has to wait.
        self.announce_urgent();
        // Behind the last byte.
        self.flush_disconn();
        // Some of the messages above have used up what there was to use up.
        self.use_up_receives();
        // Last: most often one of the messages above has carried the credits.
        self.flush_update();
        // What is left waits for the peer, or for room.
        self.note_doing();
    }

    fn flush_control(&mut self) {
        if let Some(size) = self.conn().ring.receives.answer() {
            if self.post(Body::ChRcvBufAck { size }, &mut [], 0, Tag::Control) {
                self.size_told();
            }
        }
        if let Some(size) = self.conn().out.peer_receives.question() {
            if self.post(Body::ChRcvBuf { size }, &mut [], 0, Tag::Control) {
                self.conn().out.peer_receives.asked();
            }
        }
    }

    /// ChRcvBufAck was sent: the receives posted from now on may be smaller.
    fn size_told(&mut self) {
        let conn = self.conn();
        let posted = conn.link.as_ref().map_or(0, |l| l.receives_posted());
        let ring = &mut conn.ring;
        if !ring.receives.answered(posted) {
            return;
        }
        ring.target = IDLE_RECEIVES;
        ring.unused_looks = 0;
        let bytes = ring.receives.bytes();
        self.release_reserve(bytes);
        self.stats.inc(Counter::ReceivesShrunk);
    }

    fn flush_data(&mut self) {
        while self.data_is_due() && self.may_send_payload() {
            // Takes a credit, perhaps: so before the credits are looked at.
            self.ask_for_larger();
            let may = self.may_post(Class::Payload, CONTROL_PLACES);
            // The answers take credits, too.
            let may = may && self.answer_sinks();
            if !may || !self.may_post(Class::Payload, CONTROL_PLACES) {
                return self.data_stalls();
            }
            self.conn().out.stalled = false;
            let mut frags = [const { None }; MAX_FRAGS];
            let limit = self.message_limit();
            let full = message_bytes(self.conn().out.queue.bytes(), limit);
            let full = self.conn().out.urgent.message_bytes(full);
            let bytes = self.cut_message(full, &mut frags);
            let urgent = self.conn().out.urgent.take(bytes);
            let flags = if urgent { FLAG_OOB_PRES } else { 0 };
            let with = With::Nothing;
            if !self.post_flagged(Body::Data, flags, &mut frags, bytes, Tag::Data, with) {
                return;
            }
            self.stats.add(Counter::UrgentSent, urgent.into());
        }
        self.limit_hold();
    }

    /// What a program holds back goes after some time all the same, as with TCP.
    fn limit_hold(&mut self) {
        let conn = self.conn();
        if conn.out.queue.is_empty() {
            conn.out.held_back = HeldBack::Nothing;
        } else if conn.out.held_back == HeldBack::Nothing && (conn.options.cork || conn.out.more) {
            conn.out.held_back = HeldBack::Timed;
            self.sock().start_timer(Alarm::Timeout, HOLD_MS);
        }
    }

    /// A message is due, and credits or places do not allow it.
    fn data_stalls(&mut self) {
        if !core::mem::replace(&mut self.conn().out.stalled, true) {
            let stalled_on = if self.conn().credits.may_send(Class::Payload) {
                Kept::QueueStall
            } else {
                Kept::CreditStall
            };
            self.count(stalled_on, 1);
        }
        self.watch_sends();
    }

    /// Whether a message shall be made of what waits.
    pub(super) fn data_is_due(&mut self) -> bool {
        // A full buffer takes no more.
        let may_grow = self.sk().stream_memory_free();
        let limit = self.message_limit();
        let conn = self.conn();
        let in_flight = conn.link.as_ref().map_or(0, |l| l.sends_in_flight());
        // What follows cannot join what waits.
        let last = conn.out.disconn_due || conn.adverts.waits;
        let held = may_grow && conn.out.held_back != HeldBack::TooLong && !last;
        let waits = conn.halves.sender_waits_for_room() && in_flight > 0 && !last;
        push_now(Tail {
            waiting_bytes: conn.out.queue.bytes(),
            // What leaves no more room than a header has.
            full_bytes: message_bytes(u32::MAX, limit),
            small_in_flight: conn.out.small_in_flight.is_some(),
            nodelay: conn.options.nodelay || last,
            cork: held && conn.options.cork,
            more: (held && conn.out.more) || waits,
            urgent: conn.out.urgent.waits(),
        })
    }

    /// Asks the peer for larger receives, when more waits than its present ones take; again after a
    /// while if it had no memory for them.
    fn ask_for_larger(&mut self) {
        // A peer that is full is not asked again: the question would count as progress.
        let may_again = self.may_post(Class::Payload, CONTROL_PLACES);
        let conn = self.conn();
        let again = may_again && ms_since(conn.out.asked_at) >= ASK_AGAIN_MS;
        let waiting = conn.out.queue.bytes();
        let asks = conn
            .out
            .peer_receives
            .ask(waiting, SMALL_BYTES, LARGE_BYTES, again);
        if asks {
            conn.out.asked_at = now();
            self.flush_control();
        }
    }

    fn flush_disconn(&mut self) {
        let conn = self.conn();
        if conn.out.disconn_due
            && conn.out.queue.is_empty()
            && self.may_send_payload()
            && self.answer_sinks()
            && self.post(Body::DisConn, &mut [], 0, Tag::DisConn)
        {
            self.conn().out.disconn_due = false;
        }
    }

    /// Sends messages that say nothing, each into one of the larger receives that the peer wants no more
    /// (rule R4). The last credit is for updates.
    fn use_up_receives(&mut self) {
        while self.conn().out.peer_receives.has_to_use_up()
            && self.may_post(Class::Control, CONTROL_PLACES)
            && self.post(Body::Data, &mut [], 0, Tag::Control)
        {
            self.stats.inc(Counter::ReceiveUsedUp);
        }
    }

    /// An announcement gives nothing back, so it leaves the last credit to an update (rule C1).
    fn announce_urgent(&mut self) {
        if self.conn().out.urgent.must_announce()
            && self.may_post(Class::Control, 1)
            && self.post(Body::Data, &mut [], 0, Tag::Control)
        {
            self.conn().out.answer_due = false;
            self.stats.inc(Counter::UrgentAnnounced);
        }
    }

    fn flush_update(&mut self) {
        let due = self.conn().out.answer_due || self.conn().credits.wants_update();
        if due && self.post(Body::Data, &mut [], 0, Tag::Control) {
            self.conn().out.answer_due = false;
            self.stats.inc(Counter::CreditUpdateSent);
        }
    }
}
