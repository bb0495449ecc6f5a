// SPDX-License-Identifier: GPL-2.0

//! A connection that its listener defers (TCP_DEFER_ACCEPT): it is established, but is not there for
//! accept() until its peer has sent something, or its time is over. `cm/deferral` is what its worker does.

use super::guard::SockGuard;
use super::sock::Want;
use crate::proto::deferral::Timeouts;

/// Of a child that is deferred.
#[derive(Default)]
pub(in crate::sdp) struct Deferral {
    /// The time-outs that have passed.
    pub(in crate::sdp) passed: Timeouts,
    /// The worker shall end it, or has tried and waits for a place in the listener's queue.
    pub(in crate::sdp) is_due: bool,
}

impl SockGuard<'_> {
    /// Whether a read would find something: bytes, or their end.
    pub(in crate::sdp) fn has_first(&mut self) -> bool {
        let ended = self.conn().inq.fin_received && !self.conn().adverts.holds();
        ended || !self.conn().inq.queue.is_empty()
    }

    /// Asks the worker to end the deferral, if there is one, and the peer has sent something. In BH, too:
    /// the listener's queue needs a process.
    pub(in crate::sdp) fn end_deferral_if_due(&mut self) {
        if self.conn().lifetime.deferral.is_none() || !self.has_first() {
            return;
        }
        if let Some(deferral) = &mut self.conn().lifetime.deferral {
            if !core::mem::replace(&mut deferral.is_due, true) {
                self.want(Want::Push);
            }
        }
    }
}
