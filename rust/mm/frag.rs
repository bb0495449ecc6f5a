// SPDX-License-Identifier: GPL-2.0

//! A run of bytes in one page or compound page.

use core::ptr::NonNull;

use kernel::bindings::page;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

use super::user;
use crate::bindings;
use crate::kern::iov::{
    Dest,
    Iov, //
};

/// Bytes in a page (or compound page) that this value holds a reference on.
///
/// # Invariants
///
/// `page` is a valid page on which this value owns one reference, and
/// `offset + len` does not reach beyond it.
pub(crate) struct Frag {
    page: NonNull<page>,
    offset: u32,
    len: u32,
}

// SAFETY: A page reference may be used and dropped on any CPU and in any context.
unsafe impl Send for Frag {}

impl Frag {
    /// Allocates a fragment of `PAGE_SIZE << order` bytes, physically contiguous.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; without a warning, since every caller handles it.
    pub(crate) fn alloc(order: u32, gfp: bindings::gfp_t) -> Result<Self> {
        let quiet = bindings::SDP_CONST___GFP_COMP | bindings::SDP_CONST___GFP_NOWARN;
        // SAFETY: The flags are valid; the result is checked.
        let page = unsafe { bindings::alloc_pages(gfp | quiet, order) };
        Ok(Self {
            // INVARIANT: A new page has one reference, which is ours now.
            page: NonNull::new(page.cast()).ok_or(ENOMEM)?,
            offset: 0,
            len: (PAGE_SIZE as u32) << order,
        })
    }

    /// Takes a new reference on `page`.
    ///
    /// # Safety
    ///
    /// `page` is valid and holds `offset + len` bytes.
    pub(super) unsafe fn get(page: NonNull<page>, offset: u32, len: u32) -> Self {
        // SAFETY: The page is valid, as the caller promises.
        unsafe { bindings::get_page(page.as_ptr().cast()) };
        // INVARIANT: The reference was just taken.
        Self { page, offset, len }
    }

    pub(crate) fn page(&self) -> *mut page {
        self.page.as_ptr()
    }

    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Cuts the first `n` bytes off, as a fragment of their own.
    pub(crate) fn split_front(&mut self, n: u32) -> Self {
        let n = n.min(self.len);
        // SAFETY: Our own reference keeps the page valid, and the range is part of ours.
        let front = unsafe { Self::get(self.page, self.offset, n) };
        self.skip(n);
        front
    }

    /// Drops the first `n` bytes.
    pub(crate) fn skip(&mut self, n: u32) {
        let n = n.min(self.len);
        self.offset += n;
        self.len -= n;
    }

    /// Shortens the fragment to `len` bytes.
    pub(crate) fn truncate(&mut self, len: u32) {
        self.len = self.len.min(len);
    }

    /// Extends the fragment by `other`, if `other` lies directly behind it; returns the number of
    /// bytes added.
    pub(crate) fn join(&mut self, other: &Self) -> u32 {
        if !self.is_followed_by(other.page, other.offset) {
            return 0;
        }
        self.len += other.len;
        other.len
    }

    /// Copies `from` into the fragment, as much as fits.
    ///
    /// # Safety
    ///
    /// The module has allocated the page. Nobody else uses the bytes of the fragment yet.
    pub(super) unsafe fn fill(&self, from: &[u8]) {
        let n = from.len().min(self.len as usize);
        // SAFETY: By the type invariant the range is inside the page, and the module's pages are
        // not highmem. Nobody else uses the bytes, as the caller promises.
        unsafe {
            let base = bindings::page_address(self.page.as_ptr().cast()).cast::<u8>();
            core::ptr::copy_nonoverlapping(from.as_ptr(), base.add(self.offset as usize), n);
        }
    }

    /// The whole compound page, if nobody else has a reference to it.
    pub(crate) fn into_whole(mut self) -> Option<Self> {
        let page = self.page.as_ptr().cast();
        // SAFETY: Our reference keeps the page valid.
        let (count, order) =
            unsafe { (bindings::page_count(page), bindings::compound_order(page)) };
        if count != 1 {
            return None;
        }
        self.offset = 0;
        self.len = (PAGE_SIZE as u32) << order;
        Some(self)
    }

    /// Whether `other` lies directly behind this one in the same page.
    fn is_followed_by(&self, page: NonNull<page>, offset: u32) -> bool {
        self.page == page && self.offset + self.len == offset
    }

    /// Extends the fragment by `len` bytes directly behind it, if they begin at (`page`, `offset`);
    /// returns the number of bytes added.
    ///
    /// # Safety
    ///
    /// As for [`Frag::get`].
    pub(super) unsafe fn extend(&mut self, page: NonNull<page>, offset: u32, len: u32) -> u32 {
        if !self.is_followed_by(page, offset) {
            return 0;
        }
        self.len += len;
        len
    }

    /// Copies `len` bytes behind the first `skip` into `iter`. Returns how many were copied: none if
    /// a page of the program is missing, or fewer if the bytes of `iter` were faulted in before.
    pub(crate) fn copy_to_iter(&self, skip: u32, len: u32, iter: &mut Iov<'_, Dest>) -> u32 {
        let len = len.min(self.len.saturating_sub(skip));
        // SAFETY: By the type invariant the range is inside the page.
        let n = unsafe { user::copy_to_iter(self.page, self.offset + skip, len as usize, iter) };
        // At most `len`.
        n as u32
    }

    /// The bytes.
    ///
    /// # Safety
    ///
    /// The module has allocated the page. Nobody writes to the bytes of the fragment while the slice
    /// is used, not even an adapter.
    pub(crate) unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: By the type invariant the range is inside the page, which our reference keeps.
        // The module's pages are not highmem. The rest is as the caller promises.
        unsafe {
            let base = bindings::page_address(self.page.as_ptr().cast()).cast::<u8>();
            core::slice::from_raw_parts(base.add(self.offset as usize), self.len as usize)
        }
    }
}

impl Drop for Frag {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the reference is ours.
        unsafe { bindings::put_page(self.page.as_ptr().cast()) };
    }
}

/// A page that is filled from the front: the bytes that are still unused.
///
/// # Invariants
///
/// The module has allocated the page, and no other fragment has bytes of the value.
pub(crate) struct UnusedPage(Frag);

impl UnusedPage {
    /// Allocates a page.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn alloc(gfp: bindings::gfp_t) -> Result<Self> {
        // INVARIANT: No fragment has bytes of a new page yet.
        Frag::alloc(0, gfp).map(Self)
    }

    /// The number of unused bytes.
    pub(crate) fn len(&self) -> u32 {
        self.0.len
    }

    /// Copies `from` to the first unused bytes, and returns these as a fragment; `None` if there are
    /// too few.
    pub(crate) fn fill(&mut self, from: &[u8]) -> Option<Frag> {
        let len = u32::try_from(from.len()).ok()?;
        if len > self.0.len {
            return None;
        }
        // INVARIANT: The bytes of the new fragment are no longer those of the value.
        let front = self.0.split_front(len);
        // SAFETY: By the type invariant the page is the module's, and nobody else uses the bytes.
        unsafe { front.fill(from) };
        Some(front)
    }
}

#[kunit_tests(ib_sdp_frag)]
mod tests {
    use super::*;

    #[test]
    fn an_unused_page_is_filled_from_the_front() -> Result {
        let mut page = UnusedPage::alloc(bindings::SDP_CONST_GFP_KERNEL)?;
        assert_eq!(page.len(), PAGE_SIZE as u32);
        let mut first = page.fill(&[1; 100]).ok_or(EINVAL)?;
        let second = page.fill(&[2; 50]).ok_or(EINVAL)?;
        assert_eq!(page.len(), PAGE_SIZE as u32 - 150);
        assert_eq!(first.join(&second), 50);
        // SAFETY: The module has allocated the page, and nobody writes to these bytes.
        let bytes = unsafe { first.as_slice() };
        assert!(bytes.iter().take(100).all(|byte| *byte == 1));
        assert!(bytes.iter().skip(100).all(|byte| *byte == 2));

        // Too many bytes leave the page as it is.
        assert!(page.fill(&[3; PAGE_SIZE - 149]).is_none());
        let rest = page.fill(&[3; PAGE_SIZE - 150]).ok_or(EINVAL)?;
        assert_eq!(rest.len(), PAGE_SIZE as u32 - 150);
        assert_eq!(page.len(), 0);
        assert_eq!(page.fill(&[]).ok_or(EINVAL)?.len(), 0);
        assert!(page.fill(&[4]).is_none());
        Ok(())
    }
}
