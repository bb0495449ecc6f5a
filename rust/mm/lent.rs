// SPDX-License-Identifier: GPL-2.0

//! Memory that a program leaves alone until it is told that it may use it again: that of a send with
//! MSG_ZEROCOPY, or of io_uring's. It needs no protection.

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

enum Pages {
    Pinned(Pinned),
    /// A request of io_uring that has a notification keeps its registered buffer until that is sent. (A
    /// request without one keeps the buffer until the call has returned.)
    Registered {
        pages: KVec<*mut page>,
        offset: u32,
        len: u32,
    },
}

// SAFETY: The pages are not touched; what keeps them does so for every thread.
unsafe impl Send for Pages {}

/// A run of bytes in such memory. The fields are dropped in this order: the pages are given back before the
/// program hears of it.
pub(crate) struct Lent {
    pages: Pages,
    _notification: Notification,
}

impl Lent {
    /// Takes the next bytes of `iter` that an adapter can have as one, at most `max_bytes` in `max_pages`
    /// pages; `iter` stays where it is. Faults pages in: no lock may be held.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EFAULT` and others if not even the first page can be had, or if nobody would keep it.
    pub(crate) fn take(
        iter: &mut Iov<'_, Source>,
        max_bytes: usize,
        max_pages: usize,
        notification: Notification,
        stats: Stats,
    ) -> Result<Self> {
        let pages = if iter.is_registered() {
            if !notification.is_of_request() {
                return Err(EFAULT);
            }
            registered(iter, max_bytes, max_pages)?
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
            Pages::Registered { pages, .. } => pages,
        }
    }

    /// Where the bytes begin in the first page.
    pub(super) fn offset(&self) -> u32 {
        match &self.pages {
            Pages::Pinned(pinned) => pinned.offset(),
            Pages::Registered { offset, .. } => *offset,
        }
    }

    pub(super) fn len(&self) -> u32 {
        match &self.pages {
            Pages::Pinned(pinned) => pinned.len(),
            Pages::Registered { len, .. } => *len,
        }
    }
}

fn registered(iter: &mut Iov<'_, Source>, max_bytes: usize, max_pages: usize) -> Result<Pages> {
    let mut pages = KVec::with_capacity(max_pages, GFP_KERNEL)?;
    let mut list: *mut *mut page = pages.spare_capacity_mut().as_mut_ptr().cast();
    let mut offset = 0;
    // SAFETY: The iterator is ours during the call; the list has room for so many pages, of which the function
    // takes no references.
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
    // SAFETY: So many bytes are in so many pages, which were written to the list.
    unsafe { pages.inc_len((offset + len).div_ceil(PAGE_SIZE)) };
    Ok(Pages::Registered {
        pages,
        offset: offset as u32,
        len: len as u32,
    })
}
