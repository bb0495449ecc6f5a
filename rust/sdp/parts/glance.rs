// SPDX-License-Identifier: GPL-2.0

//! The state that poll() reads without the lock.
//!
//! This state is not part of `Connection`: the holder of the lock has a mutable reference to the
//! `Connection`, so no other thread may have a reference to the `Connection` at the same time.

use core::ops::Deref;
use core::ptr;

use kernel::sync::atomic::{
    ordering::Relaxed,
    Atomic,
    AtomicType, //
};

use crate::mm::queue::FragQueue;

/// As `load(Relaxed)`, without the call of a C function that the crate makes of it: each request on a
/// connection reads thirty such values.
fn read_once<T: Copy + AtomicType>(value: &Atomic<T>) -> T {
    // SAFETY: The pointer is valid. The access is READ_ONCE() of the memory model: no other access
    // of these values is larger or not atomic.
    unsafe { ptr::read_volatile(value.as_ptr()) }
}

/// A flag that is changed with the lock held, and read without it. Code that changes the flag wakes
/// the poller afterwards, which orders the two accesses.
pub(crate) struct Flag(Atomic<i32>);

impl Flag {
    const fn new() -> Self {
        Self(Atomic::new(0))
    }

    pub(crate) fn get(&self) -> bool {
        read_once(&self.0) != 0
    }

    pub(in crate::sdp) fn set(&self, value: bool) {
        self.0.store(value.into(), Relaxed);
    }
}

/// A number of bytes that is changed with the lock held, and read without it, like a [`Flag`].
pub(crate) struct Bytes(Atomic<u32>);

impl Bytes {
    const fn new() -> Self {
        Self(Atomic::new(0))
    }

    pub(crate) fn get(&self) -> u32 {
        read_once(&self.0)
    }

    pub(in crate::sdp) fn set(&self, bytes: u32) {
        self.0.store(bytes, Relaxed);
    }
}

/// The state of a socket that is read without the lock.
pub(crate) struct Glance {
    /// Bytes that wait to be read.
    pub(crate) unread: Bytes,
    /// The buffer has room for so few receives that little more will arrive before the next read.
    /// So a reader that waits for more bytes must read before they arrive.
    pub(crate) starved: Flag,
    /// The peer's half has ended, but bytes of its adverts come before the end.
    pub(crate) coming: Flag,
    /// The next byte of the stream is the urgent one.
    pub(crate) at_mark: Flag,
    /// The urgent byte has arrived, and was not read out of line.
    pub(crate) urgent: Flag,
    /// A send has adverts out, or will have, or waits for room for one: no other call can send.
    pub(crate) advertising: Flag,
    /// A TCP socket has the place of this one (net.sdp.tcp_fallback), for good.
    pub(crate) is_tcp: Flag,
    /// TCP_INQ: a receive reports how many bytes are left.
    pub(crate) tells_unread: Flag,
    /// The size of the send buffer since memory was refused; 0 if it was not. It corresponds to the
    /// size that `sk_stream_moderate_sndbuf()` gives to a send buffer if no program has set the
    /// size.
    pub(in crate::sdp) refused_sndbuf: Bytes,
    /// Bytes of the send queue that are in no message yet.
    pub(in crate::sdp) notsent: Bytes,
    /// TCP_NOTSENT_LOWAT: sends and pollers wait while the send queue has at least this many bytes;
    /// 0 for no limit.
    pub(in crate::sdp) notsent_lowat: Bytes,
}

impl Glance {
    pub(in crate::sdp) const fn new() -> Self {
        Self {
            unread: Bytes::new(),
            starved: Flag::new(),
            coming: Flag::new(),
            at_mark: Flag::new(),
            urgent: Flag::new(),
            advertising: Flag::new(),
            is_tcp: Flag::new(),
            tells_unread: Flag::new(),
            refused_sndbuf: Bytes::new(),
            notsent: Bytes::new(),
            notsent_lowat: Bytes::new(),
        }
    }

    /// Resets the flags for a new connection; both queues are already empty.
    pub(in crate::sdp) fn reset(&self) {
        for flag in [
            &self.starved,
            &self.coming,
            &self.at_mark,
            &self.urgent,
            &self.advertising,
        ] {
            flag.set(false);
        }
        self.refused_sndbuf.set(0);
    }

    /// Copies the options of the listener to a new connection.
    pub(in crate::sdp) fn inherit(&self, listener: &Self) {
        self.notsent_lowat.set(listener.notsent_lowat.get());
        self.tells_unread.set(listener.tells_unread.get());
    }

    /// Whether the send queue has fewer bytes than TCP_NOTSENT_LOWAT; fewer than a half of it if a
    /// program is to be woken.
    pub(crate) fn is_below_lowat(&self, wakes: bool) -> bool {
        let lowat = u64::from(self.notsent_lowat.get());
        let notsent = u64::from(self.notsent.get());
        lowat == 0 || notsent << u32::from(wakes) < lowat
    }
}

/// A queue whose number of bytes is read without the lock. Every change also updates its [`Bytes`].
pub(crate) struct Seen(FragQueue);

impl Seen {
    pub(in crate::sdp) const fn new() -> Self {
        Self(FragQueue::new())
    }

    /// Changes the queue, and updates `bytes`, its number of bytes in the socket's [`Glance`].
    pub(in crate::sdp) fn change<R>(
        &mut self,
        bytes: &Bytes,
        change: impl FnOnce(&mut FragQueue) -> R,
    ) -> R {
        let result = change(&mut self.0);
        bytes.set(self.0.bytes());
        result
    }
}

impl Deref for Seen {
    type Target = FragQueue;

    fn deref(&self) -> &FragQueue {
        &self.0
    }
}
