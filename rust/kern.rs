// SPDX-License-Identifier: GPL-2.0

//! What the kernel crate lacks and does not belong to a subsystem: errors, work items, waits, time, I/O
//! vectors, notifications of MSG_ZEROCOPY, debugfs, and what differs between releases of the kernel.

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
