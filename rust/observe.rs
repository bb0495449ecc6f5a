// SPDX-License-Identifier: GPL-2.0

//! What one can see from outside: counters and files under /proc.

pub(crate) mod procfs;
pub(crate) mod stats;
