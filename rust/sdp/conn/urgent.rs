// SPDX-License-Identifier: GPL-2.0

//! Received urgent data: the position of the mark, and the signal for the program.

use super::guard::SockGuard;
use crate::proto::bsdh::{
    FLAG_OOB_PEND,
    FLAG_OOB_PRES, //
};
use crate::proto::message::Message;
use crate::proto::urgent::News;
use crate::rdma::receive::Receive;
use crate::stats::counters::Counter;

impl SockGuard<'_> {
    /// Records the payload of a message, and whether its last byte is urgent.
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
    }

    /// Records that a message announces an urgent byte. Must be called after the payload of the
    /// message was taken, because the announcement may drop the last byte of the payload.
    pub(in crate::sdp) fn note_announced(&mut self, message: &Message) {
        if message.hdr.flags & FLAG_OOB_PEND != 0 {
            let inline = self.sk().is_oob_inline();
            let news = self.conn().inq.urgent.on_announced(inline);
            self.tell_of_urgent(news);
        }
    }

    fn tell_of_urgent(&mut self, news: News) {
        self.show_urgent();
        if news.lose {
            let sock = self.sock();
            let conn = self.conn();
            let (link, inq, ring) = (&conn.link, &mut conn.inq, &mut conn.ring);
            inq.lose_byte(&sock.glance, |bytes| ring.release(sock.sk(), link, bytes));
            // Wakes a poller that may have seen only one of the two changes.
            self.conn().inq.readable = true;
        }
        // Last: the handler of the signal may call poll().
        if news.signal {
            self.sk().send_sigurg();
        }
    }

    /// Records that the program has received or skipped the next `bytes` bytes of the stream.
    pub(in crate::sdp) fn note_taken(&mut self, bytes: u32) {
        let glance = &self.sock().glance;
        self.conn().inq.taken(bytes, glance);
    }

    /// Shows poll() the state of the urgent byte.
    pub(in crate::sdp) fn show_urgent(&mut self) {
        let glance = &self.sock().glance;
        self.conn().inq.show_urgent(glance);
    }

    /// Forgets the urgent byte, after the bytes of the connection were freed.
    pub(in crate::sdp) fn forget_urgent(&mut self) {
        self.conn().inq.forget_urgent();
        self.show_urgent();
    }
}
