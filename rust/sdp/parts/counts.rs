// SPDX-License-Identifier: GPL-2.0

//! The counts of a connection, which are updated together with its namespace's and the trace
//! events.

use kernel::alloc::Flags;
use kernel::prelude::*;

use super::posted::Posted;
use crate::inet::sock::Sk;
use crate::proto::bsdh::Bsdh;
use crate::proto::choice::Reason;
use crate::stats::counters::Stats;
use crate::stats::histogram::{
    Histograms,
    Messages,
    Noted, //
};
use crate::stats::tally::{
    Kept,
    Tally, //
};
use crate::trace;

pub(crate) struct Counts {
    pub(in crate::sdp) tally: Tally,
    /// Exist from the first send or advert on.
    pub(in crate::sdp) histograms: Option<KBox<Histograms>>,
    /// The last messages, if their recording was requested.
    pub(in crate::sdp) messages: Option<Messages>,
}

impl Counts {
    pub(in crate::sdp) fn new() -> Self {
        Self {
            tally: Tally::new(),
            histograms: None,
            messages: None,
        }
    }

    /// Counts for the connection and for its namespace, whose counters are `stats`.
    pub(in crate::sdp) fn add(&mut self, stats: Stats, what: Kept, n: u64) {
        stats.add_kept(what, n);
        self.tally.add(what, n);
    }

    /// Counts and traces a sent message with `payload` bytes of payload; `credits` are left.
    pub(in crate::sdp) fn add_sent(
        &mut self,
        (sk, stats): (Sk, Stats),
        header: &Bsdh,
        payload: u32,
        credits: u32,
    ) {
        self.tally.add_sent(header.mid);
        if let Some(messages) = &mut self.messages {
            messages.add(Noted::new(header, true, payload, credits));
        }
        stats.sent(header.mid);
        trace::sent(sk, header, payload, credits);
    }

    /// As [`Counts::add_sent`], for a received message.
    pub(in crate::sdp) fn add_received(
        &mut self,
        (sk, stats): (Sk, Stats),
        header: &Bsdh,
        payload: u32,
        credits: u32,
    ) {
        self.tally.add_received(header.mid);
        if let Some(messages) = &mut self.messages {
            messages.add(Noted::new(header, false, payload, credits));
        }
        stats.received(header.mid);
        trace::received(sk, header, payload, credits);
    }

    /// Counts and traces bytes that did not go the preferred way: for example, a send went by copy,
    /// or a receive waited in its call.
    pub(in crate::sdp) fn add_by_copy(&mut self, (sk, stats): (Sk, Stats), why: Reason) {
        stats.by_copy(why);
        trace::by_copy(sk, why);
        self.tally.add_by_copy(why);
    }

    /// The histograms, created at the first call; `None` without memory.
    pub(in crate::sdp) fn histograms(&mut self, flags: Flags) -> Option<&mut Histograms> {
        if self.histograms.is_none() {
            self.histograms = KBox::new(Histograms::NONE, flags | __GFP_NOWARN).ok();
        }
        self.histograms.as_deref_mut()
    }

    /// Records that an advert of this side has ended.
    pub(in crate::sdp) fn add_end_of(&mut self, advert: &Posted, flags: Flags) {
        if let Some(histograms) = self.histograms(flags) {
            histograms.advert_us.add(advert.age_us());
        }
    }
}
