// SPDX-License-Identifier: GPL-2.0
//! poll() and its kin, and signals.

pub(super) mod poll;
pub(super) mod signals;
