// SPDX-License-Identifier: GPL-2.0

//! Pages of a program's that stay where they are while an adapter uses them.

use kernel::bindings::{
    iov_iter,
    page, //
};
use kernel::error::to_result;
use kernel::prelude::*;

use super::user::Access;
use crate::bindings;
use crate::net::errno::ENOBUFS;
use crate::observe::stats::{
    Counter,
    Stats, //
};

const PAGE_BYTES: usize = 4096;

/// Whether the bytes of `iter` are a program's memory, which can be pinned.
///
/// # Safety
///
/// `iter` is valid.
pub(crate) unsafe fn is_pinnable(iter: *const iov_iter) -> bool {
    // SAFETY: As the caller promises.
    unsafe { bindings::iov_iter_extract_will_pin(iter) }
}

/// The next bytes of `iter` that lie in one piece.
///
/// # Safety
///
/// `iter` is valid.
pub(crate) unsafe fn piece_bytes(iter: *const iov_iter) -> usize {
    // SAFETY: As the caller promises.
    unsafe { bindings::iov_iter_single_seg_count(iter) }
}

/// A share of what a user may lock (RLIMIT_MEMLOCK), as for MSG_ZEROCOPY: those who may lock what
/// they like are not charged.
///
/// # Invariants
///
/// `charged` holds what was charged, and is given back once.
struct Locked {
    charged: bindings::ubuf_info_msgzc_mmpin,
}

impl Locked {
    /// # Errors
    ///
    /// `ENOBUFS` beyond the limit.
    fn charge(bytes: usize) -> Result<Self> {
        let mut charged = bindings::ubuf_info_msgzc_mmpin::default();
        // SAFETY: We are in process context, and the value is a new one.
        to_result(unsafe { bindings::mm_account_pinned_pages(&raw mut charged, bytes) })?;
        // INVARIANT: Just charged, or free of charge.
        Ok(Self { charged })
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::mm_unaccount_pinned_pages(&raw mut self.charged) };
    }
}

/// A run of bytes in pinned pages of a program's.
///
/// # Invariants
///
/// Every entry of `pages` is pinned once by this value; the bytes begin at `offset` in the first
/// and end in the last. It goes before the socket whose `stats` it has.
pub(crate) struct Pinned {
    pages: KVec<*mut page>,
    offset: u32,
    len: u32,
    access: Access,
    stats: Stats,
    _locked: Locked,
}

// SAFETY: Pins may be given back by any thread.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Pins the next bytes of `iter` that lie in one piece, at most `max_bytes` in `max_pages`
    /// pages, and takes them from `iter`. Faults pages in: no lock may be held.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` if the user may not lock so much, `ENOMEM`; `EFAULT` and others if not even the
    /// first page can be pinned. `iter` is as before then.
    ///
    /// # Safety
    ///
    /// `iter` is valid and [`is_pinnable`], a source for [`Access::Read`], else a destination.
    pub(crate) unsafe fn new(
        iter: *mut iov_iter,
        max_bytes: usize,
        max_pages: usize,
        access: Access,
        stats: Stats,
    ) -> Result<Self> {
        // SAFETY: As the caller promises.
        let want = unsafe { piece_bytes(iter) }.min(max_bytes);
        let pages_wanted = (want / PAGE_BYTES + 2).min(max_pages);
        let want = want.min(pages_wanted * PAGE_BYTES);
        let locked = Locked::charge(want).map_err(|_| ENOBUFS)?;
        let mut pages = KVec::with_capacity(pages_wanted, GFP_KERNEL)?;
        let mut list: *mut *mut page = pages.spare_capacity_mut().as_mut_ptr().cast();
        let mut offset = 0;
        // SAFETY: The list has room for so many pages; the caller vouches for the iterator.
        let got = unsafe {
            bindings::iov_iter_extract_pages(
                iter,
                (&raw mut list).cast(),
                want,
                pages_wanted as u32,
                0,
                &raw mut offset,
            )
        };
        let len = match usize::try_from(got) {
            Ok(0) => return Err(EFAULT),
            Ok(len) => len,
            Err(_) => return Err(Error::from_errno(got as i32)),
        };
        let count = (offset + len).div_ceil(PAGE_BYTES).min(pages_wanted);
        // SAFETY: So many entries of the list were written: those of the pages of these bytes.
        unsafe { pages.inc_len(count) };
        stats.add(Counter::PinnedBytes, len as u64);
        // INVARIANT: The core has pinned them for us.
        Ok(Self {
            pages,
            offset: offset as u32,
            len: len as u32,
            access,
            stats,
            _locked: locked,
        })
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    /// The pages, in their order.
    pub(crate) fn pages(&self) -> &[*mut page] {
        &self.pages
    }
}

impl Drop for Pinned {
    /// Sleeps if the pages were written to.
    fn drop(&mut self) {
        self.stats.add(Counter::UnpinnedBytes, self.len.into());
        let (list, count) = (self.pages.as_mut_ptr(), self.pages.len());
        // SAFETY: By the type invariant; whoever had the adapter use the pages drops the value when
        // it does not any more, in process context.
        unsafe {
            match self.access {
                Access::Read => bindings::unpin_user_pages(list.cast(), count),
                Access::Write => bindings::unpin_user_pages_dirty_lock(list.cast(), count, true),
            }
        }
    }
}
