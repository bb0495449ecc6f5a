// SPDX-License-Identifier: GPL-2.0

//! Connections, from their beginning to their end: bind, listen, accept, connect, the set-up,
//! close, and the worker that talks to the RDMA CM.

pub(crate) mod accept;
pub(crate) mod bind;
pub(crate) mod close;
pub(crate) mod connect;
mod deferral;
pub(crate) mod fallback;
pub(crate) mod features;
pub(crate) mod listen;
mod loopback;
mod setup;
pub(crate) mod worker;
