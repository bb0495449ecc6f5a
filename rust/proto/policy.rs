// SPDX-License-Identifier: GPL-2.0

//! When to send, as pure functions: the combination of small sends, the division of the stream into
//! messages, and the work requests that report their completion.

use super::bsdh::BSDH_LEN_U32;

/// Bytes of payload in the next message of a stream with `waiting_bytes` left, to a peer whose
/// receives take `peer_bytes`.
///
/// If more bytes follow than one message takes, a long message leaves room for its header in the
/// receive's size: then it fills its packets, whereas a header and 2^n bytes need an additional
/// packet for the last few bytes. Soft-RoCE and hardware adapters have costs per packet.
pub const fn message_bytes(waiting_bytes: u32, peer_bytes: u32) -> u32 {
    if waiting_bytes <= peer_bytes {
        peer_bytes
    } else {
        full_message_bytes(peer_bytes)
    }
}

/// Bytes of payload in a message that more bytes follow, to a peer whose receives take
/// `peer_bytes`.
pub const fn full_message_bytes(peer_bytes: u32) -> u32 {
    if peer_bytes < LONG_BYTES {
        peer_bytes
    } else {
        peer_bytes.saturating_sub(BSDH_LEN_U32)
    }
}

/// From this length on, a shorter last packet matters little: two of the largest packets.
const LONG_BYTES: u32 = 8192;

/// The last message of a socket's send queue, still open for more bytes.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Tail {
    /// Bytes waiting in it.
    pub waiting_bytes: u32,
    /// Bytes of a full message ([`full_message_bytes`]).
    pub full_bytes: u32,
    /// Whether a message that was not full was sent and is not yet acknowledged.
    pub small_in_flight: bool,
    /// TCP_NODELAY is set.
    pub nodelay: bool,
    /// TCP_CORK is set.
    pub cork: bool,
    /// The send that filled it had MSG_MORE.
    pub more: bool,
    /// TCP_CORK or MSG_MORE must not hold it back any more: the longest time is over, or the
    /// program has set TCP_NODELAY.
    pub held_too_long: bool,
    /// One of its bytes is urgent.
    pub urgent: bool,
    /// The send buffer takes more bytes.
    pub may_grow: bool,
    /// A send waits for room in the send buffer, and a completion will make room.
    pub gets_more: bool,
    /// A message without its bytes follows it: DisConn, or an advert.
    pub last: bool,
}

/// Whether the open message must be closed and sent now.
///
/// The rules are those of TCP, with Minshall's variant of Nagle's algorithm: a full message is sent
/// at once; TCP_CORK and MSG_MORE hold a partial message back, even with TCP_NODELAY; with
/// TCP_NODELAY a partial message is sent at once; otherwise only one partial message is in flight
/// at a time. TCP_CORK and MSG_MORE hold nothing back for too long, nor in a full send buffer,
/// which takes no more bytes.
///
/// If a send waits for room, its next bytes join the message after the completion that makes room.
/// None of these rules holds back an urgent byte, or bytes that no more bytes can join.
pub const fn push_now(tail: Tail) -> bool {
    let held = (tail.cork || tail.more) && tail.may_grow && !tail.held_too_long;
    if tail.waiting_bytes == 0 {
        false
    } else if tail.urgent || tail.last || tail.waiting_bytes >= tail.full_bytes {
        true
    } else if held || tail.gets_more {
        false
    } else {
        tail.nodelay || !tail.small_in_flight
    }
}

/// Whether the work request about to be posted must report its completion.
///
/// `unsignaled` is the number of requests posted since the last one that reports its completion,
/// without this one; `queue_depth` is the depth of the send queue, which follows from the adapters.
/// A slot is freed only when a later completion was seen: so at least one request of each quarter of
/// the queue reports its completion, and so does the last request before the queue becomes idle.
/// Otherwise slots, send buffers and a lingering close would wait for ever.
pub const fn signal_now(unsignaled: u32, queue_depth: u32, last_before_idle: bool) -> bool {
    last_before_idle || unsignaled.saturating_add(1) >= queue_depth / 4
}

/// Whether missing receives are not posted yet, because more will soon be missing: an adapter is
/// told of several receives as fast as of one. `posted` of the `target` receives are posted.
///
/// At most a quarter of the target is missing, so that the peer seldom runs out of credits. The
/// smallest number of receives that a connection needs is always posted at once.
pub const fn post_later(posted: u32, target: u32) -> bool {
    let missing = target.saturating_sub(posted);
    missing > 0 && missing < target.saturating_add(1) / 4
}
