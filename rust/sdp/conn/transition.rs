// SPDX-License-Identifier: GPL-2.0

//! The changes of the state of a connection.

use kernel::prelude::*;

use super::guard::SockGuard;
use super::sock::Want;
use crate::kern::errno::ECONNRESET;
use crate::proto::state::{
    Event,
    State, //
};
use crate::stats::counters::Counter;
use crate::{
    bindings,
    trace, //
};

/// Tells programs of new states of connections. The code that changes the state does not know how.
pub(crate) trait TellOfState {
    /// The state of the connection was `old` before `event`. `why` is the error of a connection that
    /// failed.
    fn tell_of_state(&mut self, old: State, event: Event, why: Option<Error>);
}

impl SockGuard<'_> {
    /// Moves the state on. An event that cannot happen is counted and changes nothing: `false`.
    pub(crate) fn transition(&mut self, event: Event) -> bool {
        self.transition_for(event, None)
    }

    /// As [`SockGuard::transition`]; `why` is what the program learns if the connection ends.
    pub(in crate::sdp) fn transition_for(&mut self, event: Event, why: Option<Error>) -> bool {
        let old = self.conn().state;
        match old.on(event) {
            Ok(new) => {
                if new != old {
                    self.conn().state = new;
                    // A socket for which connect() has noted a connection has connected all the time.
                    if self.conn().names.next.is_none() {
                        self.sk().set_state(new.tcp_state());
                    }
                    trace::state(self.sk(), &self.conn().names.peer, old, new);
                    self.tell_of_state(old, event, why);
                    if new == State::Established {
                        self.begin_keepalive();
                    }
                }
                true
            }
            Err(_) => {
                self.stats.inc(Counter::IllegalTransition);
                kernel::pr_warn_once!("event {} in state {}\n", event.name(), old.name());
                false
            }
        }
    }

    /// Ends the connection with an error for the user. The worker gives the rest back.
    ///
    /// What was received stays readable, as with TCP.
    pub(crate) fn fail(&mut self, event: Event, why: Error) {
        self.end(event, Some(why));
    }

    /// As [`SockGuard::fail`]; without `why`, there is no error for the user.
    pub(in crate::sdp) fn end(&mut self, event: Event, why: Option<Error>) {
        if self.conn().state == State::Dead {
            return;
        }
        let sk = self.sk();
        // First: poll() must not see the end without the error.
        if let Some(why) = why {
            sk.set_err(why);
        }
        sk.add_shutdown(bindings::SHUTDOWN_MASK);
        sk.set_flag(bindings::sock_flags_SOCK_DONE);
        self.glance.coming.set(false);
        self.transition_for(event, why);
        if self.conn().adverts.holds() {
            // The peer has sent all, but not all of it comes.
            self.conn().inq.fin_received = false;
        }
        self.want(Want::Teardown);
        sk.wake_all();
    }

    /// The peer has ended the connection before its time. As in `tcp_reset()`, the error is `EPIPE` if it had
    /// shut its half before: it has had enough of what is sent to it.
    pub(in crate::sdp) fn reset_by_peer(&mut self, event: Event) {
        self.stats.inc(Counter::ResetByPeer);
        let had_enough = self.conn().state == State::CloseWait && !self.conn().adverts.holds();
        let why = if had_enough { EPIPE } else { ECONNRESET };
        self.fail(event, why);
    }

    /// Our DisConn has reached the peer's adapter.
    pub(crate) fn disconn_sent(&mut self) {
        if self.conn().state == State::Draining {
            // The peer's disconnection said so before.
            return;
        }
        self.transition(Event::DisConnSent);
        self.sk().wake_all();
        self.finish_if_drained();
    }

    /// The peer sends no more.
    pub(crate) fn disconn_received(&mut self) {
        self.transition(Event::DisConnReceived);
        self.conn().inq.fin_received = true;
        let coming = self.conn().adverts.holds();
        self.glance.coming.set(coming);
        let sk = self.sk();
        sk.add_shutdown(bindings::RCV_SHUTDOWN);
        sk.set_flag(bindings::sock_flags_SOCK_DONE);
        sk.wake_all();
        self.finish_if_drained();
    }
}
