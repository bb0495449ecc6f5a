// SPDX-License-Identifier: GPL-2.0

//! Turns: a call that works or waits without the lock keeps its half of the stream
//! ([`crate::proto::half`]). TCP achieves the same by holding the lock meanwhile. Here, the worker,
//! completions, and the other half can take the lock.

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
use crate::proto::half::{
    Generation,
    Half,
    Side,
    Turn, //
};
use crate::stats::counters::Counter;

/// The half of calls with this access: a send reads the program's memory, a receive writes it.
const fn side(access: Access) -> Side {
    match access {
        Access::Read => Side::Sending,
        Access::Write => Side::Receiving,
    }
}

impl SockGuard<'_> {
    /// The generation of the socket's current connection.
    pub(crate) fn generation(&mut self) -> Generation {
        self.conn().halves.generation()
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
        let side = side(access);
        loop {
            let limited = match self.conn().halves.turn(side, began, timeo.is_over()) {
                Turn::Now => return Ok(()),
                Turn::Former => return Err(EPIPE),
                Turn::Refused => return Err(self.refused(side)),
                Turn::Wait => false,
                Turn::WaitLimited => true,
            };
            if signal_pending() {
                // A signal does not interrupt a call that must not wait, as with TCP.
                return Err(if timeo.is_over() {
                    self.conn().halves.refuse(side);
                    self.refused(side)
                } else {
                    timeo.interrupted()
                });
            }
            if limited {
                self.wait(timeo);
            } else {
                self.wait(&mut Timeout::endless());
            }
        }
    }

    /// The error of a call that must not wait for its turn.
    fn refused(&mut self, side: Side) -> Error {
        if side == Side::Sending {
            self.sk().want_space(true);
        }
        EAGAIN
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
        let side = side(access);
        let was_free = self.conn().halves.begin(side, half);
        kernel::warn_on!(!was_free);
        if side == Side::Sending {
            // The flag is for poll().
            self.glance.advertising.set(half.is_up_to_peer());
        }
        let result = work(self);
        let freed = self.conn().halves.end(side, half);
        if side == Side::Sending {
            self.glance.advertising.set(false);
        }
        let sk = self.sk();
        sk.wake_waiters();
        // io_uring reports the event of a wake-up without asking the socket. If there is no space, the
        // completion that makes some wakes.
        if freed.wake_writer && self.sock().has_space() {
            sk.wake_writer();
        }
        if freed.wake_reader {
            self.sock().wake_reader();
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

    /// Faults in the next `len` bytes of `iter`, or the first of them, without the lock. The caller
    /// has waited for its turn.
    ///
    /// # Errors
    ///
    /// `EFAULT` if some of the bytes are not accessible; `EINTR` if the thread is being killed.
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
