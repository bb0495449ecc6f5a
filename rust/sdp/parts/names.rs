// SPDX-License-Identifier: GPL-2.0

//! The addresses of a connection.

use crate::inet::addr::Addr;

pub(crate) struct Names {
    pub(in crate::sdp) local: Addr,
    pub(crate) peer: Addr,
    /// Where the next connection leads that connect() has asked for, while the former one is given back.
    pub(in crate::sdp) next: Option<Addr>,
}

impl Names {
    pub(in crate::sdp) const fn new() -> Self {
        Self {
            local: Addr::ANY,
            peer: Addr::ANY,
            next: None,
        }
    }

    /// The peer, or that of the connection which connect() has noted.
    pub(crate) fn shown_peer(&self) -> Addr {
        self.next.unwrap_or(self.peer)
    }
}
