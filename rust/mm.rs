// SPDX-License-Identifier: GPL-2.0

//! Memory: page fragments that carry the bytes of a stream.

pub(crate) mod frag;
pub(crate) mod queue;
pub(crate) mod user;
