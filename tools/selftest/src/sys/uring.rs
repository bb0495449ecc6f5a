// SPDX-License-Identifier: GPL-2.0
//! io_uring with a registered buffer.

use super::Pages;
use io_uring::{opcode, types, IoUring};
use std::io;
use std::os::fd::RawFd;

/// A ring that has some memory registered, and so pinned.
pub(crate) struct Registered {
    ring: IoUring,
    pages: Pages,
}

impl Registered {
    pub(crate) fn new(pages: Pages) -> io::Result<Registered> {
        let ring = IoUring::new(4)?;
        let vec = libc::iovec {
            iov_base: pages.at(0) as *mut _,
            iov_len: pages.len(),
        };
        // SAFETY: the memory is never unmapped, and there are no references to it.
        unsafe { ring.submitter().register_buffers(&[vec])? };
        Ok(Registered { ring, pages })
    }

    /// Writes a part of the memory to a file, as the kernel sees it: without the page table.
    pub(crate) fn write(&mut self, fd: RawFd, from: usize, len: usize) -> io::Result<usize> {
        let at = self.pages.part(from, len).at(0) as *const u8;
        let write = opcode::WriteFixed::new(types::Fd(fd), at, len as u32, 0).build();
        // SAFETY: the memory is registered as buffer 0, and stays; we wait for the end.
        unsafe {
            let pushed = self.ring.submission().push(&write);
            pushed.map_err(io::Error::other)?;
        }
        self.ring.submit_and_wait(1)?;
        let entry = self.ring.completion().next();
        let result = entry.ok_or(io::ErrorKind::UnexpectedEof)?.result();
        usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
    }
}
