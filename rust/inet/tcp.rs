// SPDX-License-Identifier: GPL-2.0

//! A TCP socket that listens, and whose connections a listener of SDP also accepts.
//!
//! The TCP socket belongs to the program, which has opened and bound it and has called listen(). So
//! security modules and control groups have checked these calls as they do for any TCP socket, and
//! a connection has the options of TCP that the program has set. If the module created the socket,
//! nobody would check bind() and listen(), because the kernel exports no function that asks
//! security modules.
//!
//! The module has a reference to the file, and an entry in the wait queue of the socket, as epoll
//! has. It does not replace the callbacks of the socket, because each connection inherits them.

use core::marker::PhantomData;
use core::ptr::{
    self,
    NonNull, //
};

use kernel::error::to_result;
use kernel::fs::file::{
    File,
    LocalFile, //
};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::{
    Arc,
    UniqueArc, //
};
use kernel::types::Opaque;

use crate::bindings;
use crate::kern::errno::{
    EAFNOSUPPORT,
    ENOTSOCK,
    EPROTONOSUPPORT, //
};

/// A socket that is told of the connections of a TCP socket.
pub(crate) trait OnConnection: Sync {
    /// Called after a connection was established, in any context, with interrupts off and the lock
    /// of the wait queue of the TCP socket held.
    fn on_connection(&self);
}

/// A TCP socket that listens, and a socket `T` that is told of its connections.
///
/// # Invariants
///
/// `socket` is the TCP socket of `_file`. The field `private` of `entry` points to a `T` that lives
/// at least as long as the value. Once the constructor has returned, `entry` is in the wait queue
/// of `socket`.
pub(crate) struct TcpListener<T: OnConnection> {
    _file: ARef<File>,
    socket: NonNull<bindings::socket>,
    entry: Opaque<kernel::bindings::wait_queue_entry>,
    _told: PhantomData<*const T>,
}

// SAFETY: A file and its socket may be used from any thread. The lock of the wait queue protects
// `entry`. The `T` may be told from any thread, because it is `Sync`.
unsafe impl<T: OnConnection> Send for TcpListener<T> {}

// SAFETY: As above.
unsafe impl<T: OnConnection> Sync for TcpListener<T> {}

/// The TCP socket of a descriptor of the current process, and its file.
///
/// # Errors
///
/// `EBADF`, `ENOTSOCK`; `EPROTONOSUPPORT` if it is no TCP socket.
///
/// # Safety
///
/// The caller is in a system call that does not use the position of a file.
pub(super) unsafe fn of_descriptor(fd: i32) -> Result<(ARef<File>, NonNull<bindings::socket>)> {
    let file = LocalFile::fget(fd.try_into().map_err(|_| EBADF)?)?;
    // SAFETY: The caller promises that no `fdget_pos()` is active in this thread.
    let file = unsafe { LocalFile::assume_no_fdget_pos(file) };
    // SAFETY: `file` is valid.
    let socket = unsafe { bindings::sock_from_file(file.as_ptr().cast()) };
    let socket = NonNull::new(socket).ok_or(ENOTSOCK)?;
    // SAFETY: The socket is valid while there is a reference to its file, and has its `sk` until
    // the file is released.
    let sk = unsafe { (*socket.as_ptr()).sk };
    // SAFETY: As above.
    if sk.is_null() || !unsafe { bindings::sk_is_tcp(sk.cast()) } {
        return Err(EPROTONOSUPPORT);
    }
    Ok((file, socket))
}

impl<T: OnConnection> TcpListener<T> {
    /// The TCP socket of a descriptor of the current process. From now on, `told` is told of its
    /// connections.
    ///
    /// # Errors
    ///
    /// `EBADF`, `ENOTSOCK`; `EPROTONOSUPPORT` if it is no TCP socket; `EAFNOSUPPORT` if its address
    /// family is not `family`; `EINVAL` if it does not listen; `ENOMEM`.
    ///
    /// # Safety
    ///
    /// The caller is in a system call that does not use the position of a file. `told` lives at
    /// least as long as the value.
    pub(crate) unsafe fn of_descriptor(fd: i32, family: u16, told: &T) -> Result<Arc<Self>> {
        // SAFETY: As the caller promises.
        let (file, socket) = unsafe { of_descriptor(fd)? };
        // SAFETY: The socket is valid while there is a reference to its file, and has its `sk`
        // until the file is released.
        let sk = unsafe { (*socket.as_ptr()).sk };
        // SAFETY: As above; the family of a listener does not change.
        if unsafe { (*sk).__sk_common.skc_family } != family {
            return Err(EAFNOSUPPORT);
        }
        // Allocated first: a value that is dropped takes its entry out of the queue.
        let room = UniqueArc::new_uninit(GFP_KERNEL)?;
        // INVARIANT: The file is that of the socket, which is a TCP socket. The caller promises
        // that `told` lives long enough.
        let this: Arc<Self> = room
            .write(Self {
                _file: file,
                socket,
                entry: Opaque::new(kernel::bindings::wait_queue_entry {
                    flags: 0,
                    private: ptr::from_ref(told).cast_mut().cast(),
                    func: Some(wake::<T>),
                    entry: Default::default(),
                }),
                _told: PhantomData,
            })
            .into();
        // SAFETY: The queue belongs to the socket, and lives as long as the file. The entry is
        // initialised, does not move, and is removed when `this` is dropped.
        unsafe { bindings::add_wait_queue(this.queue(), this.entry.get().cast()) };
        match this.listens() {
            true => Ok(this),
            false => Err(EINVAL),
        }
    }

    fn queue(&self) -> *mut bindings::wait_queue_head {
        // SAFETY: By the type invariant the socket is valid; only an address is computed.
        unsafe { &raw mut (*self.socket.as_ptr()).wq.wait }
    }

    fn sk(&self) -> *mut bindings::sock {
        // SAFETY: By the type invariant the socket is valid, and has its `sk` while the file is
        // open.
        unsafe { (*self.socket.as_ptr()).sk }
    }

    /// Whether the socket listens. The program may have ended this, if it has another descriptor of
    /// the socket.
    pub(crate) fn listens(&self) -> bool {
        // SAFETY: As in `sk`; the core also reads the field without the lock.
        let state = unsafe { ptr::read_volatile(&raw const (*self.sk()).__sk_common.skc_state) };
        u32::from(state) == bindings::TCP_LISTEN
    }

    /// Whether a connection waits for accept(). Read without a lock, as the poll() of TCP does.
    pub(crate) fn is_ready(&self) -> bool {
        // SAFETY: The `sk` is a valid TCP socket.
        self.listens() && unsafe { bindings::inet_csk_listen_poll(self.sk().cast()) } != 0
    }

    /// Gives the oldest connection to `new`, which is a TCP socket from now on. Takes the lock of
    /// the TCP socket, and of the connection.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if no connection waits, `EINVAL` if the socket does not listen any more.
    ///
    /// # Safety
    ///
    /// `new` is the new socket of an accept(), which no other thread can use yet, and which has the
    /// operations of a listener of the module, and a reference to their owner.
    pub(crate) unsafe fn accept(&self, new: *mut bindings::socket) -> Result {
        let mut arg = bindings::proto_accept_arg {
            flags: bindings::O_NONBLOCK as i32,
            ..Default::default()
        };
        // The operations change before `inet_accept()` connects `new` with the connection: from
        // then on, BPF programs and callbacks that know only the connection use the operations of
        // `new`.
        //
        // SAFETY: By the type invariant the socket is valid, and its operations, which are static,
        // have an owner that is loaded. `new` has one reference to the owner of its operations,
        // which changes with them; the owner of the module's operations is this module, which the
        // listener keeps loaded. The rest is as the caller promises.
        unsafe {
            let own = (*new).ops;
            let of_tcp = ptr::read_volatile(&raw const (*self.socket.as_ptr()).ops);
            bindings::__module_get((*of_tcp).owner);
            ptr::write_volatile(&raw mut (*new).ops, of_tcp);
            let accepted = bindings::inet_accept(self.socket.as_ptr(), new, &raw mut arg);
            let left = if accepted == 0 {
                own
            } else {
                ptr::write_volatile(&raw mut (*new).ops, own);
                of_tcp
            };
            bindings::module_put((*left).owner);
            to_result(accepted)
        }
    }
}

impl<T: OnConnection> Drop for TcpListener<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the entry is in this queue, which lives until the file is
        // released, after this.
        unsafe { bindings::remove_wait_queue(self.queue(), self.entry.get().cast()) };
    }
}

/// # Safety
///
/// Called by the core, for the entry of a [`TcpListener<T>`] and under the lock of its wait queue.
unsafe extern "C" fn wake<T: OnConnection>(
    entry: *mut kernel::bindings::wait_queue_entry,
    _mode: u32,
    _flags: i32,
    key: *mut kernel::ffi::c_void,
) -> i32 {
    let events = key.addr() as u32;
    if events == 0 || events & bindings::SDP_CONST_EPOLLIN != 0 {
        // SAFETY: The entry is in the queue, so its `TcpListener` exists, and by the type invariant
        // so does the `T`.
        unsafe { &*(*entry).private.cast::<T>() }.on_connection();
    }
    0
}
