// SPDX-License-Identifier: GPL-2.0

//! The messages about sink adverts. `recv/sink_avail` has the receives that advertise their
//! buffers; `send/sink_write` and `send/sink_write_async` have the sends that write to buffers of
//! the peer.

use kernel::prelude::*;

use super::Exchange;
use crate::proto::bsdh::Class;
use crate::proto::message::Control;
use crate::proto::sink::Returned;
use crate::proto::violation::Violation;
use crate::rdma::region::{
    Call,
    RegionId,
    Use, //
};
use crate::sdp::output::Output;
use crate::sdp::parts::fatal::Fatal;
use crate::sdp::parts::posted::Posted;
use crate::sdp::parts::sink::{
    trace_end,
    Sinks,
    OFFERS, //
};
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;

/// Buffers that are no longer advertised.
type Ended = [Option<Returned<Posted>>; OFFERS];

fn put(ended: &mut Ended, back: Returned<Posted>) {
    if let Some(place) = ended.iter_mut().find(|place| place.is_none()) {
        *place = Some(back);
    }
}

/// Sends the messages about sink adverts that are due: answers to adverts of the peer, and the
/// cancel of this side's adverts.
///
/// # Errors
///
/// [`Fatal::Refused`].
pub(in crate::sdp) fn flush(output: &mut Output<'_>) -> Result<(), Fatal> {
    while output.may_post(Class::Control, 1) {
        let sinks = &mut output.adverts.sinks;
        let Some(bytes) = sinks.as_mut().and_then(|s| s.writer.next_answer()) else {
            break;
        };
        if !output.post(Control::RdmaWrCompl { bytes })? {
            return Ok(());
        }
    }
    let due = |sinks: &KBox<Sinks>| sinks.adverts.is_cancel_due();
    if output.adverts.sinks.as_ref().is_some_and(due) && output.post(Control::SinkAvailCancel)? {
        output.sock.stats.inc(Counter::SinkCancelSent);
        if let Some(sinks) = &mut output.adverts.sinks {
            sinks.adverts.cancel_sent();
        }
    }
    Ok(())
}

/// The sink adverts of this side.
impl Exchange<'_> {
    /// Data with payload, or a source advert, has arrived: it ends our sink adverts (rule S5).
    pub(super) fn event_received(&mut self) {
        let mut ended = [const { None }; OFFERS];
        match &mut self.adverts.sinks {
            Some(sinks) => sinks.adverts.on_payload(|back| put(&mut ended, back)),
            None => return self.adverts.events.received.note(),
        }
        self.offers_ended(&ended, 0);
    }

    /// The peer has written `bytes` bytes to the oldest advert.
    ///
    /// # Errors
    ///
    /// [`Fatal::Violation`].
    pub(in crate::sdp) fn write_reported(&mut self, bytes: u32) -> Result<(), Fatal> {
        let mut ended = [const { None }; OFFERS];
        let ended_before = self.inq.fin_received;
        let Some(sinks) = self.adverts.sinks_or_new(self.flags) else {
            return Err(Violation::NoAnswerDue.into());
        };
        if bytes > 0 && (sinks.declined || ended_before) {
            return Err(Violation::WriteVoided.into());
        }
        sinks
            .adverts
            .on_write_completion(bytes, |back| put(&mut ended, back))?;
        // An answer to an advert that had already ended does not decline anything.
        sinks.declined |= bytes == 0 && ended.iter().any(Option::is_some);
        // The bytes are already in the memory of the receive.
        self.inq.urgent.on_bytes(bytes);
        self.inq.taken(bytes, &self.sock.glance);
        if bytes > 0 {
            self.inq.direct_arrived = self.sock.sk().arrival_time();
        }
        self.offers_ended(&ended, bytes);
        Ok(())
    }

    /// Handles adverts of the running receive that have ended: the receive gets each buffer back
    /// when the buffer's key is invalid. The peer has written `bytes` bytes to the first buffer.
    fn offers_ended(&mut self, ended: &Ended, bytes: u32) {
        let Some(sinks) = &mut self.adverts.sinks else {
            return;
        };
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
        let (sk, stats) = (self.sock.sk(), self.sock.stats);
        for back in ended {
            if let Some(link) = &mut self.link {
                link.condemn_region(back.owner.region);
            }
            trace_end(sk, back);
            self.measured.counts.add_end_of(&back.owner, self.flags);
        }
        stats.add(Counter::SinkEnded, count);
        stats.add(Counter::SinkUnused, unused.into());
        self.measured.data_received(stats, bytes);
        let counts = &mut self.measured.counts;
        counts.add(stats, Kept::RxWrittenBytes, bytes.into());
    }
}

/// The sink adverts of the peer.
impl Exchange<'_> {
    /// A reader of the peer waits for bytes, and advertises its memory.
    ///
    /// # Errors
    ///
    /// [`Fatal::Violation`], [`Fatal::NoMemory`].
    pub(in crate::sdp) fn sink_received(
        &mut self,
        len: u32,
        rkey: u32,
        addr: u64,
        count: u32,
    ) -> Result<(), Fatal> {
        // It was checked before that both sides agreed on sink adverts.
        let sinks = self
            .adverts
            .sinks_or_new(self.flags)
            .ok_or(Fatal::NoMemory)?;
        let accepted = sinks.writer.on_advert(len, rkey, addr, count)?;
        if !self.state.can_send() {
            // This side sends no more bytes.
            sinks.writer.decline();
        }
        let stats = self.sock.stats;
        self.measured.counts.add(stats, Kept::SinkReceived, 1);
        if !accepted {
            stats.inc(Counter::SinkStale);
        } else if self.halves.sender_waits_for_room() {
            self.sock.sk().wake_waiters();
        }
        Ok(())
    }

    /// Handles a SinkAvailCancel: the reader of the peer has stopped waiting.
    ///
    /// # Errors
    ///
    /// [`Fatal::Violation`].
    pub(in crate::sdp) fn sink_cancel_received(&mut self) -> Result<(), Fatal> {
        self.sock.stats.inc(Counter::SinkCancelReceived);
        match self.adverts.sinks_or_new(self.flags) {
            Some(sinks) => Ok(sinks.writer.on_cancel()?),
            None => Err(Violation::NothingToCancel.into()),
        }
    }

    /// The Write of a region has finished: the peer has its bytes.
    pub(in crate::sdp) fn write_finished(&mut self, region: RegionId) {
        let Some(link) = &mut *self.link else {
            return;
        };
        let bytes = link.region_bytes(region);
        let purpose = link.region_use(region);
        link.condemn_region(region);
        match (&mut self.adverts.sinks, purpose) {
            (Some(sinks), Some(Use::OwnWrites(Call::Returns))) => {
                sinks.charged_bytes -= bytes;
                self.sock.sk().wmem_uncharge(bytes);
            }
            (Some(sinks), Some(Use::OwnWrites(Call::Waits))) => {
                sinks.written_bytes += bytes as usize
            }
            // The thread of the send was killed.
            _ => {}
        }
        self.reclaim().region_used(region);
        let stats = self.sock.stats;
        stats.inc(Counter::WriteDone);
        self.measured.pacing.pace.deliver(bytes);
        let counts = &mut self.measured.counts;
        counts.add(stats, Kept::TxBytes, bytes.into());
        counts.add(stats, Kept::TxWrittenBytes, bytes.into());
    }
}
