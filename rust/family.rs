// SPDX-License-Identifier: GPL-2.0

//! The socket families 27 and 28, and the protocol 257: the functions that the core calls for a
//! socket of the module.

mod ops;
pub(crate) mod register;
mod sk_ops;
mod sockopt;
