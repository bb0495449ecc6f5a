// SPDX-License-Identifier: GPL-2.0

//! Turns: a call that faults pages in, or takes or returns memory of a program, releases the lock,
//! but keeps its place in the stream.
//!
//! Each half of the stream has a state, [`Half`], which says whether a call has the half, and for
//! how long the call may keep it.
//!
//! So the bytes of two sends on one socket do not mix because of a missing page, and a receive does
//! not take bytes out of the middle of another receive. TCP achieves this by holding the lock
//! meanwhile. Here, the worker, completions, and the other half can take the lock.

use kernel::prelude::*;

use super::guard::{
    SockGuard,
    SockOwner, //
};
use crate::kern::iov::{
    Access,
    Direction,
    Iov, //
};
use crate::kern::signal::signal_pending;
use crate::kern::time::Timeout;
use crate::mm::user;
use crate::stats::counters::Counter;

/// The use of a half of the stream: a call keeps the half while it works or waits without the lock.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Half {
    /// No call has it.
    Free,
    /// A call faults pages in, or takes or returns memory of a program.
    Working,
    /// A call takes memory of its program: it may first wait for bytes of earlier receives into
    /// this memory, also of other connections.
    TakingMemory,
    /// A send has adverts out or Writes in flight; a receive advertises its buffer, or waits for
    /// Reads into it.
    AwaitingPeer,
    /// A send waits for room for an advert.
    AwaitingRoom,
}

impl Half {
    /// Whether a peer decides how long a call keeps the half.
    fn is_up_to_peer(self) -> bool {
        matches!(
            self,
            Self::TakingMemory | Self::AwaitingPeer | Self::AwaitingRoom
        )
    }

    /// The state for the socket's next connection: the call still has the half. It does not wait
    /// for the former peer any more, but a receive may still wait for the bytes of another
    /// connection.
    fn of_former(self, access: Access) -> Self {
        match (self, access) {
            (Self::Free, _) => Self::Free,
            (Self::TakingMemory | Self::AwaitingPeer, Access::Write) => Self::TakingMemory,
            _ => Self::Working,
        }
    }
}

/// The halves of the stream, and the number of the connection to which they belong.
#[derive(Copy, Clone)]
pub(crate) struct Halves {
    sending: Half,
    receiving: Half,
    /// A receive that must not wait was refused because another one had the half: when the half is
    /// free, pollers are told of the bytes that are left.
    reader_refused: bool,
    /// The number of sends that wait for memory. Such a send does not keep the half.
    pub(in crate::sdp) memory_waiters: u32,
    generation: u32,
}

/// Identifies the connection for which a call began, among the successive ones of a socket.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl Halves {
    pub(in crate::sdp) const fn new() -> Self {
        Self {
            sending: Half::Free,
            receiving: Half::Free,
            reader_refused: false,
            memory_waiters: 0,
            generation: 0,
        }
    }

    /// The halves of the socket's next connection. Calls for this connection may still be running.
    pub(in crate::sdp) fn next(self) -> Self {
        Self {
            sending: self.sending.of_former(Access::Read),
            receiving: self.receiving.of_former(Access::Write),
            reader_refused: self.reader_refused,
            memory_waiters: 0,
            generation: self.generation.wrapping_add(1),
        }
    }

    /// The half of calls with this access: a send reads the program's memory, a receive writes it.
    fn of(&mut self, access: Access) -> &mut Half {
        match access {
            Access::Read => &mut self.sending,
            Access::Write => &mut self.receiving,
        }
    }

    /// The generation of the socket's current connection.
    pub(in crate::sdp) fn generation(&self) -> Generation {
        Generation(self.generation)
    }

    /// Whether a send waits for the peer, which may itself wait until its bytes are received.
    pub(in crate::sdp) fn sender_waits_for_peer(&self) -> bool {
        matches!(self.sending, Half::AwaitingPeer | Half::AwaitingRoom)
    }

    /// Whether sends wait for memory or for room for an advert, and will continue when there is
    /// some.
    pub(in crate::sdp) fn sender_waits_for_room(&self) -> bool {
        self.memory_waiters > 0 || self.sending == Half::AwaitingRoom
    }
}

impl SockGuard<'_> {
    /// The generation of the socket's current connection.
    pub(crate) fn generation(&mut self) -> Generation {
        self.conn().halves.generation()
    }

    fn set_half(&mut self, access: Access, half: Half) {
        *self.conn().halves.of(access) = half;
        if access == Access::Read {
            // The flag is for poll().
            self.glance.advertising.set(half.is_up_to_peer());
        }
    }
}

impl SockOwner<'_> {
    /// Waits while another call has the half of calls with this access. If the peer decides how
    /// long the call keeps the half, waits only for as long as `timeo` allows.
    ///
    /// # Errors
    ///
    /// `EINTR` (or a restart, if `timeo` has no limit), `EAGAIN`. `EPIPE` if the socket was
    /// disconnected since the call began, as with TCP: its bytes for the former connection must not
    /// go to the next one.
    pub(crate) fn await_turn(
        &mut self,
        access: Access,
        began: Generation,
        timeo: &mut Timeout,
    ) -> Result {
        loop {
            if self.generation() != began {
                return Err(EPIPE);
            }
            let half = *self.conn().halves.of(access);
            if half == Half::Free {
                return Ok(());
            }
            let up_to_peer = half.is_up_to_peer();
            if up_to_peer && timeo.is_over() {
                match access {
                    Access::Read => self.sk().want_space(false),
                    Access::Write => self.conn().halves.reader_refused = true,
                }
                return Err(EAGAIN);
            }
            if signal_pending() {
                return Err(timeo.interrupted());
            }
            if up_to_peer {
                self.wait(timeo);
            } else {
                self.wait(&mut Timeout::endless());
            }
        }
    }

    /// Runs `work`, which may release the lock, and keeps the half meanwhile. The caller has waited
    /// for its turn, and has not released the lock since.
    pub(in crate::sdp) fn in_turn<R>(
        &mut self,
        access: Access,
        work: impl FnOnce(&mut Self) -> R,
    ) -> R {
        self.keep(access, Half::Working, work)
    }

    /// As [`SockOwner::in_turn`]; `half` says how long `work` may take. The half is free
    /// afterwards, whatever the result of `work`.
    pub(in crate::sdp) fn keep<R>(
        &mut self,
        access: Access,
        half: Half,
        work: impl FnOnce(&mut Self) -> R,
    ) -> R {
        kernel::warn_on!(*self.conn().halves.of(access) != Half::Free);
        self.set_half(access, half);
        let result = work(self);
        self.set_half(access, Half::Free);
        let sk = self.sk();
        sk.wake_waiters();
        if access == Access::Read && half.is_up_to_peer() {
            // Meanwhile poll() has not reported the socket as writable.
            sk.wake_writer();
        }
        let halves = &mut self.conn().halves;
        if access == Access::Write && core::mem::replace(&mut halves.reader_refused, false) {
            sk.wake_reader();
        }
        result
    }

    /// As [`SockOwner::wait`], for a sender that uses another path when its `patience` is over.
    /// Other sends wait or are refused meanwhile, so that their bytes do not come between those of
    /// this send.
    pub(in crate::sdp) fn wait_for_room(&mut self, timeo: &mut Timeout, patience: &mut Timeout) {
        self.keep(Access::Read, Half::AwaitingRoom, |guard| {
            Timeout::wait_both(timeo, patience, |limit| guard.wait(limit));
        });
    }

    /// Faults in some of the next `len` bytes of `iter`, without the lock. The caller has waited
    /// for its turn.
    ///
    /// # Errors
    ///
    /// `EFAULT`; `EINTR` if the thread is being killed.
    pub(crate) fn fault_in<D: Direction>(&mut self, iter: &mut Iov<'_, D>, len: usize) -> Result {
        let result = self.in_turn(D::ACCESS, |guard| {
            guard.unlocked(|| user::fault_in(iter, len))
        });
        let counter = match result {
            Ok(()) => Counter::FaultedIn,
            Err(_) => Counter::UserFault,
        };
        self.stats.inc(counter);
        result
    }
}
