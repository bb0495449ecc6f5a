// SPDX-License-Identifier: GPL-2.0

//! The socket lock. A [`SockGuard`] proves that the lock is held, and is the only way to access the
//! `Connection`. A [`SockOwner`] also proves that the thread that holds the lock may sleep.
//!
//! # Lock order
//!
//! 1. `listen::LISTENERS` (a mutex around the CM's listening ids)
//! 2. the socket lock (`lock_sock`)
//! 3. the mutexes of `Ports` and `Announced`, `limits::USERS`, `SdpSock::events`,
//!    `SdpSock::accepts`, `SdpSock::tcp`, and the lock of a TCP socket that stands ready for a
//!    fallback (leaves)
//!
//! CM handlers take only leaves, and the lock of a new child that no other code knows yet. Nothing
//! that takes a CM id's handler mutex is called under the socket lock.

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
use crate::inet::sock::wait::Sleep;
use crate::kern::time::Timeout;
use crate::stats::counters::Counter;

/// How the lock is released.
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
    /// One of several threads, of which an event wakes only one.
    Exclusive,
    /// A thread that waits for the adapter or the peer within a transfer. SO_BUSY_POLL applies.
    Transfers,
    /// A reader that handles the completions itself. SO_BUSY_POLL applies.
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

    /// Takes the lock in BH context, unless a system call holds it: then the completions are left
    /// to the `release_cb` of the call.
    fn lock_bh_or_defer(&self) -> Option<SockGuard<'_>> {
        // SAFETY: The object is valid, and BHs are off.
        unsafe {
            bindings::bh_lock_sock(self.inet.get().cast());
            if bindings::sock_owned_by_user(self.inet.get().cast()) {
                self.completions.deferred.store(1, Relaxed);
                bindings::bh_unlock_sock(self.inet.get().cast());
                self.stats.inc(Counter::Deferred);
                return None;
            }
        }
        Some(self.guard(Release::Bh))
    }

    /// Runs `f` with the lock, in atomic context, where the core already holds the spin lock.
    ///
    /// # Safety
    ///
    /// The caller was called with the lock held, or is the last user of the socket.
    pub(crate) unsafe fn with_core_lock(&self, f: impl FnOnce(&mut SockGuard<'_>)) {
        f(&mut self.guard(Release::Core));
    }

    /// The lock in process context, where the core already owns it.
    ///
    /// # Safety
    ///
    /// The caller was called by a system call's path that owns the lock.
    pub(crate) unsafe fn locked_by_owner(&self) -> SockOwner<'_> {
        self.owned(Release::CoreOwner)
    }
}

/// Runs `f` in BH context under the lock, or leaves the work to the system call that holds it.
pub(in crate::sdp) fn with_bh_lock(sock: &SdpSock, f: impl FnOnce(&mut SockGuard<'_>)) {
    if let Some(mut guard) = sock.lock_bh_or_defer() {
        f(&mut guard);
    }
}

/// A socket whose lock is held by this thread or this BH, which also releases the lock.
///
/// In BH context, code only gets a reference to a guard with an anonymous lifetime. So the guard
/// cannot replace the one inside a [`SockOwner`].
pub(crate) struct SockGuard<'a> {
    sock: &'a SdpSock,
    release: Release,
    _not_send: NotThreadSafe,
}

/// Does not compile if [`SockGuard`] is `Send`: then there are two candidates for `check`.
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
    /// The state that the lock protects.
    pub(crate) fn conn(&mut self) -> &mut Connection {
        // SAFETY: The lock is held, and `&mut self` keeps this the only borrow.
        unsafe { &mut *self.sock.conn.get() }
    }

    /// The socket itself, for uses that outlive the borrow of the guard.
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

/// A socket whose lock this thread owns, in a system call or in the worker. The thread may sleep,
/// and may release the lock meanwhile. [`SockGuard`] has the operations that are also allowed in BH
/// context.
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
    /// Releases the lock while `f` runs.
    pub(crate) fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let sk = self.sock.sk().as_ptr();
        // SAFETY: By the type invariant this thread owns the lock; it is taken again below.
        unsafe { bindings::release_sock(sk) };
        let result = f();
        // SAFETY: The object is valid.
        unsafe { bindings::lock_sock(sk.cast()) };
        result
    }

    /// Releases the lock, sleeps until woken or for as long as `timeo` allows, and takes the lock
    /// again.
    pub(crate) fn wait(&mut self, timeo: &mut Timeout) {
        self.sleep(Sleep::Interruptible, Sleeper::Any, timeo);
    }

    /// As [`SockOwner::wait`], if several threads may wait for an event that only one of them can
    /// use: the event wakes only one of them
    /// ([`Sk::wake_reader`](crate::inet::sock::Sk::wake_reader)).
    ///
    /// The thread that was woken must check for the event before anything else, and take it.
    pub(crate) fn wait_exclusive(&mut self, timeo: &mut Timeout) {
        self.sleep(Sleep::Interruptible, Sleeper::Exclusive, timeo);
    }

    /// As [`SockOwner::wait`], but only a fatal signal ends it early.
    pub(crate) fn wait_killable(&mut self, timeo: &mut Timeout) {
        self.sleep(Sleep::Killable, Sleeper::Any, timeo);
    }

    /// As [`SockOwner::wait`], for a call that waits for the peer's part of a transfer.
    pub(in crate::sdp) fn wait_for_peer(&mut self, timeo: &mut Timeout) {
        self.sleep(Sleep::Interruptible, Sleeper::Transfers, timeo);
    }

    /// Releases the lock, sleeps until woken or killed, and takes the lock again, for a call that
    /// waits for the adapter's part of a transfer.
    pub(in crate::sdp) fn wait_for_adapter(&mut self) {
        self.sleep(Sleep::Killable, Sleeper::Transfers, &mut Timeout::endless());
    }

    /// As [`SockOwner::wait`], for a reader: the next notification wakes it directly, not by way of
    /// BH work. Returns `false` only if that notification is still to come; otherwise there may be
    /// completions to handle.
    pub(in crate::sdp) fn wait_for_notification(&mut self, timeo: &mut Timeout) -> bool {
        self.sleep(Sleep::Interruptible, Sleeper::Polls, timeo);
        !self.leave_to_bh()
    }

    /// [`Sk::wait_for_connection`](crate::inet::sock::Sk::wait_for_connection).
    pub(in crate::sdp) fn wait_for_connection(&mut self, timeo: &mut Timeout) -> Result {
        // SAFETY: By the type invariant this thread owns the lock.
        unsafe { self.sock.sk().wait_for_connection(timeo) }
    }

    /// [`Sk::wait_for_memory`](crate::inet::sock::Sk::wait_for_memory).
    pub(in crate::sdp) fn wait_for_memory(&mut self, timeo: &mut Timeout) -> Result {
        // SAFETY: By the type invariant this thread owns the lock.
        unsafe { self.sock.sk().wait_for_memory(timeo) }
    }

    fn sleep(&mut self, sleep: Sleep, sleeper: Sleeper, timeo: &mut Timeout) {
        let reader_polls = &self.sock.completions.reader_polls;
        let queued = |alone: bool| {
            // Another waiting thread must not have to wait until this reader is scheduled.
            let polls = sleeper == Sleeper::Polls && alone;
            // Ordered: a thread that sees the flag also finds this thread in the queue.
            reader_polls.xchg(polls.into(), Full);
        };
        let exclusive = sleeper == Sleeper::Exclusive;
        let polls = matches!(sleeper, Sleeper::Transfers | Sleeper::Polls);
        let sk = self.sock.sk();
        // SAFETY: By the type invariant this thread owns the lock.
        if unsafe { sk.sleep(sleep, exclusive, polls, timeo, queued) } {
            self.stats.inc(Counter::BusyPolled);
        }
    }
}

impl Drop for SockGuard<'_> {
    fn drop(&mut self) {
        // Spare pages are not charged to any socket, so they are only kept while the lock is held.
        self.conn().ring.spares.clear();
        let sk = self.sock.inet.get();
        // SAFETY: The lock is held in the way that `release` says.
        unsafe {
            match self.release {
                Release::Owner => bindings::release_sock(sk.cast()),
                Release::Bh => bindings::bh_unlock_sock(sk.cast()),
                Release::Core | Release::CoreOwner => {}
            }
        }
    }
}
