// SPDX-License-Identifier: GPL-2.0

//! The end of something, for which threads wait that may be killed.

use kernel::prelude::*;
use kernel::task::MAX_SCHEDULE_TIMEOUT;
use kernel::types::Opaque;

use crate::bindings;

/// How long to wait if it does not matter how long, in jiffies.
pub(crate) const FOR_EVER: usize = MAX_SCHEDULE_TIMEOUT as usize;

/// As the kernel crate's `Completion`, which can only be waited for without an end.
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
                // SAFETY: It stays where it is, and nobody uses it yet.
                unsafe { bindings::init_completion(inner) }
            }),
        })
    }

    /// Nobody waits any more. In any context.
    pub(crate) fn complete_all(&self) {
        // SAFETY: It was initialised.
        unsafe { bindings::complete_all(self.inner.get()) };
    }

    /// Waits: jiffies left, 0 after `jiffies`, less if the thread is being killed. Sleeps.
    pub(crate) fn wait(&self, jiffies: usize) -> isize {
        // SAFETY: It was initialised; the caller may sleep.
        unsafe { bindings::wait_for_completion_killable_timeout(self.inner.get(), jiffies) }
    }

    /// Waits for it, also if the thread is being killed. Sleeps.
    pub(crate) fn wait_unkillable(&self) {
        // SAFETY: It was initialised; the caller may sleep.
        unsafe { bindings::wait_for_completion(self.inner.get()) }
    }
}
