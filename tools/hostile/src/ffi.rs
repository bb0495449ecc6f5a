// SPDX-License-Identifier: GPL-2.0
//! The C interface of librdmacm and libibverbs, as bindgen wrote it down.

#![allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_qualifications,
    clippy::all,
    clippy::ptr_as_ptr,
    clippy::cast_lossless,
    clippy::undocumented_unsafe_blocks,
    clippy::unnecessary_safety_comment,
    clippy::semicolon_if_nothing_returned
)]

include!(concat!(env!("OUT_DIR"), "/ffi.rs"));
