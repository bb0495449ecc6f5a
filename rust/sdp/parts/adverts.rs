// SPDX-License-Identifier: GPL-2.0

//! What both sides of a connection agreed on, and their adverts.

use kernel::prelude::*;

use super::sink::{
    Events,
    Sinks, //
};
use super::source::ZeroCopy;
use crate::proto::hello::Features;

pub(crate) struct Adverts {
    /// What both sides agreed on.
    pub(in crate::sdp) features: Features,
    /// Adverts of each kind that may be out to the peer at a time.
    pub(in crate::sdp) peer_most: u8,
    /// Those of the peer that we hold at a time.
    pub(in crate::sdp) own_most: u8,
    /// From the first advert on, of either side.
    pub(in crate::sdp) zcopy: Option<KBox<ZeroCopy>>,
    /// From the first sink advert on, of either side.
    pub(in crate::sdp) sinks: Option<KBox<Sinks>>,
    /// Before that.
    pub(in crate::sdp) events: Events,
    /// An advert waits for credits, for places, or for what is in the send queue.
    pub(in crate::sdp) waits: bool,
}

impl Adverts {
    /// None, of sides that agreed on these features. No more of ours are out than we hold ourselves: that
    /// is the bound that the administrator sets.
    pub(in crate::sdp) fn new(features: Features, peer_holds: u8, own_most: u8) -> Self {
        Self {
            features,
            peer_most: peer_holds.min(own_most),
            own_most,
            zcopy: None,
            sinks: None,
            events: Events::new(),
            waits: false,
        }
    }
}
