// SPDX-License-Identifier: GPL-2.0

//! accept().

use core::ptr::NonNull;

use kernel::prelude::*;
use kernel::sync::aref::ARef;

use crate::bindings;
use crate::proto::state::State;
use crate::sdp::conn::accept_queue::{
    next,
    Next, //
};
use crate::sdp::conn::sock::SdpSock;
use crate::stats::counters::Counter;

/// The connection that accept() has found.
pub(crate) enum Accepted {
    Sdp(ARef<SdpSock>),
    /// A TCP connection (SDP_LISTEN_TCP), which the new socket already has.
    Tcp,
}

/// Takes the oldest connection; waits for one unless `nonblock`. With `new`, also TCP connections.
///
/// # Errors
///
/// `EINVAL` if the socket does not listen, `EAGAIN`, `EINTR` (or a restart).
///
/// # Safety
///
/// As for [`TcpListener::accept`](crate::inet::tcp::TcpListener::accept).
pub(crate) unsafe fn accept(
    listener: &SdpSock,
    new: Option<NonNull<bindings::socket>>,
    nonblock: bool,
) -> Result<Accepted> {
    let sk = listener.sk();
    let mut guard = listener.lock();
    let mut timeo = sk.rcvtimeo(nonblock);
    loop {
        if guard.conn().state != State::Listen {
            return Err(EINVAL);
        }
        match (next(listener, new.is_some()), new) {
            (Some(Next::Sdp(child)), _) => {
                listener.stats.inc(Counter::Accepted);
                return Ok(Accepted::Sdp(child));
            }
            (Some(Next::Tcp(tcp)), Some(new)) => {
                // Without the lock, so that the locks of TCP are not nested in it.
                // SAFETY: As the caller promises.
                let taken = guard.unlocked(|| unsafe { tcp.accept(new.as_ptr()) });
                if taken.is_ok() {
                    listener.stats.inc(Counter::AcceptedTcp);
                    return Ok(Accepted::Tcp);
                }
                // Another thread has taken the connection, or the program has ended the TCP socket.
                // Meanwhile a connection may have come to the other queue.
                continue;
            }
            _ => {}
        }
        timeo.check()?;
        guard.wait_exclusive(&mut timeo);
    }
}

/// Passes the reference of a child to the core, for `__inet_accept`.
pub(crate) fn into_raw(child: ARef<SdpSock>) -> *mut bindings::sock {
    ARef::into_raw(child).as_ptr().cast()
}
