// SPDX-License-Identifier: GPL-2.0

//! Whether the peer, or its machine, is still there.

use super::keepalive::Keepalive;
use super::watch::Watch;

#[derive(Copy, Clone, Default)]
pub(crate) struct Liveness {
    /// Of what was sent.
    pub(in crate::sdp) watch: Watch,
    /// Of a connection on which nothing comes.
    pub(in crate::sdp) keepalive: Keepalive,
}
