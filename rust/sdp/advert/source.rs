// SPDX-License-Identifier: GPL-2.0

//! Source adverts: the messages about them.

use kernel::prelude::*;

use crate::params::ADVERTS;
use crate::proto::bsdh::Class;
use crate::proto::fallback::Fallback;
use crate::proto::hello::Features;
use crate::proto::message::Body;
use crate::proto::sink::{
    Answer,
    SourceReader, //
};
use crate::proto::source::{
    Kind,
    Progress,
    SourceAdverts, //
};
use crate::proto::violation::Violation;
use crate::rdma::link::{
    Tag,
    With, //
};
use crate::rdma::mr::RegionId;
use crate::sdp::conn::guard::SockGuard;
use crate::sdp::parts::hold::Hold;
use crate::sdp::parts::source::{
    source,
    ZeroCopy, //
};
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;
use crate::trace;

impl SockGuard<'_> {
    /// What is known of adverts, from the first one on; `None` if there can be none, or no memory.
    pub(in crate::sdp) fn with_adverts(&mut self) -> Option<&mut ZeroCopy> {
        let (_, flags) = self.gfp();
        let conn = self.conn();
        if conn.adverts.zcopy.is_none() && conn.adverts.features.contains(Features::SOURCE) {
            let zcopy = ZeroCopy {
                source: SourceAdverts::new(conn.adverts.peer_most, conn.adverts.features),
                reader: SourceReader::new(conn.adverts.own_most, conn.adverts.features),
                hold: Hold::new(),
                fallback: Fallback::new(),
                early_fallback: Fallback::new(),
                early_use: Fallback::new(),
                returned_early: false,
                early_ends: false,
                cancel_due: false,
                read_bytes: 0,
                pull_now: None,
                pull_later: false,
                reader_came: false,
                pull_renewed: false,
                direct_bytes: 0,
            };
            conn.adverts.zcopy = KBox::new(zcopy, flags).ok();
        }
        conn.adverts.zcopy.as_deref_mut()
    }

    /// A message of the stream, with `payload` bytes, is the next after what the adverts hold.
    pub(in crate::sdp) fn note_payload(&mut self, payload: u32) -> Result<(), Violation> {
        if payload > 0 {
            self.event_received();
        }
        match &mut self.conn().adverts.zcopy {
            Some(zcopy) => zcopy.reader.on_data(payload),
            None => Ok(()),
        }
    }

    /// The peer's half of the stream ends here.
    pub(in crate::sdp) fn note_end(&mut self) -> Result<(), Violation> {
        match &self.conn().adverts.zcopy {
            Some(zcopy) => zcopy.reader.on_disconn(),
            None => Ok(()),
        }
    }

    /// The peer advertises memory, behind `payload` bytes of the message.
    pub(in crate::sdp) fn advert_received(
        &mut self,
        payload: u32,
        len: u32,
        rkey: u32,
        addr: u64,
    ) -> Result<(), Violation> {
        self.event_received();
        let Some(zcopy) = self.with_adverts() else {
            // That they agreed on adverts was checked before: there is no memory.
            self.lost_bytes();
            return Ok(());
        };
        zcopy.reader.on_advert(payload, len, rkey, addr)?;
        self.count(Kept::AdvertReceived, 1);
        Ok(())
    }

    /// The peer has read bytes of our adverts; the message has made a key invalid.
    pub(in crate::sdp) fn read_reported(
        &mut self,
        bytes: u32,
        invalidated: Option<u32>,
    ) -> Result<(), Violation> {
        let Some(zcopy) = self.with_adverts() else {
            return Err(Violation::UnexpectedMid);
        };
        let kind = zcopy.source.iter().next().map(|oldest| oldest.kind);
        let progress = zcopy.source.on_read_completion(bytes)?;
        if kind == Some(Kind::Synchronous) {
            zcopy.read_bytes += bytes as usize;
        }
        self.conn().measured.pacing.pace.deliver(bytes);
        self.count(Kept::TxZcopyBytes, bytes.into());
        if kind == Some(Kind::Asynchronous) {
            self.sk().wmem_uncharge(bytes);
        }
        match progress {
            Progress::Partly { .. } if invalidated.is_some() => Err(Violation::WrongKeyInvalidated),
            Progress::Partly { .. } => Ok(()),
            Progress::Consumed(ended) => {
                self.count(Kept::AdvertConsumed, 1);
                trace::advert_completed(self.sk(), source(ended.len, ended.read));
                self.note_end_of(&ended.owner);
                self.advert_ended(ended.owner.region, invalidated)
            }
        }
    }

    /// The peer has answered our cancel.
    pub(in crate::sdp) fn cancel_answered(&mut self) -> Result<(), Violation> {
        let mut ended = [None; ADVERTS];
        let mut free = ended.iter_mut();
        let Some(zcopy) = self.with_adverts() else {
            return Err(Violation::UnexpectedMid);
        };
        zcopy.source.on_send_sm(|advert| {
            if let Some(place) = free.next() {
                *place = Some((advert.owner, source(advert.len, advert.read)));
            }
        })?;
        self.stats.inc(Counter::CancelAnswered);
        for (posted, advert) in ended.into_iter().flatten() {
            self.count(Kept::AdvertCancelled, 1);
            trace::advert_cancelled(self.sk(), advert);
            self.note_end_of(&posted);
            self.advert_ended(posted.region, None)?;
        }
        self.sk().wake_waiters();
        Ok(())
    }

    /// An advert of ours has ended: its key dies, and then the send takes its memory back.
    fn advert_ended(
        &mut self,
        region: RegionId,
        invalidated: Option<u32>,
    ) -> Result<(), Violation> {
        let Some(link) = &mut self.conn().link else {
            return Ok(());
        };
        match invalidated {
            None => link.condemn_region(region),
            Some(key) if link.region(region).is_some_and(|r| r.key == key) => {
                link.region_died(region);
                self.stats.inc(Counter::MrInvalidatedByPeer);
            }
            Some(_) => return Err(Violation::WrongKeyInvalidated),
        }
        self.region_is_free();
        self.finish_if_drained();
        Ok(())
    }

    /// Sends what is due about source adverts: reports, the answer to a cancel, a cancel of ours.
    pub(in crate::sdp) fn flush_adverts(&mut self) {
        while self.may_post(Class::Control, 1) {
            // Where the rest may take long, the sender shall see that there is progress.
            let starved = self.glance.starved.get();
            let conn = self.conn();
            let Some(zcopy) = &mut conn.adverts.zcopy else {
                return;
            };
            let (body, with) = match zcopy.reader.next_answer(starved) {
                Some(Answer::ReadCompletion { bytes, invalidate }) => {
                    let key = invalidate.map_or(With::Nothing, With::Invalidation);
                    (Body::RdmaRdCompl { bytes }, key)
                }
                Some(Answer::SendSm) => (Body::SendSm, With::Nothing),
                None => break,
            };
            let remote = self.conn().adverts.features.contains(Features::REMOTE_INV);
            let with = if remote { with } else { With::Nothing };
            if !self.post_with(body, &mut [], 0, Tag::Answer, with) {
                return;
            }
        }
        let zcopy = &mut self.conn().adverts.zcopy;
        if zcopy.as_ref().is_some_and(|z| z.cancel_due)
            && self.post_with(
                Body::SrcAvailCancel,
                &mut [],
                0,
                Tag::Control,
                With::Nothing,
            )
        {
            self.stats.inc(Counter::CancelSent);
            if let Some(zcopy) = &mut self.conn().adverts.zcopy {
                zcopy.cancel_due = false;
            }
        }
    }
}
