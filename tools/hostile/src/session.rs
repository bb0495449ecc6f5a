// SPDX-License-Identifier: GPL-2.0
//! Connections between the hostile side and a victim, set up according to the rules.

use crate::cm::{Channel, Event, Id};
use crate::counters::{Counters, Moves};
use crate::fail::{expect, Fail, Result, Step};
use crate::ffi;
use crate::peer::Peer;
use crate::queue::RECV_SLOTS;
use crate::sock::Sock;
use proto_host::proto::hello::{Features, Hello, HelloAck, HELLO_ACK_ROOM, HELLO_ROOM};
use proto_host::proto::message::Body;
use std::cell::Cell;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The port in a Hello.
const SRC_PORT: u16 = 4711;
/// The number of payload bytes that a receive of this side takes.
const RCV_SIZE: u32 = 4096;
/// The number of receives of an honest peer.
pub(crate) const POSTED: u16 = 16;

/// The environment of the attacks.
pub(crate) struct Ctx {
    pub(crate) addr: Ipv4Addr,
    /// The time limit for anything; only a hang takes longer.
    pub(crate) limit: Duration,
    /// Only every n-th case of a long list is run; 1 for all cases.
    pub(crate) every: usize,
    port: Cell<u16>,
    turn: Cell<u32>,
    /// Whether the device uses iWARP.
    pub(crate) is_iwarp: bool,
}

impl Ctx {
    pub(crate) fn new(addr: Ipv4Addr, limit: Duration, every: usize, port: u16) -> Result<Ctx> {
        let probe = resolved(SocketAddrV4::new(addr, port), limit).step("the device")?;
        Ok(Ctx {
            addr,
            limit,
            every: every.max(1),
            port: Cell::new(port),
            turn: Cell::new(0),
            is_iwarp: probe.is_iwarp(),
        })
    }

    /// The victim's errno and counter when this side's adapter refuses the victim's Read or Write.
    /// With iWARP the victim's adapter only reports that the peer has ended the connection.
    pub(crate) fn told_of_refusal(&self) -> (i32, &'static str) {
        if self.is_iwarp {
            (libc::ECONNRESET, "reset_by_peer")
        } else {
            (libc::EPROTO, "read_refused")
        }
    }

    /// An address with a port that was not used yet, so that a late packet cannot reach a new
    /// listener.
    pub(crate) fn fresh(&self) -> SocketAddrV4 {
        let port = self.port.get();
        self.port.set(port + 1);
        SocketAddrV4::new(self.addr, port)
    }

    /// Whether the victim listens in the next session, or connects. The two alternate.
    fn victim_listens(&self) -> bool {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        turn % 2 == 0
    }
}

/// A valid Hello.
pub(crate) fn hello(bufs: u16) -> Hello {
    Hello {
        features: Features::NONE,
        max_adverts: 1,
        bufs,
        rcv_size: RCV_SIZE,
        ipv6: false,
        src_port: SRC_PORT,
        nonce: 0,
    }
}

/// A valid HelloAck.
pub(crate) fn hello_ack(bufs: u16) -> HelloAck {
    HelloAck {
        features: Features::NONE,
        max_adverts: 1,
        bufs,
        rcv_size: RCV_SIZE,
    }
}

/// An id with a route to `addr`.
pub(crate) fn resolved(addr: SocketAddrV4, limit: Duration) -> Result<Id> {
    let id = Id::new(&Channel::new()?)?;
    id.resolve(addr, limit)?;
    Ok(id)
}

/// Waits for the request of a connecting victim; returns the new id and the
/// victim's Hello.
pub(crate) fn request(listener: &Id, limit: Duration) -> Result<(Id, Hello)> {
    let event = listener.expect(ffi::RDMA_CM_EVENT_CONNECT_REQUEST, limit)?;
    let id = Id::of_request(&event, listener)?;
    let hello = Hello::decode(&room::<HELLO_ROOM>(&event))
        .map_err(|why| Fail::new(format!("the module's Hello has {}", why.name())))?;
    Ok((id, hello))
}

fn room<const LEN: usize>(event: &Event) -> [u8; LEN] {
    let mut room = [0; LEN];
    for (to, from) in room.iter_mut().zip(&event.private) {
        *to = *from;
    }
    room
}

/// The parameters of a session.
pub(crate) struct Start {
    /// The number of receives that this side announces.
    pub(crate) bufs: u16,
    /// The number of receives that this side posts. If it is less than `bufs`, the announcement is
    /// a lie.
    pub(crate) posted: usize,
    /// The features of this side.
    pub(crate) features: Features,
}

impl Default for Start {
    fn default() -> Start {
        Start {
            bufs: POSTED,
            posted: usize::from(POSTED),
            features: Features::NONE,
        }
    }
}

/// An established connection to a victim.
pub(crate) struct Session {
    pub(crate) victim: Sock,
    pub(crate) peer: Peer,
    /// The number of bytes that a receive of the victim takes after the header.
    pub(crate) victim_rcv_size: u32,
    before: Counters,
    limit: Duration,
}

impl Session {
    /// Connects. The victim listens and connects alternately.
    pub(crate) fn open(ctx: &Ctx, start: &Start) -> Result<Session> {
        if ctx.victim_listens() {
            Session::to_listener(ctx, start).step("set-up to a listening victim")
        } else {
            Session::from_connector(ctx, start).step("set-up from a connecting victim")
        }
    }

    /// Connects, and checks that bytes arrive unchanged in both directions.
    pub(crate) fn open_and_greet(ctx: &Ctx) -> Result<Session> {
        let mut session = Session::open(ctx, &Start::default())?;
        session.greet().step("greeting")?;
        Ok(session)
    }

    pub(crate) fn to_listener(ctx: &Ctx, start: &Start) -> Result<Session> {
        settle(ctx)?;
        let addr = ctx.fresh();
        let listener = Sock::listen(addr, 8, ctx.limit)?;
        Session::at_listener(ctx, start, addr, &listener)
    }

    /// Connects to the victim that listens at `addr`.
    pub(crate) fn at_listener(
        ctx: &Ctx,
        start: &Start,
        addr: SocketAddrV4,
        listener: &Sock,
    ) -> Result<Session> {
        let before = Counters::read()?;
        let mut peer = Peer::new(resolved(addr, ctx.limit)?, start.posted, ctx.limit)?;
        announce(&mut peer, start);
        let number = peer.queue()?.number();
        let hello = Hello {
            features: start.features,
            ..hello(start.bufs)
        };
        peer.id.connect(&hello.encode(), number)?;
        // The CM repeats a request without an answer after about 4 s.
        let event = peer.id.accepted(ctx.limit * 4)?;
        let ack = HelloAck::decode(&room::<HELLO_ACK_ROOM>(&event))
            .map_err(|why| Fail::new(format!("the module's HelloAck has {}", why.name())))?;
        peer.credits.set_peer_limit(ack.bufs);
        peer.complete()?;
        let victim = listener.accept(ctx.limit)?;
        Ok(Session {
            victim,
            peer,
            victim_rcv_size: ack.rcv_size,
            before,
            limit: ctx.limit,
        })
    }

    pub(crate) fn from_connector(ctx: &Ctx, start: &Start) -> Result<Session> {
        settle(ctx)?;
        let before = Counters::read()?;
        let addr = ctx.fresh();
        let listener = Id::new(&Channel::new()?)?;
        listener.listen(addr)?;
        let victim = Sock::start_connect(addr)?;
        let (id, hello) = request(&listener, ctx.limit)?;
        let mut peer = Peer::new(id, start.posted, ctx.limit)?;
        announce(&mut peer, start);
        peer.credits.set_peer_limit(hello.bufs);
        let number = peer.ready()?;
        let ack = HelloAck {
            features: start.features.intersection(hello.features),
            ..hello_ack(start.bufs)
        };
        peer.id.accept(&ack.encode(), number)?;
        let errno = victim.end_connect(ctx.limit)?;
        expect(errno == 0, || format!("connect() ended with errno {errno}"))?;
        // Before this side's CM has heard of the connection, it tells the victim nothing when this
        // side disconnects.
        peer.id.expect(ffi::RDMA_CM_EVENT_ESTABLISHED, ctx.limit)?;
        peer.answer_first()?;
        Ok(Session {
            victim,
            peer,
            victim_rcv_size: hello.rcv_size,
            before,
            limit: ctx.limit,
        })
    }

    /// Sends bytes in both directions and checks them.
    pub(crate) fn greet(&mut self) -> Result<()> {
        let there = pattern(1, 100);
        self.victim.send(&there)?;
        expect(self.peer.take_bytes(100)? == there, || {
            "the victim's bytes are not its own".to_owned()
        })?;
        let back = pattern(2, 77);
        self.peer.send(Body::Data, &back)?;
        expect(self.victim.recv(77)? == back, || {
            "the victim received other bytes".to_owned()
        })
    }

    /// Expects that the victim's connection ends with this errno, that this side's CM is told, and
    /// that exactly these counters change.
    pub(crate) fn expect_death(&mut self, errno: i32, counted: &Moves) -> Result<()> {
        let got = self.victim.await_error(self.limit)?;
        expect(got == errno, || {
            format!("the victim's error is {got} instead of {errno}")
        })?;
        self.peer.await_disconnect()?;
        self.before.expect(counted, self.limit)
    }

    /// Expects that exactly these counters change.
    pub(crate) fn expect_counted(&self, counted: &Moves) -> Result<()> {
        self.before.expect(counted, self.limit)
    }

    /// The change of a counter since the session was opened.
    pub(crate) fn since(&self, name: &str) -> Result<u64> {
        self.before.since(name)
    }

    /// Waits until a counter has changed by at least `least` since the session was opened. The
    /// adapter acknowledges a message before the victim's module handles it.
    pub(crate) fn await_counted(&self, name: &str, least: u64) -> Result<()> {
        let end = Instant::now() + self.limit;
        while self.since(name)? < least {
            expect(Instant::now() < end, || format!("no {name} is counted"))?;
            sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// As [`Session::expect_death`], but several errors and counters are allowed.
    pub(crate) fn expect_some_death(&mut self, errnos: &[i32], allowed: &[&str]) -> Result<()> {
        let got = self.victim.await_error(self.limit)?;
        expect(errnos.contains(&got), || {
            format!("the victim's error is {got}, none of {errnos:?}")
        })?;
        self.peer.await_disconnect()?;
        self.expect_only(allowed)
    }

    /// Expects that the victim's adapter refuses an RDMA operation of 16 bytes, which ends the
    /// connection.
    pub(crate) fn expect_refused(&mut self, read: bool, addr: u64, rkey: u32) -> Result<()> {
        let peer = &mut self.peer;
        peer.finish_sends()?;
        let before = peer.succeeded;
        peer.queue()?.rdma(read, addr, rkey, 16)?;
        peer.finish_sends()?;
        let done = peer.succeeded - before;
        expect(done == 0 || !peer.is_end_to_end(read), || {
            "the adapter did it".to_owned()
        })?;
        peer.expect_access_error()?;
        self.expect_some_death(&[libc::ECONNRESET], &["reset_by_peer"])
    }

    /// Expects that no other counters of errors have changed.
    pub(crate) fn expect_only(&self, allowed: &[&str]) -> Result<()> {
        let moved = self.before.moved()?;
        // soft-iWARP refuses a work request of the victim while the peer closes the connection.
        let may_fail_to_post = self.peer.id.is_iwarp() && allowed.contains(&"reset_by_peer");
        let is_allowed =
            |name: &str| allowed.contains(&name) || name == "post_failed" && may_fail_to_post;
        expect(moved.iter().all(|(name, _)| is_allowed(name)), || {
            format!("counters moved by {moved:?}, allowed are {allowed:?}")
        })
    }
}

/// The sockets of the module, as its list shows them.
pub(crate) fn sockets() -> Result<String> {
    let text = fs::read_to_string("/proc/net/sdp").step("/proc/net/sdp")?;
    let (_heading, list) = text.split_once('\n').unwrap_or(("", ""));
    Ok(list.to_owned())
}

/// Waits until the sockets of earlier attacks are gone, because their ends are counted only when
/// they happen. It is also a test that they go away at all.
pub(crate) fn settle(ctx: &Ctx) -> Result<()> {
    let end = Instant::now() + ctx.limit * 6;
    loop {
        let left = sockets()?;
        if left.is_empty() {
            return Ok(());
        }
        expect(Instant::now() < end, || {
            format!("sockets of before do not go away: {left}")
        })?;
        sleep(Duration::from_millis(2));
    }
}

fn announce(peer: &mut Peer, start: &Start) {
    let lie = usize::from(start.bufs).saturating_sub(start.posted.min(RECV_SLOTS));
    peer.credits.posted(lie as u32);
    peer.credits.announce();
}

/// Bytes that depend on their place and on the seed.
pub(crate) fn pattern(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as u8
        })
        .collect()
}

/// Checks that two sockets of the module can still talk to each other.
pub(crate) fn normal_connection(ctx: &Ctx) -> Result<()> {
    let addr = ctx.fresh();
    let listener = Sock::listen(addr, 1, ctx.limit)?;
    let here = Sock::connect(addr, ctx.limit)?;
    let there = listener.accept(ctx.limit)?;
    for (from, to, seed) in [(&here, &there, 3), (&there, &here, 4)] {
        let bytes = pattern(seed, 10_007);
        from.send(&bytes)?;
        expect(to.recv(bytes.len())? == bytes, || {
            "the bytes have changed".to_owned()
        })?;
    }
    here.shutdown()?;
    there.expect_end()?;
    there.shutdown()?;
    here.expect_end()
}
