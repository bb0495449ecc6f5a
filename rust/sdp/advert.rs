// SPDX-License-Identifier: GPL-2.0

//! The adverts of both sides, and the messages about them.

pub(in crate::sdp) mod sink;
pub(in crate::sdp) mod source;

use kernel::alloc::Flags;

use super::conn::guard::SockGuard;
use super::conn::sock::SdpSock;
use super::parts::adverts::Adverts;
use super::parts::measured::Measured;
use super::parts::recv_queue::RecvQueue;
use super::reclaim::Reclaim;
use crate::proto::half::Halves;
use crate::proto::state::State;
use crate::rdma::link::Link;

/// The parts of a connection that a message or a completion about an advert changes. The methods
/// send no messages, and do not change the state of the connection: they return the error that must
/// end it.
pub(super) struct Exchange<'a> {
    sock: &'a SdpSock,
    /// For allocations in the context of the lock.
    flags: Flags,
    state: State,
    halves: &'a Halves,
    link: &'a mut Option<Link>,
    adverts: &'a mut Adverts,
    inq: &'a mut RecvQueue,
    measured: &'a mut Measured,
}

impl<'a> Exchange<'a> {
    pub(super) fn of(guard: &'a mut SockGuard<'_>) -> Self {
        let (sock, (_, flags)) = (guard.sock(), guard.gfp());
        let conn = guard.conn();
        Self {
            sock,
            flags,
            state: conn.state,
            halves: &conn.halves,
            link: &mut conn.link,
            adverts: &mut conn.adverts,
            inq: &mut conn.inq,
            measured: &mut conn.measured,
        }
    }

    fn reclaim(&mut self) -> Reclaim<'_> {
        Reclaim::new(self.sock, self.link)
    }
}
