// SPDX-License-Identifier: GPL-2.0

//! sendmsg() of memory that needs no protection. With MSG_ZEROCOPY the program does not change the
//! memory until it gets a notification. Pages of files and pipes (sendfile(), splice()) are sent
//! with the content that they have when the peer reads them, as with TCP.
//!
//! # Normal operation
//!
//! The call advertises the memory as [`super::azsdp`] does, and returns; or it writes to the buffer
//! of a waiting reader of the peer, as [`super::sink_write_async`] does. No snapshot is taken, and
//! the bytes need not be whole pages. When the peer has read the bytes and the key is invalid, the
//! pages are given back, and the core or io_uring notifies the program.
//!
//! # Exceptions
//!
//! Bytes that cannot go this way are copied; if that is more than half of the send, the
//! notification says so. The notification comes at the latest when the connection's queue pair is
//! gone, so also after the program has aborted the connection. A send that has taken no bytes has
//! no notification.

use kernel::prelude::*;

use super::choose::Chooser;
use super::sendmsg::Send;
use crate::bindings;
use crate::inet::sock::Sk;
use crate::kern::errno::ENOTCONN;
use crate::kern::zerocopy::{
    Notification,
    Request, //
};
use crate::mm::lent::Lent;
use crate::proto::choice::{
    may_lend,
    LentPiece,
    Path,
    MIN_UNCOPIED_BYTES, //
};
use crate::sdp::conn::guard::SockOwner;
use crate::stats::counters::{
    Counter,
    Stats, //
};

/// A send of memory that needs no protection.
pub(in crate::sdp) struct Lending {
    /// `None` for pages of files and pipes: no program is notified about them.
    notification: Option<Notification>,
    /// Bytes that went without a copy.
    uncopied: usize,
}

impl Lending {
    /// The lending of a call: it sends pages that the core has put into the message, or it has
    /// MSG_ZEROCOPY and a notification, either that of `request`, from io_uring, or a new one of a
    /// socket with SO_ZEROCOPY. `None` for all other calls.
    ///
    /// # Errors
    ///
    /// `ENOBUFS`.
    pub(super) fn of_call(
        guard: &SockOwner<'_>,
        flags: u32,
        bytes: usize,
        request: Option<Request<'_>>,
    ) -> Result<Option<Self>> {
        let sk: Sk = guard.sk();
        let spliced = flags & bindings::MSG_SPLICE_PAGES != 0;
        if bytes == 0 || (flags & bindings::MSG_ZEROCOPY == 0 && !spliced) {
            return Ok(None);
        }
        let notification = match request {
            _ if spliced => None,
            Some(request) => Some(Notification::of_request(request)),
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

    /// Counts bytes that were not copied.
    pub(super) fn add_uncopied(&mut self, bytes: usize) {
        self.uncopied += bytes;
    }

    /// Ends the call, which has sent `bytes` bytes.
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
    /// How many of the next bytes could be advertised or written. If the bytes are in pages without
    /// an address, it may turn out that fewer of them lie in one piece.
    pub(super) fn piece_bytes(&self) -> usize {
        match self.lending {
            Some(_) if self.iter.has_pages() => self.iter.len(),
            _ => self.iter.piece_bytes(),
        }
    }

    /// The minimum number of bytes that are sent without a copy once their pages were taken: fewer
    /// bytes are copied.
    pub(super) fn least_lent(&self) -> u32 {
        match self.lending {
            Some(_) if self.iter.has_pages() => MIN_UNCOPIED_BYTES,
            _ => 0,
        }
    }
}

impl Chooser<'_> {
    /// Chooses the path of the next bytes of a send of memory that needs no protection. If they go
    /// by copy, `by_copy` of the send is their number.
    pub(super) fn choose_path_of_lent(&mut self, send: &mut Send<'_>) -> Path {
        // Skip empty pieces.
        send.iter.advance(0);
        let bytes = send.piece_bytes();
        let asked = send
            .lending
            .as_ref()
            .is_some_and(|l| l.notification.is_some());
        let possible = may_lend(&LentPiece {
            piece_bytes: bytes as u64,
            asked,
            wanted: self.options.wanted,
            threshold_bytes: self.threshold as u64,
            features: self.adverts.features,
        });
        let Err(why) = possible else {
            return Path::Asynchronous;
        };
        if let Some(why) = why.filter(|_| asked) {
            self.count_by_copy(why);
        }
        send.by_copy = match bytes {
            0 => send.iter.len(),
            bytes => bytes,
        };
        Path::Copy
    }
}

impl Send<'_> {
    pub(super) fn take_lent(
        &mut self,
        guard: &mut SockOwner<'_>,
        notification: Option<Notification>,
    ) -> Result<Lent> {
        let most = Chooser::of(guard).most_lent(self).min(self.iter.len());
        let link = guard.conn().link.as_ref().ok_or(ENOTCONN)?;
        let pages = link.max_region_pages() as usize;
        let stats = guard.stats;
        let iter = &mut self.iter;
        guard.unlocked(|| Lent::take(iter, most, pages, notification, stats))
    }
}
