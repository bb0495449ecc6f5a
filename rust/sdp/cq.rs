// SPDX-License-Identifier: GPL-2.0

//! The completion queue: who polls it, and what each completion and each message does.

mod dispatch;
pub(crate) mod poll;
