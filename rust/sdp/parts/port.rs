// SPDX-License-Identifier: GPL-2.0

//! The port of a socket, in the tables of its namespace and at the CM.

use kernel::prelude::*;

use crate::inet::ports::Bound;

pub(crate) struct Port {
    /// Where the socket is in the tables of ports, if it has a port.
    pub(in crate::sdp) bound: Option<Bound>,
    /// The same of the connection that is given back, if the next one has another port.
    pub(in crate::sdp) former_bound: Option<Bound>,
    /// The connection's id has the port at the CM too.
    pub(in crate::sdp) at_cm: bool,
    /// The port that the connection's id has at the CM, where it cannot be that of the socket.
    pub(in crate::sdp) other_at_cm: Option<Bound>,
    /// The CM listens for this socket.
    pub(in crate::sdp) listens: bool,
    /// The ports at which the CM still listens for this socket, which has ended its listening there; with
    /// a place for the next one while the socket listens.
    pub(in crate::sdp) unlisten: KVec<u16>,
    /// The error of the last bind(), a negative errno, for the option SDP_LAST_BIND_ERR.
    pub(crate) last_bind_err: i32,
}

impl Port {
    pub(in crate::sdp) const fn new() -> Self {
        Self {
            bound: None,
            former_bound: None,
            at_cm: false,
            other_at_cm: None,
            listens: false,
            unlisten: KVec::new(),
            last_bind_err: 0,
        }
    }

    /// Of the socket's next connection, when everything of this one was given back.
    pub(in crate::sdp) fn of_next(self) -> Self {
        Self {
            bound: self.bound,
            unlisten: self.unlisten,
            last_bind_err: self.last_bind_err,
            ..Self::new()
        }
    }
}
