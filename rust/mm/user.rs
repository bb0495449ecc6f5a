// SPDX-License-Identifier: GPL-2.0

//! Copies from and to a program's memory that do not wait for it.
//!
//! A fault on user memory may last as long as the program likes (userfaultfd, FUSE): so nobody takes
//! one with the socket lock held. A copy under the lock ends where a page is missing; the page is
//! faulted in without the lock, and the copy goes on.

use core::ptr::NonNull;

use kernel::bindings::{
    iov_iter,
    page, //
};
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

use crate::bindings;
use crate::kern::signal::fatal_signal_pending;

/// Runs `f`, in which a missing page makes a copy end early.
fn without_faults<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: Enabled again below.
    unsafe { bindings::pagefault_disable() };
    let result = f();
    // SAFETY: Disabled above.
    unsafe { bindings::pagefault_enable() };
    result
}

/// Copies `len` bytes of `iter` to `offset` in `to`; returns how many, fewer where a page is missing.
///
/// # Safety
///
/// The page has the range, which nobody else uses; `iter` is a valid source.
pub(crate) unsafe fn copy_from_iter(
    to: NonNull<page>,
    offset: u32,
    len: usize,
    iter: *mut iov_iter,
) -> usize {
    // SAFETY: As the caller promises.
    without_faults(|| unsafe {
        bindings::copy_page_from_iter(to.as_ptr().cast(), offset as usize, len, iter)
    })
}

/// Copies `len` bytes at `offset` in `from` to `iter`; returns how many, fewer where a page is
/// missing.
///
/// # Safety
///
/// The page has the range; `iter` is a valid destination.
pub(crate) unsafe fn copy_to_iter(
    from: NonNull<page>,
    offset: u32,
    len: usize,
    iter: *mut iov_iter,
) -> usize {
    // SAFETY: As the caller promises.
    without_faults(|| unsafe {
        bindings::copy_page_to_iter(from.as_ptr().cast(), offset as usize, len, iter)
    })
}

/// What a copy does with the program's memory.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Faults in what it can of the next `len` bytes of `iter`. Sleeps; no lock may be held.
///
/// # Errors
///
/// `EFAULT` if not even the first byte can be had, `EINTR` if the thread is being killed.
///
/// # Safety
///
/// `iter` is valid.
pub(crate) unsafe fn fault_in(iter: *mut iov_iter, len: usize, access: Access) -> Result {
    let len = match access {
        Access::Read => len,
        // A page to which a write waits (the fault policy) holds up those behind it here, and they are
        // not needed yet.
        Access::Write => len.min(4 * PAGE_SIZE),
    };
    // SAFETY: As the caller promises.
    let missing = unsafe {
        match access {
            Access::Read => bindings::fault_in_iov_iter_readable(iter, len),
            Access::Write => bindings::fault_in_iov_iter_writeable(iter, len),
        }
    };
    if fatal_signal_pending() {
        return Err(EINTR);
    }
    if missing >= len {
        return Err(EFAULT);
    }
    Ok(())
}
