// SPDX-License-Identifier: GPL-2.0

//! The size of the receives, which grows when the peer has much to send.

use super::ring::LEAST_BUFFER;
use crate::inet::memory;
use crate::proto::violation::Violation;
use crate::rdma::link::RECV_DEPTH;
use crate::rdma::receive::PART_BYTES;
use crate::sdp::conn::connection::{
    LARGE_BYTES,
    SMALL_BYTES, //
};
use crate::sdp::conn::guard::Locked;
use crate::stats::counters::Counter;

impl Locked<'_> {
    /// The peer asks for larger receives because it has much to send.
    pub(in crate::sdp) fn grow_receives(&mut self, wanted: u32) {
        let rcvbuf = self.sk().rcvbuf().max(LEAST_BUFFER);
        let stream = self.stream();
        if wanted > SMALL_BYTES {
            stream.recv_target = RECV_DEPTH;
        }
        let now = stream.recv_size.bytes;
        let most = stream.link.as_ref().map_or(0, |l| l.max_receive());
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
                let stream = self.stream();
                stream.recv_size.bytes = size;
                stream.recv_size.old_left = stream.link.as_ref().map_or(0, |l| l.receives_posted());
            }
        }
        let stream = self.stream();
        if stream.recv_size.old_left == 0 {
            stream.pending.ch_rcv_buf_ack = Some(stream.recv_size.bytes);
        }
    }

    /// The peer says what its receives take from now on.
    pub(in crate::sdp) fn larger_answered(&mut self, size: u32) {
        let stream = self.stream();
        if !core::mem::replace(&mut stream.awaits_larger, false) {
            return self.violated(Violation::NoAnswerDue);
        }
        if size < stream.peer_bytes {
            return self.violated(Violation::BadReceiveSize);
        }
        stream.peer_bytes = size;
        let (_, flags) = self.gfp();
        let link = self.stream().link.as_mut();
        if let Some(link) = link.filter(|_| size > PART_BYTES) {
            if link.lengthen_messages(flags).is_err() {
                self.stats.inc(Counter::NoSendMemory);
            }
        }
    }

    /// One more receive of the former size is used up; after the last the peer may be told.
    pub(in crate::sdp) fn count_down_old_receives(&mut self) {
        let size = &mut self.stream().recv_size;
        if size.old_left == 0 {
            return;
        }
        size.old_left -= 1;
        if size.old_left == 0 {
            let bytes = size.bytes;
            self.stream().pending.ch_rcv_buf_ack = Some(bytes);
        }
    }
}
