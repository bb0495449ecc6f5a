// SPDX-License-Identifier: GPL-2.0

//! Checks for pending signals of the current thread, and for other threads that need its processor,
//! for loops that wait.

use kernel::task::Task;

use crate::bindings;

/// Whether a signal is pending for the current thread.
pub(crate) fn signal_pending() -> bool {
    // SAFETY: No precondition in process context.
    unsafe { bindings::signal_pending_current() }
}

/// Whether the current thread is being killed.
pub(crate) fn fatal_signal_pending() -> bool {
    // SAFETY: No precondition in process context.
    unsafe { bindings::fatal_signal_pending() }
}

/// Whether another thread needs the processor of the current thread.
pub(crate) fn need_resched() -> bool {
    // SAFETY: No precondition.
    unsafe { bindings::need_resched() }
}

/// Whether the current thread is being killed, or ends because it was killed: then the core has
/// already taken the signal from the queue.
pub(crate) fn is_killed() -> bool {
    // SAFETY: The current thread is valid.
    let flags = unsafe { (*Task::current_raw()).flags };
    fatal_signal_pending() || flags & bindings::SDP_CONST_PF_SIGNALED != 0
}
