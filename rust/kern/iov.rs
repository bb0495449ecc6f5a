// SPDX-License-Identifier: GPL-2.0

//! I/O vectors: the memory that a call sends from or receives into.
//!
//! The kernel crate has `IovIterSource` and `IovIterDest`. They copy only from and to slices, and
//! reverting them is unsafe. The module copies, pins and faults in pages through an I/O vector, and
//! its calls revert the bytes that they could not use.

use core::marker::PhantomData;
use core::ptr::NonNull;

use kernel::bindings::iov_iter;

use crate::bindings;

/// The access to the memory: a send reads it, a receive writes it.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The direction in which bytes go.
pub(crate) trait Direction {
    const ACCESS: Access;
}

/// Bytes come from the memory.
pub(crate) enum Source {}

/// Bytes go to the memory.
pub(crate) enum Dest {}

impl Direction for Source {
    const ACCESS: Access = Access::Read;
}

impl Direction for Dest {
    const ACCESS: Access = Access::Write;
}

/// A contiguous range of a program's memory.
#[derive(Copy, Clone)]
pub(crate) struct Piece {
    pub(crate) addr: usize,
    pub(crate) len: usize,
}

/// An I/O vector of a call.
///
/// # Invariants
///
/// `iter` is a valid `struct iov_iter` whose `data_source` is that of `D`. Only this value accesses
/// it during `'a`. It had `total` bytes when the value was created, and was advanced since by the
/// difference to its present length.
pub(crate) struct Iov<'a, D> {
    iter: NonNull<iov_iter>,
    total: usize,
    /// The number of bytes at the end of the vector behind those that were faulted in.
    unchecked: usize,
    _iter: PhantomData<(&'a mut iov_iter, D)>,
}

impl<D: Direction> Iov<'_, D> {
    /// # Safety
    ///
    /// `iter` is a valid `struct iov_iter` during `'a`, a source or a destination as `D` says, and
    /// nobody else accesses it meanwhile.
    pub(crate) unsafe fn from_raw(iter: NonNull<iov_iter>) -> Self {
        // SAFETY: The iterator is valid.
        let total = unsafe { bindings::iov_iter_count(iter.as_ptr().cast()) };
        // INVARIANT: As the caller promises; nothing was advanced yet.
        Self {
            iter,
            total,
            unchecked: total,
            _iter: PhantomData,
        }
    }

    /// Bytes that are left.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: By the type invariant.
        unsafe { bindings::iov_iter_count(self.iter.as_ptr().cast()) }
    }

    /// The number of the next bytes that were all accessible when they were faulted in.
    pub(crate) fn accessible(&self) -> usize {
        // Most calls fault nothing in.
        if self.unchecked == self.total {
            return 0;
        }
        self.len().saturating_sub(self.unchecked)
    }

    /// Records that the next `bytes` bytes were faulted in.
    pub(crate) fn set_accessible(&mut self, bytes: usize) {
        self.unchecked = self.len().saturating_sub(bytes);
    }

    /// The next contiguous bytes; `None` if there are none, or if they are not memory of a program,
    /// which can be pinned.
    pub(crate) fn piece(&self) -> Option<Piece> {
        let iter = self.iter.as_ptr();
        if self.len() == 0 {
            return None;
        }
        // SAFETY: By the type invariant. Only memory of a program has an address in an `iovec`;
        // while bytes are left, the iterator points to one of its `iovec`s and not behind the last
        // one.
        unsafe {
            bindings::iov_iter_extract_will_pin(iter).then(|| Piece {
                addr: bindings::iter_iov_addr(iter) as usize,
                len: bindings::iov_iter_single_seg_count(iter),
            })
        }
    }

    /// Whether the bytes are in pages without a user address: of a file or a pipe, or of a buffer
    /// that is registered with io_uring.
    pub(crate) fn has_pages(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::iov_iter_is_bvec(self.iter.as_ptr()) }
    }

    /// The length of [`Iov::piece`] in bytes.
    pub(crate) fn piece_bytes(&self) -> usize {
        self.piece().map_or(0, |piece| piece.len)
    }

    /// Skips `bytes` bytes, or all that are left.
    pub(crate) fn advance(&mut self, bytes: usize) {
        // SAFETY: By the type invariant; the function stops at the end.
        unsafe { bindings::iov_iter_advance(self.as_ptr(), bytes) };
    }

    /// Goes back by `bytes` bytes, but not beyond the position at which this value was created.
    pub(crate) fn revert(&mut self, bytes: usize) {
        let advanced = self.total.saturating_sub(self.len());
        kernel::warn_on!(bytes > advanced);
        let bytes = bytes.min(advanced);
        // SAFETY: By the type invariant it was advanced by at least `bytes`.
        unsafe { bindings::iov_iter_revert(self.as_ptr(), bytes) };
    }

    /// For functions of the kernel, which may advance it.
    pub(crate) fn as_ptr(&mut self) -> *mut iov_iter {
        self.iter.as_ptr()
    }
}
