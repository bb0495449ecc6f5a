// SPDX-License-Identifier: GPL-2.0

//! The received bytes of a connection, and the state of their readers.

use kernel::time::Jiffies;

use super::glance::{
    Glance,
    Seen, //
};
use crate::kern::time::{
    now,
    RealNs, //
};
use crate::mm::frag::UnusedPage;
use crate::proto::choice::MIN_UNCOPIED_BYTES;
use crate::proto::urgent::UrgentReceive;

/// Bytes that wait to be read.
pub(crate) struct RecvQueue {
    pub(in crate::sdp) queue: Seen,
    /// Which byte of the stream is urgent.
    pub(in crate::sdp) urgent: UrgentReceive,
    /// The number of next bytes of the stream that must be dropped, but are not in the queue yet.
    pub(in crate::sdp) losses_due: u32,
    /// When bytes last arrived in the memory of a call that waits for them, until the call takes
    /// the time; `None` if nobody has asked for it.
    pub(in crate::sdp) direct_arrived: Option<RealNs>,
    /// The position in the stream at which SIOCATMARK last had to wait, and since when.
    open_at: Option<(u64, Jiffies)>,
    /// The page into which short payloads are copied.
    pub(in crate::sdp) short_page: Option<UnusedPage>,
    /// A payload was copied there since the last check of `timers/tx_watchdog`.
    pub(in crate::sdp) short_page_used: bool,
    /// The peer's DisConn was received: the end of the stream follows the queue.
    pub(in crate::sdp) fin_received: bool,
    /// A reader must be woken, because of bytes, or the end of the stream or of the connection.
    pub(in crate::sdp) readable: bool,
    /// Free bytes in the buffer of a reader that waits in a call, for bytes that it takes from the
    /// peer itself; 0 if it cannot take any.
    pub(in crate::sdp) reader_bytes: Option<usize>,
}

impl RecvQueue {
    pub(in crate::sdp) const fn new() -> Self {
        Self {
            queue: Seen::new(),
            urgent: UrgentReceive::new(),
            losses_due: 0,
            direct_arrived: None,
            open_at: None,
            short_page: None,
            short_page_used: false,
            fin_received: false,
            readable: false,
            reader_bytes: None,
        }
    }

    /// Whether a reader waits that can take the peer's bytes itself.
    pub(in crate::sdp) fn has_direct_reader(&self) -> bool {
        let bytes = self.reader_bytes;
        bytes.is_some_and(|bytes| bytes >= MIN_UNCOPIED_BYTES as usize)
    }

    /// Since when calls of SIOCATMARK have waited at the current position of the program in the
    /// stream.
    pub(in crate::sdp) fn open_since(&mut self) -> Jiffies {
        let taken = self.urgent.taken();
        match self.open_at {
            Some((place, since)) if place == taken => since,
            _ => {
                let since = now();
                self.open_at = Some((taken, since));
                since
            }
        }
    }

    /// Records that the program has received or skipped the next `bytes` bytes of the stream.
    pub(in crate::sdp) fn taken(&mut self, bytes: u32, glance: &Glance) {
        let had_mark = self.urgent.has_mark();
        self.urgent.on_taken(bytes);
        if had_mark {
            self.show_urgent(glance);
        }
    }

    /// Shows poll() where the urgent byte is.
    pub(in crate::sdp) fn show_urgent(&self, glance: &Glance) {
        glance.at_mark.set(self.urgent.is_at_mark());
        glance.urgent.set(self.urgent.is_here());
    }

    /// Forgets the urgent byte, after the bytes of the connection were freed.
    pub(in crate::sdp) fn forget_urgent(&mut self) {
        self.urgent = UrgentReceive::new();
        self.losses_due = 0;
        self.open_at = None;
    }

    /// Drops the next byte of the stream, which is already counted as taken. If the bytes before it
    /// are on their way to the program's memory, the byte is not in the queue yet; the bytes that
    /// are dropped meanwhile are consecutive. `release` as for [`RecvQueue::drop_lost`].
    pub(in crate::sdp) fn lose_byte(&mut self, glance: &Glance, release: impl FnMut(u32)) {
        self.losses_due = self.losses_due.saturating_add(1);
        self.drop_lost(glance, release);
    }

    /// Takes bytes that must be dropped out of the queue, and uncharges them by `release`. Must be
    /// called when bytes have come to a queue that was empty.
    pub(in crate::sdp) fn drop_lost(&mut self, glance: &Glance, mut release: impl FnMut(u32)) {
        while self.losses_due > 0 && !self.queue.is_empty() {
            self.losses_due -= 1;
            let consumed = self.queue.change(&glance.unread, |queue| queue.consume(1));
            if let Some((frag, truesize)) = consumed {
                drop(frag);
                release(truesize);
            }
        }
    }

    /// Frees the page for short messages if it was not used since the last call, because an idle
    /// connection should have none. Returns whether there still is one.
    pub(in crate::sdp) fn drop_idle_page(&mut self) -> bool {
        if !core::mem::replace(&mut self.short_page_used, false) {
            self.short_page = None;
        }
        self.short_page.is_some()
    }
}
