// SPDX-License-Identifier: GPL-2.0

//! The order of the stream: payload may arrive while earlier bytes are still in the peer's memory
//! ([`Hold`](crate::sdp::parts::hold::Hold)).

use super::Receiver;
use crate::proto::advert::Id;
use crate::proto::message::{
    Body,
    Message, //
};
use crate::proto::violation::Violation;
use crate::rdma::receive::{
    Receive,
    PART_BYTES, //
};
use crate::sdp::parts::fatal::Fatal;
use crate::stats::counters::Counter;

impl Receiver<'_> {
    /// The message has an advert, whose bytes are the next of the stream.
    ///
    /// # Errors
    ///
    /// [`Fatal::Unread`].
    pub(in crate::sdp) fn take_advert(&mut self, message: &Message) -> Result<(), Fatal> {
        let Body::SrcAvail { len, .. } = message.body else {
            return Ok(());
        };
        if self.state.has_ended() {
            return Ok(());
        }
        if self.refuses_bytes() {
            return Err(Fatal::Unread);
        }
        self.inq.urgent.on_bytes(len);
        Ok(())
    }

    /// Keeps payload that follows an advert whose bytes have not all arrived.
    ///
    /// # Errors
    ///
    /// [`Fatal::NoMemory`].
    pub(super) fn hold_payload(
        &mut self,
        after: Id,
        message: &Message,
        receive: Receive,
    ) -> Result<(), Fatal> {
        let (_, flags) = self.gfp;
        let mut unused = receive.len();
        let (skip, len) = (message.payload_offset, message.payload_len);
        let parts = receive.into_payload(skip, len, self.ring.spares());
        for frag in parts.into_iter().flatten() {
            let charge = unused.min(PART_BYTES);
            unused -= charge;
            let sources = self.adverts.sources.as_mut();
            let held = sources.map(|sources| sources.hold.push(after, frag, charge, flags));
            if !matches!(held, Some(Ok(()))) {
                self.release(charge + unused);
                return Err(Fatal::NoMemory);
            }
        }
        self.release(unused);
        Ok(())
    }

    /// The peer takes back the bytes that we have not begun to read.
    ///
    /// # Errors
    ///
    /// [`Fatal::Violation`], [`Fatal::NoMemory`].
    pub(in crate::sdp) fn cancel_received(&mut self) -> Result<(), Fatal> {
        let (_, flags) = self.gfp;
        let Some(sources) = self.adverts.sources_or_new(flags) else {
            return Err(Violation::UnexpectedMid.into());
        };
        let untaken = sources.reader.untaken_bytes();
        sources.reader.on_cancel()?;
        // The reason not to wait for a reader was one for these adverts.
        sources.reader_wait.read_posted(true, true);
        self.inq.urgent.on_cancel(untaken);
        self.sock.stats.inc(Counter::CancelReceived);
        self.drain_hold()
    }

    /// Moves payload to the receive queue if it is now the next of the stream.
    ///
    /// # Errors
    ///
    /// [`Fatal::NoMemory`].
    pub(super) fn drain_hold(&mut self) -> Result<(), Fatal> {
        let sk = self.sock.sk();
        let glance = &self.sock.glance;
        let arrived = sk.arrival_time();
        while let Some((frag, charge)) = self
            .adverts
            .sources
            .as_mut()
            .and_then(|sources| sources.pop_held())
        {
            if self.queue_unread(frag, charge, arrived).is_err() {
                self.release(charge);
                return Err(Fatal::NoMemory);
            }
            self.inq.readable = true;
            let (link, ring) = (&*self.link, &mut *self.ring);
            self.inq
                .drop_lost(glance, |bytes| ring.release(sk, link, bytes));
        }
        if glance.coming.get() && !self.adverts.holds() {
            glance.coming.set(false);
            sk.wake_all();
            sk.signal_end();
        }
        Ok(())
    }
}
