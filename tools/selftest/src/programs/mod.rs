// SPDX-License-Identifier: GPL-2.0
//! Programs beside the suite: streams whose bytes are checked, and connections that idle.

pub(crate) mod idle;
pub(crate) mod stream;
