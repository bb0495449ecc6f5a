// SPDX-License-Identifier: GPL-2.0

//! Adverts of both sides, and the messages about them.

mod sink;
pub(in crate::sdp) mod source;
