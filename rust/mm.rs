// SPDX-License-Identifier: GPL-2.0

//! Memory: page fragments that carry the bytes of a stream, and pages of programs.

pub(crate) mod frag;
pub(crate) mod pin;
pub(crate) mod queue;
pub(crate) mod user;
