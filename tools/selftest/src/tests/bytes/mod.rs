// SPDX-License-Identifier: GPL-2.0
//! The byte stream: all bytes arrive in order, with every call and every flag.

pub(super) mod blocking;
pub(super) mod data;
pub(super) mod lengths;
pub(super) mod peek;
pub(super) mod random;
pub(super) mod urgent;
