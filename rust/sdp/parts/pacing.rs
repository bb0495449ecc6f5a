// SPDX-License-Identifier: GPL-2.0

//! How fast a connection's bytes go and come.

use crate::kern::time::now;
use crate::proto::pace::Pace;

pub(crate) struct Pacing {
    pub(in crate::sdp) pace: Pace,
    /// When a message with payload was sent last, and received, in jiffies.
    pub(in crate::sdp) sent_at: usize,
    pub(in crate::sdp) received_at: usize,
}

impl Pacing {
    pub(in crate::sdp) fn new() -> Self {
        Self {
            pace: Pace::default(),
            sent_at: now(),
            received_at: now(),
        }
    }
}
