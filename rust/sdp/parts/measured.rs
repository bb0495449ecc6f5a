// SPDX-License-Identifier: GPL-2.0

//! The measurements of a connection.

use super::counts::Counts;
use super::pacing::Pacing;
use crate::kern::time::now;
use crate::stats::counters::Stats;
use crate::stats::tally::Kept;

pub(crate) struct Measured {
    pub(in crate::sdp) pacing: Pacing,
    pub(in crate::sdp) counts: Counts,
}

impl Measured {
    pub(in crate::sdp) fn new() -> Self {
        Self {
            pacing: Pacing::new(),
            counts: Counts::new(),
        }
    }

    /// Records that bytes of the stream have arrived.
    pub(in crate::sdp) fn data_received(&mut self, stats: Stats, bytes: u32) {
        self.pacing.received_at = now();
        self.counts.add(stats, Kept::RxBytes, bytes.into());
    }
}
