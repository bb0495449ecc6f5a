// SPDX-License-Identifier: GPL-2.0

//! Memory that is sent without a copy and without protection: memory that its program does not
//! change until a notification (MSG_ZEROCOPY, and requests of io_uring), and pages of files and
//! pipes (sendfile(), splice()).

use core::ptr;

use kernel::bindings::page;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

use super::pin::{
    Pinned,
    Term, //
};
use crate::bindings;
use crate::kern::iov::{
    Iov,
    Source, //
};
use crate::kern::zerocopy::Notification;
use crate::stats::counters::Stats;

/// A run of bytes in pages that have no address in a program.
///
/// # Invariants
///
/// The value has a reference to each of `pages`; the bytes begin at `offset` in the first page and
/// end in the last.
struct Referenced {
    pages: KVec<*mut page>,
    offset: u32,
    len: u32,
}

// SAFETY: Any thread may drop the references.
unsafe impl Send for Referenced {}

impl Referenced {
    /// Takes the next bytes from `iter`.
    fn new(iter: &mut Iov<'_, Source>, max_bytes: usize, max_pages: usize) -> Result<Self> {
        // The bytes may begin within a page, and end within another one.
        let max_pages = max_pages.min(max_bytes / PAGE_SIZE + 2);
        let mut pages = KVec::with_capacity(max_pages, GFP_KERNEL)?;
        let mut list: *mut *mut page = pages.spare_capacity_mut().as_mut_ptr().cast();
        let mut offset = 0;
        // SAFETY: Only this call uses the iterator; the list has room for `max_pages` pages. The
        // function takes no references to pages without an address.
        let got = unsafe {
            bindings::iov_iter_extract_pages(
                iter.as_ptr(),
                ptr::from_mut(&mut list).cast(),
                max_bytes,
                max_pages as u32,
                0,
                &raw mut offset,
            )
        };
        let len = match usize::try_from(got) {
            Ok(0) => return Err(EFAULT),
            Ok(len) => len,
            Err(_) => return Err(Error::from_errno(got as i32)),
        };
        // SAFETY: The function has written the pages of `len` bytes to the list.
        unsafe { pages.inc_len((offset + len).div_ceil(PAGE_SIZE)) };
        // SAFETY: The caller of the send keeps the pages during the call.
        let may_be_referenced = |page: &*mut page| unsafe { bindings::sendpage_ok((*page).cast()) };
        if !pages.iter().all(may_be_referenced) {
            iter.revert(len);
            return Err(EFAULT);
        }
        for page in &pages {
            // SAFETY: As above.
            unsafe { bindings::get_page((*page).cast()) };
        }
        // INVARIANT: Just taken.
        Ok(Self {
            pages,
            offset: offset as u32,
            len: len as u32,
        })
    }
}

impl Drop for Referenced {
    fn drop(&mut self) {
        for page in &self.pages {
            // SAFETY: By the type invariant.
            unsafe { bindings::put_page((*page).cast()) };
        }
    }
}

enum Pages {
    Pinned(Pinned),
    Referenced(Referenced),
}

/// A run of bytes in memory that is sent without a copy and without protection. The fields are
/// dropped in this order: the pages are released before the program is notified.
pub(crate) struct Lent {
    pages: Pages,
    _notification: Option<Notification>,
}

impl Lent {
    /// Takes the next bytes of `iter` that an adapter can use as one region, at most `max_bytes` in
    /// `max_pages` pages; does not advance `iter`. Faults pages in: no lock may be held.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EFAULT` and others if not even the first page is available.
    pub(crate) fn take(
        iter: &mut Iov<'_, Source>,
        max_bytes: usize,
        max_pages: usize,
        notification: Option<Notification>,
        stats: Stats,
    ) -> Result<Self> {
        let pages = if iter.has_pages() {
            Pages::Referenced(Referenced::new(iter, max_bytes, max_pages)?)
        } else {
            Pages::Pinned(Pinned::new(iter, max_bytes, max_pages, Term::Lent, stats)?)
        };
        let lent = Self {
            pages,
            _notification: notification,
        };
        iter.revert(lent.len() as usize);
        Ok(lent)
    }

    /// The pages, in their order.
    pub(super) fn pages(&self) -> &[*mut page] {
        match &self.pages {
            Pages::Pinned(pinned) => pinned.pages(),
            Pages::Referenced(run) => &run.pages,
        }
    }

    /// Where the bytes begin in the first page.
    pub(super) fn offset(&self) -> u32 {
        match &self.pages {
            Pages::Pinned(pinned) => pinned.offset(),
            Pages::Referenced(run) => run.offset,
        }
    }

    pub(super) fn len(&self) -> u32 {
        match &self.pages {
            Pages::Pinned(pinned) => pinned.len(),
            Pages::Referenced(run) => run.len,
        }
    }
}
