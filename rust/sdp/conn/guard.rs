// SPDX-License-Identifier: GPL-2.0

//! The socket lock. [`SockGuard`] is the proof that it is held, and the only way to the stream; [`SockOwner`]
//! besides, that the thread which holds it may sleep.
//!
//! # Lock order
//!
//! 1. `listen::LISTENERS` (a mutex around the CM's listening ids)
//! 2. the socket lock (`lock_sock`)
//! 3. the mutexes of `Ports` and `Announced`, `SdpSock::events`, `SdpSock::accepts` (leaves)
//!
//! CM handlers take only leaves. Nothing that takes a CM id's handler mutex is called under the
//! socket lock.

use core::mem::MaybeUninit;
use core::ops::{
    Deref,
    DerefMut, //
};

use kernel::prelude::*;
use kernel::sync::atomic::ordering::{
    Full,
    Relaxed, //
};
use kernel::types::NotThreadSafe;

use super::connection::Connection;
use super::sock::SdpSock;
use crate::bindings;
use crate::kern::time::Timeout;
use crate::stats::counters::Counter;

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

impl SdpSock {
    /// Takes the socket lock; may sleep.
    pub(crate) fn lock(&self) -> SockOwner<'_> {
        // SAFETY: The object is valid.
        unsafe { bindings::lock_sock(self.inet.get().cast()) };
        self.owned(Release::Owner)
    }

    fn guard(&self, release: Release) -> SockGuard<'_> {
        SockGuard {
            sock: self,
            release,
            _not_send: NotThreadSafe,
        }
    }

    fn owned(&self, release: Release) -> SockOwner<'_> {
        SockOwner(self.guard(release))
    }

    /// Takes the lock of a connection while that of its listener may be held.
    pub(crate) fn lock_nested(&self) -> SockOwner<'_> {
        // SAFETY: The object is valid.
        unsafe { bindings::lock_sock_nested(self.inet.get().cast()) };
        self.owned(Release::Owner)
    }

    /// Takes the lock in BH context, unless a system call holds it: then the completions are
    /// left to its `release_cb`.
    fn lock_bh_or_defer(&self) -> Option<SockGuard<'_>> {
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
        Some(self.guard(Release::Bh))
    }

    /// Does something with the lock, where the core holds its spin lock for us, in atomic context.
    ///
    /// # Safety
    ///
    /// The caller was called with the lock held, or is the last user of the socket.
    pub(crate) unsafe fn with_core_lock(&self, f: impl FnOnce(&mut SockGuard<'_>)) {
        f(&mut self.guard(Release::Core));
    }

    /// The lock, where the core owns it for us, in process context.
    ///
    /// # Safety
    ///
    /// The caller was called by a system call's path that owns the lock.
    pub(crate) unsafe fn locked_by_owner(&self) -> SockOwner<'_> {
        self.owned(Release::CoreOwner)
    }
}

/// Runs `f` in BH context under the lock, or leaves the work to whoever holds it.
pub(in crate::sdp) fn with_bh_lock(sock: &SdpSock, f: impl FnOnce(&mut SockGuard<'_>)) {
    if let Some(mut guard) = sock.lock_bh_or_defer() {
        f(&mut guard);
    }
}

/// A socket whose lock is held, by this thread or in this BH: who takes the lock gives it back.
///
/// In BH context there only ever is a reference to one, of a lifetime that nobody can name: so it cannot
/// take the place of the one inside an [`SockOwner`].
pub(crate) struct SockGuard<'a> {
    sock: &'a SdpSock,
    release: Release,
    _not_send: NotThreadSafe,
}

/// Does not compile if [`SockGuard`] can be sent to another thread: then there are two candidates.
const _: fn() = || {
    trait UnlessSend<A> {
        fn check() {}
    }
    struct IsSend;
    impl<T> UnlessSend<()> for T {}
    impl<T: Send> UnlessSend<IsSend> for T {}
    <SockGuard<'static> as UnlessSend<_>>::check()
};

impl Deref for SockGuard<'_> {
    type Target = SdpSock;

    fn deref(&self) -> &SdpSock {
        self.sock
    }
}

impl<'a> SockGuard<'a> {
    /// The state behind the lock.
    pub(crate) fn conn(&mut self) -> &mut Connection {
        // SAFETY: The lock is held, and `&mut self` keeps this the only borrow.
        unsafe { &mut *self.sock.conn.get() }
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
/// lock back for that. [`SockGuard`] has what can be done in BH context, too.
///
/// # Invariants
///
/// The lock was taken by `lock_sock()`, in process context.
pub(crate) struct SockOwner<'a>(SockGuard<'a>);

impl<'a> Deref for SockOwner<'a> {
    type Target = SockGuard<'a>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for SockOwner<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl SockOwner<'_> {
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

    /// As [`SockOwner::wait`], of one among several who wait for the same: a wake-up for an event that
    /// only one of them can use wakes one ([`Sk::wake_reader`](crate::inet::sock::Sk::wake_reader)).
    ///
    /// Whoever was woken must look for the event before it looks at anything else, and take it.
    pub(crate) fn wait_exclusive(&mut self, timeo: &mut Timeout) {
        self.sleep(
            kernel::bindings::TASK_INTERRUPTIBLE,
            timeo,
            Sleeper::Exclusive,
        );
    }

    /// As [`SockOwner::wait`], but only a fatal signal ends it early.
    pub(crate) fn wait_killable(&mut self, timeo: &mut Timeout) {
        self.sleep(bindings::SDP_CONST_TASK_KILLABLE, timeo, Sleeper::Any);
    }

    /// As [`SockOwner::wait`], of a reader: the next notification wakes it without the detour over BH.
    /// `false` only if the next notification would still do so; else completions may wait to be handled.
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

impl Drop for SockGuard<'_> {
    fn drop(&mut self) {
        // They are charged to nobody.
        self.conn().ring.spares.clear();
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
