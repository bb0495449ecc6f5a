// SPDX-License-Identifier: GPL-2.0

//! The state of the source adverts of both sides of a connection.

use kernel::time::{
    Delta,
    Instant,
    Monotonic, //
};

use super::hold::Hold;
use super::posted::Posted;
use crate::mm::frag::Frag;
use crate::params::ADVERTS;
use crate::proto::hello::Features;
use crate::proto::pause::{
    Overlap,
    Pause, //
};
use crate::proto::pull::ReaderWait;
use crate::proto::source::SourceAdverts;
use crate::proto::source_reader::{
    Destination,
    Read,
    SourceReader, //
};
use crate::rdma::post::READS;
use crate::rdma::region::REGIONS;
use crate::trace::Advert;

const _: () = assert!(
    ADVERTS + 2 <= REGIONS,
    "each advert has a region, and so has a receive"
);

/// A receive that has returned before its bytes arrived.
pub(in crate::sdp) struct EarlyReturn {
    /// When the receive returned.
    at: Instant<Monotonic>,
    /// How long the receive took to take its pages.
    taking: Delta,
    /// When the latest of the finished Reads finished.
    arrived: Option<Instant<Monotonic>>,
}

impl EarlyReturn {
    /// A receive that returns now and has taken `taking` to take its pages. Its bytes may have
    /// arrived already (`are_there`).
    pub(in crate::sdp) fn now(taking: Delta, are_there: bool) -> Self {
        let at = Instant::now();
        Self {
            at,
            taking,
            arrived: are_there.then_some(at),
        }
    }

    /// Records that one of the Reads has finished.
    pub(in crate::sdp) fn read_finished(&mut self) {
        self.arrived = Some(Instant::now());
    }

    /// The time that the program has had for itself: until its bytes arrived, or until now if they
    /// have not all arrived (`are_there`).
    pub(in crate::sdp) fn overlap(&self, are_there: bool) -> Overlap {
        let arrived = self.arrived.filter(|_| are_there);
        let until = arrived.unwrap_or_else(Instant::now);
        let ns = |delta: Delta| u64::try_from(delta.as_nanos()).unwrap_or(0);
        Overlap::of(ns(until - self.at), ns(self.taking))
    }
}

/// The source adverts of a connection.
pub(crate) struct Sources {
    /// This side's adverts, each with its region.
    pub(crate) adverts: SourceAdverts<Posted, ADVERTS>,
    /// The peer's adverts.
    pub(crate) reader: SourceReader<ADVERTS, { READS as usize }>,
    /// Payload behind the peer's adverts.
    pub(crate) hold: Hold,
    /// Whether asynchronous sends pay.
    pub(crate) send_pause: Pause,
    /// Whether asynchronous receives pay.
    pub(crate) receive_pause: Pause,
    /// Whether programs have enough time for themselves before the bytes of such receives arrive.
    pub(crate) overlap_pause: Pause,
    /// The last receive that has returned before its bytes arrived, until it is known whether the
    /// early return was worth its cost.
    pub(in crate::sdp) early_return: Option<EarlyReturn>,
    /// The program is closing the connection: no receive returns early any more.
    pub(crate) early_ends: bool,
    /// Bytes that the peer has read of the running send's adverts, without those of sends that have
    /// returned.
    pub(crate) read_bytes: usize,
    /// The wait of the peer's adverts for a reader.
    pub(crate) reader_wait: ReaderWait,
    /// Bytes that were read into the program's memory for the running receive.
    pub(crate) direct_bytes: usize,
}

impl Sources {
    /// The state between sides that agreed on these features. The peer can hold `peer_most` adverts
    /// of this side, and this side `own_most` of the peer.
    pub(in crate::sdp) fn new(peer_most: u8, own_most: u8, features: Features) -> Self {
        Self {
            adverts: SourceAdverts::new(peer_most, features),
            reader: SourceReader::new(own_most, features),
            hold: Hold::new(),
            send_pause: Pause::new(),
            receive_pause: Pause::new(),
            overlap_pause: Pause::new(),
            early_return: None,
            early_ends: false,
            read_bytes: 0,
            reader_wait: ReaderWait::new(),
            direct_bytes: 0,
        }
    }

    /// [`SourceReader::take`].
    pub(in crate::sdp) fn take(&mut self, most: u32, destination: Destination) -> Option<Read> {
        let rest = self.reader.untaken();
        let read = self.reader.take(most, destination)?;
        let takes_all = self.reader.untaken() == 0;
        self.reader_wait.read_posted(read.len >= rest, takes_all);
        Some(read)
    }

    /// [`Hold::pop`], if the payload is now the next of the stream.
    pub(in crate::sdp) fn pop_held(&mut self) -> Option<(Frag, u32)> {
        self.hold.pop(|after| self.reader.has_arrived(after))
    }
}

/// A source advert as trace events show it: of its `len` bytes, the peer has read `bytes`.
pub(in crate::sdp) fn traced(len: u32, bytes: u32) -> Advert {
    let sink = false;
    Advert { sink, len, bytes }
}
