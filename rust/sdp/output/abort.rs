// SPDX-License-Identifier: GPL-2.0

//! Ends a connection at once, and tells the peer if that is possible.

use kernel::prelude::*;

use super::Output;
use crate::kern::errno::{
    ECONNRESET,
    ENOBUFS,
    EPROTO, //
};
use crate::proto::message::Control;
use crate::proto::state::Event;
use crate::sdp::conn::guard::SockGuard;
use crate::sdp::parts::fatal::Fatal;
use crate::stats::counters::Counter;

/// Tells the peer that the connection is aborted, if that is still possible. The caller must end
/// the connection, with its own error.
pub(in crate::sdp) fn send_abort(guard: &mut SockGuard<'_>) {
    if guard.conn().may_transmit() {
        // On iWARP, the provider refuses the message when the peer has closed the connection. The
        // peer then need not be told, and the program gets the caller's error.
        let _ = Output::of(guard).post(Control::AbortConn);
    }
}

/// Ends the connection at once, as TCP does with RST; without `why`, there is no error for the
/// user.
pub(in crate::sdp) fn abort(guard: &mut SockGuard<'_>, why: Option<Error>) {
    guard.stats.inc(Counter::AbortedLocal);
    send_abort(guard);
    guard.end(Event::Abort, why);
}

/// Ends a connection that cannot go on.
pub(in crate::sdp) fn end_for(guard: &mut SockGuard<'_>, why: Fatal) {
    let error = match why {
        Fatal::Refused(e) => {
            guard.stats.inc(Counter::PostFailed);
            // Logged only once, because the counter shows the rest.
            kernel::pr_warn_once!("the provider refused a request: {:?}\n", e);
            // The provider would not take an AbortConn either.
            return guard.fail(Event::Abort, ECONNRESET);
        }
        Fatal::Violation(why) => {
            guard.stats.violation(why);
            guard.stats.inc(Counter::AbortedViolation);
            EPROTO
        }
        Fatal::NoMemory => {
            guard.stats.inc(Counter::NoReceiveMemory);
            ENOBUFS
        }
        Fatal::TimedOut => {
            guard.stats.inc(Counter::TimedOut);
            return guard.fail(Event::Timeout, ETIMEDOUT);
        }
        Fatal::Inconsistent => {
            guard.stats.inc(Counter::IllegalTransition);
            return abort(guard, Some(ECONNRESET));
        }
        // As TCP, which answers with a reset.
        Fatal::Unread => return abort(guard, Some(ECONNRESET)),
    };
    send_abort(guard);
    guard.fail(Event::Abort, error);
}

/// Whether a message was posted. Ends the connection if the provider has refused it.
pub(in crate::sdp) fn settle(guard: &mut SockGuard<'_>, posted: Result<bool, Fatal>) -> bool {
    posted.unwrap_or_else(|why| {
        end_for(guard, why);
        false
    })
}
