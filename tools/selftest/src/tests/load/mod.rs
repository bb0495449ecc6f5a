// SPDX-License-Identifier: GPL-2.0
//! Several processes and threads with one socket, many sockets, and calls that are meant to do
//! harm.

pub(super) mod attacks;
pub(super) mod sharing;
pub(super) mod stress;
