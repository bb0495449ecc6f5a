// SPDX-License-Identifier: GPL-2.0

//! The transfer rates of a connection.

use kernel::time::{
    ClockSource,
    Jiffies,
    Monotonic, //
};

use crate::kern::time::now;
use crate::proto::credits::Credits;
use crate::proto::pace::{
    Doing,
    Micros,
    Pace, //
};

pub(in crate::sdp) fn now_us() -> Micros {
    Monotonic::ktime_get().unsigned_abs() / 1000
}

pub(crate) struct Pacing {
    pub(in crate::sdp) pace: Pace,
    /// When a message with payload was last sent and last received, in jiffies.
    pub(in crate::sdp) sent_at: Jiffies,
    pub(in crate::sdp) received_at: Jiffies,
}

impl Pacing {
    pub(in crate::sdp) fn new() -> Self {
        Self {
            pace: Pace::default(),
            sent_at: now(),
            received_at: now(),
        }
    }

    /// Records that the message with the number `mseq` was posted.
    pub(in crate::sdp) fn posted(&mut self, mseq: u32, payload: u32) {
        if payload > 0 {
            self.sent_at = now();
        }
        if self.pace.wants_sample() {
            self.pace.posted(mseq, now_us());
        }
    }

    /// Records that the peer has acknowledged messages.
    pub(in crate::sdp) fn acknowledged(&mut self, credits: &Credits) {
        let awaited = self.pace.awaited();
        if awaited.is_some_and(|mseq| credits.has_acked(mseq)) {
            self.pace.acknowledged(now_us());
        }
    }

    /// Records what the sender waits for now.
    pub(in crate::sdp) fn does(&mut self, doing: Doing) {
        if self.pace.changes(doing) {
            self.pace.does(doing, now_us());
        }
    }
}
