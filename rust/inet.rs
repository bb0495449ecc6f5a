// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers of the socket layer that the kernel crate lacks, and the module's state of each
//! network namespace.

pub(crate) mod addr;
pub(crate) mod announced;
pub(crate) mod genl;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod netns;
pub(crate) mod ports;
pub(crate) mod route;
pub(crate) mod sock;
pub(crate) mod stand_ins;
pub(crate) mod sysctl;
pub(crate) mod tcp;
pub(crate) mod tcp_client;
pub(crate) mod tcp_port;
