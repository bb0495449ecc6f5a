// SPDX-License-Identifier: GPL-2.0

//! How long a closed socket waits for its peer to take the rest of the stream.
//!
//! The wait has turns of equal length. A peer that takes its share of the rest in a turn gets
//! another turn, and so does a peer that has taken all: it has yet to close. Arbitrary progress is
//! not sufficient: a peer that takes one message in each turn would keep the socket for hours.

/// The number of turns in which the rest must be taken, and of the shares of the rest.
pub const TURNS: u32 = 16;

/// The bytes that the peer of a closed socket has not taken.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rest {
    /// Bytes at the beginning of the turn.
    left: u32,
    /// Bytes that a peer must take in a turn.
    part: u32,
}

impl Rest {
    /// Begins the first turn, with `left` bytes left.
    pub const fn new(left: u32) -> Self {
        Self {
            left,
            part: left.div_ceil(TURNS),
        }
    }

    /// Ends a turn with `left` bytes left; returns whether there is another turn.
    pub const fn ends_turn(&mut self, left: u32) -> bool {
        let taken = self.left.saturating_sub(left);
        self.left = left;
        taken > 0 && (taken >= self.part || left == 0)
    }
}
