// SPDX-License-Identifier: GPL-2.0

//! The parts of a connection that do not depend on the socket.

pub(in crate::sdp) mod adverts;
pub(in crate::sdp) mod counts;
pub(in crate::sdp) mod fatal;
pub(in crate::sdp) mod glance;
pub(in crate::sdp) mod hold;
pub(in crate::sdp) mod liveness;
pub(in crate::sdp) mod measured;
pub(in crate::sdp) mod names;
pub(in crate::sdp) mod options;
pub(in crate::sdp) mod pacing;
pub(in crate::sdp) mod port;
pub(in crate::sdp) mod posted;
pub(in crate::sdp) mod recv_queue;
pub(in crate::sdp) mod ring;
pub(in crate::sdp) mod send_queue;
pub(in crate::sdp) mod sink;
pub(in crate::sdp) mod source;
