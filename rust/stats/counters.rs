// SPDX-License-Identifier: GPL-2.0

//! Counters of a network namespace, per CPU: counting touches no shared cache line.

use core::mem::{
    align_of,
    size_of, //
};
use core::ptr::NonNull;

use kernel::cpu::nr_cpu_ids;
use kernel::prelude::*;

use crate::bindings;
use crate::proto::bsdh::Mid;
use crate::proto::choice::Reason;
use crate::proto::pull::PullReason;
use crate::proto::violation::Violation;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// What is counted.
        #[derive(Copy, Clone, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum Counter {
            $($(#[$doc])* $name,)*
        }

        impl Counter {
            /// All counters, with their names in the output.
            pub(crate) const ALL: &'static [(Self, &'static str)] = &[$((Self::$name, $text),)*];

            /// The name in the output.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

counters! {
    /// connect() calls that reached the RDMA CM.
    ConnectStarted => "connect_started",
    /// Connections that we started and that were established.
    ConnectDone => "connect_done",
    /// Connections that we started and that failed.
    ConnectFailed => "connect_failed",
    /// Connection requests that arrived.
    RequestReceived => "request_received",
    /// Requests refused: nobody listens at the address.
    RefusedNoListener => "refused_no_listener",
    /// Requests refused: the Hello was not one of this protocol.
    RefusedBadHello => "refused_bad_hello",
    /// Requests refused: the peer's address in the CM's request is a wildcard, a loopback or a
    /// multicast address, or is not the address of the path (RoCE).
    RefusedBadAddress => "refused_bad_address",
    /// Requests refused: no memory, or the adapter had no queues left.
    RefusedNoMemory => "refused_no_memory",
    /// Connections, of either side, refused because the namespace had as many as it may
    /// (max_connections); and requests dropped for this reason, so that the peer tries again.
    RefusedMaxConnections => "refused_max_connections",
    /// The same, because the user had as many as it may (max_user_connections).
    RefusedMaxUserConnections => "refused_max_user_connections",
    /// Connections, of either side, refused because the buffers of all sockets, or of the control
    /// group, had all the memory that they may have (mem).
    RefusedMem => "refused_mem",
    /// Connections aborted at close() because the namespace had as many without a program as it may
    /// (max_orphans).
    AbortedMaxOrphans => "aborted_max_orphans",
    /// Requests that the peer took back before they were answered.
    RequestWithdrawn => "request_withdrawn",
    /// Requests that found the backlog full, and waited for a place.
    RequestWaited => "request_waited",
    /// Requests dropped, so that the peer tries again, because the backlog was full and no more
    /// requests may wait; or refused, because they have waited too long, or on iWARP.
    DroppedBacklogFull => "dropped_backlog_full",
    /// Half-open connections ended because others wanted their places in a full backlog, or in the
    /// limits of connections.
    EvictedHalfOpen => "evicted_half_open",
    /// Connections accepted from a listener's queue.
    Accepted => "accepted",
    /// Connections that SDP could not make, and that TCP makes instead (tcp_fallback,
    /// SDP_TCP_INSTEAD).
    ConnectFellBack => "connect_fell_back",
    /// TCP connections accepted by listeners for SDP and TCP (SDP_LISTEN_TCP).
    AcceptedTcp => "accepted_tcp",
    /// Connections of a peer that were not established in time.
    HandshakeTimeout => "handshake_timeout",
    /// Connections that ended after both sides had closed.
    ClosedOrderly => "closed_orderly",
    /// Connections aborted because the peer broke the protocol.
    AbortedViolation => "aborted_violation",
    /// Connections aborted by this side: unread data, SO_LINGER 0, a closed listener.
    AbortedLocal => "aborted_local",
    /// Connections that the peer aborted or lost.
    ResetByPeer => "reset_by_peer",
    /// Connections lost because the peer did not answer any more.
    TimedOut => "timed_out",
    /// Connections aborted because an orphan waited too long for its peer.
    OrphanTimeout => "orphan_timeout",
    /// Connections lost because the device was removed.
    DeviceRemoved => "device_removed",
    /// State transitions that must not happen: a bug of this module.
    IllegalTransition => "illegal_transition",
    /// Bytes taken from programs and copied.
    TxCopiedBytes => "tx_copied_bytes",
    /// Bytes of payload handed to the adapter.
    TxBytes => "tx_bytes",
    /// Bytes of payload received.
    RxBytes => "rx_bytes",
    /// Bytes copied to programs.
    RxCopiedBytes => "rx_copied_bytes",
    /// Bytes copied a second time, to free a large receive buffer from a small message.
    RxCompactedBytes => "rx_compacted_bytes",
    /// Send work requests posted.
    SendPosted => "send_posted",
    /// Send work requests that reported their completion.
    SendSignaled => "send_signaled",
    /// Requests of send queues that are finished, of all kinds: messages, Reads, Writes,
    /// registrations and invalidations.
    RequestDone => "request_done",
    /// Receive work requests posted.
    RecvPosted => "recv_posted",
    /// Completions polled.
    Completions => "completions",
    /// Notifications by the adapter.
    Interrupts => "interrupts",
    /// Notifications that found the socket in use by a program.
    Deferred => "deferred",
    /// Readers woken.
    WakeReader => "wake_reader",
    /// Writers woken.
    WakeWriter => "wake_writer",
    /// Waits of receives and of sends without a copy that a wake-up ended within the time of
    /// SO_BUSY_POLL.
    BusyPolled => "busy_polled",
    /// Acknowledgements requested while the peer makes no room.
    Probe => "probe",
    /// Acknowledgements requested because the peer sends nothing (SO_KEEPALIVE).
    KeepaliveProbe => "keepalive_probe",
    /// Times that data waited for credits.
    CreditStall => "credit_stall",
    /// Times that data waited for a place in the send queue.
    QueueStall => "queue_stall",
    /// Pure credit updates sent.
    CreditUpdateSent => "credit_update_sent",
    /// Pure credit updates received.
    CreditUpdateReceived => "credit_update_received",
    /// Times that the receives of an idle connection became smaller.
    ReceivesShrunk => "receives_shrunk",
    /// Messages sent only to use up receives that the peer no longer wants.
    ReceiveUsedUp => "receive_used_up",
    /// Messages sent whose last byte is urgent.
    UrgentSent => "urgent_sent",
    /// Messages sent only to announce a waiting urgent byte.
    UrgentAnnounced => "urgent_announced",
    /// Messages received whose last byte is urgent.
    UrgentReceived => "urgent_received",
    /// Receives not posted for lack of memory; tried again later.
    NoReceiveMemory => "no_receive_memory",
    /// Sends that waited or failed for lack of memory.
    NoSendMemory => "no_send_memory",
    /// Calls with an invalid user pointer.
    UserFault => "user_fault",
    /// Copies that waited for a page of the program.
    FaultedIn => "faulted_in",
    /// Work requests that the provider refused to take.
    PostFailed => "post_failed",
    /// Completions with an error.
    CompletionError => "completion_error",
    /// Source adverts sent.
    AdvertPosted => "advert_posted",
    /// Source adverts that the peer has read completely.
    AdvertConsumed => "advert_consumed",
    /// Source adverts that were taken back.
    AdvertCancelled => "advert_cancelled",
    /// Source adverts that were outstanding when their connection ended.
    AdvertAborted => "advert_aborted",
    /// Source adverts received.
    AdvertReceived => "advert_received",
    /// Cancels of source adverts sent.
    CancelSent => "cancel_sent",
    /// Cancels of source adverts that the peer has answered.
    CancelAnswered => "cancel_answered",
    /// Cancels of source adverts received.
    CancelReceived => "cancel_received",
    /// Bytes that the peer has read from programs' memory.
    TxZcopyBytes => "tx_zcopy_bytes",
    /// Sink adverts sent.
    SinkSent => "sink_advert_sent",
    /// Sink adverts that have ended: their reader has the memory back, or the connection has ended.
    SinkEnded => "sink_advert_ended",
    /// Cancels of sink adverts sent.
    SinkCancelSent => "sink_cancel_sent",
    /// Cancels of sink adverts received.
    SinkCancelReceived => "sink_cancel_received",
    /// Waits of readers whose sink adverts all ended without a byte.
    SinkUnused => "sink_unused",
    /// Sink adverts received.
    SinkReceived => "sink_advert_received",
    /// Sink adverts received that crossed payload of this side, and so could not be used.
    SinkStale => "sink_stale",
    /// RDMA Writes posted.
    WritePosted => "write_posted",
    /// RDMA Writes of sends that have returned.
    WriteAsync => "write_async",
    /// RDMA Writes that have finished.
    WriteDone => "write_done",
    /// Bytes written from programs' memory to waiting readers of the peer.
    TxWrittenBytes => "sink_written_bytes",
    /// Bytes that the peer has written to the memory of waiting programs.
    RxWrittenBytes => "sink_received_bytes",
    /// RDMA Reads posted.
    ReadPosted => "read_posted",
    /// RDMA Reads that have finished.
    ReadDone => "read_done",
    /// Connections aborted because memory that the peer advertised could not be read or written to.
    ReadRefused => "read_refused",
    /// Bytes read from the peer into memory of the kernel.
    RxPulledBytes => "rx_pulled_bytes",
    /// Bytes read from the peer into programs' memory.
    RxZcopyBytes => "rx_zcopy_bytes",
    /// Memory regions whose key was made valid.
    MrRegistered => "mr_registered",
    /// Memory regions whose key was made invalid by a request of this side.
    MrInvalidated => "mr_invalidated",
    /// Memory regions whose key the peer has made invalid.
    MrInvalidatedByPeer => "mr_invalidated_by_peer",
    /// Pages in snapshots of asynchronous sends.
    SnapshotPages => "snapshot_pages",
    /// Pages of snapshots that are not needed any more.
    SnapshotFreed => "snapshot_freed",
    /// Pages of snapshots that were copied, because they could not be protected.
    SnapshotCopied => "snapshot_copied",
    /// Pages of snapshots for which a fault has waited.
    SnapshotWaits => "snapshot_waits",
    /// Pages of snapshots that the program has written to before the peer had read them.
    PagesTouched => "pages_touched",
    /// Pages of snapshots to which the program may write again without a fault.
    PagesRestored => "pages_restored",
    /// TLB flushes after a program's pages were protected, or taken away from it.
    TlbFlush => "tlb_flush",
    /// TLB flushes that could not be confirmed.
    FlushMissed => "flush_missed",
    /// Source adverts of sends that have returned.
    AdvertAsync => "advert_async",
    /// Sends whose program has asked for a notification when it may use the memory again
    /// (MSG_ZEROCOPY, or requests of io_uring).
    SendLent => "send_lent",
    /// Sends of this kind of which most bytes were copied nevertheless.
    SendLentCopied => "send_lent_copied",
    /// RDMA Reads of receives that have returned.
    ReadEarly => "read_early",
    /// Pages to which receives that return early have taken the program's access away.
    AbsentPages => "absent_pages",
    /// Pages of such receives that were given back.
    AbsentFreed => "absent_freed",
    /// Pages of such receives that the program has touched before they were given back.
    AbsentTouched => "absent_touched",
    /// Waits of threads that touched such a page before its bytes had arrived, in slices of some
    /// milliseconds.
    AbsentWaits => "absent_waits",
    /// Receives that had returned and whose bytes did not arrive.
    AbsentFailed => "absent_failed",
    /// Bytes of programs' memory pinned.
    PinnedBytes => "pinned_bytes",
    /// Bytes of programs' memory unpinned.
    UnpinnedBytes => "unpinned_bytes",
    /// Attempts of a program to lock more memory than it may (RLIMIT_MEMLOCK).
    MemlockRefused => "memlock_refused",
}

const SENT: usize = Counter::ALL.len();
const RECEIVED: usize = SENT + Mid::COUNT;
const VIOLATIONS: usize = RECEIVED + Mid::COUNT;
const BY_COPY: usize = VIOLATIONS + Violation::COUNT;
const PULLS: usize = BY_COPY + Reason::ALL.len();
const COUNT: usize = PULLS + PullReason::ALL.len();

/// The memory of a namespace's counters.
///
/// # Invariants
///
/// `base` is a per-CPU array of `COUNT` 64-bit numbers.
pub(crate) struct Counters {
    base: NonNull<core::ffi::c_void>,
}

/// A handle for counting. It is valid as long as the namespace has sockets.
#[derive(Copy, Clone)]
pub(crate) struct Stats {
    base: NonNull<core::ffi::c_void>,
}

// SAFETY: Per-CPU memory may be used on any CPU.
unsafe impl Send for Stats {}
// SAFETY: As above.
unsafe impl Sync for Stats {}

impl Counters {
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: No precondition; the result is checked.
        let base = unsafe { bindings::alloc_percpu(size_of::<[u64; COUNT]>(), align_of::<u64>()) };
        // INVARIANT: Just allocated with this size.
        Ok(Self {
            base: NonNull::new(base.cast()).ok_or(ENOMEM)?,
        })
    }

    pub(crate) fn handle(&self) -> Stats {
        Stats { base: self.base }
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::free_percpu(self.base.as_ptr().cast()) };
    }
}

impl Stats {
    /// The prefixes of the names of counters of a kind.
    pub(super) const SENT: &'static str = "sent_";
    pub(super) const RECEIVED: &'static str = "received_";
    pub(super) const BY_COPY: &'static str = "by_copy_";

    fn add_at(self, index: usize, n: u64) {
        if !super::COUNTS {
            return;
        }
        // SAFETY: The array has `COUNT` numbers, and the indices of the callers are smaller.
        unsafe { bindings::percpu_add_u64(self.base.as_ptr().cast(), index, n) };
    }

    pub(crate) fn inc(self, counter: Counter) {
        self.add_at(counter as usize, 1);
    }

    pub(crate) fn add(self, counter: Counter, n: u64) {
        self.add_at(counter as usize, n);
    }

    pub(crate) fn sent(self, mid: Mid) {
        self.add_at(SENT + mid.index(), 1);
    }

    pub(crate) fn received(self, mid: Mid) {
        self.add_at(RECEIVED + mid.index(), 1);
    }

    pub(crate) fn violation(self, why: Violation) {
        self.add_at(VIOLATIONS + why.index(), 1);
    }

    /// Counts one occasion on which bytes did not take the preferred path: for example, a send was
    /// copied, or a receive waited in its call.
    pub(crate) fn by_copy(self, why: Reason) {
        self.add_at(BY_COPY + why as usize, 1);
    }

    /// Counts advertised bytes of the peer that are read into memory of the kernel.
    pub(crate) fn pulled(self, why: PullReason) {
        self.add_at(PULLS + why as usize, 1);
    }

    fn sum(self, index: usize) -> u64 {
        let base = self.base.as_ptr().cast();
        // SAFETY: The numbers are less than `nr_cpu_ids()`.
        let possible = (0..nr_cpu_ids()).filter(|cpu| unsafe { bindings::cpu_possible(*cpu) });
        // SAFETY: The index is valid as in `add_at`; a possible CPU has its own array.
        let counts = possible.map(|cpu| unsafe { bindings::percpu_read_u64(base, index, cpu) });
        counts.fold(0, u64::wrapping_add)
    }

    /// Calls `each` for every counter: a group, a name, the sum over all CPUs.
    pub(crate) fn for_each(self, mut each: impl FnMut(&str, &str, u64)) {
        for &(counter, name) in Counter::ALL {
            each("", name, self.sum(counter as usize));
        }
        for mid in Mid::ALL {
            each(Self::SENT, mid.name(), self.sum(SENT + mid.index()));
        }
        for mid in Mid::ALL {
            each(Self::RECEIVED, mid.name(), self.sum(RECEIVED + mid.index()));
        }
        for why in Violation::ALL {
            each("violation_", why.name(), self.sum(VIOLATIONS + why.index()));
        }
        for why in Reason::ALL {
            each(Self::BY_COPY, why.name(), self.sum(BY_COPY + why as usize));
        }
        for why in PullReason::ALL {
            each("pulled_", why.name(), self.sum(PULLS + why as usize));
        }
    }
}

#[kunit_tests(ib_sdp_stats)]
mod tests {
    use super::*;

    #[test]
    fn counts_each_by_itself() -> Result {
        let counters = Counters::new()?;
        let stats = counters.handle();
        stats.inc(Counter::Accepted);
        stats.add(Counter::TxBytes, 1 << 40);
        stats.sent(Mid::Data);
        stats.received(Mid::Data);
        stats.received(Mid::Data);
        stats.violation(Violation::BadAck);
        let (mut total, mut shown) = (0, 0);
        stats.for_each(|group, name, n| {
            shown += 1;
            total += n;
            let expected = match (group, name) {
                ("", "tx_bytes") => 1 << 40,
                ("", "accepted") | ("sent_", "Data") | ("violation_", "BadAck") => 1,
                ("received_", "Data") => 2,
                _ => 0,
            };
            assert_eq!(n, expected);
        });
        assert_eq!(shown, COUNT);
        assert_eq!(total, (1 << 40) + 5);
        Ok(())
    }

    #[test]
    fn names_are_unique() {
        for (i, (_, name)) in Counter::ALL.iter().enumerate() {
            assert!(!Counter::ALL
                .iter()
                .skip(i + 1)
                .any(|(_, other)| name == other));
        }
    }
}
