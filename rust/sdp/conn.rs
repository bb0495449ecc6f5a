// SPDX-License-Identifier: GPL-2.0

//! The socket, its lock, and the connection behind it.
//!
//! The socket contains the connection, and a connection refers to the socket of its listener: so they are
//! of one module.

pub(crate) mod connection;
pub(in crate::sdp) mod count;
pub(in crate::sdp) mod half;
pub(crate) mod sock;
