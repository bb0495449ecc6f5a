// SPDX-License-Identifier: GPL-2.0

//! The state of a connection, behind the socket lock.

use kernel::prelude::*;
use kernel::sync::aref::ARef;

use super::guard::{
    Locked,
    Owned, //
};
use super::half::Halves;
use super::sock::SdpSock;
use crate::inet::addr::Addr;
use crate::inet::limits::Place;
use crate::inet::ports::Bound;
use crate::inet::sysctl::{
    Setting,
    Settings, //
};
use crate::kern::time::{
    now,
    Timeout, //
};
use crate::mm::frag::Frag;
use crate::proto::choice::Wanted;
use crate::proto::credits::Credits;
use crate::proto::hello::{
    Features,
    Refusal,
    BUFS_MIN, //
};
use crate::proto::orphan::Rest;
use crate::proto::pace::Pace;
use crate::proto::resize::{
    OwnReceives,
    PeerReceives, //
};
use crate::proto::state::State;
use crate::rdma::link::Link;
use crate::rdma::receive::{
    Spares,
    MAX_PARTS,
    PART_BYTES, //
};
use crate::sdp::parts::glance::Seen;
use crate::sdp::parts::keepalive::Keepalive;
use crate::sdp::parts::sink::{
    Events,
    Sinks, //
};
use crate::sdp::parts::source::ZeroCopy;
use crate::stats::histogram::{
    Histograms,
    Messages, //
};
use crate::stats::tally::Tally;

/// The threshold of an adapter that moves bytes by itself, where the user has none.
const ADAPTERS_BYTES: u32 = 65536;

/// Payload of a receive while a connection is idle: one page.
pub(crate) const SMALL_BYTES: u32 = 4096;
/// The same where there are many connections already: so that a page has [`IDLE_RECEIVES`] of them,
/// none in a cache line of another.
pub(crate) const LEAST_BYTES: u32 = SMALL_BYTES / IDLE_RECEIVES / 128 * 128;
/// Payload of a receive when data flows.
pub(crate) const LARGE_BYTES: u32 = MAX_PARTS as u32 * PART_BYTES;
/// Receives posted for an idle connection. Data needs four credits, so this is room for two.
pub(crate) const IDLE_RECEIVES: u32 = BUFS_MIN as u32;

/// What the user has set, but for what calls look at without the lock: that is in
/// [`Glance`](crate::sdp::parts::glance::Glance).
#[derive(Copy, Clone)]
pub(crate) struct Options {
    pub(crate) nodelay: bool,
    pub(crate) cork: bool,
    pub(crate) keepidle_s: i32,
    pub(crate) keepintvl_s: i32,
    pub(crate) keepcnt: i32,
    pub(crate) user_timeout_ms: i32,
    /// The size that the send buffer began with.
    pub(crate) sndbuf_bytes: i32,
    /// The least bytes of a send without a copy; 0 for none.
    pub(crate) zcopy_thresh_bytes: i32,
    /// The way that sends go.
    pub(crate) wanted: Wanted,
    /// Who writes to memory that a send still needs waits, instead of having a copy.
    pub(crate) blocks: bool,
}

/// Control messages that wait to be sent.
#[derive(Copy, Clone, Default)]
pub(crate) struct Pending {
    /// Tell that no more data comes, behind the data.
    pub(crate) disconn: bool,
    /// Answer the peer's first message, by one that says nothing.
    pub(crate) answer: bool,
}

/// A partial message that the program holds back, by TCP_CORK or MSG_MORE.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum HeldBack {
    Nothing,
    /// The timer runs.
    Timed,
    /// It is due although the program holds it.
    TooLong,
}

/// The worker's looks after what was sent.
#[derive(Copy, Clone, Default)]
pub(crate) struct Watch {
    /// Another look will come.
    pub(crate) running: bool,
    /// The oldest message in flight at the last look.
    pub(crate) oldest: u32,
    /// Nothing was in flight then: what waits, waited for the peer to make room.
    pub(crate) held_up: bool,
    /// What the peer had not taken then.
    pub(crate) unsent: u32,
    /// Looks that have found the same.
    pub(crate) looks: u32,
    /// When to wake the peer's adapter again, whose answer to the first message is missing; else 0.
    pub(crate) wake_ms: u32,
}

pub(crate) struct Stream {
    pub(crate) state: State,
    pub(crate) credits: Credits,
    pub(crate) link: Option<Link>,
    pub(crate) options: Options,
    pub(crate) pending: Pending,
    /// What both sides agreed on.
    pub(crate) features: Features,
    /// Adverts of each kind that may be out to the peer at a time.
    pub(crate) peer_adverts: u8,
    /// Those of the peer that we hold at a time.
    pub(crate) own_adverts: u8,
    /// From the first advert on, of either side.
    pub(crate) zcopy: Option<KBox<ZeroCopy>>,
    /// From the first sink advert on, of either side.
    pub(crate) sinks: Option<KBox<Sinks>>,
    /// Before that.
    pub(crate) events: Events,
    /// Bytes of the buffer of a reader that waits in a call, and can take the peer's bytes itself.
    pub(crate) reader_bytes: Option<usize>,
    /// The last reader does not wait in its calls.
    pub(crate) polled: bool,
    /// An advert waits for credits, for places, or for what is in the send queue.
    pub(crate) advert_waits: bool,
    /// Bytes of the user that are not yet in a message.
    pub(crate) tx: Seen,
    /// The last send had MSG_MORE.
    pub(crate) more: bool,
    pub(crate) held_back: HeldBack,
    /// The next message waits for credits or for a place in the send queue.
    pub(crate) stalled: bool,
    pub(crate) peer_receives: PeerReceives,
    /// When the peer was asked for larger receives last, in jiffies.
    pub(crate) asked_at: usize,
    /// Pages whose bytes were just read, for the next receives; none outside a call.
    pub(crate) spares: Spares,
    pub(crate) watch: Watch,
    pub(crate) keepalive: Keepalive,
    /// The number of the last message that the peer must have before the end: DisConn, or an answer.
    pub(crate) last_needed: Option<u32>,
    /// The number of the last message that was not full, while it is in flight.
    pub(crate) small_in_flight: Option<u32>,
    /// Bytes received that the user has not read.
    pub(crate) rx: Seen,
    /// The free rest of the page into which short payloads are copied.
    pub(crate) compact: Option<Frag>,
    /// Something was copied there since the last look of [`Locked::look_after_sends`].
    pub(crate) compact_used: bool,
    pub(crate) own_receives: OwnReceives,
    /// Receive memory that stays charged while the connection lives, and what of it is unused now.
    pub(crate) guaranteed: u32,
    pub(crate) reserve: u32,
    /// Something came for a reader, who is to be woken.
    pub(crate) readable: bool,
    /// Receives to keep posted while memory allows.
    pub(crate) recv_target: u32,
    pub(crate) halves: Halves,
    /// The peer's DisConn was received: end of file behind the queue.
    pub(crate) fin_received: bool,
    pub(crate) local: Addr,
    pub(crate) peer: Addr,
    /// Where the next connection leads that connect() has asked for, while the former one is given back.
    pub(crate) next: Option<Addr>,
    /// The listener, until the child is in its queue.
    pub(crate) parent: Option<ARef<SdpSock>>,
    /// Where the socket is in the tables of ports, if it has one.
    pub(crate) bound: Option<Bound>,
    /// The same of the connection that is given back, if the next one has another port.
    pub(crate) former_bound: Option<Bound>,
    /// The connection's id has the port at the CM too.
    pub(crate) cm_port: bool,
    /// The connection started here, and has the nonce of a local one.
    pub(crate) nonce: u64,
    /// From the queues' beginning to their end.
    pub(crate) place: Option<Place>,
    pub(crate) last_bind_err: i32,
    /// Why the peer has refused the connection, if it said so.
    pub(crate) refusal: Option<Refusal>,
    /// The worker has given everything back.
    pub(crate) torn_down: bool,
    /// The CM listens for this socket.
    pub(crate) cm_listens: bool,
    /// The ports at which the worker shall end the CM's listening; with a place for the next one while
    /// the socket listens.
    pub(crate) unlisten: KVec<u16>,
    /// What the peer had not taken when the orphan's timer was started.
    pub(crate) orphan_rest: Rest,
    pub(crate) pace: Pace,
    /// When a message with payload was sent last, and received, in jiffies.
    pub(crate) data_sent: usize,
    pub(crate) data_received: usize,
    pub(crate) tally: Tally,
    /// From the first send, or advert, on.
    pub(crate) histograms: Option<KBox<Histograms>>,
    /// The last messages, where somebody has asked for them.
    pub(crate) messages: Option<Messages>,
}

impl Stream {
    /// The state as programs see it.
    pub(crate) fn shown_state(&self) -> State {
        match self.next {
            Some(_) => State::Resolving,
            None => self.state,
        }
    }

    /// The peer, or that of the connection which connect() has noted.
    pub(crate) fn shown_peer(&self) -> Addr {
        self.next.unwrap_or(self.peer)
    }

    /// Of a new socket, or connection, of a namespace with these settings.
    pub(crate) fn new(settings: &Settings) -> Self {
        let wanted = Wanted::from_number(settings.get(Setting::ZcopyMode));
        Self {
            state: State::Closed,
            credits: Credits::new(),
            link: None,
            options: Options {
                nodelay: false,
                cork: false,
                keepidle_s: settings.get(Setting::KeepaliveTime),
                keepintvl_s: settings.get(Setting::KeepaliveIntvl),
                keepcnt: settings.get(Setting::KeepaliveProbes),
                user_timeout_ms: 0,
                sndbuf_bytes: settings.get(Setting::WmemDefault),
                zcopy_thresh_bytes: settings.get(Setting::ZcopyThresh),
                wanted: wanted.unwrap_or(Wanted::Automatic),
                blocks: settings.get(Setting::FaultPolicy) == 1,
            },
            pending: Pending::default(),
            features: Features::NONE,
            peer_adverts: 0,
            own_adverts: 0,
            zcopy: None,
            sinks: None,
            events: Events::new(),
            reader_bytes: None,
            polled: false,
            advert_waits: false,
            tx: Seen::new(),
            more: false,
            held_back: HeldBack::Nothing,
            stalled: false,
            peer_receives: PeerReceives::new(0),
            asked_at: 0,
            spares: Spares::new(),
            watch: Watch::default(),
            keepalive: Keepalive::default(),
            last_needed: None,
            small_in_flight: None,
            rx: Seen::new(),
            compact: None,
            compact_used: false,
            own_receives: OwnReceives::new(SMALL_BYTES),
            guaranteed: 0,
            reserve: 0,
            readable: false,
            recv_target: IDLE_RECEIVES,
            halves: Halves::new(),
            fin_received: false,
            local: Addr::ANY,
            peer: Addr::ANY,
            next: None,
            parent: None,
            bound: None,
            former_bound: None,
            cm_port: false,
            nonce: 0,
            place: None,
            last_bind_err: 0,
            refusal: None,
            torn_down: false,
            cm_listens: false,
            unlisten: KVec::new(),
            orphan_rest: Rest::default(),
            pace: Pace::default(),
            data_sent: now(),
            data_received: now(),
            tally: Tally::new(),
            histograms: None,
            messages: None,
        }
    }

    /// Least bytes of a send, or of a receive, without a copy where the mode is automatic; 0 for none.
    ///
    /// An adapter in software copies on the processor, whatever the way, and has a registration and
    /// a Read to handle besides: there copying is the best way, unless the user has measured another.
    pub(in crate::sdp) fn threshold_bytes(&self) -> u32 {
        let asked = self.options.zcopy_thresh_bytes;
        match (u32::try_from(asked), &self.link) {
            (Ok(bytes), _) => bytes,
            (Err(_), Some(link)) if !link.is_software() => ADAPTERS_BYTES,
            (Err(_), _) => 0,
        }
    }
}

impl Locked<'_> {
    /// [`Stream::threshold_bytes`].
    pub(in crate::sdp) fn threshold(&mut self) -> usize {
        self.stream().threshold_bytes() as usize
    }
}

impl Owned<'_> {
    /// Waits until the worker has started the connection that connect() has noted: what is sent or
    /// received is that connection's.
    ///
    /// # Errors
    ///
    /// `EAGAIN`, `EINTR` (or a restart).
    pub(in crate::sdp) fn await_next(&mut self, timeo: &mut Timeout) -> Result {
        while self.stream().next.is_some() {
            timeo.check()?;
            self.wait(timeo);
        }
        Ok(())
    }
}
