// SPDX-License-Identifier: GPL-2.0

//! What a connection is made of and does not need to know the socket.

pub(in crate::sdp) mod glance;
pub(in crate::sdp) mod hold;
