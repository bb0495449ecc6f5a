// SPDX-License-Identifier: GPL-2.0

//! accept().

use kernel::prelude::*;
use kernel::sync::aref::ARef;

use crate::bindings;
use crate::proto::state::State;
use crate::sdp::conn::accept_queue::pop;
use crate::sdp::conn::sock::SdpSock;
use crate::stats::counters::Counter;

/// Takes the oldest connection; waits for one unless `nonblock`.
///
/// # Errors
///
/// `EINVAL` if the socket does not listen, `EAGAIN`, `EINTR` (or a restart).
pub(crate) fn accept(listener: &SdpSock, nonblock: bool) -> Result<ARef<SdpSock>> {
    let sk = listener.sk();
    let mut guard = listener.lock();
    let mut timeo = sk.rcvtimeo(nonblock);
    loop {
        if guard.conn().state != State::Listen {
            return Err(EINVAL);
        }
        if let Some(child) = pop(listener) {
            listener.stats.inc(Counter::Accepted);
            return Ok(child);
        }
        timeo.check()?;
        guard.wait_exclusive(&mut timeo);
    }
}

/// Passes the reference of a child to the core, for `__inet_accept`.
pub(crate) fn into_raw(child: ARef<SdpSock>) -> *mut bindings::sock {
    ARef::into_raw(child).as_ptr().cast()
}
