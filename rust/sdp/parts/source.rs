// SPDX-License-Identifier: GPL-2.0

//! What a connection knows of source adverts, of both sides.

use kernel::time::{
    Delta,
    Instant,
    Monotonic, //
};

use super::hold::Hold;
use super::posted::Posted;
use crate::params::ADVERTS;
use crate::proto::fallback::{
    is_worth,
    Fallback, //
};
use crate::proto::hello::Features;
use crate::proto::pull::PullReason;
use crate::proto::sink::SourceReader;
use crate::proto::source::SourceAdverts;
use crate::rdma::post::READS;
use crate::rdma::region::REGIONS;
use crate::trace::Advert;

const _: () = assert!(
    ADVERTS + 2 <= REGIONS,
    "each advert has a region, and so has a receive"
);

/// A receive that has returned before its bytes were there.
pub(in crate::sdp) struct Returned {
    /// When it returned, once it has.
    at: Option<Instant<Monotonic>>,
    /// How long it took to take the pages.
    taking: Delta,
    /// When the last one of its Reads that have finished did so.
    arrived: Option<Instant<Monotonic>>,
}

impl Returned {
    /// One that has posted no Read yet.
    pub(in crate::sdp) fn new() -> Self {
        Self {
            at: None,
            taking: Delta::ZERO,
            arrived: None,
        }
    }

    /// It has posted a Read, for which taking the pages took so long.
    pub(in crate::sdp) fn posts(&mut self, taking: Delta) {
        self.taking += taking;
    }

    /// It returns now; its bytes may be there already.
    pub(in crate::sdp) fn returns(&mut self, are_there: bool) {
        let now = Instant::now();
        self.at = Some(now);
        self.arrived = are_there.then_some(now);
    }

    /// One of its Reads has finished.
    pub(in crate::sdp) fn read_finished(&mut self) {
        self.arrived = Some(Instant::now());
    }

    /// Whether the program has had enough time for itself, until now or until its bytes were there, if
    /// they `are_there`.
    pub(in crate::sdp) fn was_worth_it(&self, are_there: bool) -> bool {
        let Some(at) = self.at else {
            return false;
        };
        let arrived = self.arrived.filter(|_| are_there);
        let until = arrived.unwrap_or_else(Instant::now);
        let ns = |delta: Delta| u64::try_from(delta.as_nanos()).unwrap_or(0);
        is_worth(ns(until - at), ns(self.taking))
    }
}

/// The adverts of a connection that has agreed on them.
pub(crate) struct ZeroCopy {
    /// Ours, with the region that each is about.
    pub(crate) source: SourceAdverts<Posted, ADVERTS>,
    /// The peer's.
    pub(crate) reader: SourceReader<ADVERTS, { READS as usize }>,
    /// What is behind the receive queue in the stream.
    pub(crate) hold: Hold,
    /// Whether asynchronous sends pay.
    pub(crate) fallback: Fallback,
    /// Whether asynchronous receives pay.
    pub(crate) early_fallback: Fallback,
    /// Whether programs have enough time for themselves while the bytes of such receives come.
    pub(crate) early_use: Fallback,
    /// The last receive that has returned before its bytes were there, until it is known whether this
    /// was worth its cost.
    pub(in crate::sdp) returned: Option<Returned>,
    /// The program ends the connection: no receive returns early any more.
    pub(crate) early_ends: bool,
    /// A SrcAvailCancel waits to be sent.
    pub(crate) cancel_due: bool,
    /// Bytes of the adverts of the running send that the peer has read: not of those of sends that have
    /// returned.
    pub(crate) read_bytes: usize,
    /// Why nobody is waited for to read the peer's adverts, if that is so.
    pub(crate) pull_now: Option<PullReason>,
    /// The timer that ends the wait is running.
    pub(crate) pull_later: bool,
    /// Since the timer was started a reader has begun to take an advert without a copy, or has got its
    /// bytes.
    pub(crate) reader_came: bool,
    /// That was a reason to wait once more for somebody to take the rest of the first advert.
    pub(crate) pull_renewed: bool,
    /// Bytes that the running receive has read into the program's memory.
    pub(crate) direct_bytes: usize,
}

impl ZeroCopy {
    /// Of sides that agreed on these features, and of which the peer may have `peer_most` adverts of ours,
    /// and we `own_most` of the peer's.
    pub(in crate::sdp) fn new(peer_most: u8, own_most: u8, features: Features) -> Self {
        Self {
            source: SourceAdverts::new(peer_most, features),
            reader: SourceReader::new(own_most, features),
            hold: Hold::new(),
            fallback: Fallback::new(),
            early_fallback: Fallback::new(),
            early_use: Fallback::new(),
            returned: None,
            early_ends: false,
            cancel_due: false,
            read_bytes: 0,
            pull_now: None,
            pull_later: false,
            reader_came: false,
            pull_renewed: false,
            direct_bytes: 0,
        }
    }
}

pub(in crate::sdp) fn source(len: u32, bytes: u32) -> Advert {
    let sink = false;
    Advert { sink, len, bytes }
}
