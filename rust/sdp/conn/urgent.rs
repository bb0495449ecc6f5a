// SPDX-License-Identifier: GPL-2.0

//! Urgent data that is received: where the mark is, and the signal for the program.

use super::guard::SockGuard;
use crate::proto::bsdh::{
    FLAG_OOB_PEND,
    FLAG_OOB_PRES, //
};
use crate::proto::message::Message;
use crate::proto::urgent::{
    News,
    UrgentReceive, //
};
use crate::rdma::receive::Receive;
use crate::stats::counters::Counter;

impl SockGuard<'_> {
    /// Takes note of the payload of a message, and of what it says of urgent data.
    pub(in crate::sdp) fn note_urgent(&mut self, message: &Message, receive: &Receive) {
        let (flags, len) = (message.hdr.flags, message.payload_len);
        if flags & FLAG_OOB_PRES != 0 {
            let last = message.payload_offset + len.saturating_sub(1);
            let inline = self.sk().is_oob_inline();
            if let Some(byte) = receive.byte(last) {
                let news = self.conn().inq.urgent.on_urgent(len, byte, inline);
                self.tell_of_urgent(news);
                self.stats.inc(Counter::UrgentReceived);
            }
        }
        if len > 0 {
            self.conn().inq.urgent.on_bytes(len);
        }
        if flags & FLAG_OOB_PEND != 0 {
            let inline = self.sk().is_oob_inline();
            let news = self.conn().inq.urgent.on_announced(inline);
            self.tell_of_urgent(news);
        }
    }

    fn tell_of_urgent(&mut self, news: News) {
        if news.signal {
            self.sk().send_sigurg();
        }
        if news.lose {
            self.lose_byte();
        }
        self.show_urgent();
    }

    /// The program has the next bytes of the stream, or skips them.
    pub(in crate::sdp) fn note_taken(&mut self, bytes: u32) {
        let urgent = &mut self.conn().inq.urgent;
        let had_mark = urgent.has_mark();
        urgent.on_taken(bytes);
        if had_mark {
            self.show_urgent();
        }
    }

    /// For poll().
    pub(in crate::sdp) fn show_urgent(&mut self) {
        let urgent = self.conn().inq.urgent;
        self.glance.at_mark.set(urgent.is_at_mark());
        self.glance.urgent.set(urgent.is_here());
    }

    /// The next byte of the stream is the urgent byte: skips the byte.
    pub(in crate::sdp) fn skip_urgent(&mut self) {
        self.note_taken(1);
        self.lose_byte();
    }

    /// Takes the next byte, which is counted as taken, out of the stream. If the bytes before the byte are on
    /// their way to a receive that has returned, the byte is not in the queue yet.
    pub(in crate::sdp) fn lose_byte(&mut self) {
        if self.conn().inq.queue.is_empty() {
            self.conn().inq.owes_loss = true;
            return;
        }
        let glance = &self.sock().glance;
        let queue = &mut self.conn().inq.queue;
        if let Some((frag, truesize)) = queue.change(&glance.unread, |queue| queue.consume(1)) {
            drop(frag);
            self.release_receive(truesize);
        }
    }

    /// The bytes of the connection are gone, and so is the mark.
    pub(in crate::sdp) fn forget_urgent(&mut self) {
        let inq = &mut self.conn().inq;
        inq.urgent = UrgentReceive::new();
        inq.owes_loss = false;
        self.show_urgent();
    }
}
