// SPDX-License-Identifier: GPL-2.0

//! What is counted for a connection by itself.

use kernel::prelude::*;

use crate::stats::histogram::{
    Histograms,
    Messages, //
};
use crate::stats::tally::Tally;

pub(crate) struct Counts {
    pub(in crate::sdp) tally: Tally,
    /// From the first send, or advert, on.
    pub(in crate::sdp) histograms: Option<KBox<Histograms>>,
    /// The last messages, where somebody has asked for them.
    pub(in crate::sdp) messages: Option<Messages>,
}

impl Counts {
    pub(in crate::sdp) fn new() -> Self {
        Self {
            tally: Tally::new(),
            histograms: None,
            messages: None,
        }
    }
}
