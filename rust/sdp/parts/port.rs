// SPDX-License-Identifier: GPL-2.0

//! The port of a socket, in the tables of its namespace and at the CM.

use kernel::prelude::*;

use crate::inet::ports::Bound;

/// The port of a connection's id at the CM.
#[derive(Copy, Clone)]
pub(in crate::sdp) enum AtCm {
    /// There is no id.
    Unknown,
    /// The port of the socket.
    Own,
    /// A port that was set aside, or that the CM has chosen, because the id cannot use the port of
    /// the socket.
    Other(Bound),
}

pub(crate) struct Port {
    /// The socket's place in the tables of ports, if it has a port.
    pub(in crate::sdp) bound: Option<Bound>,
    /// The place of the connection that is being released, if the next one has another port.
    pub(in crate::sdp) former_bound: Option<Bound>,
    /// The port of the connection's id at the CM.
    pub(in crate::sdp) at_cm: AtCm,
    /// The CM listens for this socket.
    pub(in crate::sdp) listens: bool,
    /// The ports at which the CM still listens for this socket, although the socket has ended its
    /// listening there. While the socket listens, there is capacity for one more.
    pub(in crate::sdp) unlisten: KVec<u16>,
    /// The error of the last bind(), a negative errno, for the option SDP_LAST_BIND_ERR.
    pub(crate) last_bind_err: i32,
}

impl Port {
    /// Whether the CM has the port of the socket.
    pub(in crate::sdp) fn is_at_cm(&self) -> bool {
        matches!(self.at_cm, AtCm::Own)
    }

    pub(in crate::sdp) const fn new() -> Self {
        Self {
            bound: None,
            former_bound: None,
            at_cm: AtCm::Unknown,
            listens: false,
            unlisten: KVec::new(),
            last_bind_err: 0,
        }
    }

    /// The state for the socket's next connection, after everything of this one was released.
    pub(in crate::sdp) fn of_next(self) -> Self {
        Self {
            bound: self.bound,
            unlisten: self.unlisten,
            last_bind_err: self.last_bind_err,
            ..Self::new()
        }
    }
}
