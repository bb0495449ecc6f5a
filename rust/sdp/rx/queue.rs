// SPDX-License-Identifier: GPL-2.0

//! The receive queue: received bytes that are the next of the stream.

use kernel::prelude::*;

use super::Receiver;
use crate::bindings;
use crate::kern::time::RealNs;
use crate::mm::frag::{
    Frag,
    UnusedPage, //
};
use crate::proto::advert::Id;
use crate::proto::message::Message;
use crate::proto::resize::SMALL_BYTES;
use crate::proto::state::State;
use crate::rdma::receive::{
    Receive,
    MAX_PARTS,
    PART_BYTES, //
};
use crate::sdp::conn::watchdog;
use crate::sdp::parts::fatal::Fatal;
use crate::stats::counters::Counter;

impl Receiver<'_> {
    /// Whether no program can ever read the bytes that the peer sends, so that TCP answers with a
    /// reset: no program has the socket, or the program has shut both halves.
    pub(super) fn refuses_bytes(&self) -> bool {
        let ended = matches!(self.state, State::FinWait1 | State::FinWait2);
        let sk = self.sock.sk();
        sk.is_orphan() || ended && sk.rcv_shutdown()
    }

    /// Puts the payload of a message into the receive queue, or, if it is to come `after` the bytes
    /// of an advert that have not all arrived, behind these.
    ///
    /// # Errors
    ///
    /// [`Fatal::Unread`], [`Fatal::NoMemory`].
    pub(in crate::sdp) fn take_payload(
        &mut self,
        message: &Message,
        receive: Receive,
        after: Option<Id>,
    ) -> Result<(), Fatal> {
        let sk = self.sock.sk();
        if self.refuses_bytes() {
            self.discard(receive);
            return Err(Fatal::Unread);
        }
        let truesize = receive.len();
        self.measured
            .data_received(self.sock.stats, message.payload_len);
        // This only raises the target: if no program reads, `refill` stops at the size of the
        // receive buffer.
        self.lengthen_if_short();
        if let Some(after) = after {
            return self.hold_payload(after, message, receive);
        }
        // A receive that is a part of a page would keep the whole page, so payload of any length is
        // copied. To copy a quarter of a page costs less than a new page for the next receive.
        let short = if truesize < SMALL_BYTES {
            truesize
        } else {
            (truesize / 4).min(SMALL_BYTES)
        };
        if message.payload_len <= short && self.compact(message, &receive) {
            // Small messages may fill the receive buffer, too.
            let in_use = sk.rmem() - self.ring.reserve;
            if in_use <= sk.rcvbuf() || self.may_post_least(receive.len()) {
                self.recycle(receive);
            } else {
                self.discard(receive);
            }
            return Ok(());
        }
        // `refill` has reserved the places in the queue.
        self.queue_bytes(receive, message.payload_offset, message.payload_len)
    }

    /// Copies a short payload behind the last one that was copied, so that the large memory of its
    /// receive is free again. Returns `false` if there is no memory for the copy.
    fn compact(&mut self, message: &Message, receive: &Receive) -> bool {
        let len = message.payload_len;
        let offset = message.payload_offset as usize;
        let Some(bytes) = receive.front().get(offset..offset + len as usize) else {
            return false;
        };
        // The posted receives need their places in the queue, too, and so does this receive when it
        // is posted again.
        let places = self.places_due() + MAX_PARTS;
        if self.reserve_unread(places + 1).is_err() {
            return false;
        }
        let room = self.inq.short_page.as_ref().map_or(0, UnusedPage::len);
        let mut truesize = 0;
        if room < len {
            if !self.charge(SMALL_BYTES) {
                return false;
            }
            match UnusedPage::alloc(bindings::SDP_CONST_GFP_ATOMIC) {
                Ok(page) => self.inq.short_page = Some(page),
                Err(_) => {
                    self.release(SMALL_BYTES);
                    return false;
                }
            }
            truesize = SMALL_BYTES;
        }
        let arrived = self.sock.sk().arrival_time();
        let page = self.inq.short_page.as_mut();
        let Some(piece) = page.and_then(|page| page.fill(bytes)) else {
            self.release(truesize);
            return false;
        };
        self.inq.short_page_used = true;
        let pushed = self.inq.queue.change(&self.sock.glance.unread, |rx| {
            match truesize == 0 && rx.grow_last(arrived, |last| last.join(&piece)) {
                true => Ok(()),
                false => rx.push_arrived(piece, truesize, arrived),
            }
        });
        if pushed.is_err() {
            // The rest of the page would not be charged.
            self.inq.short_page = None;
            self.release(truesize);
            return false;
        }
        let stats = self.sock.stats;
        stats.add(Counter::RxCompactedBytes, len.into());
        // The transmit watchdog frees the page when no more short payloads arrive.
        watchdog::begin(self.watch, self.sock);
        true
    }

    /// Appends the `len` bytes of `memory` that follow its first `skip` bytes to the receive queue.
    /// Places in the queue were reserved.
    ///
    /// # Errors
    ///
    /// [`Fatal::NoMemory`].
    pub(super) fn queue_bytes(
        &mut self,
        memory: Receive,
        skip: u32,
        len: u32,
    ) -> Result<(), Fatal> {
        let arrived = self.sock.sk().arrival_time();
        let mut unused = memory.len();
        let parts = memory.into_payload(skip, len, self.ring.spares());
        for frag in parts.into_iter().flatten() {
            let charge = unused.min(PART_BYTES);
            unused -= charge;
            if self.queue_unread(frag, charge, arrived).is_err() {
                self.release(charge + unused);
                return Err(Fatal::NoMemory);
            }
        }
        self.release(unused);
        Ok(())
    }

    /// Appends a fragment that `arrived` at this time to the receive queue.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn queue_unread(
        &mut self,
        frag: Frag,
        charge: u32,
        arrived: Option<RealNs>,
    ) -> Result {
        self.inq.queue.change(&self.sock.glance.unread, |rx| {
            rx.push_arrived(frag, charge, arrived)
        })
    }

    /// Reserves places for `places` more fragments in the receive queue.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn reserve_unread(&mut self, places: usize) -> Result {
        let (_, flags) = self.gfp;
        self.inq
            .queue
            .change(&self.sock.glance.unread, |rx| rx.reserve(places, flags))
    }

    /// The number of fragments that may still come to the receive queue.
    pub(super) fn places_due(&self) -> usize {
        let (posted, reads) = self.link.as_ref().map_or((0, 0), |link| {
            (link.posted_parts(), link.reads_in_flight() as usize)
        });
        let sources = self.adverts.sources.as_ref();
        let held = sources.map_or(0, |sources| sources.hold.len());
        posted + MAX_PARTS * reads + held
    }
}
