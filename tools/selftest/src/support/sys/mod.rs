// SPDX-License-Identifier: GPL-2.0
//! The system calls that the tests are about, called directly: nothing is retried, hidden, or set
//! by default, and every error is the kernel's own.

mod addr;
mod area;
mod bundle;
mod epoll;
mod file;
mod missing;
mod netdev;
mod pages;
mod pass;
mod poll;
mod process;
mod raw;
mod ring;
mod sock;
mod uring;

pub(crate) use addr::SockAddr;
pub(crate) use area::{Area, Kind, PAGE};
pub(crate) use bundle::Bundles;
pub(crate) use epoll::Epoll;
pub(crate) use file::*;
pub(crate) use missing::MissingPages;
pub(crate) use netdev::loopback_up;
pub(crate) use pages::*;
pub(crate) use pass::{pass_fd, receive_fd};
pub(crate) use poll::{poll_fds, select_one, Ready};
pub(crate) use process::*;
pub(crate) use raw::*;
pub(crate) use ring::{Request, Ring};
pub(crate) use sock::{Linger, Sock, TCPI_SND_CWND, TCPI_UNACKED};
pub(crate) use uring::{uring_recv, uring_sendmsg_to, Registered, SendZc};

use std::io;

/// Turns the return value of a C call into a result with its errno.
pub(crate) fn checked(ret: libc::c_int) -> io::Result<libc::c_int> {
    if ret < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(ret)
    }
}

/// As [`checked`], for calls that return a size.
fn checked_size(ret: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(ret).map_err(|_| io::Error::last_os_error())
}
