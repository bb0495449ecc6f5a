// SPDX-License-Identifier: GPL-2.0

//! Sockets whose port the kernel has chosen at a bind() to port 0: the port is released when their
//! listener is shut down. The kernel has no interface that tells whether it has chosen a port, so
//! bind() records it.

use std::os::fd::RawFd;
use std::sync::{
    Mutex,
    MutexGuard,
    PoisonError, //
};

use crate::sock::File;

/// At most one entry per descriptor. The entry of a closed socket is dropped when the descriptor is
/// bound again.
static CHOSEN: Mutex<Vec<(RawFd, File)>> = Mutex::new(Vec::new());

fn chosen() -> MutexGuard<'static, Vec<(RawFd, File)>> {
    CHOSEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records whether the kernel has chosen the port of a socket that was just bound.
pub(crate) fn note(fd: RawFd, by_kernel: bool) {
    let file = File::of(fd).ok().filter(|_| by_kernel);
    let mut all = chosen();
    all.retain(|&(noted, _)| noted != fd);
    all.extend(file.map(|file| (fd, file)));
}

/// Whether the kernel has chosen the port of this socket. The descriptor may have changed since.
pub(crate) fn by_kernel(file: File) -> bool {
    chosen().iter().any(|&(_, noted)| noted == file)
}
