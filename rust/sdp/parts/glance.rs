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

    pub(in crate::sdp) fn set(&self, value: bool) {
        self.0.store(value.into(), Relaxed);
    }
}

/// A number of bytes that is changed with the lock held, and read without; as [`Flag`].
pub(crate) struct Bytes(Atomic<u32>);

impl Bytes {
    const fn new() -> Self {
        Self(Atomic::new(0))
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }

    pub(in crate::sdp) fn set(&self, bytes: u32) {
        self.0.store(bytes, Relaxed);
    }
}

/// Of a socket.
pub(crate) struct Glance {
    /// Bytes that wait to be read.
    pub(crate) unread: Bytes,
    /// The buffer leaves room for so few receives that little more will come before somebody reads: a
    /// reader who waits for more must come before.
    pub(crate) starved: Flag,
    /// The peer's half has ended, but there are bytes of its adverts before that.
    pub(crate) coming: Flag,
    /// The next byte of the stream is the urgent one.
    pub(crate) at_mark: Flag,
    /// The urgent byte has come, and was not read by itself.
    pub(crate) urgent: Flag,
    /// A send has adverts out, or will have, or waits for room for one, so that no other can send.
    pub(crate) advertising: Flag,
    /// TCP_INQ: a receive says how many bytes are left.
    pub(crate) tells_unread: Flag,
    /// Bytes that the send buffer takes since memory was refused; 0 if it was not. As what
    /// `sk_stream_moderate_sndbuf()` makes of a send buffer whose size no program has set.
    pub(in crate::sdp) refused_sndbuf: Bytes,
    /// Bytes that are in no message yet.
    pub(in crate::sdp) notsent: Bytes,
    /// TCP_NOTSENT_LOWAT: from so many such bytes on a send waits, and so does a poller; 0 for none.
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
            tells_unread: Flag::new(),
            refused_sndbuf: Bytes::new(),
            notsent: Bytes::new(),
            notsent_lowat: Bytes::new(),
        }
    }

    /// The flags of a new connection; both queues are empty by then.
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

    /// The options that the listener of a new connection has.
    pub(in crate::sdp) fn inherit(&self, listener: &Self) {
        self.notsent_lowat.set(listener.notsent_lowat.get());
        self.tells_unread.set(listener.tells_unread.get());
    }

    /// Whether what is not sent is less than TCP_NOTSENT_LOWAT; less than a half of that to wake a program.
    pub(crate) fn is_below_lowat(&self, wakes: bool) -> bool {
        let lowat = u64::from(self.notsent_lowat.get());
        let notsent = u64::from(self.notsent.get());
        lowat == 0 || notsent << u32::from(wakes) < lowat
    }
}

/// A queue whose number of bytes is read without the lock. No change goes past its [`Bytes`].
pub(crate) struct Seen(FragQueue);

impl Seen {
    pub(in crate::sdp) const fn new() -> Self {
        Self(FragQueue::new())
    }

    /// Changes the queue whose bytes are those of the socket's [`Glance`].
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
