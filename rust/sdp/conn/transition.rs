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

/// Reports new states of connections to programs. This is a trait, because the code that changes
/// the state is in a lower layer than the implementation.
pub(crate) trait TellOfState {
    /// Reports the new state of a connection, which was `old` before `event`, if users see a
    /// difference. `why` is the error of a connection that has failed.
    fn tell_of_state(&mut self, old: State, event: Event, why: Option<Error>);
}

impl SockGuard<'_> {
    /// Applies an event to the state. An event that cannot happen is counted and changes nothing;
    /// the function then returns `false`.
    pub(crate) fn transition(&mut self, event: Event) -> bool {
        self.transition_for(event, None)
    }

    /// As [`SockGuard::transition`]; `why` is the error that the program gets if the connection
    /// ends.
    pub(in crate::sdp) fn transition_for(&mut self, event: Event, why: Option<Error>) -> bool {
        let old = self.conn().state;
        match old.on(event) {
            Ok(new) => {
                self.conn().state = new;
                let (from, to) = (old.shown(), new.shown());
                if to != from {
                    // If connect() has recorded a next connection, programs already see a
                    // connecting socket.
                    if self.conn().names.next.is_none() {
                        self.sk().set_state(new.tcp_state());
                    }
                    trace::state(self.sk(), &self.conn().names.peer, from, to);
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

    /// Ends the connection with an error for the user. The worker releases the rest.
    ///
    /// Received bytes stay readable, as with TCP.
    pub(crate) fn fail(&mut self, event: Event, why: Error) {
        self.end(event, Some(why));
    }

    /// As [`SockGuard::fail`]; without `why`, the user gets no error.
    pub(in crate::sdp) fn end(&mut self, event: Event, why: Option<Error>) {
        if self.conn().state.has_ended() {
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
            // The peer has sent the whole stream, but some of its bytes will not arrive.
            self.conn().inq.fin_received = false;
        }
        self.want(Want::Teardown);
        sk.wake_all();
        if why.is_some() && !sk.is_orphan() {
            sk.report_error();
        }
    }

    /// Called when the peer has ended the connection early. As in `tcp_reset()`, the error is
    /// `EPIPE` if the peer had shut down its sending half before.
    pub(in crate::sdp) fn reset_by_peer(&mut self, event: Event) {
        self.stats.inc(Counter::ResetByPeer);
        let had_enough = self.conn().state == State::CloseWait && !self.conn().adverts.holds();
        let why = if had_enough { EPIPE } else { ECONNRESET };
        self.fail(event, why);
    }

    /// Called when DisConn has reached the peer's adapter.
    pub(crate) fn disconn_sent(&mut self) {
        if self.conn().state == State::Draining {
            // The disconnection by the peer was already handled as the completion of DisConn.
            return;
        }
        self.transition(Event::DisConnSent);
        self.sk().wake_all();
        self.finish_if_drained();
    }

    /// Called when DisConn was received: the peer sends no more.
    pub(crate) fn disconn_received(&mut self) {
        self.transition(Event::DisConnReceived);
        self.conn().inq.fin_received = true;
        let coming = self.conn().adverts.holds();
        self.glance.coming.set(coming);
        let sk = self.sk();
        sk.add_shutdown(bindings::RCV_SHUTDOWN);
        sk.set_flag(bindings::sock_flags_SOCK_DONE);
        sk.wake_all();
        if !coming {
            sk.signal_end();
        }
        self.finish_if_drained();
    }
}
