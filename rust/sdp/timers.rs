// SPDX-License-Identifier: GPL-2.0

//! What happens because time has passed.

pub(in crate::sdp) mod keepalive;
pub(in crate::sdp) mod tx_watchdog;
