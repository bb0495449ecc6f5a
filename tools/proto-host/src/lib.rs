// SPDX-License-Identifier: GPL-2.0

//! The protocol layer of the ib_sdp module, compiled on the host.
//!
//! These are the very files that the module is built from, so what is tested
//! here is what runs in the kernel. Like there, only `core` is to be had, and
//! nothing may panic: the lints below refuse every construct that could.

#![no_std]

#[path = "../../../rust/proto.rs"]
#[deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::panic_in_result_fn,
    clippy::string_slice,
    clippy::todo,
    clippy::unimplemented,
    clippy::unreachable,
    clippy::unwrap_in_result,
    clippy::unwrap_used,
    unsafe_code
)]
pub mod proto;

pub mod fuzz;
