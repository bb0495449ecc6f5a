// SPDX-License-Identifier: GPL-2.0

//! What others are shown of a socket: TCP_INFO, netlink, procfs and debugfs.

pub(crate) mod conn_info;
pub(crate) mod sock_info;
pub(crate) mod tcp_info;
