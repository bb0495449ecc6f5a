// SPDX-License-Identifier: GPL-2.0

//! What programs and the module must agree on: numbers and names that are only added to, never changed.
//!
//! `tools/uapi` is the same files as a crate for programs, and has the header for C.

// Spelled out for the host, as in `proto.rs`.
#[path = "uapi/nl.rs"]
pub mod nl;
#[path = "uapi/socket.rs"]
pub mod socket;
