// SPDX-License-Identifier: GPL-2.0

//! Environment variables by which `sdpctl run` configures `libsdp.so`.

/// The rules, as in a file. Without the variable all sockets use SDP.
pub const RULES: &str = "SDPCTL_RULES";
/// `1`: fail instead of using TCP where SDP cannot be used.
pub const REQUIRE: &str = "SDPCTL_REQUIRE";
/// `1`: print a line to the standard error for each decision.
pub const VERBOSE: &str = "SDPCTL_VERBOSE";
