// SPDX-License-Identifier: GPL-2.0
//! Passes descriptors over a unix socket.

use super::{checked_size, sock::empty_msghdr};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Room for one descriptor in a control message, with the alignment of cmsghdr.
#[repr(C, align(8))]
struct Control([u8; 24]);

/// Sends `fd` in a message of one byte.
pub(crate) fn pass_fd(over: RawFd, fd: RawFd) -> io::Result<()> {
    let mut control = Control([0; 24]);
    let (mut byte, mut vec) = ([b'f'], empty_iovec());
    let msg = message(&mut control, &mut byte, &mut vec);
    // SAFETY: `msg` points to a control buffer with room for one header and one descriptor, which
    // both live across the calls.
    checked_size(unsafe {
        let header = libc::CMSG_FIRSTHDR(&msg);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
        libc::sendmsg(over, &msg, 0)
    })?;
    Ok(())
}

/// Receives a descriptor that was passed.
pub(crate) fn receive_fd(over: RawFd) -> io::Result<OwnedFd> {
    let mut control = Control([0; 24]);
    let (mut byte, mut vec) = ([0], empty_iovec());
    let mut msg = message(&mut control, &mut byte, &mut vec);
    // SAFETY: `msg` points to buffers that live across the call.
    checked_size(unsafe { libc::recvmsg(over, &mut msg, 0) })?;
    // SAFETY: the kernel has filled in the control buffer. If there is a header, it is complete,
    // and only this process has the new descriptor.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&msg);
        if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::Error::other("no descriptor came"));
        }
        let fd = libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned();
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn empty_iovec() -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    }
}

fn message(control: &mut Control, byte: &mut [u8; 1], vec: &mut libc::iovec) -> libc::msghdr {
    vec.iov_base = byte.as_mut_ptr().cast();
    vec.iov_len = 1;
    let mut msg = empty_msghdr();
    msg.msg_iov = vec;
    msg.msg_iovlen = 1;
    msg.msg_control = control.0.as_mut_ptr().cast();
    msg.msg_controllen = control.0.len();
    msg
}
