// SPDX-License-Identifier: GPL-2.0

//! How long a closed socket waits for its peer to take the rest of the stream.
//!
//! The wait has periods of equal length. A peer that takes its part of the rest in a period gets
//! another period, and so does a peer that has taken the whole rest: it has yet to close. Arbitrary
//! progress is not sufficient: a peer that takes one message in each period would keep the socket
//! for hours.

/// The number of periods in which the rest must be taken, and of the parts of the rest.
pub const PERIODS: u32 = 16;

/// The bytes that the peer of a closed socket has not taken.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rest {
    /// Bytes at the beginning of the period.
    left: u32,
    /// Bytes that a peer must take in a period.
    part: u32,
}

impl Rest {
    /// Begins the first period, with `left` bytes left.
    pub const fn new(left: u32) -> Self {
        Self {
            left,
            part: left.div_ceil(PERIODS),
        }
    }

    /// Ends a period with `left` bytes left; returns whether there is another period.
    pub const fn ends_period(&mut self, left: u32) -> bool {
        let taken = self.left.saturating_sub(left);
        self.left = left;
        taken > 0 && (taken >= self.part || left == 0)
    }
}
