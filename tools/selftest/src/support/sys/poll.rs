// SPDX-License-Identifier: GPL-2.0
//! poll() and select().

use super::{checked, Sock};
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Waits for `events` on each descriptor, for at most `timeout_ms` (-1: without a limit). Returns
/// the events that poll() reported for each, in the same order.
pub(crate) fn poll_fds(fds: &[(RawFd, i16)], timeout_ms: i32) -> io::Result<Vec<i16>> {
    let mut polled: Vec<libc::pollfd> = fds
        .iter()
        .map(|&(fd, events)| libc::pollfd {
            fd,
            events,
            revents: 0,
        })
        .collect();
    // SAFETY: the array has the number of entries that is passed.
    checked(unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as _, timeout_ms) })?;
    Ok(polled.iter().map(|p| p.revents).collect())
}

impl Sock {
    /// The events that poll() reports for this socket; 0 if the time is over.
    pub(crate) fn poll(&self, events: i16, timeout_ms: i32) -> io::Result<i16> {
        let seen = poll_fds(&[(self.as_raw_fd(), events)], timeout_ms)?;
        Ok(seen.first().copied().unwrap_or(0))
    }
}

/// The events for which select() found a descriptor ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) except: bool,
}

/// select() for all three sets of one descriptor.
pub(crate) fn select_one(fd: RawFd, timeout_ms: i32) -> io::Result<Ready> {
    if fd as usize >= libc::FD_SETSIZE {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: an fd_set of zeros is empty and valid; `fd` is below FD_SETSIZE.
    let mut sets: [libc::fd_set; 3] = unsafe { std::mem::zeroed() };
    for set in &mut sets {
        // SAFETY: as above.
        unsafe { libc::FD_SET(fd, set) };
    }
    let mut time = libc::timeval {
        tv_sec: i64::from(timeout_ms / 1000),
        tv_usec: i64::from(timeout_ms % 1000) * 1000,
    };
    let [read, write, except] = &mut sets;
    // SAFETY: all pointers are to live objects of the right type.
    checked(unsafe { libc::select(fd + 1, read, write, except, &mut time) })?;
    // SAFETY: as above.
    let [read, write, except] = sets.map(|set| unsafe { libc::FD_ISSET(fd, &set) });
    Ok(Ready {
        read,
        write,
        except,
    })
}
