// SPDX-License-Identifier: GPL-2.0

//! What is measured of a connection, and decides nothing but when its receives shrink.

use super::counts::Counts;
use super::pacing::Pacing;

pub(crate) struct Measured {
    pub(in crate::sdp) pacing: Pacing,
    pub(in crate::sdp) counts: Counts,
}

impl Measured {
    pub(in crate::sdp) fn new() -> Self {
        Self {
            pacing: Pacing::new(),
            counts: Counts::new(),
        }
    }
}
