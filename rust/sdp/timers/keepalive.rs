// SPDX-License-Identifier: GPL-2.0

//! SO_KEEPALIVE: whether the machine of a peer who sends nothing is still there.
//!
//! # Normal operation
//!
//! A timer runs while the option is set on a connection, and looks when something was last received:
//! messages only note the time. After TCP_KEEPIDLE seconds without any, a request goes out that the
//! peer's adapter acknowledges, and of which neither the peer's program nor its CPU notices anything
//! ([`crate::rdma::link::Link::probe`]). An acknowledgement counts as something received at the time of the probe.
//!
//! # When there is no answer
//!
//! The adapter sends the request again by itself, so only one is out at a time. After TCP_KEEPCNT
//! times TCP_KEEPINTVL, or TCP_USER_TIMEOUT, the connection ends with `ETIMEDOUT`; but not before the
//! adapter has had the time for a second try. Nor does it go on after the adapter has given up, which
//! the looks after what was sent notice ([`super::tx_watchdog`]).

use kernel::prelude::*;

use super::tx_watchdog::LEAST_UNANSWERED_MS;
use crate::kern::time::{
    ms_since,
    now, //
};
use crate::proto::state::Event;
use crate::sdp::conn::guard::SockGuard;
use crate::sdp::conn::sock::Alarm;
use crate::sdp::output::abort::settle;
use crate::sdp::output::Output;
use crate::sdp::parts::keepalive::ms;
use crate::stats::counters::Counter;

impl SockGuard<'_> {
    /// The timer has run out.
    pub(in crate::sdp) fn keep_alive(&mut self) {
        // An answer, or a message, may be there.
        self.poll_cq();
        if !self.keeps_alive() {
            return;
        }
        match self.conn().liveness.keepalive.probed {
            None => self.probe_if_idle(),
            Some(at) => self.no_answer(at),
        }
    }

    fn probe_if_idle(&mut self) {
        if self.awaits_acknowledgement() {
            // There is who looks after that.
            return self.await_idle(0);
        }
        let idle_ms = ms_since(self.conn().liveness.keepalive.heard);
        if idle_ms < ms(self.conn().options.keepidle_s) {
            return self.await_idle(idle_ms);
        }
        let probed = Output::of(self).probe(Counter::KeepaliveProbe);
        if settle(self, probed) {
            let keepalive = &mut self.conn().liveness.keepalive;
            (keepalive.probed, keepalive.unanswered) = (Some(now()), 0);
            // soft-RoCE does not tell that it has given up.
            self.watch_sends();
            self.await_answer();
        }
    }

    fn await_answer(&mut self) {
        let keepintvl_ms = ms(self.conn().options.keepintvl_s);
        self.start_timer(Alarm::Keepalive, keepintvl_ms);
    }

    /// The request that was posted at that time is not acknowledged.
    fn no_answer(&mut self, at: usize) {
        let conn = self.conn();
        if !conn.liveness.keepalive.last_heard_before(at) {
            // The peer has sent something since.
            conn.liveness.keepalive.unanswered = 0;
            return self.await_answer();
        }
        conn.liveness.keepalive.unanswered += 1;
        let times = conn.liveness.keepalive.unanswered;
        let options = &conn.options;
        let too_long = match options.user_timeout_ms.unsigned_abs() {
            0 => times >= options.keepcnt.unsigned_abs(),
            limit_ms => ms_since(conn.liveness.keepalive.heard) >= limit_ms,
        };
        if too_long && ms_since(at) >= LEAST_UNANSWERED_MS {
            self.stats.inc(Counter::TimedOut);
            return self.fail(Event::Timeout, ETIMEDOUT);
        }
        self.await_answer();
    }
}
