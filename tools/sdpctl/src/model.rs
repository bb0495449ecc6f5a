// SPDX-License-Identifier: GPL-2.0

//! Data from the module: Rust types and their JSON.

use std::io;
use std::net::IpAddr;

use serde::{
    Serialize,
    Serializer, //
};

use crate::fail::Fail;
use crate::netlink::{
    Message,
    Module, //
};
use crate::owners::Owner;
use uapi::nl;
use uapi::nl::sock as a;

/// The shown state of a socket that has become a TCP socket.
pub(crate) const TCP: &str = "TCP";

/// One end of a connection.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

impl End {
    /// Formatted like `ss`, with a star for unset values.
    pub(crate) fn show(&self) -> String {
        let port = match self.port {
            0 => "*".into(),
            port => port.to_string(),
        };
        match self.address {
            ip if ip.is_unspecified() && self.port == 0 => format!("*:{port}"),
            IpAddr::V4(ip) => format!("{ip}:{port}"),
            IpAddr::V6(ip) => format!("[{ip}]:{port}"),
        }
    }
}

/// A socket.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(crate) struct Socket {
    pub(crate) family: &'static str,
    pub(crate) state: &'static str,
    pub(crate) local: End,
    pub(crate) peer: End,
    pub(crate) interface: u32,
    pub(crate) recv_queue: u64,
    pub(crate) send_queue: u64,
    pub(crate) uid: u32,
    pub(crate) inode: u64,
    pub(crate) netns_cookie: u64,
    /// `None` from a module of version 1, which has no counters per socket either.
    pub(crate) cookie: Option<u64>,
    pub(crate) mode: &'static str,
    pub(crate) zcopy_threshold: u64,
    pub(crate) credits: u64,
    pub(crate) receives_posted: u64,
    pub(crate) receive_bytes: u64,
    pub(crate) peer_receive_bytes: u64,
    pub(crate) sends_posted: u64,
    pub(crate) send_buffer: u64,
    pub(crate) receive_buffer: u64,
    pub(crate) send_memory: u64,
    pub(crate) receive_memory: u64,
    pub(crate) keepalive_idle_s: u64,
    pub(crate) keepalive_interval_s: u64,
    pub(crate) keepalive_count: u64,
    pub(crate) user_timeout_ms: u64,
    /// Why SDP could not connect, as an errno, if the socket has become a TCP socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<u64>,
    pub(crate) features: Vec<&'static str>,
    pub(crate) options: Vec<&'static str>,
    /// Counters that are not 0, in the module's order.
    #[serde(serialize_with = "as_map")]
    pub(crate) counters: Vec<(String, u64)>,
    /// `None` for a listener, and from a module that does not report it.
    pub(crate) pace: Option<Pace>,
    /// Only if processes were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) processes: Option<Vec<Owner>>,
}

impl Socket {
    /// Whether the socket has become a TCP socket.
    pub(crate) fn is_tcp(&self) -> bool {
        self.options.contains(&TCP_FALLBACK)
    }

    /// The state to show; of a socket that has become a TCP socket, only this.
    pub(crate) fn shown_state(&self) -> &'static str {
        match self.is_tcp() {
            true => TCP,
            false => self.state,
        }
    }

    /// Why SDP could not connect, if the socket has become a TCP socket.
    pub(crate) fn sdp_error(&self) -> Option<io::Error> {
        let errno = self.error.and_then(|error| i32::try_from(error).ok())?;
        Some(io::Error::from_raw_os_error(errno))
    }
}

/// Figures of a connection's transfer.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) rtt_us: u64,
    pub(crate) rtt_var_us: u64,
    pub(crate) min_rtt_us: u64,
    pub(crate) delivery_rate: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_acked: u64,
    pub(crate) bytes_received: u64,
    pub(crate) unacked: u64,
    pub(crate) notsent_bytes: u64,
    pub(crate) busy_us: u64,
    pub(crate) peer_limited_us: u64,
    pub(crate) buffer_limited_us: u64,
    pub(crate) last_sent_ms: u64,
    pub(crate) last_received_ms: u64,
    pub(crate) last_heard_ms: u64,
}

impl Pace {
    /// Values that are 0 are not sent.
    fn of(m: &Message) -> Self {
        use nl::pace as p;
        let n = |number| m.number(number).unwrap_or(0);
        Self {
            rtt_us: n(p::RTT),
            rtt_var_us: n(p::RTT_VAR),
            min_rtt_us: n(p::MIN_RTT),
            delivery_rate: n(p::DELIVERY_RATE),
            bytes_sent: n(p::BYTES_SENT),
            bytes_acked: n(p::BYTES_ACKED),
            bytes_received: n(p::BYTES_RECEIVED),
            unacked: n(p::UNACKED),
            notsent_bytes: n(p::NOTSENT_BYTES),
            busy_us: n(p::BUSY),
            peer_limited_us: n(p::PEER_LIMITED),
            buffer_limited_us: n(p::BUFFER_LIMITED),
            last_sent_ms: n(p::LAST_SENT),
            last_received_ms: n(p::LAST_RECEIVED),
            last_heard_ms: n(p::LAST_HEARD),
        }
    }
}

fn as_map<S: Serializer>(counters: &[(String, u64)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(counters.iter().map(|(name, n)| (name, n)))
}

/// The module, and the namespace of the request.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) protocol: u64,
    pub(crate) features: Vec<&'static str>,
    pub(crate) netns_cookie: u64,
    pub(crate) counters_since_ns: u64,
}

const FEATURES: [(u32, &str); 5] = [
    (nl::feature::ORDERED, "ordered"),
    (nl::feature::REMOTE_INVALIDATE, "remote-invalidate"),
    (nl::feature::SINK, "sink"),
    (nl::feature::SOURCE, "source"),
    (nl::feature::SHRINK, "shrink"),
];

/// The option of a listener that also accepts TCP connections.
pub(crate) const LISTEN_TCP: &str = "listen-tcp";
/// The option of a socket that has become a TCP socket.
const TCP_FALLBACK: &str = "tcp-fallback";

const OPTIONS: [(u32, &str); 9] = [
    (nl::option::NODELAY, "nodelay"),
    (nl::option::CORK, "cork"),
    (nl::option::KEEPALIVE, "keepalive"),
    (nl::option::REUSEADDR, "reuseaddr"),
    (nl::option::REUSEPORT, "reuseport"),
    (nl::option::V6ONLY, "v6only"),
    (nl::option::FAULT_WAITS, "fault-waits"),
    (nl::option::LISTEN_TCP, LISTEN_TCP),
    (nl::option::TCP_FALLBACK, TCP_FALLBACK),
];

fn names(bits: u64, all: &[(u32, &'static str)]) -> Vec<&'static str> {
    let set = all.iter().filter(|(bit, _)| bits & u64::from(*bit) != 0);
    set.map(|(_, name)| *name).collect()
}

/// An attribute that every version of the family sends.
fn need(message: &Message, number: u16) -> Result<u64, Fail> {
    message.number(number).ok_or(Fail::TooOld)
}

fn small<T: TryFrom<u64>>(n: u64) -> Result<T, Fail> {
    T::try_from(n).map_err(|_| Fail::Other("netlink: a number is too large".into()))
}

pub(crate) fn end_of(message: &Message, addr: u16, port: u16) -> Result<End, Fail> {
    let bytes = message.bytes(addr).ok_or(Fail::TooOld)?;
    let address = if let Ok(v4) = <[u8; 4]>::try_from(bytes.as_slice()) {
        IpAddr::from(v4)
    } else if let Ok(v6) = <[u8; 16]>::try_from(bytes.as_slice()) {
        IpAddr::from(v6)
    } else {
        return Err(Fail::Other("netlink: an address of no family".into()));
    };
    let port = small(need(message, port)?)?;
    Ok(End { address, port })
}

impl TryFrom<&Message> for Socket {
    type Error = Fail;

    fn try_from(m: &Message) -> Result<Self, Fail> {
        let options = need(m, a::OPTIONS)?;
        // A TCP socket has no figures of SDP.
        let is_tcp = options & u64::from(nl::option::TCP_FALLBACK) != 0;
        let n = |number| match m.number(number) {
            None if is_tcp => Ok(0),
            _ => need(m, number),
        };
        // States and modes of a newer module have no name.
        let name = |number: u64, all: &[&'static str]| {
            let index = usize::try_from(number).unwrap_or(usize::MAX);
            all.get(index).copied().unwrap_or("unknown")
        };
        Ok(Self {
            family: match n(a::FAMILY)? {
                family if family == libc::AF_INET6 as u64 => "inet6",
                _ => "inet",
            },
            state: name(n(a::STATE)?, &nl::STATES),
            local: end_of(m, a::LOCAL_ADDR, a::LOCAL_PORT)?,
            peer: end_of(m, a::PEER_ADDR, a::PEER_PORT)?,
            interface: small(n(a::INTERFACE)?)?,
            recv_queue: n(a::RX_QUEUE)?,
            send_queue: n(a::TX_QUEUE)?,
            uid: small(n(a::UID)?)?,
            inode: n(a::INODE)?,
            netns_cookie: n(a::NETNS_COOKIE)?,
            cookie: m.number(a::COOKIE),
            mode: name(n(a::MODE)?, &nl::MODES),
            zcopy_threshold: n(a::ZCOPY_THRESHOLD)?,
            credits: n(a::CREDITS)?,
            receives_posted: n(a::RECEIVES_POSTED)?,
            receive_bytes: n(a::RECEIVE_BYTES)?,
            peer_receive_bytes: n(a::PEER_RECEIVE_BYTES)?,
            sends_posted: n(a::SENDS_POSTED)?,
            send_buffer: n(a::SEND_BUFFER)?,
            receive_buffer: n(a::RECEIVE_BUFFER)?,
            send_memory: n(a::SEND_MEMORY)?,
            receive_memory: n(a::RECEIVE_MEMORY)?,
            keepalive_idle_s: n(a::KEEPALIVE_IDLE)?,
            keepalive_interval_s: n(a::KEEPALIVE_INTERVAL)?,
            keepalive_count: n(a::KEEPALIVE_COUNT)?,
            user_timeout_ms: n(a::USER_TIMEOUT)?,
            error: m.number(a::ERROR),
            features: names(n(a::FEATURES)?, &FEATURES),
            options: names(options, &OPTIONS),
            counters: read_counters(&m.nests(a::COUNTER)?)?,
            pace: m.nests(a::PACE)?.first().map(Pace::of),
            processes: None,
        })
    }
}

/// Requests information about the module.
pub(crate) fn about(module: &mut Module) -> Result<About, Fail> {
    let m = module.get(nl::CMD_MODULE_GET)?;
    Ok(About {
        protocol: need(&m, nl::module::PROTOCOL)?,
        features: names(need(&m, nl::module::FEATURES)?, &FEATURES),
        netns_cookie: need(&m, nl::module::NETNS_COOKIE)?,
        counters_since_ns: need(&m, nl::module::COUNTERS_SINCE)?,
    })
}

/// Requests the counters, in the module's order.
pub(crate) fn counters(module: &mut Module) -> Result<Vec<(String, u64)>, Fail> {
    read_counters(&module.dump(nl::CMD_STAT_GET, Vec::new())?)
}

fn read_counters(messages: &[Message]) -> Result<Vec<(String, u64)>, Fail> {
    let one = |m: &Message| {
        let name = m.string(nl::stat::NAME).ok_or(Fail::TooOld)?;
        Ok((name, need(m, nl::stat::VALUE)?))
    };
    messages.iter().map(one).collect()
}
/// The sockets in a record of `ss`.
#[cfg(test)]
pub(crate) fn recorded_sockets(text: &str) -> Vec<Socket> {
    let messages = crate::netlink::recorded(text);
    let sockets = messages.iter().map(Socket::try_from);
    sockets.collect::<Result<_, _>>().expect("sockets")
}
