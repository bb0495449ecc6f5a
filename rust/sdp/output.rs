// SPDX-License-Identifier: GPL-2.0

//! Posts messages and other requests; checks that there are credits and places in the send queue.

pub(in crate::sdp) mod abort;

use kernel::prelude::*;

use super::conn::connection::Connection;
use super::conn::guard::SockGuard;
use super::conn::sock::SdpSock;
use super::conn::watchdog;
use super::parts::adverts::{
    Adverts,
    PayloadPermit, //
};
use super::parts::fatal::Fatal;
use super::parts::measured::Measured;
use super::parts::send_queue::SendQueue;
use crate::kern::errno::ENOTCONN;
use crate::mm::frag::Frag;
use crate::proto::bsdh::{
    Class,
    BSDH_LEN_U32, //
};
use crate::proto::credits::Credits;
use crate::proto::message::{
    encode,
    Body,
    Control,
    InStream, //
};
use crate::proto::policy::signal_now;
use crate::proto::watchdog::Watchdog;
use crate::rdma::link::{
    Link,
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

/// The parts of a connection that change when a message is posted. The state of the connection is
/// not among them: if the provider refuses a request, the caller must end the connection
/// ([`abort::end_for`]).
pub(in crate::sdp) struct Output<'a> {
    pub(in crate::sdp) sock: &'a SdpSock,
    pub(in crate::sdp) link: &'a mut Option<Link>,
    pub(in crate::sdp) credits: &'a mut Credits,
    pub(in crate::sdp) out: &'a mut SendQueue,
    pub(in crate::sdp) adverts: &'a mut Adverts,
    pub(in crate::sdp) watch: &'a mut Watchdog,
    pub(in crate::sdp) measured: &'a mut Measured,
}

impl<'a> Output<'a> {
    pub(in crate::sdp) fn of(guard: &'a mut SockGuard<'_>) -> Self {
        let sock = guard.sock();
        let conn: &mut Connection = guard.conn();
        Self {
            sock,
            link: &mut conn.link,
            credits: &mut conn.credits,
            out: &mut conn.out,
            adverts: &mut conn.adverts,
            watch: &mut conn.liveness.watch,
            measured: &mut conn.measured,
        }
    }
}

impl Output<'_> {
    /// Whether there are credits for a message of this class, and `places` places in the send
    /// queue.
    pub(super) fn may_post(&self, class: Class, places: u32) -> bool {
        let room = self.link.as_ref().map_or(0, |link| link.send_room());
        room >= places && self.credits.may_send(class)
    }

    /// The maximum payload of a message in bytes. The limits are the size of the peer's receives,
    /// the fragments of one place in the send queue, and a quarter of the send buffer.
    pub(super) fn message_limit(&self) -> u32 {
        // Rounded down to whole fragments, but at least one.
        let share = (self.sock.sk().sndbuf() / 4 / PART_BYTES).max(1) * PART_BYTES;
        let most = self.link.as_ref().map_or(0, |link| link.max_message());
        self.out.peer_receives.bytes().min(most).min(share)
    }

    /// Takes the bytes of the next message, at most `full`, out of the queue; returns their number.
    pub(super) fn cut_message(&mut self, full: u32, frags: &mut [Option<Frag>; MAX_FRAGS]) -> u32 {
        let max_frags = self.link.as_ref().map_or(0, |link| link.max_frags());
        self.out.queue.change(&self.sock.glance.notsent, |tx| {
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

    /// Posts a message without a place in the stream; returns `false` if there are too few credits
    /// or places now.
    ///
    /// # Errors
    ///
    /// [`Fatal::Refused`].
    pub(super) fn post(&mut self, message: Control) -> Result<bool, Fatal> {
        self.post_with(message, With::Nothing)
    }

    /// As [`Output::post`], for a message with an additional effect.
    pub(super) fn post_with(&mut self, message: Control, with: With) -> Result<bool, Fatal> {
        let tag = match message {
            Control::AbortConn => Tag::AbortConn,
            Control::SendSm | Control::RdmaWrCompl { .. } | Control::RdmaRdCompl { .. } => {
                Tag::Answer
            }
            Control::Update
            | Control::SrcAvailCancel
            | Control::SinkAvailCancel
            | Control::ChRcvBuf { .. }
            | Control::ChRcvBufAck { .. }
            | Control::SinkAvail { .. } => Tag::Control,
        };
        self.post_body(message.body(), 0, &mut [], 0, tag, with)
    }

    /// Posts a message of the stream, with the `payload` bytes in `frags` and an additional effect;
    /// returns `false` if there are too few credits or places now.
    ///
    /// # Errors
    ///
    /// [`Fatal::Refused`].
    pub(super) fn post_in_stream(
        &mut self,
        permit: PayloadPermit,
        message: InStream,
        frags: &mut [Option<Frag>],
        payload: u32,
        with: With,
    ) -> Result<bool, Fatal> {
        let tag = match message {
            InStream::Data { .. } => Tag::Data,
            InStream::DisConn => Tag::DisConn,
            InStream::SrcAvail { .. } => Tag::Control,
        };
        let (body, flags) = (message.body(), message.flags());
        let posted = self.post_body(body, flags, frags, payload, tag, with)?;
        if posted && message.is_event() && !self.adverts.note_event_sent(permit) {
            self.sock.stats.inc(Counter::IllegalTransition);
        }
        Ok(posted)
    }

    fn post_body(
        &mut self,
        body: Body,
        flags: u8,
        frags: &mut [Option<Frag>],
        payload: u32,
        tag: Tag,
        with: With,
    ) -> Result<bool, Fatal> {
        let class = body.class(payload);
        let places = self.link.as_ref().map_or(1, |l| l.places(with));
        if !self.may_post(class, places) {
            return Ok(false);
        }
        let Some(stamp) = self.credits.stamp(class) else {
            return Ok(false);
        };
        let flags = flags | self.out.urgent.flags();
        let Some(header) = body.header(flags, payload, stamp) else {
            return Ok(false);
        };
        let limit = self.message_limit();
        let (wire, len) = encode(&header, &body);
        let wire = wire.get(..len).unwrap_or(&wire);
        let (number, signal) = match self.post_wire(wire, frags, tag, with, limit) {
            Ok(posted) => posted,
            Err(e) => {
                self.sock.sk().wmem_uncharge(payload);
                return Err(Fatal::Refused(e));
            }
        };
        watchdog::begin(self.watch, self.sock);
        self.out.urgent.note_sent();
        // A message is small if it takes the last bytes of the queue and is not nearly full. A
        // message that ended because its fragments were used up leaves bytes in the queue.
        let small = self.out.queue.is_empty() && payload + BSDH_LEN_U32 < limit;
        if tag == Tag::Data && small {
            self.out.small_in_flight = Some(number);
        }
        if matches!(tag, Tag::DisConn | Tag::Answer) {
            self.out.last_needed = Some(header.mseq);
        }
        let stats = self.sock.stats;
        self.out.peer_receives.sent();
        self.measured.pacing.posted(header.mseq, payload);
        let credits = self.credits.available();
        let counts = &mut self.measured.counts;
        counts.add_sent((self.sock.sk(), stats), &header, payload, credits);
        stats.inc(Counter::SendPosted);
        if signal {
            stats.inc(Counter::SendSignaled);
        }
        counts.add(stats, Kept::TxBytes, payload.into());
        Ok(true)
    }

    fn post_wire(
        &mut self,
        wire: &[u8],
        frags: &mut [Option<Frag>],
        tag: Tag,
        with: With,
        limit: u32,
    ) -> Result<(u32, bool)> {
        let more_follows = tag == Tag::Data
            && self.out.queue.bytes() >= limit
            && self.credits.may_send(Class::Payload);
        let link = self.link.as_mut().ok_or(ENOTCONN)?;
        let last = !more_follows || link.send_room() <= CONTROL_PLACES;
        let signal = signal_now(link.unsignaled(), SEND_DEPTH, last);
        Ok((link.send(wire, frags, tag, signal, with)?, signal))
    }

    /// Requests an acknowledgement from the peer's adapter, without using a receive of the peer;
    /// returns `false` if the connection has no link any more.
    ///
    /// # Errors
    ///
    /// [`Fatal::Refused`].
    pub(super) fn probe(&mut self, counter: Counter) -> Result<bool, Fatal> {
        let Some(link) = &mut *self.link else {
            return Ok(false);
        };
        link.probe().map_err(Fatal::Refused)?;
        self.sock.stats.inc(counter);
        Ok(true)
    }

    /// Invalidates the keys of regions that are no longer needed.
    ///
    /// # Errors
    ///
    /// [`Fatal::Refused`].
    pub(super) fn invalidate_condemned(&mut self) -> Result<(), Fatal> {
        match &mut self.link {
            Some(link) => link.invalidate_condemned().map_err(Fatal::Refused),
            None => Ok(()),
        }
    }
}
