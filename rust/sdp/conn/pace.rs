// SPDX-License-Identifier: GPL-2.0

//! How fast a connection is: what is noted for TCP_INFO and netlink.

use kernel::time::{
    ClockSource,
    Monotonic, //
};

use super::connection::Connection;
use super::guard::SockGuard;
use crate::kern::time::now;
use crate::proto::bsdh::Class;
use crate::proto::pace::{
    Doing,
    Micros, //
};

/// Bytes that may stay in the send queue of a connection that does nothing: their completions are
/// noticed with whatever comes next.
pub(in crate::sdp) const IDLE_BYTES: u32 = 65536;

pub(in crate::sdp) fn now_us() -> Micros {
    Monotonic::ktime_get().unsigned_abs() / 1000
}

impl Connection {
    /// The peer has acknowledged messages.
    pub(in crate::sdp) fn note_acknowledged(&mut self) {
        let awaited = self.measured.pacing.pace.awaited();
        if awaited.is_some_and(|mseq| self.credits.has_acked(mseq)) {
            self.measured.pacing.pace.acknowledged(now_us());
        }
    }
}

impl SockGuard<'_> {
    /// The message with the number `mseq` was posted.
    pub(in crate::sdp) fn note_posted(&mut self, mseq: u32, payload: u32) {
        let conn = self.conn();
        if payload > 0 {
            conn.measured.pacing.sent_at = now();
        }
        if conn.measured.pacing.pace.wants_sample() {
            conn.measured.pacing.pace.posted(mseq, now_us());
        }
    }

    /// All that may be sent was sent: what the sender waits for now.
    pub(in crate::sdp) fn note_doing(&mut self) {
        let doing = self.doing();
        let pace = &mut self.conn().measured.pacing.pace;
        if pace.changes(doing) {
            pace.does(doing, now_us());
        }
    }

    fn doing(&mut self) -> Doing {
        let sk = self.sk();
        let advertised = self.advertised_bytes() > 0;
        let conn = self.conn();
        if conn.out.stalled && !conn.out.queue.is_empty() && !conn.credits.may_send(Class::Payload)
        {
            Doing::AwaitingPeer
        } else if conn.halves.sender_waits_for_room()
            && conn.out.queue.is_empty()
            && !sk.stream_memory_free()
        {
            Doing::AwaitingRoom
        // The completions of fewer bytes are not looked for, so nobody knows when these are with the peer.
        } else if !conn.out.queue.is_empty() || advertised || sk.wmem_queued() > IDLE_BYTES {
            Doing::Sending
        } else {
            Doing::Nothing
        }
    }
}
