// SPDX-License-Identifier: GPL-2.0

//! The addresses of a connection.

use crate::inet::addr::Addr;

pub(crate) struct Names {
    pub(in crate::sdp) local: Addr,
    pub(crate) peer: Addr,
    /// The peer of the next connection, if connect() has been called while the former one is
    /// released.
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

    /// The peer of the next connection, if connect() has recorded one; else that of this one.
    pub(crate) fn shown_peer(&self) -> Addr {
        self.next.unwrap_or(self.peer)
    }
}
