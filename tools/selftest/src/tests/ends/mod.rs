// SPDX-License-Identifier: GPL-2.0
//! Ends of connections: close(), shutdown(), resets.

pub(super) mod close;
pub(super) mod reset;
