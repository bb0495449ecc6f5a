// SPDX-License-Identifier: GPL-2.0

//! The socket object.
//!
//! One `sk_alloc` object holds the core's `struct inet_sock`, followed by the IPv6 part and the
//! state of SDP. The `Connection` can only be accessed with the lock ([`guard`](super::guard)).

use core::cell::UnsafeCell;
use core::mem::{
    offset_of,
    size_of, //
};
use core::ptr::{
    self,
    NonNull, //
};

use kernel::prelude::*;
use kernel::sync::aref::{
    ARef,
    AlwaysRefCounted, //
};
use kernel::sync::atomic::ordering::{
    Acquire,
    Full,
    Relaxed,
    Release, //
};
use kernel::sync::atomic::Atomic;
use kernel::sync::{
    new_mutex,
    Mutex, //
};
use kernel::types::Opaque;

use super::accept_queue::AcceptQueue;
use super::cm_side::CmSide;
use super::connection::Connection;
use crate::bindings;
use crate::inet::sock::Sk;
use crate::inet::tcp::OnConnection;
use crate::inet::tcp_client::TcpClient;
use crate::kern::compat;
use crate::kern::work::{
    BhWork,
    Func,
    Timer,
    Work, //
};
use crate::rdma::cm;
use crate::rdma::verbs::Notify;
use crate::sdp::parts::glance::Glance;
use crate::stats::counters::{
    Counter,
    Stats, //
};

/// A task for the socket's worker.
#[derive(Copy, Clone, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Want {
    /// Start a connection.
    Connect,
    /// Answer a connection request.
    Accept,
    /// Handle the first message of a child, which has arrived before the CM's event.
    FirstReceive,
    /// Put a deferred child into its listener's queue: it is due, or has got a place.
    Push,
    /// Handle the expiry of [`Alarm::Timeout`].
    Timeout,
    /// Check whether messages that were sent have failed.
    Watch,
    /// Check whether the peer's machine is still there.
    Keepalive,
    /// Post receives, and Reads, for which there was no memory.
    Refill,
    /// Read adverts for which no reader came.
    Pull,
    /// Let programs write to memory again that the peer has read, and unpin memory that no call
    /// waits for any more.
    Restore,
    /// Wake threads that wait for connections of a listener's TCP socket.
    TellOfTcp,
    /// Release everything that belongs to the connection.
    Teardown,
}

const WANTS: usize = Want::Teardown as usize + 1;

/// The timers of a socket.
#[derive(Copy, Clone)]
#[repr(usize)]
pub(crate) enum Alarm {
    /// The peer takes too long, or a partial message was held back long enough.
    Timeout,
    /// Time for a check whether messages that were sent have failed.
    Watch,
    /// Time for a check whether the peer's machine is still there.
    Keepalive,
    /// No reader came for the bytes that the peer has advertised.
    Pull,
}

impl Alarm {
    const ALL: [Self; 4] = [Self::Timeout, Self::Watch, Self::Keepalive, Self::Pull];

    /// The task for the worker when the timer expires.
    const fn want(self) -> Want {
        match self {
            Self::Timeout => Want::Timeout,
            Self::Watch => Want::Watch,
            Self::Keepalive => Want::Keepalive,
            Self::Pull => Want::Pull,
        }
    }
}

/// The functions of a socket's work items. They are passed in, because they belong to higher
/// layers.
pub(crate) struct Handlers {
    pub(in crate::sdp) worker: Func,
    pub(in crate::sdp) bh: Func,
}

/// The items that the work queues run for a socket.
struct Items {
    work: Work,
    bh: BhWork,
    timers: [Timer; Alarm::ALL.len()],
    wants: [Atomic<i32>; WANTS],
}

impl Items {
    /// Initialises the items of a socket.
    ///
    /// # Safety
    ///
    /// `this` is the field of an [`SdpSock`] to which no other thread has access. `handlers` may be
    /// called for the items.
    unsafe fn init(this: *mut Self, handlers: &Handlers) {
        // SAFETY: As the caller promises; the initialisers cannot fail.
        unsafe {
            Work::init(&raw mut (*this).work, handlers.worker);
            BhWork::init(&raw mut (*this).bh, handlers.bh);
            let timers = (&raw mut (*this).timers).cast::<Timer>();
            for (number, func) in [ring::<0>, ring::<1>, ring::<2>, ring::<3>]
                .into_iter()
                .enumerate()
            {
                Timer::init(timers.add(number), func);
            }
            (&raw mut (*this).wants).write([const { Atomic::new(0) }; WANTS]);
        }
    }

    fn timer(&self, alarm: Alarm) -> &Timer {
        let [timeout, watch, keepalive, pull] = &self.timers;
        match alarm {
            Alarm::Timeout => timeout,
            Alarm::Watch => watch,
            Alarm::Keepalive => keepalive,
            Alarm::Pull => pull,
        }
    }
}

/// Who handles the next completions of a socket.
pub(super) struct Completions {
    /// Completions came while a system call held the lock; `release_cb` handles them.
    pub(super) deferred: Atomic<i32>,
    /// A reader sleeps that the next notification must wake: the reader polls the CQ itself, and
    /// then requests the next notification. No other thread waits or polls.
    pub(super) reader_polls: Atomic<i32>,
    /// The CQ has sent a notification since one was last requested.
    notified: Atomic<i32>,
}

impl Completions {
    const fn new() -> Self {
        Self {
            deferred: Atomic::new(0),
            reader_polls: Atomic::new(0),
            notified: Atomic::new(0),
        }
    }
}

/// An SDP socket.
///
/// # Invariants
///
/// Lives in memory of `sk_alloc` or `sk_clone` for the proto of [`crate::family::register`], which
/// starts with the `inet_sock`; `conn` is accessed only under the socket lock, `cm` only by the
/// socket's worker.
#[repr(C)]
pub(crate) struct SdpSock {
    pub(super) inet: Opaque<bindings::inet_sock>,
    pinfo6: Opaque<bindings::ipv6_pinfo>,
    items: Items,
    pub(super) completions: Completions,
    /// A poll(), or a receive that does not wait, has found nothing to read, and there was no read
    /// without a copy since.
    poller: Atomic<i32>,
    /// Events of the CM that the worker has not handled yet.
    pub(in crate::sdp) events: Mutex<KVec<cm::Event>>,
    /// The connections of a listener that wait for accept(), or will.
    pub(in crate::sdp) accepts: Mutex<AcceptQueue>,
    /// A TCP socket that takes this socket's place if SDP cannot connect, or has done so.
    pub(in crate::sdp) tcp: Mutex<Option<KBox<TcpClient>>>,
    pub(in crate::sdp) cm: UnsafeCell<CmSide>,
    pub(super) conn: UnsafeCell<Connection>,
    pub(crate) glance: Glance,
    pub(crate) stats: Stats,
}

// SAFETY: Every field may be used by several threads, or is protected as the type invariant says.
unsafe impl Send for SdpSock {}

// SAFETY: As above.
unsafe impl Sync for SdpSock {}

// SAFETY: The core counts the references of a `struct sock`.
unsafe impl AlwaysRefCounted for SdpSock {
    fn inc_ref(&self) {
        // SAFETY: The object is valid.
        unsafe { bindings::sock_hold(self.inet.get().cast()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller gives its reference away.
        unsafe { bindings::sock_put(obj.as_ptr().cast()) };
    }
}

/// The size of the object and the offset of its IPv6 part, for `struct proto`.
pub(crate) const OBJ_SIZE: usize = core::mem::size_of::<SdpSock>();
pub(crate) const PINFO6_OFFSET: usize = offset_of!(SdpSock, pinfo6);

impl SdpSock {
    /// Initialises the SDP part of a new object.
    ///
    /// # Safety
    ///
    /// `sk` is a new or cloned object of this module's proto, to which no other thread has access;
    /// the contents of its SDP part are overwritten. `handlers` may be called for the work items of
    /// a socket.
    pub(crate) unsafe fn init(sk: *mut bindings::sock, handlers: &Handlers) {
        let this = sk.cast::<Self>();
        // SAFETY: No other thread has access to the memory, which is large enough. The initialisers
        // cannot fail. The handlers may be called for the items of a socket, as the caller
        // promises.
        unsafe {
            Items::init(&raw mut (*this).items, handlers);
            (&raw mut (*this).completions).write(Completions::new());
            (&raw mut (*this).poller).write(Atomic::new(0));
            compat::init_in_place(
                &raw mut (*this).events,
                new_mutex!(KVec::new(), "sdp_events"),
            );
            compat::init_in_place(
                &raw mut (*this).accepts,
                new_mutex!(AcceptQueue::new(), "sdp_accepts"),
            );
            compat::init_in_place(&raw mut (*this).tcp, new_mutex!(None, "sdp_tcp"));
            (&raw mut (*this).cm).write(UnsafeCell::new(CmSide::new()));
            let net = Sk::new(sk).net();
            (&raw mut (*this).conn).write(UnsafeCell::new(Connection::new(net.settings())));
            (&raw mut (*this).glance).write(Glance::new());
            (&raw mut (*this).stats).write(net.stats());

            Sk::new(sk).init_inet((&raw mut (*this).pinfo6).cast());
            bindings::sock_lock_init(
                sk.cast(),
                c"slock-AF_INET_SDP".as_char_ptr(),
                kernel::static_lock_class!().as_ptr().cast(),
                c"sk_lock-AF_INET_SDP".as_char_ptr(),
                kernel::static_lock_class!().as_ptr().cast(),
            );
            (*sk).sk_destruct = Some(destruct);
            Sk::new(sk).set_callbacks();
        }
    }

    /// The SDP socket of a `struct sock` that the core passes to this module.
    ///
    /// # Safety
    ///
    /// `sk` belongs to this module's proto and outlives the borrow.
    pub(crate) unsafe fn from_raw<'a>(sk: *mut bindings::sock) -> &'a Self {
        // SAFETY: As the caller promises.
        unsafe { &*sk.cast::<Self>() }
    }

    /// The core's part of the socket.
    pub(crate) fn sk(&self) -> Sk {
        // SAFETY: The value is used only while `self` is borrowed.
        unsafe { Sk::new(self.inet.get().cast()) }
    }

    /// Whether there is space to write, for poll(): as in the core (`__sk_stream_is_writeable()`), a
    /// third of the send buffer must be free, and there must be few unsent bytes. Each request on a
    /// connection asks several times; the function of the core would call back by a pointer.
    #[inline]
    pub(crate) fn has_space(&self) -> bool {
        let sk = self.sk();
        let queued = sk.wmem_queued();
        let admits = |sndbuf: u32| queued < sndbuf && queued + queued / 2 <= sndbuf;
        let refused = self.glance.refused_sndbuf.get();
        (refused == 0 || admits(refused)) && admits(sk.sndbuf()) && self.glance.is_below_lowat(true)
    }

    /// Whether there are as many bytes to read as SO_RCVLOWAT asks for, or as many as will come, for
    /// poll().
    #[inline]
    pub(crate) fn has_input(&self) -> bool {
        let sk = self.sk();
        let target = sk.rcvlowat(false, i32::MAX as usize);
        let unread = self.glance.unread.get() as usize;
        // Without SO_OOBINLINE, a normal receive does not return the urgent byte.
        let hidden = self.glance.at_mark.get() && !sk.is_oob_inline();
        let unread = unread.saturating_sub(hidden.into());
        unread >= target || (unread > 0 && self.glance.starved.get())
    }

    /// Wakes threads that wait to read. io_uring and signals report the event of a wake-up without
    /// asking the socket: if there is no event for them, only threads in a call on the socket are
    /// woken.
    pub(in crate::sdp) fn wake_reader(&self) {
        let sk = self.sk();
        let has_event = self.has_input()
            || self.glance.urgent.get()
            || sk.rcv_shutdown()
            || sk.err() != 0
            || u32::from(sk.state()) == bindings::TCP_CLOSE;
        if has_event {
            sk.wake_reader();
        } else {
            sk.wake_waiters();
        }
    }

    /// Records that a poll() has found nothing to read. The program will not read before there are
    /// bytes, so bytes that the peer has advertised no longer wait for a reader.
    pub(crate) fn note_poller(&self) {
        let first = self.poller.load(Relaxed) == 0 && self.poller.xchg(1, Full) == 0;
        if first && self.timer_is_running(Alarm::Pull) {
            self.want(Want::Pull);
        }
    }

    /// As [`SdpSock::note_poller`], for a receive that does not wait. The caller then pulls.
    pub(in crate::sdp) fn note_empty_read(&self) {
        self.poller.store(1, Relaxed);
    }

    pub(in crate::sdp) fn has_poller(&self) -> bool {
        self.poller.load(Relaxed) != 0
    }

    /// Called when the program reads without polling after all, or when the socket gets a new
    /// connection.
    pub(in crate::sdp) fn forget_poller(&self) {
        self.poller.store(0, Relaxed);
    }

    /// Whether there are completions that BH work could not handle; clears the flag.
    pub(crate) fn take_deferred(&self) -> bool {
        self.completions.deferred.load(Relaxed) != 0 && self.completions.deferred.xchg(0, Full) != 0
    }

    /// Asks the worker for a task. May be called in any context.
    pub(crate) fn want(&self, what: Want) {
        if let Some(flag) = self.items.wants.get(what as usize) {
            flag.store(1, Relaxed);
        }
        self.kick();
    }

    /// Queues the worker.
    pub(crate) fn kick(&self) {
        self.inc_ref();
        if !self.items.work.queue() {
            // SAFETY: The reference was just taken; a queued item has its own.
            unsafe { Self::dec_ref(self.into()) };
        }
    }

    /// Queues the BH work, which handles the completions.
    pub(crate) fn requeue_bh(&self) {
        self.inc_ref();
        if !self.items.bh.queue() {
            // SAFETY: As in `kick`.
            unsafe { Self::dec_ref(self.into()) };
        }
    }

    /// Leaves the next notification to BH work; returns `true` if it would have woken a reader.
    pub(crate) fn leave_to_bh(&self) -> bool {
        self.completions.reader_polls.load(Acquire) != 0
            && self.completions.reader_polls.xchg(0, Full) != 0
    }

    /// Whether the CQ has notified since [`SdpSock::forget_notification`].
    pub(super) fn was_notified(&self) -> bool {
        self.completions.notified.load(Acquire) != 0
    }

    /// Must be called before the next notification of the CQ is requested.
    pub(super) fn forget_notification(&self) {
        self.completions.notified.xchg(0, Full);
    }

    /// Whether the worker was asked for `what`; clears the request.
    pub(in crate::sdp) fn take_want(&self, what: Want) -> bool {
        self.items
            .wants
            .get(what as usize)
            .is_some_and(|flag| flag.xchg(0, Full) != 0)
    }

    /// Whether the worker was asked for `what` and has not begun.
    pub(in crate::sdp) fn is_wanted(&self, what: Want) -> bool {
        self.items
            .wants
            .get(what as usize)
            .is_some_and(|flag| flag.load(Relaxed) != 0)
    }

    /// Starts a timer, or changes the expiry of a running one.
    pub(crate) fn start_timer(&self, alarm: Alarm, ms: u32) {
        self.inc_ref();
        if self.items.timer(alarm).start(ms) {
            // SAFETY: The reference was just taken; the running timer has its own.
            unsafe { Self::dec_ref(self.into()) };
        }
    }

    pub(crate) fn timer_is_running(&self, alarm: Alarm) -> bool {
        self.items.timer(alarm).is_running()
    }

    pub(crate) fn stop_timer(&self, alarm: Alarm) {
        if self.items.timer(alarm).stop() {
            // SAFETY: The timer had a reference and does not run any more.
            unsafe { Self::dec_ref(self.into()) };
        }
    }

    pub(in crate::sdp) fn stop_timers(&self) {
        for alarm in Alarm::ALL {
            self.stop_timer(alarm);
        }
    }
}

impl Notify for SdpSock {
    fn on_completion(&self) {
        self.stats.inc(Counter::Interrupts);
        // Set before the notification is handled.
        self.completions.notified.store(1, Release);
        if self.leave_to_bh() {
            self.sk().wake_waiters();
        } else {
            self.requeue_bh();
        }
    }

    fn on_fatal(&self) {
        self.want(Want::Teardown);
    }
}

impl OnConnection for SdpSock {
    /// The worker wakes the threads. A thread that is woken here would have to lock the wait queue
    /// of this socket while that of the TCP socket, which has the same lock class, is locked.
    fn on_connection(&self) {
        self.want(Want::TellOfTcp);
    }
}

impl cm::Handler for SdpSock {
    fn on_event(&self, event: cm::Event) {
        if event.kind == cm::Kind::Other {
            return;
        }
        let was_up = matches!(event.kind, cm::Kind::Established | cm::Kind::Disconnected);
        if self.events.lock().push(event, GFP_KERNEL).is_err() {
            // An event is lost: end the connection, which might otherwise wait for ever.
            if was_up {
                self.want(Want::FirstReceive);
            }
            self.want(Want::Teardown);
            return;
        }
        self.kick();
    }
}

/// The socket of a work item, with the reference that the queued item held.
///
/// # Safety
///
/// `work` is the running item at `offset` of a socket.
pub(in crate::sdp) unsafe fn sock_of(
    work: *mut kernel::bindings::work_struct,
    offset: usize,
) -> ARef<SdpSock> {
    // SAFETY: As the caller promises.
    unsafe {
        let this = work.cast::<u8>().sub(offset).cast::<SdpSock>();
        ARef::from_raw(NonNull::new_unchecked(this))
    }
}

pub(in crate::sdp) const WORK_OFFSET: usize = offset_of!(SdpSock, items.work);
pub(in crate::sdp) const BH_OFFSET: usize = offset_of!(SdpSock, items.bh);
/// A `delayed_work` starts with its `work_struct`.
const TIMERS_OFFSET: usize = offset_of!(SdpSock, items.timers);

/// Called when timer `N` of [`Alarm::ALL`] has expired.
///
/// # Safety
///
/// Called by the work queue, for the item of a socket.
unsafe extern "C" fn ring<const N: usize>(work: *mut kernel::bindings::work_struct) {
    const { assert!(Alarm::ALL[N] as usize == N) };
    // SAFETY: The item belongs to an SDP socket.
    let sock = unsafe { sock_of(work, TIMERS_OFFSET + N * size_of::<Timer>()) };
    sock.want(const { Alarm::ALL[N].want() });
}

/// Called when the last reference is gone, perhaps in softirq. The queues and the CM id, which can
/// only be destroyed in process context, were destroyed with the connection.
///
/// # Safety
///
/// Must be called only as `sk_destruct`, with a valid argument.
unsafe extern "C" fn destruct(sk: *mut bindings::sock) {
    let this = sk.cast::<SdpSock>();
    // SAFETY: There is no other reference. Of the SDP part, only the fields that own something are
    // dropped: unread bytes, and empty containers.
    unsafe {
        (*this).with_core_lock(|guard| guard.free_queues());
        ptr::drop_in_place((*this).conn.get());
        ptr::drop_in_place(&raw mut (*this).events);
        ptr::drop_in_place(&raw mut (*this).accepts);
        // `None` since the release of the socket, which may sleep.
        ptr::drop_in_place(&raw mut (*this).tcp);
        // Counted by `begin` of `family::register`, or by `sk_clone`.
        bindings::sk_sockets_allocated_dec(sk.cast());
        bindings::inet6_sock_destruct(sk);
    }
}
