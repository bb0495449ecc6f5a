// SPDX-License-Identifier: GPL-2.0

//! What poll() looks at without the lock.
//!
//! It lies beside the stream, not in it: whoever has the lock has the only reference to the stream,
//! and nobody may read through another one meanwhile.

use core::ops::Deref;

use kernel::sync::atomic::{
    ordering::Relaxed,
    Atomic, //
};

use crate::mm::queue::FragQueue;

/// A fact that is changed with the lock held, and read without. Who changes it wakes the poller after:
/// that orders the two.
pub(crate) struct Flag(Atomic<i32>);

impl Flag {
    const fn new() -> Self {
        Self(Atomic::new(0))
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    pub(super) fn set(&self, value: bool) {
        self.0.store(value.into(), Relaxed);
    }
}

/// Of a socket.
pub(crate) struct Glance {
    unread_bytes: Atomic<i32>,
    /// The buffer leaves room for so few receives that little more will come before somebody reads: a
    /// reader who waits for more must come before.
    pub(crate) starved: Flag,
    /// The peer's half has ended, but there are bytes of its adverts before that.
    pub(crate) coming: Flag,
    /// A send has adverts out, or will have, or waits for room for one, so that no other can send.
    pub(crate) advertising: Flag,
    /// TCP_INQ: a receive says how many bytes are left.
    pub(crate) tells_unread: Flag,
    refused_sndbuf: Atomic<i32>,
    /// Bytes that are in no message yet.
    notsent_bytes: Atomic<i32>,
    /// TCP_NOTSENT_LOWAT: from so many such bytes on a send waits, and so does a poller; 0 for none.
    notsent_lowat: Atomic<i32>,
}

impl Glance {
    pub(super) const fn new() -> Self {
        Self {
            unread_bytes: Atomic::new(0),
            starved: Flag::new(),
            coming: Flag::new(),
            advertising: Flag::new(),
            tells_unread: Flag::new(),
            refused_sndbuf: Atomic::new(0),
            notsent_bytes: Atomic::new(0),
            notsent_lowat: Atomic::new(0),
        }
    }

    /// The flags of a new connection; nothing is unread by then.
    pub(super) fn reset(&self) {
        for flag in [&self.starved, &self.coming, &self.advertising] {
            flag.set(false);
        }
        self.refused_sndbuf.store(0, Relaxed);
        self.notsent_bytes.store(0, Relaxed);
    }

    /// The options that the listener of a new connection has.
    pub(super) fn inherit(&self, listener: &Self) {
        self.set_notsent_lowat(listener.notsent_lowat());
        self.tells_unread.set(listener.tells_unread.get());
    }

    /// Bytes that the send buffer takes since memory was refused; 0 if it was not. As what
    /// `sk_stream_moderate_sndbuf()` makes of a send buffer whose size no program has set.
    pub(super) fn refused_sndbuf(&self) -> u32 {
        self.refused_sndbuf.load(Relaxed) as u32
    }

    pub(super) fn set_refused_sndbuf(&self, bytes: u32) {
        self.refused_sndbuf.store(bytes as i32, Relaxed);
    }

    pub(super) fn notsent_lowat(&self) -> u32 {
        self.notsent_lowat.load(Relaxed) as u32
    }

    pub(super) fn set_notsent_lowat(&self, bytes: u32) {
        self.notsent_lowat.store(bytes as i32, Relaxed);
    }

    /// Whether what is not sent is less than TCP_NOTSENT_LOWAT; less than a half of that to wake a program.
    pub(crate) fn is_below_lowat(&self, wakes: bool) -> bool {
        let lowat = u64::from(self.notsent_lowat());
        let notsent = u64::from(self.notsent_bytes.load(Relaxed) as u32);
        lowat == 0 || notsent << u32::from(wakes) < lowat
    }

    /// Bytes that wait to be read.
    pub(crate) fn unread_bytes(&self) -> u32 {
        self.unread_bytes.load(Relaxed) as u32
    }
}

/// Bytes received that the program has not read. No change goes past [`Glance`].
pub(crate) struct Unread(FragQueue);

impl Unread {
    pub(super) const fn new() -> Self {
        Self(FragQueue::new())
    }

    /// Changes the queue of a socket that `glance` belongs to.
    pub(super) fn change<R>(
        &mut self,
        glance: &Glance,
        change: impl FnOnce(&mut FragQueue) -> R,
    ) -> R {
        let result = change(&mut self.0);
        glance.unread_bytes.store(self.0.bytes() as i32, Relaxed);
        result
    }
}

/// Bytes that a program has sent and that are in no message yet. No change goes past [`Glance`].
pub(crate) struct Unsent(FragQueue);

impl Unsent {
    pub(super) const fn new() -> Self {
        Self(FragQueue::new())
    }

    /// Changes the queue of a socket that `glance` belongs to.
    pub(super) fn change<R>(
        &mut self,
        glance: &Glance,
        change: impl FnOnce(&mut FragQueue) -> R,
    ) -> R {
        let result = change(&mut self.0);
        glance.notsent_bytes.store(self.0.bytes() as i32, Relaxed);
        result
    }
}

impl Deref for Unsent {
    type Target = FragQueue;

    fn deref(&self) -> &FragQueue {
        &self.0
    }
}

impl Deref for Unread {
    type Target = FragQueue;

    fn deref(&self) -> &FragQueue {
        &self.0
    }
}
