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

use crate::sdp::conn::guard::SockGuard;
use crate::sdp::conn::sock::Alarm;
use crate::sdp::cq::poll::poll_cq;
use crate::sdp::flush::Flush;
use crate::sdp::output::abort::{
    end_for,
    settle, //
};
use crate::sdp::output::Output;
use crate::sdp::parts::fatal::Fatal;
use crate::sdp::parts::keepalive::Next;
use crate::stats::counters::Counter;

/// The timer has run out.
pub(in crate::sdp) fn keep_alive(guard: &mut SockGuard<'_>) {
    // An answer, or a message, may be there.
    poll_cq(guard);
    if !guard.keeps_alive() {
        return;
    }
    let watched = Flush::of(guard).awaits_acknowledgement();
    let conn = guard.conn();
    match conn.liveness.keepalive.look(&conn.options, watched) {
        Next::Wait(ms) => guard.start_timer(Alarm::Keepalive, ms),
        Next::Probe => probe(guard),
        Next::GiveUp => end_for(guard, Fatal::TimedOut),
    }
}

fn probe(guard: &mut SockGuard<'_>) {
    let probed = Output::of(guard).probe(Counter::KeepaliveProbe);
    if settle(guard, probed) {
        let conn = guard.conn();
        let answer_ms = conn.liveness.keepalive.on_probe(&conn.options);
        // soft-RoCE does not tell that it has given up.
        guard.watch_sends();
        guard.start_timer(Alarm::Keepalive, answer_ms);
    }
}
