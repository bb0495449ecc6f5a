// SPDX-License-Identifier: GPL-2.0

//! The interface between programs and the module, compiled from the module's own files, for
//! programs in Rust. `ib_sdp.h` next to this crate is the header for C.

#![no_std]

#[path = "../../../rust/uapi.rs"]
mod module;

/// Values that settings accept.
#[path = "../../../rust/params/kind.rs"]
pub mod kind;

pub use module::{nl, socket};
