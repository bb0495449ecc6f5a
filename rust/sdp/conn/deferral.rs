// SPDX-License-Identifier: GPL-2.0

//! Connections that their listener defers (TCP_DEFER_ACCEPT): a deferred connection is established,
//! but accept() does not get it before its peer has sent something, or its time is over.
//! `cm/deferral` is the worker's part.

use super::guard::SockGuard;
use super::sock::Want;
use crate::proto::deferral::Timeouts;

/// The state of a deferred child.
#[derive(Default)]
pub(in crate::sdp) struct Deferral {
    /// The time-outs that have passed.
    pub(in crate::sdp) passed: Timeouts,
    /// The worker was asked to end the deferral, or waits for a place in the listener's queue.
    pub(in crate::sdp) is_due: bool,
}

impl SockGuard<'_> {
    /// Whether a read would find bytes, or the end of the stream.
    pub(in crate::sdp) fn has_first(&mut self) -> bool {
        let ended = self.conn().inq.fin_received && !self.conn().adverts.holds();
        ended || !self.conn().inq.queue.is_empty()
    }

    /// Asks the worker to end the deferral, if the connection is deferred and its peer has sent
    /// something. The worker does it, because this may run in BH context, but the listener's queue
    /// requires process context.
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
