// SPDX-License-Identifier: GPL-2.0

//! Interfaces of the kernel crate that differ between releases, behind one function each.
//!
//! `rust/Kbuild` looks into the tree that the module is built against and sets the `SDP_HAS_`
//! names; `rust/helpers/compat.h` is the same for the kernel's C headers.

use core::convert::Infallible;

use kernel::prelude::*;

/// Initialises `slot` in place. Since 7.3 pin-init has a function for this.
///
/// # Safety
///
/// `slot` is valid for writes and not initialised, and does not move until it is dropped.
pub(crate) unsafe fn init_in_place<T>(slot: *mut T, init: impl PinInit<T, Infallible>) {
    #[cfg(SDP_HAS_RAW_INIT)]
    // SAFETY: By the function's requirement.
    unsafe {
        pin_init::raw_init(slot, init)
    };
    #[cfg(not(SDP_HAS_RAW_INIT))]
    // SAFETY: By the function's requirement.
    let Ok(()) = unsafe { init.__pinned_init(slot) };
}
