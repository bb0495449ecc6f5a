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
    Batch,
    Completion,
    Link,
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
    let (mut taken, mut messages) = (Taken::default(), 0);
    let mut most = match &guard.conn().link {
        Some(link) => link.likely_completions(),
        None => POLL_BATCH,
    };
    for _ in 0..ROUNDS {
        let more = take_completions(guard, most);
        messages += more.messages;
        taken.add(more);
        most = POLL_BATCH;
        // If nothing waits for completions of requests, the notification is requested before anything
        // is posted: a request that is posted now may finish at once, and the CQ would not be empty.
        let awaited = guard.awaits_send_completion();
        if !awaited && guard.arm_for(false) {
            continue;
        }
        act_on(guard, core::mem::take(&mut taken));
        let awaited_now = guard.awaits_send_completion();
        let is_armed = !awaited && !awaited_now;
        if is_armed || !guard.arm_for(awaited_now) {
            if let Some(link) = &mut guard.conn().link {
                link.note_messages(messages);
            }
            return;
        }
    }
    act_on(guard, taken);
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

/// As [`poll_cq`], but only if there may be messages.
pub(crate) fn poll_messages_if_due(guard: &mut SockGuard<'_>) {
    if !guard.has_no_news() {
        poll_cq(guard);
    }
}

/// Handles all completions and posts what may be posted.
pub(crate) fn poll_cq(guard: &mut SockGuard<'_>) {
    let taken = take_completions(guard, POLL_BATCH);
    act_on(guard, taken);
}

/// Posts what may be posted, and wakes threads, after completions were handled.
fn act_on(guard: &mut SockGuard<'_>, taken: Taken) {
    if taken.completions == 0 {
        return;
    }
    if taken.refill_due {
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

/// Wakes a reader, if there is a reason. Must be called after the refill, which decides whether a
/// poller can wait for more bytes ([`starved`]).
///
/// [`starved`]: crate::sdp::parts::glance::Glance::starved
fn wake_reader_if_due(guard: &mut SockGuard<'_>) {
    let conn = guard.conn();
    // Bytes that a waiting reader can take itself, as soon as there are places for the Read.
    let offered = |s: &KBox<Sources>| s.reader.next_untaken() > 0;
    let offered =
        conn.inq.has_direct_reader() && conn.adverts.sources.as_ref().is_some_and(offered);
    if core::mem::replace(&mut conn.inq.readable, false) {
        guard.stats.inc(Counter::WakeReader);
        guard.sock().wake_reader();
        guard.end_deferral_if_due();
    } else if offered {
        // Not those who poll: for them there is nothing to read yet.
        guard.stats.inc(Counter::WakeReader);
        guard.sk().wake_waiters();
    }
}

pub(in crate::sdp) fn wake_writer_if_due(guard: &mut SockGuard<'_>) {
    let sk = guard.sk();
    // The cheapest check first. While a send waits for its reader, poll() reports no space.
    let may_write = || guard.sock().has_space() && !guard.glance.advertising.get();
    if sk.has_waiting_writer() && may_write() && sk.wake_writer() {
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

/// The completions that were handled, and what they may change.
#[derive(Default)]
struct Taken {
    completions: usize,
    /// The number of messages of the peer among them.
    messages: usize,
    /// Receives may be missing, or there may be room for more of them.
    refill_due: bool,
}

impl Taken {
    fn add(&mut self, more: Self) {
        self.completions += more.completions;
        self.messages += more.messages;
        self.refill_due |= more.refill_due;
    }
}

/// Handles the completions in the CQ: all of them if `most` is [`POLL_BATCH`], otherwise at most so
/// many.
fn take_completions(guard: &mut SockGuard<'_>, most: usize) -> Taken {
    let mut taken = Taken::default();
    if !may_poll(guard) {
        return taken;
    }
    let mut batch = Batch::new();
    loop {
        let Some(link) = &mut guard.conn().link else {
            break;
        };
        let polled = link.poll(&mut batch, most);
        let n = polled.count();
        taken.completions += n;
        for at in 0..n {
            let link = guard.conn().link.as_mut();
            match link.and_then(|link| link.completion(&polled, at)) {
                Some(Completion::Sent) => taken.refill_due |= reap_sent(guard),
                Some(Completion::Received { len, invalidated }) => {
                    taken.messages += 1;
                    let readable = dispatch::received(guard, len, invalidated);
                    guard.conn().inq.readable |= readable;
                }
                Some(Completion::Failed(status)) => {
                    taken.refill_due = true;
                    completion_failed(guard, status);
                }
                // The connection has lost its queues meanwhile.
                None => break,
            }
        }
        // Either the queue has no more, or there were as many as were asked for. With some adapters,
        // polling an empty queue rings a doorbell.
        if n < POLL_BATCH {
            break;
        }
    }
    if taken.messages > 0 {
        taken.refill_due = true;
        guard.conn().liveness.keepalive.on_receive(now());
        guard.conn().liveness.watch.wake_ms = 0;
    }
    guard
        .stats
        .add(Counter::Completions, taken.completions as u64);
    taken
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
    if guard.conn().state.has_ended() {
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
    // Where polling an empty CQ is expensive, the request for the notification tells whether the CQ
    // is empty.
    if guard.conn().link.as_ref().is_some_and(Link::rings_if_empty) {
        poll_messages_if_due(guard);
    } else {
        poll_cq_if_due(guard);
    }
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
        if guard.conn().state == State::Released {
            return Err(ECONNRESET);
        }
        guard.wait_for_adapter();
    }
}
