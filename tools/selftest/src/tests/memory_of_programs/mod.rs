// SPDX-License-Identifier: GPL-2.0
//! Buffers that are not accessible, or not present yet.

pub(super) mod badinput;
pub(super) mod memory;
pub(super) mod missing;
