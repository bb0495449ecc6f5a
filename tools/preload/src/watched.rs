// SPDX-License-Identifier: GPL-2.0

//! Sockets that are watched by epoll before they are replaced: epoll forgets a file that goes, so
//! that its successor must be added.

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

/// A socket of one epoll.
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

/// Remembers that a socket is watched, or is so in another way.
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

/// Whether such a socket was remembered.
pub(crate) fn is_noted(epoll: RawFd, fd: RawFd) -> bool {
    watches().iter().any(|w| (w.epoll, w.fd) == (epoll, fd))
}

/// Forgets a socket that is not watched any more.
pub(crate) fn forget(epoll: RawFd, fd: RawFd) {
    watches().retain(|w| (w.epoll, w.fd) != (epoll, fd));
}

/// Has nobody watch the socket that has the descriptor now; returns who did. An epoll that was closed, so
/// that its descriptor is another's, does not know the socket and is none of them.
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
        // SAFETY: The event is valid, if it is looked at at all.
        let ret =
            unsafe { (sock::real().epoll_ctl)(w.epoll, libc::EPOLL_CTL_DEL, fd, &raw mut event) };
        ret == 0
    });
    taken
}

/// Has the descriptor's new socket watched in the same way.
pub(crate) fn put(fd: RawFd, taken: &[Watch]) {
    for watch in taken {
        let mut event = watch.event;
        // SAFETY: The event is valid. An epoll that was closed meanwhile is none of our business.
        unsafe {
            (sock::real().epoll_ctl)(watch.epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event);
        }
    }
}
