// SPDX-License-Identifier: GPL-2.0

//! What others are shown of a socket.

use kernel::prelude::*;

use super::tcp_info::Figures;
use crate::bindings;
use crate::inet::addr::Addr;
use crate::inet::netns::Net;
use crate::inet::sock::Sk;
use crate::proto::hello::Features;
use crate::proto::state::State;
use crate::sdp::cm::bind::{
    self,
    Cursor, //
};
use crate::sdp::conn::guard::SockGuard;
use crate::sdp::conn::sock::SdpSock;
use crate::sdp::parts::options::Options;
use crate::stats::tally::Tally;

/// A socket at one moment.
pub(crate) struct Shown {
    pub(crate) family: u16,
    pub(crate) local: Addr,
    pub(crate) peer: Addr,
    pub(crate) interface: u32,
    pub(crate) state: State,
    /// Bytes that the peer has not taken; of a listener, connections that wait at most.
    pub(crate) tx_queue: u32,
    /// Bytes that were not read; of a listener, connections that wait.
    pub(crate) rx_queue: u32,
    pub(crate) credits: u32,
    pub(crate) posted: u32,
    pub(crate) rcv_size: u32,
    pub(crate) peer_bytes: u32,
    pub(crate) sends_posted: u32,
    pub(crate) features: Features,
    pub(crate) options: Options,
    pub(crate) threshold_bytes: u32,
    pub(crate) keepalive: bool,
    pub(crate) reuseaddr: bool,
    pub(crate) reuseport: bool,
    pub(crate) v6only: bool,
    pub(crate) sndbuf: u32,
    pub(crate) rcvbuf: u32,
    pub(crate) wmem: u32,
    pub(crate) rmem: u32,
    pub(crate) inode: u64,
    pub(crate) cookie: u64,
    pub(crate) tally: Tally,
    /// Of a connection.
    pub(crate) figures: Figures,
}

/// Looks at a socket, under its lock.
pub(crate) fn shown(sock: &SdpSock) -> Shown {
    shown_locked(&mut sock.lock())
}

/// The same of a socket whose lock is held.
pub(super) fn shown_locked(guard: &mut SockGuard<'_>) -> Shown {
    let sk = guard.sk();
    let unsent = guard.unsent_bytes();
    let figures = guard.figures();
    let conn = guard.conn();
    let listens = conn.state == State::Listen;
    let link = conn.link.as_ref();
    Shown {
        family: sk.family(),
        local: sk.bound_addr(),
        peer: conn.names.shown_peer(),
        interface: sk.bound_dev().unsigned_abs(),
        state: conn.shown_state(),
        tx_queue: if listens { sk.backlog_max() } else { unsent },
        rx_queue: if listens {
            sk.backlog()
        } else {
            conn.inq.queue.bytes()
        },
        credits: conn.credits.available(),
        posted: link.map_or(0, |l| l.receives_posted()),
        rcv_size: conn.ring.receives.bytes(),
        peer_bytes: conn.out.peer_receives.bytes(),
        sends_posted: link.map_or(0, |l| l.sends_in_flight()),
        features: conn.adverts.features,
        options: conn.options,
        threshold_bytes: conn.threshold_bytes(),
        keepalive: sk.has_flag(bindings::sock_flags_SOCK_KEEPOPEN),
        reuseaddr: sk.reuse(),
        reuseport: sk.reuseport(),
        v6only: sk.v6only(),
        sndbuf: sk.sndbuf(),
        rcvbuf: sk.rcvbuf(),
        wmem: sk.wmem_queued(),
        rmem: sk.rmem(),
        inode: sk.inode(),
        cookie: sk.cookie(),
        tally: conn.counts.tally.clone(),
        figures,
    }
}

/// Hands every socket of `net` that has a port to `each`, and what is shown of it.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn for_each(net: Net<'_>, mut each: impl FnMut(Sk, &Shown)) -> Result {
    let mut cursor = Cursor::default();
    loop {
        let batch = bind::batch(net, &cursor, None)?;
        if batch.is_empty() {
            return Ok(());
        }
        for (sock, place) in &batch {
            each(sock.sk(), &shown(sock));
            cursor = place.next();
        }
    }
}
