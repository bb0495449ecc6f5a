// SPDX-License-Identifier: GPL-2.0

//! The set-up of a connection: the part of the socket's worker that requests a connection from the
//! CM or answers a request, creates the queues, and exchanges Hello and HelloAck.

use core::ptr::NonNull;

use kernel::prelude::*;
use kernel::sync::aref::AlwaysRefCounted;
use kernel::time::delay::fsleep;
use kernel::time::Delta;

use super::features::{
    max_adverts_of,
    FEATURES, //
};
use super::worker::Worker;
use super::{
    bind,
    close,
    fallback,
    loopback, //
};
use crate::bindings;
use crate::inet::addr::Addr;
use crate::inet::announced::Ends;
use crate::inet::limits::Place;
use crate::inet::netns::LOOPBACK_IFINDEX;
use crate::inet::sock::Sk;
use crate::kern::errno::{
    EADDRNOTAVAIL,
    ECONNABORTED,
    ECONNREFUSED,
    ECONNRESET,
    EHOSTUNREACH,
    ENETUNREACH,
    ENOBUFS,
    EPROTO, //
};
use crate::params::breaks::Rule;
use crate::proto::hello::{
    Features,
    Hello,
    HelloAck,
    Refusal,
    BUFS_MIN,
    HELLO_ACK_ROOM, //
};
use crate::proto::resize::PeerReceives;
use crate::proto::state::{
    Event,
    State, //
};
use crate::rdma::cm::{
    self,
    CmId,
    ConnParam, //
};
use crate::rdma::link::Link;
use crate::rdma::post::READS;
use crate::sdp::conn::accept_queue::{
    self,
    OLD_MS, //
};
use crate::sdp::conn::guard::{
    SockGuard,
    SockOwner, //
};
use crate::sdp::conn::sock::Alarm;
use crate::sdp::cq::poll::process;
use crate::sdp::parts::port::AtCm;
use crate::sdp::rx::Receiver;
use crate::sdp::timers::tx_watchdog::send_first;
use crate::stats::counters::Counter;

/// How long the resolution of an address or a route may take.
const RESOLVE_MS: u32 = 2000;
/// How long a peer may take to complete the set-up that it has started. The CM resends a lost reply
/// after about four seconds (`CMA_CM_RESPONSE_TIMEOUT`), so there is time for a few attempts. If
/// this side gave up earlier, a late reply would still give the peer its connection, and the peer
/// would wait for a program that never gets it.
pub(super) const HANDSHAKE_MS: u32 = 20_000;
/// How long a request may wait for a place in a listener's backlog: longer than the 131 s for which
/// connect() waits by default ([`Options::connect_ms`]). The peer's CM waits as well, because this
/// side's CM acknowledges the request (`ib_prepare_cm_mra()`).
///
/// [`Options::connect_ms`]: crate::sdp::parts::options::Options::connect_ms
pub(super) const PLACE_MS: u32 = 135_000;

impl Worker<'_> {
    // Connections that start here.

    pub(super) fn start_connect(&mut self) -> Result {
        let (from, to, cm_port) = {
            let mut guard = self.sock.lock();
            let conn = guard.conn();
            if conn.state != State::Resolving {
                return Ok(());
            }
            // A listener may also use a port that the program has chosen or shares, so the id at
            // the CM does not use the port.
            let sk = self.sock.sk();
            let shared = sk.reuse() || sk.reuseport();
            // On iWARP, TCP would connect the port to itself.
            let itself = conn.names.peer.port == sk.num();
            let own = !shared && !itself && !sk.user_locked(bindings::SOCK_BINDPORT_LOCK);
            let cm_port = if own { sk.num() } else { 0 };
            (conn.names.local, conn.names.peer, cm_port)
        };
        let net = self.sock.sk().net();
        // SAFETY: The id holds a reference on the socket, taken below, until `teardown`.
        let id = unsafe { CmId::new(net, NonNull::from(self.sock)) }?;
        self.sock.inc_ref();
        let id = self.cm.id.insert(id);
        // If no program has set a service type, the administrator's default applies (configfs).
        let tos = self.sock.sk().service_type(to.is_v4());
        if tos != 0 {
            id.set_service_type(tos);
        }
        if !to.is_loopback() {
            let dev = self.sock.sk().bound_dev();
            if from.is_any() && ![0, LOOPBACK_IFINDEX].contains(&dev) {
                id.set_device_of_way(dev);
            }
            let from = match (from.is_any(), to.is_v4()) {
                (true, true) => Addr::v4([0; 4], 0),
                _ => from,
            };
            return self.resolve(from.with_port(cm_port), !to.is_v4(), to);
        }
        let via = loopback::transport_addr(net)?;
        let from = if from.is_any() {
            to.with_port(self.sock.sk().num())
        } else {
            from
        };
        let nonce = net.announced().add(Ends { from, to })?;
        {
            let mut guard = self.sock.lock();
            guard.conn().lifetime.nonce = nonce;
            self.set_local(&mut guard, from)?;
        }
        self.resolve(via.with_port(cm_port), !via.is_v4(), via.with_port(to.port))
    }

    /// Resolves `to` from the port of `from`. If there is none, or if another user of the CM has
    /// the port, uses a port that no socket has: the peer reads the socket's own port in the Hello.
    fn resolve(&self, from: Addr, v6: bool, to: Addr) -> Result {
        let id = self.cm.id.as_ref().ok_or(ECONNABORTED)?;
        let to = to.to_storage(false);
        let start = |from: Addr| id.resolve_addr(&from.to_storage(v6), &to, RESOLVE_MS);
        if from.port != 0 {
            let mut guard = self.sock.lock();
            let conn = guard.conn();
            if conn.state != State::Resolving {
                // The socket may have another port by now.
                return Err(ECONNABORTED);
            }
            conn.port.at_cm = AtCm::Own;
            drop(guard);
            match start(from) {
                Err(e) if bind::is_taken(e) => {}
                result => return result,
            }
        }
        for _ in 0..bind::PORTS_TRIED {
            let Ok(port) = bind::set_aside_for_cm(&mut self.sock.lock()) else {
                break;
            };
            match start(from.with_port(port)) {
                Err(e) if bind::is_taken(e) => {}
                result => return result,
            }
        }
        bind::left_cm(&mut self.sock.lock());
        // The CM itself may use one port for connections to several peers.
        start(from.with_port(0))?;
        let (local, _) = id.addrs();
        bind::chosen_by_cm(&mut self.sock.lock(), local.port)
    }

    /// Sets the local address of the socket.
    ///
    /// # Errors
    ///
    /// `EADDRNOTAVAIL` if another connection has the same addresses and ports; `ECONNABORTED` if the
    /// program has given the connection up, and with it the address.
    fn set_local(&self, guard: &mut SockGuard<'_>, local: Addr) -> Result {
        let conn = guard.conn();
        if conn.state != State::Resolving {
            return Err(ECONNABORTED);
        }
        conn.names.local = local;
        let sk = self.sock.sk();
        sk.set_local(&local);
        if sk.net().ports().has_twin(sk) {
            return Err(EADDRNOTAVAIL);
        }
        Ok(())
    }

    pub(super) fn addr_resolved(&mut self) -> Result {
        let id = self.cm.id.as_ref().ok_or(ECONNABORTED)?;
        {
            let (local, _) = id.addrs();
            let mut guard = self.sock.lock();
            if guard.conn().lifetime.nonce == 0 {
                if !goes_over(self.sock.sk(), id.interface()) {
                    return Err(ENETUNREACH);
                }
                let local = local.with_port(self.sock.sk().num());
                self.set_local(&mut guard, local)?;
            }
        }
        id.resolve_route(RESOLVE_MS)
    }

    pub(super) fn route_resolved(&mut self) -> Result {
        let id = self.cm.id.as_ref().ok_or(ECONNABORTED)?;
        id.set_ack_timeout()?;
        let place = Place::take(self.sock.sk())?;
        // SAFETY: `teardown` drops the link before the id, and releases the connection's reference
        // on the socket after both.
        let link = unsafe { Link::new(id, self.sock) }?;
        let features = able(&link);
        let connect_ms;
        let hello = {
            let mut guard = self.sock.lock();
            if guard.conn().state != State::Resolving {
                drop(guard);
                return Err(ECONNABORTED);
            }
            let rcv_size = guard.conn().ring.reserve_first(self.sock.sk())?;
            let bufs = open_link(&mut guard, link, place)?;
            guard.transition(Event::AddressResolved);
            let net = guard.sk().net();
            connect_ms = guard.conn().options.connect_ms(net);
            Hello {
                features,
                max_adverts: max_adverts_of(self.sock.sk().net()),
                bufs,
                rcv_size,
                ipv6: !guard.conn().names.peer.is_v4(),
                src_port: self.sock.sk().num(),
                nonce: guard.conn().lifetime.nonce,
            }
        };
        self.cm.offer = Some(hello);
        self.sock.start_timer(Alarm::Timeout, connect_ms);
        id.connect(&ConnParam {
            private: &hello.encode(),
            reads: reads_for(features),
        })
    }

    pub(super) fn connected(&mut self, event: &cm::Event) -> Result {
        let offer = self.cm.offer.ok_or(ECONNABORTED)?;
        let mut room = [0; HELLO_ACK_ROOM];
        for (to, from) in room.iter_mut().zip(event.private()) {
            *to = *from;
        }
        let ack = HelloAck::decode(&room)
            .and_then(|ack| ack.check_against(&offer).map(|()| ack))
            .map_err(|why| {
                self.sock.stats.violation(why);
                self.sock.stats.inc(Counter::AbortedViolation);
                EPROTO
            })?;
        self.make_folder();
        self.cm.is_up = true;
        let speaks_first = self.cm.id.as_ref().is_some_and(CmId::is_iwarp);
        let mut guard = self.sock.lock();
        if guard.conn().state != State::HelloSent {
            return Err(ECONNABORTED);
        }
        // The listener's side has read the announcement. From now on, the CM handles repeated
        // messages.
        let nonce = core::mem::replace(&mut guard.conn().lifetime.nonce, 0);
        guard.sk().net().announced().retire(nonce);
        let conn = guard.conn();
        conn.credits.set_peer_limit(ack.bufs);
        conn.out.peer_receives = PeerReceives::new(ack.rcv_size);
        // As with TCP, the end of connect() resets the option.
        conn.options.quickack = true;
        guard
            .conn()
            .agree(ack.features, ack.max_adverts, offer.max_adverts);
        guard.transition(Event::ConnectAccepted);
        if speaks_first {
            send_first(&mut guard);
        }
        self.sock.stop_timer(Alarm::Timeout);
        self.sock.stats.inc(Counter::ConnectDone);
        process(&mut guard);
        self.sock.sk().wake_all();
        self.sock.sk().signal_connected();
        drop(guard);
        fallback::discard(self.sock);
        Ok(())
    }

    /// Ends a failed attempt. The resources are released first, because a connect() that waits in
    /// the core makes the socket usable again as soon as it is woken.
    pub(super) fn connect_failed(&mut self, why: Error) {
        self.sock.stats.inc(Counter::ConnectFailed);
        self.give_back();
        // Dropped without the lock, if the socket does not become the TCP socket.
        let mut tcp = fallback::connect(self.sock);
        let mut guard = self.sock.lock();
        // In any other state, another thread has ended the attempt meanwhile: this error must not
        // overwrite the error of that thread, or affect the socket's next connection.
        if matches!(guard.conn().state, State::Resolving | State::HelloSent) {
            if !fallback::install(&mut guard, &mut tcp, why) {
                self.sock.sk().set_err(why);
                self.sock.sk().add_shutdown(bindings::SHUTDOWN_MASK);
            }
            guard.transition_for(Event::ConnectRefused, Some(why));
        }
        self.finish(guard);
    }

    // Connections that a peer started.

    /// Answers the peer's request. The caller has started the timer of the handshake.
    pub(super) fn answer(&mut self) -> Result {
        if Rule::AnswerLate.is_broken() {
            fsleep(Delta::from_millis(2 * i64::from(OLD_MS)));
        }
        let id = self.cm.id.as_ref().ok_or(ECONNABORTED)?;
        let offer = self.cm.offer.ok_or(ECONNABORTED)?;
        id.set_ack_timeout()?;
        let parent = self
            .sock
            .lock()
            .conn()
            .lifetime
            .parent
            .clone()
            .ok_or(ECONNABORTED)?;
        let place = match self.cm.counted.take() {
            Some(place) => place,
            // The peer does not repeat its request, so the request was not dropped when it came.
            None => accept_queue::count(&parent)?,
        };
        // SAFETY: As in `route_resolved`.
        let link = unsafe { Link::new(id, self.sock) }?;
        let features = offer.features.intersection(able(&link));
        let options = parent.lock().conn().options.of_child();
        let max_adverts = max_adverts_of(self.sock.sk().net());
        let ack = {
            let mut guard = self.sock.lock();
            if guard.conn().state != State::HelloReceived {
                drop(guard);
                return Err(ECONNABORTED);
            }
            let rcv_size = guard.conn().ring.reserve_first(self.sock.sk())?;
            guard.conn().options = options;
            guard.glance.inherit(&parent.glance);
            guard.conn().credits.set_peer_limit(offer.bufs);
            guard.conn().agree(features, offer.max_adverts, max_adverts);
            let bufs = open_link(&mut guard, link, place)?;
            HelloAck {
                features,
                max_adverts,
                bufs,
                rcv_size,
            }
        };
        let param = ConnParam {
            private: &ack.encode(),
            reads: reads_for(features),
        };
        id.accept(&param).map_err(|e| match e {
            // The CM knows of the peer's rejection, or of the end of the peer's TCP connection on
            // iWARP, and expects no answer.
            _ if e == EINVAL || e == ECONNRESET => ECONNABORTED,
            e => e,
        })
    }

    /// Refuses a request because there is no place in the listener's backlog, or no listener any
    /// more.
    pub(super) fn refuse_place(&mut self, why: Error) {
        let (counter, refusal) = match why {
            _ if why == ENOMEM => (Counter::DroppedBacklogFull, Refusal::BacklogFull),
            _ => (Counter::RefusedNoListener, Refusal::Closing),
        };
        self.sock.stats.inc(counter);
        if let Some(id) = &self.cm.id {
            id.reject(&refusal.encode());
        }
        self.sock.lock().fail(Event::Abort, why);
        self.teardown();
    }

    pub(super) fn refuse(&mut self, why: Error) {
        self.sock.stats.inc(match why {
            _ if why == ECONNABORTED => Counter::RequestWithdrawn,
            _ => Counter::RefusedNoMemory,
        });
        if let Some(id) = &self.cm.id {
            id.reject(&Refusal::NoMemory.encode());
        }
        self.sock.lock().fail(Event::Abort, why);
        self.teardown();
    }

    /// Puts a child that is or was established into the listener's queue, unless the child is
    /// deferred. As with TCP, accept() gets the child even if the connection has ended since.
    pub(super) fn child_is_up(&mut self) {
        self.cm.is_up = true;
        let Some(child) = self.cm.child.take() else {
            return;
        };
        let parent = {
            let mut guard = self.sock.lock();
            let lifetime = &mut guard.conn().lifetime;
            if let Some(place) = &mut lifetime.place {
                place.complete();
            }
            lifetime.parent.clone()
        };
        self.sock.stop_timer(Alarm::Timeout);
        let Some(parent) = parent else { return };
        self.make_folder();
        let result = match self.defer(&parent, &child) {
            Ok(true) => return,
            Ok(false) => {
                self.sock.lock().conn().lifetime.parent = None;
                accept_queue::push(&parent, child.clone())
            }
            Err(e) => Err(e),
        };
        if let Err(e) = result {
            close::abandon(&child, e);
        }
    }
}

/// Takes the queues into use; returns the number of receives to announce.
///
/// # Errors
///
/// `ENOBUFS` without memory for the receives that the protocol requires.
fn open_link(guard: &mut SockOwner<'_>, link: Link, place: Place) -> Result<u16> {
    guard.conn().open_link(link, place);
    Receiver::of(guard).refill();
    guard.arm();
    match guard.conn().credits.announce() {
        bufs if bufs < BUFS_MIN => Err(ENOBUFS),
        bufs => Ok(bufs),
    }
}

/// The number of Reads in flight in each direction that `features` need; a side that announces the
/// features supports this number. Without source adverts the number is one and not zero: soft-RoCE
/// reports a Read that is refused, but not a Read in excess of the number.
fn reads_for(features: Features) -> u8 {
    if features.contains(Features::SOURCE) {
        READS as u8
    } else {
        1
    }
}

/// The features that the adapter supports.
fn able(link: &Link) -> Features {
    if link.can_advertise() {
        FEATURES
    } else {
        Features::SHRINK
    }
}

/// Whether the socket may have a connection over the interface `dev`: it is not bound to an
/// interface, or is bound to this one or to its VRF. The RDMA CM takes the interface of a local
/// address regardless of the interface to which the socket is bound. Connections to the machine's
/// own addresses also use such an interface, although for IP they stay on the loopback interface
/// (which [`route::check`] checks).
///
/// [`route::check`]: crate::inet::route::check
fn goes_over(sk: Sk, dev: i32) -> bool {
    let bound = sk.bound_dev();
    [0, LOOPBACK_IFINDEX, dev, sk.net().vrf_of(dev)].contains(&bound)
}

/// The errno of an address or route that was not found.
pub(super) fn unreachable_errno(status: i32) -> Error {
    if status >= 0 {
        return ENETUNREACH;
    }
    match Error::from_errno(status) {
        // Neighbour discovery got no answer.
        e if e == ETIMEDOUT => EHOSTUNREACH,
        e => e,
    }
}

/// The reason for which the peer's module or CM has refused a connection.
pub(super) fn refusal_of(event: &cm::Event) -> Option<Refusal> {
    const NO_SERVICE: i32 = bindings::ib_cm_rej_reason_IB_CM_REJ_INVALID_SERVICE_ID as i32;
    // If no socket has the port, the peer's module is not asked.
    let nobody = (event.status == NO_SERVICE).then_some(Refusal::NoListener);
    Refusal::decode(event.private()).or(nobody)
}

/// The errno of a rejection; `refusal` is the reason from [`refusal_of`].
pub(super) fn rejected_errno(event: &cm::Event, refusal: Option<Refusal>) -> Error {
    const STALE_CONN: i32 = bindings::ib_cm_rej_reason_IB_CM_REJ_STALE_CONN as i32;
    const TIMEOUT: i32 = bindings::ib_cm_rej_reason_IB_CM_REJ_TIMEOUT as i32;
    match refusal {
        // With TCP, nobody answers such a request.
        Some(Refusal::BacklogFull) => return ETIMEDOUT,
        Some(_) => return ECONNREFUSED,
        None => {}
    }
    match event.status {
        STALE_CONN => ECONNRESET,
        TIMEOUT => ETIMEDOUT,
        // iWARP reports an errno: ECONNREFUSED or, depending on the driver, ECONNRESET for a
        // rejection, and ECONNRESET if TCP's connection ends before the MPA reply has been read.
        // TCP's connect() fails with ECONNREFUSED when the peer resets the attempt.
        status if status < 0 => match Error::from_errno(status) {
            e if e == ECONNRESET => ECONNREFUSED,
            e => e,
        },
        _ => ECONNREFUSED,
    }
}
