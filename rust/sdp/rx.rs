// SPDX-License-Identifier: GPL-2.0

//! What was received: the ring of posted receives, the receive queue, and what the peer still has of it.

pub(in crate::sdp) mod bounce_read;
pub(in crate::sdp) mod queue;
pub(in crate::sdp) mod reassembly;
pub(in crate::sdp) mod resize;
pub(in crate::sdp) mod ring;
