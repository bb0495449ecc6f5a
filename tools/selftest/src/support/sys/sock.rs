// SPDX-License-Identifier: GPL-2.0
//! A socket and the calls on it.

use super::{checked, checked_size, SockAddr};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

// fcntl() (asm-generic/fcntl.h), which the crate libc lacks on this platform.
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;

/// An open socket, closed on drop.
#[derive(Debug)]
pub(crate) struct Sock(OwnedFd);

/// The offset of `tcpi_unacked` in `struct tcp_info` (include/uapi/linux/tcp.h). For a listener,
/// this is the number of connections that wait for accept().
pub(crate) const TCPI_UNACKED: usize = 24;
/// The offset of `tcpi_snd_cwnd`.
pub(crate) const TCPI_SND_CWND: usize = 80;

/// The value of SO_LINGER. `secs` is the time for which close() waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Linger {
    pub(crate) on: bool,
    pub(crate) secs: i32,
}

impl From<OwnedFd> for Sock {
    fn from(fd: OwnedFd) -> Self {
        Sock(fd)
    }
}

impl From<Sock> for OwnedFd {
    fn from(sock: Sock) -> Self {
        sock.0
    }
}

impl AsRawFd for Sock {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Sock {
    /// A socket for a descriptor that another owner closes; `None` if the number is negative.
    pub(crate) fn borrowed(fd: RawFd) -> Option<ManuallyDrop<Sock>> {
        // SAFETY: the value is never dropped, so no descriptor is closed twice.
        (fd >= 0).then(|| ManuallyDrop::new(Sock(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    pub(crate) fn new(domain: i32, ty: i32, protocol: i32) -> io::Result<Sock> {
        // SAFETY: socket() takes plain numbers.
        let fd = checked(unsafe { libc::socket(domain, ty, protocol) })?;
        // SAFETY: the kernel has just returned this descriptor to us alone.
        Ok(Sock(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn bind(&self, addr: &SockAddr) -> io::Result<()> {
        // SAFETY: the address lives in `addr`; the kernel copies at most
        // sizeof(sockaddr_storage) bytes, which is what `addr` has.
        checked(unsafe { libc::bind(self.as_raw_fd(), addr.as_ptr(), addr.len() as u32) })?;
        Ok(())
    }

    pub(crate) fn connect(&self, addr: &SockAddr) -> io::Result<()> {
        // SAFETY: as for bind().
        checked(unsafe { libc::connect(self.as_raw_fd(), addr.as_ptr(), addr.len() as u32) })?;
        Ok(())
    }

    pub(crate) fn listen(&self, backlog: i32) -> io::Result<()> {
        // SAFETY: plain numbers.
        checked(unsafe { libc::listen(self.as_raw_fd(), backlog) })?;
        Ok(())
    }

    pub(crate) fn accept(&self) -> io::Result<(Sock, SockAddr)> {
        self.accept4(0)
    }

    pub(crate) fn accept4(&self, flags: i32) -> io::Result<(Sock, SockAddr)> {
        let mut addr = SockAddr::empty();
        let mut len = addr.len() as libc::socklen_t;
        // SAFETY: `addr` has room for `len` bytes.
        let fd = checked(unsafe {
            libc::accept4(self.as_raw_fd(), addr.as_mut_ptr(), &mut len, flags)
        })?;
        addr.set_len(len as usize);
        // SAFETY: the kernel has just returned this descriptor to us alone.
        Ok((Sock(unsafe { OwnedFd::from_raw_fd(fd) }), addr))
    }

    pub(crate) fn getsockname(&self) -> io::Result<SockAddr> {
        self.name(libc::getsockname)
    }

    pub(crate) fn getpeername(&self) -> io::Result<SockAddr> {
        self.name(libc::getpeername)
    }

    fn name(
        &self,
        call: unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32,
    ) -> io::Result<SockAddr> {
        let mut addr = SockAddr::empty();
        let mut len = addr.len() as libc::socklen_t;
        // SAFETY: `addr` has room for `len` bytes.
        checked(unsafe { call(self.as_raw_fd(), addr.as_mut_ptr(), &mut len) })?;
        addr.set_len(len as usize);
        Ok(addr)
    }

    /// One send() call.
    pub(crate) fn send(&self, buf: &[u8], flags: i32) -> io::Result<usize> {
        // SAFETY: `buf` is readable for its length.
        checked_size(unsafe { libc::send(self.as_raw_fd(), buf.as_ptr().cast(), buf.len(), flags) })
    }

    /// One recv() call.
    pub(crate) fn recv(&self, buf: &mut [u8], flags: i32) -> io::Result<usize> {
        // SAFETY: `buf` is writable for its length.
        checked_size(unsafe {
            libc::recv(self.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len(), flags)
        })
    }

    /// One sendto() call.
    pub(crate) fn sendto(&self, buf: &[u8], addr: &SockAddr, flags: i32) -> io::Result<usize> {
        // SAFETY: `buf` is readable for its length, `addr` for its own.
        checked_size(unsafe {
            libc::sendto(
                self.as_raw_fd(),
                buf.as_ptr().cast(),
                buf.len(),
                flags | libc::MSG_NOSIGNAL,
                addr.as_ptr(),
                addr.len() as u32,
            )
        })
    }

    /// One sendmsg() call with an address and control messages.
    pub(crate) fn sendmsg_to(
        &self,
        buf: &[u8],
        addr: &SockAddr,
        control: &[u64],
        flags: i32,
    ) -> io::Result<usize> {
        let mut bufs = [IoSlice::new(buf)];
        let mut msg = empty_msghdr();
        msg.msg_name = addr.as_ptr().cast_mut().cast();
        msg.msg_namelen = addr.len() as u32;
        msg.msg_iov = bufs.as_mut_ptr().cast();
        msg.msg_iovlen = bufs.len();
        msg.msg_control = control.as_ptr().cast_mut().cast();
        msg.msg_controllen = size_of_val(control);
        let flags = flags | libc::MSG_NOSIGNAL;
        // SAFETY: as in sendmsg(), which only reads the address and the control messages, too.
        checked_size(unsafe { libc::sendmsg(self.as_raw_fd(), &msg, flags) })
    }

    /// One sendmmsg() call with a message for each buffer. Returns the number of bytes that were
    /// sent of each.
    pub(crate) fn sendmmsg(&self, bufs: &[&[u8]]) -> io::Result<Vec<u32>> {
        let vecs: Vec<IoSlice<'_>> = bufs.iter().map(|b| IoSlice::new(b)).collect();
        let mut msgs = headers(vecs.as_ptr().cast(), vecs.len());
        // SAFETY: every header points to one of `vecs`, which live on.
        let n = checked(unsafe {
            libc::sendmmsg(self.as_raw_fd(), msgs.as_mut_ptr(), msgs.len() as u32, 0)
        })?;
        Ok(msgs.iter().take(n as usize).map(|m| m.msg_len).collect())
    }

    /// One recvmmsg() call that does not wait. Returns the number of bytes in each buffer.
    pub(crate) fn recvmmsg(&self, bufs: &mut [&mut [u8]], flags: i32) -> io::Result<Vec<u32>> {
        let vecs: Vec<IoSliceMut<'_>> = bufs.iter_mut().map(|b| IoSliceMut::new(b)).collect();
        let mut msgs = headers(vecs.as_ptr().cast(), vecs.len());
        // SAFETY: every header points to one of `vecs`, which live on and
        // whose buffers are writable.
        let n = checked(unsafe {
            libc::recvmmsg(
                self.as_raw_fd(),
                msgs.as_mut_ptr(),
                msgs.len() as u32,
                flags | libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        })?;
        Ok(msgs.iter().take(n as usize).map(|m| m.msg_len).collect())
    }

    /// One sendmsg() call.
    pub(crate) fn sendmsg(&self, bufs: &[IoSlice<'_>], flags: i32) -> io::Result<usize> {
        let mut msg = empty_msghdr();
        msg.msg_iov = bufs.as_ptr().cast_mut().cast();
        msg.msg_iovlen = bufs.len();
        // SAFETY: IoSlice has the layout of iovec and the kernel only reads
        // through a sendmsg()'s vector.
        checked_size(unsafe { libc::sendmsg(self.as_raw_fd(), &msg, flags) })
    }

    /// One recvmsg() call. Returns the number of bytes received and the flags of the answer.
    pub(crate) fn recvmsg(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> io::Result<(usize, i32)> {
        let mut msg = empty_msghdr();
        msg.msg_iov = bufs.as_mut_ptr().cast();
        msg.msg_iovlen = bufs.len();
        // SAFETY: IoSliceMut has the layout of iovec and its buffers are
        // writable for their lengths.
        let n = checked_size(unsafe { libc::recvmsg(self.as_raw_fd(), &mut msg, flags) })?;
        Ok((n, msg.msg_flags))
    }

    /// One recvmsg() call with room for control messages. Returns the number of bytes received, the
    /// number of bytes of control messages, and the flags of the answer.
    pub(crate) fn recvmsg_with(
        &self,
        buf: &mut [u8],
        control: &mut [u64],
        flags: i32,
    ) -> io::Result<(usize, usize, i32)> {
        let mut bufs = [IoSliceMut::new(buf)];
        let mut msg = empty_msghdr();
        msg.msg_iov = bufs.as_mut_ptr().cast();
        msg.msg_iovlen = bufs.len();
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = size_of_val(control);
        // SAFETY: as in recvmsg(); the control buffer is writable for its length.
        let n = checked_size(unsafe { libc::recvmsg(self.as_raw_fd(), &mut msg, flags) })?;
        Ok((n, msg.msg_controllen, msg.msg_flags))
    }

    /// One sendmsg() call with the first `len` bytes of `control` as control messages.
    pub(crate) fn sendmsg_with(
        &self,
        buf: &[u8],
        control: &[u64],
        len: usize,
    ) -> io::Result<usize> {
        assert!(len <= size_of_val(control), "bytes outside");
        let mut bufs = [IoSlice::new(buf)];
        let mut msg = empty_msghdr();
        msg.msg_iov = bufs.as_mut_ptr().cast();
        msg.msg_iovlen = bufs.len();
        msg.msg_control = control.as_ptr().cast_mut().cast();
        msg.msg_controllen = len;
        // SAFETY: as in sendmsg(), which only reads the control messages, too.
        checked_size(unsafe { libc::sendmsg(self.as_raw_fd(), &msg, libc::MSG_NOSIGNAL) })
    }

    pub(crate) fn shutdown(&self, how: i32) -> io::Result<()> {
        // SAFETY: plain numbers.
        checked(unsafe { libc::shutdown(self.as_raw_fd(), how) })?;
        Ok(())
    }

    pub(crate) fn set_int(&self, level: i32, option: i32, value: i32) -> io::Result<()> {
        self.set_bytes(level, option, &value.to_ne_bytes())
    }

    pub(crate) fn get_int(&self, level: i32, option: i32) -> io::Result<i32> {
        let mut bytes = [0; 4];
        let len = self.get_bytes(level, option, &mut bytes)?;
        if len != bytes.len() {
            return Err(io::Error::other(format!("an int option of {len} bytes")));
        }
        Ok(i32::from_ne_bytes(bytes))
    }

    pub(crate) fn set_bytes(&self, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
        // SAFETY: `value` is readable for its length.
        checked(unsafe {
            libc::setsockopt(
                self.as_raw_fd(),
                level,
                option,
                value.as_ptr().cast(),
                value.len() as libc::socklen_t,
            )
        })?;
        Ok(())
    }

    /// Reads an option into `value`; returns the length that the kernel stored.
    pub(crate) fn get_bytes(&self, level: i32, option: i32, value: &mut [u8]) -> io::Result<usize> {
        let mut len = value.len() as libc::socklen_t;
        // SAFETY: `value` is writable for `len` bytes.
        checked(unsafe {
            libc::getsockopt(
                self.as_raw_fd(),
                level,
                option,
                value.as_mut_ptr().cast(),
                &mut len,
            )
        })?;
        Ok(len as usize)
    }

    /// Reads and clears SO_ERROR.
    pub(crate) fn take_error(&self) -> io::Result<i32> {
        self.get_int(libc::SOL_SOCKET, libc::SO_ERROR)
    }

    pub(crate) fn set_linger(&self, linger: Linger) -> io::Result<()> {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&i32::from(linger.on).to_ne_bytes());
        bytes[4..].copy_from_slice(&linger.secs.to_ne_bytes());
        self.set_bytes(libc::SOL_SOCKET, libc::SO_LINGER, &bytes)
    }

    /// Closes with a reset, which discards all unsent bytes.
    pub(crate) fn reset(self) -> io::Result<()> {
        self.set_linger(Linger { on: true, secs: 0 })?;
        self.close()
    }

    /// Closes and returns the result of close().
    pub(crate) fn close(self) -> io::Result<()> {
        use std::os::fd::IntoRawFd;
        // SAFETY: we own the descriptor and give it up here.
        checked(unsafe { libc::close(self.0.into_raw_fd()) })?;
        Ok(())
    }

    /// The 32-bit members of TCP_INFO at these offsets.
    pub(crate) fn tcp_info<const COUNT: usize>(
        &self,
        offsets: [usize; COUNT],
    ) -> io::Result<[u32; COUNT]> {
        let mut info = [0; 104];
        let len = self.get_bytes(libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
        if len < info.len() {
            return Err(io::Error::other(format!("TCP_INFO of {len} bytes")));
        }
        let word = |at: usize| [info[at], info[at + 1], info[at + 2], info[at + 3]];
        Ok(offsets.map(|at| u32::from_ne_bytes(word(at))))
    }

    /// Sets SO_RCVTIMEO or SO_SNDTIMEO, in milliseconds (0: no limit).
    pub(crate) fn set_timeout(&self, option: i32, ms: i64) -> io::Result<()> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(ms / 1000).to_ne_bytes());
        bytes[8..].copy_from_slice(&(ms % 1000 * 1000).to_ne_bytes());
        self.set_bytes(libc::SOL_SOCKET, option, &bytes)
    }

    pub(crate) fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        // SAFETY: plain numbers.
        let flags = checked(unsafe { libc::fcntl(self.as_raw_fd(), libc::F_GETFL) })?;
        let flags = if on {
            flags | libc::O_NONBLOCK
        } else {
            flags & !libc::O_NONBLOCK
        };
        // SAFETY: plain numbers.
        checked(unsafe { libc::fcntl(self.as_raw_fd(), libc::F_SETFL, flags) })?;
        Ok(())
    }

    pub(crate) fn is_nonblocking(&self) -> io::Result<bool> {
        // SAFETY: plain numbers.
        let flags = checked(unsafe { libc::fcntl(self.as_raw_fd(), libc::F_GETFL) })?;
        Ok(flags & libc::O_NONBLOCK != 0)
    }

    pub(crate) fn is_cloexec(&self) -> io::Result<bool> {
        // SAFETY: plain numbers.
        let flags = checked(unsafe { libc::fcntl(self.as_raw_fd(), libc::F_GETFD) })?;
        Ok(flags & libc::FD_CLOEXEC != 0)
    }

    pub(crate) fn dup(&self) -> io::Result<Sock> {
        Ok(Sock(self.0.try_clone()?))
    }

    /// An ioctl that fills in one int.
    pub(crate) fn ioctl_int(&self, request: libc::c_ulong) -> io::Result<i32> {
        let mut value: libc::c_int = 0;
        // SAFETY: the requests used with this function write one int.
        checked(unsafe { libc::ioctl(self.as_raw_fd(), request as _, &mut value) })?;
        Ok(value)
    }

    /// Sets or clears O_NONBLOCK by the ioctl FIONBIO.
    pub(crate) fn set_fionbio(&self, on: bool) -> io::Result<()> {
        let value = libc::c_int::from(on);
        // SAFETY: FIONBIO reads one int.
        checked(unsafe { libc::ioctl(self.as_raw_fd(), libc::FIONBIO, &value) })?;
        Ok(())
    }

    /// Has the kernel send SIGURG to `pid`.
    pub(crate) fn set_owner(&self, pid: i32) -> io::Result<()> {
        // SAFETY: plain numbers.
        checked(unsafe { libc::fcntl(self.as_raw_fd(), libc::F_SETOWN, pid) })?;
        Ok(())
    }

    /// Has the kernel send `signal` to this thread when something happens, with the event
    /// (F_SETSIG).
    pub(crate) fn set_async_signal(&self, signal: i32) -> io::Result<()> {
        // struct f_owner_ex with F_OWNER_TID.
        let owner = [0, super::thread_id()];
        let fd = self.as_raw_fd();
        // SAFETY: `owner` lives across the call; the rest is plain numbers.
        unsafe {
            checked(libc::fcntl(fd, F_SETOWN_EX, owner.as_ptr()))?;
            checked(libc::fcntl(fd, F_SETSIG, signal))?;
            let flags = checked(libc::fcntl(fd, libc::F_GETFL))?;
            checked(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_ASYNC))?;
        }
        Ok(())
    }

    /// Sets O_ASYNC: the kernel sends SIGIO to `pid` when something happens.
    pub(crate) fn set_async(&self, pid: i32) -> io::Result<()> {
        self.set_owner(pid)?;
        let fd = self.as_raw_fd();
        // SAFETY: plain numbers.
        unsafe {
            let flags = checked(libc::fcntl(fd, libc::F_GETFL))?;
            checked(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_ASYNC))?;
        }
        Ok(())
    }

    /// Sends all of `buf`, in as many calls as necessary.
    pub(crate) fn send_all(&self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let n = self.send(buf, libc::MSG_NOSIGNAL)?;
            buf = &buf[n..];
        }
        Ok(())
    }

    /// Receives exactly `buf.len()` bytes; an early end is `UnexpectedEof`.
    pub(crate) fn recv_exact(&self, buf: &mut [u8]) -> io::Result<()> {
        let mut got = 0;
        while got < buf.len() {
            match self.recv(&mut buf[got..], 0)? {
                0 => {
                    let text = format!("end of file after {got} of {} bytes", buf.len());
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
                }
                n => got += n,
            }
        }
        Ok(())
    }
}

/// A msghdr without address, buffers or control data.
pub(super) fn empty_msghdr() -> libc::msghdr {
    // SAFETY: all zeros is a valid msghdr: null pointers and zero lengths.
    unsafe { std::mem::zeroed() }
}

/// A header for each of `count` adjacent vectors that begin at `vecs`.
fn headers(vecs: *const libc::iovec, count: usize) -> Vec<libc::mmsghdr> {
    (0..count)
        .map(|i| {
            let mut msg_hdr = empty_msghdr();
            msg_hdr.msg_iov = vecs.wrapping_add(i).cast_mut();
            msg_hdr.msg_iovlen = 1;
            libc::mmsghdr {
                msg_hdr,
                msg_len: 0,
            }
        })
        .collect()
}
