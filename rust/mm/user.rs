// SPDX-License-Identifier: GPL-2.0

//! Copies from and to a program's memory that take no page faults, and the faults between the
//! copies.
//!
//! A fault on user memory may last as long as the program likes (userfaultfd, FUSE), so no fault is
//! taken with the socket lock held. A copy under the lock ends at a missing page; the page is
//! faulted in without the lock, and the copy continues.

use core::ptr::NonNull;

use kernel::bindings::page;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

use crate::bindings;
use crate::kern::iov::{
    Access,
    Dest,
    Direction,
    Iov,
    Source, //
};
use crate::kern::signal::fatal_signal_pending;

/// Runs `f` with page faults disabled: a missing page makes a copy in `f` end early.
fn without_faults<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: Enabled again below.
    unsafe { bindings::pagefault_disable() };
    let result = f();
    // SAFETY: Disabled above.
    unsafe { bindings::pagefault_enable() };
    result
}

/// Copies `len` bytes of `iter` to `offset` in `to`; returns how many, fewer if a page is missing.
///
/// # Safety
///
/// The page contains the range, which nobody else uses.
pub(super) unsafe fn copy_from_iter(
    to: NonNull<page>,
    offset: u32,
    len: usize,
    iter: &mut Iov<'_, Source>,
) -> usize {
    // SAFETY: The page is as the caller promises, and the iterator is valid.
    without_faults(|| unsafe {
        bindings::copy_page_from_iter(to.as_ptr().cast(), offset as usize, len, iter.as_ptr())
    })
}

/// Copies `len` bytes at `offset` in `from` to `iter`; returns how many, fewer if a page is
/// missing.
///
/// # Safety
///
/// The page contains the range.
pub(super) unsafe fn copy_to_iter(
    from: NonNull<page>,
    offset: u32,
    len: usize,
    iter: &mut Iov<'_, Dest>,
) -> usize {
    // SAFETY: The page is as the caller promises, and the iterator is valid.
    without_faults(|| unsafe {
        bindings::copy_page_to_iter(from.as_ptr().cast(), offset as usize, len, iter.as_ptr())
    })
}

/// Copies a byte to `iter`. Sleeps; no lock may be held.
///
/// # Errors
///
/// `EFAULT`.
pub(crate) fn put_byte(iter: &mut Iov<'_, Dest>, byte: u8) -> Result {
    // SAFETY: One byte is readable, and the iterator is valid.
    let copied = unsafe { bindings::_copy_to_iter((&raw const byte).cast(), 1, iter.as_ptr()) };
    if copied == 1 {
        Ok(())
    } else {
        Err(EFAULT)
    }
}

/// Faults in as many of the next `len` bytes of `iter` as possible. Sleeps; no lock may be held.
///
/// # Errors
///
/// `EFAULT` if not even the first byte is accessible, `EINTR` if the thread is being killed.
pub(crate) fn fault_in<D: Direction>(iter: &mut Iov<'_, D>, len: usize) -> Result {
    let len = match D::ACCESS {
        Access::Read => len,
        // A page whose writers wait (the fault policy *block*) delays the faults of the pages
        // behind it, which are not needed yet.
        Access::Write => len.min(4 * PAGE_SIZE),
    };
    // SAFETY: The iterator is valid.
    let missing = unsafe {
        match D::ACCESS {
            Access::Read => bindings::fault_in_iov_iter_readable(iter.as_ptr(), len),
            Access::Write => bindings::fault_in_iov_iter_writeable(iter.as_ptr(), len),
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
