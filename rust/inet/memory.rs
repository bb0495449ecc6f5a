// SPDX-License-Identifier: GPL-2.0

//! The memory of all sockets together: its limits, and the amount in use.

use core::ptr;

use kernel::page::PAGE_SHIFT;
use kernel::sync::atomic::{
    ordering::Relaxed,
    Atomic, //
};

use crate::bindings;
use crate::kern::shared::Shared;
use crate::params;

/// Pages of memory for all sockets: low, pressure, high. The core has one set of limits for a
/// proto, as it has one count of the pages in use, so namespaces cannot have their own.
pub(crate) type Limits = [Atomic<kernel::ffi::c_long>; 3];
/// The limits, which the administrator may change.
pub(crate) static LIMITS: Limits = [const { Atomic::new(0) }; 3];
/// Pages in use; see [`allocated`].
pub(crate) static ALLOCATED: Shared<bindings::atomic_long_t> =
    Shared::new(bindings::atomic_long_t { counter: 0 });
/// Not 0 while all sockets together are near their limit.
pub(crate) static PRESSURE: Shared<kernel::ffi::c_ulong> = Shared::new(0);

/// # Safety
///
/// Called by the core for a socket of ours.
pub(crate) unsafe extern "C" fn enter_pressure(_sk: *mut bindings::sock) {
    // SAFETY: A flag that the core reads without a lock.
    unsafe { ptr::write_volatile(PRESSURE.get(), 1) };
}

/// # Safety
///
/// Called by the core for a socket of ours.
pub(crate) unsafe extern "C" fn leave_pressure(_sk: *mut bindings::sock) {
    // SAFETY: As above.
    unsafe { ptr::write_volatile(PRESSURE.get(), 0) };
}

/// Whether all sockets together are near their memory limit.
pub(crate) fn is_short() -> bool {
    // SAFETY: A flag that the core writes without a lock.
    unsafe { ptr::read_volatile(PRESSURE.get()) != 0 }
}

/// Whether all sockets together use so little memory that a new socket need not save it: a quarter
/// of the amount above which the core checks the share of each socket.
pub(crate) fn is_ample() -> bool {
    let [low, ..] = &LIMITS;
    allocated() < low.load(Relaxed) / 4
}

/// Whether at least half of the low limit stays free after receives of `bytes` more were posted.
/// Posted receives take memory even while no messages come. The free half is for received bytes.
pub(crate) fn has_room(bytes: u32) -> bool {
    let [low, ..] = &LIMITS;
    let more = (bytes >> PAGE_SHIFT) as kernel::ffi::c_long;
    allocated() + more <= low.load(Relaxed) / 2
}

/// Pages in use by all sockets. Each processor delays some of its changes, so the sum may be
/// negative (`proto_memory_allocated()`).
fn allocated() -> kernel::ffi::c_long {
    // SAFETY: A number that the core changes atomically.
    let pages =
        unsafe { ptr::read_volatile(&raw const (*ALLOCATED.get()).counter) as kernel::ffi::c_long };
    pages.max(0)
}

/// Sets the limits. If the administrator has set none, they are twice TCP's, because receives are
/// posted in advance: the pressure limit is an eighth of the free memory.
pub(crate) fn set_limits() {
    let most_mib = params::top_mem_usage.value();
    let pages = if most_mib > 0 {
        let high = i64::from(most_mib) << (20 - PAGE_SHIFT);
        [high / 2, high / 4 * 3, high]
    } else {
        // SAFETY: No precondition.
        let free = unsafe { bindings::nr_free_buffer_pages() };
        let pressure = (free / 8).max(128) as i64;
        [pressure / 4 * 3, pressure, pressure / 4 * 6]
    };
    for (limit, pages) in LIMITS.iter().zip(pages) {
        limit.store(pages as kernel::ffi::c_long, Relaxed);
    }
}
