// SPDX-License-Identifier: GPL-2.0

//! The timer of a socket that its program has closed.

use super::guard::SockGuard;
use super::sock::Alarm;
use crate::proto::orphan::Rest;
use crate::proto::state::State;

/// How long the peer of an orphan may take for its part of the rest ([`Rest`]), or to close its half behind
/// that.
const ORPHAN_MS: u32 = 60_000;

impl SockGuard<'_> {
    /// Starts the timer for a turn of the peer.
    pub(in crate::sdp) fn start_orphan_timer(&mut self) {
        self.start_timer(Alarm::Timeout, ORPHAN_MS);
    }

    /// Starts the timer for the time in which a peer that has all of the stream has to close, if TCP_LINGER2
    /// says how long; if less than 0, the peer has no time, and the connection is reset. Without the option
    /// the turns go on.
    pub(in crate::sdp) fn start_fin_timer(&mut self) {
        let conn = self.conn();
        let seconds = conn.options.linger2_s;
        let due = conn.state == State::FinWait2 && seconds != 0 && !conn.lifetime.fin_timer;
        if due && self.peer_has_all() {
            let lifetime = &mut self.conn().lifetime;
            lifetime.fin_timer = true;
            // What was to be taken has been.
            lifetime.orphan_rest = Rest::new(0);
            self.start_timer(Alarm::Timeout, u32::try_from(seconds).unwrap_or(0) * 1000);
        }
    }
}
