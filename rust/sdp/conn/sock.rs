// SPDX-License-Identifier: GPL-2.0

//! The socket object and its lock.
//!
//! One `sk_alloc` object holds the core's `struct inet_sock`, the IPv6 part and our state behind
//! them. [`Locked`] is the proof that the socket lock is held, and the only way to the stream.
//!
//! # Lock order
//!
//! 1. `listen::LISTENERS` (a mutex around the CM's listening ids)
//! 2. the socket lock (`lock_sock`)
//! 3. the mutexes of `Ports` and `Announced`, `SdpSock::events`, `SdpSock::accepts` (leaves)
//!
//! CM handlers take only leaves. Nothing that takes a CM id's handler mutex is called under the
//! socket lock.

use core::cell::UnsafeCell;
use core::mem::{
    offset_of,
    MaybeUninit, //
};
use core::ops::{
    Deref,
    DerefMut, //
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
    Full,
    Relaxed, //
};
use kernel::sync::atomic::Atomic;
use kernel::sync::{
    new_mutex,
    Mutex, //
};
use kernel::types::{
    NotThreadSafe,
    Opaque, //
};

use super::accept_queue::AcceptQueue;
use super::cm_side::CmSide;
use super::connection::Stream;
use super::half::Half;
use crate::bindings;
use crate::inet::sock::Sk;
use crate::kern::compat;
use crate::kern::iov::Access;
use crate::kern::time::Timeout;
use crate::kern::work::{
    BhWork,
    Func,
    Timer,
    Work, //
};
use crate::rdma::cm;
use crate::rdma::link::Notify;
use crate::sdp::parts::glance::Glance;
use crate::stats::counters::{
    Counter,
    Stats, //
};

/// What the socket's worker is asked to do.
#[derive(Copy, Clone, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Want {
    /// Start a connection.
    Connect,
    /// Answer a request.
    Accept,
    /// The first message of a child arrived before the CM's word.
    FirstReceive,
    /// The timer ran out.
    Timeout,
    /// Look whether what was sent has failed.
    Watch,
    /// Ask whether the peer's machine is still there.
    Keepalive,
    /// Post receives, and Reads, for which there was no memory.
    Refill,
    /// Read adverts for which no reader came.
    Pull,
    /// Give programs their right to write back to what the peer has read, and unpin what nobody waits
    /// for any more.
    Restore,
    /// End the CM's listening.
    Unlisten,
    /// Give everything back that belongs to the connection.
    Teardown,
}

/// How long a failed send may go unnoticed by a socket that waits for nothing but messages.
pub(in crate::sdp) const WATCH_MS: u32 = 1000;

const WANTS: usize = Want::Teardown as usize + 1;

/// What the work items of a socket call. The socket does not know the code: it is in layers above.
pub(crate) struct Handlers {
    pub(in crate::sdp) worker: Func,
    pub(in crate::sdp) bh: Func,
}

/// A socket of ours.
///
/// # Invariants
///
/// Lives in memory of `sk_alloc` or `sk_clone` for the proto of [`crate::family::register`], which
/// starts with the `inet_sock`; `stream` is accessed only under the socket lock, `cm` only by the
/// socket's worker.
#[repr(C)]
pub(crate) struct SdpSock {
    inet: Opaque<bindings::inet_sock>,
    pinfo6: Opaque<bindings::ipv6_pinfo>,
    pub(in crate::sdp) work: Work,
    bh: BhWork,
    timer: Timer,
    watch: Timer,
    keepalive: Timer,
    pull: Timer,
    wants: [Atomic<i32>; WANTS],
    /// Completions came while a system call held the lock; `release_cb` takes care of them.
    deferred: Atomic<i32>,
    /// A reader sleeps that the next notification shall wake: it polls the CQ itself, and asks for
    /// the notification after that. No other waits or polls.
    reader_polls: Atomic<i32>,
    /// A poll() has found nothing to read, and no read without a copy came since.
    poller: Atomic<i32>,
    /// The events of the CM that the worker has not seen.
    pub(in crate::sdp) events: Mutex<KVec<cm::Event>>,
    /// Connections that wait for accept(), of a listener.
    pub(in crate::sdp) accepts: Mutex<AcceptQueue>,
    pub(in crate::sdp) cm: UnsafeCell<CmSide>,
    stream: UnsafeCell<Stream>,
    pub(crate) glance: Glance,
    pub(crate) stats: Stats,
}

// SAFETY: Every field is made for use by several threads, or guarded as the type invariant says.
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

/// The size of the object and where its parts are, for `struct proto`.
pub(crate) const OBJ_SIZE: usize = core::mem::size_of::<SdpSock>();
pub(crate) const PINFO6_OFFSET: usize = offset_of!(SdpSock, pinfo6);

impl SdpSock {
    /// Initialises our part of a new object.
    ///
    /// # Safety
    ///
    /// `sk` is an object of our proto, new or just cloned, that nobody else can see; what our part
    /// holds is overwritten. `handlers` may be called for the work items of a socket.
    pub(crate) unsafe fn init(sk: *mut bindings::sock, handlers: &Handlers) {
        let this = sk.cast::<Self>();
        // SAFETY: The memory is ours alone, and large enough. The initialisers cannot fail.
        unsafe {
            Work::init(&raw mut (*this).work, handlers.worker);
            BhWork::init(&raw mut (*this).bh, handlers.bh);
            Timer::init(&raw mut (*this).timer, run_timer);
            Timer::init(&raw mut (*this).watch, run_watch);
            Timer::init(&raw mut (*this).keepalive, run_keepalive);
            Timer::init(&raw mut (*this).pull, run_pull);
            (&raw mut (*this).wants).write([const { Atomic::new(0) }; WANTS]);
            (&raw mut (*this).deferred).write(Atomic::new(0));
            (&raw mut (*this).reader_polls).write(Atomic::new(0));
            (&raw mut (*this).poller).write(Atomic::new(0));
            compat::init_in_place(
                &raw mut (*this).events,
                new_mutex!(KVec::new(), "sdp_events"),
            );
            compat::init_in_place(
                &raw mut (*this).accepts,
                new_mutex!(AcceptQueue::new(), "sdp_accepts"),
            );
            (&raw mut (*this).cm).write(UnsafeCell::new(CmSide::new()));
            let net = Sk::new(sk).net();
            (&raw mut (*this).stream).write(UnsafeCell::new(Stream::new(net.settings())));
            (&raw mut (*this).glance).write(Glance::new());
            (&raw mut (*this).stats).write(net.stats());

            let pinfo6 = (&raw mut (*this).pinfo6).cast::<bindings::ipv6_pinfo>();
            ptr::write_bytes(pinfo6, 0, 1);
            (*pinfo6).hop_limit = -1;
            let inet = sk.cast::<bindings::inet_sock>();
            (*inet).pinet6 = pinfo6;
            (*inet).mc_list = ptr::null_mut();
            (*inet).ipv6_fl_list = ptr::null_mut();
            (*inet).inet_opt = ptr::null_mut();
            // A clone has its listener's: the count is that of its own queue, the page not ours, and
            // the cookie the name of one socket.
            (*sk).sk_ack_backlog = 0;
            bindings::clear_sk_cookie(sk.cast());
            (*sk).sk_frag = Default::default();

            bindings::sock_lock_init(
                sk.cast(),
                c"slock-AF_INET_SDP".as_char_ptr(),
                kernel::static_lock_class!().as_ptr().cast(),
                c"sk_lock-AF_INET_SDP".as_char_ptr(),
                kernel::static_lock_class!().as_ptr().cast(),
            );
            (*sk).sk_destruct = Some(destruct);
            (*sk).sk_write_space = Some(write_space);
        }
    }

    /// The object of a socket that the core passes to us.
    ///
    /// # Safety
    ///
    /// `sk` is of our proto and outlives the borrow.
    pub(crate) unsafe fn from_raw<'a>(sk: *mut bindings::sock) -> &'a Self {
        // SAFETY: As the caller promises.
        unsafe { &*sk.cast::<Self>() }
    }

    /// The core's part.
    pub(crate) fn sk(&self) -> Sk {
        // SAFETY: The value is used only while `self` is borrowed.
        unsafe { Sk::new(self.inet.get().cast()) }
    }

    /// Takes the socket lock; may sleep.
    pub(crate) fn lock(&self) -> Owned<'_> {
        // SAFETY: The object is valid.
        unsafe { bindings::lock_sock(self.inet.get().cast()) };
        self.owned(Release::Owner)
    }

    fn locked(&self, release: Release) -> Locked<'_> {
        Locked {
            sock: self,
            release,
            _not_send: NotThreadSafe,
        }
    }

    fn owned(&self, release: Release) -> Owned<'_> {
        Owned(self.locked(release))
    }

    /// Takes the lock of a connection while that of its listener may be held.
    pub(crate) fn lock_nested(&self) -> Owned<'_> {
        // SAFETY: The object is valid.
        unsafe { bindings::lock_sock_nested(self.inet.get().cast()) };
        self.owned(Release::Owner)
    }

    /// Takes the lock in BH context, unless a system call holds it: then the completions are
    /// left to its `release_cb`.
    fn lock_bh_or_defer(&self) -> Option<Locked<'_>> {
        // SAFETY: The object is valid, and BHs are off.
        unsafe {
            bindings::bh_lock_sock(self.inet.get().cast());
            if bindings::sock_owned_by_user(self.inet.get().cast()) {
                self.deferred.store(1, Relaxed);
                bindings::bh_unlock_sock(self.inet.get().cast());
                self.stats.inc(Counter::Deferred);
                return None;
            }
        }
        Some(self.locked(Release::Bh))
    }

    /// Does something with the lock, where the core holds its spin lock for us, in atomic context.
    ///
    /// # Safety
    ///
    /// The caller was called with the lock held, or is the last user of the socket.
    pub(crate) unsafe fn with_core_lock(&self, f: impl FnOnce(&mut Locked<'_>)) {
        f(&mut self.locked(Release::Core));
    }

    /// The lock, where the core owns it for us, in process context.
    ///
    /// # Safety
    ///
    /// The caller was called by a system call's path that owns the lock.
    pub(crate) unsafe fn locked_by_owner(&self) -> Owned<'_> {
        self.owned(Release::CoreOwner)
    }

    /// Whether there is space to write, for poll().
    pub(crate) fn has_space(&self) -> bool {
        let sk = self.sk();
        let sndbuf = self.glance.refused_sndbuf.get();
        // A third of it must be free, as the core has it (`sk_stream_min_wspace()`).
        let queued = sk.wmem_queued();
        let admits = sndbuf == 0 || queued + queued / 2 <= sndbuf;
        admits && sk.stream_writeable()
    }

    /// A poll() finds nothing to read: its program will not read before there is something. What the
    /// peer has advertised meanwhile does not wait for a reader any more.
    pub(crate) fn note_poller(&self) {
        let first = self.poller.load(Relaxed) == 0 && self.poller.xchg(1, Full) == 0;
        if first && self.pull.is_running() {
            self.want(Want::Pull);
        }
    }

    pub(in crate::sdp) fn has_poller(&self) -> bool {
        self.poller.load(Relaxed) != 0
    }

    /// The program reads without polling after all, or has another connection.
    pub(in crate::sdp) fn forget_poller(&self) {
        self.poller.store(0, Relaxed);
    }

    /// Whether completions wait that a BH could not handle; asked once.
    pub(crate) fn take_deferred(&self) -> bool {
        self.deferred.load(Relaxed) != 0 && self.deferred.xchg(0, Full) != 0
    }

    /// Asks the worker for something; in any context.
    pub(crate) fn want(&self, what: Want) {
        if let Some(flag) = self.wants.get(what as usize) {
            flag.store(1, Relaxed);
        }
        self.kick();
    }

    /// Runs the worker soon.
    pub(crate) fn kick(&self) {
        self.inc_ref();
        if !self.work.queue() {
            // SAFETY: The reference was just taken; a queued item has its own.
            unsafe { Self::dec_ref(self.into()) };
        }
    }

    /// Has the completions handled soon.
    pub(crate) fn requeue_bh(&self) {
        self.inc_ref();
        if !self.bh.queue() {
            // SAFETY: As in `kick`.
            unsafe { Self::dec_ref(self.into()) };
        }
    }

    /// Has the next notification handled in BH; `true` if a reader was to be woken for it.
    pub(crate) fn leave_to_bh(&self) -> bool {
        self.reader_polls.load(Relaxed) != 0 && self.reader_polls.xchg(0, Full) != 0
    }

    /// What the worker was asked for, once.
    pub(in crate::sdp) fn take_want(&self, what: Want) -> bool {
        self.wants
            .get(what as usize)
            .is_some_and(|flag| flag.xchg(0, Full) != 0)
    }

    /// Whether the worker has been asked for `what` and has not begun it.
    pub(in crate::sdp) fn is_wanted(&self, what: Want) -> bool {
        self.wants
            .get(what as usize)
            .is_some_and(|flag| flag.load(Relaxed) != 0)
    }

    /// Starts the socket's timer, or moves it.
    pub(crate) fn start_timer(&self, ms: u32) {
        self.start(&self.timer, ms);
    }

    pub(crate) fn timer_is_running(&self) -> bool {
        self.timer.is_running()
    }

    pub(crate) fn stop_timer(&self) {
        self.stop(&self.timer);
    }

    /// Has the worker look after some time whether what was sent has failed.
    pub(crate) fn start_watch(&self) {
        self.start(&self.watch, WATCH_MS);
    }

    /// The same, earlier.
    pub(in crate::sdp) fn start_watch_in(&self, ms: u32) {
        self.start(&self.watch, ms);
    }

    pub(crate) fn stop_watch(&self) {
        self.stop(&self.watch);
    }

    /// Has the worker look after some time whether the peer's machine is there.
    pub(in crate::sdp) fn start_keepalive(&self, ms: u32) {
        self.start(&self.keepalive, ms);
    }

    pub(in crate::sdp) fn stop_keepalive(&self) {
        self.stop(&self.keepalive);
    }

    /// Has the worker read adverts after some time.
    pub(crate) fn start_pull(&self, ms: u32) {
        self.start(&self.pull, ms);
    }

    pub(crate) fn stop_pull(&self) {
        self.stop(&self.pull);
    }

    fn start(&self, timer: &Timer, ms: u32) {
        self.inc_ref();
        if timer.start(ms) {
            // SAFETY: The reference was just taken; the running timer has its own.
            unsafe { Self::dec_ref(self.into()) };
        }
    }

    fn stop(&self, timer: &Timer) {
        if timer.stop() {
            // SAFETY: The timer had a reference and does not run any more.
            unsafe { Self::dec_ref(self.into()) };
        }
    }
}

impl Notify for SdpSock {
    fn on_completion(&self) {
        self.stats.inc(Counter::Interrupts);
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

impl cm::Handler for SdpSock {
    fn on_event(&self, event: cm::Event) {
        if event.kind == cm::Kind::Other {
            return;
        }
        let was_up = matches!(event.kind, cm::Kind::Established | cm::Kind::Disconnected);
        if self.events.lock().push(event, GFP_KERNEL).is_err() {
            // An event lost: end the connection rather than wait for ever.
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
/// `work` is the item at `offset` of an object, and runs.
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

pub(in crate::sdp) const WORK_OFFSET: usize = offset_of!(SdpSock, work);
pub(in crate::sdp) const BH_OFFSET: usize = offset_of!(SdpSock, bh);
/// A `delayed_work` starts with its `work_struct`.
const TIMER_OFFSET: usize = offset_of!(SdpSock, timer);
const WATCH_OFFSET: usize = offset_of!(SdpSock, watch);
const KEEPALIVE_OFFSET: usize = offset_of!(SdpSock, keepalive);
const PULL_OFFSET: usize = offset_of!(SdpSock, pull);

/// # Safety
///
/// Called by the work queue, for the item of a socket.
unsafe extern "C" fn run_timer(work: *mut kernel::bindings::work_struct) {
    // SAFETY: The item is that of a socket of ours.
    let sock = unsafe { sock_of(work.cast(), TIMER_OFFSET) };
    sock.want(Want::Timeout);
}

/// # Safety
///
/// Called by the work queue, for the item of a socket.
unsafe extern "C" fn run_watch(work: *mut kernel::bindings::work_struct) {
    // SAFETY: The item is that of a socket of ours.
    let sock = unsafe { sock_of(work.cast(), WATCH_OFFSET) };
    sock.want(Want::Watch);
}

/// # Safety
///
/// Called by the work queue, for the item of a socket.
unsafe extern "C" fn run_keepalive(work: *mut kernel::bindings::work_struct) {
    // SAFETY: The item is that of a socket of ours.
    let sock = unsafe { sock_of(work.cast(), KEEPALIVE_OFFSET) };
    sock.want(Want::Keepalive);
}

/// # Safety
///
/// Called by the work queue, for the item of a socket.
unsafe extern "C" fn run_pull(work: *mut kernel::bindings::work_struct) {
    // SAFETY: The item is that of a socket of ours.
    let sock = unsafe { sock_of(work.cast(), PULL_OFFSET) };
    sock.want(Want::Pull);
}

/// Runs `f` in BH context under the lock, or leaves the work to whoever holds it.
pub(in crate::sdp) fn with_bh_lock(sock: &SdpSock, f: impl FnOnce(&mut Locked<'_>)) {
    if let Some(mut locked) = sock.lock_bh_or_defer() {
        f(&mut locked);
    }
}

/// How the lock is given back.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Release {
    Owner,
    Bh,
    Core,
    CoreOwner,
}

/// How a call sleeps on the socket.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Sleeper {
    Any,
    /// One of several, of whom an event wakes one.
    Exclusive,
    /// A reader who handles the completions itself.
    Polls,
}

/// A socket whose lock is held, by this thread or in this BH: who takes the lock gives it back.
///
/// In BH context there only ever is a reference to one, of a lifetime that nobody can name: so it cannot
/// take the place of the one inside an [`Owned`].
pub(crate) struct Locked<'a> {
    sock: &'a SdpSock,
    release: Release,
    _not_send: NotThreadSafe,
}

/// Does not compile if [`Locked`] can be sent to another thread: then there are two candidates.
const _: fn() = || {
    trait UnlessSend<A> {
        fn check() {}
    }
    struct IsSend;
    impl<T> UnlessSend<()> for T {}
    impl<T: Send> UnlessSend<IsSend> for T {}
    <Locked<'static> as UnlessSend<_>>::check()
};

impl Deref for Locked<'_> {
    type Target = SdpSock;

    fn deref(&self) -> &SdpSock {
        self.sock
    }
}

impl<'a> Locked<'a> {
    /// The state behind the lock.
    pub(crate) fn stream(&mut self) -> &mut Stream {
        // SAFETY: The lock is held, and `&mut self` keeps this the only borrow.
        unsafe { &mut *self.sock.stream.get() }
    }

    /// The socket itself, for calls that outlive a borrow of the stream.
    pub(crate) fn sock(&self) -> &'a SdpSock {
        self.sock
    }

    /// Memory flags for this context.
    pub(crate) fn gfp(&self) -> (bindings::gfp_t, kernel::alloc::Flags) {
        if matches!(self.release, Release::Owner | Release::CoreOwner) {
            (bindings::SDP_CONST_GFP_KERNEL, GFP_KERNEL)
        } else {
            (bindings::SDP_CONST_GFP_ATOMIC, GFP_ATOMIC)
        }
    }
}

/// A socket whose lock this thread owns, as a system call or as the worker: it may sleep, and give the
/// lock back for that. [`Locked`] has what can be done in BH context, too.
///
/// # Invariants
///
/// The lock was taken by `lock_sock()`, in process context.
pub(crate) struct Owned<'a>(Locked<'a>);

impl<'a> Deref for Owned<'a> {
    type Target = Locked<'a>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Owned<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Owned<'_> {
    /// Gives the lock back while `f` runs.
    pub(crate) fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let sk = self.sock.sk().as_ptr();
        // SAFETY: By the type invariant this thread owns the lock; it is taken again below.
        unsafe { bindings::release_sock(sk) };
        let result = f();
        // SAFETY: The object is valid.
        unsafe { bindings::lock_sock(sk.cast()) };
        result
    }

    /// Gives the lock back, sleeps until woken or for as long as `timeo` allows, and takes the lock again.
    pub(crate) fn wait(&mut self, timeo: &mut Timeout) {
        self.sleep(kernel::bindings::TASK_INTERRUPTIBLE, timeo, Sleeper::Any);
    }

    /// As [`Owned::wait`], of one among several who wait for the same: a wake-up for an event that
    /// only one of them can use wakes one ([`Sk::wake_reader`]).
    ///
    /// Whoever was woken must look for the event before it looks at anything else, and take it.
    pub(crate) fn wait_exclusive(&mut self, timeo: &mut Timeout) {
        self.sleep(
            kernel::bindings::TASK_INTERRUPTIBLE,
            timeo,
            Sleeper::Exclusive,
        );
    }

    /// As [`Owned::wait`], but only a fatal signal ends it early.
    pub(crate) fn wait_killable(&mut self, timeo: &mut Timeout) {
        self.sleep(bindings::SDP_CONST_TASK_KILLABLE, timeo, Sleeper::Any);
    }

    /// As [`Owned::wait`], of a sender that goes another way when its `patience` is over. Other sends
    /// wait for it, or are refused: their bytes do not come between its.
    pub(in crate::sdp) fn wait_for_room(&mut self, timeo: &mut Timeout, patience: &mut Timeout) {
        self.keep(Access::Read, Half::AwaitingRoom, |locked| {
            Timeout::wait_both(timeo, patience, |limit| locked.wait(limit));
        });
    }

    /// As [`Owned::wait`], of a reader: the next notification wakes it without the detour over BH.
    /// `false` if none has come: else the reader must handle the completions.
    pub(in crate::sdp) fn wait_for_notification(&mut self, timeo: &mut Timeout) -> bool {
        self.sleep(kernel::bindings::TASK_INTERRUPTIBLE, timeo, Sleeper::Polls);
        !self.leave_to_bh()
    }

    fn sleep(&mut self, state: u32, timeo: &mut Timeout, sleeper: Sleeper) {
        let left = timeo.jiffies_mut();
        let sk = self.sock.sk().as_ptr();
        let mut entry = MaybeUninit::<kernel::bindings::wait_queue_entry>::uninit();
        let entry = entry.as_mut_ptr();
        // SAFETY: The entry lives until it is removed again, below; by the type invariant this thread
        // owns the lock. An orphan has no queue any more, but nobody can be in a system call on it
        // either.
        unsafe {
            bindings::init_wait_woken(entry.cast());
            let queue = bindings::sk_sleep(sk.cast());
            // Who waits beside a reader shall not wait for it to be scheduled.
            let alone = !bindings::waitqueue_active(queue.cast());
            match sleeper {
                Sleeper::Exclusive => {
                    bindings::add_wait_queue_exclusive(queue.cast(), entry.cast());
                }
                Sleeper::Any | Sleeper::Polls => {
                    bindings::add_wait_queue(queue.cast(), entry.cast());
                }
            }
            let polls = sleeper == Sleeper::Polls && alone;
            // Ordered: whoever sees the flag finds the entry.
            self.sock.reader_polls.xchg(polls.into(), Full);
            bindings::release_sock(sk);
            *left = bindings::wait_woken(entry.cast(), state, *left);
            bindings::lock_sock(sk.cast());
            bindings::remove_wait_queue(queue.cast(), entry.cast());
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // They are charged to nobody.
        self.stream().spares.clear();
        let sk = self.sock.inet.get();
        // SAFETY: The lock is held in this way.
        unsafe {
            match self.release {
                Release::Owner => bindings::release_sock(sk.cast()),
                Release::Bh => bindings::bh_unlock_sock(sk.cast()),
                Release::Core | Release::CoreOwner => {}
            }
        }
    }
}

/// The last reference is gone. May run in softirq: the queues and the CM id, which need a process
/// to be destroyed, went with the connection.
///
/// # Safety
///
/// Called only by whom it was registered with, with valid arguments.
unsafe extern "C" fn destruct(sk: *mut bindings::sock) {
    let this = sk.cast::<SdpSock>();
    // SAFETY: Nobody else has a reference. Of our part, only what owns something is dropped: the
    // bytes that nobody read, and empty containers.
    unsafe {
        (*this).with_core_lock(|locked| locked.free_queues());
        ptr::drop_in_place((*this).stream.get());
        ptr::drop_in_place(&raw mut (*this).events);
        ptr::drop_in_place(&raw mut (*this).accepts);
        // Counted by `create` or `sk_clone`.
        bindings::sk_sockets_allocated_dec(sk.cast());
        bindings::inet6_sock_destruct(sk);
    }
}

/// The core says that there may be space to write, after SO_SNDBUF.
///
/// # Safety
///
/// Called only by whom it was registered with, with valid arguments.
unsafe extern "C" fn write_space(sk: *mut bindings::sock) {
    // SAFETY: The core passes a valid socket of ours.
    unsafe { Sk::new(sk) }.wake_writer();
}
