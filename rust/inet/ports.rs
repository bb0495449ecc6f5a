// SPDX-License-Identifier: GPL-2.0

//! The ports of the sockets of a network namespace, with TCP's rules of conflict.
//!
//! The RDMA CM has its own port numbers, but treats 127.0.0.1 as a wildcard and supports neither
//! IPV6_V6ONLY nor SO_REUSEPORT. So the CM only ever has one wildcard listener for a port, and
//! these tables decide which sockets may have the port, and which listener gets a request.
//!
//! A socket is in the table from the call that gives it a port until its program closes it, or, if
//! the kernel has chosen the port, until its connection or its listening ends. It leaves the table
//! in process context, before its last reference is dropped: so every socket that is found in a
//! table under the lock is alive.
//!
//! Both tables are trees, ordered by the port and the serial number of a socket: with 10,000
//! connections of a listener, the next one costs little more than the first. Listeners have a tree
//! of their own, so that a request does not visit the connections at the listener's port. As in
//! TCP, a bind() to a port that others have visits each of these sockets, a connect() visits those
//! at its own port, and when no port is free, a connect() visits those of the whole range. A mutex
//! of the namespace protects the tables, not RCU: a look-up happens once for each request, in
//! process context, in a handler of the RDMA CM that holds mutexes anyway.

use core::cmp::Ordering;

use kernel::prelude::*;
use kernel::rbtree::{
    RBTree,
    RBTreeNodeReservation, //
};
use kernel::sync::{
    new_mutex,
    Mutex, //
};

use super::addr::Addr;
use super::netns::Net;
use super::sock::Sk;
use super::tcp_port::TcpPort;
use crate::bindings;
use crate::kern::errno::EADDRINUSE;
use crate::kern::signal::fatal_signal_pending;

/// The position of a socket in the tables.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bound {
    port: u16,
    /// Increases from one socket of the namespace to the next, so that a walk knows its position.
    serial: u64,
}

impl Bound {
    pub(crate) fn port(self) -> u16 {
        self.port
    }

    /// The position before all sockets of a port.
    const fn first_of(port: u16) -> Self {
        Self { port, serial: 0 }
    }

    /// The position before all sockets of the next port.
    fn behind_port(port: u16) -> Option<Self> {
        port.checked_add(1).map(Self::first_of)
    }
}

/// Why a socket is in a table.
enum Claim {
    /// The port is the socket's own, or is set aside for its connection. The same port of TCP is
    /// reserved if the kernel has chosen the port, and the sockets of the namespace use iWARP.
    Own { _reserved: Option<TcpPort> },
    /// The kernel has chosen the port for the socket's connection to `peer`, or the RDMA CM has. As
    /// with TCP, the sockets of connections to other peers can have the same port.
    Client { peer: Addr },
    /// The socket is a connection of a listener, whose port it has.
    Child,
    /// The socket is only listed: it has become a TCP socket, which has the port of TCP.
    Listed,
}

/// A socket in a table; it is alive while it is in the table.
struct Owner {
    sk: Sk,
    claim: Claim,
}

// SAFETY: A socket may be used from any thread.
unsafe impl Send for Owner {}

type Table = RBTree<Bound, Owner>;

struct Tables {
    all: Table,
    listeners: Table,
    /// The serial number of the next socket.
    next: u64,
}

/// The sockets of a namespace that have a port.
#[pin_data]
pub(crate) struct Ports {
    #[pin]
    tables: Mutex<Tables>,
}

/// The addresses at which a bound socket can be reached.
#[derive(Copy, Clone)]
struct Reach {
    /// `None` for the wildcard.
    ip: Option<[u8; 16]>,
    v4: bool,
    v6: bool,
    dev: i32,
    /// The VRF whose ports it uses.
    vrf: i32,
}

impl Reach {
    fn of(sk: Sk) -> Self {
        let addr = sk.bound_addr();
        let any = addr.is_any();
        let v4_socket = !sk.is_v6();
        Self {
            ip: (!any).then_some(addr.ip),
            v4: v4_socket || addr.is_v4() || (any && !sk.v6only()),
            v6: !v4_socket && !addr.is_v4(),
            dev: sk.bound_dev(),
            vrf: sk.bound_vrf(),
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        let dev = self.dev == 0 || other.dev == 0 || self.dev == other.dev;
        let family = (self.v4 && other.v4) || (self.v6 && other.v6);
        let ip = self.ip.is_none() || other.ip.is_none() || self.ip == other.ip;
        dev && family && ip && self.vrf == other.vrf
    }

    /// How specifically it matches a connection in `net` to `to` that arrives at `dev`, in the VRF
    /// `vrf`; `None` if it does not match.
    fn score(&self, net: Net<'_>, to: &Addr, (dev, vrf): (i32, i32)) -> Option<u32> {
        let family = if to.is_v4() { self.v4 } else { self.v6 };
        if !family || !net.is_for_device(self.dev, dev, vrf) {
            return None;
        }
        let bound = if self.dev != 0 { 1 } else { 0 };
        match self.ip {
            None => Some(bound),
            Some(ip) => (ip == to.ip).then_some(2 + bound),
        }
    }
}

/// Whether a socket cannot have the port because `owner` has it (`inet_csk_bind_conflict`).
fn conflict(new: Sk, owner: &Owner) -> bool {
    let old = owner.sk;
    let state = u32::from(old.state());
    // With TCP a half-open connection is not a socket, but a request of its listener: a new
    // listener need not wait for its end.
    if state == bindings::TCP_SYN_RECV {
        return false;
    }
    // With TCP a connection of a listener releases the port when the connection ends
    // (`tcp_set_state`), but here the worker releases the port, after the queues.
    if matches!(owner.claim, Claim::Child) && state == bindings::TCP_CLOSE {
        return false;
    }
    if new.reuse() && old.reuse() && state != bindings::TCP_LISTEN {
        return false;
    }
    if new.reuseport() && old.reuseport() && new.uid() == old.uid() {
        return false;
    }
    Reach::of(new).overlaps(&Reach::of(old))
}

/// Calls `each` for the sockets of a port, in the order of their serial numbers, until it returns
/// false.
fn for_port(table: &mut Table, port: u16, mut each: impl FnMut(&Owner) -> bool) {
    let mut at = table.cursor_lower_bound_mut(&Bound::first_of(port));
    while let Some(cursor) = at {
        let (place, owner) = cursor.current();
        if place.port != port || !(matches!(owner.claim, Claim::Listed) || each(owner)) {
            return;
        }
        at = cursor.move_next();
    }
}

/// The range of ports of the socket or its namespace.
fn range_of(sk: Sk) -> (i32, i32) {
    let (mut low, mut high) = (0, 0);
    // SAFETY: The socket is valid, the results are written.
    unsafe {
        bindings::inet_sk_get_local_port_range(sk.as_ptr(), &raw mut low, &raw mut high);
    }
    (low, high)
}

/// Whether the administrator has reserved the port.
fn is_reserved(net: Net<'_>, port: u16) -> bool {
    // SAFETY: The namespace is valid.
    unsafe { bindings::inet_is_local_reserved_port(net.as_ptr().cast(), port) }
}

/// The ports of a range, from the one behind the port `behind` on, or from a random one on.
///
/// # Errors
///
/// `EADDRINUSE` if the range is empty.
fn ports_of((low, high): (i32, i32), behind: Option<u16>) -> Result<impl Iterator<Item = u16>> {
    let (low, high) = (u32::try_from(low)?, u32::try_from(high)?);
    let range = high.checked_sub(low).ok_or(EADDRINUSE)? + 1;
    let start = match behind {
        Some(port) => (u32::from(port) + 1).saturating_sub(low),
        // SAFETY: No precondition.
        None => unsafe { kernel::bindings::get_random_u32() },
    };
    Ok((0..range).filter_map(move |i| u16::try_from(low + start.wrapping_add(i) % range).ok()))
}

impl Tables {
    fn has_port(&self, port: u16) -> bool {
        let at = self.all.cursor_lower_bound(&Bound::first_of(port));
        at.is_some_and(|cursor| cursor.current().0.port == port)
    }

    /// Whether only other sockets' connections have the port for which the kernel has chosen it,
    /// and none of them goes to this address and port.
    fn is_shareable(&mut self, sk: Sk, port: u16, to: &Addr) -> bool {
        let mut shareable = true;
        for_port(&mut self.all, port, |owner| {
            shareable = match &owner.claim {
                Claim::Client { peer } => {
                    owner.sk.as_ptr() != sk.as_ptr() && (peer.ip, peer.port) != (to.ip, to.port)
                }
                Claim::Own { .. } | Claim::Child | Claim::Listed => false,
            };
            shareable
        });
        shareable
    }

    fn conflicts(&mut self, sk: Sk, port: u16) -> bool {
        let mut found = false;
        for_port(&mut self.all, port, |owner| {
            let old = owner.sk;
            // If the port is not the socket's own, the CM uses it for the socket's connection:
            // nobody else can listen there.
            let at_cm = old.num() != port;
            found = old.as_ptr() != sk.as_ptr() && (at_cm || conflict(sk, owner));
            !found
        });
        found
    }

    /// A free port of the range of the socket or its namespace that the administrator has not
    /// reserved. The search begins behind the port `behind`, or at a random port. For iWARP, the
    /// same port of TCP is free, too, and is now reserved. Sleeps.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if there is none; `ENOMEM`.
    fn free_port(&self, sk: Sk, behind: Option<u16>) -> Result<(u16, Option<TcpPort>)> {
        self.free_port_of(sk.net(), range_of(sk), behind)
    }

    /// A port for a connection of the socket to `to`: a free one, or else one that only connections
    /// to other peers have. With iWARP, the ports are those of TCP, and are not shared.
    ///
    /// # Errors
    ///
    /// As [`Tables::free_port`].
    fn port_towards(&mut self, sk: Sk, to: &Addr) -> Result<(u16, Claim)> {
        match self.free_port(sk, None) {
            Ok((port, None)) => Ok((port, Claim::Client { peer: *to })),
            Ok((port, tcp)) => Ok((port, Claim::Own { _reserved: tcp })),
            Err(e) if e == EADDRINUSE && TcpPort::new(sk.net())?.is_none() => {
                let net = sk.net();
                let port = ports_of(range_of(sk), None)?
                    .find(|&port| !is_reserved(net, port) && self.is_shareable(sk, port, to))
                    .ok_or(EADDRINUSE)?;
                Ok((port, Claim::Client { peer: *to }))
            }
            Err(e) => Err(e),
        }
    }

    /// As [`Tables::free_port`], but ignores a range that the program has chosen for the socket.
    fn free_port_of_net(
        &self,
        net: Net<'_>,
        behind: Option<u16>,
    ) -> Result<(u16, Option<TcpPort>)> {
        let (mut low, mut high) = (0, 0);
        // SAFETY: The namespace is valid, the results are written.
        unsafe {
            bindings::inet_get_local_port_range(net.as_ptr().cast(), &raw mut low, &raw mut high);
        }
        self.free_port_of(net, (low, high), behind)
    }

    fn free_port_of(
        &self,
        net: Net<'_>,
        range: (i32, i32),
        behind: Option<u16>,
    ) -> Result<(u16, Option<TcpPort>)> {
        let mut tcp = TcpPort::new(net)?;
        let port = ports_of(range, behind)?
            .find(|&port| {
                let is_free = !is_reserved(net, port) && !self.has_port(port);
                is_free && tcp.as_mut().is_none_or(|tcp| tcp.take(port))
            })
            .ok_or(EADDRINUSE)?;
        Ok((port, tcp))
    }

    fn add(&mut self, port: u16, owner: Owner, node: RBTreeNodeReservation<Bound, Owner>) -> Bound {
        owner.sk.set_num(port);
        self.insert(port, owner, node)
    }

    fn insert(
        &mut self,
        port: u16,
        owner: Owner,
        node: RBTreeNodeReservation<Bound, Owner>,
    ) -> Bound {
        let place = Bound {
            port,
            serial: self.next,
        };
        self.next += 1;
        self.all.insert(node.into_node(place, owner));
        place
    }
}

impl Ports {
    pub(super) fn new() -> impl PinInit<Self> {
        let tables = Tables {
            all: RBTree::new(),
            listeners: RBTree::new(),
            // 0 is the beginning of a walk.
            next: 1,
        };
        pin_init!(Self {
            tables <- new_mutex!(tables, "sdp_ports"),
        })
    }

    /// Gives a socket of this namespace the port `port`, or a free one if `port` is 0: the first
    /// one behind the port `behind`, or behind a random port.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`, `ENOMEM`.
    pub(crate) fn bind(&self, sk: Sk, port: u16, behind: Option<u16>) -> Result<Bound> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let mut tables = self.tables.lock();
        let (port, tcp) = match port {
            0 => tables.free_port(sk, behind)?,
            port if tables.conflicts(sk, port) => return Err(EADDRINUSE),
            port => (port, None),
        };
        let claim = Claim::Own { _reserved: tcp };
        Ok(tables.add(port, Owner { sk, claim }, node))
    }

    /// Gives a socket of this namespace a port for its connection to `to`.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`, `ENOMEM`.
    pub(crate) fn connect(&self, sk: Sk, to: &Addr) -> Result<Bound> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let mut tables = self.tables.lock();
        let (port, claim) = tables.port_towards(sk, to)?;
        Ok(tables.add(port, Owner { sk, claim }, node))
    }

    /// The socket at `place` keeps its port for its connection to `to`.
    pub(crate) fn retarget(&self, place: Bound, to: &Addr) {
        let mut tables = self.tables.lock();
        let claim = tables.all.get_mut(&place).map(|owner| &mut owner.claim);
        if let Some(Claim::Client { peer }) = claim {
            *peer = *to;
        }
    }

    /// Records a port that the RDMA CM has chosen for a connection of the socket to `to`, so that
    /// no program can bind a socket to the port. The socket's own port does not change.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn record_at_cm(&self, sk: Sk, port: u16, to: &Addr) -> Result<Bound> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let claim = Claim::Client { peer: *to };
        let owner = Owner { sk, claim };
        Ok(self.tables.lock().insert(port, owner, node))
    }

    /// Gives a new connection of a listener the listener's port.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn adopt(&self, sk: Sk, port: u16) -> Result<Bound> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let claim = Claim::Child;
        let owner = Owner { sk, claim };
        Ok(self.tables.lock().add(port, owner, node))
    }

    /// Lists a socket that has become a TCP socket at the port of the TCP socket. Other sockets may
    /// have this port of SDP.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn list_tcp(&self, sk: Sk, port: u16) -> Result<Bound> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let claim = Claim::Listed;
        let owner = Owner { sk, claim };
        Ok(self.tables.lock().add(port, owner, node))
    }

    /// Reserves a free port that the RDMA CM uses for a connection of the socket: the first one
    /// behind the port `behind`, or behind a random port. The socket's own port does not change.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`, `ENOMEM`.
    pub(crate) fn set_aside(&self, sk: Sk, behind: Option<u16>) -> Result<Bound> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let mut tables = self.tables.lock();
        let (port, tcp) = tables.free_port_of_net(sk.net(), behind)?;
        let claim = Claim::Own { _reserved: tcp };
        Ok(tables.insert(port, Owner { sk, claim }, node))
    }

    /// The socket at `place`, which is in the listening state, begins to listen.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`: since the bind(), another socket with this port has begun to listen. `ENOMEM`.
    pub(crate) fn listen(&self, sk: Sk, place: Bound) -> Result {
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let mut tables = self.tables.lock();
        if tables.conflicts(sk, place.port) {
            return Err(EADDRINUSE);
        }
        let claim = Claim::Own { _reserved: None };
        tables
            .listeners
            .insert(node.into_node(place, Owner { sk, claim }));
        Ok(())
    }

    /// The socket at `place` stops listening, if it did.
    pub(crate) fn stop_listening(&self, place: Bound) {
        self.tables.lock().listeners.remove(&place);
    }

    /// Whether another socket has, or is getting, a connection with the addresses and ports of
    /// `sk`. Of two sockets that are connected at the same moment, both may find the other one.
    pub(crate) fn has_twin(&self, sk: Sk) -> bool {
        let names = |sk: Sk| (sk.bound_addr(), sk.peer_addr(), sk.bound_dev());
        let own = names(sk);
        let mut found = false;
        for_port(&mut self.tables.lock().all, sk.num(), |owner| {
            let other = owner.sk;
            let state = u32::from(other.state());
            found = other.as_ptr() != sk.as_ptr()
                && ![bindings::TCP_CLOSE, bindings::TCP_LISTEN].contains(&state)
                && names(other) == own;
            !found
        });
        found
    }

    /// Takes a socket out of the tables. Sleeps.
    pub(crate) fn put(&self, place: Bound) {
        let mut tables = self.tables.lock();
        tables.listeners.remove(&place);
        tables.all.remove(&place);
    }

    /// Releases the port of TCP that was reserved for the socket at `place`, because a TCP socket
    /// of the socket's own program gets the port. Sleeps.
    pub(crate) fn release_tcp(&self, place: Bound) {
        let mut tables = self.tables.lock();
        let claim = tables.all.get_mut(&place).map(|owner| &mut owner.claim);
        if let Some(Claim::Own { _reserved: tcp }) = claim {
            *tcp = None;
        }
    }

    /// The listener for a connection from `from` to `to` that arrives at `dev`: the most specific
    /// one; among equally specific ones (SO_REUSEPORT) the peer's port selects one. `hold` is
    /// called while the listener is alive.
    pub(crate) fn find_listener<T>(
        &self,
        net: Net<'_>,
        to: &Addr,
        from: &Addr,
        dev: i32,
        hold: impl FnOnce(Sk) -> T,
    ) -> Option<T> {
        let dev = (dev, net.vrf_of(dev));
        let score = |sk: Sk| Reach::of(sk).score(net, to, dev);
        let mut tables = self.tables.lock();
        let mut best = None;
        let mut count = 0;
        for_port(&mut tables.listeners, to.port, |owner| {
            let sk = owner.sk;
            if let Some(s) = score(sk) {
                match Some(s).cmp(&best) {
                    Ordering::Greater => (best, count) = (Some(s), 1),
                    Ordering::Equal => count += 1,
                    Ordering::Less => {}
                }
            }
            true
        });
        let mut left = u32::from(from.port).checked_rem(count)?;
        let mut found = None;
        for_port(&mut tables.listeners, to.port, |owner| {
            let sk = owner.sk;
            if score(sk) == best {
                if left == 0 {
                    found = Some(sk);
                    return false;
                }
                left -= 1;
            }
            true
        });
        found.map(hold)
    }

    /// The next sockets from `from` on, as returned by `hold`, with their positions; none at the
    /// end. With `port`, only sockets that have this port.
    ///
    /// A walk visits every socket exactly once that is in the table from the beginning to the end
    /// of the walk, whatever other sockets come and go, and locks the table only for a short time.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EINTR` if the thread is being killed.
    pub(crate) fn batch<T>(
        &self,
        from: &Cursor,
        port: Option<u16>,
        hold: impl Fn(Sk) -> T,
    ) -> Result<KVec<(T, Cursor)>> {
        if fatal_signal_pending() {
            return Err(EINTR);
        }
        let mut found = KVec::with_capacity(BATCH, GFP_KERNEL)?;
        let tables = self.tables.lock();
        let end = match from.end {
            0 => tables.next,
            end => end,
        };
        let mut next = Some(match port {
            Some(port) if port > from.port => Bound::first_of(port),
            _ => Bound {
                port: from.port,
                serial: from.serial,
            },
        });
        while let Some(at) = next.and_then(|next| tables.all.cursor_lower_bound(&next)) {
            let (place, owner) = at.current();
            if port.is_some_and(|port| port != place.port) {
                break;
            }
            if place.serial >= end {
                next = Bound::behind_port(place.port);
                continue;
            }
            next = Some(Bound {
                serial: place.serial + 1,
                ..*place
            });
            // The CM uses this port for the socket's connection, or still for its former one: the
            // socket is also in the table with its own port.
            if owner.sk.num() != place.port {
                continue;
            }
            let cursor = Cursor {
                serial: place.serial,
                end,
                port: place.port,
            };
            if found
                .push_within_capacity((hold(owner.sk), cursor))
                .is_err()
            {
                break;
            }
        }
        Ok(found)
    }
}

/// The position of a walk through the sockets of a namespace; zeros for its beginning.
#[derive(Copy, Clone, Default, Zeroable)]
pub(crate) struct Cursor {
    /// The first serial number that was not visited.
    serial: u64,
    /// Sockets with this serial number or a later one came after the walk had begun; visiting them
    /// could make the walk endless.
    end: u64,
    /// The walk continues at this port, or at the next one.
    port: u16,
}

impl Cursor {
    /// The position behind this socket.
    pub(crate) fn next(self) -> Self {
        Self {
            serial: self.serial + 1,
            ..self
        }
    }
}

/// The number of sockets of a walk that are visited before the table is locked again.
const BATCH: usize = 16;
