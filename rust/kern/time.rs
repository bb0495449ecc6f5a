// SPDX-License-Identifier: GPL-2.0

//! The kernel's time in jiffies: time-outs of calls, and the age of events; and the time of day.

use core::num::NonZero;
use core::ptr;

use kernel::ffi::c_long;
use kernel::prelude::*;
use kernel::task::MAX_SCHEDULE_TIMEOUT;
use kernel::time::{
    msecs_to_jiffies,
    ClockSource,
    Jiffies,
    RealTime, //
};

use super::signal::signal_pending;
use crate::bindings;

/// The time for which a call may still wait. Only the time for which it sleeps or polls counts, as
/// for the time-outs of a socket in the core.
///
/// Not `Copy`: the time that is spent on a copy would be lost.
pub(crate) struct Timeout(c_long);

impl Timeout {
    /// Without a limit.
    pub(crate) const fn endless() -> Self {
        Self(MAX_SCHEDULE_TIMEOUT)
    }

    /// In the core's representation: the largest number is no limit.
    pub(crate) const fn from_jiffies(jiffies: c_long) -> Self {
        Self(jiffies)
    }

    pub(crate) fn from_ms(ms: u32) -> Self {
        Self(
            msecs_to_jiffies(ms)
                .try_into()
                .unwrap_or(MAX_SCHEDULE_TIMEOUT),
        )
    }

    /// The core's representation, for functions of the core that wait and store the remaining time
    /// there.
    pub(crate) fn jiffies_mut(&mut self) -> &mut c_long {
        &mut self.0
    }

    /// Whether the call must not wait any more, or may never wait.
    pub(crate) fn is_over(&self) -> bool {
        self.0 <= 0
    }

    /// Whether the call may wait.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if no time is left, [`Timeout::interrupted`] if a signal is pending.
    pub(crate) fn check(&self) -> Result {
        if self.is_over() {
            return Err(EAGAIN);
        }
        if signal_pending() {
            return Err(self.interrupted());
        }
        Ok(())
    }

    /// The error of a call whose wait was ended by a signal: the call is restarted after the
    /// handler, unless it has a limit.
    pub(crate) fn interrupted(&self) -> Error {
        if self.0 == MAX_SCHEDULE_TIMEOUT {
            ERESTARTSYS
        } else {
            EINTR
        }
    }

    /// Runs `wait` with the shorter of two timeouts. The time that it takes counts for both.
    pub(crate) fn wait_both(one: &mut Self, other: &mut Self, wait: impl FnOnce(&mut Self)) {
        let limit = one.0.min(other.0);
        let mut left = Self(limit);
        wait(&mut left);
        let slept = limit - left.0;
        one.spend(slept);
        other.spend(slept);
    }

    /// Whether at least the remaining time has passed since `began`.
    pub(crate) fn ends_within(&self, began: Jiffies) -> bool {
        self.0 != MAX_SCHEDULE_TIMEOUT && elapsed(began) >= self.0
    }

    /// Counts the time since `began`, in which the call has polled.
    pub(crate) fn spend_since(&mut self, began: Jiffies) {
        self.spend(elapsed(began).min(self.0));
    }

    fn spend(&mut self, jiffies: c_long) {
        if self.0 != MAX_SCHEDULE_TIMEOUT {
            self.0 -= jiffies;
        }
    }
}

/// The time in jiffies.
pub(crate) fn now() -> Jiffies {
    // SAFETY: The kernel's clock, which is read with one load and may change at any time.
    unsafe { ptr::read_volatile(&raw const kernel::bindings::jiffies) }
}

/// Jiffies since `then`.
fn elapsed(then: Jiffies) -> c_long {
    now()
        .wrapping_sub(then)
        .try_into()
        .unwrap_or(MAX_SCHEDULE_TIMEOUT)
}

/// A time of day: nanoseconds of CLOCK_REALTIME.
pub(crate) type RealNs = NonZero<i64>;

/// The present time of day; `None` if the clock is at 0.
pub(crate) fn real_now() -> Option<RealNs> {
    NonZero::new(RealTime::ktime_get())
}

/// Milliseconds since `then`.
pub(crate) fn ms_since(then: Jiffies) -> u32 {
    // SAFETY: No precondition.
    unsafe { bindings::jiffies_to_msecs(now().wrapping_sub(then)) }
}
