// SPDX-License-Identifier: GPL-2.0

//! The timer of an orphan: a socket that its program has closed.

use super::guard::SockGuard;
use super::sock::Alarm;
use crate::proto::orphan::Rest;
use crate::proto::state::State;

/// How long the peer of an orphan may take for one share of the rest ([`Rest`]), or for closing its
/// half afterwards.
const ORPHAN_MS: u32 = 60_000;

impl SockGuard<'_> {
    /// Starts the timer for one turn of the peer ([`Rest`]).
    pub(in crate::sdp) fn start_orphan_timer(&mut self) {
        self.start_timer(Alarm::Timeout, ORPHAN_MS);
    }

    /// If TCP_LINGER2 is set, starts the timer within which a peer that has the whole stream must
    /// close. If the option is negative, the timer expires at once, and the connection is reset.
    /// Without the option, the turns go on.
    pub(in crate::sdp) fn start_fin_timer(&mut self) {
        let conn = self.conn();
        let seconds = conn.options.linger2_s;
        let due = conn.state == State::FinWait2 && seconds != 0 && !conn.lifetime.fin_timer;
        if due && self.peer_has_all() {
            let lifetime = &mut self.conn().lifetime;
            lifetime.fin_timer = true;
            // There is nothing left for the peer to take.
            lifetime.orphan_rest = Rest::new(0);
            self.start_timer(Alarm::Timeout, u32::try_from(seconds).unwrap_or(0) * 1000);
        }
    }
}
