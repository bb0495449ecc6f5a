// SPDX-License-Identifier: GPL-2.0

//! Sockets that are added to an epoll before they are replaced: epoll drops a closed file, so the
//! replacement must be added.

use std::os::fd::RawFd;
use std::sync::{
    Mutex,
    MutexGuard,
    PoisonError, //
};

use libc::epoll_event;

use crate::sock::{
    self,
    File, //
};

/// A socket in an epoll set.
#[derive(Copy, Clone)]
pub(crate) struct Watch {
    epoll: RawFd,
    fd: RawFd,
    file: File,
    event: epoll_event,
}

static WATCHES: Mutex<Vec<Watch>> = Mutex::new(Vec::new());

fn watches() -> MutexGuard<'static, Vec<Watch>> {
    WATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records that a socket was added to an epoll set, or that its events were modified.
pub(crate) fn note(epoll: RawFd, fd: RawFd, event: epoll_event) {
    let Ok(file) = File::of(fd) else { return };
    let mut all = watches();
    all.retain(|w| (w.epoll, w.fd) != (epoll, fd));
    all.push(Watch {
        epoll,
        fd,
        file,
        event,
    });
}

/// Whether the socket is recorded for this epoll set.
pub(crate) fn is_noted(epoll: RawFd, fd: RawFd) -> bool {
    watches().iter().any(|w| (w.epoll, w.fd) == (epoll, fd))
}

/// Removes the record of a socket that was removed from an epoll set.
pub(crate) fn forget(epoll: RawFd, fd: RawFd) {
    watches().retain(|w| (w.epoll, w.fd) != (epoll, fd));
}

/// Removes the descriptor's socket from all epoll sets and returns them. An epoll that was closed
/// and whose descriptor was reused does not contain the socket and is left out.
pub(crate) fn take(fd: RawFd) -> Vec<Watch> {
    let file = File::of(fd).ok();
    let mut all = watches();
    let mut taken: Vec<Watch> = all.iter().filter(|w| w.fd == fd).copied().collect();
    all.retain(|w| w.fd != fd);
    drop(all);
    taken.retain(|w| {
        if Some(w.file) != file {
            return false;
        }
        let mut event = w.event;
        // SAFETY: The event is valid; the kernel ignores it.
        let ret =
            unsafe { (sock::real().epoll_ctl)(w.epoll, libc::EPOLL_CTL_DEL, fd, &raw mut event) };
        ret == 0
    });
    taken
}

/// Adds the descriptor's new socket to the epoll sets with the same events.
pub(crate) fn put(fd: RawFd, taken: &[Watch]) {
    for watch in taken {
        let mut event = watch.event;
        // SAFETY: The event is valid. The call fails harmlessly if the epoll was closed meanwhile.
        unsafe {
            (sock::real().epoll_ctl)(watch.epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event);
        }
    }
}
