// SPDX-License-Identifier: GPL-2.0

//! What the library records about the program's sockets, because the kernel has no interface that
//! tells it later.

use std::cell::Cell;
use std::ops::{
    Deref,
    DerefMut, //
};
use std::os::fd::RawFd;
use std::sync::{
    Mutex,
    MutexGuard,
    PoisonError, //
};

use crate::sock::File;
use crate::watched::{
    Replaced,
    Watch, //
};

/// Sockets with a property. At most one entry per descriptor; the entry of a closed socket is
/// dropped when the property of the descriptor's next socket is recorded.
pub(crate) struct Sockets(Vec<(RawFd, File)>);

impl Sockets {
    /// Records whether the descriptor's socket has the property.
    pub(crate) fn note(&mut self, fd: RawFd, has_it: bool) {
        self.0.retain(|&(noted, _)| noted != fd);
        let file = File::of(fd).ok().filter(|_| has_it);
        self.0.extend(file.map(|file| (fd, file)));
    }

    /// Whether this socket has the property. Its descriptor may have changed since.
    pub(crate) fn contains(&self, file: File) -> bool {
        self.0.iter().any(|&(_, noted)| noted == file)
    }
}

/// The records.
pub(crate) struct Noted {
    /// Sockets whose port the kernel has chosen at a bind() to port 0: the port is released when
    /// their listener is shut down.
    pub(crate) chosen_ports: Sockets,
    /// Sockets with an option that cannot be read back, and that SDP refuses.
    pub(crate) unreadable_options: Sockets,
    /// Sockets in epoll sets.
    pub(crate) watches: Vec<Watch>,
    /// The last replacement of each descriptor's socket.
    pub(crate) replaced: Vec<Replaced>,
}

static NOTED: Mutex<Noted> = Mutex::new(Noted {
    chosen_ports: Sockets(Vec::new()),
    unreadable_options: Sockets(Vec::new()),
    watches: Vec::new(),
    replaced: Vec::new(),
});

thread_local! {
    /// The lock of a thread that calls fork().
    static OF_FORK: Cell<Option<Guard>> = const { Cell::new(None) };
    /// Whether this thread has the lock.
    static HAS_LOCK: Cell<bool> = const { Cell::new(false) };
}

/// The locked records.
pub(crate) struct Guard(MutexGuard<'static, Noted>);

impl Deref for Guard {
    type Target = Noted;

    fn deref(&self) -> &Noted {
        &self.0
    }
}

impl DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut Noted {
        &mut self.0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        HAS_LOCK.set(false);
    }
}

pub(crate) fn noted() -> Guard {
    let guard = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    HAS_LOCK.set(true);
    Guard(guard)
}

/// Makes fork() wait for threads that use the records: otherwise the child would wait for such a
/// thread, which it does not have.
pub(crate) fn lock_during_forks() {
    extern "C" fn before() {
        if HAS_LOCK.get() {
            // A signal handler calls fork(): the child continues with the lock, and unlocks it.
            return;
        }
        let guard = noted();
        // At the end of a thread its variables may be gone; then nothing is locked.
        let _ = OF_FORK.try_with(|of_fork| of_fork.set(Some(guard)));
    }
    extern "C" fn after() {
        let _ = OF_FORK.try_with(Cell::take);
    }
    // SAFETY: The functions stay loaded: the library is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A child that is forked while another thread has the lock can take the lock.
    #[test]
    fn fork_waits_for_the_lock() {
        lock_during_forks();
        let (locked, is_locked) = mpsc::channel();
        let other = thread::spawn(move || {
            let _guard = noted();
            locked.send(()).unwrap();
            thread::sleep(Duration::from_millis(200));
        });
        is_locked.recv().unwrap();
        // SAFETY: The child makes no call that another thread of this process could prevent.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let is_free = NOTED.try_lock().is_ok();
            // SAFETY: This ends the child.
            unsafe { libc::_exit(i32::from(!is_free)) };
        }
        let mut status = -1;
        // SAFETY: The status is an integer.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        other.join().unwrap();
        assert_eq!((waited, status), (pid, 0));
        // Another test may have the lock, but this thread does not.
        assert!(!HAS_LOCK.get());
    }
}
