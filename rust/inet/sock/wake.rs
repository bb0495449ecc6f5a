// SPDX-License-Identifier: GPL-2.0

//! Waking threads that wait for an event of a socket, and signals to its owner.

use core::ptr;

use kernel::sync::rcu;

use super::Sk;
use crate::bindings;
use crate::kern::barrier::smp_mb;

/// Wakes only one of the exclusive waiters, because the event can be used by one only.
const ONE: i32 = 1;
/// Wakes all waiters, including the exclusive ones.
const ALL: i32 = 0;

/// `sk_data_ready` of a socket of a program.
///
/// # Safety
///
/// `sk` is a socket object of the module.
unsafe extern "C" fn data_ready(sk: *mut bindings::sock) {
    // SAFETY: As the caller promises.
    unsafe { Sk::new(sk) }.wake_to_read(ONE);
}

/// `sk_write_space` of a socket of a program. The core calls it, too, after a change of SO_SNDBUF.
///
/// # Safety
///
/// As for [`data_ready`].
unsafe extern "C" fn write_space(sk: *mut bindings::sock) {
    use bindings as b;
    // SAFETY: As the caller promises. The core and `Sk::wake_writer` call this function under the
    // lock, which keeps `sk_socket`.
    unsafe {
        if (*sk).sk_socket.is_null() || !b::test_and_clear_nospace(sk.cast()) {
            return;
        }
        Sk::new(sk).wake(
            ONE,
            b::SDP_CONST_EPOLLOUT | b::SDP_CONST_EPOLLWRNORM | b::SDP_CONST_EPOLLWRBAND,
        );
        b::sk_wake_async(sk.cast(), b::SOCK_WAKE_SPACE as i32, b::POLL_OUT as i32);
    }
}

/// `sk_state_change` of a socket of a program.
///
/// # Safety
///
/// As for [`data_ready`].
unsafe extern "C" fn state_change(sk: *mut bindings::sock) {
    // io_uring reports the events of a wake-up's key without asking the socket, so the key must not
    // have an event that may be absent. Without a key, io_uring asks the socket. TCP also wakes
    // without a key here.
    // SAFETY: As the caller promises.
    unsafe { Sk::new(sk) }.wake(ALL, 0);
}

impl Sk {
    /// Records that a program waits until there is space to send: `wake_writer()` wakes programs
    /// only then. If `async_too`, also the programs that want SIGIO for it.
    pub(crate) fn want_space(self, async_too: bool) {
        if field!(self, sk_socket).is_null() {
            // No program waits.
            return;
        }
        // SAFETY: The object is valid. The program is in a call on the socket, so the `struct
        // socket` and its wait queue stay.
        unsafe {
            if async_too {
                bindings::sk_set_bit(bindings::SDP_CONST_ASYNC_NOSPACE, self.as_ptr().cast());
            }
            bindings::set_nospace(self.as_ptr().cast());
        }
    }

    /// Sets the callbacks of a new socket. A user of the socket in the kernel may replace them with
    /// functions of its own.
    pub(crate) fn set_callbacks(self) {
        // SAFETY: The object is valid, and nothing else uses the new socket yet.
        unsafe {
            (*self.0).sk_data_ready = Some(data_ready);
            (*self.0).sk_write_space = Some(write_space);
            (*self.0).sk_state_change = Some(state_change);
        }
    }

    /// Calls `sk_data_ready`, which wakes threads that wait for data, an end or an error to read;
    /// of the exclusive waiters, one.
    pub(crate) fn wake_reader(self) {
        if let Some(data_ready) = field!(self, sk_data_ready) {
            // SAFETY: The object is valid. The core calls the function in the same contexts, for
            // sockets of TCP.
            unsafe { data_ready(self.0) };
        }
    }

    /// Wakes all threads that wait for connections of a listener, including the exclusive waiters,
    /// with one event for each poller. Does not call `sk_data_ready`: a user in the kernel gets
    /// each connection by SDP through [`Sk::wake_reader`], and none by TCP.
    pub(crate) fn wake_readers(self) {
        self.wake_to_read(ALL);
    }

    fn wake_to_read(self, exclusive: i32) {
        use bindings as b;
        self.wake(
            exclusive,
            b::SDP_CONST_EPOLLIN
                | b::SDP_CONST_EPOLLPRI
                | b::SDP_CONST_EPOLLRDNORM
                | b::SDP_CONST_EPOLLRDBAND,
        );
        // SAFETY: The object is valid.
        unsafe { b::sk_wake_async(self.0.cast(), b::SOCK_WAKE_WAITD as i32, b::POLL_IN as i32) };
    }

    /// Sends SIGURG to the process that the program has named (F_SETOWN).
    pub(crate) fn send_sigurg(self) {
        // SAFETY: The object is valid, and the caller holds the lock, which keeps `sk_socket`.
        unsafe { bindings::sk_send_sigurg(self.0) };
    }

    /// Whether threads wait for space to write, called after space may have become free.
    pub(crate) fn has_waiting_writer(self) -> bool {
        // Pairs with the barrier in poll(): either poll() sees the space, or this sees that poll()
        // waits for it (as `tcp_check_space()`).
        smp_mb();
        // SAFETY: The object is valid, and the caller holds the lock, which keeps `sk_socket`.
        !field!(self, sk_socket).is_null() && unsafe { bindings::test_nospace(self.0.cast()) }
    }

    /// Calls `sk_write_space`, which wakes threads that wait for space to write; `false` if no
    /// thread waits.
    pub(crate) fn wake_writer(self) -> bool {
        if !self.has_waiting_writer() {
            return false;
        }
        if let Some(write_space) = field!(self, sk_write_space) {
            // SAFETY: As in `wake_reader`.
            unsafe { write_space(self.0) };
        }
        true
    }

    /// Calls `sk_state_change`, which wakes all threads after a change of state, including the
    /// exclusive waiters.
    pub(crate) fn wake_all(self) {
        if let Some(state_change) = field!(self, sk_state_change) {
            // SAFETY: As in `wake_reader`.
            unsafe { state_change(self.0) };
        }
    }

    /// Sends SIGIO for the end of the set-up of a connection, if the program wants it.
    pub(crate) fn signal_connected(self) {
        use bindings as b;
        // SAFETY: The object is valid.
        unsafe { b::sk_wake_async(self.0.cast(), b::SOCK_WAKE_IO as i32, b::POLL_OUT as i32) };
    }

    /// Sends SIGIO for the end of the peer's half of the stream, if the program wants it: as
    /// `tcp_fin()`, with POLL_HUP only if both halves have ended.
    pub(crate) fn signal_end(self) {
        use bindings as b;
        let both = field!(self, sk_shutdown) == b::SHUTDOWN_MASK as u8
            || u32::from(self.state()) == b::TCP_CLOSE;
        let band = if both { b::POLL_HUP } else { b::POLL_IN };
        // SAFETY: The object is valid.
        unsafe { b::sk_wake_async(self.0.cast(), b::SOCK_WAKE_WAITD as i32, band as i32) };
    }

    /// Calls `sk_error_report`, which wakes threads that wait for an error, and sends SIGIO.
    pub(crate) fn report_error(self) {
        // SAFETY: The object is valid, and has the callback of `sock_init_data()` or that of a user
        // in the kernel.
        unsafe { bindings::sk_error_report(self.0) };
    }

    /// Wakes threads that wait in a system call, for an event that is not visible to programs.
    /// epoll would interpret a wake-up without a key as any event, and report the present events as
    /// a new edge; so the key is an event that no socket reports, and that epoll and io_uring do
    /// not add to the events that programs ask for. (io_uring adds EPOLLNVAL.)
    pub(crate) fn wake_waiters(self) {
        self.wake(ALL, bindings::SDP_CONST_EPOLLMSG);
    }

    /// Wakes threads that wait for one of `events`: all non-exclusive waiters, and as many
    /// exclusive ones as `exclusive` says.
    fn wake(self, exclusive: i32, events: u32) {
        let guard = rcu::read_lock();
        // SAFETY: The object is valid, and RCU keeps its wait queue.
        unsafe {
            let queue = bindings::sk_wq_rcu(self.0.cast());
            if bindings::skwq_has_sleeper(queue) {
                bindings::__wake_up(
                    &raw mut (*queue).wait,
                    bindings::SDP_CONST_TASK_NORMAL,
                    exclusive,
                    ptr::without_provenance_mut(events as usize),
                );
            }
        }
        drop(guard);
    }
}
