// SPDX-License-Identifier: GPL-2.0

//! What the kernel crate lacks and every part of the module needs: errors, work items, waits, and what
//! differs between releases of the kernel.

pub(crate) mod compat;
pub(crate) mod completion;
pub(crate) mod debugfs;
pub(crate) mod errno;
pub(crate) mod module;
pub(crate) mod shared;
pub(crate) mod signal;
pub(crate) mod work;
