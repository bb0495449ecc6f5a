// SPDX-License-Identifier: GPL-2.0

//! An outstanding advert of this side, of either kind.

use kernel::time::{
    Instant,
    Monotonic, //
};

use crate::rdma::region::RegionId;

/// The region of an outstanding advert, and when the advert was posted.
#[derive(Copy, Clone)]
pub(crate) struct Posted {
    pub(crate) region: RegionId,
    since: Instant<Monotonic>,
}

impl Posted {
    pub(in crate::sdp) fn now(region: RegionId) -> Self {
        let since = Instant::now();
        Self { region, since }
    }

    pub(in crate::sdp) fn age_us(self) -> u64 {
        self.since.elapsed().as_micros_ceil().unsigned_abs()
    }
}
