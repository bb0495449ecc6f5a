// SPDX-License-Identifier: GPL-2.0

//! The sockets of a namespace by netlink: the dump and its filter.

use kernel::prelude::*;

use super::netlink::{
    put_addr,
    put_counter, //
};
use crate::bindings;
use crate::inet::addr::Addr;
use crate::inet::genl::{
    at_most,
    bytes,
    flags,
    number,
    rejected,
    Attr,
    Dump,
    DumpBuffer,
    Message,
    Policy,
    Request, //
};
use crate::inet::sock::Sk;
use crate::proto::state::State;
use crate::sdp::cm::bind::{
    self,
    Cursor, //
};
use crate::sdp::conn::sock::SdpSock;
use crate::sdp::info::sock_info::{
    sock_info,
    SockInfo, //
};
use crate::sdp::info::tcp_info::Figures;
use crate::stats::tally::Tally;
use crate::uapi::nl::pace as p;
use crate::uapi::nl::sock as a;
use crate::uapi::nl::{
    option,
    CMD_SOCK_GET,
    STATES, //
};

const AF_INET: u16 = bindings::AF_INET as u16;
const AF_INET6: u16 = bindings::AF_INET6 as u16;

/// The size of a counter in a message: the header of the counter, the name with its header and
/// terminating zero, and the number with its header and padding.
const COUNTER_BYTES: usize = 4 + (4 + 28) + (4 + 12);
/// The size of all other attributes: about forty, most of them numbers.
const OTHER_BYTES: usize = 1024;

/// The dump of the sockets.
pub(super) struct Sockets;

pub(super) const POLICY_LEN: usize = a::PEER_PREFIX as usize + 1;

/// The attributes of a request for sockets.
pub(super) const fn policy() -> [Policy; POLICY_LEN] {
    let mut policy = [rejected(); POLICY_LEN];
    policy[a::FAMILY as usize] = number(bindings::NLA_U16);
    policy[a::LOCAL_ADDR as usize] = bytes(16);
    policy[a::LOCAL_PORT as usize] = number(bindings::NLA_U16);
    policy[a::PEER_ADDR as usize] = bytes(16);
    policy[a::PEER_PORT as usize] = number(bindings::NLA_U16);
    policy[a::STATES as usize] = flags((1 << STATES.len()) - 1);
    policy[a::LOCAL_PREFIX as usize] = at_most(128);
    policy[a::PEER_PREFIX as usize] = at_most(128);
    policy
}

impl Dump for Sockets {
    const CMD: u8 = CMD_SOCK_GET;
    const POLICY: &'static [Policy] = &policy();
    const MESSAGE_BYTES: usize = Tally::COUNT * COUNTER_BYTES + OTHER_BYTES;
    type Cursor = Cursor;

    fn check(request: &Request<'_>) -> Result {
        Filter::of(request).map(|_| ())
    }

    fn dump(request: &Request<'_>, cursor: &mut Cursor, out: &mut DumpBuffer<'_>) -> Result {
        let filter = Filter::of(request)?;
        let net = request.net();
        loop {
            let batch = bind::batch(net, cursor, filter.local.port)?;
            if batch.is_empty() {
                return Ok(());
            }
            for (sock, place) in &batch {
                if filter.may_match(sock.sk()) {
                    let socket = sock_info(sock);
                    if filter.matches(&socket) {
                        write(request, out, sock, &socket)?;
                    }
                }
                *cursor = place.next();
            }
        }
    }
}

/// One end of the requested connections.
struct End {
    /// With the number of bits that are compared.
    addr: Option<([u8; 16], u32)>,
    port: Option<u16>,
}

impl End {
    /// # Errors
    ///
    /// `EINVAL` for an address whose length fits no family, or for more bits than the address has.
    fn of(request: &Request<'_>, addr: u16, prefix: u16, port: u16) -> Result<Self> {
        let bits = request.attr(prefix);
        let addr = match request.attr(addr) {
            Some(addr) => Some(parse_addr(request, addr, bits)?),
            None => match bits {
                Some(bits) => {
                    return Err(request.refuse(bits, c"a prefix length without an address"))
                }
                None => None,
            },
        };
        let port = request.attr(port).map(Attr::u16).transpose()?;
        Ok(Self { addr, port })
    }

    fn matches(&self, end: &Addr, v6: bool) -> bool {
        self.port.is_none_or(|port| port == end.port)
            && self.addr.is_none_or(|(ip, bits)| {
                // The wildcard of both families.
                let end = match end.is_any() && !v6 {
                    true => Addr::v4([0; 4], 0),
                    false => *end,
                };
                let differ = u128::from_be_bytes(ip) ^ u128::from_be_bytes(end.ip);
                differ.leading_zeros() >= bits
            })
    }
}

/// IPv4 addresses are kept in their mapped form, like the addresses of sockets.
fn parse_addr(
    request: &Request<'_>,
    addr: Attr<'_>,
    bits: Option<Attr<'_>>,
) -> Result<([u8; 16], u32)> {
    let (ip, before) = if let Ok(v4) = <[u8; 4]>::try_from(addr.bytes()) {
        (Addr::v4(v4, 0).ip, 96)
    } else if let Ok(v6) = <[u8; 16]>::try_from(addr.bytes()) {
        (v6, 0)
    } else {
        return Err(request.refuse(addr, c"an address has 4 or 16 bytes"));
    };
    match bits {
        None => Ok((ip, 128)),
        Some(bits) => match before + u32::from(bits.u8()?) {
            all @ ..=128 => Ok((ip, all)),
            _ => Err(request.refuse(bits, c"an IPv4 address has 32 bits")),
        },
    }
}

/// The sockets that a request asks for.
pub(super) struct Filter {
    states: u32,
    family: Option<u16>,
    local: End,
    peer: End,
}

impl Filter {
    /// # Errors
    ///
    /// `EINVAL` for a request that no socket can match.
    pub(super) fn of(request: &Request<'_>) -> Result<Self> {
        let family = match request.attr(a::FAMILY) {
            None => None,
            Some(attr) => match attr.u16()? {
                family @ (AF_INET | AF_INET6) => Some(family),
                _ => return Err(request.refuse(attr, c"the family is AF_INET or AF_INET6")),
            },
        };
        Ok(Self {
            states: request.attr(a::STATES).map_or(Ok(u32::MAX), Attr::u32)?,
            family,
            local: End::of(request, a::LOCAL_ADDR, a::LOCAL_PREFIX, a::LOCAL_PORT)?,
            peer: End::of(request, a::PEER_ADDR, a::PEER_PREFIX, a::PEER_PORT)?,
        })
    }

    /// Whether a socket can match, by the fields that are readable without its lock: a request for
    /// one socket must not wait for all others.
    pub(super) fn may_match(&self, sk: Sk) -> bool {
        let v6 = sk.is_v6();
        self.family.is_none_or(|family| family == sk.family())
            && self.local.matches(&sk.bound_addr(), v6)
            && self.peer.matches(&sk.peer_addr(), v6)
    }

    /// Whether the request asks for TCP sockets that replace those of SDP: they are shown with the
    /// connected ones.
    pub(super) fn admits_tcp(&self) -> bool {
        self.admits(State::Established)
    }

    fn admits(&self, state: State) -> bool {
        self.states & (1 << state.index()) != 0
    }

    fn matches(&self, socket: &SockInfo) -> bool {
        let v6 = socket.name.family == AF_INET6;
        let is_wanted = match socket.fell_back {
            Some(_) => self.admits_tcp(),
            None => self.admits(socket.state),
        };
        is_wanted
            && self
                .family
                .is_none_or(|family| family == socket.name.family)
            && self.local.matches(&socket.name.local, v6)
            && self.peer.matches(&socket.name.peer, v6)
    }
}

fn write(
    request: &Request<'_>,
    out: &mut DumpBuffer<'_>,
    sock: &SdpSock,
    socket: &SockInfo,
) -> Result {
    let v6 = socket.name.family == AF_INET6;
    let mut m = out.next()?;
    m.put_u16(a::FAMILY, socket.name.family)?;
    m.put_u8(a::STATE, socket.state as u8)?;
    put_addr(
        &mut m,
        &socket.name.local,
        v6,
        (a::LOCAL_ADDR, a::LOCAL_PORT),
    )?;
    put_addr(&mut m, &socket.name.peer, v6, (a::PEER_ADDR, a::PEER_PORT))?;
    m.put_u32(a::INTERFACE, socket.name.interface)?;
    m.put_u32(a::TX_QUEUE, socket.tx_queue)?;
    m.put_u32(a::RX_QUEUE, socket.rx_queue)?;
    m.put_u32(a::UID, request.uid_of(sock.sk()))?;
    m.put_uint(a::INODE, socket.name.inode)?;
    m.put_uint(a::NETNS_COOKIE, request.net().cookie())?;
    m.put_u32(a::CREDITS, socket.room.credits)?;
    m.put_u32(a::RECEIVES_POSTED, socket.room.receives_posted)?;
    m.put_u32(a::RECEIVE_BYTES, socket.room.receive_bytes)?;
    m.put_u32(a::PEER_RECEIVE_BYTES, socket.room.peer_receive_bytes)?;
    m.put_u32(a::SENDS_POSTED, socket.room.sends_posted)?;
    m.put_u32(a::FEATURES, socket.features.bits())?;
    let options = &socket.options;
    m.put_u8(a::MODE, u8::try_from(options.wanted.number()).unwrap_or(0))?;
    m.put_u32(a::ZCOPY_THRESHOLD, socket.threshold_bytes)?;
    m.put_u32(a::OPTIONS, option_bits(socket))?;
    m.put_u32(a::SEND_BUFFER, socket.buffers.send)?;
    m.put_u32(a::RECEIVE_BUFFER, socket.buffers.receive)?;
    m.put_u32(a::SEND_MEMORY, socket.buffers.sends_charged)?;
    m.put_u32(a::RECEIVE_MEMORY, socket.buffers.receives_charged)?;
    m.put_u32(a::KEEPALIVE_IDLE, options.keepidle_s.unsigned_abs())?;
    m.put_u32(a::KEEPALIVE_INTERVAL, options.keepintvl_s.unsigned_abs())?;
    m.put_u32(a::KEEPALIVE_COUNT, options.keepcnt.unsigned_abs())?;
    m.put_u32(a::USER_TIMEOUT, options.user_timeout_ms.unsigned_abs())?;
    m.put_uint(a::COOKIE, socket.name.cookie)?;
    if let Some(why) = socket.fell_back {
        m.put_u32(a::ERROR, why.to_errno().unsigned_abs())?;
    }
    let mut result = Ok(());
    socket.tally.for_each(|group, name, n| {
        if n != 0 && result.is_ok() {
            result = m.nest(a::COUNTER, |m| put_counter(m, &[group, name], n));
        }
    });
    result?;
    if socket.state != State::Listen && socket.state != State::Closed {
        m.nest(a::PACE, |m| put_pace(m, &socket.figures))?;
    }
    m.end();
    Ok(())
}

/// Writes the figures of a connection's transfer.
fn put_pace(m: &mut Message<'_>, of: &Figures) -> Result {
    for (number, n) in [
        (p::RTT, of.round_trip.smoothed_us),
        (p::RTT_VAR, of.round_trip.deviation_us),
        (p::MIN_RTT, of.round_trip.least_us),
        (p::UNACKED, of.unacked),
        (p::NOTSENT_BYTES, of.notsent_bytes),
        (p::LAST_SENT, of.last_sent_ms),
        (p::LAST_RECEIVED, of.last_received_ms),
        (p::LAST_HEARD, of.last_heard_ms),
    ] {
        if n != 0 {
            m.put_u32(number, n)?;
        }
    }
    for (number, n) in [
        (p::DELIVERY_RATE, of.bytes_per_s),
        (p::BYTES_SENT, of.bytes_sent),
        (p::BYTES_ACKED, of.bytes_acked),
        (p::BYTES_RECEIVED, of.bytes_received),
        (p::BUSY, of.times.busy_us),
        (p::PEER_LIMITED, of.times.awaiting_peer_us),
        (p::BUFFER_LIMITED, of.times.awaiting_room_us),
    ] {
        if n != 0 {
            m.put_uint(number, n)?;
        }
    }
    Ok(())
}

fn option_bits(socket: &SockInfo) -> u32 {
    let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
    let options = &socket.options;
    bit(options.nodelay, option::NODELAY)
        | bit(options.cork, option::CORK)
        | bit(socket.flags.keepalive, option::KEEPALIVE)
        | bit(socket.flags.reuseaddr, option::REUSEADDR)
        | bit(socket.flags.reuseport, option::REUSEPORT)
        | bit(socket.flags.v6only, option::V6ONLY)
        | bit(options.blocks, option::FAULT_WAITS)
        | bit(socket.flags.listens_tcp, option::LISTEN_TCP)
        | bit(socket.fell_back.is_some(), option::TCP_FALLBACK)
}
