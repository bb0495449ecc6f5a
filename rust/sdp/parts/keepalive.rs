// SPDX-License-Identifier: GPL-2.0

//! What is known of a peer that sends nothing.

use crate::kern::time::{
    ms_since,
    now, //
};

/// What the timer knows; times are of [`now`].
#[derive(Copy, Clone, Default)]
pub(crate) struct Keepalive {
    /// When the last message was received.
    pub(in crate::sdp) heard: usize,
    /// When the request was posted that is not acknowledged.
    pub(in crate::sdp) probed: Option<usize>,
    /// How often the timer has found it so since.
    pub(in crate::sdp) unanswered: u32,
}

impl Keepalive {
    /// Something was received.
    pub(in crate::sdp) fn on_receive(&mut self) {
        self.heard = now();
    }

    /// The peer's adapter has acknowledged the request.
    pub(in crate::sdp) fn on_answer(&mut self) {
        if let Some(at) = self.probed.take() {
            if self.last_heard_before(at) {
                self.heard = at;
            }
        }
        self.unanswered = 0;
    }

    /// Probes that were not answered.
    pub(in crate::sdp) fn unanswered(&self) -> u8 {
        u8::try_from(self.unanswered).unwrap_or(u8::MAX)
    }

    /// For how many milliseconds nothing was received.
    pub(in crate::sdp) fn silent_ms(&self) -> u32 {
        ms_since(self.heard)
    }

    pub(in crate::sdp) fn last_heard_before(&self, time: usize) -> bool {
        (self.heard.wrapping_sub(time) as isize) < 0
    }
}

/// The milliseconds of an option, which has at most 32767 seconds.
pub(in crate::sdp) fn ms(seconds: i32) -> u32 {
    seconds.unsigned_abs().saturating_mul(1000)
}
