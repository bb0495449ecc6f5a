// SPDX-License-Identifier: GPL-2.0
//! The stream: each byte in its place, whoever waits for it.

pub(super) mod blocking;
pub(super) mod data;
pub(super) mod lengths;
pub(super) mod peek;
pub(super) mod random;
pub(super) mod urgent;
