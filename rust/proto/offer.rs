// SPDX-License-Identifier: GPL-2.0

//! Whether a reader that waits shall advertise its buffer.
//!
//! An advert that the peer does not write to was for nothing: pages were pinned
//! and a key made for it. That happens where the peer has sent already (the
//! messages cross), sends little at a time, goes another way, or sends nothing
//! while the reader waits. So after one that was for nothing the next receives
//! that wait go without, and each time twice as many. The first one that is of
//! use makes all well again.

/// The receives without an advert after many that were for nothing.
pub const PAUSE_MAX: u32 = 63;

/// The record of a connection's sink adverts.
///
/// # Invariants
///
/// Both numbers are at most [`PAUSE_MAX`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Offers {
    /// Receives that go without, from now on.
    left: u32,
    /// Receives that went without after the last advert for nothing.
    pause: u32,
}

impl Offers {
    /// No adverts.
    pub const fn new() -> Self {
        Self { left: 0, pause: 0 }
    }

    /// A receive is about to wait, for the first time or after this has said
    /// yes: whether it shall advertise its buffer.
    pub const fn may_offer(&mut self) -> bool {
        if self.left == 0 {
            return true;
        }
        self.left = self.left.saturating_sub(1);
        false
    }

    /// The peer has written to an advert.
    pub const fn on_used(&mut self) {
        *self = Self::new();
    }

    /// All adverts of a wait have ended without a byte.
    pub const fn on_unused(&mut self) {
        let pause = self.pause.saturating_mul(2).saturating_add(1);
        // INVARIANT: bounded here.
        self.pause = if pause < PAUSE_MAX { pause } else { PAUSE_MAX };
        self.left = self.pause;
    }
}
