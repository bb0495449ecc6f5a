// SPDX-License-Identifier: GPL-2.0

//! What the worker of a deferred child does (TCP_DEFER_ACCEPT): the child's way from its establishment to
//! its listener's queue, or to its end.
//!
//! Only the child's worker moves it. Whoever else finds that the child is due asks the worker; whoever
//! closes the listener takes all of its children at once, and the worker finds none any more.

use kernel::prelude::*;
use kernel::sync::aref::ARef;

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

/// For how long a listener defers connections, now.
fn wanted_by(parent: &SdpSock) -> Timeouts {
    parent.lock().conn().options.defer_accept
}

impl Worker<'_> {
    /// Defers a child that has come up, if its listener wishes so and its peer has sent nothing yet.
    ///
    /// # Errors
    ///
    /// `ECONNRESET` if the listener was closed, or the child has lost its place, meanwhile.
    pub(super) fn defer(&self, parent: &SdpSock, child: &ARef<SdpSock>) -> Result<bool> {
        if wanted_by(parent) == Timeouts::NONE {
            return Ok(false);
        }
        {
            // What comes from here on ends it.
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

    /// The time of a deferred child is over, or a part of it; or it is due, and has no place yet.
    pub(super) fn deferral_timed_out(&self) {
        // Without the child's lock.
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

    /// A deferred child is due: into the listener's queue with it, if that has a place. Else the worker comes
    /// here again when there is one, or when half-open connections must give theirs up: peers that ask for
    /// nothing more would keep the child waiting until the time of their handshake is over.
    pub(super) fn push_deferred(&self) {
        // Before: once it is in the queue, a program may have it, and close it, at any time.
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
            Err(e) if e == ENOMEM => self.sock.abandon(e),
            // Who has closed the listener ends the child.
            Err(_) => {}
        }
    }

    /// The connection of a child has ended, and all was given back. If it is deferred, it has been for
    /// nothing, and leaves its listener; but as with TCP, one that has sent something is there for accept().
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
        // There was no byte, or no place: a request of TCP ends then, too.
        if let Some(parent) = parent {
            self.cm.child = accept_queue::take_deferred(&parent, self.sock);
        }
    }
}
