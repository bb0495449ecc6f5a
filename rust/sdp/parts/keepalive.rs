// SPDX-License-Identifier: GPL-2.0

//! The state of SO_KEEPALIVE. A probe is a request that the peer's adapter acknowledges
//! (`timers/keepalive`).

use kernel::time::Jiffies;

use super::options::Options;
use super::watchdog::LEAST_UNANSWERED_MS;
use crate::kern::time::{
    is_before,
    ms_since,
    now, //
};

/// What to do after the timer has expired.
pub(in crate::sdp) enum Next {
    /// Start the timer again, for this number of milliseconds.
    Wait(u32),
    /// Probe the peer's adapter.
    Probe,
    /// The peer is gone.
    GiveUp,
}

/// The state of the timer; times are of [`now`].
#[derive(Copy, Clone, Default)]
pub(crate) struct Keepalive {
    /// When the last message was received.
    pub(in crate::sdp) heard: Jiffies,
    /// When the probe was posted, while it is not acknowledged.
    pub(in crate::sdp) probed: Option<Jiffies>,
    /// How often the timer has expired since the probe without an acknowledgement.
    pub(in crate::sdp) unanswered: u32,
}

impl Keepalive {
    /// Records that something was received.
    pub(in crate::sdp) fn on_receive(&mut self) {
        self.heard = now();
    }

    /// Records that the peer's adapter has acknowledged the probe.
    pub(in crate::sdp) fn on_answer(&mut self) {
        if let Some(at) = self.probed.take() {
            if self.last_heard_before(at) {
                self.heard = at;
            }
        }
        self.unanswered = 0;
    }

    /// Decides what to do after the timer has expired. `others_look` says whether the transmit
    /// watchdog notices if the peer is gone.
    pub(in crate::sdp) fn look(&mut self, options: &Options, others_look: bool) -> Next {
        let keepidle_ms = ms(options.keepidle_s);
        if let Some(at) = self.probed {
            return if self.is_too_long(at, options) {
                Next::GiveUp
            } else {
                Next::Wait(ms(options.keepintvl_s))
            };
        }
        let left_ms = if others_look {
            keepidle_ms
        } else {
            keepidle_ms.saturating_sub(self.silent_ms())
        };
        match left_ms {
            0 => Next::Probe,
            left_ms => Next::Wait(left_ms),
        }
    }

    /// Whether the probe that was posted at the time `at` should have been acknowledged by now.
    fn is_too_long(&mut self, at: Jiffies, options: &Options) -> bool {
        if !self.last_heard_before(at) {
            // The peer has sent something since.
            self.unanswered = 0;
            return false;
        }
        self.unanswered += 1;
        let too_long = match options.user_timeout_ms.unsigned_abs() {
            0 => self.unanswered >= options.keepcnt.unsigned_abs(),
            limit_ms => self.silent_ms() >= limit_ms,
        };
        too_long && ms_since(at) >= LEAST_UNANSWERED_MS
    }

    /// Records that the probe was posted; returns how long the timer waits for the
    /// acknowledgement, in milliseconds.
    pub(in crate::sdp) fn on_probe(&mut self, options: &Options) -> u32 {
        (self.probed, self.unanswered) = (Some(now()), 0);
        ms(options.keepintvl_s)
    }

    /// The number of intervals without an acknowledgement, which TCP shows as unanswered probes.
    pub(in crate::sdp) fn unanswered(&self) -> u8 {
        u8::try_from(self.unanswered).unwrap_or(u8::MAX)
    }

    /// The time since something was last received, in milliseconds.
    pub(in crate::sdp) fn silent_ms(&self) -> u32 {
        ms_since(self.heard)
    }

    pub(in crate::sdp) fn last_heard_before(&self, time: Jiffies) -> bool {
        is_before(self.heard, time)
    }
}

/// Converts the value of an option from seconds, at most 32767, to milliseconds.
pub(in crate::sdp) fn ms(seconds: i32) -> u32 {
    seconds.unsigned_abs().saturating_mul(1000)
}
