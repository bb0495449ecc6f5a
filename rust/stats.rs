// SPDX-License-Identifier: GPL-2.0

//! What is counted, of a network namespace and of a connection.

pub(crate) mod counters;
pub(crate) mod histogram;
pub(crate) mod tally;

/// Whether anything is counted. Always, but in the module that `scripts/bench statistics` makes to see
/// what that costs.
const COUNTS: bool = option_env!("SDP_UNCOUNTED").is_none();
