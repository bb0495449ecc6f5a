// SPDX-License-Identifier: GPL-2.0

//! The state of a connection, which the socket lock protects.

use kernel::prelude::*;
use kernel::sync::aref::ARef;

use super::deferral::Deferral;
use super::guard::SockOwner;
use super::sock::SdpSock;
use crate::inet::limits::Place;
use crate::inet::sock::Sk;
use crate::inet::sysctl::Settings;
use crate::kern::time::Timeout;
use crate::params;
use crate::proto::choice::Wanted;
use crate::proto::credits::Credits;
use crate::proto::half::Halves;
use crate::proto::hello::{
    Features,
    Refusal, //
};
use crate::proto::orphan::Rest;
use crate::proto::resize::SMALL_BYTES;
use crate::proto::state::State;
use crate::rdma::link::{
    Link,
    Tag, //
};
use crate::sdp::parts::adverts::Adverts;
use crate::sdp::parts::counts::Counts;
use crate::sdp::parts::liveness::Liveness;
use crate::sdp::parts::measured::Measured;
use crate::sdp::parts::names::Names;
use crate::sdp::parts::options::Options;
use crate::sdp::parts::port::Port;
use crate::sdp::parts::recv_queue::RecvQueue;
use crate::sdp::parts::ring::{
    Ring,
    IDLE_RECEIVES, //
};
use crate::sdp::parts::send_queue::SendQueue;

/// The threshold for a hardware adapter, if the user has set none.
const ADAPTERS_BYTES: u32 = 65536;

/// A connection, and the state of its socket before and after it.
pub(crate) struct Connection {
    pub(crate) state: State,
    pub(in crate::sdp) credits: Credits,
    pub(in crate::sdp) link: Option<Link>,
    pub(in crate::sdp) options: Options,
    pub(crate) names: Names,
    pub(crate) port: Port,
    pub(crate) lifetime: Lifetime,
    pub(in crate::sdp) halves: Halves,
    pub(in crate::sdp) out: SendQueue,
    pub(in crate::sdp) inq: RecvQueue,
    pub(in crate::sdp) ring: Ring,
    pub(in crate::sdp) adverts: Adverts,
    pub(in crate::sdp) liveness: Liveness,
    pub(in crate::sdp) measured: Measured,
}

/// The origin of a connection, and resources that it has until its end.
pub(crate) struct Lifetime {
    /// The listener, until the child is in its queue for accept().
    pub(in crate::sdp) parent: Option<ARef<SdpSock>>,
    /// The state of a deferred child.
    pub(in crate::sdp) deferral: Option<Deferral>,
    /// The nonce of a loopback connection that was started here; else 0.
    pub(in crate::sdp) nonce: u64,
    /// The connection's place in the limits of its namespace and user, as long as there are queues.
    pub(in crate::sdp) place: Option<Place>,
    /// A send with MSG_FASTOPEN starts the connection, and waits for it.
    pub(in crate::sdp) fast_opens: bool,
    /// The reason why the peer has refused the connection, if it gave one.
    pub(crate) refusal: Option<Refusal>,
    /// The socket is a TCP socket now, which has the place of this one.
    pub(crate) fell_back: Option<FellBack>,
    /// The bytes that the peer had not taken when the orphan's timer was started.
    pub(in crate::sdp) orphan_rest: Rest,
    /// The timer that limits the time for an orphan's peer to close was started.
    pub(in crate::sdp) fin_timer: bool,
}

/// A fallback to TCP.
#[derive(Copy, Clone)]
pub(crate) struct FellBack {
    /// The local port of the TCP socket.
    pub(in crate::sdp) port: u16,
    /// Why SDP could not connect.
    pub(crate) why: Error,
}

impl Lifetime {
    const fn new() -> Self {
        Self {
            parent: None,
            deferral: None,
            nonce: 0,
            place: None,
            fast_opens: false,
            refusal: None,
            fell_back: None,
            orphan_rest: Rest::new(0),
            fin_timer: false,
        }
    }
}

impl Connection {
    /// The state as programs see it.
    pub(crate) fn shown_state(&self) -> State {
        match self.names.next {
            Some(_) => State::Resolving,
            // With TCP, a deferred connection is a request in the state TCP_SYN_RECV.
            None if self.lifetime.deferral.is_some() && self.state.is_connected() => {
                State::HelloReceived
            }
            None => self.state.shown(),
        }
    }

    /// The state of a new socket, or of a new connection, in a namespace with these settings.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            state: State::Closed,
            credits: Credits::new(),
            link: None,
            options: Options::new(settings),
            names: Names::new(),
            port: Port::new(),
            lifetime: Lifetime::new(),
            halves: Halves::new(),
            out: SendQueue::new(),
            inq: RecvQueue::new(),
            ring: Ring::new(SMALL_BYTES, IDLE_RECEIVES),
            adverts: Adverts::new(Features::NONE, 0, 0),
            liveness: Liveness::default(),
            measured: Measured::new(),
        }
    }

    /// The minimum size of a send or receive without a copy in automatic mode; 0 for none.
    ///
    /// A software adapter copies on the processor in any case, and has a registration and a Read to
    /// handle in addition. With such an adapter, copying is the best path, unless the user has set
    /// a threshold.
    pub(in crate::sdp) fn threshold_bytes(&self) -> u32 {
        let asked = self.options.zcopy_thresh_bytes;
        match (u32::try_from(asked), &self.link) {
            (Ok(bytes), _) => bytes,
            (Err(_), Some(link)) if !link.is_software() => ADAPTERS_BYTES,
            (Err(_), _) => 0,
        }
    }

    /// Whether measurements of sends may decide about their path: only with a hardware adapter, and
    /// only if neither the program nor the administrator has chosen.
    pub(in crate::sdp) fn compares_paths(&self) -> bool {
        self.options.wanted == Wanted::Automatic
            && self.options.zcopy_thresh_bytes == params::ADAPTERS
            && self.link.as_ref().is_some_and(|link| !link.is_software())
    }

    /// Records that both sides agreed on `features`, that the peer can hold `theirs` adverts, and
    /// that this side can hold `ours`.
    pub(in crate::sdp) fn agree(&mut self, features: Features, theirs: u8, ours: u8) {
        self.adverts = Adverts::new(features, theirs, ours);
        let counts = &mut self.measured.counts;
        *counts = Counts {
            messages: counts.messages.take(),
            ..Counts::new()
        };
    }

    /// Takes the queues into use.
    pub(in crate::sdp) fn open_link(&mut self, link: Link, place: Place) {
        self.link = Some(link);
        self.lifetime.place = Some(place);
    }

    /// Bytes that a program has sent and the peer's adapter does not have yet.
    pub(in crate::sdp) fn unsent_bytes(&self, sk: Sk) -> u32 {
        sk.wmem_queued().saturating_add(self.adverts.unread_bytes())
    }

    /// Whether Reads of receives that have returned early are still in flight.
    pub(in crate::sdp) fn awaits_early(&self) -> bool {
        let is_early = |tag| matches!(tag, Tag::EarlyRead(_));
        self.link
            .as_ref()
            .is_some_and(|link| link.has_in_flight(is_early))
    }

    /// Whether a program may send.
    ///
    /// # Errors
    ///
    /// `EPIPE`.
    pub(in crate::sdp) fn check_sendable(&self, sk: Sk) -> Result {
        if sk.err() != 0 || sk.snd_shutdown() || !self.state.can_send() {
            return Err(EPIPE);
        }
        Ok(())
    }

    /// Whether messages can be sent.
    pub(in crate::sdp) fn may_transmit(&self) -> bool {
        self.link.is_some() && self.state.is_connected()
    }
}

impl SockOwner<'_> {
    /// Waits until the worker has started the connection that connect() has recorded: sends and
    /// receives belong to that connection.
    ///
    /// # Errors
    ///
    /// `EAGAIN`, `EINTR` (or a restart).
    pub(in crate::sdp) fn await_next(&mut self, timeo: &mut Timeout) -> Result {
        while self.conn().names.next.is_some() {
            timeo.check()?;
            self.wait(timeo);
        }
        Ok(())
    }
}
