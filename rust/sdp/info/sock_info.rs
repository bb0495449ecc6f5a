// SPDX-License-Identifier: GPL-2.0

//! The state of a socket as shown to users.

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
pub(crate) struct SockInfo {
    pub(crate) name: Name,
    pub(crate) state: State,
    /// Bytes that the peer has not taken; of a listener, the maximum number of waiting connections.
    pub(crate) tx_queue: u32,
    /// Bytes that were not read; of a listener, the number of waiting connections.
    pub(crate) rx_queue: u32,
    pub(crate) room: Room,
    pub(crate) features: Features,
    pub(crate) options: Options,
    /// The minimum size of a send without a copy.
    pub(crate) threshold_bytes: u32,
    pub(crate) flags: Flags,
    /// Why SDP could not connect, if the socket has become a TCP socket.
    pub(crate) fell_back: Option<Error>,
    pub(crate) buffers: Buffers,
    pub(crate) tally: Tally,
    /// The transfer figures of a connection.
    pub(crate) figures: Figures,
}

/// The identity of a socket.
pub(crate) struct Name {
    pub(crate) family: u16,
    pub(crate) local: Addr,
    pub(crate) peer: Addr,
    pub(crate) interface: u32,
    pub(crate) inode: u64,
    pub(crate) cookie: u64,
}

/// The room for messages at both sides.
pub(crate) struct Room {
    /// Messages that the peer has room for.
    pub(crate) credits: u32,
    pub(crate) receives_posted: u32,
    /// Bytes of payload that a receive takes, here and at the peer.
    pub(crate) receive_bytes: u32,
    pub(crate) peer_receive_bytes: u32,
    pub(crate) sends_posted: u32,
}

/// Options that are not kept in [`Options`].
pub(crate) struct Flags {
    pub(crate) keepalive: bool,
    pub(crate) reuseaddr: bool,
    pub(crate) reuseport: bool,
    pub(crate) v6only: bool,
    /// SDP_LISTEN_TCP: accept() also returns TCP connections.
    pub(crate) listens_tcp: bool,
}

/// Sizes of the buffers, and the charges to them, in bytes.
pub(crate) struct Buffers {
    pub(crate) send: u32,
    pub(crate) receive: u32,
    pub(crate) sends_charged: u32,
    pub(crate) receives_charged: u32,
}

/// Copies the state of a socket, under its lock.
pub(crate) fn sock_info(sock: &SdpSock) -> SockInfo {
    sock_info_locked(&mut sock.lock())
}

/// As [`sock_info`], for a socket whose lock is held.
pub(super) fn sock_info_locked(guard: &mut SockGuard<'_>) -> SockInfo {
    let (sk, sock) = (guard.sk(), guard.sock());
    let conn = guard.conn();
    let unsent = conn.unsent_bytes(sk);
    let figures = Figures::of(conn, sk);
    let listens = conn.state == State::Listen;
    let listens_tcp = listens && sock.accepts.lock().serves_tcp();
    let link = conn.link.as_ref();
    SockInfo {
        name: Name {
            family: sk.family(),
            local: sk.bound_addr(),
            peer: conn.names.shown_peer(),
            interface: sk.bound_dev().unsigned_abs(),
            inode: sk.inode(),
            cookie: sk.cookie(),
        },
        state: conn.shown_state(),
        tx_queue: if listens { sk.backlog_max() } else { unsent },
        rx_queue: if listens {
            sk.backlog()
        } else {
            conn.inq.queue.bytes()
        },
        room: Room {
            credits: conn.credits.available(),
            receives_posted: link.map_or(0, |l| l.receives_posted()),
            receive_bytes: conn.ring.receives.bytes(),
            peer_receive_bytes: conn.out.peer_receives.bytes(),
            sends_posted: link.map_or(0, |l| l.sends_in_flight()),
        },
        features: conn.adverts.features,
        options: conn.options,
        threshold_bytes: conn.threshold_bytes(),
        flags: Flags {
            keepalive: sk.has_flag(bindings::sock_flags_SOCK_KEEPOPEN),
            reuseaddr: sk.reuse(),
            reuseport: sk.reuseport(),
            v6only: sk.v6only(),
            listens_tcp,
        },
        fell_back: conn.lifetime.fell_back.map(|fell_back| fell_back.why),
        buffers: Buffers {
            send: sk.sndbuf(),
            receive: sk.rcvbuf(),
            sends_charged: sk.wmem_queued(),
            receives_charged: sk.rmem(),
        },
        tally: conn.measured.counts.tally.clone(),
        figures,
    }
}

/// Calls `each` for every socket of `net` that has a port, with its state.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn for_each(net: Net<'_>, mut each: impl FnMut(Sk, &SockInfo)) -> Result {
    let mut cursor = Cursor::default();
    loop {
        let batch = bind::batch(net, &cursor, None)?;
        if batch.is_empty() {
            return Ok(());
        }
        for (sock, place) in &batch {
            each(sock.sk(), &sock_info(sock));
            cursor = place.next();
        }
    }
}
