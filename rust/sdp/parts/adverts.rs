// SPDX-License-Identifier: GPL-2.0

//! What both sides of a connection agreed on, and their adverts.

use kernel::alloc::Flags;
use kernel::prelude::*;
use kernel::time::Delta;

use super::sink::{
    Events,
    Sinks, //
};
use super::source::{
    Returned,
    ZeroCopy, //
};
use crate::inet::sock::Sk;
use crate::proto::hello::Features;
use crate::proto::source::{
    self,
    Kind, //
};
use crate::proto::trial::Trials;

/// What both sides must have agreed on for sink adverts.
const SINK_NEEDS: Features = Features::SINK.union(Features::ORDERED);

pub(crate) struct Adverts {
    /// What both sides agreed on.
    pub(in crate::sdp) features: Features,
    /// Adverts of each kind that may be out to the peer at a time.
    pub(in crate::sdp) peer_most: u8,
    /// Those of the peer that we hold at a time.
    pub(in crate::sdp) own_most: u8,
    /// From the first advert on, of either side.
    pub(in crate::sdp) zcopy: Option<KBox<ZeroCopy>>,
    /// From the first sink advert on, of either side.
    pub(in crate::sdp) sinks: Option<KBox<Sinks>>,
    /// Before that.
    pub(in crate::sdp) events: Events,
    /// The record of which way sends are faster, from the first send on whose time is measured.
    pub(in crate::sdp) trials: Option<KBox<Trials>>,
    /// An advert waits for credits, for places, or for what is in the send queue.
    pub(in crate::sdp) waits: bool,
}

impl Adverts {
    /// None, of sides that agreed on these features. No more of ours are out than we hold ourselves: that
    /// is the bound that the administrator sets.
    pub(in crate::sdp) fn new(features: Features, peer_holds: u8, own_most: u8) -> Self {
        Self {
            features,
            peer_most: peer_holds.min(own_most),
            own_most,
            zcopy: None,
            sinks: None,
            events: Events::new(),
            trials: None,
            waits: false,
        }
    }

    /// What is known of source adverts, from the first one on; `None` if there can be none, or no memory.
    pub(in crate::sdp) fn source(&mut self, flags: Flags) -> Option<&mut ZeroCopy> {
        if self.zcopy.is_none() && self.features.contains(Features::SOURCE) {
            self.make_source(flags);
        }
        self.zcopy.as_deref_mut()
    }

    #[cold]
    fn make_source(&mut self, flags: Flags) {
        let zcopy = ZeroCopy::new(self.peer_most, self.own_most, self.features);
        self.zcopy = KBox::new(zcopy, flags).ok();
    }

    /// The same of sink adverts.
    pub(in crate::sdp) fn sink(&mut self, flags: Flags) -> Option<&mut Sinks> {
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

    /// The last receive that has returned before its bytes were there, until it is known whether this
    /// was worth its cost.
    pub(in crate::sdp) fn returned(&mut self) -> Option<&mut Returned> {
        self.zcopy.as_mut()?.returned.as_mut()
    }

    /// A receive has posted a Read for which it does not wait, and to take the pages took so long.
    pub(in crate::sdp) fn note_early(&mut self, taking: Delta) {
        let Some(zcopy) = &mut self.zcopy else {
            return;
        };
        let returned = zcopy.returned.get_or_insert_with(Returned::new);
        returned.posts(taking);
    }

    /// It is known whether the receive that has returned early was worth its cost.
    pub(in crate::sdp) fn note_worth(&mut self, worth: bool) {
        if let Some(zcopy) = &mut self.zcopy {
            zcopy.returned = None;
            zcopy.early_use.on_transfer(1, (!worth).into());
        }
    }

    /// Says whether somebody waits to advertise, so that it is woken by what makes room.
    pub(in crate::sdp) fn set_waits(&mut self, waits: bool, sk: Sk) {
        if core::mem::replace(&mut self.waits, waits) && !waits {
            // Others may wait, too: they say so again.
            sk.wake_waiters();
        }
    }

    /// Whether a message that takes adverts back waits to be sent.
    pub(in crate::sdp) fn is_cancel_due(&self) -> bool {
        self.zcopy.as_ref().is_some_and(|z| z.cancel_due)
            || self.sinks.as_ref().is_some_and(|s| s.cancel_due)
    }

    /// Whether payload other than adverts may be sent now, or the end of the stream.
    pub(in crate::sdp) fn may_send_payload(&self) -> bool {
        self.payload_hold().is_none()
    }

    /// What such payload must wait for.
    pub(in crate::sdp) fn payload_hold(&self) -> Option<source::Hold> {
        let zcopy = self.zcopy.as_ref()?;
        zcopy.source.may_send_payload().err()
    }

    /// Bytes of the peer's first advert for which no Read was posted; 0 if there are none.
    pub(in crate::sdp) fn untaken(&self) -> u32 {
        self.zcopy.as_ref().map_or(0, |z| z.hold.untaken())
    }

    /// Whether bytes of the stream are still in the peer's memory, or behind such.
    pub(in crate::sdp) fn holds(&self) -> bool {
        let zcopy = &self.zcopy;
        zcopy.as_ref().is_some_and(|z| !z.hold.is_empty())
    }

    /// Whether the peer waits for an answer about its adverts, or for them to be read.
    pub(in crate::sdp) fn owes_answers(&self) -> bool {
        let zcopy = &self.zcopy;
        zcopy.as_ref().is_some_and(|z| !z.reader.is_idle()) || self.owes_sink_answers()
    }

    /// Whether the peer waits for an answer that can be sent.
    fn owes_sink_answers(&self) -> bool {
        let sinks = &self.sinks;
        sinks.as_ref().is_some_and(|s| s.writer.has_answer())
    }

    /// Whether the peer has not read all of our adverts.
    pub(in crate::sdp) fn awaits_reads(&self) -> bool {
        let zcopy = &self.zcopy;
        zcopy.as_ref().is_some_and(|z| !z.source.is_idle())
    }

    /// Bytes of our adverts that the peer has not read, as far as it has said so: of those for which
    /// a send waits. The others are in the send buffer.
    pub(in crate::sdp) fn unread_bytes(&self) -> u32 {
        let left = |z: &KBox<ZeroCopy>| {
            let waiting = z.source.iter().filter(|a| a.kind == Kind::Synchronous);
            waiting.map(|a| a.len - a.read).sum()
        };
        self.zcopy.as_ref().map_or(0, left)
    }

    /// Data with payload, or a source advert, is sent; `false` if a sink advert of the peer was not answered
    /// before.
    pub(in crate::sdp) fn note_payload_sent(&mut self) -> bool {
        match &mut self.sinks {
            Some(sinks) => sinks.writer.note_payload(),
            None => {
                self.events.sent.note();
                true
            }
        }
    }
}
