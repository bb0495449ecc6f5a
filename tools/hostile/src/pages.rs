// SPDX-License-Identifier: GPL-2.0
//! Whole pages of a victim's, which the kernel may protect, take away and give back.

use crate::cm::errno_fail;
use crate::fail::Result;
use std::ptr;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// Private pages, or such that are shared with children. No reference to them is
/// ever made.
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

    /// Children that come later have the same pages.
    pub(crate) fn shared(len: usize) -> Result<Pages> {
        Pages::map(len, libc::MAP_SHARED)
    }

    fn map(len: usize, how: i32) -> Result<Pages> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = how | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping touches nothing that exists.
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
        // SAFETY: inside the mapping, by the assertion.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.base as *mut u8, bytes.len());
        }
    }

    /// Writes this byte everywhere.
    pub(crate) fn fill(&self, byte: u8) {
        // SAFETY: all of the mapping.
        unsafe { ptr::write_bytes(self.base as *mut u8, byte, self.len) };
    }

    /// All the bytes.
    pub(crate) fn read(&self) -> Vec<u8> {
        let mut out = vec![0; self.len];
        // SAFETY: all of the mapping.
        unsafe {
            ptr::copy_nonoverlapping(self.base as *const u8, out.as_mut_ptr(), self.len);
        }
        out
    }

    /// The byte at this place, which is looked at now, and not sooner or never.
    pub(crate) fn look(&self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: inside the mapping, by the assertion.
        unsafe { ((self.base + at) as *const u8).read_volatile() }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: by the type invariant.
        unsafe { libc::munmap(self.base as *mut libc::c_void, self.len) };
    }
}
