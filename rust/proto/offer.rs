// SPDX-License-Identifier: GPL-2.0

//! Whether a waiting reader should advertise its buffer.
//!
//! An advert that the peer does not write to is wasted: pages were pinned and a key was made for
//! it. This happens if the peer has already sent (the messages cross), sends little at a time, uses
//! another path, or sends nothing while the reader waits. So after a wasted advert the next waiting
//! receive sends no advert, and each further wasted advert about doubles the number of receives
//! that send none. The first useful advert ends the pause.

/// The maximum number of receives without an advert.
pub const PAUSE_MAX: u32 = 63;

/// The record of a connection's sink adverts.
///
/// # Invariants
///
/// Both numbers are at most [`PAUSE_MAX`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Offers {
    /// The number of receives from now on that send no advert.
    left: u32,
    /// The number of receives in the last pause, which the last wasted advert has begun.
    pause: u32,
}

impl Offers {
    /// No adverts.
    pub const fn new() -> Self {
        Self { left: 0, pause: 0 }
    }

    /// Whether a receive that is about to wait should advertise its buffer. Called when it waits
    /// for the first time, and again after `true` was returned.
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
