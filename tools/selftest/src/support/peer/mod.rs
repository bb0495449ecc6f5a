// SPDX-License-Identifier: GPL-2.0
//! The other end of the connections: a server process on the peer's machine. It makes the socket
//! calls that a test asks for over a plain TCP control channel.
//!
//! A test opens a session ([`Peer`]), in which calls name sockets by number ([`Remote`]). A session
//! is a process of its own on the peer. It ends, and all its sockets are closed, when its control
//! connection ends. Data is never sent over the control channel: both ends generate it from a seed.

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
