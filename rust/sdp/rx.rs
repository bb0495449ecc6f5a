// SPDX-License-Identifier: GPL-2.0

//! What was received: the ring of posted receives, the receive queue, and what the peer still has of it.

mod queue;
pub(in crate::sdp) mod reads;
mod reassembly;
mod resize;
pub(in crate::sdp) mod ring;
