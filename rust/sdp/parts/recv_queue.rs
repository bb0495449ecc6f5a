// SPDX-License-Identifier: GPL-2.0

//! What a connection has received, and who waits for it.

use super::glance::Seen;
use crate::mm::frag::Frag;
use crate::proto::urgent::UrgentReceive;

/// Bytes that wait to be read.
pub(crate) struct RecvQueue {
    pub(in crate::sdp) queue: Seen,
    /// Which byte of the stream is urgent.
    pub(in crate::sdp) urgent: UrgentReceive,
    /// The next byte of the stream is lost, and is not in the queue yet.
    pub(in crate::sdp) owes_loss: bool,
    /// The free rest of the page into which short payloads are copied.
    pub(in crate::sdp) compact: Option<Frag>,
    /// Something was copied there since the last look of `timers/tx_watchdog`.
    pub(in crate::sdp) compact_used: bool,
    /// The peer's DisConn was received: end of file behind the queue.
    pub(in crate::sdp) fin_received: bool,
    /// Something came for a reader, who is to be woken.
    pub(in crate::sdp) readable: bool,
    /// Bytes of the buffer of a reader that waits in a call, and can take the peer's bytes itself.
    pub(in crate::sdp) reader_bytes: Option<usize>,
    /// The last reader does not wait in its calls.
    pub(in crate::sdp) polled: bool,
}

impl RecvQueue {
    pub(in crate::sdp) const fn new() -> Self {
        Self {
            queue: Seen::new(),
            urgent: UrgentReceive::new(),
            owes_loss: false,
            compact: None,
            compact_used: false,
            fin_received: false,
            readable: false,
            reader_bytes: None,
            polled: false,
        }
    }

    /// An idle connection has no page for short messages: gives it back if it was not used since the
    /// last call. Whether there is still one.
    pub(in crate::sdp) fn drop_idle_page(&mut self) -> bool {
        if !core::mem::replace(&mut self.compact_used, false) {
            self.compact = None;
        }
        self.compact.is_some()
    }
}
