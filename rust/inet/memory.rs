// SPDX-License-Identifier: GPL-2.0

//! The memory of all sockets together: its limits, and how much of it is used.

use core::ptr;

use kernel::page::PAGE_SHIFT;
use kernel::sync::atomic::{
    ordering::Relaxed,
    Atomic, //
};

use crate::bindings;
use crate::kern::shared::Shared;
use crate::params;

/// Pages of memory for all sockets: low, pressure, high. The core has one set of them for a proto, as
/// it has one count of what is used: they cannot be a namespace's.
pub(crate) type Limits = [Atomic<kernel::ffi::c_long>; 3];
/// The limits, which the administrator may change.
pub(crate) static LIMITS: Limits = [const { Atomic::new(0) }; 3];
/// Pages that are used; see [`allocated`].
pub(crate) static ALLOCATED: Shared<bindings::atomic_long_t> =
    Shared::new(bindings::atomic_long_t { counter: 0 });
/// Not 0 while the sockets together are near their limit.
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

/// Whether the sockets together have come near their limit of memory.
pub(crate) fn is_short() -> bool {
    // SAFETY: A flag that the core writes without a lock.
    unsafe { ptr::read_volatile(PRESSURE.get()) != 0 }
}

/// Whether the sockets together use so little memory that a new one need not save it: a quarter of what
/// they may use before the core looks at what each has.
pub(crate) fn is_ample() -> bool {
    let [low, ..] = &LIMITS;
    allocated() < low.load(Relaxed) / 4
}

/// Whether receives of `bytes` more, which stay posted while nothing comes, leave half of that memory to
/// the bytes of all sockets.
pub(crate) fn has_room(bytes: u32) -> bool {
    let [low, ..] = &LIMITS;
    let more = (bytes >> PAGE_SHIFT) as kernel::ffi::c_long;
    allocated() + more <= low.load(Relaxed) / 2
}

/// Pages that all sockets use. Each processor keeps some of its changes back, so the sum may be below zero
/// (`proto_memory_allocated()`).
fn allocated() -> kernel::ffi::c_long {
    // SAFETY: A number that the core changes atomically.
    let pages =
        unsafe { ptr::read_volatile(&raw const (*ALLOCATED.get()).counter) as kernel::ffi::c_long };
    pages.max(0)
}

/// If the administrator has said nothing, twice TCP's, for receives are posted in advance: an eighth of
/// what is free is the mark of pressure.
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
