// SPDX-License-Identifier: GPL-2.0
//! Queue pairs: what they are, their states and attributes. What they do is in [`crate::switch`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::abi::command::{attr, QpAttrs};
use crate::abi::shared::limit;
use crate::request::{Progress, Recv, Send};
use crate::ring::Ring;

/// Kinds of queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The connection manager's, with the number 1.
    Gsi,
    /// With a reliable connection.
    Rc,
    /// For datagrams.
    Ud,
}

impl Kind {
    /// From the driver's number.
    pub fn new(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Gsi),
            2 => Some(Self::Rc),
            4 => Some(Self::Ud),
            _ => None,
        }
    }
}

/// States of a queue pair, with the driver's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum State {
    /// Nothing can be posted.
    Reset,
    /// Receives can be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Sends no new requests.
    Sqd,
    /// A send of a queue pair without connection failed.
    Sqe,
    /// All requests end with an error.
    Err,
}

impl State {
    /// From the driver's number.
    pub fn new(number: u32) -> Option<Self> {
        [
            Self::Reset,
            Self::Init,
            Self::Rtr,
            Self::Rts,
            Self::Sqd,
            Self::Sqe,
            Self::Err,
        ]
        .get(number as usize)
        .copied()
    }

    /// Whether the guest may change the state so.
    pub fn may_become(self, next: Self) -> bool {
        use State::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
        matches!(
            (self, next),
            (_, Reset | Err)
                | (Reset | Init, Init)
                | (Init, Rtr)
                | (Rtr | Rts | Sqd | Sqe, Rts)
                | (Rts | Sqd, Sqd)
        )
    }

    /// Whether messages of the peer are taken.
    pub fn receives(self) -> bool {
        (Self::Rtr..=Self::Sqe).contains(&self)
    }
}

/// A send request that has not ended.
pub struct Pending {
    /// The request.
    pub send: Arc<Send>,
    /// How far it is.
    pub progress: Progress,
    /// The message's number on the wire; of a request that does not concern the peer, the next one's.
    pub message: u64,
    /// The number in the ring that the request frees.
    pub frees: u32,
    /// Of a Read: which of the answers is the current one.
    pub answer: u64,
    /// Of a Read: bytes that have come, from the first one on.
    pub came: u64,
}

impl Pending {
    /// Whether it does not concern the peer.
    pub fn is_local(&self) -> bool {
        self.send.action.is_some_and(|action| action.is_local())
    }

    /// Whether the peer answers with data.
    pub fn is_read(&self) -> bool {
        self.send.action.is_some_and(|action| action.is_read())
    }
}

/// The sending half of a queue pair.
#[derive(Default)]
pub struct Requester {
    /// Requests that have not ended, in their order.
    pub pending: VecDeque<Pending>,
    /// The number of the first one since the queue pair was reset.
    pub first: u64,
    /// How many of them have been sent.
    pub next: usize,
    /// The number of the message after all of them.
    pub messages: u64,
    /// Bytes of the next one that have been sent.
    pub offset: u64,
    /// Reads and atomic operations among those.
    pub reads: u32,
    /// How many times a peer without a receive may be asked again.
    pub rnr_left: u8,
    /// How many times a peer that says nothing may be asked again.
    pub retries_left: u8,
    /// Nothing is sent until then: the peer had no receive.
    pub wait_until: Option<Instant>,
    /// The message, and bytes of it, that the peer was waiting for when requests were sent again.
    pub had: Option<(u64, u64)>,
    /// When the peer said something that ended a request, or the first one was sent.
    pub heard: Option<Instant>,
    /// When the last part of its requests arrives that is slow on demand.
    pub arrives_at: Option<Instant>,
    /// When the peer begins to answer the last one of its Reads that are slow on demand.
    pub answers_at: Option<Instant>,
    /// Something of it, or for it, was lost on the wire since it was sent again.
    pub lost: bool,
    /// Whether the clock looks after it.
    pub watched: bool,
    /// Whether it is in the queue of those that send.
    pub queued: bool,
}

impl Requester {
    /// The request with that number.
    pub fn get(&self, number: u64) -> Option<&Pending> {
        self.pending.get(number.checked_sub(self.first)? as usize)
    }

    /// The request with that number.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Pending> {
        self.pending
            .get_mut(number.checked_sub(self.first)? as usize)
    }
}

/// The receiving half of a queue pair.
#[derive(Default)]
pub struct Responder {
    /// The number of the message that comes next.
    pub expected: u64,
    /// Bytes of it that have come.
    pub offset: u64,
    /// The receive that it is written to.
    pub receive: Option<Recv>,
    /// Results of the last atomic operations, by their numbers.
    pub results: VecDeque<(u64, u64)>,
    /// Whether the driver knows that the peer has sent something.
    pub established: bool,
}

/// A queue pair.
pub struct Qp {
    /// No other queue pair of any machine has or had it.
    pub uid: u64,
    /// Kind.
    pub kind: Kind,
    /// Protection domain.
    pub pd: u32,
    /// Completion queue of sends.
    pub send_cq: u32,
    /// Completion queue of receives.
    pub recv_cq: u32,
    /// Shared receive queue.
    pub srq: Option<u32>,
    /// Whether each send makes a completion.
    pub signal_all: bool,
    /// State.
    pub state: State,
    /// Attributes, as the guest gave them.
    pub attrs: QpAttrs,
    /// The ring of sends.
    pub sq: Ring,
    /// The ring of receives, if there is no shared one.
    pub rq: Option<Ring>,
    /// Its rings make no sense: nothing is read from them any more.
    pub broken: bool,
    /// The sending half.
    pub requester: Requester,
    /// The receiving half.
    pub responder: Responder,
    /// What it has done.
    pub counters: Counters,
}

/// What a queue pair, or all of a machine, has done.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Counters {
    /// Bytes that were copied to the peer or from it, for requests of this end.
    pub bytes: u64,
    /// Send requests that have ended well.
    pub sends: u64,
    /// Receives that have ended well.
    pub receives: u64,
    /// Requests that have ended with an error, without those that were flushed.
    pub errors: u64,
    /// Times that the peer had no receive.
    pub rnr: u64,
    /// Times that requests were sent again.
    pub retries: u64,
}

impl Qp {
    /// Takes attributes from the guest and goes to the state that they name.
    ///
    /// `None`: that is not possible in this state, or a value is out of range; nothing has changed.
    pub fn modify(&mut self, mask: u32, from: &QpAttrs) -> Option<State> {
        let next = if mask & attr::STATE != 0 {
            State::new(from.state)?
        } else {
            self.state
        };
        if mask & attr::STATE != 0 && !self.state.may_become(next) {
            return None;
        }
        let in_range = (mask & attr::MIN_RNR_TIMER == 0 || from.min_rnr_timer < 32)
            && (mask & attr::TIMEOUT == 0 || from.timeout < 32)
            && (mask & attr::RETRY_CNT == 0 || from.retry_cnt < 8)
            && (mask & attr::RNR_RETRY == 0 || from.rnr_retry < 8)
            && (mask & attr::MAX_RD_ATOMIC == 0 || u32::from(from.max_rd_atomic) <= limit::READS)
            && (mask & attr::AV == 0 || u32::from(from.path.sgid_index) < limit::GIDS);
        if !in_range {
            return None;
        }
        macro_rules! take {
            ($($bit:ident $field:ident),*) => {
                $(if mask & attr::$bit != 0 { self.attrs.$field = from.$field; })*
            };
        }
        take!(
            ACCESS access, PKEY_INDEX pkey_index, PORT port, QKEY qkey, AV path, PATH_MTU path_mtu,
            TIMEOUT timeout, RETRY_CNT retry_cnt, RNR_RETRY rnr_retry, RQ_PSN rq_psn, SQ_PSN sq_psn,
            MAX_RD_ATOMIC max_rd_atomic, MAX_DEST_RD_ATOMIC max_dest_rd_atomic,
            MIN_RNR_TIMER min_rnr_timer, DEST_QPN dest_qpn
        );
        if next == State::Reset {
            self.reset();
        } else if self.state == State::Rtr && next == State::Rts {
            self.requester.rnr_left = self.attrs.rnr_retry;
            self.requester.retries_left = self.attrs.retry_cnt;
        }
        self.state = next;
        self.attrs.state = next as u32;
        self.attrs.current_state = next as u32;
        Some(next)
    }

    fn reset(&mut self) {
        self.requester = Requester::default();
        self.responder = Responder::default();
        self.sq.reset();
        if let Some(rq) = &mut self.rq {
            rq.reset();
        }
        self.broken = false;
    }

    /// How long the peer may say nothing; `None`: for ever. The IB specification's 4.096 us times two
    /// to the power of the attribute, and some more: peers here are processes that share a host.
    pub fn patience(&self) -> Option<Duration> {
        (self.attrs.timeout > 0)
            .then(|| Duration::from_nanos(4096 << self.attrs.timeout) + Duration::from_millis(5))
    }

    /// How long a peer must wait that found no receive here: the IB specification's table.
    pub fn rnr_delay(&self) -> Duration {
        // In units of 10 us.
        const TABLE: [u32; 32] = [
            65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
            1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
        ];
        Duration::from_micros(10) * TABLE[usize::from(self.attrs.min_rnr_timer) % TABLE.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_change_as_in_the_specification() {
        use State::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
        let all = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];
        let allowed = [
            (Reset, Init),
            (Init, Init),
            (Init, Rtr),
            (Rtr, Rts),
            (Rts, Rts),
            (Rts, Sqd),
            (Sqd, Sqd),
            (Sqd, Rts),
            (Sqe, Rts),
        ];
        for from in all {
            for to in all {
                let expected = to == Reset || to == Err || allowed.contains(&(from, to));
                assert_eq!(from.may_become(to), expected, "{from:?} {to:?}");
            }
        }
        for (number, state) in all.iter().enumerate() {
            assert_eq!(State::new(number as u32), Some(*state));
        }
        assert_eq!(State::new(7), None);
    }

    #[test]
    fn only_some_states_receive() {
        use State::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
        assert!([Rtr, Rts, Sqd, Sqe].iter().all(|s| s.receives()));
        assert!(![Reset, Init, Err].iter().any(|s| s.receives()));
    }
}
