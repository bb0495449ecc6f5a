// SPDX-License-Identifier: GPL-2.0
//! Calls with pointers that need not be good ones.

use super::{checked, checked_size, Sock, SockAddr};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A pointer and a length as the kernel gets them, both unchecked.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawVec {
    pub(crate) base: usize,
    pub(crate) len: usize,
}

/// Any system call, with arguments as they come.
///
/// # Safety
///
/// What the call may write to, map or unmap must be memory to which there are no references, such as
/// [`super::Pages`], and the descriptors that it may close must be nobody else's.
pub(crate) unsafe fn system_call(number: libc::c_long, args: [usize; 6]) -> io::Result<usize> {
    let [a, b, c, d, e, f] = args;
    // SAFETY: by the caller's promise.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

impl Sock {
    /// bind() with an address that need not be readable.
    pub(crate) fn bind_raw(&self, addr: usize, len: u32) -> io::Result<()> {
        // SAFETY: bind() only reads; the kernel checks the range.
        checked(unsafe { libc::bind(self.as_raw_fd(), addr as *const _, len) })?;
        Ok(())
    }

    /// connect() with an address that need not be readable.
    pub(crate) fn connect_raw(&self, addr: usize, len: i32) -> io::Result<()> {
        let len = len as libc::socklen_t;
        // SAFETY: as for bind_raw().
        checked(unsafe { libc::connect(self.as_raw_fd(), addr as *const _, len) })?;
        Ok(())
    }

    /// sendto() from and with addresses that need not be readable.
    pub(crate) fn sendto_raw(
        &self,
        from: (usize, usize),
        flags: i32,
        addr: (usize, i32),
    ) -> io::Result<usize> {
        // SAFETY: as for send_raw(), of both.
        checked_size(unsafe {
            libc::sendto(
                self.as_raw_fd(),
                from.0 as *const _,
                from.1,
                flags,
                addr.0 as *const _,
                addr.1 as libc::socklen_t,
            )
        })
    }

    /// sendto() from an address that need not be readable, to a good one.
    pub(crate) fn sendto_at(
        &self,
        from: usize,
        len: usize,
        to: &SockAddr,
        flags: i32,
    ) -> io::Result<usize> {
        let addr = (to.as_ptr() as usize, to.len() as i32);
        self.sendto_raw((from, len), flags | libc::MSG_NOSIGNAL, addr)
    }

    /// send() from an address that need not be readable.
    pub(crate) fn send_raw(&self, addr: usize, len: usize, flags: i32) -> io::Result<usize> {
        // SAFETY: send() only reads; the kernel checks the range and returns
        // EFAULT for what is not mapped.
        checked_size(unsafe { libc::send(self.as_raw_fd(), addr as *const _, len, flags) })
    }

    /// recv() to an address that need not be writable.
    ///
    /// # Safety
    ///
    /// What is writable in the range must be memory that nothing else uses
    /// (an [`Area`], or nothing at all).
    pub(crate) unsafe fn recv_raw(&self, addr: usize, len: usize, flags: i32) -> io::Result<usize> {
        // SAFETY: by the caller's promise.
        checked_size(unsafe { libc::recv(self.as_raw_fd(), addr as *mut _, len, flags) })
    }

    /// sendmsg() with a vector of unchecked ranges and a count of its own.
    pub(crate) fn sendmsg_raw(&self, vec: usize, count: usize, flags: i32) -> io::Result<usize> {
        let mut msg = super::sock::empty_msghdr();
        msg.msg_iov = vec as *mut _;
        msg.msg_iovlen = count;
        // SAFETY: sendmsg() only reads; the kernel checks every range.
        checked_size(unsafe { libc::sendmsg(self.as_raw_fd(), &msg, flags) })
    }

    /// recvmsg() with a vector of unchecked ranges and a count of its own.
    ///
    /// # Safety
    ///
    /// As for [`Sock::recv_raw`], for every range of the vector.
    pub(crate) unsafe fn recvmsg_raw(
        &self,
        vec: usize,
        count: usize,
        flags: i32,
    ) -> io::Result<usize> {
        let mut msg = super::sock::empty_msghdr();
        msg.msg_iov = vec as *mut _;
        msg.msg_iovlen = count;
        // SAFETY: by the caller's promise.
        checked_size(unsafe { libc::recvmsg(self.as_raw_fd(), &mut msg, flags) })
    }

    /// sendmsg() or recvmsg() with a message header that is not there.
    pub(crate) fn msghdr_nowhere(&self, receive: bool, addr: usize) -> io::Result<usize> {
        let fd = self.as_raw_fd();
        // SAFETY: the callers pass addresses of no mapping (or of one without
        // access), which the kernel refuses before it does anything.
        checked_size(unsafe {
            if receive {
                libc::recvmsg(fd, addr as *mut _, 0)
            } else {
                libc::sendmsg(fd, addr as *const _, 0)
            }
        })
    }

    /// accept() with an address to fill in that need not be writable.
    pub(crate) fn accept_raw(&self, addr: usize, len: i32) -> io::Result<Sock> {
        let mut len = len;
        // SAFETY: the kernel checks the range; what it may write of an
        // address goes to an area of the test's own.
        let fd = checked(unsafe {
            libc::accept(
                self.as_raw_fd(),
                addr as *mut _,
                (&raw mut len).cast::<libc::socklen_t>(),
            )
        })?;
        // SAFETY: the kernel has just returned this descriptor to us alone.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
    }

    /// getsockname() or getpeername() to where need not be writable; the
    /// length that the kernel gave.
    pub(crate) fn name_raw(&self, peer: bool, addr: usize, len: i32) -> io::Result<i32> {
        let mut len = len;
        let fd = self.as_raw_fd();
        let len_ptr = (&raw mut len).cast::<libc::socklen_t>();
        // SAFETY: as for accept_raw().
        checked(unsafe {
            if peer {
                libc::getpeername(fd, addr as *mut _, len_ptr)
            } else {
                libc::getsockname(fd, addr as *mut _, len_ptr)
            }
        })?;
        Ok(len)
    }

    /// setsockopt() from where need not be readable.
    pub(crate) fn set_raw(&self, level: i32, option: i32, addr: usize, len: i32) -> io::Result<()> {
        // SAFETY: setsockopt() only reads; the kernel checks the range.
        checked(unsafe {
            libc::setsockopt(
                self.as_raw_fd(),
                level,
                option,
                addr as *const _,
                len as libc::socklen_t,
            )
        })?;
        Ok(())
    }

    /// getsockopt() to where need not be writable.
    pub(crate) fn get_raw(&self, level: i32, option: i32, addr: usize, len: i32) -> io::Result<()> {
        let mut len = len;
        let len_ptr = (&raw mut len).cast::<libc::socklen_t>();
        // SAFETY: as for accept_raw().
        checked(unsafe {
            libc::getsockopt(self.as_raw_fd(), level, option, addr as *mut _, len_ptr)
        })?;
        Ok(())
    }

    /// getsockopt() where neither the value nor its length need be readable or writable.
    pub(crate) fn get_raw_at(
        &self,
        level: i32,
        option: i32,
        addr: usize,
        len_at: usize,
    ) -> io::Result<()> {
        let fd = self.as_raw_fd();
        // SAFETY: as for accept_raw(), of both.
        checked(unsafe { libc::getsockopt(fd, level, option, addr as *mut _, len_at as *mut _) })?;
        Ok(())
    }

    /// An ioctl with any number and any argument.
    pub(crate) fn ioctl_raw(&self, request: u64, addr: usize) -> io::Result<i32> {
        // SAFETY: the kernel checks the argument; what it may write goes to
        // an area of the test's own.
        checked(unsafe { libc::ioctl(self.as_raw_fd(), request as _, addr) })
    }
}
