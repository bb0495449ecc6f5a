// SPDX-License-Identifier: GPL-2.0

//! When to send, as pure functions: the combining of small sends, how the
//! stream is cut into messages, and which work requests report their completion.

use super::bsdh::BSDH_LEN_U32;

/// Bytes of payload in the next message of a stream that has `waiting_bytes`
/// more, to a peer whose receives take `peer_bytes`.
///
/// Where more follows than one message takes, a long message leaves room for
/// its header in the receive's size: it then fills its packets, while one with
/// a header and 2^n bytes has a packet more for its last few bytes. Soft-RoCE
/// and adapters alike spend their time by the packet.
pub const fn message_bytes(waiting_bytes: u32, peer_bytes: u32) -> u32 {
    if waiting_bytes <= peer_bytes || peer_bytes < LONG_BYTES {
        peer_bytes
    } else {
        peer_bytes.saturating_sub(BSDH_LEN_U32)
    }
}

/// A message of so many packets that a shorter last one matters little: two of
/// the largest packets.
const LONG_BYTES: u32 = 8192;

/// The last message of a socket's send queue, still open for more bytes.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Tail {
    /// Bytes waiting in it.
    pub waiting_bytes: u32,
    /// Bytes of a full message.
    pub full_bytes: u32,
    /// Whether a message that was not full has been sent and not yet been
    /// acknowledged.
    pub small_in_flight: bool,
    /// TCP_NODELAY is set.
    pub nodelay: bool,
    /// TCP_CORK is set.
    pub cork: bool,
    /// The send that filled it had MSG_MORE.
    pub more: bool,
    /// One of its bytes is urgent.
    pub urgent: bool,
}

/// Whether the open message must be closed and sent now.
///
/// The rules are those of TCP, with Minshall's variant of Nagle's: a full
/// message goes at once; TCP_CORK and MSG_MORE hold a partial one back, even
/// with TCP_NODELAY; with TCP_NODELAY a partial one goes at once; otherwise
/// only one partial message is in flight at a time. Nothing of this holds an urgent byte back.
pub const fn push_now(tail: Tail) -> bool {
    if tail.waiting_bytes == 0 {
        false
    } else if tail.urgent || tail.waiting_bytes >= tail.full_bytes {
        true
    } else if tail.cork || tail.more {
        false
    } else {
        tail.nodelay || !tail.small_in_flight
    }
}

/// Whether the work request about to be posted must report its completion.
///
/// `unsignaled` counts those posted since the last one that did, this one not
/// included; `queue_depth` is that of the send queue. A slot is free only when
/// a later completion was seen: so at least every quarter of the queue, and
/// always the last one before the queue goes idle, without which slots, send
/// buffers and a lingering close would wait for ever.
pub const fn signal_now(unsignaled: u32, queue_depth: u32, last_before_idle: bool) -> bool {
    last_before_idle || unsignaled.saturating_add(1) >= queue_depth / 4
}
