// SPDX-License-Identifier: GPL-2.0
//! io_uring with registered or plain memory, and for messages with an address.

use super::sock::empty_msghdr;
use super::{Pages, SockAddr};
use io_uring::{opcode, squeue, types, IoUring};
use std::io;
use std::os::fd::RawFd;

/// An io_uring with registered memory, which the kernel has pinned.
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

    /// Ends the registration. Without this call, the kernel ends it some time after the ring is
    /// closed.
    pub(crate) fn end(self) -> io::Result<()> {
        self.ring.submitter().unregister_buffers()
    }

    /// Writes a part of the memory to a file. The kernel reads the registered pages, not those of
    /// the page table.
    pub(crate) fn write(&mut self, fd: RawFd, from: usize, len: usize) -> io::Result<usize> {
        let at = self.pages.part(from, len).at(0) as *const u8;
        self.complete(&opcode::WriteFixed::new(types::Fd(fd), at, len as u32, 0).build())
    }

    /// Reads the start of a file into a part of the memory. The kernel writes to the registered
    /// pages, not to those of the page table.
    pub(crate) fn read(&mut self, fd: RawFd, to: usize, len: usize) -> io::Result<usize> {
        let at = self.pages.part(to, len).at(0) as *mut u8;
        self.complete(&opcode::ReadFixed::new(types::Fd(fd), at, len as u32, 0).build())
    }

    /// Submits a request for the registered memory and waits for its end.
    fn complete(&mut self, request: &squeue::Entry) -> io::Result<usize> {
        // SAFETY: the memory is registered as buffer 0 and is never unmapped, and the call waits
        // for the end of the request.
        unsafe {
            let pushed = self.ring.submission().push(request);
            pushed.map_err(io::Error::other)?;
        }
        completed(&mut self.ring)
    }
}

/// Submits the pending request and waits for its completion.
fn completed(ring: &mut IoUring) -> io::Result<usize> {
    ring.submit_and_wait(1)?;
    let entry = ring.completion().next();
    let result = entry.ok_or(io::ErrorKind::UnexpectedEof)?.result();
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

/// sendmsg() by io_uring, with an address.
pub(crate) fn uring_sendmsg_to(
    fd: RawFd,
    buf: &[u8],
    addr: &SockAddr,
    flags: i32,
) -> io::Result<usize> {
    let mut ring = IoUring::new(1)?;
    let mut vec = libc::iovec {
        iov_base: buf.as_ptr().cast_mut().cast(),
        iov_len: buf.len(),
    };
    let mut msg = empty_msghdr();
    msg.msg_name = addr.as_ptr().cast_mut().cast();
    msg.msg_namelen = addr.len() as u32;
    msg.msg_iov = &raw mut vec;
    msg.msg_iovlen = 1;
    let send = opcode::SendMsg::new(types::Fd(fd), &raw const msg)
        .flags(flags as u32)
        .build();
    // SAFETY: a send only reads, and the memory to which the message points lives until the send
    // has ended, for which the call waits.
    unsafe {
        let pushed = ring.submission().push(&send);
        pushed.map_err(io::Error::other)?;
    }
    completed(&mut ring)
}

/// recv() by io_uring.
pub(crate) fn uring_recv(fd: RawFd, buf: &mut [u8], flags: i32) -> io::Result<usize> {
    let mut ring = IoUring::new(1)?;
    let receive = opcode::Recv::new(types::Fd(fd), buf.as_mut_ptr(), buf.len() as u32)
        .flags(flags)
        .build();
    // SAFETY: the buffer lives until the receive has ended, for which the call waits.
    unsafe {
        let pushed = ring.submission().push(&receive);
        pushed.map_err(io::Error::other)?;
    }
    completed(&mut ring)
}

/// The flag of a request whose memory is registered.
const RECVSEND_FIXED_BUF: u16 = 1 << 2;
/// The flag of a request that asks whether the bytes were copied, and below it the flag of the
/// answer.
const SEND_ZC_REPORT_USAGE: u16 = 1 << 3;
const NOTIF_USAGE_ZC_COPIED: u32 = 1 << 31;

/// An io_uring that sends parts of a memory without a copy.
pub(crate) struct SendZc {
    ring: IoUring,
    pages: Pages,
    registered: bool,
}

impl SendZc {
    /// Creates a ring, and registers the memory if `registered` is set. Returns `None` if the
    /// kernel has no io_uring, or does not allow it for this process.
    pub(crate) fn new(pages: Pages, registered: bool) -> io::Result<Option<SendZc>> {
        let ring = match IoUring::new(4) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                return Ok(None)
            }
            ring => ring?,
        };
        if registered {
            let vec = libc::iovec {
                iov_base: pages.at(0) as *mut _,
                iov_len: pages.len(),
            };
            // SAFETY: the memory is never unmapped, and there are no references to it.
            unsafe { ring.submitter().register_buffers(&[vec])? };
        }
        Ok(Some(SendZc {
            ring,
            pages,
            registered,
        }))
    }

    /// Sends a part of the memory; returns the number of bytes sent.
    pub(crate) fn send(&mut self, fd: RawFd, from: usize, len: usize) -> io::Result<usize> {
        let at = self.pages.part(from, len).at(0) as *const u8;
        let fixed = match self.registered {
            true => RECVSEND_FIXED_BUF,
            false => 0,
        };
        let send = opcode::SendZc::new(types::Fd(fd), at, len as u32)
            .flags(libc::MSG_WAITALL)
            .zc_flags(SEND_ZC_REPORT_USAGE | fixed)
            .buf_index(self.registered.then_some(0))
            .build();
        // SAFETY: a send only reads the memory, which is never unmapped.
        unsafe {
            let pushed = self.ring.submission().push(&send);
            pushed.map_err(io::Error::other)?;
        }
        completed(&mut self.ring)
    }

    /// Sends several parts of the memory, each of them an offset and a length, as one message.
    pub(crate) fn send_message(
        &mut self,
        fd: RawFd,
        parts: &[(usize, usize)],
    ) -> io::Result<usize> {
        let part = |&(from, len): &(usize, usize)| libc::iovec {
            iov_base: self.pages.part(from, len).at(0) as *mut _,
            iov_len: len,
        };
        let mut vecs: Vec<_> = parts.iter().map(part).collect();
        let mut msg = empty_msghdr();
        msg.msg_iov = vecs.as_mut_ptr();
        msg.msg_iovlen = vecs.len();
        let send = opcode::SendMsgZc::new(types::Fd(fd), &raw const msg)
            .flags(libc::MSG_WAITALL as u32)
            .ioprio(SEND_ZC_REPORT_USAGE)
            .buf_index(self.registered.then_some(0))
            .build();
        // SAFETY: a send only reads the memory, which is never unmapped. The message and its list
        // live until the send has ended, for which the call waits.
        unsafe {
            let pushed = self.ring.submission().push(&send);
            pushed.map_err(io::Error::other)?;
        }
        completed(&mut self.ring)
    }

    /// Ends the registration of the memory.
    pub(crate) fn unregister(&mut self) -> io::Result<()> {
        self.ring.submitter().unregister_buffers()
    }

    /// Sends the first bytes of the registered memory by a request that has no notification.
    pub(crate) fn send_plain(&mut self, fd: RawFd, len: usize, flags: i32) -> io::Result<usize> {
        let at = self.pages.part(0, len).at(0) as *const u8;
        let mut send = opcode::Send::new(types::Fd(fd), at, len as u32)
            .flags(flags | libc::MSG_WAITALL)
            .build();
        // SAFETY: the entry is a struct io_uring_sqe, in which `ioprio` is at byte 2, and the index
        // of a buffer, here 0, at byte 40. It is written to directly because the library knows no
        // flags of this request. A send only reads the memory, which stays until the send has
        // ended, for which the call waits.
        unsafe {
            let sqe = (&raw mut send).cast::<u8>();
            sqe.add(2).cast::<u16>().write(RECVSEND_FIXED_BUF);
            let pushed = self.ring.submission().push(&send);
            pushed.map_err(io::Error::other)?;
        }
        completed(&mut self.ring)
    }

    /// Waits for the notification of the last send; returns whether the bytes were copied.
    pub(crate) fn told(&mut self) -> io::Result<bool> {
        self.ring.submit_and_wait(1)?;
        let entry = self.ring.completion().next();
        let entry = entry.ok_or(io::ErrorKind::UnexpectedEof)?;
        if !io_uring::cqueue::notif(entry.flags()) {
            return Err(io::Error::other(format!("no notification: {entry:?}")));
        }
        Ok(entry.result() as u32 & NOTIF_USAGE_ZC_COPIED != 0)
    }
}
