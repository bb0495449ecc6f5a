// SPDX-License-Identifier: GPL-2.0

//! The state of a socket as shown by TCP_INFO, netlink, procfs and debugfs.

pub(crate) mod conn_info;
pub(crate) mod sock_info;
pub(crate) mod tcp_info;
