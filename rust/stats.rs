// SPDX-License-Identifier: GPL-2.0

//! Counters and histograms of a network namespace and of a connection.

pub(crate) mod counters;
pub(crate) mod histogram;
pub(crate) mod tally;

/// Whether anything is counted: always, except in the module that `scripts/bench statistics` builds
/// to measure the cost of counting.
const COUNTS: bool = option_env!("SDP_UNCOUNTED").is_none();
