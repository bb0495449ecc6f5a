// SPDX-License-Identifier: GPL-2.0

//! The state that the files of a connection in debugfs show. It is copied under the socket's lock,
//! and printed without the lock.

use kernel::prelude::*;

use super::sock_info::{
    sock_info_locked,
    SockInfo, //
};
use crate::params::ADVERTS;
use crate::proto::choice::Reason;
use crate::proto::source::Kind;
use crate::sdp::conn::sock::SdpSock;
use crate::stats::histogram::Histograms;

/// An outstanding advert of this side.
pub(crate) struct OwnAdvert {
    pub(crate) kind: &'static str,
    pub(crate) len: u32,
    /// Bytes that the peer has reported as read.
    pub(crate) read: u32,
    pub(crate) age_us: u64,
}

/// A connection at one moment.
pub(crate) struct ConnInfo {
    pub(crate) sock: SockInfo,
    pub(crate) netns: u64,
    /// Whether sends and receives may return before their bytes are transferred. They may not if
    /// programs touch their pages too soon.
    pub(crate) async_sends: bool,
    pub(crate) async_receives: bool,
    pub(crate) last_by_copy: Option<Reason>,
    /// Messages that the peer may send.
    pub(crate) peer_credits: u32,
    pub(crate) reads_posted: u32,
    /// Bytes that are in no message yet.
    pub(crate) tx_waiting: u32,
    /// Parts of received payload that follow an unread advert of the peer.
    pub(crate) held: usize,
    /// Bytes of the peer's oldest advert for which no Read was posted.
    pub(crate) peer_unread: u32,
    /// Source adverts, then sink adverts; the oldest of each first.
    pub(crate) adverts: KVec<OwnAdvert>,
    pub(crate) histograms: Histograms,
}

/// Copies the state of a connection.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn conn_info(sock: &SdpSock) -> Result<KBox<ConnInfo>> {
    // Allocated before the lock is taken, because others wait for the lock.
    let mut adverts = KVec::with_capacity(2 * ADVERTS, GFP_KERNEL)?;
    let room = KBox::<ConnInfo>::new_uninit(GFP_KERNEL)?;
    let mut guard = sock.lock();
    let sock_info = sock_info_locked(&mut guard);
    let conn = guard.conn();
    let sources = conn.adverts.sources.as_deref();
    let own = sources.into_iter().flat_map(|s| s.adverts.iter());
    let own = own.map(|a| OwnAdvert {
        kind: match a.kind {
            Kind::Synchronous => "source",
            Kind::Asynchronous => "source-async",
        },
        len: a.len,
        read: a.read,
        age_us: a.owner.age_us(),
    });
    let sinks = conn.adverts.sinks.as_deref();
    let sinks = sinks.into_iter().flat_map(|s| s.adverts.iter());
    let sinks = sinks.map(|(len, posted)| OwnAdvert {
        kind: "sink",
        len,
        read: 0,
        age_us: posted.age_us(),
    });
    for advert in Iterator::chain(own, sinks) {
        // There is room for the maximum number of adverts.
        let _ = adverts.push_within_capacity(advert);
    }
    let info = ConnInfo {
        sock: sock_info,
        netns: sock.sk().net().cookie(),
        async_sends: sources.is_none_or(|s| s.send_pause.may_go_async()),
        async_receives: sources
            .is_none_or(|s| s.receive_pause.may_go_async() && s.overlap_pause.may_go_async()),
        last_by_copy: conn.measured.counts.tally.last_by_copy(),
        peer_credits: conn.credits.peer_has_left(),
        reads_posted: conn.link.as_ref().map_or(0, |l| l.reads_in_flight()),
        tx_waiting: conn.out.queue.bytes(),
        held: sources.map_or(0, |s| s.hold.len()),
        peer_unread: sources.map_or(0, |s| s.reader.untaken()),
        adverts,
        histograms: conn
            .measured
            .counts
            .histograms
            .as_deref()
            .copied()
            .unwrap_or(Histograms::NONE),
    };
    drop(guard);
    Ok(KBox::write(room, info))
}
