// SPDX-License-Identifier: GPL-2.0

//! What is counted for a connection by itself, and for its namespace and the trace events at once.

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
    /// From the first send, or advert, on.
    pub(in crate::sdp) histograms: Option<KBox<Histograms>>,
    /// The last messages, where somebody has asked for them.
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

    /// Counts, and traces, a message sent, with so many bytes of payload; `credits` are left.
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

    /// The same of a message received.
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

    /// The same of bytes that should have gone, or come, without a copy and did not.
    pub(in crate::sdp) fn add_fallback(&mut self, (sk, stats): (Sk, Stats), why: Reason) {
        stats.fallback(why);
        trace::fallback(sk, why);
        self.tally.add_by_copy(why);
    }

    /// The histograms, from the first value on; `None` without memory.
    pub(in crate::sdp) fn histograms(&mut self, flags: Flags) -> Option<&mut Histograms> {
        if self.histograms.is_none() {
            self.histograms = KBox::new(Histograms::NONE, flags | __GFP_NOWARN).ok();
        }
        self.histograms.as_deref_mut()
    }

    /// An advert of ours has ended.
    pub(in crate::sdp) fn add_end_of(&mut self, advert: &Posted, flags: Flags) {
        if let Some(histograms) = self.histograms(flags) {
            histograms.advert_us.add(advert.age_us());
        }
    }
}
