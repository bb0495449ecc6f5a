// SPDX-License-Identifier: GPL-2.0
//! Programs beside the suite: streams whose bytes are checked, idle connections, and random calls.

pub(crate) mod fuzz;
pub(crate) mod idle;
pub(crate) mod stream;
