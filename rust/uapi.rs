// SPDX-License-Identifier: GPL-2.0

//! The interface between programs and the module: numbers and names that may be added but never
//! changed.
//!
//! `tools/uapi` has the same files as a crate for programs, and the header for C.

// The paths are explicit for the host, as in `proto.rs`.
#[path = "uapi/nl.rs"]
pub mod nl;
#[path = "uapi/socket.rs"]
pub mod socket;
