// SPDX-License-Identifier: GPL-2.0
//! Options of sockets, sysctls, limits, and statistics of sockets.

pub(super) mod info;
pub(super) mod limits;
pub(super) mod options;
pub(super) mod sysctl;
pub(super) mod timestamps;
