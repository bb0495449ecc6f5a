// SPDX-License-Identifier: GPL-2.0

//! Kernel interfaces that the kernel crate lacks and that belong to no subsystem of the module:
//! errors, work items, waits, time, memory barriers, I/O vectors, notifications of MSG_ZEROCOPY,
//! debugfs, and differences between kernel releases.

pub(crate) mod barrier;
pub(crate) mod compat;
pub(crate) mod completion;
pub(crate) mod debugfs;
pub(crate) mod errno;
pub(crate) mod iov;
pub(crate) mod module;
pub(crate) mod shared;
pub(crate) mod signal;
pub(crate) mod time;
pub(crate) mod work;
pub(crate) mod zerocopy;
