// SPDX-License-Identifier: GPL-2.0
//! A block device for the tests.

use crate::support::sys::{self, PAGE};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::Command;

/// A block device in memory (zram), which can do direct I/O.
pub(in crate::tests) struct Disk {
    number: String,
    file: Option<File>,
}

impl Disk {
    const CONTROL: &'static str = "/sys/class/zram-control";

    /// `None` if the kernel has no zram, or if this process may not create a device.
    pub(in crate::tests) fn new() -> io::Result<Option<Disk>> {
        // The module may be built in, or loaded already, so an error does not matter.
        let _ = Command::new("modprobe").args(["-q", "zram"]).status();
        let Ok(number) = fs::read_to_string(format!("{}/hot_add", Self::CONTROL)) else {
            return Ok(None);
        };
        let mut disk = Disk {
            number: number.trim().to_owned(),
            file: None,
        };
        fs::write(format!("/sys/block/zram{}/disksize", disk.number), "8M")?;
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options.custom_flags(libc::O_DIRECT);
        disk.file = Some(options.open(format!("/dev/zram{}", disk.number))?);
        Ok(Some(disk))
    }

    /// Makes the device swap space, until the value is dropped.
    pub(in crate::tests) fn swap(&self) -> io::Result<Swap<'_>> {
        let path = format!("/dev/zram{}", self.number);
        let bytes = fs::read_to_string(format!("/sys/block/zram{}/disksize", self.number))?;
        let bytes: usize = bytes.trim().parse().map_err(io::Error::other)?;
        let last_page = (bytes / PAGE - 1) as u32;
        // The header of swap space (the kernel's `union swap_header`): version, last page.
        let mut header = [0; PAGE];
        header[1024..1028].copy_from_slice(&1u32.to_ne_bytes());
        header[1028..1032].copy_from_slice(&last_page.to_ne_bytes());
        header[PAGE - 10..].copy_from_slice(b"SWAPSPACE2");
        let file = OpenOptions::new().write(true).open(&path)?;
        file.write_all_at(&header, 0)?;
        file.sync_all()?;
        let path = CString::new(path)?;
        // SAFETY: the path is a C string.
        sys::checked(unsafe { libc::swapon(path.as_ptr(), 0) })?;
        Ok(Swap {
            path,
            _disk: PhantomData,
        })
    }

    pub(in crate::tests) fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or(io::ErrorKind::NotFound.into())
    }
}

/// Swap space on a disk.
pub(in crate::tests) struct Swap<'a> {
    path: CString,
    _disk: PhantomData<&'a Disk>,
}

impl Drop for Swap<'_> {
    fn drop(&mut self) {
        // SAFETY: the path is a C string.
        unsafe { libc::swapoff(self.path.as_ptr()) };
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.file = None;
        let _ = fs::write(format!("{}/hot_remove", Self::CONTROL), &self.number);
    }
}
