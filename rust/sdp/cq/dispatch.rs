// SPDX-License-Identifier: GPL-2.0

//! What a completion of a send does, and what a message does.

use kernel::prelude::*;

use crate::proto::bsdh::FLAG_OOB_PEND;
use crate::proto::message::{
    Body,
    Message,
    MAX_BODY, //
};
use crate::proto::state::{
    Event,
    State, //
};
use crate::proto::violation::Violation;
use crate::rdma::link::Tag;
use crate::rdma::mr::{
    Call,
    Use, //
};
use crate::rdma::receive::Receive;
use crate::sdp::advert::Exchange;
use crate::sdp::conn::guard::SockGuard;
use crate::sdp::conn::sock::Want;
use crate::sdp::output::abort::end_for;
use crate::sdp::output::Output;
use crate::sdp::parts::fatal::Fatal;
use crate::sdp::reclaim::Reclaim;
use crate::sdp::rx::resize::size_received;
use crate::sdp::rx::ring::CONTROL_RECEIVES;
use crate::sdp::rx::Receiver;
use crate::stats::counters::Counter;

impl SockGuard<'_> {
    /// Takes finished messages out of the send queue and gives their memory back.
    pub(crate) fn reap_sent(&mut self) {
        let mut count = 0;
        while let Some(sent) = self.conn().link.as_mut().and_then(|l| l.reap()) {
            count += 1;
            if sent.payload > 0 {
                self.sk().wmem_uncharge(sent.payload);
                self.conn().measured.pacing.pace.deliver(sent.payload);
            }
            if self.conn().out.small_in_flight == Some(sent.number) {
                self.conn().out.small_in_flight = None;
            }
            if let Some(memory) = sent.read {
                let done = Receiver::of(self).read_finished(memory);
                self.end_if_lost(done);
            }
            match sent.tag {
                Tag::DisConn => self.disconn_sent(),
                Tag::Answer => self.finish_if_drained(),
                Tag::Probe => self.conn().liveness.keepalive.on_answer(),
                Tag::Invalidation(region) => Reclaim::of(self).region_invalidated(region),
                Tag::DirectRead(region) => {
                    let link = self.conn().link.as_ref();
                    let purpose = link.and_then(|link| link.region_use(region));
                    let awaited = purpose == Some(Use::OwnReads(Call::Waits));
                    let done = Receiver::of(self).direct_read_finished(awaited);
                    self.end_if_lost(done);
                    Reclaim::of(self).region_used(region);
                }
                Tag::EarlyRead(region) => {
                    let done = Receiver::of(self).early_read_finished(region);
                    self.end_if_lost(done);
                    Reclaim::of(self).region_used(region);
                }
                Tag::Write(region) => Exchange::of(self).write_finished(region),
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

    /// Ends the connection if what has come cannot be taken.
    fn end_if_lost(&mut self, taken: Result<(), Fatal>) {
        if let Err(why) = taken {
            end_for(self, why);
        }
    }

    /// Handles one message; returns whether a reader should be woken.
    pub(super) fn received(&mut self, len: u32, invalidated: Option<u32>) -> bool {
        let Some((header, receive)) = self.conn().link.as_mut().and_then(|l| l.take_receive())
        else {
            return false;
        };
        if self.conn().state == State::Dead {
            Receiver::of(self).discard(receive);
            return false;
        }
        if self.conn().state == State::HelloReceived && self.transition(Event::FirstReceive) {
            self.want(Want::FirstReceive);
            let link = self.conn().link.as_ref();
            self.conn().out.answer_due = link.is_some_and(|link| link.is_iwarp());
        }
        let ring = &mut self.conn().ring;
        if ring.receives.is_shrinking() {
            ring.unused_looks = 0;
        }
        ring.receives.received();
        match self.check(&header, &receive, len) {
            Ok(message) => {
                let readable = self.handle(&message, receive, invalidated);
                self.acknowledge(&message.body);
                readable
            }
            Err(why) => {
                Receiver::of(self).discard(receive);
                end_for(self, why.into());
                true
            }
        }
    }

    /// On iWARP, has the peer know that this message has come, if it may wait for that to end the
    /// connection, and no message of ours must follow that says so; and sees whether the end has come
    /// for us ([`SockGuard::finish_if_drained`]).
    fn acknowledge(&mut self, body: &Body) {
        let conn = self.conn();
        if !conn.link.as_ref().is_some_and(|link| link.is_iwarp()) {
            return;
        }
        let ends = !conn.out.disconn_due && conn.out.last_needed.is_some();
        conn.out.answer_due |= match body {
            // The peer may give the rest of the stream little time (TCP_LINGER2) from when this side has all.
            Body::DisConn => true,
            Body::RdmaRdCompl { .. } | Body::RdmaWrCompl { .. } | Body::SendSm => {
                ends && !conn.state.can_send()
            }
            _ => false,
        };
        if ends {
            self.finish_if_drained();
        }
    }

    fn check(&mut self, header: &[u8], receive: &Receive, len: u32) -> Result<Message, Violation> {
        receive.sync_for_cpu(len);
        let rest = receive.front().get(..MAX_BODY).unwrap_or(&[]);
        let message = Message::decode(header, rest, len)?;
        let conn = self.conn();
        // The peer knows at most what it was told, so that one who keeps rule C1 has as much here.
        // Hence the last receives never hold payload, and may be posted whatever the buffers hold.
        if message.payload_len > 0 && conn.credits.peer_has_left() <= CONTROL_RECEIVES {
            return Err(Violation::CreditOverrun);
        }
        conn.credits.received(&message.hdr)?;
        conn.measured.pacing.acknowledged(&conn.credits);
        conn.state.admits(&message.hdr)?;
        conn.adverts.features.permit(message.hdr.mid)?;
        Ok(message)
    }

    fn handle(&mut self, message: &Message, receive: Receive, invalidated: Option<u32>) -> bool {
        let payload = message.payload_len;
        let to = (self.sk(), self.stats);
        let conn = self.conn();
        let (credits, counts) = (conn.credits.available(), &mut conn.measured.counts);
        counts.add_received(to, &message.hdr, payload, credits);
        let mut adverts = Exchange::of(self);
        let result = match message.body {
            // Only the report of an advert may make a key invalid: that of the advert.
            Body::RdmaRdCompl { bytes } => adverts.read_reported(bytes, invalidated),
            _ if invalidated.is_some() => Err(Violation::WrongKeyInvalidated.into()),
            Body::Data => adverts.payload_received(payload),
            Body::SrcAvail { len, rkey, addr } => adverts.advert_received(payload, len, rkey, addr),
            Body::SrcAvailCancel => Receiver::of(self).cancel_received(),
            Body::SendSm => adverts.cancel_answered(),
            Body::SinkAvail {
                len,
                rkey,
                addr,
                count,
            } => adverts.sink_received(len, rkey, addr, count),
            Body::SinkAvailCancel => adverts.sink_cancel_received(),
            Body::RdmaWrCompl { bytes } => adverts.write_reported(bytes),
            Body::DisConn => adverts.end_received(),
            Body::AbortConn | Body::ChRcvBuf { .. } | Body::ChRcvBufAck { .. } => Ok(()),
            _ => Err(Violation::UnexpectedMid.into()),
        };
        if let Err(why) = result {
            if matches!(why, Fatal::NoMemory) && payload > 0 {
                // The bytes before an advert that is lost stay readable, as with TCP.
                self.note_urgent(message, &receive);
                let taken = Receiver::of(self).take_payload(message, receive);
                self.end_if_lost(taken);
            } else {
                Receiver::of(self).discard(receive);
            }
            end_for(self, why);
            return true;
        }
        if matches!(message.body, Body::RdmaRdCompl { .. } | Body::SendSm) {
            // An advert of ours may have been the last that this side waited for.
            self.finish_if_drained();
        }
        self.note_urgent(message, &receive);
        match message.body {
            Body::Data | Body::SrcAvail { .. } if payload > 0 => {
                let mut receiver = Receiver::of(self);
                let taken = receiver.take_payload(message, receive);
                let taken = taken.and_then(|()| receiver.take_advert(message));
                self.end_if_lost(taken);
                self.note_announced(message);
                return true;
            }
            Body::SrcAvail { .. } => {
                let taken = Receiver::of(self).take_advert(message);
                self.end_if_lost(taken);
            }
            Body::Data if message.hdr.flags & FLAG_OOB_PEND == 0 => {
                self.stats.inc(Counter::CreditUpdateReceived);
            }
            Body::DisConn => self.disconn_received(),
            Body::AbortConn => self.reset_by_peer(Event::AbortReceived),
            Body::ChRcvBuf { size } => Receiver::of(self).grow(size),
            Body::ChRcvBufAck { size } => {
                let (_, flags) = self.gfp();
                let told = size_received(&mut Output::of(self), size, flags);
                self.end_if_lost(told);
            }
            _ => {}
        }
        // The receive of a message without payload is posted again at once (rule C2).
        Receiver::of(self).recycle(receive);
        self.note_announced(message);
        message.hdr.mid == crate::proto::bsdh::Mid::DisConn
    }
}
