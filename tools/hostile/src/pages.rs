// SPDX-License-Identifier: GPL-2.0
//! Whole pages of a victim, which the kernel may protect, take away, and give back.

use crate::cm::errno_fail;
use crate::fail::Result;
use std::ptr;

/// The number of bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// Private pages, or pages that are shared with children. There are never references to them.
///
/// # Invariants
///
/// `base` is a mapping of `len` bytes, owned by this value.
pub(crate) struct Pages {
    base: usize,
    len: usize,
}

impl Pages {
    pub(crate) fn new(len: usize) -> Result<Pages> {
        Pages::map(len, libc::MAP_PRIVATE)
    }

    /// Pages that are shared with children that are created later.
    pub(crate) fn shared(len: usize) -> Result<Pages> {
        Pages::map(len, libc::MAP_SHARED)
    }

    fn map(len: usize, how: i32) -> Result<Pages> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = how | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping does not affect existing memory.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(errno_fail("mmap"));
        }
        let base = base as usize;
        Ok(Pages { base, len })
    }

    pub(crate) fn addr(&self) -> usize {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Writes to the first bytes.
    pub(crate) fn write(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len);
        // SAFETY: the range is in the mapping, by the assertion.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.base as *mut u8, bytes.len());
        }
    }

    /// Writes this byte to all places.
    pub(crate) fn fill(&self, byte: u8) {
        // SAFETY: the range is the whole mapping.
        unsafe { ptr::write_bytes(self.base as *mut u8, byte, self.len) };
    }

    /// Reads all bytes.
    pub(crate) fn read(&self) -> Vec<u8> {
        let mut out = vec![0; self.len];
        // SAFETY: the range is the whole mapping.
        unsafe {
            ptr::copy_nonoverlapping(self.base as *const u8, out.as_mut_ptr(), self.len);
        }
        out
    }

    /// Reads one byte; the compiler can neither move the read nor remove it.
    pub(crate) fn look(&self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: the range is in the mapping, by the assertion.
        unsafe { ((self.base + at) as *const u8).read_volatile() }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: by the type invariant.
        unsafe { libc::munmap(self.base as *mut libc::c_void, self.len) };
    }
}
