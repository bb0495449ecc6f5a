// SPDX-License-Identifier: GPL-2.0

//! What the worker has seen of messages that were sent.

/// The worker's looks after what was sent.
#[derive(Copy, Clone, Default)]
pub(crate) struct Watch {
    /// Another look will come.
    pub(crate) running: bool,
    /// The oldest message in flight at the last look.
    pub(crate) oldest: u32,
    /// Nothing was in flight then: what waits, waited for the peer to make room.
    pub(crate) held_up: bool,
    /// What the peer had not taken then.
    pub(crate) unsent: u32,
    /// Looks that have found the same.
    pub(crate) looks: u32,
    /// When to wake the peer's adapter again, whose answer to the first message is missing; else 0.
    pub(crate) wake_ms: u32,
}
