// SPDX-License-Identifier: GPL-2.0

//! The page into which successive sends copy their bytes: `struct page_frag`.

use core::marker::PhantomData;
use core::ptr::NonNull;

use kernel::bindings::page;

use super::frag::Frag;
use super::user;
use crate::bindings;
use crate::inet::sock::Sk;
use crate::kern::iov::{
    Iov,
    Source, //
};

/// The page that is being filled; it belongs to the current task or to a socket.
///
/// # Invariants
///
/// `frag` is valid, and nobody else uses it as long as this value exists. If it has a page, it has
/// a reference to the page, and nobody uses the bytes of the page from its offset on.
pub(crate) struct PageFrag {
    frag: NonNull<bindings::page_frag>,
    sk: Sk,
}

impl PageFrag {
    /// The page fragment of the socket.
    ///
    /// # Safety
    ///
    /// This thread owns the lock of the socket, in process context, as long as it uses the value.
    pub(crate) unsafe fn of_socket(sk: Sk) -> Self {
        // SAFETY: The object is valid, so the pointer is not null.
        let frag = unsafe { NonNull::new_unchecked(&raw mut (*sk.as_ptr()).sk_frag) };
        // INVARIANT: The lock guards it. The core, which also uses it, keeps the invariant.
        Self { frag, sk }
    }

    /// The page fragment of the current task, or of the socket if the task's may be in use.
    ///
    /// # Safety
    ///
    /// As for [`PageFrag::of_socket`].
    pub(crate) unsafe fn of_task(sk: Sk) -> Self {
        // SAFETY: The object is valid; the core returns the address of a member of the socket or of
        // the task.
        let frag =
            unsafe { NonNull::new_unchecked(bindings::sk_page_frag(sk.as_ptr().cast()).cast()) };
        // INVARIANT: Only the task itself uses its own fragment; for the fragment of the socket,
        // see `of_socket`.
        Self { frag, sk }
    }

    fn get(&self) -> &bindings::page_frag {
        // SAFETY: By the type invariant.
        unsafe { self.frag.as_ref() }
    }

    fn get_mut(&mut self) -> &mut bindings::page_frag {
        // SAFETY: By the type invariant.
        unsafe { self.frag.as_mut() }
    }

    /// The size of the page, used and unused bytes.
    pub(crate) fn page_bytes(&self) -> usize {
        self.get().size as usize
    }

    /// Leaves the rest of the page unused.
    pub(crate) fn leave_page(&mut self) {
        let frag = self.get_mut();
        frag.offset = frag.size;
    }

    /// Takes another page if this one is full. Returns the number of free bytes; `None` if there is
    /// no page.
    pub(crate) fn refill(&mut self) -> Option<u32> {
        // SAFETY: Both are valid. INVARIANT: The core drops a page together with its reference.
        let filled =
            unsafe { bindings::sk_page_frag_refill(self.sk.as_ptr(), self.frag.as_ptr().cast()) };
        (filled && !self.get().page.is_null()).then(|| self.room())
    }

    fn room(&self) -> u32 {
        let frag = self.get();
        frag.size.saturating_sub(frag.offset)
    }

    /// Copies the next `len` bytes of `iter` into the page, as far as there is room. `None` if a
    /// page of the program is missing; fewer bytes if the bytes were faulted in before.
    /// [`PageFrag::refill`] has made room.
    pub(crate) fn copy_from_iter(
        &mut self,
        len: usize,
        iter: &mut Iov<'_, Source>,
    ) -> Option<Copied<'_>> {
        let page = NonNull::new(self.get().page)?;
        let offset = self.get().offset;
        let len = len.min(self.room() as usize);
        // SAFETY: By the type invariant the page has these bytes, which nobody else uses.
        let len = unsafe { user::copy_from_iter(page, offset, len, iter) } as u32;
        // INVARIANT: The bytes that are now in use lie before the offset.
        self.get_mut().offset += len;
        (len > 0).then_some(Copied {
            page,
            offset,
            len,
            _frag: PhantomData,
        })
    }
}

/// Bytes that were just copied into the page.
///
/// # Invariants
///
/// The page holds the range, and the borrowed page fragment has a reference to the page.
pub(crate) struct Copied<'a> {
    page: NonNull<page>,
    offset: u32,
    len: u32,
    _frag: PhantomData<&'a PageFrag>,
}

impl Copied<'_> {
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Extends `last` by them, if they lie directly behind it; returns the number of bytes added.
    pub(crate) fn join_to(&self, last: &mut Frag) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { last.extend(self.page, self.offset, self.len) }
    }

    /// The bytes, with a reference to the page.
    pub(crate) fn into_frag(self) -> Frag {
        // SAFETY: By the type invariant.
        unsafe { Frag::get(self.page, self.offset, self.len) }
    }
}
