// SPDX-License-Identifier: GPL-2.0
//! Several processes and threads at one socket, many sockets, and calls that nobody means well with.

pub(super) mod attacks;
pub(super) mod sharing;
pub(super) mod stress;
