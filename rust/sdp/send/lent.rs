// SPDX-License-Identifier: GPL-2.0

//! sendmsg() of memory that needs no protection: with MSG_ZEROCOPY the program leaves it alone until a
//! notification comes; and pages of files and pipes (sendfile(), splice()) are sent as they are when the peer
//! reads them, as with TCP.
//!
//! # Normal operation
//!
//! The call advertises the memory as [`super::azsdp`] does, and returns; or it writes to the buffer of a
//! reader of the peer that waits, as [`super::sink_write_async`] does. There is no snapshot, and the pages need
//! not be whole ones. When the peer has read the bytes and the key is dead, the pages are given back, and the
//! core or io_uring tells the program.
//!
//! # When it ends otherwise
//!
//! What cannot go so is copied; if that is most of the send, the notification says so. It comes at the latest
//! when the connection's queue pair is gone: whoever aborts a connection hears of the memory, too. A send that
//! has taken nothing has no notification.

use core::ptr::NonNull;

use kernel::prelude::*;

use super::choose::{
    Ways,
    LEAST_BYTES, //
};
use super::sendmsg::Send;
use crate::bindings;
use crate::inet::sock::Sk;
use crate::kern::errno::ENOTCONN;
use crate::kern::zerocopy::Notification;
use crate::mm::lent::Lent;
use crate::proto::choice::{
    self,
    no_lending,
    Path,
    Reason, //
};
use crate::sdp::conn::guard::SockOwner;
use crate::stats::counters::{
    Counter,
    Stats, //
};

/// A send of memory that needs no protection.
pub(in crate::sdp) struct Lending {
    /// `None` of pages of files and pipes, of which nobody is told.
    notification: Option<Notification>,
    /// Bytes that went without a copy.
    uncopied: usize,
}

impl Lending {
    /// What a call sends so: the pages that the core has put into the message, or the memory of a call that has
    /// a notification, of `request`, that of io_uring, or of a socket with SO_ZEROCOPY.
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
        let sk: Sk = guard.sk();
        let spliced = flags & bindings::MSG_SPLICE_PAGES != 0;
        if bytes == 0 || (flags & bindings::MSG_ZEROCOPY == 0 && !spliced) {
            return Ok(None);
        }
        let notification = match request {
            _ if spliced => None,
            // SAFETY: The core has a reference during the call.
            Some(request) => Some(unsafe { Notification::of_request(request) }),
            None if !sk.has_flag(bindings::sock_flags_SOCK_ZEROCOPY) => return Ok(None),
            // SAFETY: The socket is valid, and its lock is held by a system call.
            None => Some(unsafe { Notification::new(sk.as_ptr(), bytes) }?),
        };
        Ok(Some(Self {
            notification,
            uncopied: 0,
        }))
    }

    /// Another reference to the notification.
    pub(super) fn share(&self) -> Option<Notification> {
        self.notification.as_ref().map(Notification::share)
    }

    /// Takes note of bytes that were not copied.
    pub(super) fn add_uncopied(&mut self, bytes: usize) {
        self.uncopied += bytes;
    }

    /// The call ends, which has sent `bytes` bytes.
    pub(super) fn end(self, bytes: usize, stats: Stats) {
        let Some(notification) = self.notification else {
            return;
        };
        if bytes == 0 {
            return notification.abort();
        }
        stats.inc(Counter::SendLent);
        if self.uncopied < bytes.div_ceil(2) {
            stats.inc(Counter::SendLentCopied);
            notification.say_copied();
        }
    }
}

impl Send<'_> {
    /// The next bytes that could be advertised, or written, as one or more; of bytes in pages, it may turn out
    /// that fewer of them lie in one piece.
    pub(super) fn piece_bytes(&self) -> usize {
        match self.lending {
            Some(_) if self.iter.has_pages() => self.iter.len(),
            _ => self.iter.piece_bytes(),
        }
    }

    /// Fewer bytes than these go by copy, when their pages are there.
    pub(super) fn least_lent(&self) -> usize {
        match self.lending {
            Some(_) if self.iter.has_pages() => LEAST_BYTES,
            _ => 0,
        }
    }
}

impl Ways<'_> {
    /// The way of the next bytes of such a send; if they go by copy, `send` says how many.
    pub(super) fn choose_path_of_lent(&mut self, send: &mut Send<'_>) -> Path {
        // Behind pieces that are empty.
        send.iter.advance(0);
        let bytes = send.piece_bytes();
        let asked = send
            .lending
            .as_ref()
            .is_some_and(|l| l.notification.is_some());
        let why = no_lending(&choice::Lending {
            piece_bytes: bytes as u64,
            least_bytes: LEAST_BYTES as u64,
            asked,
            wanted: self.options.wanted,
            threshold_bytes: self.threshold as u64,
            features: self.adverts.features,
        });
        let Some(why) = why else {
            return Path::Asynchronous;
        };
        if why != Reason::Forced && asked {
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
    fn most_lent(&self) -> usize {
        match self.sink_room() as usize {
            room if room > 0 && self.options.wanted.sinks() => room,
            _ => usize::MAX,
        }
    }

    /// Whether the next piece is for that reader, as far as can be told before its pages are there.
    pub(super) fn lends_to_sink(&self, send: &Send<'_>) -> bool {
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
        notification: Option<Notification>,
    ) -> Result<Lent> {
        let most = Ways::of(self).most_lent().min(send.iter.len());
        let link = self.conn().link.as_ref().ok_or(ENOTCONN)?;
        let pages = link.max_region_pages() as usize;
        let stats = self.stats;
        let iter = &mut send.iter;
        self.unlocked(|| Lent::take(iter, most, pages, notification, stats))
    }
}
