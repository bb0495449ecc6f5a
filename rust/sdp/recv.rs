// SPDX-License-Identifier: GPL-2.0

//! recvmsg(), and the ways that bytes come.

pub(in crate::sdp) mod copy;
pub(in crate::sdp) mod read_async;
pub(in crate::sdp) mod read_zcopy;
pub(crate) mod recvmsg;
pub(in crate::sdp) mod sink_avail;
