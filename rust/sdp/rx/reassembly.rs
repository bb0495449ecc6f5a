// SPDX-License-Identifier: GPL-2.0

//! Payload that comes behind bytes that the peer still has, in the order of the stream
//! ([`Hold`](crate::sdp::parts::hold::Hold)).

use kernel::prelude::*;

use crate::kern::errno::{
    ECONNRESET,
    ENOBUFS, //
};
use crate::proto::message::{
    Body,
    Message, //
};
use crate::proto::state::State;
use crate::proto::violation::Violation;
use crate::rdma::receive::{
    Receive,
    PART_BYTES, //
};
use crate::sdp::conn::guard::SockGuard;
use crate::stats::counters::Counter;

impl SockGuard<'_> {
    /// An advert is the next of the stream.
    pub(in crate::sdp) fn take_advert(&mut self, message: &Message) {
        let Body::SrcAvail { len, .. } = message.body else {
            return;
        };
        if self.conn().state == State::Dead {
            return;
        }
        if self.refuses_bytes() {
            return self.abort(ECONNRESET);
        }
        if self.hold_advert(len).is_err() {
            return self.lost_bytes();
        }
        self.conn().inq.urgent.on_bytes(len);
    }

    /// Keeps payload that comes behind bytes which the peer still has.
    pub(super) fn hold_payload(&mut self, message: &Message, receive: Receive) {
        let (_, flags) = self.gfp();
        let mut unused = receive.len();
        let (skip, len) = (message.payload_offset, message.payload_len);
        let spares = &mut self.conn().ring.spares;
        for frag in receive
            .into_payload(skip, len, spares)
            .into_iter()
            .flatten()
        {
            let charge = unused.min(PART_BYTES);
            unused -= charge;
            let result = match &mut self.conn().adverts.zcopy {
                Some(zcopy) => zcopy.hold.push(frag, charge, flags),
                None => Err(ENOBUFS),
            };
            if result.is_err() {
                self.release_receive(charge + unused);
                return self.lost_bytes();
            }
        }
        self.release_receive(unused);
    }

    /// Puts an advert behind what was received.
    ///
    /// # Errors
    ///
    /// `ENOBUFS`.
    fn hold_advert(&mut self, len: u32) -> Result {
        let (_, flags) = self.gfp();
        match &mut self.conn().adverts.zcopy {
            Some(zcopy) => zcopy.hold.push_advert(len, flags).map_err(|_| ENOBUFS),
            None => Ok(()),
        }
    }

    /// The peer takes back what we have not begun to read.
    pub(in crate::sdp) fn cancel_received(&mut self) -> Result<(), Violation> {
        let Some(zcopy) = self.with_adverts() else {
            return Err(Violation::UnexpectedMid);
        };
        let untaken = zcopy.reader.untaken_bytes();
        zcopy.reader.on_cancel()?;
        zcopy.hold.cut();
        self.conn().inq.urgent.on_cancel(untaken);
        self.stats.inc(Counter::CancelReceived);
        self.drain_hold();
        Ok(())
    }

    /// Moves what is the next of the stream into the receive queue.
    pub(super) fn drain_hold(&mut self) {
        while let Some((frag, charge)) = self
            .conn()
            .adverts
            .zcopy
            .as_mut()
            .and_then(|zcopy| zcopy.hold.pop_ready())
        {
            if self.queue_unread(frag, charge).is_err() {
                self.release_receive(charge);
                return self.lost_bytes();
            }
            self.conn().inq.readable = true;
            self.drop_lost();
        }
        if self.glance.coming.get() && !self.holds() {
            self.glance.coming.set(false);
            self.sk().wake_all();
        }
    }
}
