// SPDX-License-Identifier: GPL-2.0
//! The parts from which tests and programs are made: steps and expectations, system calls, the
//! peer, and data that can be checked.

pub(crate) mod counters;
pub(crate) mod flow;
pub(crate) mod harness;
pub(crate) mod pattern;
pub(crate) mod peer;
pub(crate) mod sys;
