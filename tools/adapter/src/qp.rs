// SPDX-License-Identifier: GPL-2.0
//! Queue pairs: kinds, states and attributes. [`crate::switch`] runs them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::abi::command::{attr, QpAttrs};
use crate::abi::shared::limit;
use crate::error::{Error, Refused};
use crate::request::{Progress, Recv, Send};
use crate::ring::Ring;

/// Kinds of queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The connection manager's queue pair, number 1.
    Gsi,
    /// Reliable connection.
    Rc,
    /// Unreliable datagram.
    Ud,
}

impl Kind {
    /// From the driver's value.
    pub fn new(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Gsi),
            2 => Some(Self::Rc),
            4 => Some(Self::Ud),
            _ => None,
        }
    }
}

/// States of a queue pair, with the driver's values.
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
    /// Send queue drained: sends no new requests.
    Sqd,
    /// Send queue error: a send of a queue pair without a connection failed.
    Sqe,
    /// All requests end with an error.
    Err,
}

impl State {
    /// From the driver's value.
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

    /// Whether the guest may change the state to `next`.
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

    /// Whether the queue pair accepts messages of the peer.
    pub fn receives(self) -> bool {
        (Self::Rtr..=Self::Sqe).contains(&self)
    }
}

/// A send request that has not completed.
pub struct Pending {
    /// The request.
    pub send: Arc<Send>,
    /// Its progress.
    pub progress: Progress,
    /// The message's sequence number; for a local request, that of the next message.
    pub message: u64,
    /// The ring's consumer number after the request.
    pub frees: u32,
    /// For a Read: the id of the current response; earlier responses are ignored.
    pub answer: u64,
    /// For a Read: number of bytes received, from the first byte on.
    pub came: u64,
}

impl Pending {
    /// Whether the request is local: no message is sent to the peer.
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
    /// Requests that have not completed, in order.
    pub pending: VecDeque<Pending>,
    /// The number of the first of them since the queue pair was reset.
    pub first: u64,
    /// How many of them have been sent.
    pub next: usize,
    /// The sequence number of the message after them.
    pub messages: u64,
    /// Bytes of the next request that have been sent.
    pub offset: u64,
    /// Reads and atomic operations among the sent requests.
    pub reads: u32,
    /// Remaining retries if the peer has no receive.
    pub rnr_left: u8,
    /// Remaining retries if the peer does not answer.
    pub retries_left: u8,
    /// Send nothing before this time: the peer had no receive.
    pub wait_until: Option<Instant>,
    /// The message and the offset in it that the peer expected at the last retry.
    pub had: Option<(u64, u64)>,
    /// Time of the last answer that completed a request, or of the first send.
    pub heard: Option<Instant>,
    /// Arrival time of the last request that is delayed on demand.
    pub arrives_at: Option<Instant>,
    /// Time of the peer's response to the last Read that is delayed on demand.
    pub answers_at: Option<Instant>,
    /// A piece from it or to it has been lost since the last retry.
    pub lost: bool,
    /// Whether a check for an answer is scheduled.
    pub watched: bool,
    /// Whether it is in the queue of its machine's link.
    pub queued: bool,
}

impl Requester {
    /// The request with this number.
    pub fn get(&self, number: u64) -> Option<&Pending> {
        self.pending.get(number.checked_sub(self.first)? as usize)
    }

    /// The request with this number.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Pending> {
        self.pending
            .get_mut(number.checked_sub(self.first)? as usize)
    }
}

/// The receiving half of a queue pair.
#[derive(Default)]
pub struct Responder {
    /// The sequence number of the next message.
    pub expected: u64,
    /// Bytes of it that have arrived.
    pub offset: u64,
    /// The receive that it is written to.
    pub receive: Option<Recv>,
    /// Results of the latest atomic operations, by sequence number.
    pub results: VecDeque<(u64, u64)>,
    /// Whether the driver has been told that the peer has sent a message.
    pub established: bool,
}

/// A queue pair.
pub struct Qp {
    /// Unique among all queue pairs of all machines.
    pub uid: u64,
    /// Kind.
    pub kind: Kind,
    /// Protection domain.
    pub pd: u32,
    /// Completion queue for sends.
    pub send_cq: u32,
    /// Completion queue for receives.
    pub recv_cq: u32,
    /// Shared receive queue.
    pub srq: Option<u32>,
    /// Whether each send reports completion.
    pub signal_all: bool,
    /// State.
    pub state: State,
    /// Attributes as set by the guest.
    pub attrs: QpAttrs,
    /// The ring of sends.
    pub sq: Ring,
    /// The ring of receives, if it does not use a shared receive queue.
    pub rq: Option<Ring>,
    /// Its rings are invalid and are no longer read.
    pub broken: bool,
    /// The sending half.
    pub requester: Requester,
    /// The receiving half.
    pub responder: Responder,
    /// Its counters.
    pub counters: Counters,
}

/// Counters of a queue pair, or sums for a machine.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Counters {
    /// Bytes transferred by requests of this end.
    pub bytes: u64,
    /// Send requests that have succeeded.
    pub sends: u64,
    /// Receives that have succeeded.
    pub receives: u64,
    /// Requests that have failed, except flushed ones.
    pub errors: u64,
    /// How often the peer had no receive.
    pub rnr: u64,
    /// How often requests were sent again.
    pub retries: u64,
}

impl Qp {
    /// Sets attributes, including the state.
    ///
    /// # Errors
    ///
    /// The transition is not allowed, or a value is out of range; nothing has changed.
    pub fn modify(&mut self, mask: u32, from: &QpAttrs) -> Result<State, Refused> {
        let next = if mask & attr::STATE != 0 {
            let next = State::new(from.state).filter(|next| self.state.may_become(*next));
            next.ok_or_else(|| {
                Error::Invalid.of(format_args!("state {} after {:?}", from.state, self.state))
            })?
        } else {
            self.state
        };
        for (bit, name, value, end) in [
            (attr::MIN_RNR_TIMER, "min_rnr_timer", from.min_rnr_timer, 32),
            (attr::TIMEOUT, "timeout", from.timeout, 32),
            (attr::RETRY_CNT, "retry_cnt", from.retry_cnt, 8),
            (attr::RNR_RETRY, "rnr_retry", from.rnr_retry, 8),
            (
                attr::MAX_RD_ATOMIC,
                "max_rd_atomic",
                from.max_rd_atomic,
                limit::READS + 1,
            ),
            (attr::AV, "sgid_index", from.path.sgid_index, limit::GIDS),
        ] {
            if mask & bit != 0 && u32::from(value) >= end {
                return Err(Error::Invalid.of(format_args!("{name} {value}")));
            }
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
        Ok(next)
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

    /// Time-out for an answer of the peer; `None`: no time-out. By the IB specification 4.096 us
    /// times two to the power of the attribute, plus some time because peers are processes on one
    /// host.
    pub fn patience(&self) -> Option<Duration> {
        (self.attrs.timeout > 0)
            .then(|| Duration::from_nanos(4096 << self.attrs.timeout) + Duration::from_millis(5))
    }

    /// How long a peer must wait after it found no receive, by the table of the IB specification.
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
