// SPDX-License-Identifier: GPL-2.0

//! Why a connection cannot go on.

use kernel::prelude::*;

use crate::proto::violation::Violation;

/// The reason to end a connection at once. The parts of a connection return it;
/// [`end_for`](crate::sdp::output::abort::end_for) ends the connection.
#[must_use]
pub(in crate::sdp) enum Fatal {
    /// The provider has refused a request.
    Refused(Error),
    /// The peer has broken the protocol.
    Violation(Violation),
    /// There is no memory for bytes that were received.
    NoMemory,
    /// This side's state of the connection is inconsistent.
    Inconsistent,
    /// The peer has taken too long.
    TimedOut,
    /// Bytes came for a program that has closed its socket, or shut both halves.
    Unread,
}

impl From<Violation> for Fatal {
    fn from(why: Violation) -> Self {
        Self::Violation(why)
    }
}
