// SPDX-License-Identifier: GPL-2.0

//! The handlers of timers.

pub(in crate::sdp) mod keepalive;
pub(in crate::sdp) mod tx_watchdog;
