// SPDX-License-Identifier: GPL-2.0

//! How long a listener waits for the first byte of a connection before it
//! hands the connection to accept() all the same (TCP_DEFER_ACCEPT).
//!
//! TCP counts the time-outs of the request: the first comes after a second,
//! each other one after twice as long as the one before, but 2 minutes at most.
//! It looks at the option at each time-out, so that a change holds for the
//! connections that wait already.

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

    /// The most.
    pub const MAX: Self = Self(u8::MAX);

    /// So many time-outs that they take `seconds`, or more; [`Timeouts::MAX`] if there are not as many.
    pub const fn lasting(seconds: i32) -> Self {
        let (mut lasted, mut timeouts) = (0, Self::NONE);
        while lasted < seconds && timeouts.0 < u8::MAX {
            lasted = lasted.saturating_add(timeouts.seconds_to_next());
            timeouts = timeouts.next();
        }
        timeouts
    }

    /// The seconds that they take.
    pub const fn seconds(self) -> i32 {
        let (mut seconds, mut past) = (0i32, Self::NONE);
        while past.0 < self.0 {
            seconds = seconds.saturating_add(past.seconds_to_next());
            past = past.next();
        }
        seconds
    }

    /// The seconds from the last of them to the next one.
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

    /// One more, up to [`Timeouts::MAX`].
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}
