// SPDX-License-Identifier: GPL-2.0

//! What calls count for a connection and for its namespace at once ([`Counts`]); the list of the last
//! messages.
//!
//! [`Counts`]: crate::sdp::parts::counts::Counts

use kernel::prelude::*;

use super::guard::SockGuard;
use super::sock::SdpSock;
use crate::proto::choice::Reason;
use crate::stats::histogram::Messages;
use crate::stats::tally::Kept;

impl SockGuard<'_> {
    /// Counts for the connection and for its namespace.
    pub(crate) fn count(&mut self, what: Kept, n: u64) {
        let stats = self.stats;
        self.conn().measured.counts.add(stats, what, n);
    }

    /// The same of bytes that should have gone, or come, without a copy and did not.
    pub(crate) fn fallback(&mut self, why: Reason) {
        let to = (self.sk(), self.stats);
        self.conn().measured.counts.add_fallback(to, why);
    }

    /// A call of send() has taken so many bytes.
    pub(in crate::sdp) fn note_send(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let (_, flags) = self.gfp();
        if let Some(histograms) = self.conn().measured.counts.histograms(flags) {
            histograms.send_bytes.add(bytes as u64);
        }
    }
}

/// The messages that were kept; `None` if none shall be.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn messages(sock: &SdpSock) -> Result<Option<Messages>> {
    let mut copy = Messages::new()?;
    let mut guard = sock.lock();
    let Some(kept) = &guard.conn().measured.counts.messages else {
        return Ok(None);
    };
    kept.copy_to(&mut copy);
    Ok(Some(copy))
}

/// Has the messages of a connection kept, or kept no longer.
pub(crate) fn set_messages(sock: &SdpSock, new: Option<Messages>) {
    let old = core::mem::replace(&mut sock.lock().conn().measured.counts.messages, new);
    drop(old);
}
