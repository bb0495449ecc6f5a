// SPDX-License-Identifier: GPL-2.0
//! What tests and programs are made of: steps and expectations, system calls, the peer, data with a check.

pub(crate) mod flow;
pub(crate) mod harness;
pub(crate) mod pattern;
pub(crate) mod peer;
pub(crate) mod sys;
