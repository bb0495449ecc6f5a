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
//! the looks after what was sent notice ([`Locked::watch_sends`]).

use kernel::prelude::*;

use crate::bindings;
use crate::kern::time::{
    ms_since,
    now, //
};
use crate::proto::state::Event;
use crate::sdp::conn::sock::Locked;
use crate::sdp::output::LEAST_UNANSWERED_MS;
use crate::stats::counters::Counter;

/// What the timer knows; times are of [`now`].
#[derive(Copy, Clone, Default)]
pub(crate) struct Keepalive {
    /// When the last message was received.
    heard: usize,
    /// When the request was posted that is not acknowledged.
    probed: Option<usize>,
    /// How often the timer has found it so since.
    unanswered: u32,
}

impl Keepalive {
    /// Something was received.
    pub(in crate::sdp) fn on_receive(&mut self) {
        self.heard = now();
    }

    /// The peer's adapter has acknowledged the request.
    pub(in crate::sdp) fn on_answer(&mut self) {
        if let Some(at) = self.probed.take() {
            if self.last_heard_before(at) {
                self.heard = at;
            }
        }
        self.unanswered = 0;
    }

    /// Probes that were not answered.
    pub(in crate::sdp) fn unanswered(&self) -> u8 {
        u8::try_from(self.unanswered).unwrap_or(u8::MAX)
    }

    /// For how many milliseconds nothing was received.
    pub(in crate::sdp) fn silent_ms(&self) -> u32 {
        ms_since(self.heard)
    }

    fn last_heard_before(&self, time: usize) -> bool {
        (self.heard.wrapping_sub(time) as isize) < 0
    }
}

/// The milliseconds of an option, which has at most 32767 seconds.
fn ms(seconds: i32) -> u32 {
    seconds.unsigned_abs().saturating_mul(1000)
}

impl Locked<'_> {
    /// The connection is up.
    pub(in crate::sdp) fn begin_keepalive(&mut self) {
        self.stream().keepalive.on_receive();
        if self.sk().has_flag(bindings::sock_flags_SOCK_KEEPOPEN) {
            self.await_idle(0);
        }
    }

    /// The program sets SO_KEEPALIVE; the flag follows.
    pub(crate) fn set_keepalive(&mut self, on: bool) {
        if !on {
            self.stop_keepalive();
        } else if self.stream().state.is_connected()
            && !self.sk().has_flag(bindings::sock_flags_SOCK_KEEPOPEN)
        {
            self.await_idle(0);
        }
    }

    /// The program sets TCP_KEEPIDLE.
    pub(in crate::sdp) fn keepidle_set(&mut self) {
        if self.keeps_alive() && self.stream().keepalive.probed.is_none() {
            let idle_ms = ms_since(self.stream().keepalive.heard);
            self.await_idle(idle_ms);
        }
    }

    fn keeps_alive(&mut self) -> bool {
        let flag = self.sk().has_flag(bindings::sock_flags_SOCK_KEEPOPEN);
        flag && self.stream().state.is_connected()
    }

    /// Starts the timer for the rest of TCP_KEEPIDLE.
    fn await_idle(&mut self, idle_ms: u32) {
        let keepidle_ms = ms(self.stream().options.keepidle_s);
        self.start_keepalive(keepidle_ms.saturating_sub(idle_ms));
    }

    /// The timer has run out.
    pub(in crate::sdp) fn keep_alive(&mut self) {
        // An answer, or a message, may be there.
        self.poll_queue();
        if !self.keeps_alive() {
            return;
        }
        match self.stream().keepalive.probed {
            None => self.probe_if_idle(),
            Some(at) => self.no_answer(at),
        }
    }

    fn probe_if_idle(&mut self) {
        if self.awaits_acknowledgement() {
            // There is who looks after that.
            return self.await_idle(0);
        }
        let idle_ms = ms_since(self.stream().keepalive.heard);
        if idle_ms < ms(self.stream().options.keepidle_s) {
            return self.await_idle(idle_ms);
        }
        if self.probe(Counter::KeepaliveProbe) {
            let keepalive = &mut self.stream().keepalive;
            (keepalive.probed, keepalive.unanswered) = (Some(now()), 0);
            // soft-RoCE does not tell that it has given up.
            self.watch_sends();
            self.await_answer();
        }
    }

    fn await_answer(&mut self) {
        let keepintvl_ms = ms(self.stream().options.keepintvl_s);
        self.start_keepalive(keepintvl_ms);
    }

    /// The request that was posted at that time is not acknowledged.
    fn no_answer(&mut self, at: usize) {
        let stream = self.stream();
        if !stream.keepalive.last_heard_before(at) {
            // The peer has sent something since.
            stream.keepalive.unanswered = 0;
            return self.await_answer();
        }
        stream.keepalive.unanswered += 1;
        let times = stream.keepalive.unanswered;
        let options = &stream.options;
        let too_long = match options.user_timeout_ms.unsigned_abs() {
            0 => times >= options.keepcnt.unsigned_abs(),
            limit_ms => ms_since(stream.keepalive.heard) >= limit_ms,
        };
        if too_long && ms_since(at) >= LEAST_UNANSWERED_MS {
            self.stats.inc(Counter::TimedOut);
            return self.fail(Event::Timeout, ETIMEDOUT);
        }
        self.await_answer();
    }
}
