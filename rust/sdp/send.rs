// SPDX-License-Identifier: GPL-2.0

//! sendmsg(), and the ways that bytes go.

pub(in crate::sdp) mod azsdp;
pub(in crate::sdp) mod choose;
pub(in crate::sdp) mod copy;
pub(crate) mod sendmsg;
pub(in crate::sdp) mod sink_write;
pub(in crate::sdp) mod sink_write_async;
pub(in crate::sdp) mod zsdp;
