// SPDX-License-Identifier: GPL-2.0

//! The messages about source adverts.

use kernel::prelude::*;

use super::Exchange;
use crate::params::ADVERTS;
use crate::proto::bsdh::Class;
use crate::proto::hello::Features;
use crate::proto::message::Control;
use crate::proto::source::{
    Kind,
    Progress, //
};
use crate::proto::source_reader::Answer;
use crate::proto::violation::Violation;
use crate::rdma::link::With;
use crate::rdma::region::RegionId;
use crate::sdp::output::Output;
use crate::sdp::parts::fatal::Fatal;
use crate::sdp::parts::source::{
    traced,
    Sources, //
};
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;
use crate::trace;

/// Sends the messages about source adverts that are due: reports, the answer to a cancel of the
/// peer, and a cancel of ours.
///
/// # Errors
///
/// [`Fatal::Refused`].
pub(in crate::sdp) fn flush(output: &mut Output<'_>) -> Result<(), Fatal> {
    while output.may_post(Class::Control, 1) {
        // If the rest of an advert may have to wait for long, report the part that was read: the
        // sender must see the progress.
        let starved = output.sock.glance.starved.get();
        let remote = output.adverts.features.contains(Features::REMOTE_INV);
        let Some(sources) = &mut output.adverts.sources else {
            return Ok(());
        };
        let (message, with) = match sources.reader.next_answer(starved) {
            Some(Answer::ReadCompletion { bytes, invalidate }) => {
                let key = invalidate.map_or(With::Nothing, With::Invalidation);
                (Control::RdmaRdCompl { bytes }, key)
            }
            Some(Answer::SendSm) => (Control::SendSm, With::Nothing),
            None => break,
        };
        let with = if remote { with } else { With::Nothing };
        if !output.post_with(message, with)? {
            return Ok(());
        }
    }
    let due = |sources: &KBox<Sources>| sources.adverts.is_cancel_due();
    if output.adverts.sources.as_ref().is_some_and(due) && output.post(Control::SrcAvailCancel)? {
        output.sock.stats.inc(Counter::CancelSent);
        if let Some(sources) = &mut output.adverts.sources {
            sources.adverts.cancel_sent();
        }
    }
    Ok(())
}

impl Exchange<'_> {
    /// A Data message with `payload` bytes has arrived; its bytes are the next of the stream behind
    /// the adverts of the peer.
    ///
    /// # Errors
    ///
    /// [`Fatal::Violation`].
    pub(in crate::sdp) fn payload_received(&mut self, payload: u32) -> Result<(), Fatal> {
        if payload > 0 {
            self.event_received();
        }
        match &mut self.adverts.sources {
            Some(sources) => Ok(sources.reader.on_data(payload)?),
            None => Ok(()),
        }
    }

    /// The peer's half of the stream ends here.
    ///
    /// # Errors
    ///
    /// [`Fatal::Violation`].
    pub(in crate::sdp) fn end_received(&self) -> Result<(), Fatal> {
        match &self.adverts.sources {
            Some(sources) => Ok(sources.reader.on_disconn()?),
            None => Ok(()),
        }
    }

    /// The peer advertises memory. In the stream the memory comes behind the `payload` bytes of the
    /// message.
    ///
    /// # Errors
    ///
    /// [`Fatal::Violation`], [`Fatal::NoMemory`].
    pub(in crate::sdp) fn advert_received(
        &mut self,
        payload: u32,
        len: u32,
        rkey: u32,
        addr: u64,
    ) -> Result<(), Fatal> {
        self.event_received();
        // It was checked before that both sides agreed on source adverts.
        let sources = self
            .adverts
            .sources_or_new(self.flags)
            .ok_or(Fatal::NoMemory)?;
        sources.reader.on_advert(payload, len, rkey, addr)?;
        let stats = self.sock.stats;
        self.measured.counts.add(stats, Kept::AdvertReceived, 1);
        Ok(())
    }

    /// The peer has read `bytes` bytes of our oldest advert. `invalidated` is the key that the
    /// message has invalidated, if any.
    ///
    /// # Errors
    ///
    /// [`Fatal::Violation`].
    pub(in crate::sdp) fn read_reported(
        &mut self,
        bytes: u32,
        invalidated: Option<u32>,
    ) -> Result<(), Fatal> {
        let Some(sources) = self.adverts.sources_or_new(self.flags) else {
            return Err(Violation::UnexpectedMid.into());
        };
        let kind = sources.adverts.iter().next().map(|oldest| oldest.kind);
        let progress = sources.adverts.on_read_completion(bytes)?;
        if kind == Some(Kind::Synchronous) {
            sources.read_bytes += bytes as usize;
        }
        let (sk, stats) = (self.sock.sk(), self.sock.stats);
        self.measured.pacing.pace.deliver(bytes);
        let counts = &mut self.measured.counts;
        counts.add(stats, Kept::TxZcopyBytes, bytes.into());
        if kind == Some(Kind::Asynchronous) {
            sk.wmem_uncharge(bytes);
        }
        match progress {
            Progress::Partly { .. } if invalidated.is_some() => {
                Err(Violation::WrongKeyInvalidated.into())
            }
            Progress::Partly { .. } => Ok(()),
            Progress::Consumed(ended) => {
                counts.add(stats, Kept::AdvertConsumed, 1);
                trace::advert_completed(sk, traced(ended.len, ended.read));
                counts.add_end_of(&ended.owner, self.flags);
                self.advert_ended(ended.owner.region, invalidated)
            }
        }
    }

    /// The peer has answered our cancel.
    ///
    /// # Errors
    ///
    /// [`Fatal::Violation`].
    // Not inlined: otherwise the list would be in the stack frame of the function that handles
    // every message.
    #[inline(never)]
    pub(in crate::sdp) fn cancel_answered(&mut self) -> Result<(), Fatal> {
        let mut ended = [None; ADVERTS];
        let mut free = ended.iter_mut();
        let Some(sources) = self.adverts.sources_or_new(self.flags) else {
            return Err(Violation::UnexpectedMid.into());
        };
        sources.adverts.on_send_sm(|advert| {
            if let Some(place) = free.next() {
                *place = Some((advert.owner, traced(advert.len, advert.read)));
            }
        })?;
        let (sk, stats) = (self.sock.sk(), self.sock.stats);
        stats.inc(Counter::CancelAnswered);
        for (posted, advert) in ended.into_iter().flatten() {
            let counts = &mut self.measured.counts;
            counts.add(stats, Kept::AdvertCancelled, 1);
            trace::advert_cancelled(sk, advert);
            counts.add_end_of(&posted, self.flags);
            self.advert_ended(posted.region, None)?;
        }
        sk.wake_waiters();
        Ok(())
    }

    /// An advert of ours has ended: its key is invalidated, and then the send takes its memory
    /// back.
    fn advert_ended(&mut self, region: RegionId, invalidated: Option<u32>) -> Result<(), Fatal> {
        let Some(link) = &mut *self.link else {
            return Ok(());
        };
        match invalidated {
            None => link.condemn_region(region),
            Some(key) if link.region(region).is_some_and(|r| r.key == key) => {
                link.region_died(region);
                self.sock.stats.inc(Counter::MrInvalidatedByPeer);
            }
            Some(_) => return Err(Violation::WrongKeyInvalidated.into()),
        }
        self.reclaim().region_is_free();
        Ok(())
    }
}
