// SPDX-License-Identifier: GPL-2.0

//! The environment by which `sdpctl run` tells the library what to do. `sdpctl` compiles this file,
//! too.

/// The rules, as in a file; all sockets are SDP's without it.
pub(crate) const RULES: &str = "SDPCTL_RULES";
/// `1`: an error instead of TCP where SDP cannot be used.
pub(crate) const REQUIRE: &str = "SDPCTL_REQUIRE";
/// `1`: a line on the standard error for each decision.
pub(crate) const VERBOSE: &str = "SDPCTL_VERBOSE";
