// SPDX-License-Identifier: GPL-2.0
//! Memory of several kinds, and memory without access.

use super::memory_file;
use std::io;
use std::os::fd::AsRawFd;

/// The number of bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// The kind of the pages of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Anonymous pages, as from malloc().
    Private,
    /// Anonymous pages that are shared with children.
    Shared,
    /// Anonymous pages that are locked into memory.
    Locked,
    /// Huge pages, if the system has reserved some.
    Huge,
    /// The pages of a file in memory.
    File,
    /// Private pages of a file in memory, which are copied when they are written to.
    FileCopy,
}

/// Whole pages of the test's own; access can be taken away from any of them.
pub(crate) struct Area {
    start: usize,
    pages: usize,
}

impl Area {
    pub(crate) fn new(pages: usize) -> io::Result<Area> {
        Area::of(Kind::Private, pages)
    }

    pub(crate) fn of(kind: Kind, pages: usize) -> io::Result<Area> {
        let file = match kind {
            Kind::File | Kind::FileCopy => Some(memory_file(&vec![0; pages * PAGE])?),
            _ => None,
        };
        let flags = match kind {
            Kind::Private => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            Kind::Shared => libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            Kind::Locked => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_LOCKED,
            Kind::Huge => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB,
            Kind::File => libc::MAP_SHARED,
            Kind::FileCopy => libc::MAP_PRIVATE,
        };
        // SAFETY: the call makes a new mapping at an address that the kernel chooses. The mapping
        // outlives the file's descriptor.
        let ptr = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                pages * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                file.as_ref().map_or(-1, AsRawFd::as_raw_fd),
                0,
            )
        };
        if ptr == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Area {
            start: ptr as usize,
            pages,
        })
    }

    /// The address of byte `offset`, which may lie in a page without access.
    pub(crate) fn at(&self, offset: usize) -> usize {
        self.start + offset
    }

    /// Takes all access away from the pages from `first` on.
    pub(crate) fn forbid_from(&self, first: usize) -> io::Result<()> {
        self.protect_from(first, libc::PROT_NONE)
    }

    /// Makes the pages from `first` on read-only.
    pub(crate) fn read_only_from(&self, first: usize) -> io::Result<()> {
        self.protect_from(first, libc::PROT_READ)
    }

    fn protect_from(&self, first: usize, prot: i32) -> io::Result<()> {
        let len = (self.pages - first) * PAGE;
        // SAFETY: the range belongs to this area. Slices of it are only made by `bytes`, whose
        // callers stay below the pages without access.
        let ret = unsafe { libc::mprotect((self.start + first * PAGE) as *mut _, len, prot) };
        if ret < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// The first `len` bytes, which must still be accessible.
    pub(crate) fn bytes(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.pages * PAGE);
        // SAFETY: the mapping belongs to this area, has at least `len` bytes, and is borrowed
        // mutably for the slice's life.
        unsafe { std::slice::from_raw_parts_mut(self.start as *mut u8, len) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this area, and nothing borrows it any more.
        unsafe { libc::munmap(self.start as *mut _, self.pages * PAGE) };
    }
}
