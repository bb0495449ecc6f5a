// SPDX-License-Identifier: GPL-2.0

//! Sleeping on a socket, without its lock meanwhile.

use core::mem::MaybeUninit;

use kernel::error::to_result;
use kernel::prelude::*;
use kernel::processor::cpu_relax;

use super::Sk;
use crate::bindings;
use crate::kern::signal::{
    need_resched,
    signal_pending, //
};
use crate::kern::time::{
    now,
    Timeout, //
};

/// [`wait_woken()`](bindings::wait_woken): the thread was woken.
const WOKEN: u32 = kernel::bindings::WQ_FLAG_WOKEN;

/// The state in which a thread sleeps: what ends the sleep early.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// Any signal.
    Interruptible,
    /// A fatal signal.
    Killable,
}

impl Sk {
    /// Releases the socket lock, sleeps until woken or for as long as `timeo` allows, and takes the
    /// lock again. An event that wakes exclusive waiters wakes only one `exclusive` thread. Calls
    /// `queued` when the thread is in the wait queue and still has the lock, with whether no other
    /// thread was in the queue before.
    ///
    /// If `polls` is set, the thread first looks for the wake-up for at most the time of
    /// SO_BUSY_POLL. Returns whether it was woken within this time.
    ///
    /// # Safety
    ///
    /// A thread in a system call on the socket owns the lock. (An orphan has no wait queue any
    /// more, but no thread can be in a system call on an orphan either.)
    pub(crate) unsafe fn sleep(
        self,
        sleep: Sleep,
        exclusive: bool,
        polls: bool,
        timeo: &mut Timeout,
        queued: impl FnOnce(bool),
    ) -> bool {
        let state = match sleep {
            Sleep::Interruptible => kernel::bindings::TASK_INTERRUPTIBLE,
            Sleep::Killable => bindings::SDP_CONST_TASK_KILLABLE,
        };
        let sk = self.as_ptr();
        let mut entry = MaybeUninit::<kernel::bindings::wait_queue_entry>::uninit();
        let entry = entry.as_mut_ptr();
        // SAFETY: The entry lives until it is removed below. As the caller promises, this thread
        // owns the lock, and the socket has a wait queue.
        unsafe {
            bindings::init_wait_woken(entry.cast());
            let queue = bindings::sk_sleep(sk.cast());
            let alone = !bindings::waitqueue_active(queue.cast());
            if exclusive {
                bindings::add_wait_queue_exclusive(queue.cast(), entry.cast());
            } else {
                bindings::add_wait_queue(queue.cast(), entry.cast());
            }
            queued(alone);
            bindings::release_sock(sk);
            let flags = &raw const (*entry).flags;
            let woken = polls && self.busy_poll(timeo, || flags.read_volatile() & WOKEN != 0);
            let left = timeo.jiffies_mut();
            *left = bindings::wait_woken(entry.cast(), state, *left);
            // Before the lock, for which the thread may also sleep: it would take the wake-up of
            // another exclusive thread there.
            bindings::remove_wait_queue(queue.cast(), entry.cast());
            bindings::lock_sock(sk.cast());
            woken
        }
    }

    /// Waits without sleeping until `woken` is true, for at most the time of SO_BUSY_POLL and of
    /// `timeo`. A signal, or another thread that needs the processor, ends the wait. Returns
    /// whether `woken` became true.
    fn busy_poll(self, timeo: &mut Timeout, woken: impl Fn() -> bool) -> bool {
        let sk = self.as_ptr().cast();
        // SAFETY: By the type invariant the object is valid. The function reads the time of the
        // socket option, which may change at any time.
        if !unsafe { bindings::sk_can_busy_loop(sk) } {
            return false;
        }
        // SAFETY: No precondition.
        let start = unsafe { bindings::busy_loop_current_time() };
        let began = now();
        let is_woken = loop {
            if woken() {
                break true;
            }
            // SAFETY: As for `sk_can_busy_loop()`.
            let is_over = unsafe { bindings::sk_busy_loop_timeout(sk, start) };
            if is_over || need_resched() || signal_pending() || timeo.ends_within(began) {
                break false;
            }
            cpu_relax();
        };
        timeo.spend_since(began);
        is_woken
    }

    /// Waits until the socket is connected, as a send of TCP does.
    ///
    /// # Errors
    ///
    /// The error of the socket; `EPIPE` if it is not being connected, `EAGAIN` when the time is
    /// over, `EINTR` or a restart.
    ///
    /// # Safety
    ///
    /// As for [`Sk::sleep`].
    pub(crate) unsafe fn wait_for_connection(self, timeo: &mut Timeout) -> Result {
        // SAFETY: As the caller promises; the function releases the lock while it sleeps.
        to_result(unsafe { bindings::sk_stream_wait_connect(self.as_ptr(), timeo.jiffies_mut()) })
    }

    /// Waits until there is space in the send buffer, and memory for it, as a send of TCP does.
    ///
    /// # Errors
    ///
    /// `EPIPE` if the socket has an error or cannot send any more, `EAGAIN` when the time is over,
    /// `EINTR` or a restart.
    ///
    /// # Safety
    ///
    /// As for [`Sk::sleep`].
    pub(crate) unsafe fn wait_for_memory(self, timeo: &mut Timeout) -> Result {
        // SAFETY: As the caller promises; the function releases the lock while it sleeps.
        to_result(unsafe { bindings::sk_stream_wait_memory(self.as_ptr(), timeo.jiffies_mut()) })
    }
}
