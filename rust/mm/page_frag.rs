// SPDX-License-Identifier: GPL-2.0

//! The page into which sends copy, one behind the other: `struct page_frag`.

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

/// The page that is being filled, of the current task or of a socket.
///
/// # Invariants
///
/// `frag` is valid, and nobody else uses it as long as this value does. If it has a page, it has a reference
/// to that, and nobody uses the bytes of the page from its offset on.
pub(crate) struct PageFrag {
    frag: NonNull<bindings::page_frag>,
    sk: Sk,
}

impl PageFrag {
    /// That of the socket.
    ///
    /// # Safety
    ///
    /// This thread owns the lock of the socket, in process context, as long as it uses the value.
    pub(crate) unsafe fn of_socket(sk: Sk) -> Self {
        // SAFETY: The object is valid, so that this is no null pointer.
        let frag = unsafe { NonNull::new_unchecked(&raw mut (*sk.as_ptr()).sk_frag) };
        // INVARIANT: The lock guards it. The core, which uses it too, keeps it so.
        Self { frag, sk }
    }

    /// That of the current task, or of the socket where the task's may be in use.
    ///
    /// # Safety
    ///
    /// As for [`PageFrag::of_socket`].
    pub(crate) unsafe fn of_task(sk: Sk) -> Self {
        // SAFETY: The object is valid; the core returns the address of a part of it, or of the task.
        let frag =
            unsafe { NonNull::new_unchecked(bindings::sk_page_frag(sk.as_ptr().cast()).cast()) };
        // INVARIANT: Only the task itself uses its own; that of the socket is as above.
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

    /// Bytes of the page, whether they are in use or not.
    pub(crate) fn page_bytes(&self) -> usize {
        self.get().size as usize
    }

    /// Leaves the rest of the page unused.
    pub(crate) fn leave_page(&mut self) {
        let frag = self.get_mut();
        frag.offset = frag.size;
    }

    /// Takes another page if this one is full. Returns how many bytes have room; `None` if there is no
    /// page.
    pub(crate) fn refill(&mut self) -> Option<u32> {
        // SAFETY: Both are valid. INVARIANT: The core drops a page only with its reference.
        let filled =
            unsafe { bindings::sk_page_frag_refill(self.sk.as_ptr(), self.frag.as_ptr().cast()) };
        (filled && !self.get().page.is_null()).then(|| self.room())
    }

    fn room(&self) -> u32 {
        let frag = self.get();
        frag.size.saturating_sub(frag.offset)
    }

    /// Copies the next `len` bytes of `iter` into the page, as far as they have room; fewer, or none, where
    /// a page of the program's is missing. [`PageFrag::refill`] has found room.
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
        // INVARIANT: The bytes that are in use now are before the offset.
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
/// The page holds the range, and the page fragment, which is borrowed, has a reference to it.
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

    /// Has `last` grow over them, if they lie directly behind it; returns by how many bytes.
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
