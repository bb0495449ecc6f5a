// SPDX-License-Identifier: GPL-2.0
//! How sockets come into being: addresses, connect(), listen() and accept(), namespaces.

pub(super) mod addresses;
pub(super) mod basics;
pub(super) mod both;
pub(super) mod connect;
pub(super) mod fallback;
pub(super) mod fastopen;
pub(super) mod listen;
pub(super) mod netns;
