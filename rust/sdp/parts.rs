// SPDX-License-Identifier: GPL-2.0

//! What a connection is made of and does not need to know the socket.

pub(in crate::sdp) mod glance;
pub(in crate::sdp) mod hold;
pub(in crate::sdp) mod keepalive;
pub(in crate::sdp) mod posted;
pub(in crate::sdp) mod sink;
pub(in crate::sdp) mod source;
