// SPDX-License-Identifier: GPL-2.0

//! A completion whose waiting threads can be killed.

use kernel::prelude::*;
use kernel::task::MAX_SCHEDULE_TIMEOUT;
use kernel::types::Opaque;

use crate::bindings;

/// The time for an unlimited wait, in jiffies.
pub(crate) const FOR_EVER: usize = MAX_SCHEDULE_TIMEOUT as usize;

/// Like the kernel crate's `Completion`, which offers only waits without a limit.
#[pin_data]
pub(crate) struct Completion {
    #[pin]
    inner: Opaque<bindings::completion>,
}

// SAFETY: A completion may be used by all threads.
unsafe impl Send for Completion {}
// SAFETY: As above.
unsafe impl Sync for Completion {}

impl Completion {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(|inner| {
                // SAFETY: It does not move, and nobody uses it yet.
                unsafe { bindings::init_completion(inner) }
            }),
        })
    }

    /// Ends all waits. In any context.
    pub(crate) fn complete_all(&self) {
        // SAFETY: It was initialised.
        unsafe { bindings::complete_all(self.inner.get()) };
    }

    /// Waits for the completion. Returns the jiffies that are left; 0 if `jiffies` have passed;
    /// less than 0 if the thread is being killed. Sleeps.
    pub(crate) fn wait(&self, jiffies: usize) -> isize {
        // SAFETY: It was initialised; the caller may sleep.
        unsafe { bindings::wait_for_completion_killable_timeout(self.inner.get(), jiffies) }
    }

    /// Waits for the completion, even if the thread is being killed. Sleeps.
    pub(crate) fn wait_unkillable(&self) {
        // SAFETY: It was initialised; the caller may sleep.
        unsafe { bindings::wait_for_completion(self.inner.get()) }
    }
}
