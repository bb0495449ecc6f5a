// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers of the socket layer, as far as the kernel crate lacks them, and what each network
//! namespace has of the module.

pub(crate) mod addr;
pub(crate) mod announced;
pub(crate) mod genl;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod netns;
pub(crate) mod ports;
pub(crate) mod route;
pub(crate) mod sock;
pub(crate) mod sysctl;
