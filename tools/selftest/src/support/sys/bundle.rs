// SPDX-License-Identifier: GPL-2.0
//! Receives by io_uring into a ring of buffers. One completion may fill several buffers.

use super::Pages;
use io_uring::{cqueue, opcode, types, IoUring};
use std::io;
use std::mem::size_of;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU16, Ordering};

/// The number of the only group of buffers.
const GROUP: u16 = 0;

/// An io_uring that receives into buffers of `len` bytes.
pub(crate) struct Bundles {
    ring: IoUring,
    pages: Pages,
    len: usize,
}

impl Bundles {
    /// Creates a ring with `count` buffers, which must be a power of two. Returns `None` if the
    /// kernel has no io_uring, or does not allow it for this process.
    pub(crate) fn new(count: u16, len: usize) -> io::Result<Option<Bundles>> {
        let ring = match IoUring::new(8) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                return Ok(None)
            }
            ring => ring?,
        };
        let pages = Pages::new(usize::from(count) * len, false)?;
        let list = Pages::new(usize::from(count) * size_of::<types::BufRingEntry>(), false)?;
        let first = list.at(0) as *mut types::BufRingEntry;
        // SAFETY: the list has room for `count` entries, starts at the start of a page, and is
        // never unmapped. Nothing else uses it until the kernel is told of it. The tail lies in the
        // list, too.
        unsafe {
            for id in 0..count {
                let entry = &mut *first.add(usize::from(id));
                entry.set_addr(pages.at(usize::from(id) * len) as u64);
                entry.set_len(len as u32);
                entry.set_bid(id);
            }
            let submitter = ring.submitter();
            submitter.register_buf_ring_with_flags(first as u64, count, GROUP, 0)?;
            let tail = types::BufRingEntry::tail(first).cast_mut();
            AtomicU16::from_ptr(tail).store(count, Ordering::Release);
        }
        Ok(Some(Bundles { ring, pages, len }))
    }

    /// Receives by one request until `total` bytes have arrived; returns the bytes of each
    /// completion.
    ///
    /// # Errors
    ///
    /// The request ended earlier, because the stream ended or all buffers were used.
    pub(crate) fn receive(&mut self, fd: RawFd, total: usize) -> io::Result<Vec<Vec<u8>>> {
        let request = opcode::RecvMultiBundle::new(types::Fd(fd), GROUP).build();
        // SAFETY: the buffers are never unmapped, and there are no references to them.
        unsafe {
            let pushed = self.ring.submission().push(&request);
            pushed.map_err(io::Error::other)?;
        }
        let (mut came, mut bytes) = (Vec::new(), 0);
        while bytes < total {
            self.ring.submit_and_wait(1)?;
            while let Some(entry) = self.ring.completion().next().filter(|_| bytes < total) {
                let got = usize::try_from(entry.result())
                    .map_err(|_| io::Error::from_raw_os_error(-entry.result()))?;
                let Some(id) = cqueue::buffer_select(entry.flags()).filter(|_| got > 0) else {
                    return Err(io::Error::other(format!("the end after {bytes} bytes")));
                };
                bytes += got;
                came.push(self.pages.read(usize::from(id) * self.len, got));
                if bytes < total && !cqueue::more(entry.flags()) {
                    return Err(io::Error::other(format!("no more after {bytes} bytes")));
                }
            }
        }
        Ok(came)
    }
}
