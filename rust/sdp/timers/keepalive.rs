// SPDX-License-Identifier: GPL-2.0

//! SO_KEEPALIVE: checks whether the machine of a silent peer is still there.
//!
//! # Normal operation
//!
//! A timer runs while the option is set on a connection, and checks when something was last
//! received; messages only record the time. After TCP_KEEPIDLE seconds without a message, a request
//! is posted that the peer's adapter acknowledges, without the peer's program or CPU
//! ([`crate::rdma::link::Link::probe`]). An acknowledgement counts as a message received at the
//! time of the probe.
//!
//! # Without an answer
//!
//! The adapter retransmits the request by itself, so only one request is in flight at a time. After
//! TCP_KEEPCNT times TCP_KEEPINTVL, or after TCP_USER_TIMEOUT, the connection ends with
//! `ETIMEDOUT`, but not before the adapter has had the time for a second attempt. The connection
//! also ends when the adapter gives up, which the transmit watchdog notices
//! ([`super::tx_watchdog`]).

use crate::kern::time::{
    ms_since,
    now, //
};
use crate::proto::keepalive::Next;
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
use crate::stats::counters::Counter;

/// Called when the timer has expired.
pub(in crate::sdp) fn keep_alive(guard: &mut SockGuard<'_>) {
    // An answer or a message may have arrived.
    poll_cq(guard);
    if !guard.keeps_alive() {
        return;
    }
    let watched = Flush::of(guard).awaits_acknowledgement();
    let conn = guard.conn();
    let limits = conn.options.keepalive_limits();
    match conn.liveness.keepalive.look(limits, watched, ms_since) {
        Next::Wait(ms) => guard.start_timer(Alarm::Keepalive, ms),
        Next::Probe => probe(guard),
        Next::GiveUp => end_for(guard, Fatal::TimedOut),
    }
}

fn probe(guard: &mut SockGuard<'_>) {
    let probed = Output::of(guard).probe(Counter::KeepaliveProbe);
    if settle(guard, probed) {
        let conn = guard.conn();
        conn.liveness.keepalive.on_probe(now());
        let answer_ms = conn.options.keepalive_limits().interval_ms;
        // soft-RoCE does not report that it has given up.
        guard.watch_sends();
        guard.start_timer(Alarm::Keepalive, answer_ms);
    }
}
