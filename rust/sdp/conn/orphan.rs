// SPDX-License-Identifier: GPL-2.0

//! The timer of an orphan: a socket that its program has closed.

use super::guard::SockGuard;
use super::sock::Alarm;
use crate::proto::orphan::Rest;
use crate::proto::state::State;

/// The length of a period ([`Rest`]): how long the peer of an orphan may take for each sixteenth of
/// the remaining bytes, and then for closing its half.
const ORPHAN_MS: u32 = 60_000;

impl SockGuard<'_> {
    /// Starts the timer for one period ([`Rest`]).
    pub(in crate::sdp) fn start_orphan_timer(&mut self) {
        self.start_timer(Alarm::Timeout, ORPHAN_MS);
    }

    /// Starts the timer within which a peer that has the whole stream must close: the time of
    /// TCP_LINGER2, or of the sysctl tcp_fin_timeout if the option was not set. If the option is
    /// negative, the timer expires at once, and the connection is reset.
    pub(in crate::sdp) fn start_fin_timer(&mut self) {
        let net = self.sk().net();
        let conn = self.conn();
        let seconds = conn.options.fin_timeout_s(net);
        let due = conn.state == State::FinWait2 && !conn.lifetime.fin_timer;
        if due && self.peer_has_all() {
            let lifetime = &mut self.conn().lifetime;
            lifetime.fin_timer = true;
            // There is nothing left for the peer to take.
            lifetime.orphan_rest = Rest::new(0);
            // The sysctl has no limits.
            let ms = u32::try_from(seconds).map_or(0, |seconds| seconds.saturating_mul(1000));
            self.start_timer(Alarm::Timeout, ms);
        }
    }
}
