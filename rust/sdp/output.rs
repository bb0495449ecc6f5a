// SPDX-License-Identifier: GPL-2.0

//! Posts a message, or another request: credits, and places in the send queue; says when completions of
//! sends must be noticed.

mod abort;

use kernel::prelude::*;

use super::conn::guard::SockGuard;
use super::conn::pace::IDLE_BYTES;
use super::conn::sock::{
    Alarm,
    WATCH_MS, //
};
use crate::kern::errno::{
    ECONNRESET,
    ENOTCONN, //
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
use crate::proto::policy::signal_now;
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
use crate::rdma::receive::PART_BYTES;
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;

/// Places in the send queue that data leaves to control messages.
pub(super) const CONTROL_PLACES: u32 = 3;

impl SockGuard<'_> {
    pub(super) fn may_transmit(&mut self) -> bool {
        let conn = self.conn();
        conn.link.is_some() && conn.state.is_connected()
    }

    pub(super) fn may_post(&mut self, class: Class, places: u32) -> bool {
        let conn = self.conn();
        let room = conn.link.as_ref().map_or(0, |link| link.send_room());
        room >= places && conn.credits.may_send(class)
    }

    /// Bytes of the longest message: what the peer's receives take, and what the fragments of a place
    /// in the send queue have; and a small send buffer holds several.
    pub(super) fn message_limit(&mut self) -> u32 {
        // Whole fragments.
        let share = (self.sk().sndbuf() / 4 / PART_BYTES).max(1) * PART_BYTES;
        let conn = self.conn();
        let most = conn.link.as_ref().map_or(0, |link| link.max_message());
        conn.out.peer_receives.bytes().min(most).min(share)
    }

    /// Takes the bytes of the next message, at most `full`, out of the queue; returns how many.
    pub(super) fn cut_message(&mut self, full: u32, frags: &mut [Option<Frag>; MAX_FRAGS]) -> u32 {
        let glance = &self.sock().glance;
        let conn = self.conn();
        let max_frags = conn.link.as_ref().map_or(0, |link| link.max_frags());
        conn.out.queue.change(&glance.notsent, |tx| {
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

    /// Posts one message; `false` if credits or places do not allow it now, or if the provider
    /// refused, which ends the connection.
    pub(super) fn post(
        &mut self,
        body: Body,
        frags: &mut [Option<Frag>],
        payload: u32,
        tag: Tag,
    ) -> bool {
        self.post_with(body, frags, payload, tag, With::Nothing)
    }

    /// As [`SockGuard::post`], for a message that does something besides.
    pub(super) fn post_with(
        &mut self,
        body: Body,
        frags: &mut [Option<Frag>],
        payload: u32,
        tag: Tag,
        with: With,
    ) -> bool {
        self.post_flagged(body, 0, frags, payload, tag, with)
    }

    /// As [`SockGuard::post_with`], for a message that has `flags` besides those of every message.
    pub(super) fn post_flagged(
        &mut self,
        body: Body,
        flags: u8,
        frags: &mut [Option<Frag>],
        payload: u32,
        tag: Tag,
        with: With,
    ) -> bool {
        let class = body.class(payload);
        let places = self.conn().link.as_ref().map_or(1, |l| l.places(with));
        if !self.may_post(class, places) {
            return false;
        }
        let Some(stamp) = self.conn().credits.stamp(class) else {
            return false;
        };
        let flags = flags | self.conn().out.urgent.flags();
        let Some(header) = body.header(flags, payload, stamp) else {
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
                self.conn().out.urgent.note_sent();
                // One that is nearly full is not small, nor one that had to end with its fragments.
                let limit = self.message_limit();
                let small = self.conn().out.queue.is_empty() && payload + BSDH_LEN_U32 < limit;
                if tag == Tag::Data && small {
                    self.conn().out.small_in_flight = Some(number);
                }
                if matches!(tag, Tag::DisConn | Tag::Answer) {
                    self.conn().out.last_needed = Some(header.mseq);
                }
                if header.is_payload() || matches!(body, Body::SrcAvail { .. }) {
                    self.event_sent();
                }
                self.conn().out.peer_receives.sent();
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
    fn post_failed(&mut self, e: Error) {
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
        let conn = self.conn();
        let more_follows = tag == Tag::Data
            && conn.out.queue.bytes() >= limit
            && conn.credits.may_send(Class::Payload);
        let link = conn.link.as_mut().ok_or(ENOTCONN)?;
        let last = !more_follows || link.send_room() <= CONTROL_PLACES;
        let signal = signal_now(link.unsignaled(), SEND_DEPTH, last);
        Ok((link.send(wire, frags, tag, signal, with)?, signal))
    }

    /// Whether the next completion of a send must be noticed, although nothing was received.
    pub(crate) fn awaits_send_completion(&mut self) -> bool {
        let sk = self.sk();
        let conn = self.conn();
        !conn.out.queue.is_empty()
            || conn.link.as_ref().is_some_and(|l| l.awaits_request())
            || conn.halves.sender_waits_for_peer()
            || conn.adverts.waits
            // A program has protected pages until it is done.
            || conn.adverts.sinks.as_ref().is_some_and(|s| s.charged_bytes > 0)
            // A Read waits for places.
            || conn.adverts.zcopy.as_ref().is_some_and(|z| z.hold.untaken() > 0)
            || conn.out.disconn_due
            || conn.out.peer_receives.has_to_use_up()
            || matches!(
                conn.state,
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
        if !core::mem::replace(&mut self.conn().liveness.watch.running, true) {
            self.start_timer(Alarm::Watch, WATCH_MS);
        }
    }

    /// Asks for an acknowledgement of the peer's adapter, without using a receive of the peer; `false`
    /// if there is no connection any more.
    pub(super) fn probe(&mut self, counter: Counter) -> bool {
        let Some(link) = &mut self.conn().link else {
            return false;
        };
        match link.probe() {
            Ok(()) => self.stats.inc(counter),
            Err(e) => self.post_failed(e),
        }
        self.conn().state.is_connected()
    }

    /// Makes the keys of regions invalid that are not needed any more.
    pub(super) fn invalidate_condemned(&mut self) {
        let Some(link) = &mut self.conn().link else {
            return;
        };
        if let Err(e) = link.invalidate_condemned() {
            self.post_failed(e);
        }
    }

    /// Data with payload, or a source advert, is sent.
    fn event_sent(&mut self) {
        let conn = self.conn();
        let noted = match &mut conn.adverts.sinks {
            Some(sinks) => sinks.writer.note_payload(),
            None => {
                conn.adverts.events.sent.note();
                true
            }
        };
        if !noted {
            // Who sends payload has called `answer_sinks` before.
            self.stats.inc(Counter::IllegalTransition);
        }
    }

    /// Asks for the next notification; `true` if the queue must be polled again.
    pub(crate) fn arm(&mut self) -> bool {
        let every = self.awaits_send_completion();
        match &mut self.conn().link {
            Some(link) => link.arm(every),
            None => false,
        }
    }
}
