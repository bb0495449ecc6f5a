// SPDX-License-Identifier: GPL-2.0

//! recvmsg(), and the ways that bytes come.

mod copy;
mod read_async;
mod read_zcopy;
pub(crate) mod recvmsg;
mod sink_avail;
pub(crate) mod urgent;

use super::conn::guard::SockGuard;
use super::conn::sock::SdpSock;
use super::parts::recv_queue::RecvQueue;
use super::parts::ring::Ring;

/// What a call takes bytes out of: the receive queue, and what is charged for them.
struct Reader<'a> {
    sock: &'a SdpSock,
    /// Receives that are posted.
    posted: u32,
    ring: &'a mut Ring,
    inq: &'a mut RecvQueue,
}

impl<'a> Reader<'a> {
    fn of(guard: &'a mut SockGuard<'_>) -> Self {
        let sock = guard.sock();
        let conn = guard.conn();
        Self {
            sock,
            posted: conn.link.as_ref().map_or(0, |l| l.receives_posted()),
            ring: &mut conn.ring,
            inq: &mut conn.inq,
        }
    }

    /// Gives back what is charged for received bytes, or keeps it for the receives to come.
    fn release(&mut self, bytes: u32) {
        self.ring.release(self.sock.sk(), self.posted, bytes);
    }
}
