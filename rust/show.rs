// SPDX-License-Identifier: GPL-2.0

//! Output of the module: files under /proc and in debugfs, and a netlink family.

mod debugfs;
pub(crate) mod devices;
pub(crate) mod netlink;
pub(crate) mod procfs;
mod sockets;
mod stand_ins;
