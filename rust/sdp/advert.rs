// SPDX-License-Identifier: GPL-2.0

//! Adverts of both sides, and the messages about them.

pub(in crate::sdp) mod sink;
pub(crate) mod source;
