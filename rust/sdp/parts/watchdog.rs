// SPDX-License-Identifier: GPL-2.0

//! The state of the transmit watchdog.

use kernel::macros::kunit_tests;

/// The time between two checks: how long a failed send may stay unnoticed if a socket only waits
/// for messages.
pub(in crate::sdp) const WATCH_MS: u32 = 1000;
/// How long the peer's adapter may take to acknowledge the oldest message: some seconds longer than
/// an adapter with the settings of [`crate::rdma::cm`] retries.
pub(in crate::sdp) const UNANSWERED_MS: u32 = 20_000;
/// The shortest limit that a program can set: an adapter resends a lost packet after about two
/// seconds, and the packet may be lost again.
pub(in crate::sdp) const LEAST_UNANSWERED_MS: u32 = 7000;

/// The findings of a check.
#[derive(Copy, Clone)]
pub(in crate::sdp) struct Sight {
    /// Nothing is in flight: bytes that wait need the peer to make room.
    pub(in crate::sdp) held_up: bool,
    /// The oldest message in flight; if none is, the number of messages that were posted.
    pub(in crate::sdp) oldest: u32,
    /// Bytes that the peer has not taken.
    pub(in crate::sdp) unsent: u32,
}

/// The state of the worker's checks of sent messages.
#[derive(Copy, Clone, Default)]
pub(crate) struct Watchdog {
    /// Another check will follow.
    pub(crate) running: bool,
    /// The oldest message in flight at the last check.
    pub(crate) oldest: u32,
    /// Nothing was in flight at the last check: bytes that waited needed the peer to make room.
    pub(crate) held_up: bool,
    /// The bytes that the peer had not taken at the last check.
    pub(crate) unsent: u32,
    /// The number of consecutive checks with the same findings.
    pub(crate) looks: u32,
    /// The time in milliseconds after which the peer's adapter is woken again, while the answer to
    /// the first message is missing; else 0.
    pub(crate) wake_ms: u32,
}

impl Watchdog {
    /// Records the findings of a check; returns whether they have been the same for too long.
    /// `user_timeout_ms` is TCP_USER_TIMEOUT, or 0.
    pub(in crate::sdp) fn is_too_long(&mut self, sight: Sight, user_timeout_ms: u32) -> bool {
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
        self.looks += 1;
        // The first check may have come right after the send.
        (self.looks - 1).saturating_mul(WATCH_MS) >= limit_ms
    }

    /// Called when the peer's adapter must be woken: returns the time until it must be woken again
    /// in milliseconds, or 0 if it is not woken any more.
    pub(in crate::sdp) fn next_wake(&mut self) -> u32 {
        let wake_ms = self.wake_ms;
        self.wake_ms = if wake_ms < WATCH_MS { 2 * wake_ms } else { 0 };
        self.wake_ms
    }
}

#[kunit_tests(ib_sdp_watch)]
mod tests {
    use super::*;

    const SIGHT: Sight = Sight {
        held_up: false,
        oldest: 7,
        unsent: 100,
    };

    /// The number of checks with the same findings until that is too long; 0 if it never is.
    fn looks(watch: &mut Watchdog, sight: Sight, user_timeout_ms: u32) -> u32 {
        let mut all = 1..100;
        all.find(|_| watch.is_too_long(sight, user_timeout_ms))
            .unwrap_or(0)
    }

    #[test]
    fn how_long_is_too_long() {
        let held_up = Sight {
            held_up: true,
            ..SIGHT
        };
        for (sight, user_timeout_ms, wanted) in [
            (SIGHT, 0, UNANSWERED_MS / WATCH_MS + 1),
            // One lost packet must not end the connection.
            (SIGHT, 3000, LEAST_UNANSWERED_MS / WATCH_MS + 1),
            (SIGHT, 30_000, 31),
            (held_up, 0, 0),
            (held_up, 3000, 4),
        ] {
            assert_eq!(
                looks(&mut Watchdog::default(), sight, user_timeout_ms),
                wanted
            );
        }
    }

    #[test]
    fn progress_begins_anew() {
        let on = Sight { oldest: 8, ..SIGHT };
        let read = Sight { unsent: 99, ..on };
        let held_up = Sight {
            held_up: true,
            ..read
        };
        // More bytes to send are no progress.
        let more = Sight {
            unsent: 200,
            ..held_up
        };
        let mut watch = Watchdog::default();
        for sight in [SIGHT, on, read, held_up] {
            assert!(!watch.is_too_long(sight, 0));
            assert_eq!(watch.looks, 1);
        }
        assert!(!watch.is_too_long(more, 0));
        assert_eq!(watch.looks, 2);
    }

    #[test]
    fn the_peer_is_woken_later_each_time() {
        let mut watch = Watchdog {
            wake_ms: 20,
            ..Watchdog::default()
        };
        for wanted in [40, 80, 160, 320, 640, 1280, 0] {
            assert_eq!(watch.next_wake(), wanted);
        }
    }
}
