// SPDX-License-Identifier: GPL-2.0

//! What the files of a connection in debugfs show. It is copied under the socket's lock, and printed
//! without it.

use kernel::prelude::*;
use kernel::time::{
    Instant,
    Monotonic, //
};

use super::sock_info::{
    shown_locked,
    Shown, //
};
use crate::params::ADVERTS;
use crate::proto::choice::Reason;
use crate::proto::source::Kind;
use crate::rdma::mr::RegionId;
use crate::sdp::conn::sock::{
    Locked,
    SdpSock, //
};
use crate::stats::histogram::{
    Histograms,
    Messages, //
};

/// What an advert of ours is about, and since when it is out.
#[derive(Copy, Clone)]
pub(crate) struct Posted {
    pub(crate) region: RegionId,
    since: Instant<Monotonic>,
}

impl Posted {
    pub(in crate::sdp) fn now(region: RegionId) -> Self {
        let since = Instant::now();
        Self { region, since }
    }

    fn age_us(self) -> u64 {
        self.since.elapsed().as_micros_ceil().unsigned_abs()
    }
}

/// An advert of ours that is out.
pub(crate) struct OwnAdvert {
    pub(crate) kind: &'static str,
    pub(crate) len: u32,
    /// Bytes that the peer has said to have read.
    pub(crate) read: u32,
    pub(crate) age_us: u64,
}

/// A connection at one moment.
pub(crate) struct Details {
    pub(crate) shown: Shown,
    pub(crate) netns: u64,
    /// Whether sends, and receives, may return before their bytes are there; else programs touch their
    /// pages too soon.
    pub(crate) async_sends: bool,
    pub(crate) async_receives: bool,
    pub(crate) last_by_copy: Option<Reason>,
    /// Messages that the peer may send.
    pub(crate) peer_credits: u32,
    pub(crate) reads_posted: u32,
    /// Bytes that are in no message yet.
    pub(crate) tx_waiting: u32,
    /// Stretches of the stream that are behind bytes which the peer still has, or are such.
    pub(crate) held: usize,
    /// Bytes of the peer's oldest unread advert.
    pub(crate) peer_unread: u32,
    /// The oldest first.
    pub(crate) adverts: KVec<OwnAdvert>,
    pub(crate) histograms: Histograms,
}

/// Looks at a connection.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn look(sock: &SdpSock) -> Result<KBox<Details>> {
    // Before the lock is taken, which others wait for.
    let mut adverts = KVec::with_capacity(2 * ADVERTS, GFP_KERNEL)?;
    let room = KBox::<Details>::new_uninit(GFP_KERNEL)?;
    let mut locked = sock.lock();
    let shown = shown_locked(&mut locked);
    let stream = locked.stream();
    let zcopy = stream.zcopy.as_deref();
    let own = zcopy.into_iter().flat_map(|z| z.source.iter());
    let own = own.map(|a| OwnAdvert {
        kind: match a.kind {
            Kind::Synchronous => "source",
            Kind::Asynchronous => "source-async",
        },
        len: a.len,
        read: a.read,
        age_us: a.owner.age_us(),
    });
    let sinks = stream.sinks.as_deref();
    let sinks = sinks.into_iter().flat_map(|s| s.adverts.iter());
    let sinks = sinks.map(|(len, posted)| OwnAdvert {
        kind: "sink",
        len,
        read: 0,
        age_us: posted.age_us(),
    });
    for advert in Iterator::chain(own, sinks) {
        // There is room for as many as there can be.
        let _ = adverts.push_within_capacity(advert);
    }
    let details = Details {
        shown,
        netns: sock.sk().net().cookie(),
        async_sends: zcopy.is_none_or(|z| z.fallback.may_go_async()),
        async_receives: zcopy
            .is_none_or(|z| z.early_fallback.may_go_async() && z.early_use.may_go_async()),
        last_by_copy: stream.tally.last_by_copy(),
        peer_credits: stream.credits.peer_has_left(),
        reads_posted: stream.link.as_ref().map_or(0, |l| l.reads_in_flight()),
        tx_waiting: stream.tx.bytes(),
        held: zcopy.map_or(0, |z| z.hold.len()),
        peer_unread: zcopy.map_or(0, |z| z.hold.untaken()),
        adverts,
        histograms: stream
            .histograms
            .as_deref()
            .copied()
            .unwrap_or(Histograms::NONE),
    };
    drop(locked);
    Ok(KBox::write(room, details))
}

/// The messages that were kept; `None` if none shall be.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn messages(sock: &SdpSock) -> Result<Option<Messages>> {
    let mut copy = Messages::new()?;
    let mut locked = sock.lock();
    let Some(kept) = &locked.stream().messages else {
        return Ok(None);
    };
    kept.copy_to(&mut copy);
    Ok(Some(copy))
}

/// Has the messages of a connection kept, or kept no longer.
pub(crate) fn set_messages(sock: &SdpSock, new: Option<Messages>) {
    let old = core::mem::replace(&mut sock.lock().stream().messages, new);
    drop(old);
}

impl Locked<'_> {
    /// For the histograms, from the first value on. Without memory there are none.
    fn with_histograms(&mut self) -> Option<&mut Histograms> {
        let (_, flags) = self.gfp();
        let stream = self.stream();
        if stream.histograms.is_none() {
            stream.histograms = KBox::new(Histograms::NONE, flags | __GFP_NOWARN).ok();
        }
        stream.histograms.as_deref_mut()
    }

    /// A call of send() has taken so many bytes.
    pub(in crate::sdp) fn note_send(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        if let Some(histograms) = self.with_histograms() {
            histograms.send_bytes.add(bytes as u64);
        }
    }

    /// An advert of ours has ended.
    pub(in crate::sdp) fn note_end_of(&mut self, advert: &Posted) {
        if let Some(histograms) = self.with_histograms() {
            histograms.advert_us.add(advert.age_us());
        }
    }
}
