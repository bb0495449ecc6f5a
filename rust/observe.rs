// SPDX-License-Identifier: GPL-2.0

//! What one can see from outside: counters, files under /proc, and a netlink family.

pub(crate) mod debugfs;
pub(crate) mod devices;
pub(crate) mod histogram;
pub(crate) mod netlink;
pub(crate) mod procfs;
mod sockets;
pub(crate) mod stats;
pub(crate) mod tally;
pub(crate) mod trace;
// More than is used here: the tool compiles the same file.
#[allow(dead_code)]
mod uapi;

/// Whether anything is counted. Always, but in the module that `scripts/bench statistics` makes to see
/// what that costs.
const COUNTS: bool = option_env!("SDP_UNCOUNTED").is_none();
