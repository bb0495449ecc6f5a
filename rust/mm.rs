// SPDX-License-Identifier: GPL-2.0

//! Memory: page fragments that carry the bytes of a stream, and pages of programs, pinned or
//! protected.

use kernel::alloc::AllocError;
use kernel::prelude::*;

use crate::proto::choice::Reason;

/// Why memory was not protected.
pub(crate) enum Refused {
    /// The memory cannot be protected.
    Unfit(Reason),
    /// An operation failed.
    Error(Error),
}

impl From<Error> for Refused {
    fn from(e: Error) -> Self {
        Self::Error(e)
    }
}

impl From<AllocError> for Refused {
    fn from(e: AllocError) -> Self {
        Self::Error(e.into())
    }
}

impl From<Reason> for Refused {
    fn from(why: Reason) -> Self {
        Self::Unfit(why)
    }
}

mod age;
pub(crate) mod async_dest;
mod block_on_write;
mod folio_refs;
pub(crate) mod frag;
mod held;
pub(crate) mod lent;
pub(crate) mod memory;
mod mmu_notifier;
pub(crate) mod page_frag;
pub(crate) mod pin;
mod pte;
pub(crate) mod queue;
mod ranges;
pub(crate) mod snapshot;
mod space;
mod turn;
pub(crate) mod user;

/// Initialises the locks.
///
/// # Safety
///
/// Called once, when the module loads, before any other function of this layer.
pub(crate) unsafe fn start() {
    // SAFETY: As the caller promises.
    unsafe {
        turn::init();
        folio_refs::init();
        mmu_notifier::init();
    }
}

/// Removes the notifiers from all address spaces, and frees the data that the locks protect. No
/// socket is left.
pub(crate) fn stop() {
    mmu_notifier::stop();
    turn::stop();
}
