// SPDX-License-Identifier: GPL-2.0
//! A block device for the tests.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
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

    pub(in crate::tests) fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or(io::ErrorKind::NotFound.into())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.file = None;
        let _ = fs::write(format!("{}/hot_remove", Self::CONTROL), &self.number);
    }
}
