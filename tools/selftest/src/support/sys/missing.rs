// SPDX-License-Identifier: GPL-2.0
//! Memory that is registered with userfaultfd. A thread that touches a missing page sleeps until
//! the test supplies the page. Memory can also be registered in another mode.

use super::{checked, Area, PAGE};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const UFFD_API: u64 = 0xaa;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_COPY: u64 = 0xc028_aa03;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;
/// Since Linux 7.3, pages can be protected against reads, too.
const UFFDIO_REGISTER_MODE_RWP: u64 = 1 << 3;
const UFFD_FEATURE_RWP: u64 = 1 << 17;
/// The number of bytes of a `struct uffd_msg`.
const EVENT: usize = 32;

/// Private pages, the last of which are missing.
pub(crate) struct MissingPages {
    area: Area,
    user_faults: OwnedFd,
}

impl MissingPages {
    /// A memory of `pages` pages, which are missing from number `first` on.
    pub(crate) fn new(pages: usize, first: usize) -> io::Result<MissingPages> {
        Self::registered(pages, first, UFFDIO_REGISTER_MODE_MISSING, 0)
    }

    /// A memory of `pages` pages that could be protected against reads and writes, but are not
    /// protected; `None` if the kernel has no such mode.
    pub(crate) fn unprotected(pages: usize) -> io::Result<Option<MissingPages>> {
        match Self::registered(pages, 0, UFFDIO_REGISTER_MODE_RWP, UFFD_FEATURE_RWP) {
            Ok(this) => Ok(Some(this)),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn registered(pages: usize, first: usize, mode: u64, features: u64) -> io::Result<Self> {
        let area = Area::new(pages)?;
        // SAFETY: a system call that returns a new descriptor.
        let user_faults = unsafe {
            let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
            OwnedFd::from_raw_fd(checked(fd as libc::c_int)?)
        };
        let this = MissingPages { area, user_faults };
        this.control(UFFDIO_API, &mut [UFFD_API, features, 0])?;
        let start = this.area.at(first * PAGE) as u64;
        let len = ((pages - first) * PAGE) as u64;
        this.control(UFFDIO_REGISTER, &mut [start, len, mode, 0])?;
        Ok(this)
    }

    fn control(&self, request: u64, argument: &mut [u64]) -> io::Result<()> {
        // SAFETY: `argument` has as many integers as the structure of the request.
        checked(unsafe {
            libc::ioctl(
                self.user_faults.as_raw_fd(),
                request as libc::Ioctl,
                argument.as_mut_ptr(),
            )
        })?;
        Ok(())
    }

    /// The address of byte `offset`.
    pub(crate) fn at(&self, offset: usize) -> usize {
        self.area.at(offset)
    }

    /// The first `len` bytes, whose pages must not be missing.
    pub(crate) fn bytes(&mut self, len: usize) -> &mut [u8] {
        self.area.bytes(len)
    }

    /// Waits until a thread sleeps for a missing page.
    pub(crate) fn await_touch(&self) -> io::Result<()> {
        let mut event = [0; EVENT];
        let n = super::read(self.user_faults.as_raw_fd(), &mut event)?;
        if n == EVENT {
            Ok(())
        } else {
            Err(io::Error::other("half an event of userfaultfd"))
        }
    }

    /// Supplies page `number` with this content, which wakes the threads that sleep for the page.
    pub(crate) fn bring(&self, number: usize, content: &[u8; PAGE]) -> io::Result<()> {
        let to = self.area.at(number * PAGE) as u64;
        let from = content.as_ptr() as u64;
        self.control(UFFDIO_COPY, &mut [to, from, PAGE as u64, 0, 0])
    }
}
