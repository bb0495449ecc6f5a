// SPDX-License-Identifier: GPL-2.0
//! Pages that any thread may access or change in any way at any time. A program with threads may do
//! so with a buffer, and a test of the kernel must do so.

use super::{checked, checked_size, PAGE};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

/// The number of bytes of a huge page.
pub(crate) const HUGE: usize = 2 << 20;

const ACCESS: i32 = libc::PROT_READ | libc::PROT_WRITE;
const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Values for madvise() that the libc crate does not name on all targets.
pub(crate) const MADV_COLD: i32 = 20;
pub(crate) const MADV_PAGEOUT: i32 = 21;
pub(crate) const MADV_COLLAPSE: i32 = 25;

/// A range of pages. The pages stay mapped after the value is dropped, until the test's process
/// ends.
///
/// No reference to such memory is ever made. It is accessed by the volatile accesses and the copies
/// of the methods, and by the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    start: usize,
    len: usize,
}

impl Pages {
    /// New pages that begin at the boundary of a huge page. If `huge` is set, they are huge pages,
    /// if the system has some.
    pub(crate) fn new(len: usize, huge: bool) -> io::Result<Pages> {
        let room = Pages::map(0, len + HUGE, ACCESS, 0)?;
        let pages = Pages {
            start: room.start.next_multiple_of(HUGE),
            len,
        };
        let advice = match huge {
            true => libc::MADV_HUGEPAGE,
            false => libc::MADV_NOHUGEPAGE,
        };
        pages.advise(advice)?;
        Ok(pages)
    }

    fn map(at: usize, len: usize, access: i32, flags: i32) -> io::Result<Pages> {
        // SAFETY: the call makes a new mapping, at an address that the kernel chooses or over pages
        // of such a value, to which there are no references.
        let at = unsafe { libc::mmap(at as *mut _, len, access, ANONYMOUS | flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = at as usize;
        Ok(Pages { start, len })
    }

    /// The mapped first bytes of a file.
    pub(crate) fn of_file(file: &File, len: usize) -> io::Result<Pages> {
        // SAFETY: the call makes a new mapping at an address that the kernel chooses.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                ACCESS,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = at as usize;
        Ok(Pages { start, len })
    }

    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// The address of byte `offset`.
    pub(crate) fn at(self, offset: usize) -> usize {
        self.start + offset
    }

    /// A part of the pages.
    pub(crate) fn part(self, offset: usize, len: usize) -> Pages {
        assert!(offset + len <= self.len, "a part outside");
        Pages {
            start: self.start + offset,
            len,
        }
    }

    /// Writes bytes at `offset`.
    pub(crate) fn write(self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len, "bytes outside");
        // SAFETY: the range belongs to this value, and there are no references to it.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset) as *mut u8, bytes.len());
        }
    }

    /// The bytes from `offset` on.
    pub(crate) fn read(self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len, "bytes outside");
        let mut bytes = vec![0; len];
        // SAFETY: as in write().
        unsafe {
            std::ptr::copy_nonoverlapping(self.at(offset) as *const u8, bytes.as_mut_ptr(), len);
        }
        bytes
    }

    /// Reads all the bytes and discards them.
    pub(crate) fn look(self) {
        // Without this, the compiler sees that the copy is not used.
        std::hint::black_box(self.read(0, self.len));
    }

    /// Stores a word; ends the process if the page may not be written to.
    pub(crate) fn store(self, offset: usize, value: u64) {
        assert!(offset + 8 <= self.len && offset % 8 == 0, "no such word");
        // SAFETY: the word belongs to this value, and there are no references to it.
        unsafe { (self.at(offset) as *mut u64).write_volatile(value) };
    }

    pub(crate) fn load(self, offset: usize) -> u64 {
        assert!(offset + 8 <= self.len && offset % 8 == 0, "no such word");
        // SAFETY: as in store().
        unsafe { (self.at(offset) as *const u64).read_volatile() }
    }

    /// Stores a word in every page.
    pub(crate) fn touch(self, value: u64) {
        for offset in (0..self.len).step_by(PAGE) {
            self.store(offset, value);
        }
    }

    /// madvise().
    pub(crate) fn advise(self, advice: i32) -> io::Result<()> {
        // SAFETY: the range belongs to this value, and there are no references to it.
        checked(unsafe { libc::madvise(self.start as *mut _, self.len, advice) })?;
        Ok(())
    }

    /// mprotect().
    pub(crate) fn protect(self, writable: bool) -> io::Result<()> {
        let access = if writable { ACCESS } else { libc::PROT_READ };
        // SAFETY: as for advise().
        checked(unsafe { libc::mprotect(self.start as *mut _, self.len, access) })?;
        Ok(())
    }

    /// Takes all access to the pages away.
    pub(crate) fn forbid(self) -> io::Result<()> {
        // SAFETY: as for advise().
        checked(unsafe { libc::mprotect(self.start as *mut _, self.len, libc::PROT_NONE) })?;
        Ok(())
    }

    /// mlock().
    pub(crate) fn lock(self) -> io::Result<()> {
        // SAFETY: as for advise().
        checked(unsafe { libc::mlock(self.start as *const _, self.len) })?;
        Ok(())
    }

    /// munlock().
    pub(crate) fn unlock(self) -> io::Result<()> {
        // SAFETY: as for advise().
        checked(unsafe { libc::munlock(self.start as *const _, self.len) })?;
        Ok(())
    }

    /// munmap(); nothing is mapped in the place of the pages.
    pub(crate) fn unmap(self) -> io::Result<()> {
        // SAFETY: as for advise(); the callers do not access the pages any more.
        checked(unsafe { libc::munmap(self.start as *mut _, self.len) })?;
        Ok(())
    }

    /// Maps new pages in the place of these pages.
    pub(crate) fn replace(self) -> io::Result<()> {
        Pages::map(self.start, self.len, ACCESS, libc::MAP_FIXED)?;
        Ok(())
    }

    /// mremap() to the place of `to`. New pages appear in the place of these pages.
    pub(crate) fn move_to(self, to: Pages) -> io::Result<()> {
        assert!(self.len == to.len, "another length");
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        // SAFETY: both ranges belong to such values, and there are no references to them.
        let at = unsafe {
            libc::mremap(
                self.start as *mut _,
                self.len,
                to.len,
                flags,
                to.start as *mut libc::c_void,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// vmsplice() of the first bytes to a pipe.
    pub(crate) fn give_to_pipe(self, pipe: RawFd, len: usize) -> io::Result<usize> {
        let vec = libc::iovec {
            iov_base: self.start as *mut _,
            iov_len: len.min(self.len),
        };
        // SAFETY: the kernel refers to pages of this value, to which there are no references.
        checked_size(unsafe { libc::vmsplice(pipe, &raw const vec, 1, 0) })
    }

    /// read() from a descriptor into the first bytes.
    pub(crate) fn take_from(self, fd: RawFd, len: usize) -> io::Result<usize> {
        // SAFETY: the range belongs to this value, and there are no references to it; the kernel
        // checks whether the range may be written to.
        checked_size(unsafe { libc::read(fd, self.start as *mut _, len.min(self.len)) })
    }

    /// The entry of /proc/self/pagemap for the page of byte `offset`.
    fn entry(self, offset: usize) -> io::Result<u64> {
        let mut bytes = [0; 8];
        let at = self.at(offset) / PAGE * bytes.len();
        File::open("/proc/self/pagemap")?.read_exact_at(&mut bytes, at as u64)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Whether the page table maps the page of byte `offset`.
    pub(crate) fn is_mapped(self, offset: usize) -> io::Result<bool> {
        Ok(self.entry(offset)? >> 63 == 1)
    }

    /// The number of the physical page; 0 if this process may not know it.
    pub(crate) fn frame(self, offset: usize) -> io::Result<u64> {
        Ok(self.entry(offset)? & ((1 << 55) - 1))
    }

    /// Whether the page of byte `offset` is part of a huge page. Only root may know this.
    pub(crate) fn is_huge(self, offset: usize) -> io::Result<bool> {
        const KPF_THP: u64 = 1 << 22;
        Ok(self.flags(offset)? & KPF_THP != 0)
    }

    /// The flags of the physical page in /proc/kpageflags.
    pub(crate) fn flags(self, offset: usize) -> io::Result<u64> {
        let mut bytes = [0; 8];
        let at = self.frame(offset)? * bytes.len() as u64;
        File::open("/proc/kpageflags")?.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// Maps a few pages and unmaps them again, which takes the lock of the
/// address space for writing.
pub(crate) fn map_and_unmap() -> io::Result<()> {
    Pages::map(0, 4 * PAGE, libc::PROT_NONE, 0)?.unmap()
}

/// Replaces this process by a program that ends at once.
pub(crate) fn become_another_program() -> io::Error {
    let argv = [c"true".as_ptr(), std::ptr::null()];
    // SAFETY: both are C strings, and the list ends with a null pointer.
    unsafe { libc::execv(c"/bin/true".as_ptr(), argv.as_ptr()) };
    io::Error::last_os_error()
}
