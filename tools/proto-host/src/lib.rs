// SPDX-License-Identifier: GPL-2.0

//! The protocol layer of the ib_sdp module, and what else of it is pure logic, compiled on the host.
//!
//! These are the very files that the module is built from, so what is tested
//! here is what runs in the kernel. Like there, only `core` is to be had, and
//! nothing may panic: the lints below refuse every construct that could.

#![no_std]

macro_rules! modules_of_the_kernel {
    ($($path:literal $name:ident;)*) => {$(
        #[path = $path]
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
        pub mod $name;
    )*};
}

modules_of_the_kernel! {
    "../../../rust/proto.rs" proto;
    "../../../rust/params/kind.rs" kind;
}

pub mod fuzz;
