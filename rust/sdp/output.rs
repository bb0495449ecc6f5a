// SPDX-License-Identifier: GPL-2.0

//! From the send queue to the adapter: messages, credits, places.

use kernel::prelude::*;

use super::conn::connection::{
    HeldBack,
    LARGE_BYTES,
    SMALL_BYTES, //
};
use super::conn::pace::IDLE_BYTES;
use super::conn::sock::{
    Locked,
    WATCH_MS, //
};
use super::recv::read_async::EARLY_MS;
use crate::kern::errno::{
    ECONNRESET,
    ENOTCONN, //
};
use crate::kern::time::{
    ms_since,
    now, //
};
use crate::mm::frag::Frag;
use crate::proto::bsdh::{
    Class,
    BSDH_LEN,
    BSDH_LEN_U32, //
};
use crate::proto::message::{
    Body,
    MAX_BODY, //
};
use crate::proto::policy::{
    message_bytes,
    push_now,
    signal_now,
    Tail, //
};
use crate::proto::state::{
    Event,
    State, //
};
use crate::rdma::link::{
    Tag,
    With,
    MAX_FRAGS,
    SEND_DEPTH, //
};
use crate::rdma::mr::{
    Call,
    Use, //
};
use crate::rdma::receive::PART_BYTES;
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;

/// Places in the send queue that data leaves to control messages.
pub(super) const CONTROL_PLACES: u32 = 3;

/// How long a peer that gave smaller receives than it was asked for is not asked again.
const ASK_AGAIN_MS: u32 = 1000;

/// How long TCP_CORK and MSG_MORE hold back a partial message (`man 7 tcp`).
const HOLD_MS: u32 = 200;

/// How long the answer to the first message may take before the peer's adapter is woken, at first.
const WAKE_MS: u32 = 20;

/// How long the peer's adapter may take to acknowledge the oldest message, some seconds more than
/// an adapter with [`crate::rdma::cm`]'s settings tries.
const UNANSWERED_MS: u32 = 20_000;
/// How long the peer may take to answer a cancel: it only lets its Reads or Writes finish. More than
/// that, for it is for the adapter to say that there is no way to the peer.
pub(super) const CANCEL_MS: u32 = UNANSWERED_MS + 10_000;
/// The least of it that a program can ask for: an adapter sends a lost packet again after some two
/// seconds, and may lose that, too.
pub(super) const LEAST_UNANSWERED_MS: u32 = 7000;

impl Locked<'_> {
    /// Sends all that may be sent now: control messages, data, the end of the stream, credits.
    pub(crate) fn flush(&mut self) {
        if !self.may_transmit() {
            return;
        }
        self.flush_control();
        self.flush_adverts();
        self.flush_sinks();
        self.invalidate_condemned();
        self.flush_data();
        self.flush_disconn();
        self.flush_update();
        self.note_doing();
    }

    fn may_transmit(&mut self) -> bool {
        let stream = self.stream();
        stream.link.is_some() && stream.state.is_connected()
    }

    pub(super) fn may_post(&mut self, class: Class, places: u32) -> bool {
        let stream = self.stream();
        let room = stream.link.as_ref().map_or(0, |link| link.send_room());
        room >= places && stream.credits.may_send(class)
    }

    fn flush_control(&mut self) {
        if let Some(size) = self.stream().pending.ch_rcv_buf_ack {
            if self.post(Body::ChRcvBufAck { size }, &mut [], 0, Tag::Control) {
                self.stream().pending.ch_rcv_buf_ack = None;
            }
        }
        if let Some(size) = self.stream().pending.ch_rcv_buf {
            if self.post(Body::ChRcvBuf { size }, &mut [], 0, Tag::Control) {
                self.stream().pending.ch_rcv_buf = None;
                self.stream().awaits_larger = true;
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
            self.stream().stalled = false;
            let mut frags = [const { None }; MAX_FRAGS];
            let limit = self.message_limit();
            let full = message_bytes(self.stream().tx.bytes(), limit);
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
        if stream.tx.is_empty() {
            stream.held_back = HeldBack::Nothing;
        } else if stream.held_back == HeldBack::Nothing && (stream.options.cork || stream.more) {
            stream.held_back = HeldBack::Timed;
            self.sock().start_timer(HOLD_MS);
        }
    }

    /// The time of [`Locked::limit_hold`] has come.
    pub(crate) fn end_hold(&mut self) {
        if self.stream().held_back == HeldBack::Timed {
            self.stream().held_back = HeldBack::TooLong;
            self.flush();
            self.settle();
        }
    }

    /// A message is due, and credits or places do not allow it.
    fn data_stalls(&mut self) {
        if !core::mem::replace(&mut self.stream().stalled, true) {
            let stalled_on = if self.stream().credits.may_send(Class::Payload) {
                Kept::QueueStall
            } else {
                Kept::CreditStall
            };
            self.count(stalled_on, 1);
        }
        self.watch_sends();
    }

    /// Bytes of the longest message: what the peer's receives take, and what the fragments of a place
    /// in the send queue have; and a small send buffer holds several.
    pub(super) fn message_limit(&mut self) -> u32 {
        // Whole fragments.
        let share = (self.sk().sndbuf() / 4 / PART_BYTES).max(1) * PART_BYTES;
        let stream = self.stream();
        let most = stream.link.as_ref().map_or(0, |link| link.max_message());
        stream.peer_bytes.min(most).min(share)
    }

    /// Whether a message shall be made of what waits.
    fn data_is_due(&mut self) -> bool {
        // A full buffer takes no more.
        let may_grow = self.sk().stream_memory_free();
        let limit = self.message_limit();
        let stream = self.stream();
        let in_flight = stream.link.as_ref().map_or(0, |l| l.sends_in_flight());
        // What follows cannot join what waits.
        let last = stream.pending.disconn || stream.advert_waits;
        let held = may_grow && stream.held_back != HeldBack::TooLong && !last;
        let waits = stream.halves.sender_waits_for_room() && in_flight > 0 && !last;
        push_now(Tail {
            waiting_bytes: stream.tx.bytes(),
            // What leaves no more room than a header has.
            full_bytes: message_bytes(u32::MAX, limit),
            small_in_flight: stream.small_in_flight.is_some(),
            nodelay: stream.options.nodelay || last,
            cork: held && stream.options.cork,
            more: (held && stream.more) || waits,
            earlier_waits: false,
        })
    }

    /// Asks the peer for larger receives, when more waits than its present ones take; again after a
    /// while if it had no memory for them.
    fn ask_for_larger(&mut self) {
        // A peer that is full is not asked again: the question would count as progress.
        let may_again = self.may_post(Class::Payload, CONTROL_PLACES);
        let stream = self.stream();
        let waiting = stream.tx.bytes();
        let wanted = if waiting >= stream.peer_bytes.max(SMALL_BYTES).saturating_mul(2) {
            LARGE_BYTES
        } else {
            SMALL_BYTES
        };
        let again = may_again && ms_since(stream.asked_at) >= ASK_AGAIN_MS;
        let asked = stream.asked_bytes >= wanted && !again;
        let awaits = stream.awaits_larger || stream.pending.ch_rcv_buf.is_some();
        if waiting > stream.peer_bytes && stream.peer_bytes < wanted && !asked && !awaits {
            stream.asked_bytes = wanted;
            stream.asked_at = now();
            stream.pending.ch_rcv_buf = Some(wanted);
            self.flush_control();
        }
    }

    /// Takes the bytes of the next message, at most `full`, out of the queue; returns how many.
    pub(super) fn cut_message(&mut self, full: u32, frags: &mut [Option<Frag>; MAX_FRAGS]) -> u32 {
        let glance = &self.sock().glance;
        let stream = self.stream();
        let max_frags = stream.link.as_ref().map_or(0, |link| link.max_frags());
        stream.tx.change(&glance.notsent, |tx| {
            let mut bytes = 0;
            for place in frags.iter_mut().take(max_frags) {
                if bytes >= full {
                    break;
                }
                let Some(frag) = tx.take(full - bytes) else {
                    break;
                };
                bytes += frag.len();
                *place = Some(frag);
            }
            bytes
        })
    }

    fn flush_disconn(&mut self) {
        let stream = self.stream();
        if stream.pending.disconn
            && stream.tx.is_empty()
            && self.may_send_payload()
            && self.answer_sinks()
            && self.post(Body::DisConn, &mut [], 0, Tag::DisConn)
        {
            self.stream().pending.disconn = false;
        }
    }

    fn flush_update(&mut self) {
        let due = self.stream().pending.answer || self.stream().credits.wants_update();
        if due && self.post(Body::Data, &mut [], 0, Tag::Control) {
            self.stream().pending.answer = false;
            self.stats.inc(Counter::CreditUpdateSent);
        }
    }

    /// Sends a message that says nothing, for which the peer waits where we have to send the first one,
    /// and which the peer answers in the same way.
    pub(super) fn send_first(&mut self) {
        if self.post(Body::Data, &mut [], 0, Tag::Control) {
            let watch = &mut self.stream().watch;
            (watch.running, watch.wake_ms) = (true, WAKE_MS);
            self.sock().start_watch_in(WAKE_MS);
        }
    }

    /// Has the peer's adapter look at what has come, if the first message was not answered.
    ///
    /// soft-iWARP (Linux 7.3) may sleep over that message: `siw_accept()` sends the MPA reply before it
    /// has `siw_qp_llp_data_ready()` called for what comes. A message that comes in between lies in
    /// the receive queue of TCP until the next one. So another one follows, which only the adapter
    /// notices, later each time.
    fn wake_peer(&mut self) -> bool {
        let wake_ms = self.stream().watch.wake_ms;
        if wake_ms == 0 || !self.may_transmit() {
            return false;
        }
        let next_ms = if wake_ms < WATCH_MS { 2 * wake_ms } else { 0 };
        self.stream().watch.wake_ms = next_ms;
        let link = self.stream().link.as_ref();
        // With a full queue, enough follows.
        let has_room = link.is_some_and(|link| link.send_room() > 0);
        if next_ms > 0 && (!has_room || self.probe(Counter::Probe)) {
            self.stream().watch.running = true;
            self.sock().start_watch_in(next_ms);
        }
        next_ms > 0
    }

    /// Tells the peer that the connection is aborted, if that is still possible.
    pub(crate) fn send_abort(&mut self) {
        if self.may_transmit() {
            self.post(Body::AbortConn, &mut [], 0, Tag::AbortConn);
        }
    }

    /// Posts one message; `false` if credits or places do not allow it now, or if the provider
    /// refused, which ends the connection.
    fn post(&mut self, body: Body, frags: &mut [Option<Frag>], payload: u32, tag: Tag) -> bool {
        self.post_with(body, frags, payload, tag, With::Nothing)
    }

    /// As [`Locked::post`], for a message that does something besides.
    pub(super) fn post_with(
        &mut self,
        body: Body,
        frags: &mut [Option<Frag>],
        payload: u32,
        tag: Tag,
        with: With,
    ) -> bool {
        let class = body.class(payload);
        let places = self.stream().link.as_ref().map_or(1, |l| l.places(with));
        if !self.may_post(class, places) {
            return false;
        }
        let Some(stamp) = self.stream().credits.stamp(class) else {
            return false;
        };
        let Some(header) = body.header(0, payload, stamp) else {
            return false;
        };
        let mut wire = [0u8; BSDH_LEN + MAX_BODY];
        let mut tail = [0u8; MAX_BODY];
        let len = BSDH_LEN + body.encode(&mut tail);
        for (to, from) in wire
            .iter_mut()
            .zip(Iterator::chain(header.encode().iter(), &tail))
        {
            *to = *from;
        }
        let result = self.post_wire(wire.get(..len).unwrap_or(&wire), frags, tag, with);
        match result {
            Ok((number, signal)) => {
                self.watch_sends();
                // One that is nearly full is not small, nor one that had to end with its fragments.
                let limit = self.message_limit();
                let small = self.stream().tx.is_empty() && payload + BSDH_LEN_U32 < limit;
                if tag == Tag::Data && small {
                    self.stream().small_in_flight = Some(number);
                }
                if matches!(tag, Tag::DisConn | Tag::Answer) {
                    self.stream().last_needed = Some(header.mseq);
                }
                if header.is_payload() || matches!(body, Body::SrcAvail { .. }) {
                    self.event_sent();
                }
                self.note_posted(header.mseq, payload);
                self.count_sent(&header, payload);
                self.stats.inc(Counter::SendPosted);
                if signal {
                    self.stats.inc(Counter::SendSignaled);
                }
                self.count(Kept::TxBytes, payload.into());
                true
            }
            Err(e) => {
                self.sk().wmem_uncharge(payload);
                self.post_failed(e);
                false
            }
        }
    }

    /// The provider did not take a request: the connection cannot go on.
    pub(super) fn post_failed(&mut self, e: Error) {
        self.stats.inc(Counter::PostFailed);
        // Once is enough: the counter tells the rest.
        kernel::pr_warn_once!("the provider refused a send: {:?}\n", e);
        self.fail(Event::Abort, ECONNRESET);
    }

    fn post_wire(
        &mut self,
        wire: &[u8],
        frags: &mut [Option<Frag>],
        tag: Tag,
        with: With,
    ) -> Result<(u32, bool)> {
        let limit = self.message_limit();
        let stream = self.stream();
        let more_follows = tag == Tag::Data
            && stream.tx.bytes() >= limit
            && stream.credits.may_send(Class::Payload);
        let link = stream.link.as_mut().ok_or(ENOTCONN)?;
        let last = !more_follows || link.send_room() <= CONTROL_PLACES;
        let signal = signal_now(link.unsignaled(), SEND_DEPTH, last);
        Ok((link.send(wire, frags, tag, signal, with)?, signal))
    }

    /// Takes finished messages out of the send queue and gives their memory back.
    pub(crate) fn reap_sent(&mut self) {
        let mut count = 0;
        while let Some(sent) = self.stream().link.as_mut().and_then(|l| l.reap()) {
            count += 1;
            if sent.payload > 0 {
                self.sk().wmem_uncharge(sent.payload);
                self.stream().pace.deliver(sent.payload);
            }
            if self.stream().small_in_flight == Some(sent.number) {
                self.stream().small_in_flight = None;
            }
            if let Some(memory) = sent.read {
                self.read_finished(memory);
            }
            match sent.tag {
                Tag::DisConn => self.disconn_sent(),
                Tag::Answer => self.finish_if_drained(),
                Tag::Probe => self.stream().keepalive.on_answer(),
                Tag::Invalidation(region) => self.region_invalidated(region),
                Tag::DirectRead(region) => {
                    let link = self.stream().link.as_ref();
                    let purpose = link.and_then(|link| link.region_use(region));
                    self.direct_read_finished(purpose == Some(Use::OwnReads(Call::Waits)));
                    self.region_used(region);
                }
                Tag::EarlyRead(region) => {
                    self.early_read_finished(region);
                    self.region_used(region);
                }
                Tag::Write(region) => self.write_finished(region),
                Tag::Data
                | Tag::Control
                | Tag::AbortConn
                | Tag::Registration
                | Tag::Read
                | Tag::Part => {}
            }
        }
        self.stats.add(Counter::RequestDone, count);
    }

    /// Whether the next completion of a send must be noticed, although nothing was received.
    pub(crate) fn awaits_send_completion(&mut self) -> bool {
        let sk = self.sk();
        let stream = self.stream();
        !stream.tx.is_empty()
            || stream.link.as_ref().is_some_and(|l| l.awaits_request())
            || stream.halves.sending.is_up_to_peer()
            || stream.advert_waits
            // A program has protected pages until it is done.
            || stream.sinks.as_ref().is_some_and(|s| s.charged_bytes > 0)
            // A Read waits for places.
            || stream.zcopy.as_ref().is_some_and(|z| z.hold.untaken() > 0)
            || stream.pending.disconn
            || matches!(
                stream.state,
                State::FinWait1 | State::LastAck | State::Closing | State::Draining
            )
            || !sk.stream_writeable()
            || sk.wmem_queued() > IDLE_BYTES
    }

    /// Has somebody notice a send that fails, or is not acknowledged, while the program waits.
    ///
    /// The notification that is armed then is that of messages received. By the specification a
    /// failure counts as one, but soft-RoCE does not tell of failed sends; and how often an adapter
    /// tries is up to the side that connected, and may be without end.
    pub(crate) fn watch_sends(&mut self) {
        if !core::mem::replace(&mut self.stream().watch.running, true) {
            self.start_watch();
        }
    }

    /// The time of [`Locked::watch_sends`] has come.
    pub(crate) fn look_after_sends(&mut self) {
        self.stream().watch.running = false;
        self.poll_queue();
        if self.wake_peer() {
            return;
        }
        let stream = self.stream();
        let link = stream.link.as_ref().filter(|_| stream.state != State::Dead);
        if link.is_some_and(|link| link.has_unwanted_regions(EARLY_MS)) {
            // Nobody shall wait longer, nor who is being killed for the rest.
            self.stats.inc(Counter::TimedOut);
            return self.fail(Event::Timeout, ETIMEDOUT);
        }
        let short_messages = self.drop_idle_page();
        let user_timeout_ms = self.stream().options.user_timeout_ms.unsigned_abs();
        let waits = self.awaits_reads() || self.data_is_due();
        let unsent = self.unsent_bytes();
        let stream = self.stream();
        let Some(link) = &stream.link else { return };
        let held_up = link.sends_in_flight() == 0;
        if stream.state == State::Dead || (held_up && !waits) {
            stream.watch.looks = 0;
            if short_messages {
                self.watch_sends();
            }
            return;
        }
        if held_up {
            // The peer's program makes no room; but is the peer's machine still there?
            self.probe(Counter::Probe);
        }
        let stream = self.stream();
        let Some(link) = &stream.link else { return };
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
        let watch = &mut stream.watch;
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

    /// Asks for an acknowledgement of the peer's adapter, without using a receive of the peer; `false`
    /// if there is no connection any more.
    pub(super) fn probe(&mut self, counter: Counter) -> bool {
        let Some(link) = &mut self.stream().link else {
            return false;
        };
        match link.probe() {
            Ok(()) => self.stats.inc(counter),
            Err(e) => self.post_failed(e),
        }
        self.stream().state.is_connected()
    }

    /// Whether the watch looks after something already: what was sent, or cannot be.
    pub(super) fn awaits_acknowledgement(&mut self) -> bool {
        let waits = self.awaits_reads() || self.data_is_due();
        let link = self.stream().link.as_ref();
        waits || link.is_some_and(|link| link.sends_in_flight() > 0)
    }
}
