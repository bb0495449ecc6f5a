// SPDX-License-Identifier: GPL-2.0

//! What happens because time has passed.

mod cork;
mod keepalive;
pub(in crate::sdp) mod tx_watchdog;
