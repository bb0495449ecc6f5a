// SPDX-License-Identifier: GPL-2.0
//! poll(), select(), epoll, io_uring, and signals.

pub(super) mod poll;
pub(super) mod signals;
pub(super) mod uring;
