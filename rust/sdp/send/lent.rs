// SPDX-License-Identifier: GPL-2.0

//! sendmsg() with MSG_ZEROCOPY: the program leaves its memory alone until a notification.
//!
//! # Normal operation
//!
//! The call advertises the memory as [`super::azsdp`] does, and returns; or it writes to the buffer of a
//! reader of the peer that waits, as [`super::sink_write_async`] does. The pages need no protection, so there
//! is no snapshot, and they need not be whole ones. When the peer has read the bytes and the key is dead, the
//! pages are unpinned, and the core or io_uring tells the program.
//!
//! # When it ends otherwise
//!
//! What cannot go so is copied; if that is most of the send, the notification says so. It comes at the latest
//! when the connection's queue pair is gone: whoever aborts a connection hears of the memory, too. A send that
//! has taken nothing has no notification.

use core::ptr::NonNull;

use kernel::prelude::*;

use super::choose::LEAST_BYTES;
use super::sendmsg::Send;
use crate::bindings;
use crate::inet::sock::Sk;
use crate::kern::zerocopy::Notification;
use crate::mm::lent::Lent;
use crate::proto::choice::{
    Path,
    Reason,
    Wanted, //
};
use crate::proto::hello::Features;
use crate::sdp::conn::guard::{
    SockGuard,
    SockOwner, //
};
use crate::stats::counters::{
    Counter,
    Stats, //
};

/// A send with a notification.
pub(in crate::sdp) struct Lending {
    notification: Notification,
    /// Bytes that went without a copy.
    uncopied: usize,
}

impl Lending {
    /// The notification of a call that has one: of `request`, that of io_uring, or of a socket with
    /// SO_ZEROCOPY.
    ///
    /// # Errors
    ///
    /// `ENOBUFS`.
    pub(super) fn of_call(
        guard: &SockOwner<'_>,
        flags: u32,
        bytes: usize,
        request: Option<NonNull<bindings::ubuf_info>>,
    ) -> Result<Option<Self>> {
        if flags & bindings::MSG_ZEROCOPY == 0 || bytes == 0 {
            return Ok(None);
        }
        let sk: Sk = guard.sk();
        let notification = match request {
            // SAFETY: The core has a reference during the call.
            Some(request) => unsafe { Notification::of_request(request) },
            None if !sk.has_flag(bindings::sock_flags_SOCK_ZEROCOPY) => return Ok(None),
            // SAFETY: The socket is valid, and its lock is held by a system call.
            None => unsafe { Notification::new(sk.as_ptr(), bytes) }?,
        };
        Ok(Some(Self {
            notification,
            uncopied: 0,
        }))
    }

    /// Another reference to the notification.
    pub(super) fn share(&self) -> Notification {
        self.notification.share()
    }

    /// Takes note of bytes that were not copied.
    pub(super) fn add_uncopied(&mut self, bytes: usize) {
        self.uncopied += bytes;
    }

    /// The call ends, which has sent `bytes` bytes.
    pub(super) fn end(self, bytes: usize, stats: Stats) {
        if bytes == 0 {
            return self.notification.abort();
        }
        stats.inc(Counter::SendLent);
        if self.uncopied < bytes.div_ceil(2) {
            stats.inc(Counter::SendLentCopied);
            self.notification.say_copied();
        }
    }
}

impl Send<'_> {
    /// The next bytes that could be advertised, or written, as one or more; of a registered buffer, it may
    /// turn out that fewer of them lie in one piece.
    pub(super) fn piece_bytes(&self) -> usize {
        match &self.lending {
            Some(lending) if self.iter.is_registered() => {
                match lending.notification.is_of_request() {
                    true => self.iter.len(),
                    false => 0,
                }
            }
            _ => self.iter.piece_bytes(),
        }
    }

    /// Fewer bytes than these go by copy, when their pages are there.
    pub(super) fn least_lent(&self) -> usize {
        match self.lending {
            Some(_) if self.iter.is_registered() => LEAST_BYTES,
            _ => 0,
        }
    }
}

impl SockGuard<'_> {
    /// The way of the next bytes of a send with a notification; if they go by copy, `send` says how many.
    pub(super) fn choose_path_of_lent(&mut self, send: &mut Send<'_>) -> Path {
        // Behind pieces that are empty.
        send.iter.advance(0);
        let bytes = send.piece_bytes();
        let conn = self.conn();
        let why = if conn.options.wanted == Wanted::Only(Path::Copy) {
            Some(Reason::Forced)
        } else if !conn.adverts.features.contains(Features::SOURCE) {
            Some(Reason::NotAgreed)
        } else if bytes == 0 {
            Some(Reason::NotPinnable)
        } else if bytes < LEAST_BYTES {
            Some(Reason::BelowThreshold)
        } else {
            None
        };
        let Some(why) = why else {
            return Path::Asynchronous;
        };
        if why != Reason::Forced {
            self.fallback(why);
        }
        send.by_copy = match bytes {
            0 => send.iter.len(),
            bytes => bytes,
        };
        Path::Copy
    }

    /// Bytes of the next piece of such a send: all that there is, or what fills the buffer of a reader that
    /// waits.
    fn most_lent(&mut self) -> usize {
        match self.sink_room() as usize {
            room if room > 0 && self.conn().options.wanted.sinks() => room,
            _ => usize::MAX,
        }
    }

    /// Whether the next piece is for that reader, as far as can be told before its pages are there.
    pub(super) fn lends_to_sink(&mut self, send: &Send<'_>) -> bool {
        send.lending.is_some() && {
            let bytes = send.piece_bytes().min(self.most_lent());
            self.fits_sink(send, bytes)
        }
    }
}

impl SockOwner<'_> {
    pub(super) fn take_lent(
        &mut self,
        send: &mut Send<'_>,
        notification: Notification,
    ) -> Result<Lent> {
        let link = self.conn().link.as_ref().ok_or(ENOTCONN)?;
        let pages = link.max_region_pages() as usize;
        let (most, stats) = (self.most_lent().min(send.iter.len()), self.stats);
        let iter = &mut send.iter;
        self.unlocked(|| Lent::take(iter, most, pages, notification, stats))
    }
}
