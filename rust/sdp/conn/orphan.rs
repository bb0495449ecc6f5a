// SPDX-License-Identifier: GPL-2.0

//! The timer of a socket that its program has closed.

use super::guard::SockGuard;
use crate::proto::orphan::Rest;
use crate::proto::state::State;

/// How long the peer of an orphan may take for its part of the rest ([`Rest`]), or to close its half behind
/// that.
const ORPHAN_MS: u32 = 60_000;

/// The shortest time of a timer.
const AT_ONCE_MS: u32 = 1;

impl SockGuard<'_> {
    /// Starts the timer for what the peer has to do next. TCP_LINGER2 is for the time in which it has to
    /// close; if less than 0, it has none, and the connection is reset.
    pub(in crate::sdp) fn start_orphan_timer(&mut self) {
        let conn = self.conn();
        let fin_timeout_s = conn.options.fin_timeout_s();
        let ms = match (conn.state, u32::try_from(fin_timeout_s)) {
            (State::FinWait2, Ok(seconds)) => seconds * 1000,
            (State::FinWait2, Err(_)) => AT_ONCE_MS,
            _ => ORPHAN_MS,
        };
        self.start_timer(ms);
    }

    /// Our DisConn has reached the peer's adapter: the peer of an orphan has only to close.
    pub(super) fn orphan_waits_for_end(&mut self) {
        if self.conn().state == State::FinWait2 && self.sk().is_orphan() {
            self.conn().lifetime.orphan_rest = Rest::new(0);
            self.start_orphan_timer();
        }
    }
}
