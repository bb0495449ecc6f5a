// SPDX-License-Identifier: GPL-2.0

//! The times of a connection's sends.

use kernel::time::{
    Delta,
    Instant,
    Monotonic, //
};

use crate::proto::trial::{
    Call,
    Trials,
    Way, //
};

/// The record of which way is the fastest for sends.
pub(in crate::sdp) struct Timing {
    trials: Trials,
    /// The last call and its end. The time until the next call belongs to it.
    last: Option<(Call, Instant<Monotonic>)>,
}

impl Timing {
    pub(in crate::sdp) const fn new() -> Self {
        Self {
            trials: Trials::new(),
            last: None,
        }
    }

    /// As [`Trials::way`].
    pub(in crate::sdp) fn way(&self, bytes: u64, may_wait: bool) -> Way {
        self.trials.way(bytes, may_wait)
    }

    /// Records a call, whose time (`ns`) is set here. The time between calls belongs to the call
    /// before, also if calls between them have sent nothing.
    pub(in crate::sdp) fn record(
        &mut self,
        mut call: Call,
        began: Instant<Monotonic>,
        ended: Instant<Monotonic>,
    ) {
        let ns = |delta: Delta| delta.as_nanos().try_into().unwrap_or(0);
        call.ns = ns(ended - began);
        if let Some((last, last_ended)) = self.last.take() {
            // Calls of several threads overlap, and wait for each other: each nanosecond counts
            // once.
            call.ns = call.ns.min(ns(ended - last_ended));
            self.trials.on_send(&last, ns(began - last_ended));
        }
        self.last = Some((call, ended));
    }
}
