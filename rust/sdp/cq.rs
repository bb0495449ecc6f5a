// SPDX-License-Identifier: GPL-2.0

//! The completion queue: polling, and the handling of completions and received messages.

mod dispatch;
pub(crate) mod poll;
