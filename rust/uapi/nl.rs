// SPDX-License-Identifier: GPL-2.0

//! The numbers of the netlink family, as in `Documentation/netlink/specs/ib-sdp.yaml`.
//!
//! A test of `tools/sdpctl` compares the two files. Numbers are only added at the end, and never
//! changed.

/// The family's name.
pub const FAMILY: &core::ffi::CStr = c"ib-sdp";
/// The multicast group of the events.
pub const EVENTS: &core::ffi::CStr = c"events";
/// Increases when commands or attributes are added.
pub const VERSION: u8 = 3;

/// The module, and the namespace of the requester.
pub const CMD_MODULE_GET: u8 = 1;
/// The sockets of the namespace.
pub const CMD_SOCK_GET: u8 = 2;
/// The counters of the namespace.
pub const CMD_STAT_GET: u8 = 3;
/// A connection was established.
pub const CMD_ESTABLISHED_NTF: u8 = 4;
/// A connection has ended after both sides had closed.
pub const CMD_CLOSED_NTF: u8 = 5;
/// A connection has failed, or was aborted.
pub const CMD_FAILED_NTF: u8 = 6;
/// The TCP connections that programs have made because SDP could not connect.
pub const CMD_TCP_GET: u8 = 7;

/// Attributes of the module.
pub mod module {
    /// The version of the protocol on the wire (`u8`).
    pub const PROTOCOL: u16 = 1;
    /// The features of the module ([`super::feature`], `u32`).
    pub const FEATURES: u16 = 2;
    /// The cookie of the network namespace (`uint`).
    pub const NETNS_COOKIE: u16 = 3;
    /// The time at which the namespace's counters began, in ns of CLOCK_BOOTTIME (`uint`).
    pub const COUNTERS_SINCE: u16 = 4;
}

/// Features that both sides of a connection can agree on, as bits.
pub mod feature {
    /// Bytes of adverts and bytes in messages keep their order.
    pub const ORDERED: u32 = 1 << 0;
    /// The peer invalidates keys.
    pub const REMOTE_INVALIDATE: u32 = 1 << 1;
    /// Sink adverts.
    pub const SINK: u32 = 1 << 2;
    /// Source adverts.
    pub const SOURCE: u32 = 1 << 3;
    /// Receives can become smaller again.
    pub const SHRINK: u32 = 1 << 4;
}

/// Attributes of a socket, of a request for sockets and of an event.
pub mod sock {
    /// `AF_INET` or `AF_INET6` (`u16`).
    pub const FAMILY: u16 = 1;
    /// [`super::STATES`] (`u8`).
    pub const STATE: u16 = 2;
    /// The local address, 4 or 16 bytes.
    pub const LOCAL_ADDR: u16 = 3;
    /// The local port (`u16`; all numbers are in host byte order).
    pub const LOCAL_PORT: u16 = 4;
    /// The peer's address, 4 or 16 bytes.
    pub const PEER_ADDR: u16 = 5;
    /// The peer's port (`u16`).
    pub const PEER_PORT: u16 = 6;
    /// The interface that the socket is bound to (`u32`).
    pub const INTERFACE: u16 = 7;
    /// Bytes sent that the peer has not taken; of a listener, the maximum number of waiting
    /// connections (`u32`).
    pub const TX_QUEUE: u16 = 8;
    /// Bytes received that were not read; of a listener, the number of waiting connections (`u32`).
    pub const RX_QUEUE: u16 = 9;
    /// The owner, as a number in the requester's user namespace (`u32`).
    pub const UID: u16 = 10;
    /// The inode of the socket, 0 for none (`uint`).
    pub const INODE: u16 = 11;
    /// The cookie of the network namespace (`uint`).
    pub const NETNS_COOKIE: u16 = 12;
    /// Messages that the peer has room for (`u32`).
    pub const CREDITS: u16 = 13;
    /// Receives that are posted (`u32`).
    pub const RECEIVES_POSTED: u16 = 14;
    /// Bytes of payload that a receive takes (`u32`).
    pub const RECEIVE_BYTES: u16 = 15;
    /// Bytes of payload that a receive of the peer takes (`u32`).
    pub const PEER_RECEIVE_BYTES: u16 = 16;
    /// Messages that the adapter has not yet sent (`u32`).
    pub const SENDS_POSTED: u16 = 17;
    /// The features that both sides agreed on ([`super::feature`], `u32`).
    pub const FEATURES: u16 = 18;
    /// The path of sends ([`super::MODES`], `u8`).
    pub const MODE: u16 = 19;
    /// The smallest send without a copy in bytes (`u32`).
    pub const ZCOPY_THRESHOLD: u16 = 20;
    /// [`super::option`]; in an event, at most the bit `TCP_FALLBACK` (`u32`).
    pub const OPTIONS: u16 = 21;
    /// The size of the send buffer in bytes (`u32`).
    pub const SEND_BUFFER: u16 = 22;
    /// The size of the receive buffer in bytes (`u32`).
    pub const RECEIVE_BUFFER: u16 = 23;
    /// Bytes of memory that are charged for sends (`u32`).
    pub const SEND_MEMORY: u16 = 24;
    /// Bytes of memory that are charged for receives (`u32`).
    pub const RECEIVE_MEMORY: u16 = 25;
    /// The time without data before a keepalive probe, in seconds (`u32`).
    pub const KEEPALIVE_IDLE: u16 = 26;
    /// The time to wait for each answer to a keepalive probe, in seconds (`u32`).
    pub const KEEPALIVE_INTERVAL: u16 = 27;
    /// The number of waits for an answer that ends a connection (`u32`).
    pub const KEEPALIVE_COUNT: u16 = 28;
    /// The time for which a peer may take no data in ms, 0 for no limit (`u32`).
    pub const USER_TIMEOUT: u16 = 29;
    /// In a request: only sockets in these states, by bit (`u32`).
    pub const STATES: u16 = 30;
    /// In a request: the length of the local address's prefix that is compared, in bits (`u8`).
    pub const LOCAL_PREFIX: u16 = 31;
    /// In a request: the length of the peer address's prefix that is compared, in bits (`u8`).
    pub const PEER_PREFIX: u16 = 32;
    /// In an event: the error that the program sees, as a positive errno; of a socket that has
    /// become a TCP socket: why SDP could not connect (`u32`).
    pub const ERROR: u16 = 33;
    /// In an event: the reason for the end of the connection (`string`).
    pub const CAUSE: u16 = 34;
    /// The number of the socket, which is never reused on the machine (SO_COOKIE, `uint`).
    pub const COOKIE: u16 = 35;
    /// A counter of the connection that is not 0, with the attributes of [`super::stat`]; there may
    /// be several (nest).
    pub const COUNTER: u16 = 36;
    /// In an event: the reason that the peer gave for refusing the connection, if any (`string`).
    pub const REFUSAL: u16 = 37;
    /// Of a connection: figures of the transfer, with the attributes of [`super::pace`] (nest).
    pub const PACE: u16 = 38;
}

/// Figures of a connection's transfer. Attributes that are 0 are left out.
pub mod pace {
    /// The smoothed round-trip time in us (`u32`).
    pub const RTT: u16 = 1;
    /// The mean deviation of the round-trip time in us (`u32`).
    pub const RTT_VAR: u16 = 2;
    /// The smallest round-trip time in us (`u32`).
    pub const MIN_RTT: u16 = 3;
    /// Bytes that the peer received per second, by the last sample (`uint`).
    pub const DELIVERY_RATE: u16 = 4;
    /// Bytes sent (`uint`).
    pub const BYTES_SENT: u16 = 5;
    /// Bytes sent that have reached the peer (`uint`).
    pub const BYTES_ACKED: u16 = 6;
    /// Bytes received (`uint`).
    pub const BYTES_RECEIVED: u16 = 7;
    /// Messages that the peer has not acknowledged (`u32`).
    pub const UNACKED: u16 = 8;
    /// Bytes that wait to be sent (`u32`).
    pub const NOTSENT_BYTES: u16 = 9;
    /// The time for which some bytes had not yet reached the peer, in us (`uint`).
    pub const BUSY: u16 = 10;
    /// The part of the time `BUSY` for which the peer had no room, in us (`uint`).
    pub const PEER_LIMITED: u16 = 11;
    /// The part of the time `BUSY` for which the send buffer was full, in us (`uint`).
    pub const BUFFER_LIMITED: u16 = 12;
    /// The time since payload was last sent, in ms (`u32`).
    pub const LAST_SENT: u16 = 13;
    /// The time since bytes of the stream were last received, in ms (`u32`).
    pub const LAST_RECEIVED: u16 = 14;
    /// The time since anything was last received, in ms (`u32`).
    pub const LAST_HEARD: u16 = 15;
}

/// The states, by number.
pub const STATES: [&str; 13] = [
    "Closed",
    "Listen",
    "Resolving",
    "HelloSent",
    "HelloReceived",
    "Established",
    "FinWait1",
    "FinWait2",
    "CloseWait",
    "LastAck",
    "Closing",
    "Draining",
    "Dead",
];

/// The paths of sends, by number (SDP_ZCOPY_MODE).
pub const MODES: [&str; 5] = ["auto", "copy", "sync", "async", "sink"];

/// Options that a program has set, as bits.
pub mod option {
    /// TCP_NODELAY.
    pub const NODELAY: u32 = 1 << 0;
    /// TCP_CORK.
    pub const CORK: u32 = 1 << 1;
    /// SO_KEEPALIVE.
    pub const KEEPALIVE: u32 = 1 << 2;
    /// SO_REUSEADDR.
    pub const REUSEADDR: u32 = 1 << 3;
    /// SO_REUSEPORT.
    pub const REUSEPORT: u32 = 1 << 4;
    /// IPV6_V6ONLY.
    pub const V6ONLY: u32 = 1 << 5;
    /// SDP_FAULT_POLICY 1: writes wait for a send that still needs the memory.
    pub const FAULT_WAITS: u32 = 1 << 6;
    /// SDP_LISTEN_TCP: the listener also accepts TCP connections.
    pub const LISTEN_TCP: u32 = 1 << 7;
    /// The socket has become a TCP socket, because SDP could not connect.
    pub const TCP_FALLBACK: u32 = 1 << 8;
}

/// Attributes of a counter.
pub mod stat {
    /// The name, as in `/proc/net/sdpstats` (`string`).
    pub const NAME: u16 = 1;
    /// The value (`uint`).
    pub const VALUE: u16 = 2;
}
