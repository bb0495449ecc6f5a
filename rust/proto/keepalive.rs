// SPDX-License-Identifier: GPL-2.0

//! SO_KEEPALIVE: when to probe a silent peer, and when the peer counts as gone.
//!
//! A probe is a request that the peer's adapter acknowledges. The adapter retransmits the request
//! by itself, so only one probe is in flight at a time.

use super::watchdog::LEAST_UNANSWERED_MS;

/// A time of the caller's clock, which never goes back.
pub type Ticks = usize;

/// The socket options that decide.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// TCP_KEEPIDLE, in milliseconds.
    pub idle_ms: u32,
    /// TCP_KEEPINTVL, in milliseconds.
    pub interval_ms: u32,
    /// TCP_KEEPCNT.
    pub probes: u32,
    /// TCP_USER_TIMEOUT, in milliseconds; 0 if it is not set.
    pub user_timeout_ms: u32,
}

/// What to do after the timer has expired.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// Start the timer again, for this number of milliseconds.
    Wait(u32),
    /// Probe the peer's adapter.
    Probe,
    /// The peer is gone.
    GiveUp,
}

/// When the peer was last heard, and the probe that is in flight.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Keepalive {
    /// When the last message was received.
    heard: Ticks,
    /// When the probe was posted, while it is not acknowledged.
    probed: Option<Ticks>,
    /// How often the timer has expired since the probe without an acknowledgement.
    unanswered: u32,
}

impl Keepalive {
    /// Records that something was received.
    pub const fn on_receive(&mut self, now: Ticks) {
        self.heard = now;
    }

    /// Records that the probe was posted.
    pub const fn on_probe(&mut self, now: Ticks) {
        (self.probed, self.unanswered) = (Some(now), 0);
    }

    /// Records that the peer's adapter has acknowledged the probe. The acknowledgement counts as a
    /// message that was received when the probe was posted.
    pub fn on_answer(&mut self) {
        if let Some(at) = self.probed.take() {
            self.heard = self.heard.max(at);
        }
        self.unanswered = 0;
    }

    /// Decides what to do after the timer has expired. `others_look` says whether the transmit
    /// watchdog notices if the peer is gone. `ms_since` returns the time that has passed since a
    /// time of the clock, in milliseconds.
    pub fn look(
        &mut self,
        limits: Limits,
        others_look: bool,
        ms_since: impl Fn(Ticks) -> u32,
    ) -> Next {
        if let Some(at) = self.probed {
            return if self.is_too_long(at, limits, ms_since) {
                Next::GiveUp
            } else {
                Next::Wait(limits.interval_ms)
            };
        }
        let left_ms = if others_look {
            limits.idle_ms
        } else {
            limits.idle_ms.saturating_sub(ms_since(self.heard))
        };
        match left_ms {
            0 => Next::Probe,
            left_ms => Next::Wait(left_ms),
        }
    }

    /// Whether the probe that was posted at the time `at` should have been acknowledged by now.
    fn is_too_long(&mut self, at: Ticks, limits: Limits, ms_since: impl Fn(Ticks) -> u32) -> bool {
        if self.heard >= at {
            // The peer has sent something since.
            self.unanswered = 0;
            return false;
        }
        self.unanswered = self.unanswered.saturating_add(1);
        let too_long = match limits.user_timeout_ms {
            0 => self.unanswered >= limits.probes,
            limit_ms => ms_since(self.heard) >= limit_ms,
        };
        too_long && ms_since(at) >= LEAST_UNANSWERED_MS
    }

    /// Whether a probe is in flight.
    pub const fn is_probing(&self) -> bool {
        self.probed.is_some()
    }

    /// When something was last received.
    pub const fn heard(&self) -> Ticks {
        self.heard
    }

    /// The number of intervals without an acknowledgement, which TCP shows as unanswered probes.
    pub fn unanswered(&self) -> u8 {
        u8::try_from(self.unanswered).unwrap_or(u8::MAX)
    }
}
