// SPDX-License-Identifier: GPL-2.0

//! The size of the receives, which grows when the peer has much to send.

use super::ring::LEAST_BUFFER;
use crate::inet::memory;
use crate::rdma::link::RECV_DEPTH;
use crate::rdma::receive::PART_BYTES;
use crate::sdp::conn::connection::{
    LARGE_BYTES,
    SMALL_BYTES, //
};
use crate::sdp::conn::guard::SockGuard;
use crate::stats::counters::Counter;

impl SockGuard<'_> {
    /// The peer asks for larger receives because it has much to send.
    pub(in crate::sdp) fn grow_receives(&mut self, wanted: u32) {
        let rcvbuf = self.sk().rcvbuf().max(LEAST_BUFFER);
        let conn = self.conn();
        if wanted > SMALL_BYTES {
            conn.ring.target = RECV_DEPTH;
        }
        let now = conn.ring.receives.bytes();
        let most = conn.link.as_ref().map_or(0, |l| l.max_receive());
        let larger = [LARGE_BYTES, LARGE_BYTES / 2, PART_BYTES, SMALL_BYTES]
            .into_iter()
            .find(|&size| {
                // The buffer takes many of them: those that wait to be read, and control messages' too.
                let share = if size < LARGE_BYTES { 8 } else { 16 };
                let fits = size <= wanted.min(rcvbuf / share).min(most);
                fits && (size == SMALL_BYTES || memory::has_room(size * RECV_DEPTH))
            });
        if let Some(size) = larger.filter(|&size| size > now) {
            if !memory::is_short() && self.reserve_receives(size).is_ok() {
                let posted = self.receives_posted();
                self.conn().ring.receives.grow(size, posted);
            }
        }
        self.conn().ring.receives.owe_answer();
    }

    /// The peer says what its receives take from now on.
    pub(in crate::sdp) fn larger_answered(&mut self, size: u32) {
        if let Err(why) = self.conn().out.peer_receives.answered(size) {
            return self.violated(why);
        }
        let (_, flags) = self.gfp();
        let link = self.conn().link.as_mut();
        if let Some(link) = link.filter(|_| size > PART_BYTES) {
            if link.lengthen_messages(flags).is_err() {
                self.stats.inc(Counter::NoSendMemory);
            }
        }
    }
}
