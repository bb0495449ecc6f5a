// SPDX-License-Identifier: GPL-2.0

//! The features that both sides of a connection agreed on, and the adverts of both sides.

use kernel::alloc::Flags;
use kernel::prelude::*;

use super::sink::{
    Events,
    Sinks, //
};
use super::source::{
    EarlyReturn,
    Sources, //
};
use crate::inet::sock::Sk;
use crate::proto::advert::Id;
use crate::proto::choice::SINK_NEEDS;
use crate::proto::hello::Features;
use crate::proto::pause::Overlap;
use crate::proto::source::{
    self,
    Kind, //
};
use crate::proto::trial::Trials;

/// Permits one message of the stream: all sink adverts of the peer were answered before it (rule S3
/// of the protocol). Only [`Adverts::payload_permit`] gives it, so a message of the stream that is
/// sent before the answers does not compile.
#[must_use]
pub(in crate::sdp) struct PayloadPermit(());

pub(crate) struct Adverts {
    /// The features that both sides agreed on.
    pub(in crate::sdp) features: Features,
    /// The maximum number of this side's outstanding adverts of each kind.
    pub(in crate::sdp) peer_most: u8,
    /// The maximum number of the peer's outstanding adverts of each kind.
    pub(in crate::sdp) own_most: u8,
    /// Exists from the first source advert of either side on.
    pub(in crate::sdp) sources: Option<KBox<Sources>>,
    /// Exists from the first sink advert of either side on.
    pub(in crate::sdp) sinks: Option<KBox<Sinks>>,
    /// The payload events before the first sink advert.
    pub(in crate::sdp) events: Events,
    /// Exists from the first measured send on.
    pub(in crate::sdp) trials: Option<KBox<Trials>>,
    /// An advert waits for credits, for places, or for the bytes in the send queue.
    pub(in crate::sdp) waits: bool,
}

impl Adverts {
    /// No adverts, between sides that agreed on these features. This side has no more adverts out
    /// than it can hold itself, because that is the administrator's limit.
    pub(in crate::sdp) fn new(features: Features, peer_holds: u8, own_most: u8) -> Self {
        Self {
            features,
            peer_most: peer_holds.min(own_most),
            own_most,
            sources: None,
            sinks: None,
            events: Events::new(),
            trials: None,
            waits: false,
        }
    }

    /// Whether either side has used adverts.
    pub(in crate::sdp) fn are_used(&self) -> bool {
        self.sources.is_some() || self.sinks.is_some()
    }

    /// The state of source adverts, created at the first call. `None` if the sides have not agreed
    /// on source adverts, or if there is no memory.
    pub(in crate::sdp) fn sources_or_new(&mut self, flags: Flags) -> Option<&mut Sources> {
        if self.sources.is_none() && self.features.contains(Features::SOURCE) {
            self.make_source(flags);
        }
        self.sources.as_deref_mut()
    }

    #[cold]
    fn make_source(&mut self, flags: Flags) {
        let sources = Sources::new(self.peer_most, self.own_most, self.features);
        self.sources = KBox::new(sources, flags).ok();
    }

    /// The state of sink adverts, created at the first call. `None` if the sides have not agreed on
    /// sink adverts, or if there is no memory.
    pub(in crate::sdp) fn sinks_or_new(&mut self, flags: Flags) -> Option<&mut Sinks> {
        if self.sinks.is_none() && self.features.contains(SINK_NEEDS) {
            self.make_sink(flags);
        }
        self.sinks.as_deref_mut()
    }

    #[cold]
    fn make_sink(&mut self, flags: Flags) {
        let sinks = Sinks::new(self.peer_most, self.own_most, self.features, self.events);
        self.sinks = KBox::new(sinks, flags).ok();
    }

    /// The last receive that has returned before its bytes arrived, until it is known whether the
    /// early return was worth its cost.
    pub(in crate::sdp) fn early_return(&mut self) -> Option<&mut EarlyReturn> {
        self.sources.as_mut()?.early_return.as_mut()
    }

    /// As [`Adverts::early_return`], and forgets the receive.
    pub(in crate::sdp) fn take_early_return(&mut self) -> Option<EarlyReturn> {
        self.sources.as_mut()?.early_return.take()
    }

    /// Records a receive that returns before its bytes have arrived.
    pub(in crate::sdp) fn set_early_return(&mut self, returned: EarlyReturn) {
        if let Some(sources) = &mut self.sources {
            sources.early_return = Some(returned);
        }
    }

    /// Records how much time a receive that took pages away gave the program.
    pub(in crate::sdp) fn note_overlap(&mut self, overlap: Overlap) {
        if let Some(sources) = &mut self.sources {
            sources.overlap_pause.on_receive(overlap);
        }
    }

    /// Records whether a call waits to advertise, so that it is woken when there is room.
    pub(in crate::sdp) fn set_waits(&mut self, waits: bool, sk: Sk) {
        if core::mem::replace(&mut self.waits, waits) && !waits {
            // Other calls may also be waiting: each sets the flag again.
            sk.wake_waiters();
        }
    }

    /// Whether a message that cancels adverts waits to be sent.
    pub(in crate::sdp) fn is_cancel_due(&self) -> bool {
        let (sources, sinks) = (self.sources.as_ref(), self.sinks.as_ref());
        sources.is_some_and(|s| s.adverts.is_cancel_due())
            || sinks.is_some_and(|s| s.adverts.is_cancel_due())
    }

    /// Whether payload other than adverts may be sent now, or DisConn.
    pub(in crate::sdp) fn may_send_payload(&self) -> bool {
        self.payload_blocked_by().is_none()
    }

    /// The reason why payload other than adverts must wait.
    pub(in crate::sdp) fn payload_blocked_by(&self) -> Option<source::NotYet> {
        let sources = self.sources.as_ref()?;
        sources.adverts.may_send_payload().err()
    }

    /// Bytes of the peer's first advert for which no Read was posted; 0 if there are none.
    pub(in crate::sdp) fn untaken(&self) -> u32 {
        self.sources.as_ref().map_or(0, |s| s.reader.untaken())
    }

    /// Whether there are bytes of the stream that are still in the peer's memory, or that arrived
    /// after such bytes.
    pub(in crate::sdp) fn holds(&self) -> bool {
        let sources = &self.sources;
        sources
            .as_ref()
            .is_some_and(|s| s.reader.last_unread().is_some() || !s.hold.is_empty())
    }

    /// [`SourceReader::last_unread`](crate::proto::source_reader::SourceReader::last_unread).
    pub(in crate::sdp) fn last_unread(&self) -> Option<Id> {
        self.sources.as_ref()?.reader.last_unread()
    }

    /// Whether the peer waits for an answer about its adverts, or for them to be read.
    pub(in crate::sdp) fn owes_answers(&self) -> bool {
        let sources = &self.sources;
        sources.as_ref().is_some_and(|s| !s.reader.is_idle()) || self.owes_sink_answers()
    }

    /// Whether the peer waits for an answer about its sink adverts that can be sent.
    fn owes_sink_answers(&self) -> bool {
        let sinks = &self.sinks;
        sinks.as_ref().is_some_and(|s| s.writer.has_answer())
    }

    /// Whether there are adverts of this side that the peer has not read completely.
    pub(in crate::sdp) fn awaits_reads(&self) -> bool {
        let sources = &self.sources;
        sources.as_ref().is_some_and(|s| !s.adverts.is_idle())
    }

    /// Bytes of this side's adverts that the peer has not reported as read. Only adverts for which
    /// a send waits count; the bytes of the others are charged to the send buffer.
    pub(in crate::sdp) fn unread_bytes(&self) -> u32 {
        let left = |s: &KBox<Sources>| {
            let waiting = s.adverts.iter().filter(|a| a.kind == Kind::Synchronous);
            waiting.map(|a| a.len - a.read).sum()
        };
        self.sources.as_ref().map_or(0, left)
    }

    /// The permit for the next message of the stream; `None` if a sink advert of the peer was not
    /// answered yet.
    pub(in crate::sdp) fn payload_permit(&self) -> Option<PayloadPermit> {
        let answered = self.sinks.as_ref().is_none_or(|s| s.writer.is_idle());
        answered.then_some(PayloadPermit(()))
    }

    /// Records that a payload event is sent; returns `false` if a sink advert of the peer has come
    /// since the permit was given.
    pub(in crate::sdp) fn note_event_sent(&mut self, _permit: PayloadPermit) -> bool {
        match &mut self.sinks {
            Some(sinks) => sinks.writer.note_payload(),
            None => {
                self.events.sent.note();
                true
            }
        }
    }
}
