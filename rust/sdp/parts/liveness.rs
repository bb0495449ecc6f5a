// SPDX-License-Identifier: GPL-2.0

//! Whether the peer, or its machine, is still there.

use crate::proto::keepalive::Keepalive;
use crate::proto::watchdog::Watchdog;

#[derive(Copy, Clone, Default)]
pub(crate) struct Liveness {
    /// The transmit watchdog.
    pub(in crate::sdp) watch: Watchdog,
    /// The check of a connection on which nothing is received.
    pub(in crate::sdp) keepalive: Keepalive,
}
