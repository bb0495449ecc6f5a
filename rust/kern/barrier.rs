// SPDX-License-Identifier: GPL-2.0

//! Memory barriers between processors (`Documentation/memory-barriers.txt` of the kernel). The
//! kernel crate's barriers differ between the supported releases.

use crate::bindings;

/// Orders all accesses before the call before all accesses after the call.
pub(crate) fn smp_mb() {
    // SAFETY: A barrier has no requirements.
    unsafe { bindings::smp_mb() };
}

/// Orders all reads before the call before all reads after the call.
pub(crate) fn smp_rmb() {
    // SAFETY: A barrier has no requirements.
    unsafe { bindings::smp_rmb() };
}

/// Orders all writes before the call before all writes after the call.
pub(crate) fn smp_wmb() {
    // SAFETY: A barrier has no requirements.
    unsafe { bindings::smp_wmb() };
}
