// SPDX-License-Identifier: GPL-2.0
//! epoll.

use super::checked;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An epoll instance.
pub(crate) struct Epoll(OwnedFd);

impl From<Epoll> for OwnedFd {
    fn from(epoll: Epoll) -> OwnedFd {
        epoll.0
    }
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        // SAFETY: plain numbers.
        let fd = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel has just returned this descriptor to us alone.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Watches `fd`; its events are reported with `token`.
    pub(crate) fn add(&self, fd: RawFd, events: i32, token: u64) -> io::Result<()> {
        self.ctl(libc::EPOLL_CTL_ADD, fd, events, token)
    }

    pub(crate) fn modify(&self, fd: RawFd, events: i32, token: u64) -> io::Result<()> {
        self.ctl(libc::EPOLL_CTL_MOD, fd, events, token)
    }

    pub(crate) fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.ctl(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn ctl(&self, op: i32, fd: RawFd, events: i32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: token,
        };
        // SAFETY: `event` lives across the call.
        checked(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), op, fd, &mut event) })?;
        Ok(())
    }

    /// The ready events, as (token, events), after a wait of at most `timeout_ms`.
    pub(crate) fn wait(&self, timeout_ms: i32) -> io::Result<Vec<(u64, i32)>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: the array has the number of entries that is passed.
        let n = checked(unsafe {
            libc::epoll_wait(
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as i32,
                timeout_ms,
            )
        })?;
        Ok(events
            .iter()
            .take(n as usize)
            .map(|e| (e.u64, e.events as i32))
            .collect())
    }
}
