// SPDX-License-Identifier: GPL-2.0

//! The worker's part of the deferral of a child (TCP_DEFER_ACCEPT), from the child's establishment
//! to the listener's queue, or to the child's end.
//!
//! Only the child's worker moves the child. Other code that finds that the child is due asks the
//! worker. A thread that closes the listener takes all its children at once, and their workers then
//! find no child to move.

use kernel::prelude::*;
use kernel::sync::aref::ARef;

use super::close;
use super::worker::Worker;
use crate::proto::deferral::Timeouts;
use crate::sdp::conn::accept_queue::{
    self,
    Place,
    OLD_MS, //
};
use crate::sdp::conn::deferral::Deferral;
use crate::sdp::conn::sock::{
    Alarm,
    SdpSock, //
};

/// How long a listener currently defers connections.
fn wanted_by(parent: &SdpSock) -> Timeouts {
    parent.lock().conn().options.defer_accept
}

impl Worker<'_> {
    /// Defers a child that is up, if its listener defers connections and its peer has sent nothing
    /// yet.
    ///
    /// # Errors
    ///
    /// `ECONNRESET` if the listener was closed, or the child has lost its place, meanwhile.
    pub(super) fn defer(&self, parent: &SdpSock, child: &ARef<SdpSock>) -> Result<bool> {
        if wanted_by(parent) == Timeouts::NONE {
            return Ok(false);
        }
        {
            // Bytes that arrive from here on end the deferral.
            let mut guard = self.sock.lock();
            if guard.has_first() {
                return Ok(false);
            }
            guard.conn().lifetime.deferral = Some(Deferral::default());
        }
        let result = accept_queue::defer(parent, child.clone());
        if let Ok(true) = result {
            self.start_deferral_timer(Timeouts::NONE);
        } else {
            self.sock.lock().conn().lifetime.deferral = None;
        }
        result
    }

    fn start_deferral_timer(&self, passed: Timeouts) {
        self.sock.start_timer(
            Alarm::Timeout,
            passed.seconds_to_next().unsigned_abs() * 1000,
        );
    }

    /// Called when the timer of a deferred child has expired: a time-out has passed, or the child
    /// is due and still has no place.
    pub(super) fn deferral_timed_out(&self) {
        // wanted_by() takes the listener's lock, so the child's lock must be free.
        let parent = self.sock.lock().conn().lifetime.parent.clone();
        let Some(wanted) = parent.map(|parent| wanted_by(&parent)) else {
            return;
        };
        let mut guard = self.sock.lock();
        let Some(deferral) = &mut guard.conn().lifetime.deferral else {
            return;
        };
        if !deferral.is_due {
            deferral.passed = deferral.passed.next();
            if deferral.passed < wanted {
                return self.start_deferral_timer(deferral.passed);
            }
        }
        drop(guard);
        self.push_deferred();
    }

    /// Moves a child that is due into the listener's queue, if there is a place. Otherwise the
    /// worker tries again when there is one, or when half-open connections may lose theirs: without
    /// the second attempt, peers that are silent would keep the child waiting until their
    /// handshakes time out.
    pub(super) fn push_deferred(&self) {
        // Taken before: once the child is in the queue, a program may accept and close it at any
        // time.
        let (deferral, parent) = {
            let mut guard = self.sock.lock();
            let lifetime = &mut guard.conn().lifetime;
            if lifetime.deferral.is_none() {
                return;
            }
            (lifetime.deferral.take(), lifetime.parent.take())
        };
        self.sock.stop_timer(Alarm::Timeout);
        let Some(parent) = parent else { return };
        match accept_queue::push_deferred(&parent, self.sock) {
            Ok(Place::Given) => {}
            Ok(Place::Later) => {
                let mut guard = self.sock.lock();
                let lifetime = &mut guard.conn().lifetime;
                lifetime.parent = Some(parent);
                lifetime.deferral = deferral.map(|deferral| Deferral {
                    is_due: true,
                    ..deferral
                });
                self.sock.start_timer(Alarm::Timeout, OLD_MS);
            }
            Err(e) if e == ENOMEM => close::abandon(self.sock, e),
            // The thread that has closed the listener ends the child.
            Err(_) => {}
        }
    }

    /// Called when the connection of a child has ended, and everything was released. A deferred
    /// child is removed from its listener; but as with TCP, accept() still gets a child whose peer
    /// has sent something.
    pub(super) fn end_deferral(&mut self) {
        let mut guard = self.sock.lock();
        if guard.conn().lifetime.deferral.is_none() {
            return;
        }
        let has_first = guard.has_first();
        drop(guard);
        if has_first {
            self.push_deferred();
        }
        let parent = {
            let mut guard = self.sock.lock();
            let lifetime = &mut guard.conn().lifetime;
            if lifetime.deferral.take().is_none() {
                return;
            }
            lifetime.parent.clone()
        };
        // There was no byte, or no place: TCP also drops its request in these cases.
        if let Some(parent) = parent {
            self.cm.child = accept_queue::take_deferred(&parent, self.sock);
        }
    }
}
