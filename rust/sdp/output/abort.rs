// SPDX-License-Identifier: GPL-2.0

//! Ends a connection at once, and tells the peer if that is possible.

use kernel::prelude::*;

use crate::kern::errno::{
    ENOBUFS,
    EPROTO, //
};
use crate::proto::message::Body;
use crate::proto::state::Event;
use crate::proto::violation::Violation;
use crate::rdma::link::Tag;
use crate::sdp::conn::guard::SockGuard;
use crate::stats::counters::Counter;

impl SockGuard<'_> {
    /// Tells the peer that the connection is aborted, if that is still possible.
    pub(crate) fn send_abort(&mut self) {
        if self.may_transmit() {
            self.post(Body::AbortConn, &mut [], 0, Tag::AbortConn);
        }
    }

    /// Ends the connection at once, as TCP does with RST.
    pub(crate) fn abort(&mut self, why: Error) {
        self.abort_for(Some(why));
    }

    /// As [`SockGuard::abort`]; without `why`, there is no error for the user.
    pub(in crate::sdp) fn abort_for(&mut self, why: Option<Error>) {
        self.stats.inc(Counter::AbortedLocal);
        self.send_abort();
        self.end(Event::Abort, why);
    }

    /// Without memory for bytes that were received the connection cannot go on.
    pub(in crate::sdp) fn lost_bytes(&mut self) {
        self.stats.inc(Counter::NoReceiveMemory);
        self.send_abort();
        self.fail(Event::Abort, ENOBUFS);
    }

    /// The peer broke the protocol.
    pub(in crate::sdp) fn violated(&mut self, why: Violation) {
        self.stats.violation(why);
        self.stats.inc(Counter::AbortedViolation);
        self.send_abort();
        self.fail(Event::Abort, EPROTO);
    }
}
