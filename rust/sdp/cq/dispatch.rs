// SPDX-License-Identifier: GPL-2.0

//! Handles received messages.

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
use crate::rdma::receive::Receive;
use crate::sdp::advert::Exchange;
use crate::sdp::conn::guard::SockGuard;
use crate::sdp::conn::sock::Want;
use crate::sdp::output::abort::end_for;
use crate::sdp::output::Output;
use crate::sdp::parts::fatal::Fatal;
use crate::sdp::rx::resize::size_received;
use crate::sdp::rx::ring::CONTROL_RECEIVES;
use crate::sdp::rx::Receiver;
use crate::stats::counters::Counter;

/// Ends the connection if received bytes cannot be taken.
pub(super) fn end_if_lost(guard: &mut SockGuard<'_>, taken: Result<(), Fatal>) {
    if let Err(why) = taken {
        end_for(guard, why);
    }
}

/// Handles one message; returns whether a reader should be woken.
pub(super) fn received(guard: &mut SockGuard<'_>, len: u32, invalidated: Option<u32>) -> bool {
    let Some((header, receive)) = guard.conn().link.as_mut().and_then(|l| l.take_receive()) else {
        return false;
    };
    if guard.conn().state.has_ended() {
        Receiver::of(guard).discard(receive);
        return false;
    }
    if guard.conn().state == State::HelloReceived && guard.transition(Event::FirstReceive) {
        guard.want(Want::FirstReceive);
        let link = guard.conn().link.as_ref();
        guard.conn().out.answer_due = link.is_some_and(|link| link.is_iwarp());
    }
    guard.conn().ring.receives.received();
    match check(guard, &header, &receive, len) {
        Ok(message) => {
            let readable = handle(guard, &message, receive, invalidated);
            acknowledge(guard, &message.body);
            readable
        }
        Err(why) => {
            Receiver::of(guard).discard(receive);
            end_for(guard, why.into());
            true
        }
    }
}

/// On iWARP, makes an acknowledgement due, if the peer may need it to end the connection and no
/// other message of this side must follow anyway. Also ends the connection if this side can
/// ([`SockGuard::finish_if_drained`]).
fn acknowledge(guard: &mut SockGuard<'_>, body: &Body) {
    let conn = guard.conn();
    if !conn.link.as_ref().is_some_and(|link| link.is_iwarp()) {
        return;
    }
    let ends = !conn.out.disconn_due && conn.out.last_needed.is_some();
    conn.out.answer_due |= match body {
        // With TCP_LINGER2, the peer limits the time for the rest of this side's stream, from when
        // this side has the whole stream of the peer.
        Body::DisConn => true,
        Body::RdmaRdCompl { .. } | Body::RdmaWrCompl { .. } | Body::SendSm => {
            ends && !conn.state.can_send()
        }
        _ => false,
    };
    if ends {
        guard.finish_if_drained();
    }
}

fn check(
    guard: &mut SockGuard<'_>,
    header: &[u8],
    receive: &Receive,
    len: u32,
) -> Result<Message, Violation> {
    receive.sync_for_cpu(len);
    let rest = receive.front().get(..MAX_BODY).unwrap_or(&[]);
    let message = Message::decode(header, rest, len)?;
    let conn = guard.conn();
    // The peer knows of at most as many receives as it was told of, so a peer that obeys rule C1
    // has enough left by this side's count. Hence the last receives never contain payload, and may
    // be posted even if the receive buffer is full.
    if message.payload_len > 0 && conn.credits.peer_has_left() <= CONTROL_RECEIVES {
        return Err(Violation::CreditOverrun);
    }
    conn.credits.received(&message.hdr)?;
    conn.measured.pacing.acknowledged(&conn.credits);
    conn.state.admits(&message.hdr)?;
    conn.adverts.features.permit(message.hdr.mid)?;
    Ok(message)
}

fn handle(
    guard: &mut SockGuard<'_>,
    message: &Message,
    receive: Receive,
    invalidated: Option<u32>,
) -> bool {
    let payload = message.payload_len;
    // Before the advert of the message, which follows the payload in the stream.
    let after = guard.conn().adverts.last_unread();
    let to = (guard.sk(), guard.stats);
    let conn = guard.conn();
    let (credits, counts) = (conn.credits.available(), &mut conn.measured.counts);
    counts.add_received(to, &message.hdr, payload, credits);
    if matches!(
        message.body,
        Body::SrcAvail { .. }
            | Body::RdmaRdCompl { .. }
            | Body::SinkAvail { .. }
            | Body::RdmaWrCompl { .. }
    ) {
        // With few receives, this side would have to announce new ones after each advert.
        Receiver::of(guard).lengthen_if_short();
    }
    let mut adverts = Exchange::of(guard);
    let result = match message.body {
        // Only the report of an advert may invalidate a key, and only the key of the advert.
        Body::RdmaRdCompl { bytes } => adverts.read_reported(bytes, invalidated),
        _ if invalidated.is_some() => Err(Violation::WrongKeyInvalidated.into()),
        Body::Data => adverts.payload_received(payload),
        Body::SrcAvail { len, rkey, addr } => adverts.advert_received(payload, len, rkey, addr),
        Body::SrcAvailCancel => Receiver::of(guard).cancel_received(),
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
            // The bytes before the lost advert stay readable, as with TCP.
            guard.note_urgent(message, &receive);
            let taken = Receiver::of(guard).take_payload(message, receive, after);
            end_if_lost(guard, taken);
        } else {
            Receiver::of(guard).discard(receive);
        }
        end_for(guard, why);
        return true;
    }
    if matches!(message.body, Body::RdmaRdCompl { .. } | Body::SendSm) {
        // This side may only have waited for this advert.
        guard.finish_if_drained();
    }
    guard.note_urgent(message, &receive);
    match message.body {
        Body::Data | Body::SrcAvail { .. } if payload > 0 => {
            let mut receiver = Receiver::of(guard);
            let taken = receiver.take_payload(message, receive, after);
            let taken = taken.and_then(|()| receiver.take_advert(message));
            end_if_lost(guard, taken);
            guard.note_announced(message);
            return true;
        }
        Body::SrcAvail { .. } => {
            let taken = Receiver::of(guard).take_advert(message);
            end_if_lost(guard, taken);
        }
        Body::Data if message.hdr.flags & FLAG_OOB_PEND == 0 => {
            guard.stats.inc(Counter::CreditUpdateReceived);
        }
        Body::DisConn => guard.disconn_received(),
        Body::AbortConn => guard.reset_by_peer(Event::AbortReceived),
        Body::ChRcvBuf { size } => Receiver::of(guard).grow(size),
        Body::ChRcvBufAck { size } => {
            let (_, flags) = guard.gfp();
            let told = size_received(&mut Output::of(guard), size, flags);
            end_if_lost(guard, told);
        }
        _ => {}
    }
    // The receive of a message without payload is posted again at once (rule C2).
    Receiver::of(guard).recycle(receive);
    guard.conn().ring.repost_due = true;
    guard.note_announced(message);
    // The end of the stream cannot be read before the bytes of adverts.
    message.hdr.mid == crate::proto::bsdh::Mid::DisConn && !guard.conn().adverts.holds()
}
