// SPDX-License-Identifier: GPL-2.0
//! Events with a time.

use std::time::{Duration, Instant};

use super::Address;
use crate::abi::queue::Status;

/// The response to a Read: bytes on their way from the responder's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) id: u64,
    pub(super) requester: Address,
    pub(super) number: u64,
    pub(super) responder: Address,
    pub(super) offset: u64,
    pub(super) total: u64,
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Happening {
    /// A piece of a Send or a Write arrives.
    Piece {
        from: Address,
        number: u64,
        offset: u64,
        len: u64,
    },
    /// A Read or an atomic operation arrives.
    Request { from: Address, number: u64 },
    /// A datagram arrives.
    Datagram { from: Address, number: u64 },
    /// The responder starts to respond to a Read.
    Answer { answer: Answer },
    /// A piece of a Read response arrives.
    Data { answer: Answer, len: u64 },
    /// The result of an atomic operation arrives.
    Result {
        to: Address,
        number: u64,
        value: u64,
    },
    /// The peer acknowledges all messages up to this number.
    Ack { to: Address, number: u64 },
    /// The peer had no receive.
    NotReady {
        to: Address,
        number: u64,
        offset: u64,
        delay: Duration,
    },
    /// The peer has refused a request.
    Refused {
        to: Address,
        number: u64,
        status: Status,
    },
    /// A queue pair may send again.
    Wake { who: Address },
    /// A check whether the peer has answered.
    Watch { who: Address },
}

impl Happening {
    /// The queue pair that the event belongs to; without it the event is void.
    pub(super) fn concerns(&self) -> Address {
        match *self {
            Self::Piece { from, .. } | Self::Request { from, .. } | Self::Datagram { from, .. } => {
                from
            }
            Self::Answer { answer } | Self::Data { answer, .. } => answer.requester,
            Self::Result { to, .. }
            | Self::Ack { to, .. }
            | Self::NotReady { to, .. }
            | Self::Refused { to, .. } => to,
            Self::Wake { who } | Self::Watch { who } => who,
        }
    }
}

pub(super) struct Timed {
    pub(super) at: Instant,
    pub(super) order: u64,
    pub(super) what: Happening,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}
