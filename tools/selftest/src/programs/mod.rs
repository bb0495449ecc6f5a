// SPDX-License-Identifier: GPL-2.0
//! Programs beside the suite: streams whose bytes are checked, connections that idle, and calls at random.

pub(crate) mod fuzz;
pub(crate) mod idle;
pub(crate) mod stream;
