// SPDX-License-Identifier: GPL-2.0

//! The times of a connection's sends.

use kernel::time::{
    Delta,
    Instant,
    Monotonic, //
};

use crate::proto::choice::Path;
use crate::proto::trial::{
    Call,
    Times,
    Trials, //
};

/// Measures which path is the fastest for the sends of a connection.
pub(in crate::sdp) struct Timing {
    trials: Trials,
    last: Option<Last>,
}

/// The last call. It is recorded when the next call is known, because its time includes the time
/// until the next call.
struct Last {
    call: Call,
    call_ns: u64,
    ended: Instant<Monotonic>,
}

impl Timing {
    pub(in crate::sdp) const fn new() -> Self {
        Self {
            trials: Trials::new(),
            last: None,
        }
    }

    /// As [`Trials::path`].
    pub(in crate::sdp) fn path(&self, bytes: u64, may_wait: bool) -> Path {
        self.trials.path(bytes, may_wait)
    }

    /// Records a call that has sent bytes. The time between two such calls belongs to the first
    /// one, even if other calls between them have sent nothing.
    pub(in crate::sdp) fn record(
        &mut self,
        call: Call,
        began: Instant<Monotonic>,
        ended: Instant<Monotonic>,
    ) {
        let ns = |delta: Delta| delta.as_nanos().try_into().unwrap_or(0);
        let mut call_ns: u64 = ns(ended - began);
        if let Some(last) = self.last.take() {
            // Calls of several threads overlap, and wait for each other. Count each nanosecond
            // once.
            call_ns = call_ns.min(ns(ended - last.ended));
            let times = Times {
                call_ns: last.call_ns,
                gap_ns: ns(began - last.ended),
            };
            self.trials.on_send(&last.call, times);
        }
        self.last = Some(Last {
            call,
            call_ns,
            ended,
        });
    }
}
