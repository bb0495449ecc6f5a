// SPDX-License-Identifier: GPL-2.0

//! What one can see of the module from outside: files under /proc and in debugfs, and a netlink family.

mod debugfs;
pub(crate) mod devices;
pub(crate) mod netlink;
pub(crate) mod procfs;
mod sockets;
