// SPDX-License-Identifier: GPL-2.0

//! How long a listener waits for the first byte of a connection before it passes the connection to
//! accept() without one (TCP_DEFER_ACCEPT).
//!
//! TCP counts the time-outs of the request: the first comes after a second, each later one after
//! twice the previous interval, but after 2 minutes at most. It reads the option at each time-out,
//! so a change also affects waiting connections.

/// Seconds before the first time-out (`TCP_TIMEOUT_INIT`).
const FIRST_S: i32 = 1;

/// Seconds between two time-outs, at most (`TCP_RTO_MAX`).
const LONGEST_S: i32 = 120;

/// A number of time-outs.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timeouts(u8);

impl Timeouts {
    /// The option is not set; or no time has passed.
    pub const NONE: Self = Self(0);

    /// The maximum number.
    pub const MAX: Self = Self(u8::MAX);

    /// The number of time-outs that take `seconds` or more; at most [`Timeouts::MAX`].
    pub const fn lasting(seconds: i32) -> Self {
        let (mut lasted, mut timeouts) = (0, Self::NONE);
        while lasted < seconds && timeouts.0 < u8::MAX {
            lasted = lasted.saturating_add(timeouts.seconds_to_next());
            timeouts = timeouts.next();
        }
        timeouts
    }

    /// The total time of these time-outs in seconds.
    pub const fn seconds(self) -> i32 {
        let (mut seconds, mut past) = (0i32, Self::NONE);
        while past.0 < self.0 {
            seconds = seconds.saturating_add(past.seconds_to_next());
            past = past.next();
        }
        seconds
    }

    /// The time from the last of these time-outs to the next one in seconds.
    pub const fn seconds_to_next(self) -> i32 {
        let (mut seconds, mut past) = (FIRST_S, 0u8);
        while past < self.0 && seconds < LONGEST_S {
            seconds = seconds.saturating_mul(2);
            past = past.saturating_add(1);
        }
        if seconds < LONGEST_S {
            seconds
        } else {
            LONGEST_S
        }
    }

    /// One more time-out, up to [`Timeouts::MAX`].
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}
