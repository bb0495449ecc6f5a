// SPDX-License-Identifier: GPL-2.0

//! Who has which port: one table for all namespaces, with TCP's rules of conflict.
//!
//! The RDMA CM has port numbers of its own, but takes 127.0.0.1 for a wildcard and knows neither
//! IPV6_V6ONLY nor SO_REUSEPORT. So the CM only ever sees one wildcard listener for a port, and
//! this table decides.
//!
//! A socket is in the table from the call that gives it a port to the end of its use by a program,
//! or, if the kernel has chosen the port, to the end of its connection or of its listening. It leaves
//! in process context, before its last reference is dropped: so under the table's lock every socket
//! found in it is alive.

use core::cmp::Ordering;
use core::ptr::NonNull;

use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{
    ordering::Relaxed,
    Atomic, //
};
use kernel::sync::global_lock;

use super::sock::{
    Locked,
    SdpSock, //
};
use crate::bindings;
use crate::net::addr::Addr;
use crate::net::errno::EADDRINUSE;
use crate::net::netns::Net;
use crate::net::sock::{
    fatal_signal_pending,
    Sk, //
};

/// A port of a namespace.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    net: usize,
    port: u16,
}

impl Key {
    pub(super) fn new(net: Net<'_>, port: u16) -> Self {
        Self {
            net: net.key(),
            port,
        }
    }
}

/// A socket in the table; it is alive while it is there.
struct Owner {
    sock: NonNull<SdpSock>,
    /// Grows from one socket to the next: so a walk knows where it was.
    serial: u64,
}

// SAFETY: A socket may be used from any thread.
unsafe impl Send for Owner {}

impl Owner {
    fn sock(&self) -> &SdpSock {
        // SAFETY: The socket is alive while it is in the table, and the table is locked.
        unsafe { self.sock.as_ref() }
    }

    fn hold(&self) -> ARef<SdpSock> {
        self.sock().into()
    }
}

/// Those of a port are in the order in which they came.
type Table = RBTree<Key, KVec<Owner>>;

/// The next socket's number; changed only under the table's lock.
static SERIAL: Atomic<i64> = Atomic::new(1);

global_lock! {
    // SAFETY: Initialised in `init`, before the first use.
    unsafe(uninit) static TABLE: Mutex<Option<Table>> = None;
}

/// Must be called once, when the module loads.
///
/// # Safety
///
/// Called once, before every other function of this module.
pub(crate) unsafe fn init() {
    // SAFETY: As the caller promises.
    unsafe { TABLE.init() };
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

    /// How well it fits a connection in `net` to `to` that comes in at `dev`, of the VRF `vrf`; `None`
    /// if not at all.
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

/// Whether two sockets cannot both have the port (`inet_csk_bind_conflict`).
fn conflict(new: Sk, old: Sk) -> bool {
    let listens = old.state() == bindings::TCP_LISTEN as u8;
    if new.reuse() && old.reuse() && !listens {
        return false;
    }
    if new.reuseport() && old.reuseport() && new.uid() == old.uid() {
        return false;
    }
    Reach::of(new).overlaps(&Reach::of(old))
}

fn conflicts(table: &Table, key: &Key, sock: &SdpSock) -> bool {
    let me = NonNull::from(sock);
    table.get(key).is_some_and(|owners| {
        owners
            .iter()
            .any(|o| o.sock != me && conflict(sock.sk(), o.sock().sk()))
    })
}

fn insert(table: &mut Table, key: Key, sock: &SdpSock) -> Result {
    let owner = Owner {
        sock: sock.into(),
        serial: SERIAL.fetch_add(1, Relaxed).unsigned_abs(),
    };
    if let Some(owners) = table.get_mut(&key) {
        return Ok(owners.push(owner, GFP_KERNEL)?);
    }
    let mut owners = KVec::new();
    owners.push(owner, GFP_KERNEL)?;
    table.try_create_and_insert(key, owners, GFP_KERNEL)?;
    Ok(())
}

/// Gives the socket the port `port`, or any free one for 0.
///
/// # Errors
///
/// `EADDRINUSE`, `ENOMEM`.
pub(crate) fn get_port(locked: &mut Locked<'_>, port: u16) -> Result {
    let sock = locked.sock();
    let net = sock.sk().net();
    let mut guard = TABLE.lock();
    let table = guard.get_or_insert_with(RBTree::new);
    if locked.stream().bound {
        // listen() asks again: meanwhile another socket may listen there.
        let key = Key::new(net, sock.sk().num());
        return if conflicts(table, &key, sock) {
            Err(EADDRINUSE)
        } else {
            Ok(())
        };
    }
    let port = match port {
        0 => free_port(table, sock.sk()).ok_or(EADDRINUSE)?,
        port if conflicts(table, &Key::new(net, port), sock) => return Err(EADDRINUSE),
        port => port,
    };
    insert(table, Key::new(net, port), sock)?;
    sock.sk().set_num(port);
    locked.stream().bound = true;
    Ok(())
}

/// A port of the range of the socket or its namespace that nobody has, nor the administrator has set
/// aside, from a random one on.
fn free_port(table: &Table, sk: Sk) -> Option<u16> {
    let net = sk.net();
    let (mut low, mut high) = (0, 0);
    // SAFETY: The socket is valid, the results are written.
    unsafe {
        bindings::inet_sk_get_local_port_range(sk.as_ptr(), &raw mut low, &raw mut high);
    }
    let low = u32::try_from(low).ok()?;
    let range = u32::try_from(high).ok()?.checked_sub(low)? + 1;
    // SAFETY: No precondition.
    let start = unsafe { kernel::bindings::get_random_u32() };
    (0..range)
        .filter_map(|i| u16::try_from(low + start.wrapping_add(i) % range).ok())
        .find(|&port| {
            // SAFETY: The namespace is valid.
            let reserved =
                unsafe { bindings::inet_is_local_reserved_port(net.as_ptr().cast(), port) };
            !reserved && table.get(&Key::new(net, port)).is_none()
        })
}

/// Puts a new connection of a listener into the table, at the listener's port.
pub(crate) fn adopt(locked: &mut Locked<'_>, port: u16) -> Result {
    let sock = locked.sock();
    let mut guard = TABLE.lock();
    let table = guard.get_or_insert_with(RBTree::new);
    insert(table, Key::new(sock.sk().net(), port), sock)?;
    sock.sk().set_num(port);
    locked.stream().bound = true;
    Ok(())
}

/// Takes the socket out of the table.
pub(crate) fn put_port(locked: &mut Locked<'_>) {
    if !core::mem::replace(&mut locked.stream().bound, false) {
        return;
    }
    let sock = locked.sock();
    let key = Key::new(sock.sk().net(), sock.sk().num());
    let me = NonNull::from(sock);
    let mut guard = TABLE.lock();
    let Some(table) = guard.as_mut() else { return };
    let mut empty = false;
    if let Some(owners) = table.get_mut(&key) {
        owners.retain(|o| o.sock != me);
        empty = owners.is_empty();
    }
    if empty {
        table.remove(&key);
    }
}

/// Gives back a port that the kernel has chosen: the connection, or the listening, for which it was
/// chosen has ended. A port of the program's choice stays the socket's, as with TCP
/// (`tcp_set_state`).
pub(crate) fn put_chosen_port(locked: &mut Locked<'_>) {
    let sk = locked.sk();
    if locked.stream().bound && !sk.user_locked(bindings::SOCK_BINDPORT_LOCK) {
        put_port(locked);
        sk.forget_num();
    }
}

/// The listener for a connection from `from` to `to`: the most specific one, and among equals (of
/// SO_REUSEPORT) one by the peer's port.
pub(crate) fn find_listener(
    net: Net<'_>,
    to: &Addr,
    from: &Addr,
    dev: i32,
) -> Option<ARef<SdpSock>> {
    let vrf = net.vrf_of(dev);
    let guard = TABLE.lock();
    let owners = guard.as_ref()?.get(&Key::new(net, to.port))?;
    let score = |o: &Owner| {
        let sk = o.sock().sk();
        if sk.state() != bindings::TCP_LISTEN as u8 {
            return None;
        }
        Reach::of(sk).score(net, to, (dev, vrf))
    };
    let mut best = None;
    let mut count = 0;
    for s in owners.iter().filter_map(score) {
        match Some(s).cmp(&best) {
            Ordering::Greater => (best, count) = (Some(s), 1),
            Ordering::Equal => count += 1,
            Ordering::Less => {}
        }
    }
    let nth = usize::from(from.port).checked_rem(count)?;
    owners
        .iter()
        .filter(|o| score(o) == best)
        .nth(nth)
        .map(Owner::hold)
}

/// Where a walk through the sockets of a namespace goes on; zeros for its beginning.
#[derive(Copy, Clone, Default, Zeroable)]
pub(crate) struct Cursor {
    /// The first socket of interest.
    serial: u64,
    /// Sockets from this one on came after the walk had begun: to follow them, it might never end.
    end: u64,
    /// Of this port, or else of the next one.
    port: u16,
}

impl Cursor {
    /// Behind this socket.
    pub(crate) fn next(self) -> Self {
        Self {
            serial: self.serial + 1,
            ..self
        }
    }
}

/// Sockets of a walk that are looked at before the table is locked again.
const BATCH: usize = 16;

/// The next sockets of `net` from `from` on, with their places: none at the end. With `port`, only
/// those that have it.
///
/// A walk meets every socket once that is in the table from its beginning to its end, whatever comes
/// and goes meanwhile, and locks the table only for a short time.
///
/// # Errors
///
/// `ENOMEM`; `EINTR` if the thread is being killed.
pub(crate) fn batch(
    net: Net<'_>,
    from: &Cursor,
    port: Option<u16>,
) -> Result<KVec<(ARef<SdpSock>, Cursor)>> {
    if fatal_signal_pending() {
        return Err(EINTR);
    }
    let mut found = KVec::with_capacity(BATCH, GFP_KERNEL)?;
    let first = Key::new(net, from.port.max(port.unwrap_or(0)));
    let guard = TABLE.lock();
    let Some(table) = guard.as_ref() else {
        return Ok(found);
    };
    let end = match from.end {
        // Numbers are given with the table locked.
        0 => SERIAL.load(Relaxed).unsigned_abs(),
        end => end,
    };
    let mut place = table.cursor_lower_bound(&first);
    while let Some(at) = place {
        let (key, owners) = at.current();
        if key.net != net.key() || port.is_some_and(|port| port != key.port) {
            break;
        }
        let least = if key.port == from.port {
            from.serial
        } else {
            0
        };
        let seen = owners.partition_point(|owner| owner.serial < least);
        let known = owners.iter().take_while(|owner| owner.serial < end);
        for owner in known.skip(seen) {
            let cursor = Cursor {
                serial: owner.serial,
                end,
                port: key.port,
            };
            if found.push_within_capacity((owner.hold(), cursor)).is_err() {
                return Ok(found);
            }
        }
        place = at
            .peek_next()
            .and_then(|(next, _)| table.cursor_lower_bound(next));
    }
    Ok(found)
}
