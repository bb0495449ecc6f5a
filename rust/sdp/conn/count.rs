// SPDX-License-Identifier: GPL-2.0

//! Counts events for a connection and its namespace together ([`Counts`]), and records the last
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
    /// Adds `n` to a counter of the connection and to that of its namespace.
    pub(crate) fn count(&mut self, what: Kept, n: u64) {
        let stats = self.stats;
        self.conn().measured.counts.add(stats, what, n);
    }

    /// Counts an occasion on which bytes did not take the preferred path: a send was copied, or a
    /// receive waited in its call.
    pub(crate) fn count_by_copy(&mut self, why: Reason) {
        let to = (self.sk(), self.stats);
        self.conn().measured.counts.add_by_copy(to, why);
    }

    /// Records that a call of send() has taken `bytes` bytes.
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

/// The recorded messages; `None` if messages are not recorded.
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

/// Starts or stops the recording of a connection's messages.
pub(crate) fn set_messages(sock: &SdpSock, new: Option<Messages>) {
    let old = core::mem::replace(&mut sock.lock().conn().measured.counts.messages, new);
    drop(old);
}
