// SPDX-License-Identifier: GPL-2.0

//! Polling of the completion queue.
//!
//! The holder of the socket lock polls. The adapter's notification schedules BH work; if a system
//! call holds the lock at that time, the `release_cb` of the call does the work before the lock is
//! free. A call that waits until the adapter has finished with its memory polls, too.

use kernel::prelude::*;

use super::dispatch;
use crate::bindings;
use crate::kern::errno::{
    ECONNRESET,
    EPROTO, //
};
use crate::kern::signal::fatal_signal_pending;
use crate::kern::time::{
    now,
    Timeout, //
};
use crate::proto::half::Generation;
use crate::proto::state::{
    Event,
    State, //
};
use crate::rdma::link::{
    Completion,
    Tag,
    POLL_BATCH, //
};
use crate::rdma::region::{
    Call,
    Use, //
};
use crate::sdp::advert::Exchange;
use crate::sdp::conn::guard::{
    with_bh_lock,
    SockGuard,
    SockOwner, //
};
use crate::sdp::conn::sock::{
    sock_of,
    BH_OFFSET, //
};
use crate::sdp::flush::flush;
use crate::sdp::parts::source::Sources;
use crate::sdp::reclaim::{
    unpin_finished,
    Reclaim, //
};
use crate::sdp::rx::reads::pull;
use crate::sdp::rx::Receiver;
use crate::stats::counters::Counter;

/// How often the CQ is polled again because completions came before it was armed; after that, the
/// rest is left to another run.
const ROUNDS: usize = 16;

/// The BH work of a socket: its CQ may have completions.
///
/// # Safety
///
/// Called by the work queue, for the item of a socket.
pub(in crate::sdp) unsafe extern "C" fn run_bh(work: *mut kernel::bindings::work_struct) {
    // SAFETY: The item belongs to an SDP socket.
    let sock = unsafe { sock_of(work.cast(), BH_OFFSET) };
    with_bh_lock(&sock, process);
}

/// Handles all completions, posts what may be posted, and asks for the next notification.
pub(crate) fn process(guard: &mut SockGuard<'_>) {
    if !may_poll(guard) {
        return;
    }
    for _ in 0..ROUNDS {
        poll_cq(guard);
        if !guard.arm() {
            return;
        }
    }
    guard.sock().requeue_bh();
}

/// Requests the next notification, and handles the completions that came before. If the peer does
/// not stop, the rest is left to BH work.
pub(crate) fn rearm_cq(guard: &mut SockGuard<'_>) {
    for _ in 0..ROUNDS {
        if !guard.arm() {
            return;
        }
        poll_cq(guard);
    }
    guard.sock().requeue_bh();
}

/// As [`poll_cq`], but only if there may be completions; for calls that are about to decide or
/// wait.
pub(crate) fn poll_cq_if_due(guard: &mut SockGuard<'_>) {
    if !guard.is_cq_quiet() {
        poll_cq(guard);
    }
}

/// Handles all completions and posts what may be posted.
pub(crate) fn poll_cq(guard: &mut SockGuard<'_>) {
    if let Some(taken) = take_completions(guard) {
        if taken.receives {
            Receiver::of(guard).refill();
        }
        pull(guard);
        flush(guard);
        wake_reader_if_due(guard);
        wake_writer_if_due(guard);
        if guard.conn().adverts.waits {
            guard.sk().wake_waiters();
        }
    }
}

/// Wakes a reader, if there is a reason. Must be called after the refill, which decides whether a
/// poller can wait for more bytes ([`starved`]).
///
/// [`starved`]: crate::sdp::parts::glance::Glance::starved
fn wake_reader_if_due(guard: &mut SockGuard<'_>) {
    let conn = guard.conn();
    // Bytes that a waiting reader can take itself, as soon as there are places for the Read.
    let offered = |s: &KBox<Sources>| s.reader.next_untaken() > 0;
    let offered =
        conn.inq.reader_bytes.is_some() && conn.adverts.sources.as_ref().is_some_and(offered);
    let readable = conn.inq.readable || offered;
    conn.inq.readable = false;
    if readable {
        guard.stats.inc(Counter::WakeReader);
        guard.sk().wake_reader();
        guard.end_deferral_if_due();
    }
}

pub(in crate::sdp) fn wake_writer_if_due(guard: &mut SockGuard<'_>) {
    let sk = guard.sk();
    // The cheapest check first.
    if sk.has_waiting_writer() && guard.sock().has_space() && sk.wake_writer() {
        guard.stats.inc(Counter::WakeWriter);
    }
}

/// Whether the CQ may be polled: messages that arrive before the HelloAck was handled wait in it.
fn may_poll(guard: &mut SockGuard<'_>) -> bool {
    !matches!(
        guard.conn().state,
        State::Resolving | State::HelloSent | State::Closed
    )
}

/// What the completions that were handled may change.
#[derive(Default)]
struct Taken {
    /// Receives may be missing, or there may be room for more of them.
    receives: bool,
}

/// Handles all completions in the CQ; `None` if there were none.
fn take_completions(guard: &mut SockGuard<'_>) -> Option<Taken> {
    if !may_poll(guard) {
        return None;
    }
    let (mut total, mut heard) = (0, false);
    let mut taken = Taken::default();
    loop {
        let mut batch = [None; POLL_BATCH];
        let n = match &mut guard.conn().link {
            Some(link) => link.poll(&mut batch),
            None => 0,
        };
        total += n;
        for completion in batch.into_iter().take(n).flatten() {
            match completion {
                Completion::Sent => taken.receives |= reap_sent(guard),
                Completion::Received { len, invalidated } => {
                    heard = true;
                    let readable = dispatch::received(guard, len, invalidated);
                    guard.conn().inq.readable |= readable;
                }
                Completion::Failed(status) => {
                    taken.receives = true;
                    completion_failed(guard, status);
                }
            }
        }
        // The queue has no more. With some adapters, polling an empty queue rings a doorbell.
        if n < POLL_BATCH {
            break;
        }
    }
    if heard {
        taken.receives = true;
        guard.conn().liveness.keepalive.on_receive(now());
        guard.conn().liveness.watch.wake_ms = 0;
    }
    if total == 0 {
        return None;
    }
    guard.stats.add(Counter::Completions, total as u64);
    Some(taken)
}

/// Takes finished requests out of the send queue, and frees their memory. Returns whether Reads are
/// among them, whose bytes count as those of receives.
fn reap_sent(guard: &mut SockGuard<'_>) -> bool {
    let (mut count, mut has_read) = (0, false);
    while let Some(sent) = guard.conn().link.as_mut().and_then(|l| l.reap()) {
        count += 1;
        if sent.payload > 0 {
            guard.sk().wmem_uncharge(sent.payload);
            guard.conn().measured.pacing.pace.deliver(sent.payload);
        }
        if guard.conn().out.small_in_flight == Some(sent.number) {
            guard.conn().out.small_in_flight = None;
        }
        if let Some(memory) = sent.read {
            has_read = true;
            let done = Receiver::of(guard).read_finished(memory);
            dispatch::end_if_lost(guard, done);
        }
        match sent.tag {
            Tag::DisConn => guard.disconn_sent(),
            Tag::Answer => guard.finish_if_drained(),
            Tag::Probe => guard.conn().liveness.keepalive.on_answer(),
            Tag::Invalidation(region) => Reclaim::of(guard).region_invalidated(region),
            Tag::DirectRead(region) => {
                has_read = true;
                let link = guard.conn().link.as_ref();
                let purpose = link.and_then(|link| link.region_use(region));
                let awaited = purpose == Some(Use::OwnReads(Call::Waits));
                let done = Receiver::of(guard).direct_read_finished(awaited);
                dispatch::end_if_lost(guard, done);
                Reclaim::of(guard).region_used(region);
            }
            Tag::EarlyRead(region) => {
                has_read = true;
                let done = Receiver::of(guard).early_read_finished(region);
                dispatch::end_if_lost(guard, done);
                Reclaim::of(guard).region_used(region);
            }
            Tag::Write(region) => Exchange::of(guard).write_finished(region),
            Tag::Data
            | Tag::Control
            | Tag::AbortConn
            | Tag::Registration
            | Tag::Read
            | Tag::Part => {}
        }
    }
    guard.stats.add(Counter::RequestDone, count);
    has_read
}

fn completion_failed(guard: &mut SockGuard<'_>, status: bindings::ib_wc_status) {
    if status == bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR {
        // The queue pair was put into its error state: the CM's event or the teardown by this side
        // has the reason.
        return;
    }
    guard.stats.inc(Counter::CompletionError);
    if guard.conn().state == State::Dead {
        return;
    }
    match status {
        bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR => {
            guard.stats.inc(Counter::TimedOut);
            guard.fail(Event::Timeout, ETIMEDOUT);
        }
        // The peer's memory cannot be accessed as it was advertised.
        bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR
        | bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR => {
            guard.stats.inc(Counter::ReadRefused);
            guard.fail(Event::Abort, EPROTO);
        }
        _ => guard.reset_by_peer(Event::Abort),
    }
}

/// Handles the completions that have come, and requests a notification for the next one, before the
/// caller checks what it waits for.
pub(in crate::sdp) fn catch_up(guard: &mut SockGuard<'_>) {
    poll_cq_if_due(guard);
    rearm_cq(guard);
}

/// As [`SockOwner::wait`], for a reader that handles the completions itself, not by way of BH
/// work.
pub(crate) fn wait_and_poll(guard: &mut SockOwner<'_>, timeo: &mut Timeout) {
    if guard.wait_for_notification(timeo) {
        process(guard);
    }
}

/// Waits until the adapter has finished with the program's pages of this use, and unpins them.
///
/// # Errors
///
/// `EPIPE` if the socket was disconnected since the call began, `ECONNRESET` if the connection
/// has ended, `EINTR` if the thread is being killed.
pub(in crate::sdp) fn await_adapter(
    guard: &mut SockOwner<'_>,
    began: Generation,
    purpose: Use,
) -> Result {
    loop {
        catch_up(guard);
        if unpin_finished(guard, began, purpose)? {
            return Ok(());
        }
        if fatal_signal_pending() {
            if let Some(link) = &mut guard.conn().link {
                link.leave_regions(purpose);
            }
            return Err(EINTR);
        }
        if guard.conn().state == State::Dead && guard.conn().lifetime.torn_down {
            return Err(ECONNRESET);
        }
        guard.wait_killable(&mut Timeout::endless());
    }
}
