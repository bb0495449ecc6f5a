// SPDX-License-Identifier: GPL-2.0

//! recvmsg(), and the ways that bytes come.

mod copy;
mod read_async;
mod read_zcopy;
pub(crate) mod recvmsg;
mod sink_avail;
pub(crate) mod urgent;
