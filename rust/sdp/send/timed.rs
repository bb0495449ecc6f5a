// SPDX-License-Identifier: GPL-2.0

//! The time that sends take, which decides whether later sends of about the same size go by copy.
//!
//! The time decides only if neither the program nor the administrator has chosen a way, or a
//! minimum size for sends without a copy. Sends whose memory needs no protection (MSG_ZEROCOPY,
//! sendfile()) and urgent bytes are not compared.

use kernel::prelude::*;
use kernel::time::{
    Instant,
    Monotonic, //
};

use super::sendmsg::Send;
use crate::bindings;
use crate::proto::trial::{
    Call,
    Trials,
    Way, //
};
use crate::sdp::conn::guard::SockGuard;

/// A call whose time is compared.
pub(super) struct Timed {
    began: Instant<Monotonic>,
    delivered_before: u64,
    pub(super) way: Way,
}

impl Timed {
    /// Begins to measure a call; `None` if time does not decide about the way of the call.
    pub(super) fn of_call(guard: &mut SockGuard<'_>, send: &Send<'_>) -> Option<Self> {
        let conn = guard.conn();
        let is_plain = send.lending.is_none() && send.flags & bindings::MSG_OOB == 0;
        if !is_plain || !conn.compares_ways() || send.total < conn.threshold_bytes() as usize {
            return None;
        }
        let trials = conn.adverts.trials.as_ref();
        Some(Self {
            began: Instant::now(),
            delivered_before: conn.measured.pacing.pace.delivered(),
            way: trials.map_or(Way::Uncopied, |trials| trials.way(send.total as u64)),
        })
    }

    /// Records the time of the call, which is over.
    pub(super) fn end(self, guard: &mut SockGuard<'_>, send: &Send<'_>) {
        let ns = self.began.elapsed().as_nanos().unsigned_abs();
        // There is nothing to compare if the peer does not take adverts.
        let has_adverts = guard.conn().adverts.sources.is_some();
        if guard.generation() != send.began || send.copied == 0 || !has_adverts {
            return;
        }
        let sk = guard.sk();
        let (_, flags) = guard.gfp();
        let conn = guard.conn();
        let delivered = conn.measured.pacing.pace.delivered();
        let unsent = conn.unsent_bytes(sk);
        if conn.adverts.trials.is_none() {
            conn.adverts.trials = KBox::new(Trials::new(), flags).ok();
        }
        if let Some(trials) = &mut conn.adverts.trials {
            trials.on_send(&Call {
                asked_bytes: send.total as u64,
                bytes: send.copied as u64,
                way: self.way,
                ns,
                sent: delivered.saturating_add(unsent.into()),
                delivered_before: self.delivered_before,
            });
        }
    }
}
