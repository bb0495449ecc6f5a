// SPDX-License-Identifier: GPL-2.0

//! Sockets that are added to an epoll before they are replaced: epoll drops a closed file, so the
//! replacement must be added.

use std::io;
use std::os::fd::RawFd;

use libc::epoll_event;

use crate::noted::noted;
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

/// A socket that was replaced.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) struct Replaced {
    fd: RawFd,
    before: File,
    after: File,
}

/// Records that a socket was added to an epoll set, or that its events were modified. `file` was the
/// descriptor's socket before; if another thread has replaced it meanwhile, the replacement is added
/// to the set instead.
pub(crate) fn note(epoll: RawFd, fd: RawFd, file: File, event: epoll_event) {
    let watch = Watch {
        epoll,
        fd,
        file,
        event,
    };
    let noted = &mut *noted();
    let now = File::of(fd).ok();
    noted.watches.retain(|w| (w.epoll, w.fd) != (epoll, fd));
    if now == Some(file) {
        noted.watches.push(watch);
    } else if noted
        .replaced
        .iter()
        .any(|r| r.fd == fd && r.before == file && Some(r.after) == now)
    {
        add(&watch);
    }
    // Otherwise the program has closed the socket, and may have reused the descriptor.
}

/// The socket that is recorded for this epoll set and descriptor.
pub(crate) fn file_of(epoll: RawFd, fd: RawFd) -> Option<File> {
    let all = &noted().watches;
    let watch = all.iter().find(|w| (w.epoll, w.fd) == (epoll, fd));
    watch.map(|w| w.file)
}

/// Removes the record of a socket that was removed from an epoll set.
pub(crate) fn forget(epoll: RawFd, fd: RawFd) {
    let all = &mut noted().watches;
    all.retain(|w| (w.epoll, w.fd) != (epoll, fd));
}

/// Has `replace` replace the descriptor's socket `file`, and keeps the descriptor in its epoll
/// sets. An epoll that was closed and whose descriptor was reused does not contain the socket and is
/// left out.
///
/// # Errors
///
/// `EBADF` if the descriptor is another file meanwhile; those of `replace`.
pub(crate) fn keep_during<T>(
    fd: RawFd,
    file: File,
    replace: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    // Until the end, so that a thread that adds the socket meanwhile sees that it was replaced.
    let noted = &mut *noted();
    // Not before the lock: another thread may open another file while this one waits.
    if File::of(fd)? != file {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    let all = &mut noted.watches;
    let mut taken: Vec<Watch> = all.iter().filter(|w| w.fd == fd).copied().collect();
    all.retain(|w| w.fd != fd);
    taken.retain(|w| {
        if w.file != file {
            return false;
        }
        let mut event = w.event;
        // SAFETY: The event is valid; the kernel ignores it.
        let ret =
            unsafe { (sock::real().epoll_ctl)(w.epoll, libc::EPOLL_CTL_DEL, fd, &raw mut event) };
        ret == 0
    });
    let replaced = replace();
    for watch in &taken {
        add(watch);
    }
    noted.replaced.retain(|r| r.fd != fd);
    if let Ok(after) = File::of(fd) {
        let before = file;
        let both = Replaced { fd, before, after };
        noted.replaced.extend((before != after).then_some(both));
    }
    replaced
}

/// Adds the descriptor's present socket to the epoll set with the same events.
fn add(watch: &Watch) {
    let mut event = watch.event;
    // SAFETY: The event is valid. The call fails harmlessly if the epoll was closed meanwhile, or
    // has the socket.
    unsafe {
        (sock::real().epoll_ctl)(watch.epoll, libc::EPOLL_CTL_ADD, watch.fd, &raw mut event);
    }
}
