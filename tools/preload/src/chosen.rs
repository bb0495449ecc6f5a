// SPDX-License-Identifier: GPL-2.0

//! Sockets whose port the kernel has chosen, by a bind() to port 0: their listeners give it back when
//! they are shut down. The kernel tells nobody, so that it is remembered.

use std::os::fd::RawFd;
use std::sync::{
    Mutex,
    MutexGuard,
    PoisonError, //
};

use crate::sock::File;

/// One for each descriptor at most: a closed one is forgotten with its number's next socket.
static CHOSEN: Mutex<Vec<(RawFd, File)>> = Mutex::new(Vec::new());

fn chosen() -> MutexGuard<'static, Vec<(RawFd, File)>> {
    CHOSEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers who has chosen the port of a socket that was just bound.
pub(crate) fn note(fd: RawFd, by_kernel: bool) {
    let file = File::of(fd).ok().filter(|_| by_kernel);
    let mut all = chosen();
    all.retain(|&(noted, _)| noted != fd);
    all.extend(file.map(|file| (fd, file)));
}

/// Whether the kernel has chosen the port of this socket, whatever its descriptors are.
pub(crate) fn by_kernel(file: File) -> bool {
    chosen().iter().any(|&(_, noted)| noted == file)
}
