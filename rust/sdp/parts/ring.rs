// SPDX-License-Identifier: GPL-2.0

//! The receives of a connection: their size, how many there shall be, and what they are charged for.

use crate::proto::resize::OwnReceives;
use crate::rdma::receive::Spares;

/// What receives are posted from.
pub(crate) struct Ring {
    pub(in crate::sdp) receives: OwnReceives,
    /// Looks in a row that have found that the peer uses none of the larger ones up.
    pub(in crate::sdp) unused_looks: u32,
    /// Receives to keep posted while memory allows.
    pub(in crate::sdp) target: u32,
    /// Receive memory that stays charged while the connection lives, and what of it is unused now.
    pub(in crate::sdp) guaranteed: u32,
    pub(in crate::sdp) reserve: u32,
    /// Pages whose bytes were just read, for the next receives; none outside a call.
    pub(in crate::sdp) spares: Spares,
}

impl Ring {
    /// For receives of `bytes`, of which `target` are to be posted.
    pub(in crate::sdp) const fn new(bytes: u32, target: u32) -> Self {
        Self {
            receives: OwnReceives::new(bytes),
            unused_looks: 0,
            target,
            guaranteed: 0,
            reserve: 0,
            spares: Spares::new(),
        }
    }
}
