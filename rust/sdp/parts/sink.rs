// SPDX-License-Identifier: GPL-2.0

//! The state of the sink adverts of both sides of a connection.

use super::posted::Posted;
use crate::inet::sock::Sk;
use crate::params::ADVERTS;
use crate::proto::hello::Features;
use crate::proto::offer::Offers;
use crate::proto::sink::{
    Returned,
    SinkAdverts, //
};
use crate::proto::sink_writer::{
    PayloadEvents,
    SinkWriter, //
};
use crate::trace::{
    self,
    Advert, //
};

/// The maximum number of this side's sink adverts without an answer. A call has at most
/// `OFFER_PIECES` (in `recv/sink_avail`), and the peer's module answers those of former calls as
/// soon as its adapter has reported them.
pub(crate) const OFFERS: usize = 8;

/// The payload events of a connection that has had no sink advert yet.
#[derive(Copy, Clone)]
pub(crate) struct Events {
    pub(in crate::sdp) sent: PayloadEvents,
    pub(in crate::sdp) received: PayloadEvents,
}

impl Events {
    pub(crate) const fn new() -> Self {
        Self {
            sent: PayloadEvents::new(),
            received: PayloadEvents::new(),
        }
    }
}

/// The sink adverts of a connection.
pub(crate) struct Sinks {
    /// This side's adverts, each with its region.
    pub(crate) adverts: SinkAdverts<Posted, OFFERS>,
    /// The peer's adverts.
    pub(crate) writer: SinkWriter<ADVERTS>,
    /// Whether adverts pay.
    pub(crate) offers: Offers,
    /// An advert of the running receive was answered with 0 bytes: bytes written to a later buffer
    /// would be in the wrong place.
    pub(crate) declined: bool,
    /// Bytes that the peer has written for the running receive.
    pub(crate) received_bytes: usize,
    /// Bytes of the running send that were written to the peer's memory, without those of sends
    /// that have returned.
    pub(crate) written_bytes: usize,
    /// Bytes of unfinished Writes whose sends have returned. They are charged to the send buffer.
    pub(crate) charged_bytes: u32,
}

impl Sinks {
    /// The state between sides that agreed on these features. The peer can hold `peer_most` adverts
    /// of this side, and this side `own_most` of the peer; `events` have come before.
    pub(in crate::sdp) fn new(
        peer_most: u8,
        own_most: u8,
        features: Features,
        events: Events,
    ) -> Self {
        Self {
            adverts: SinkAdverts::new(peer_most, features, events.received),
            writer: SinkWriter::new(own_most, features, events.sent),
            offers: Offers::new(),
            declined: false,
            received_bytes: 0,
            written_bytes: 0,
            charged_bytes: 0,
        }
    }
}

pub(in crate::sdp) fn trace_end(sk: Sk, back: &Returned<Posted>) {
    let (len, bytes) = (back.len, back.bytes);
    let advert = Advert {
        sink: true,
        len,
        bytes,
    };
    if bytes > 0 {
        trace::advert_completed(sk, advert);
    } else {
        trace::advert_cancelled(sk, advert);
    }
}
