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
    /// Nothing is in flight: bytes that wait need the peer to make room.
    pub held_up: bool,
    /// The oldest message in flight; if none is, the number of messages that were posted.
    pub oldest: u32,
    /// Bytes that the peer has not taken.
    pub unsent: u32,
}

/// The state of the checks of sent messages.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Watchdog {
    /// Another check will follow.
    pub running: bool,
    /// The oldest message in flight at the last check.
    pub oldest: u32,
    /// Nothing was in flight at the last check: bytes that waited needed the peer to make room.
    pub held_up: bool,
    /// The bytes that the peer had not taken at the last check.
    pub unsent: u32,
    /// The number of consecutive checks with the same findings.
    pub looks: u32,
    /// The time in milliseconds after which the peer's adapter is woken again, while the answer to
    /// the first message is missing; else 0.
    pub wake_ms: u32,
}

impl Watchdog {
    /// Records the findings of a check; returns whether they have been the same for too long.
    /// `user_timeout_ms` is TCP_USER_TIMEOUT, or 0.
    pub fn is_too_long(&mut self, sight: Sight, user_timeout_ms: u32) -> bool {
        let Sight {
            held_up,
            oldest,
            unsent,
        } = sight;
        let limit_ms = match (user_timeout_ms, held_up) {
            (0, true) => u32::MAX,
            (0, false) => UNANSWERED_MS,
            // As with TCP, the user's limit also applies if the peer makes no room.
            (ms, true) => ms,
            // With a shorter limit, one lost packet would end the connection.
            (ms, false) => ms.max(LEAST_UNANSWERED_MS),
        };
        // It is also progress if the peer has read a part of an advert.
        let got_on = core::mem::replace(&mut self.unsent, unsent) > unsent;
        if got_on || (self.oldest, self.held_up) != (oldest, held_up) {
            (self.oldest, self.held_up, self.looks) = (oldest, held_up, 0);
        }
        // The first check may have come right after the send.
        let same = self.looks;
        self.looks = same.saturating_add(1);
        same.saturating_mul(WATCH_MS) >= limit_ms
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
