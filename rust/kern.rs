// SPDX-License-Identifier: GPL-2.0

//! What the module asks of the kernel crate in a way of its own.

pub(crate) mod compat;
