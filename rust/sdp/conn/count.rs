// SPDX-License-Identifier: GPL-2.0

//! What is counted for a connection and for its namespace at once, and traced; the list of the last
//! messages.

use kernel::prelude::*;

use super::guard::SockGuard;
use super::sock::SdpSock;
use crate::kern::time::now;
use crate::proto::bsdh::Bsdh;
use crate::proto::choice::Reason;
use crate::sdp::parts::posted::Posted;
use crate::stats::histogram::{
    Histograms,
    Messages,
    Noted, //
};
use crate::stats::tally::Kept;
use crate::trace;

impl SockGuard<'_> {
    /// Counts for the connection and for its namespace.
    pub(crate) fn count(&mut self, what: Kept, n: u64) {
        self.stats.add_kept(what, n);
        self.conn().measured.counts.tally.add(what, n);
    }

    /// The same of bytes of the stream that have come.
    pub(in crate::sdp) fn count_data_received(&mut self, bytes: u32) {
        self.conn().measured.pacing.received_at = now();
        self.count(Kept::RxBytes, bytes.into());
    }

    /// The same of a message sent, with so many bytes of payload.
    pub(crate) fn count_sent(&mut self, header: &Bsdh, payload: u32) {
        let conn = self.conn();
        let credits = conn.credits.available();
        conn.measured.counts.tally.add_sent(header.mid);
        if let Some(messages) = &mut conn.measured.counts.messages {
            messages.add(Noted::new(header, true, payload, credits));
        }
        self.stats.sent(header.mid);
        trace::sent(self.sk(), header, payload, credits);
    }

    /// The same of a message received.
    pub(crate) fn count_received(&mut self, header: &Bsdh, payload: u32) {
        let conn = self.conn();
        let credits = conn.credits.available();
        conn.measured.counts.tally.add_received(header.mid);
        if let Some(messages) = &mut conn.measured.counts.messages {
            messages.add(Noted::new(header, false, payload, credits));
        }
        self.stats.received(header.mid);
        trace::received(self.sk(), header, payload, credits);
    }

    /// The same of bytes that should have gone, or come, without a copy and did not.
    pub(crate) fn fallback(&mut self, why: Reason) {
        self.stats.fallback(why);
        trace::fallback(self.sk(), why);
        self.conn().measured.counts.tally.add_by_copy(why);
    }

    /// For the histograms, from the first value on. Without memory there are none.
    fn with_histograms(&mut self) -> Option<&mut Histograms> {
        let (_, flags) = self.gfp();
        let conn = self.conn();
        if conn.measured.counts.histograms.is_none() {
            conn.measured.counts.histograms =
                KBox::new(Histograms::NONE, flags | __GFP_NOWARN).ok();
        }
        conn.measured.counts.histograms.as_deref_mut()
    }

    /// A call of send() has taken so many bytes.
    pub(in crate::sdp) fn note_send(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        if let Some(histograms) = self.with_histograms() {
            histograms.send_bytes.add(bytes as u64);
        }
    }

    /// An advert of ours has ended.
    pub(in crate::sdp) fn note_end_of(&mut self, advert: &Posted) {
        if let Some(histograms) = self.with_histograms() {
            histograms.advert_us.add(advert.age_us());
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
