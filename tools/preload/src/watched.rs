// SPDX-License-Identifier: GPL-2.0

//! Sockets that are watched by epoll before they are replaced: epoll forgets a file that goes, so
//! that its successor must be added.

use std::mem::zeroed;
use std::os::fd::RawFd;
use std::sync::{
    Mutex,
    MutexGuard,
    PoisonError, //
};

use libc::epoll_event;

use crate::sock;

/// A socket of one epoll.
#[derive(Copy, Clone)]
pub(crate) struct Watch {
    epoll: RawFd,
    fd: RawFd,
    /// The socket's: a descriptor may have become another's.
    inode: u64,
    event: epoll_event,
}

static WATCHES: Mutex<Vec<Watch>> = Mutex::new(Vec::new());

fn watches() -> MutexGuard<'static, Vec<Watch>> {
    WATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn inode(fd: RawFd) -> Option<u64> {
    // SAFETY: Zeros are a valid value of it, and it is written to if the call succeeds.
    unsafe {
        let mut stat: libc::stat = zeroed();
        (libc::fstat(fd, &raw mut stat) == 0).then_some(stat.st_ino)
    }
}

/// Remembers that a socket is watched, or is so in another way.
pub(crate) fn note(epoll: RawFd, fd: RawFd, event: epoll_event) {
    let Some(inode) = inode(fd) else { return };
    let mut all = watches();
    all.retain(|w| (w.epoll, w.fd) != (epoll, fd));
    all.push(Watch {
        epoll,
        fd,
        inode,
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

/// Who watches the socket that has the descriptor now; it is forgotten.
pub(crate) fn take(fd: RawFd) -> Vec<Watch> {
    let inode = inode(fd);
    let mut all = watches();
    let is_it = |w: &&Watch| w.fd == fd && Some(w.inode) == inode;
    let taken = all.iter().filter(is_it).copied().collect();
    all.retain(|w| w.fd != fd);
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
