// SPDX-License-Identifier: GPL-2.0

//! What a connection knows of source adverts, of both sides.

use super::hold::Hold;
use super::posted::Posted;
use crate::params::ADVERTS;
use crate::proto::fallback::Fallback;
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
    /// Whether programs do something else while the bytes of such receives come.
    pub(crate) early_use: Fallback,
    /// A receive has returned before its bytes were there, of which it is still to be seen whether that
    /// was of use.
    pub(crate) returned_early: bool,
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
            returned_early: false,
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
