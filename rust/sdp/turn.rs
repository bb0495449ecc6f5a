// SPDX-License-Identifier: GPL-2.0

//! Turns: a call that faults pages in, or takes or gives back a program's memory, has given the lock
//! back, but its place in the stream not.
//!
//! Two sends of one socket do not mix because of a page that is missing, nor does one receive take
//! what another has left out: as with TCP, which holds the lock meanwhile. Unlike TCP, everybody
//! else gets the lock: the worker, completions, the other half.

use kernel::prelude::*;

use super::sock::{
    Locked,
    Owned, //
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

/// Whether a call of each half works without the lock, and for which connection of the socket.
#[derive(Copy, Clone, Default)]
pub(crate) struct Turns {
    sending: bool,
    receiving: bool,
    connection: u32,
}

/// The connection for which a call began.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) struct Connection(u32);

impl Turns {
    /// Those of the socket's next connection. Calls for this one may still be under way.
    pub(crate) fn next(self) -> Self {
        Self {
            connection: self.connection.wrapping_add(1),
            ..self
        }
    }

    /// A send reads the program's memory, a receive writes it.
    fn of(&mut self, access: Access) -> &mut bool {
        match access {
            Access::Read => &mut self.sending,
            Access::Write => &mut self.receiving,
        }
    }
}

impl Locked<'_> {
    /// The connection that the socket has now.
    pub(crate) fn connection(&mut self) -> Connection {
        Connection(self.stream().turns.connection)
    }

    /// Takes the turn, or gives it back, of a call that works without the lock.
    pub(super) fn set_turn(&mut self, access: Access, taken: bool) {
        *self.stream().turns.of(access) = taken;
        if !taken {
            self.sk().wake_waiters();
        }
    }
}

impl Owned<'_> {
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
        began: Connection,
        timeo: &mut Timeout,
    ) -> Result {
        loop {
            if self.connection() != began {
                return Err(EPIPE);
            }
            if !*self.stream().turns.of(access) {
                return Ok(());
            }
            let advertising = match access {
                Access::Read => self.glance.advertising.get(),
                Access::Write => self.stream().offering || self.reads_directly(),
            };
            if advertising && timeo.is_over() {
                if let Access::Read = access {
                    // SAFETY: The socket is open in a system call, so that it has a `struct socket`.
                    unsafe { bindings::set_nospace(self.sk().as_ptr().cast()) };
                }
                return Err(EAGAIN);
            }
            if signal_pending() {
                return Err(timeo.interrupted());
            }
            if advertising {
                self.wait(timeo);
            } else {
                self.wait(&mut Timeout::endless());
            }
        }
    }

    /// Does something in the middle of a call that gives the lock back, but not its turn.
    pub(super) fn in_turn<R>(&mut self, access: Access, work: impl FnOnce(&mut Self) -> R) -> R {
        self.set_turn(access, true);
        let result = work(self);
        self.set_turn(access, false);
        result
    }

    /// Faults in some of the next `len` bytes of `iter`, without the lock. The caller has awaited its
    /// turn.
    ///
    /// # Errors
    ///
    /// `EFAULT`; `EINTR` if the thread is being killed.
    pub(crate) fn fault_in<D: Direction>(&mut self, iter: &mut Iov<'_, D>, len: usize) -> Result {
        let result = self.in_turn(D::ACCESS, |locked| {
            locked.unlocked(|| user::fault_in(iter, len))
        });
        let counter = match result {
            Ok(()) => Counter::FaultedIn,
            Err(_) => Counter::UserFault,
        };
        self.stats.inc(counter);
        result
    }
}
