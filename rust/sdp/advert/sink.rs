// SPDX-License-Identifier: GPL-2.0

//! Sink adverts: the messages about them. The call that advertises is in `recv/sink_avail`, those that write
//! in `send/sink_write` and `send/sink_write_async`.

use kernel::prelude::*;

use crate::proto::bsdh::Class;
use crate::proto::buffer::{
    Returned,
    SinkAdverts, //
};
use crate::proto::hello::Features;
use crate::proto::message::Body;
use crate::proto::offer::Offers;
use crate::proto::violation::Violation;
use crate::proto::write::SinkWriter;
use crate::rdma::link::{
    Tag,
    With, //
};
use crate::rdma::mr::{
    Call,
    RegionId,
    Use, //
};
use crate::sdp::conn::guard::SockGuard;
use crate::sdp::parts::posted::Posted;
use crate::sdp::parts::sink::{
    trace_end,
    Sinks,
    OFFERS, //
};
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;

/// What both sides must have agreed on.
const NEEDS: Features = Features::SINK.union(Features::ORDERED);

/// Buffers that are advertised no longer.
type Ended = [Option<Returned<Posted>>; OFFERS];

fn put(ended: &mut Ended, back: Returned<Posted>) {
    if let Some(place) = ended.iter_mut().find(|place| place.is_none()) {
        *place = Some(back);
    }
}

impl SockGuard<'_> {
    /// What is known of sink adverts, from the first one on; `None` if there can be none, or no
    /// memory.
    pub(in crate::sdp) fn with_sinks(&mut self) -> Option<&mut Sinks> {
        let (_, flags) = self.gfp();
        let conn = self.conn();
        if conn.adverts.sinks.is_none() && conn.adverts.features.contains(NEEDS) {
            let (peer, own) = (conn.adverts.peer_most, conn.adverts.own_most);
            let (features, events) = (conn.adverts.features, conn.adverts.events);
            let sinks = Sinks {
                adverts: SinkAdverts::new(peer, features, events.received),
                writer: SinkWriter::new(own, features, events.sent),
                offers: Offers::new(),
                cancel_due: false,
                declined: false,
                received_bytes: 0,
                written_bytes: 0,
                charged_bytes: 0,
            };
            conn.adverts.sinks = KBox::new(sinks, flags).ok();
        }
        conn.adverts.sinks.as_deref_mut()
    }

    // Ours.

    /// Data with payload, or a source advert, has come: our sink adverts have ended (rule S5).
    pub(super) fn event_received(&mut self) {
        let mut ended = [const { None }; OFFERS];
        match &mut self.conn().adverts.sinks {
            Some(sinks) => sinks.adverts.on_payload(|back| put(&mut ended, back)),
            None => return self.conn().adverts.events.received.note(),
        }
        self.offers_ended(&ended, 0);
    }

    /// The peer has written so many bytes to the oldest advert.
    pub(in crate::sdp) fn write_reported(&mut self, bytes: u32) -> Result<(), Violation> {
        let mut ended = [const { None }; OFFERS];
        let ended_before = self.conn().inq.fin_received;
        let Some(sinks) = self.with_sinks() else {
            return Err(Violation::NoAnswerDue);
        };
        if bytes > 0 && (sinks.declined || ended_before) {
            return Err(Violation::WriteVoided);
        }
        sinks
            .adverts
            .on_write_completion(bytes, |back| put(&mut ended, back))?;
        // Not so the answer to an advert that had ended before.
        sinks.declined |= bytes == 0 && ended.iter().any(Option::is_some);
        // The receive has them.
        self.conn().inq.urgent.on_bytes(bytes);
        self.note_taken(bytes);
        self.offers_ended(&ended, bytes);
        Ok(())
    }

    /// Buffers of the running receive are its own again when their keys are dead. The first of them
    /// has so many bytes.
    fn offers_ended(&mut self, ended: &Ended, bytes: u32) {
        let sk = self.sk();
        let conn = self.conn();
        let Some(sinks) = &mut conn.adverts.sinks else {
            return;
        };
        if !sinks.adverts.is_live() {
            sinks.cancel_due = false;
        }
        let ended = ended.iter().flatten();
        let count = ended.clone().count() as u64;
        if count == 0 {
            return;
        }
        sinks.received_bytes += bytes as usize;
        let unused = sinks.received_bytes == 0 && !sinks.adverts.is_live();
        if bytes > 0 {
            sinks.offers.on_used();
        } else if unused {
            sinks.offers.on_unused();
        }
        for back in ended.clone() {
            if let Some(link) = &mut conn.link {
                link.condemn_region(back.owner.region);
            }
            trace_end(sk, back);
        }
        for back in ended {
            self.note_end_of(&back.owner);
        }
        self.stats.add(Counter::SinkEnded, count);
        self.stats.add(Counter::SinkUnused, unused.into());
        self.count_data_received(bytes);
        self.count(Kept::RxWrittenBytes, bytes.into());
    }

    // The peer's.

    /// The peer's reader waits for bytes, with memory for them.
    pub(in crate::sdp) fn sink_received(
        &mut self,
        len: u32,
        rkey: u32,
        addr: u64,
        count: u32,
    ) -> Result<(), Violation> {
        let can_send = self.conn().state.can_send();
        let Some(sinks) = self.with_sinks() else {
            // That they agreed on sink adverts was checked before: there is no memory.
            self.lost_bytes();
            return Ok(());
        };
        let accepted = sinks.writer.on_advert(len, rkey, addr, count)?;
        if !can_send {
            // Nothing comes any more.
            sinks.writer.decline();
        }
        self.count(Kept::SinkReceived, 1);
        if !accepted {
            self.stats.inc(Counter::SinkStale);
        } else if self.conn().halves.sender_waits_for_room() {
            self.sk().wake_waiters();
        }
        Ok(())
    }

    /// The peer's reader does not wait any more.
    pub(in crate::sdp) fn sink_cancel_received(&mut self) -> Result<(), Violation> {
        match self.with_sinks() {
            Some(sinks) => sinks.writer.on_cancel(),
            None => Err(Violation::NothingToCancel),
        }
    }

    /// Whether all sink adverts of the peer are answered, as they must be before payload or the end
    /// of the stream goes (rule S3). If not that is done, as far as credits and places allow.
    pub(in crate::sdp) fn answer_sinks(&mut self) -> bool {
        let is_idle = |guard: &mut Self| {
            let sinks = &guard.conn().adverts.sinks;
            sinks.as_ref().is_none_or(|s| s.writer.is_idle())
        };
        if is_idle(self) {
            return true;
        }
        if let Some(sinks) = &mut self.conn().adverts.sinks {
            sinks.writer.decline();
        }
        self.flush_sinks();
        is_idle(self)
    }

    /// Sends what is due about sink adverts: answers, and a cancel of ours.
    pub(in crate::sdp) fn flush_sinks(&mut self) {
        while self.may_post(Class::Control, 1) {
            let sinks = &mut self.conn().adverts.sinks;
            let Some(bytes) = sinks.as_mut().and_then(|s| s.writer.next_answer()) else {
                break;
            };
            let body = Body::RdmaWrCompl { bytes };
            if !self.post_with(body, &mut [], 0, Tag::Answer, With::Nothing) {
                return;
            }
        }
        let due = |sinks: &mut KBox<Sinks>| sinks.cancel_due;
        if self.conn().adverts.sinks.as_mut().is_some_and(due) {
            let body = Body::SinkAvailCancel;
            if self.post_with(body, &mut [], 0, Tag::Control, With::Nothing) {
                if let Some(sinks) = &mut self.conn().adverts.sinks {
                    sinks.cancel_due = false;
                }
            }
        }
    }

    /// The Write of a region has finished: the peer has its bytes.
    pub(in crate::sdp) fn write_finished(&mut self, region: RegionId) {
        let conn = self.conn();
        let Some(link) = &mut conn.link else {
            return;
        };
        let bytes = link.region_bytes(region);
        let purpose = link.region_use(region);
        link.condemn_region(region);
        match (&mut conn.adverts.sinks, purpose) {
            (Some(sinks), Some(Use::OwnWrites(Call::Returns))) => {
                sinks.charged_bytes -= bytes;
                self.sk().wmem_uncharge(bytes);
            }
            (Some(sinks), Some(Use::OwnWrites(Call::Waits))) => {
                sinks.written_bytes += bytes as usize
            }
            // The send was killed.
            _ => {}
        }
        self.region_used(region);
        self.stats.inc(Counter::WriteDone);
        self.count(Kept::TxBytes, bytes.into());
        self.conn().measured.pacing.pace.deliver(bytes);
        self.count(Kept::TxWrittenBytes, bytes.into());
    }
}
