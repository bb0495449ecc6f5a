// SPDX-License-Identifier: GPL-2.0
//! Calls on descriptors of any kind: read and write, splice, sendfile.

use super::{checked, checked_size};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// read().
pub(crate) fn read(fd: RawFd, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `buf` is writable for its length.
    checked_size(unsafe { libc::read(fd, buf.as_mut_ptr().cast(), buf.len()) })
}

/// write().
pub(crate) fn write(fd: RawFd, buf: &[u8]) -> io::Result<usize> {
    // SAFETY: `buf` is readable for its length.
    checked_size(unsafe { libc::write(fd, buf.as_ptr().cast(), buf.len()) })
}

/// readv().
pub(crate) fn readv(fd: RawFd, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    // SAFETY: IoSliceMut has the layout of iovec, its buffers are writable.
    checked_size(unsafe { libc::readv(fd, bufs.as_mut_ptr().cast(), bufs.len() as i32) })
}

/// writev().
pub(crate) fn writev(fd: RawFd, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    // SAFETY: IoSlice has the layout of iovec, its buffers are readable.
    checked_size(unsafe { libc::writev(fd, bufs.as_ptr().cast(), bufs.len() as i32) })
}

/// writev() of memory; each piece is an address and a length.
pub(crate) fn writev_at(fd: RawFd, pieces: &[(usize, usize)]) -> io::Result<usize> {
    let vec = |&(at, len): &(usize, usize)| libc::iovec {
        iov_base: at as *mut _,
        iov_len: len,
    };
    let vecs: Vec<_> = pieces.iter().map(vec).collect();
    // SAFETY: the kernel checks the addresses and only reads from them.
    checked_size(unsafe { libc::writev(fd, vecs.as_ptr(), vecs.len() as i32) })
}

/// lseek() that does not move: returns the position of the descriptor.
pub(crate) fn seek(fd: RawFd) -> io::Result<i64> {
    // SAFETY: plain numbers.
    let at = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
    if at < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(at)
}

/// A pipe: the end to read from and the end to write to.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for two descriptors.
    checked(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: the kernel has just returned these descriptors to us alone.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// Sets the number of bytes that a pipe can hold.
pub(crate) fn set_pipe_size(pipe: RawFd, bytes: usize) -> io::Result<()> {
    // SAFETY: plain numbers.
    checked(unsafe { libc::fcntl(pipe, libc::F_SETPIPE_SZ, bytes as libc::c_int) })?;
    Ok(())
}

/// splice() of at most `len` bytes between a pipe and another descriptor.
pub(crate) fn splice(from: RawFd, to: RawFd, len: usize) -> io::Result<usize> {
    let none = std::ptr::null_mut();
    // SAFETY: no offsets are passed.
    checked_size(unsafe { libc::splice(from, none, to, none, len, 0) })
}

/// tee() of up to `len` bytes from one pipe to another.
pub(crate) fn tee(from: RawFd, to: RawFd, len: usize) -> io::Result<usize> {
    // SAFETY: plain numbers.
    checked_size(unsafe { libc::tee(from, to, len, 0) })
}

/// sendfile() of `len` bytes from `offset` on.
pub(crate) fn sendfile(to: RawFd, file: &File, mut offset: i64, len: usize) -> io::Result<usize> {
    // SAFETY: `offset` lives across the call.
    checked_size(unsafe { libc::sendfile(to, file.as_raw_fd(), &mut offset, len) })
}

/// A file in memory with the given content.
pub(crate) fn memory_file(content: &[u8]) -> io::Result<File> {
    // SAFETY: the name is a C string.
    let fd = checked(unsafe { libc::memfd_create(c"selftest".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the kernel has just returned this descriptor to us alone.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.write_all(content)?;
    Ok(file)
}
