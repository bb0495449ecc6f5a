// SPDX-License-Identifier: GPL-2.0

//! Copies from and to a program's memory that take no page faults, and the faults between the
//! copies.
//!
//! A fault on user memory may last as long as the program likes (userfaultfd, FUSE), so no fault is
//! taken with the socket lock held. A copy under the lock fails at a missing page; all pages of the
//! copy are faulted in without the lock, and the copy is repeated.
//!
//! As with TCP, a copy of which a part is not accessible takes no bytes. So the first attempt
//! copies all bytes or none. When all pages were faulted in, at most four of a receive, a copy may
//! take fewer bytes: some of the pages can be missing again, and the call must make progress
//! nevertheless.

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

/// Runs `copy`, which copies as many bytes of `iter` as it is told and returns how many it has
/// copied, with page faults disabled: a missing page makes `copy` end early. Returns how many of
/// `len` bytes were copied: all or none, or fewer if the bytes were faulted in before.
fn without_faults<D: Direction>(
    iter: &mut Iov<'_, D>,
    len: usize,
    copy: impl FnOnce(&mut Iov<'_, D>, usize) -> usize,
) -> usize {
    let accessible = iter.accessible();
    let want = match accessible {
        0 => len,
        bytes => len.min(bytes),
    };
    // SAFETY: Enabled again below.
    unsafe { bindings::pagefault_disable() };
    let copied = copy(iter, want);
    // SAFETY: Disabled above.
    unsafe { bindings::pagefault_enable() };
    if copied < want && accessible == 0 {
        iter.revert(copied);
        return 0;
    }
    copied
}

/// Copies the next `len` bytes of `iter` to `offset` in `to`. Returns how many were copied: all or
/// none, or fewer if the bytes were faulted in before.
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
    without_faults(iter, len, |iter, len| unsafe {
        bindings::copy_page_from_iter(to.as_ptr().cast(), offset as usize, len, iter.as_ptr())
    })
}

/// Copies `len` bytes at `offset` in `from` to `iter`. Returns how many were copied: all or none,
/// or fewer if the bytes of `iter` were faulted in before.
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
    without_faults(iter, len, |iter, len| unsafe {
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

/// Faults in the next `len` bytes of `iter`, or the first of them. Sleeps; no lock may be held.
///
/// # Errors
///
/// `EFAULT` if some of the bytes are not accessible, `EINTR` if the thread is being killed.
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
    if missing > 0 {
        return Err(EFAULT);
    }
    iter.set_accessible(len);
    Ok(())
}
