// SPDX-License-Identifier: GPL-2.0

//! The protocol layer of the ib_sdp module, compiled on the host.
//!
//! These are the very files that the module is built from, so what is tested
//! here is what runs in the kernel.

#[path = "../../../rust/proto.rs"]
pub mod proto;
