// SPDX-License-Identifier: GPL-2.0

//! How long a closed socket waits for its peer to take the rest of the stream.
//!
//! By turns of equal length. A peer that takes its part of the rest in one
//! gets another one, and so does one that has taken all: it has yet to close.
//! Any progress would not do: a peer that takes one message in each turn would
//! keep the socket for hours.

/// In how many turns the rest must be taken, and so the parts that it has.
pub const TURNS: u32 = 16;

/// What the peer of a closed socket has not taken.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rest {
    /// Bytes at the begin of the turn.
    left: u32,
    /// Bytes that a peer must take in a turn.
    part: u32,
}

impl Rest {
    /// The first turn begins, with so many bytes left.
    pub const fn new(left: u32) -> Self {
        Self {
            left,
            part: left.div_ceil(TURNS),
        }
    }

    /// A turn has ended with so many bytes left: whether there is another one.
    pub const fn ends_turn(&mut self, left: u32) -> bool {
        let taken = self.left.saturating_sub(left);
        self.left = left;
        taken > 0 && (taken >= self.part || left == 0)
    }
}
