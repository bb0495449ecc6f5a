// SPDX-License-Identifier: GPL-2.0
//! The other end of the connections: a server process on the peer machine
//! that makes socket calls as asked over a plain TCP control channel.
//!
//! A test opens a session ([`Peer`]), whose calls name sockets by number
//! ([`Remote`]). A session is a process of its own on the peer: it ends with
//! its control connection, and all its sockets with it. Data never crosses
//! the control channel: both ends make it from a seed.

mod client;
mod jobs;
mod serve;
mod session;
mod wire;

pub(crate) use client::{Job, Peer, Remote};
pub(crate) use jobs::Work;
pub(crate) use serve::{serve, start_here};

/// The port of the control channel.
pub(crate) const CONTROL_PORT: u16 = 2700;
