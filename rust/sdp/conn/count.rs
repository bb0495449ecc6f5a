// SPDX-License-Identifier: GPL-2.0

//! What is counted for a connection and for its namespace at once, and traced.

use super::sock::Locked;
use crate::kern::time::now;
use crate::proto::bsdh::Bsdh;
use crate::proto::choice::Reason;
use crate::stats::histogram::Noted;
use crate::stats::tally::Kept;
use crate::trace;

impl Locked<'_> {
    /// Counts for the connection and for its namespace.
    pub(crate) fn count(&mut self, what: Kept, n: u64) {
        self.stats.add_kept(what, n);
        self.stream().tally.add(what, n);
    }

    /// The same of bytes of the stream that have come.
    pub(in crate::sdp) fn count_data_received(&mut self, bytes: u32) {
        self.stream().data_received = now();
        self.count(Kept::RxBytes, bytes.into());
    }

    /// The same of a message sent, with so many bytes of payload.
    pub(crate) fn count_sent(&mut self, header: &Bsdh, payload: u32) {
        let stream = self.stream();
        let credits = stream.credits.available();
        stream.tally.add_sent(header.mid);
        if let Some(messages) = &mut stream.messages {
            messages.add(Noted::new(header, true, payload, credits));
        }
        self.stats.sent(header.mid);
        trace::sent(self.sk(), header, payload, credits);
    }

    /// The same of a message received.
    pub(crate) fn count_received(&mut self, header: &Bsdh, payload: u32) {
        let stream = self.stream();
        let credits = stream.credits.available();
        stream.tally.add_received(header.mid);
        if let Some(messages) = &mut stream.messages {
            messages.add(Noted::new(header, false, payload, credits));
        }
        self.stats.received(header.mid);
        trace::received(self.sk(), header, payload, credits);
    }

    /// The same of bytes that should have gone, or come, without a copy and did not.
    pub(crate) fn fallback(&mut self, why: Reason) {
        self.stats.fallback(why);
        trace::fallback(self.sk(), why);
        self.stream().tally.add_by_copy(why);
    }
}
