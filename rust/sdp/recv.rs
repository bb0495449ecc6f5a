// SPDX-License-Identifier: GPL-2.0

//! recvmsg(), and the ways by which bytes are received.

mod copy;
pub(crate) mod read_async;
mod read_zcopy;
pub(crate) mod recvmsg;
mod sink_avail;
pub(crate) mod urgent;

use kernel::alloc::Flags;

use super::conn::guard::SockGuard;
use super::conn::sock::SdpSock;
use super::parts::adverts::Adverts;
use super::parts::counts::Counts;
use super::parts::options::Options;
use super::parts::recv_queue::RecvQueue;
use super::parts::ring::Ring;
use crate::proto::choice::Reason;
use crate::proto::credits::Credits;
use crate::proto::state::State;
use crate::rdma::link::Link;

/// The receive queue, from which a call takes bytes, and the memory that is charged for them.
struct Reader<'a> {
    sock: &'a SdpSock,
    link: &'a Option<Link>,
    ring: &'a mut Ring,
    inq: &'a mut RecvQueue,
}

impl<'a> Reader<'a> {
    fn of(guard: &'a mut SockGuard<'_>) -> Self {
        let sock = guard.sock();
        let conn = guard.conn();
        Self {
            sock,
            link: &conn.link,
            ring: &mut conn.ring,
            inq: &mut conn.inq,
        }
    }

    /// Gives back the charge for received bytes, or keeps it for later receives.
    fn release(&mut self, bytes: u32) {
        self.ring.release(self.sock.sk(), self.link, bytes);
    }
}

/// The state that decides whether a call gets bytes without a copy, with the records of whether
/// this is worth its cost and the counters of the reasons against it.
struct Direct<'a> {
    sock: &'a SdpSock,
    /// For allocations in the context of the lock.
    flags: Flags,
    state: State,
    /// [`Connection::threshold_bytes`](super::conn::connection::Connection::threshold_bytes).
    threshold: usize,
    options: &'a Options,
    credits: &'a Credits,
    link: &'a Option<Link>,
    inq: &'a RecvQueue,
    adverts: &'a mut Adverts,
    counts: &'a mut Counts,
}

impl<'a> Direct<'a> {
    fn of(guard: &'a mut SockGuard<'_>) -> Self {
        let (sock, (_, flags)) = (guard.sock(), guard.gfp());
        let conn = guard.conn();
        Self {
            sock,
            flags,
            state: conn.state,
            threshold: conn.threshold_bytes() as usize,
            options: &conn.options,
            credits: &conn.credits,
            link: &conn.link,
            inq: &conn.inq,
            adverts: &mut conn.adverts,
            counts: &mut conn.measured.counts,
        }
    }

    /// Counts bytes that do not come the preferred way, for the reason `why`.
    fn count_by_copy(&mut self, why: Reason) {
        let to = (self.sock.sk(), self.sock.stats);
        self.counts.add_by_copy(to, why);
    }
}
