// SPDX-License-Identifier: GPL-2.0

//! What programs and the module must agree on: the module's own files, for programs in Rust. For programs in
//! C there is `ib_sdp.h` beside this crate.

#![no_std]

#[path = "../../../rust/uapi.rs"]
mod module;

/// What values a setting takes.
#[path = "../../../rust/params/kind.rs"]
pub mod kind;

pub use module::{nl, socket};
