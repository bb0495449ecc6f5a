// SPDX-License-Identifier: GPL-2.0

//! Measures the time of sends, which decides about the path of later sends of about the same size.
//!
//! The time only decides if neither the program nor the administrator has chosen a path, or a
//! minimum size for sends without a copy. Sends whose memory needs no protection (MSG_ZEROCOPY,
//! sendfile()) and sends of urgent bytes are not measured.

use kernel::prelude::*;
use kernel::time::{
    ClockSource,
    Monotonic, //
};

use super::sendmsg::Send;
use crate::bindings;
use crate::proto::choice::Path;
use crate::proto::trial::{
    Call,
    Trials,
    FIRST, //
};
use crate::sdp::conn::guard::SockGuard;

/// A call whose time is measured.
pub(super) struct Timed {
    began_ns: u64,
    delivered_before: u64,
    /// As [`Trials::path`].
    pub(super) path: Path,
}

impl Timed {
    /// Begins to measure a call; `None` if measurements do not decide about its path.
    pub(super) fn of_call(guard: &mut SockGuard<'_>, send: &Send<'_>) -> Option<Self> {
        let conn = guard.conn();
        let is_plain = send.lending.is_none() && send.flags & bindings::MSG_OOB == 0;
        if !is_plain || !conn.compares_paths() || send.total < conn.threshold_bytes() as usize {
            return None;
        }
        let may_wait = !send.timeo.is_over();
        let trials = conn.adverts.trials.as_ref();
        let path = trials.map_or(FIRST, |trials| trials.path(send.total as u64, may_wait));
        Some(Self {
            began_ns: now_ns(),
            delivered_before: conn.measured.pacing.pace.delivered(),
            path,
        })
    }

    /// Records the time of the call, which is over.
    pub(super) fn end(self, guard: &mut SockGuard<'_>, send: &Send<'_>) {
        let ended_ns = now_ns();
        // Before the first advert, all sends went by copy: there is nothing to compare.
        let are_used = guard.conn().adverts.are_used();
        if guard.generation() != send.began || !are_used {
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
            trials.record(Call {
                asked_bytes: send.total as u64,
                bytes: send.copied as u64,
                path: self.path,
                sent: delivered.saturating_add(unsent.into()),
                delivered_before: self.delivered_before,
                began_ns: self.began_ns,
                ended_ns,
            });
        }
    }
}

/// The time of the monotonic clock, in nanoseconds.
fn now_ns() -> u64 {
    Monotonic::ktime_get().unsigned_abs()
}
