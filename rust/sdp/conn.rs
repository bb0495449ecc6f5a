// SPDX-License-Identifier: GPL-2.0

//! The socket, its lock, and its connection.
//!
//! The socket contains the connection, and a connection refers to the socket of its listener, so
//! both are in one module.

pub(in crate::sdp) mod accept_queue;
mod charge;
pub(in crate::sdp) mod cm_side;
pub(in crate::sdp) mod connection;
pub(crate) mod count;
pub(in crate::sdp) mod deferral;
mod free;
pub(crate) mod guard;
pub(in crate::sdp) mod half;
mod keepalive;
pub(in crate::sdp) mod notify;
mod orphan;
mod owed;
pub(crate) mod sock;
pub(crate) mod transition;
mod urgent;
pub(in crate::sdp) mod watchdog;
