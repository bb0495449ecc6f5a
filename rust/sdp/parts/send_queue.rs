// SPDX-License-Identifier: GPL-2.0

//! The bytes that a connection has to send, and the state of the peer's receives.

use kernel::time::Jiffies;

use super::glance::Seen;
use crate::bindings;
use crate::proto::resize::PeerReceives;
use crate::proto::urgent::UrgentSend;

/// A partial message that the program holds back, by TCP_CORK or MSG_MORE.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(in crate::sdp) enum HeldBack {
    Nothing,
    /// The timer runs.
    Timed,
    /// The message is due although the program holds it back: the time is over, or the program has
    /// set TCP_NODELAY.
    TooLong,
}

/// Bytes to send, and the messages that follow them.
pub(crate) struct SendQueue {
    /// Bytes of the program that are not yet in a message.
    pub(in crate::sdp) queue: Seen,
    /// The position of the urgent byte among them.
    pub(in crate::sdp) urgent: UrgentSend,
    /// The last send had MSG_MORE.
    pub(in crate::sdp) more: bool,
    pub(in crate::sdp) held_back: HeldBack,
    /// The next message waits for credits or for a place in the adapter's send queue.
    pub(in crate::sdp) stalled: bool,
    /// DisConn waits to be sent, after the data.
    pub(in crate::sdp) disconn_due: bool,
    /// A message of the peer must be acknowledged, by an empty message if no other comes.
    pub(in crate::sdp) answer_due: bool,
    /// The number of the last message that the peer must have before the end: DisConn, or an
    /// answer.
    pub(in crate::sdp) last_needed: Option<u32>,
    /// The number of the last message that was not full, while it is in flight.
    pub(in crate::sdp) small_in_flight: Option<u32>,
    pub(in crate::sdp) peer_receives: PeerReceives,
    /// When the peer was last asked for larger receives, in jiffies.
    pub(in crate::sdp) asked_at: Jiffies,
}

impl SendQueue {
    pub(in crate::sdp) const fn new() -> Self {
        Self {
            queue: Seen::new(),
            urgent: UrgentSend::new(),
            more: false,
            held_back: HeldBack::Nothing,
            stalled: false,
            disconn_due: false,
            answer_due: false,
            last_needed: None,
            small_in_flight: None,
            peer_receives: PeerReceives::new(0),
            asked_at: 0,
        }
    }

    /// The size of a segment in the terms of TCP: that of one receive of the peer. Before the first
    /// connection, as with TCP, the size that every host accepts.
    pub(in crate::sdp) fn segment_bytes(&self) -> u32 {
        match self.peer_receives.bytes() {
            0 => bindings::TCP_MSS_DEFAULT,
            bytes => bytes,
        }
    }

    /// Ends the time for which a program may hold a partial message back; returns whether the
    /// program held one back.
    pub(in crate::sdp) fn end_hold(&mut self) -> bool {
        let held = self.held_back == HeldBack::Timed;
        if held {
            self.held_back = HeldBack::TooLong;
        }
        held
    }
}
