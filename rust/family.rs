// SPDX-License-Identifier: GPL-2.0

//! The socket families 27 and 28: what the core calls for a socket of ours.

mod ops;
pub(crate) mod register;
mod sockopt;
