// SPDX-License-Identifier: GPL-2.0
//! Calls with pointers that need not be valid.

use super::{checked, checked_size, Sock, SockAddr};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A pointer and a length as the kernel receives them, both unchecked.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawVec {
    pub(crate) base: usize,
    pub(crate) len: usize,
}

/// Any system call, with unchecked arguments.
///
/// # Safety
///
/// Memory that the call may write to, map, or unmap must have no references, such as that of
/// [`super::Pages`]. Descriptors that the call may close must have no other owner.
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

    /// sendto() from an address, and to a socket address, that need not be readable.
    pub(crate) fn sendto_raw(
        &self,
        from: (usize, usize),
        flags: i32,
        addr: (usize, i32),
    ) -> io::Result<usize> {
        // SAFETY: as for send_raw(), for both addresses.
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

    /// sendto() from an address that need not be readable, to a valid socket address.
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
        // SAFETY: send() only reads; the kernel checks the range and returns EFAULT for memory that
        // is not mapped.
        checked_size(unsafe { libc::send(self.as_raw_fd(), addr as *const _, len, flags) })
    }

    /// recv() to an address that need not be writable.
    ///
    /// # Safety
    ///
    /// Writable memory in the range must be memory that nothing else uses (an [`Area`]), or there
    /// must be none.
    pub(crate) unsafe fn recv_raw(&self, addr: usize, len: usize, flags: i32) -> io::Result<usize> {
        // SAFETY: by the caller's promise.
        checked_size(unsafe { libc::recv(self.as_raw_fd(), addr as *mut _, len, flags) })
    }

    /// sendmsg() with a vector of unchecked ranges, and an unchecked number of ranges.
    pub(crate) fn sendmsg_raw(&self, vec: usize, count: usize, flags: i32) -> io::Result<usize> {
        let mut msg = super::sock::empty_msghdr();
        msg.msg_iov = vec as *mut _;
        msg.msg_iovlen = count;
        // SAFETY: sendmsg() only reads; the kernel checks every range.
        checked_size(unsafe { libc::sendmsg(self.as_raw_fd(), &msg, flags) })
    }

    /// recvmsg() with a vector of unchecked ranges, and an unchecked number of ranges.
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

    /// sendmsg() or recvmsg() with a message header that is not in accessible memory.
    pub(crate) fn msghdr_nowhere(&self, receive: bool, addr: usize) -> io::Result<usize> {
        let fd = self.as_raw_fd();
        // SAFETY: the callers pass addresses that are not mapped, or have no access. The kernel
        // refuses these before it does anything.
        checked_size(unsafe {
            if receive {
                libc::recvmsg(fd, addr as *mut _, 0)
            } else {
                libc::sendmsg(fd, addr as *const _, 0)
            }
        })
    }

    /// accept() with a place for the address that need not be writable.
    pub(crate) fn accept_raw(&self, addr: usize, len: i32) -> io::Result<Sock> {
        let mut len = len;
        // SAFETY: the kernel checks the range; if it writes an address, it does so to an area that
        // belongs to the test.
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

    /// getsockname() or getpeername() with a place for the name that need not be writable; returns
    /// the length that the kernel stored.
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

    /// setsockopt() with a value that need not be readable.
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

    /// getsockopt() with a place for the value that need not be writable.
    pub(crate) fn get_raw(&self, level: i32, option: i32, addr: usize, len: i32) -> io::Result<()> {
        let mut len = len;
        let len_ptr = (&raw mut len).cast::<libc::socklen_t>();
        // SAFETY: as for accept_raw().
        checked(unsafe {
            libc::getsockopt(self.as_raw_fd(), level, option, addr as *mut _, len_ptr)
        })?;
        Ok(())
    }

    /// getsockopt() with places for the value and its length that need be neither readable nor
    /// writable.
    pub(crate) fn get_raw_at(
        &self,
        level: i32,
        option: i32,
        addr: usize,
        len_at: usize,
    ) -> io::Result<()> {
        let fd = self.as_raw_fd();
        // SAFETY: as for accept_raw(), for both places.
        checked(unsafe { libc::getsockopt(fd, level, option, addr as *mut _, len_at as *mut _) })?;
        Ok(())
    }

    /// An ioctl with any number and any argument.
    pub(crate) fn ioctl_raw(&self, request: u64, addr: usize) -> io::Result<i32> {
        // SAFETY: the kernel checks the argument; if it writes, it does so to an area that belongs
        // to the test.
        checked(unsafe { libc::ioctl(self.as_raw_fd(), request as _, addr) })
    }
}
