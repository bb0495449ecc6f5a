// SPDX-License-Identifier: GPL-2.0

//! The receive queue: bytes that are the next of the stream.

use kernel::alloc::Flags;
use kernel::prelude::*;

use crate::bindings;
use crate::kern::errno::ECONNRESET;
use crate::mm::frag::Frag;
use crate::proto::bsdh::Class;
use crate::proto::message::Message;
use crate::proto::state::State;
use crate::rdma::link::RECV_DEPTH;
use crate::rdma::receive::{
    Receive,
    MAX_PARTS,
    PART_BYTES, //
};
use crate::sdp::conn::connection::SMALL_BYTES;
use crate::sdp::conn::guard::SockGuard;
use crate::stats::counters::Counter;

impl SockGuard<'_> {
    /// Whether nobody wants what the peer sends, so that TCP answers with a reset: no program has the socket, or
    /// the program has shut both halves.
    pub(in crate::sdp) fn refuses_bytes(&mut self) -> bool {
        let ended = matches!(self.conn().state, State::FinWait1 | State::FinWait2);
        self.sk().is_orphan() || ended && self.sk().rcv_shutdown()
    }

    pub(in crate::sdp) fn take_payload(&mut self, message: &Message, receive: Receive) {
        if self.refuses_bytes() {
            self.discard(receive);
            return self.abort(ECONNRESET);
        }
        let truesize = receive.len();
        self.count_data_received(message.payload_len);
        // A reader that does not come must not make the peer's credits grow.
        if self.conn().credits.peer_has_left() < Class::Payload.min_credits() {
            let target = self.conn().ring.target;
            self.conn().ring.target = (target * 2).min(RECV_DEPTH);
        }
        if self.holds() {
            return self.hold_payload(message, receive);
        }
        // A part of a page would keep all of it.
        let short = if truesize < SMALL_BYTES {
            truesize
        } else {
            (truesize / 8).min(SMALL_BYTES)
        };
        if message.payload_len <= short && self.compact(message, &receive) {
            // Small messages fill the receive buffer, too.
            let in_use = self.sk().rmem() - self.conn().ring.reserve;
            if in_use <= self.sk().rcvbuf() || self.may_post_least(receive.len()) {
                self.recycle(receive);
            } else {
                self.discard(receive);
            }
            return;
        }
        // `refill` has reserved the places.
        self.queue_bytes(receive, message.payload_offset, message.payload_len);
    }

    /// Copies a short payload behind the last one, so that its large buffer is free again.
    fn compact(&mut self, message: &Message, receive: &Receive) -> bool {
        let len = message.payload_len;
        let offset = message.payload_offset as usize;
        let Some(bytes) = receive.front().get(offset..offset + len as usize) else {
            return false;
        };
        // The receives that are posted need their places besides, and so will this one.
        let (_, flags) = self.gfp();
        let places = self.places_due() + MAX_PARTS;
        if self.reserve_unread(places + 1, flags).is_err() {
            return false;
        }
        let room = self.conn().inq.compact.as_ref().map_or(0, Frag::len);
        let mut truesize = 0;
        if room < len {
            if !self.charge_receive(SMALL_BYTES) {
                return false;
            }
            match Frag::alloc(0, bindings::SDP_CONST_GFP_ATOMIC) {
                Ok(page) => self.conn().inq.compact = Some(page),
                Err(_) => {
                    self.release_receive(SMALL_BYTES);
                    return false;
                }
            }
            truesize = SMALL_BYTES;
        }
        let glance = &self.sock().glance;
        let conn = self.conn();
        let Some(piece) = conn.inq.compact.as_mut().map(|free| free.split_front(len)) else {
            return false;
        };
        piece.fill(bytes);
        conn.inq.compact_used = true;
        let pushed = conn.inq.queue.change(&glance.unread, |rx| {
            match truesize == 0 && rx.grow_last(|last| last.join(&piece)) {
                true => Ok(()),
                false => rx.push(piece, truesize),
            }
        });
        if pushed.is_err() {
            self.release_receive(truesize);
            return false;
        }
        self.stats.add(Counter::RxCompactedBytes, len.into());
        // Has the page given back when no more come.
        self.watch_sends();
        true
    }

    /// Puts the `len` bytes behind the first `skip` of `memory` at the end of the receive queue.
    /// Places were reserved.
    pub(super) fn queue_bytes(&mut self, memory: Receive, skip: u32, len: u32) {
        let mut unused = memory.len();
        let spares = &mut self.conn().ring.spares;
        for frag in memory.into_payload(skip, len, spares).into_iter().flatten() {
            let charge = unused.min(PART_BYTES);
            unused -= charge;
            if self.queue_unread(frag, charge).is_err() {
                self.release_receive(charge + unused);
                return self.lost_bytes();
            }
        }
        self.release_receive(unused);
    }

    pub(super) fn queue_unread(&mut self, frag: Frag, charge: u32) -> Result {
        let glance = &self.sock().glance;
        self.conn()
            .inq
            .queue
            .change(&glance.unread, |rx| rx.push(frag, charge))
    }

    /// Makes sure that so many fragments find a place in the receive queue.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn reserve_unread(&mut self, places: usize, flags: Flags) -> Result {
        let glance = &self.sock().glance;
        let rx = &mut self.conn().inq.queue;
        rx.change(&glance.unread, |rx| rx.reserve(places, flags))
    }

    /// Places in the receive queue for all that may still come to it.
    pub(super) fn places_due(&mut self) -> usize {
        let conn = self.conn();
        let (posted, reads) = conn.link.as_ref().map_or((0, 0), |link| {
            (link.posted_parts(), link.reads_in_flight() as usize)
        });
        let held = conn
            .adverts
            .zcopy
            .as_ref()
            .map_or(0, |zcopy| zcopy.hold.len());
        posted + MAX_PARTS * reads + held
    }
}
