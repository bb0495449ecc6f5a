// SPDX-License-Identifier: GPL-2.0
//! Memory of a victim whose pages are missing (userfaultfd).

use crate::fail::{Fail, Result};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const UFFD_API: u64 = 0xaa;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;

/// Private pages, all of them missing until the value is dropped.
pub(crate) struct Missing {
    base: usize,
    len: usize,
    faults: Option<OwnedFd>,
}

impl Missing {
    pub(crate) fn new(len: usize) -> Result<Missing> {
        // SAFETY: a new mapping, and system calls with valid arguments.
        unsafe {
            let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let base = libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0);
            if fd < 0 || base == libc::MAP_FAILED {
                return Err(Fail::new(format!("{}", io::Error::last_os_error())));
            }
            let faults = OwnedFd::from_raw_fd(fd as i32);
            let mut api = [UFFD_API, 0, 0];
            let mut range = [base as u64, len as u64, UFFDIO_REGISTER_MODE_MISSING, 0];
            let raw = faults.as_raw_fd();
            if libc::ioctl(raw, UFFDIO_API as libc::Ioctl, api.as_mut_ptr()) < 0
                || libc::ioctl(raw, UFFDIO_REGISTER as libc::Ioctl, range.as_mut_ptr()) < 0
            {
                return Err(Fail::new(format!("{}", io::Error::last_os_error())));
            }
            Ok(Missing {
                base: base as usize,
                len,
                faults: Some(faults),
            })
        }
    }

    pub(crate) fn addr(&self) -> usize {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Ends the registration, so that missing pages become pages of zeros.
    pub(crate) fn come(&mut self) {
        self.faults = None;
    }
}
