// SPDX-License-Identifier: GPL-2.0

//! The order in which things are sent. [`Locked::flush`] is called whenever something may have become
//! possible: a message is there, or a credit, or a place in the send queue.

use super::conn::connection::{
    LARGE_BYTES,
    SMALL_BYTES, //
};
use super::conn::guard::Locked;
use super::output::CONTROL_PLACES;
use super::parts::send_queue::HeldBack;
use crate::kern::time::{
    ms_since,
    now, //
};
use crate::proto::bsdh::Class;
use crate::proto::message::Body;
use crate::proto::policy::{
    message_bytes,
    push_now,
    Tail, //
};
use crate::rdma::link::{
    Tag,
    MAX_FRAGS, //
};
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;

/// How long a peer that gave smaller receives than it was asked for is not asked again.
const ASK_AGAIN_MS: u32 = 1000;

/// How long TCP_CORK and MSG_MORE hold back a partial message (`man 7 tcp`).
const HOLD_MS: u32 = 200;

impl Locked<'_> {
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
        // Behind the last byte.
        self.flush_disconn();
        // Last: most often one of the messages above has carried the credits.
        self.flush_update();
        // What is left waits for the peer, or for room.
        self.note_doing();
    }

    fn flush_control(&mut self) {
        if let Some(size) = self.stream().ring.receives.answer() {
            if self.post(Body::ChRcvBufAck { size }, &mut [], 0, Tag::Control) {
                self.stream().ring.receives.answered();
            }
        }
        if let Some(size) = self.stream().out.peer_receives.question() {
            if self.post(Body::ChRcvBuf { size }, &mut [], 0, Tag::Control) {
                self.stream().out.peer_receives.asked();
            }
        }
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
            self.stream().out.stalled = false;
            let mut frags = [const { None }; MAX_FRAGS];
            let limit = self.message_limit();
            let full = message_bytes(self.stream().out.queue.bytes(), limit);
            let bytes = self.cut_message(full, &mut frags);
            if !self.post(Body::Data, &mut frags, bytes, Tag::Data) {
                return;
            }
        }
        self.limit_hold();
    }

    /// What a program holds back goes after some time all the same, as with TCP.
    fn limit_hold(&mut self) {
        let stream = self.stream();
        if stream.out.queue.is_empty() {
            stream.out.held_back = HeldBack::Nothing;
        } else if stream.out.held_back == HeldBack::Nothing
            && (stream.options.cork || stream.out.more)
        {
            stream.out.held_back = HeldBack::Timed;
            self.sock().start_timer(HOLD_MS);
        }
    }

    /// A message is due, and credits or places do not allow it.
    fn data_stalls(&mut self) {
        if !core::mem::replace(&mut self.stream().out.stalled, true) {
            let stalled_on = if self.stream().credits.may_send(Class::Payload) {
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
        let stream = self.stream();
        let in_flight = stream.link.as_ref().map_or(0, |l| l.sends_in_flight());
        // What follows cannot join what waits.
        let last = stream.out.disconn_due || stream.adverts.waits;
        let held = may_grow && stream.out.held_back != HeldBack::TooLong && !last;
        let waits = stream.halves.sender_waits_for_room() && in_flight > 0 && !last;
        push_now(Tail {
            waiting_bytes: stream.out.queue.bytes(),
            // What leaves no more room than a header has.
            full_bytes: message_bytes(u32::MAX, limit),
            small_in_flight: stream.out.small_in_flight.is_some(),
            nodelay: stream.options.nodelay || last,
            cork: held && stream.options.cork,
            more: (held && stream.out.more) || waits,
            earlier_waits: false,
        })
    }

    /// Asks the peer for larger receives, when more waits than its present ones take; again after a
    /// while if it had no memory for them.
    fn ask_for_larger(&mut self) {
        // A peer that is full is not asked again: the question would count as progress.
        let may_again = self.may_post(Class::Payload, CONTROL_PLACES);
        let stream = self.stream();
        let again = may_again && ms_since(stream.out.asked_at) >= ASK_AGAIN_MS;
        let waiting = stream.out.queue.bytes();
        let asks = stream
            .out
            .peer_receives
            .ask(waiting, SMALL_BYTES, LARGE_BYTES, again);
        if asks {
            stream.out.asked_at = now();
            self.flush_control();
        }
    }

    fn flush_disconn(&mut self) {
        let stream = self.stream();
        if stream.out.disconn_due
            && stream.out.queue.is_empty()
            && self.may_send_payload()
            && self.answer_sinks()
            && self.post(Body::DisConn, &mut [], 0, Tag::DisConn)
        {
            self.stream().out.disconn_due = false;
        }
    }

    fn flush_update(&mut self) {
        let due = self.stream().out.answer_due || self.stream().credits.wants_update();
        if due && self.post(Body::Data, &mut [], 0, Tag::Control) {
            self.stream().out.answer_due = false;
            self.stats.inc(Counter::CreditUpdateSent);
        }
    }
}
