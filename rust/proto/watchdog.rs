// SPDX-License-Identifier: GPL-2.0

//! The transmit watchdog: when a message that the peer's adapter does not acknowledge ends the
//! connection.

/// The time between two checks: how long a failed send may stay unnoticed if a socket only waits
/// for messages.
pub const WATCH_MS: u32 = 1000;
/// How long the peer's adapter may take to acknowledge the oldest message: some seconds longer than
/// an adapter with the connection's settings retries (`rust/rdma/cm.rs`).
pub const UNANSWERED_MS: u32 = 20_000;
/// The shortest limit that a program can set: an adapter resends a lost packet after about two
/// seconds, and the packet may be lost again.
pub const LEAST_UNANSWERED_MS: u32 = 7000;

/// The findings of a check.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Sight {
    /// The oldest message in flight; `None` if nothing is.
    pub oldest: Option<u32>,
    /// Bytes wait for the peer's program to read, or to make room.
    pub waits: bool,
    /// Bytes that the peer has taken since the connection began.
    pub taken: u64,
}

/// The state of the checks of sent messages.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Watchdog {
    /// Another check will follow.
    pub running: bool,
    /// The oldest message in flight at the last check.
    pub oldest: Option<u32>,
    /// The bytes that the peer had taken at the last check.
    pub taken: u64,
    /// The number of consecutive checks with the same oldest message.
    pub looks: u32,
    /// The number of consecutive checks that found waiting bytes of which the peer took none.
    pub idle_looks: u32,
    /// The time in milliseconds after which the peer's adapter is woken again, while the answer to
    /// the first message is missing; else 0.
    pub wake_ms: u32,
}

/// Whether so many checks after the first one have taken `limit_ms`; never if this is the maximum.
fn is_over(looks: u32, limit_ms: u32) -> bool {
    limit_ms < u32::MAX && looks.saturating_mul(WATCH_MS) >= limit_ms
}

impl Watchdog {
    /// Records the findings of a check; returns whether they have been the same for too long.
    /// `user_timeout_ms` is TCP_USER_TIMEOUT, or 0.
    pub fn is_too_long(&mut self, sight: Sight, user_timeout_ms: u32) -> bool {
        let Sight {
            oldest,
            waits,
            taken,
        } = sight;
        // It is also progress if the peer has read a part of an advert.
        let got_on = core::mem::replace(&mut self.taken, taken) != taken;
        let same_oldest = core::mem::replace(&mut self.oldest, oldest) == oldest;
        if got_on || !same_oldest {
            self.looks = 0;
        }
        // Messages about the bytes of the other direction are no progress.
        if got_on || !waits {
            self.idle_looks = 0;
        }
        // With a shorter limit, one lost packet would end the connection.
        let least_ms = oldest.map_or(0, |_| LEAST_UNANSWERED_MS);
        let user_ms = match user_timeout_ms {
            0 => u32::MAX,
            ms => ms.max(least_ms),
        };
        let unanswered_ms = match (oldest, user_timeout_ms) {
            (None, _) => u32::MAX,
            (Some(_), 0) => UNANSWERED_MS,
            (Some(_), _) => user_ms,
        };
        // As with TCP, the user's limit also applies if the peer makes no room.
        let too_long =
            is_over(self.looks, unanswered_ms) || (waits && is_over(self.idle_looks, user_ms));
        // The first check may have come right after the send.
        self.looks = self.looks.saturating_add(1);
        // While the adapter does not answer, only the limit for it applies.
        let is_answered = oldest.is_none() || !same_oldest;
        self.idle_looks = self
            .idle_looks
            .saturating_add((waits && is_answered).into());
        too_long
    }

    /// Called when the peer's adapter must be woken: returns the time until it must be woken again
    /// in milliseconds, or 0 if it is not woken any more.
    pub fn next_wake(&mut self) -> u32 {
        self.wake_ms = if self.wake_ms < WATCH_MS {
            self.wake_ms.saturating_mul(2)
        } else {
            0
        };
        self.wake_ms
    }
}
