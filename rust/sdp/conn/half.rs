// SPDX-License-Identifier: GPL-2.0

//! Turns: a call that faults pages in, or takes or gives back a program's memory, has given the lock
//! back, but its place in the stream not.
//!
//! Each half of the stream has a state, [`Half`], which says whether a call has it and for how long that may
//! last.
//!
//! Two sends of one socket do not mix because of a page that is missing, nor does one receive take
//! what another has left out: as with TCP, which holds the lock meanwhile. Unlike TCP, everybody
//! else gets the lock: the worker, completions, the other half.

use kernel::prelude::*;

use super::guard::{
    SockGuard,
    SockOwner, //
};
use crate::bindings;
use crate::kern::iov::{
    Access,
    Direction,
    Iov, //
};
use crate::kern::signal::signal_pending;
use crate::kern::time::Timeout;
use crate::mm::user;
use crate::stats::counters::Counter;

/// Who has a half of the stream: a call keeps it while it works, or waits, without the lock.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Half {
    /// No call has it.
    Free,
    /// A call faults pages in, or takes or gives back a program's memory.
    Working,
    /// A send has adverts out or Writes in flight, or a receive advertises its buffer.
    AwaitingPeer,
    /// A send waits for room for an advert.
    AwaitingRoom,
}

impl Half {
    /// Whether a call has it for as long as the peer likes.
    fn is_up_to_peer(self) -> bool {
        matches!(self, Self::AwaitingPeer | Self::AwaitingRoom)
    }

    /// For the socket's next connection: the call still has it, but nothing of the peer's to wait for.
    fn of_former(self) -> Self {
        match self {
            Self::Free => Self::Free,
            _ => Self::Working,
        }
    }
}

/// The halves of the stream, and the connection of the socket for which they are.
#[derive(Copy, Clone)]
pub(crate) struct Halves {
    sending: Half,
    receiving: Half,
    /// Sends that wait for memory; they leave the half to others.
    pub(in crate::sdp) memory_waiters: u32,
    generation: u32,
}

/// Which of a socket's connections, one after the other, a call began for.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl Halves {
    pub(in crate::sdp) const fn new() -> Self {
        Self {
            sending: Half::Free,
            receiving: Half::Free,
            memory_waiters: 0,
            generation: 0,
        }
    }

    /// Those of the socket's next connection. Calls for this one may still be under way.
    pub(in crate::sdp) fn next(self) -> Self {
        Self {
            sending: self.sending.of_former(),
            receiving: self.receiving.of_former(),
            memory_waiters: 0,
            generation: self.generation.wrapping_add(1),
        }
    }

    /// A send reads the program's memory, a receive writes it.
    fn of(&mut self, access: Access) -> &mut Half {
        match access {
            Access::Read => &mut self.sending,
            Access::Write => &mut self.receiving,
        }
    }

    /// Of the connection that the socket has now.
    pub(in crate::sdp) fn generation(&self) -> Generation {
        Generation(self.generation)
    }

    /// Whether a send has the half for as long as the peer likes.
    pub(in crate::sdp) fn sender_waits_for_peer(&self) -> bool {
        self.sending.is_up_to_peer()
    }

    /// Whether sends wait for memory, or for the peer to have room, and go on when they have it.
    pub(in crate::sdp) fn sender_waits_for_room(&self) -> bool {
        self.memory_waiters > 0 || self.sending == Half::AwaitingRoom
    }
}

impl SockGuard<'_> {
    /// Of the connection that the socket has now.
    pub(crate) fn generation(&mut self) -> Generation {
        self.conn().halves.generation()
    }

    fn set_half(&mut self, access: Access, half: Half) {
        *self.conn().halves.of(access) = half;
        if access == Access::Read {
            // For poll().
            self.glance.advertising.set(half.is_up_to_peer());
        }
    }
}

impl SockOwner<'_> {
    /// Waits while another call of the same half faults pages in, gives memory back, has adverts out,
    /// or waits for room for one. The last two last as long as the peer likes: so only as long as
    /// `timeo` allows.
    ///
    /// # Errors
    ///
    /// `EINTR` (or a restart, if there is no time limit `timeo`), `EAGAIN`. `EPIPE` if the socket was
    /// disconnected since the call began, as with TCP: what it has for this connection is not for
    /// the next.
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
            let up_to_peer =
                half.is_up_to_peer() || (access == Access::Write && self.reads_directly());
            if up_to_peer && timeo.is_over() {
                if let Access::Read = access {
                    // SAFETY: The socket is open in a system call, so that it has a `struct socket`.
                    unsafe { bindings::set_nospace(self.sk().as_ptr().cast()) };
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

    /// Does something in the middle of a call that gives the lock back, but not its half. The caller has
    /// awaited its turn, and has not given the lock back since.
    pub(in crate::sdp) fn in_turn<R>(
        &mut self,
        access: Access,
        work: impl FnOnce(&mut Self) -> R,
    ) -> R {
        self.keep(access, Half::Working, work)
    }

    /// As [`SockOwner::in_turn`]; `half` says how long it may last. The half is free afterwards, however
    /// `work` ends.
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
            // poll() has not called the socket writable.
            sk.wake_writer();
        }
        result
    }

    /// As [`SockOwner::wait`], of a sender that goes another way when its `patience` is over. Other sends
    /// wait for it, or are refused: their bytes do not come between its.
    pub(in crate::sdp) fn wait_for_room(&mut self, timeo: &mut Timeout, patience: &mut Timeout) {
        self.keep(Access::Read, Half::AwaitingRoom, |guard| {
            Timeout::wait_both(timeo, patience, |limit| guard.wait(limit));
        });
    }

    /// Faults in some of the next `len` bytes of `iter`, without the lock. The caller has awaited its
    /// turn.
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
