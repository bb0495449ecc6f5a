// SPDX-License-Identifier: GPL-2.0

//! The transmit watchdog: checks every second whether the peer's adapter has acknowledged the sent
//! messages. Also limits the time of other actions of the peer.

use crate::proto::message::Control;
use crate::proto::watchdog::{
    Sight,
    UNANSWERED_MS, //
};
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
use crate::sdp::rx::resize::shrink;
use crate::stats::counters::Counter;

/// How long to wait for the answer to the first message before the peer's adapter is woken for the
/// first time.
const WAKE_MS: u32 = 20;

/// How long the peer may take to answer a cancel; it only has to let its Reads or Writes finish.
/// Longer than the limit for an acknowledgement, because the adapter must be the first to report
/// that the peer is unreachable.
pub(in crate::sdp) const CANCEL_MS: u32 = UNANSWERED_MS + 10_000;

/// How long the bytes of a receive that has returned early may take: longer than the adapter
/// retries (seven times two seconds) before it reports that they will not come.
pub(in crate::sdp) const EARLY_MS: u32 = 20_000;

/// Sends an empty message, for which the peer waits if this side has to send the first message. The
/// peer answers with an empty message.
pub(in crate::sdp) fn send_first(guard: &mut SockGuard<'_>) {
    let posted = Output::of(guard).post(Control::Update);
    if settle(guard, posted) {
        let watch = &mut guard.conn().liveness.watch;
        (watch.running, watch.wake_ms) = (true, WAKE_MS);
        guard.start_timer(Alarm::Watch, WAKE_MS);
    }
}

/// Has the peer's adapter check for received bytes, if the first message was not answered.
///
/// soft-iWARP (Linux 7.3) may miss that message: `siw_accept()` sends the MPA reply before it
/// installs `siw_qp_llp_data_ready()` as the handler of received bytes. A message that arrives in
/// between stays in the receive queue of TCP until the next one arrives. So more requests follow,
/// at increasing intervals, that only the adapter notices.
fn wake_peer(guard: &mut SockGuard<'_>) -> bool {
    let conn = guard.conn();
    if conn.liveness.watch.wake_ms == 0 || !conn.may_transmit() {
        return false;
    }
    let next_ms = conn.liveness.watch.next_wake();
    // If the send queue is full, enough requests follow in any case.
    let has_room = conn.link.as_ref().is_some_and(|link| link.send_room() > 0);
    if next_ms > 0 && (!has_room || probe(guard)) {
        guard.conn().liveness.watch.running = true;
        guard.start_timer(Alarm::Watch, next_ms);
    }
    next_ms > 0
}

/// Asks for an acknowledgement of the peer's adapter ([`Output::probe`]).
fn probe(guard: &mut SockGuard<'_>) -> bool {
    let probed = Output::of(guard).probe(Counter::Probe);
    settle(guard, probed)
}

/// Called when the timer of [`watchdog::begin`](crate::sdp::conn::watchdog::begin) has expired.
pub(in crate::sdp) fn check_sends(guard: &mut SockGuard<'_>) {
    guard.conn().liveness.watch.running = false;
    poll_cq(guard);
    if wake_peer(guard) {
        return;
    }
    let conn = guard.conn();
    let link = conn.link.as_ref().filter(|_| !conn.state.has_ended());
    if link.is_some_and(|link| link.has_unwanted_regions(EARLY_MS)) {
        // A thread that waits for these bytes has waited too long, or is being killed.
        return end_for(guard, Fatal::TimedOut);
    }
    let short_messages = conn.inq.drop_idle_page();
    let large_receives = shrink(guard);
    let waits = Flush::of(guard).waits_for_peer();
    let conn = guard.conn();
    let Some(link) = &conn.link else { return };
    let held_up = link.sends_in_flight() == 0;
    if conn.state.has_ended() || (held_up && !waits) {
        let watch = &mut conn.liveness.watch;
        (watch.looks, watch.idle_looks) = (0, 0);
        if short_messages || large_receives {
            guard.watch_sends();
        }
        return;
    }
    let oldest = (!held_up).then(|| link.oldest_send());
    if held_up {
        // The peer's program makes no room: check whether the peer's machine is still there.
        probe(guard);
    }
    let conn = guard.conn();
    let sight = Sight {
        oldest,
        waits,
        taken: conn.measured.pacing.pace.delivered(),
    };
    let user_timeout_ms = conn.options.user_timeout_ms.unsigned_abs();
    if conn.liveness.watch.is_too_long(sight, user_timeout_ms) {
        return end_for(guard, Fatal::TimedOut);
    }
    guard.watch_sends();
}
