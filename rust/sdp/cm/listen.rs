// SPDX-License-Identifier: GPL-2.0

//! listen(), the CM's listening ids, and connection requests.

use core::ptr::NonNull;

use kernel::macros::kunit_tests;
use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::sync::aref::ARef;
use kernel::sync::global_lock;

use super::connect::reuse;
use super::worker::HANDLERS;
use super::{
    bind,
    close,
    worker, //
};
use crate::bindings;
use crate::inet::addr::Addr;
use crate::inet::limits::{
    self,
    Place as Counted, //
};
use crate::inet::netns::{
    Net,
    LOOPBACK_IFINDEX, //
};
use crate::inet::route;
use crate::kern::errno::{
    EADDRINUSE,
    EAFNOSUPPORT,
    ECONNREFUSED,
    ENOBUFS, //
};
use crate::kern::work::run_in_kernel;
use crate::proto::hello::{
    Hello,
    Refusal,
    HELLO_ROOM, //
};
use crate::proto::resize::PeerReceives;
use crate::proto::state::{
    Event,
    State, //
};
use crate::rdma::cm::{
    CmId,
    Listener,
    Request, //
};
use crate::sdp::conn::accept_queue::{
    self,
    Closed, //
};
use crate::sdp::conn::cm_side::BacklogPlace;
use crate::sdp::conn::guard::SockGuard;
use crate::sdp::conn::sock::SdpSock;
use crate::stats::counters::{
    Counter,
    Stats, //
};

/// A port of a namespace.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    net: usize,
    port: u16,
}

impl Key {
    fn new(net: Net<'_>, port: u16) -> Self {
        Self {
            net: net.key(),
            port,
        }
    }
}

/// A port at which the CM listens on behalf of sockets of the namespace.
struct Port {
    net: *mut bindings::net,
    number: u16,
    stats: Stats,
}

// SAFETY: The namespace is held by the sockets that listen.
unsafe impl Send for Port {}

// SAFETY: As above.
unsafe impl Sync for Port {}

/// The fields are dropped in this order: the ids wait for their handlers, which use the port.
struct Entry {
    _ids: Ids,
    _port: KBox<Port>,
    users: u32,
}

global_lock! {
    // SAFETY: Initialised in `init`, before the first use.
    unsafe(uninit) static LISTENERS: Mutex<Option<RBTree<Key, Entry>>> = None;
}

/// Initialises the table of ports.
///
/// # Safety
///
/// Must be called once, before every other function of this module.
pub(crate) unsafe fn init() {
    // SAFETY: As the caller promises.
    unsafe { LISTENERS.init() };
}

/// The ids that listen at a port: one for IPv6, unless the kernel does not support it, and one for
/// IPv4. One id for both families would not work on iWARP: the CM searches for the interface that
/// has the destination's address, and does not find the IPv4 address of a connection that an IPv6
/// socket of TCP has accepted.
struct Ids {
    _v6: Option<CmId>,
    _v4: CmId,
}

/// The CM's own backlog: with 0, the sysctl `net.iw_cm.default_backlog` limits how many requests
/// wait for the handler on iWARP. The IB CM has no such limit. Connections that wait for accept()
/// are counted separately.
const CM_BACKLOG: i32 = 0;

/// Makes the CM listen at a port, or adds a user if it already does.
fn acquire(net: Net<'_>, port: u16, stats: Stats) -> Result {
    let key = Key::new(net, port);
    let mut guard = LISTENERS.lock();
    let table = guard.get_or_insert_with(RBTree::new);
    if let Some(entry) = table.get_mut(&key) {
        entry.users += 1;
        return Ok(());
    }
    let boxed = KBox::new(
        Port {
            net: net.as_ptr(),
            number: port,
            stats,
        },
        GFP_KERNEL,
    )?;
    let id = || {
        // SAFETY: The box stays where it is and is dropped after the id.
        unsafe { CmId::new_listener(net, NonNull::from(&*boxed)) }
    };
    let (v6, v4) = (id()?, id()?);
    let entry = Entry {
        _ids: listen_in_kernel(v6, v4, port)?,
        _port: boxed,
        users: 1,
    };
    table.try_create_and_insert(key, entry, GFP_KERNEL)?;
    Ok(())
}

/// Removes a user of a port. The last one ends the CM's listening, and waits for its handlers.
pub(super) fn release(net: Net<'_>, port: u16) {
    let key = Key::new(net, port);
    let mut guard = LISTENERS.lock();
    let Some(table) = guard.as_mut() else { return };
    let last = table.get_mut(&key).is_some_and(|entry| {
        entry.users -= 1;
        entry.users == 0
    });
    if last {
        drop(table.remove(&key));
    }
}

/// Binds and listens in a kernel worker: for low ports, the CM checks a capability of the current
/// task, but SDP has already checked the rules of the namespace at bind().
fn listen_in_kernel(v6: CmId, v4: CmId, port: u16) -> Result<Ids> {
    let listen = |id: &CmId, any: Addr, v6: bool| {
        id.take_one_family()?;
        id.bind(&any.to_storage(v6))?;
        id.listen(CM_BACKLOG)
    };
    run_in_kernel(|| {
        let has_v6 = match listen(&v6, Addr::ANY.with_port(port), true) {
            Err(e) if e != EAFNOSUPPORT => return Err(e),
            result => result.is_ok(),
        };
        listen(&v4, Addr::v4([0; 4], port), false)?;
        Ok(Ids {
            _v6: has_v6.then_some(v6),
            _v4: v4,
        })
    })?
}

/// Makes the socket a listener, or changes its backlog.
///
/// # Errors
///
/// `EINVAL` if the socket is neither closed nor a listener, `EADDRINUSE` if another listener has
/// the port (or an RDMA user outside SDP), `ENOMEM`.
pub(crate) fn listen(sock: &SdpSock, backlog: i32) -> Result {
    let mut refused = None;
    for _ in 0..bind::PORTS_TRIED {
        let Some(Begun { port, had_port }) = begin(sock, backlog, refused)? else {
            return Ok(());
        };
        match acquire(sock.sk().net(), port, sock.stats) {
            Ok(()) => return finish(sock, port),
            Err(e) => {
                give_up(sock, port);
                if !bind::is_taken(e) {
                    return Err(e);
                }
                if had_port {
                    break;
                }
                refused = Some(port);
            }
        }
    }
    Err(EADDRINUSE)
}

/// A socket that is a listener in the table of ports, but not yet at the CM.
struct Begun {
    port: u16,
    /// The socket had its port before.
    had_port: bool,
}

/// Makes the socket a listener in the table; returns `None` if it already is one, and now has the
/// new backlog. A socket without a port gets the next free one after `refused`, which the CM has
/// refused.
fn begin(sock: &SdpSock, backlog: i32, refused: Option<u16>) -> Result<Option<Begun>> {
    let sk = sock.sk();
    let mut guard = sock.lock();
    match guard.conn().state {
        State::Listen => {
            sk.set_backlog(backlog);
            drop(guard);
            accept_queue::fill_places(sock);
            return Ok(None);
        }
        State::Closed | State::Dead | State::Released => {}
        _ => return Err(EINVAL),
    }
    reuse(&mut guard)?;
    // Reserved for the end of listening, which must not fail.
    guard.conn().port.unlisten.reserve(1, GFP_KERNEL)?;
    sk.set_backlog(backlog);
    // The children must not get the page (`Sk::clone_listener`).
    kernel::warn_on!(sk.has_page_frag());
    let had_port = guard.conn().port.bound.is_some();
    // The state is changed first, so that if two sockets try at once, one of them sees the other.
    guard.transition(Event::Listen);
    if let Err(e) = bind::listen(&mut guard, refused) {
        guard.transition(Event::StopListening);
        return Err(e);
    }
    // As with TCP, listen() resets the option.
    guard.conn().options.quickack = true;
    sock.accepts.lock().open(sk);
    let port = sk.num();
    Ok(Some(Begun { port, had_port }))
}

/// Ends the listening in the table, because the CM does not listen at the port.
fn give_up(sock: &SdpSock, port: u16) {
    let mut pending = Closed::new();
    let mut guard = sock.lock();
    // Meanwhile another thread may have ended the listening, and restarted it at another port.
    if listens_at(&mut guard, port) && !guard.conn().port.listens {
        pending = close::stop_listening(&mut guard);
        // The program may try again.
        guard.accepts.lock().set_tcp(pending.tcp.take());
        bind::put_chosen_port(&mut guard);
    }
    drop(guard);
    close::abort_all(pending);
}

/// Completes the listening, after the CM has begun to listen at the port.
fn finish(sock: &SdpSock, port: u16) -> Result {
    let listens = {
        let mut guard = sock.lock();
        if listens_at(&mut guard, port) && !core::mem::replace(&mut guard.conn().port.listens, true)
        {
            // TCP connections may have come before.
            if guard.accepts.lock().is_ready() {
                guard.sk().wake_readers();
            }
            return Ok(());
        }
        guard.conn().state == State::Listen
    };
    // Meanwhile another thread has ended the listening, or has also made the CM listen.
    release(sock.sk().net(), port);
    if listens {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

fn listens_at(guard: &mut SockGuard<'_>, port: u16) -> bool {
    guard.conn().state == State::Listen && guard.sk().num() == port
}

impl Listener for Port {
    type Child = SdpSock;

    fn on_request(&self, request: Request<'_>) -> Result<NonNull<SdpSock>> {
        self.stats.inc(Counter::RequestReceived);
        let mut room = [0; HELLO_ROOM];
        for (to, from) in room.iter_mut().zip(request.private) {
            *to = *from;
        }
        let hello = Hello::decode(&room).map_err(|why| {
            self.stats.violation(why);
            self.refuse(&request, Counter::RefusedBadHello, Refusal::of(why));
            EINVAL
        })?;
        let no_listener = || {
            self.refuse(&request, Counter::RefusedNoListener, Refusal::NoListener);
            ECONNREFUSED
        };
        let (to, from) = self
            .addresses((request.local, request.peer), request.dev, &hello)
            .ok_or_else(no_listener)?;
        if hello.nonce == 0 && !from.may_be_peer(request.answers_to) {
            self.refuse(&request, Counter::RefusedBadAddress, Refusal::NoListener);
            return Err(ECONNREFUSED);
        }
        let dev = match hello.nonce {
            0 => request.dev,
            _ => LOOPBACK_IFINDEX,
        };
        // SAFETY: The sockets that listen hold the namespace, and the CM waits for this handler
        // before the last of them releases it.
        let net = unsafe { Net::from_raw(self.net) };
        let listener = bind::find_listener(net, &to, &from, dev).ok_or_else(no_listener)?;
        // If the peer does not repeat its request, the child's worker asks for a place.
        let closing = || self.refuse(&request, Counter::RefusedNoListener, Refusal::Closing);
        let place = if request.asks_once {
            None
        } else {
            Some(accept_queue::reserve(&listener).inspect_err(|e| match *e {
                // Without an answer, so that the peer repeats its request.
                ENOMEM => self.stats.inc(Counter::DroppedBacklogFull),
                _ => closing(),
            })?)
        };
        let counted = match place {
            Some(_) => Some(self.count(&request, &listener)?),
            None => None,
        };
        let child = child_of(&listener, (to, from), dev, &hello).inspect_err(|e| match *e {
            ECONNREFUSED => closing(),
            _ => self.stats.inc(Counter::RefusedNoMemory),
        })?;
        let backlog = match place {
            Some(place) => place.give(child.clone()).inspect_err(|e| {
                match *e {
                    ENOMEM => self.stats.inc(Counter::RefusedNoMemory),
                    _ => closing(),
                }
                worker::give_up_child(&child);
            })?,
            None => BacklogPlace::NotAsked,
        };
        let ptr = NonNull::from(&*child);
        worker::start_child(child, request.keep(), hello, (backlog, counted));
        Ok(ptr)
    }
}

impl Port {
    /// Counts a request that is refused, and tells the peer why.
    fn refuse(&self, request: &Request<'_>, counter: Counter, why: Refusal) {
        self.stats.inc(counter);
        request.refuse(&why.encode());
    }

    /// Counts a connection of the listener.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the request gets no answer, so that the peer repeats the request: there is no
    /// memory, or half-open connections have places of the limit, which may be free within seconds.
    /// `ECONNREFUSED` if the request was refused, because no half-open connection has such a place:
    /// to wait does not help, and if the peer is of this machine, its own connection keeps a place
    /// while it repeats its request.
    fn count(&self, request: &Request<'_>, listener: &SdpSock) -> Result<Counted> {
        accept_queue::count(listener).map_err(|e| {
            let may_wait = || {
                accept_queue::has_half_open(listener) || limits::half_open_fill(listener.sk().net())
            };
            if e == ENOBUFS && !may_wait() {
                self.refuse(request, Counter::RefusedNoMemory, Refusal::NoMemory);
                return ECONNREFUSED;
            }
            if e == ENOMEM {
                self.stats.inc(Counter::RefusedNoMemory);
            }
            ENOMEM
        })
    }

    /// The addresses of the connection as programs see them: destination, source. `None` for a
    /// loopback connection that was not announced, or if the destination is not an address of the
    /// namespace. The address in the request must be checked, because the peer has written it: on
    /// RoCE the CM checks it too, by its table of GIDs, but not on InfiniBand.
    fn addresses(&self, (to, from): (Addr, Addr), dev: i32, hello: &Hello) -> Option<(Addr, Addr)> {
        // SAFETY: As in `on_request`.
        let net = unsafe { Net::from_raw(self.net) };
        if hello.nonce == 0 {
            let is_ours = to.is_of_one_machine() && route::is_local(net, &to, dev);
            return is_ours.then(|| (to.with_port(self.number), from.with_port(hello.src_port)));
        }
        let ends = net.announced().claim(hello.nonce)?;
        Some((ends.to, ends.from))
    }
}

/// A new socket for a connection to `listener` over the interface `dev`, with the listener's
/// options. The addresses are destination and source.
///
/// # Errors
///
/// `ECONNREFUSED` if the listener was closed, `ENOMEM`.
fn child_of(
    listener: &SdpSock,
    (to, from): (Addr, Addr),
    dev: i32,
    hello: &Hello,
) -> Result<ARef<SdpSock>> {
    let raw = accept_queue::clone_sock(listener)?;
    // SAFETY: The clone is of this module's proto, and no other thread has access to it; the
    // handlers are those of sockets. One of its two references is taken over here; the other
    // belongs to the connection, until its teardown.
    let child: ARef<SdpSock> = unsafe {
        SdpSock::init(raw.as_ptr(), &HANDLERS);
        ARef::from_raw(raw.cast())
    };
    let sk = child.sk();
    sk.set_state(bindings::TCP_CLOSE as u8);
    sk.clear_shutdown();
    let mut guard = child.lock();
    if from.is_link_local() {
        sk.bind_to_link(dev);
    }
    sk.set_local(&to);
    sk.set_peer(&from);
    let conn = guard.conn();
    conn.names.local = to;
    conn.names.peer = from;
    conn.out.peer_receives = PeerReceives::new(hello.rcv_size);
    conn.lifetime.parent = Some(listener.into());
    let adopted = bind::adopt(&mut guard, to.port);
    guard.transition(Event::RequestReceived);
    drop(guard);
    match adopted {
        Ok(()) => Ok(child),
        Err(e) => {
            worker::give_up_child(&child);
            Err(e)
        }
    }
}

#[kunit_tests(ib_sdp_listen)]
mod tests {
    use super::*;
    use crate::proto::hello::{
        Features,
        BUFS_MIN, //
    };

    /// Whether a request from outside reaches a listener of the first namespace by this address.
    fn reaches(to: Addr) -> bool {
        // SAFETY: The first namespace always exists, and has the module's state while tests run.
        let net = unsafe { Net::from_raw(&raw mut bindings::init_net) };
        let port = Port {
            net: net.as_ptr(),
            number: 7,
            stats: net.stats(),
        };
        let hello = Hello {
            features: Features::NONE,
            max_adverts: 1,
            bufs: BUFS_MIN,
            rcv_size: 4096,
            ipv6: false,
            src_port: 9,
            nonce: 0,
        };
        let from = Addr::v4([192, 0, 2, 1], 0);
        port.addresses((to, from), 0, &hello).is_some()
    }

    fn v6(first: [u8; 4], last: u8) -> Addr {
        let [a, b, c, d] = first;
        Addr::v6([a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last], 0, 0)
    }

    /// The sender of a request writes the destination. Loopback addresses are addresses of the
    /// machine, but not for requests from outside; others are of other machines, or of none.
    #[test]
    fn false_destinations_reach_no_listener() {
        for to in [
            v6([0; 4], 1),
            Addr::v4([127, 0, 0, 1], 0),
            Addr::ANY,
            Addr::v4([0; 4], 0),
            v6([0xff, 2, 0, 0], 1),
            Addr::v4([224, 0, 0, 1], 0),
            Addr::v4([255; 4], 0),
            v6([0x20, 1, 0xd, 0xb8], 1),
            Addr::v4([198, 51, 100, 1], 0),
        ] {
            assert!(!reaches(to));
        }
    }
}
