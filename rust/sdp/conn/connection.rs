// SPDX-License-Identifier: GPL-2.0

//! The state of a connection, behind the socket lock.

use kernel::prelude::*;
use kernel::sync::aref::ARef;

use super::deferral::Deferral;
use super::guard::{
    SockGuard,
    SockOwner, //
};
use super::half::Halves;
use super::sock::SdpSock;
use crate::inet::limits::Place;
use crate::inet::sock::Sk;
use crate::inet::sysctl::Settings;
use crate::kern::time::Timeout;
use crate::params;
use crate::proto::choice::Wanted;
use crate::proto::credits::Credits;
use crate::proto::hello::{
    Features,
    Refusal, //
};
use crate::proto::orphan::Rest;
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
    IDLE_RECEIVES,
    SMALL_BYTES, //
};
use crate::sdp::parts::send_queue::SendQueue;

/// Bytes that may stay in the send queue of a connection that does nothing: their completions are
/// noticed with whatever comes next.
pub(in crate::sdp) const IDLE_BYTES: u32 = 65536;

/// The threshold of an adapter that moves bytes by itself, where the user has none.
const ADAPTERS_BYTES: u32 = 65536;

/// A connection, and the socket before and after it.
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

/// How a connection came to be, and what it is given until its end.
pub(crate) struct Lifetime {
    /// The listener, until the child is in its queue for accept().
    pub(in crate::sdp) parent: Option<ARef<SdpSock>>,
    /// Of a child that is deferred.
    pub(in crate::sdp) deferral: Option<Deferral>,
    /// The connection started here, and has the nonce of a local one.
    pub(in crate::sdp) nonce: u64,
    /// From the queues' beginning to their end.
    pub(in crate::sdp) place: Option<Place>,
    /// A send with MSG_FASTOPEN makes the connection, and waits for it.
    pub(in crate::sdp) fast_opens: bool,
    /// Why the peer has refused the connection, if it said so.
    pub(crate) refusal: Option<Refusal>,
    /// The worker has given everything back.
    pub(in crate::sdp) torn_down: bool,
    /// What the peer had not taken when the orphan's timer was started.
    pub(in crate::sdp) orphan_rest: Rest,
    /// The timer runs for the peer of an orphan to close.
    pub(in crate::sdp) fin_timer: bool,
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
            torn_down: false,
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
            // With TCP it is a request, in the state TCP_SYN_RECV.
            None if self.lifetime.deferral.is_some() && self.state.is_connected() => {
                State::HelloReceived
            }
            None => self.state,
        }
    }

    /// Of a new socket, or connection, of a namespace with these settings.
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

    /// Whether the time that sends take may decide whether they go by copy: neither the program nor the
    /// administrator has chosen.
    pub(in crate::sdp) fn compares_ways(&self) -> bool {
        self.options.wanted == Wanted::Automatic
            && self.options.zcopy_thresh_bytes == params::ADAPTERS
            && self.link.as_ref().is_some_and(|link| !link.is_software())
    }

    /// Both sides agreed on `features`; the peer holds `theirs` adverts, and we `ours`.
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
        self.lifetime.torn_down = false;
    }

    /// Bytes that a program has sent and the peer's adapter does not have yet.
    pub(in crate::sdp) fn unsent_bytes(&self, sk: Sk) -> u32 {
        sk.wmem_queued().saturating_add(self.adverts.unread_bytes())
    }

    /// Whether bytes that receives have given away are still on their way.
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

    /// Whether the next completion of a send must be noticed, although nothing was received.
    pub(in crate::sdp) fn awaits_send_completion(&self, sk: Sk) -> bool {
        !self.out.queue.is_empty()
            || self.halves.memory_waiters > 0
            || self.link.as_ref().is_some_and(|l| l.awaits_request())
            || (self.halves.sender_waits_for_peer() && !self.awaits_messages_only())
            || self.adverts.waits
            || self.adverts.is_cancel_due()
            // A program has protected pages until it is done.
            || self.adverts.sinks.as_ref().is_some_and(|s| s.charged_bytes > 0)
            // A Read waits for places.
            || self.adverts.untaken() > 0
            || self.out.disconn_due
            || self.out.peer_receives.has_to_use_up()
            || matches!(
                self.state,
                State::FinWait1 | State::LastAck | State::Closing | State::Draining
            )
            || ((!sk.stream_writeable() || sk.wmem_queued() > IDLE_BYTES)
                && !self.awaits_messages_only())
    }

    /// Whether all that the send buffer and the sends wait for is messages of the peer: the peer reads
    /// what was advertised, and says so. With the others, and with soft-RoCE, which does not notify of
    /// failed requests if it is asked for received messages, a request must be noticed that finishes.
    fn awaits_messages_only(&self) -> bool {
        let is_such = |l: &Link| !l.is_software() && !l.writes() && !l.sends_payload();
        self.link.as_ref().is_some_and(is_such)
    }
}

impl SockGuard<'_> {
    /// Asks for the next notification, unless that is still to come; `true` if the queue must be polled
    /// again.
    pub(crate) fn arm(&mut self) -> bool {
        let (sock, sk) = (self.sock(), self.sk());
        let conn = self.conn();
        let every = conn.awaits_send_completion(sk);
        let Some(link) = &mut conn.link else {
            return false;
        };
        if link.is_armed(every) && !sock.was_notified() {
            return false;
        }
        sock.forget_notification();
        link.arm(every)
    }

    /// Whether the CQ was empty when it was asked for the next notification, which has not come yet: there
    /// is nothing to be polled. For some adapters each look at an empty queue, and each request for a
    /// notification, is a doorbell.
    pub(crate) fn is_cq_quiet(&mut self) -> bool {
        let (sock, sk) = (self.sock(), self.sk());
        let conn = self.conn();
        // In this order: with a software provider no more than the first is looked at.
        let is_quiet = |l: &Link| !l.is_software() && l.is_armed(conn.awaits_send_completion(sk));
        conn.link.as_ref().is_some_and(is_quiet) && !sock.was_notified()
    }
}

impl SockOwner<'_> {
    /// Waits until the worker has started the connection that connect() has noted: what is sent or
    /// received is that connection's.
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
