// SPDX-License-Identifier: GPL-2.0

//! sendmsg(), and the paths of a send.

mod azsdp;
mod choose;
mod copy;
mod lent;
pub(crate) mod sendmsg;
mod sink_write;
mod sink_write_async;
mod timed;
mod zsdp;
