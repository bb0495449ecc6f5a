// SPDX-License-Identifier: GPL-2.0

//! What was received: the ring of posted receives, the receive queue, and what the peer still has of it.

mod queue;
pub(in crate::sdp) mod reads;
mod reassembly;
pub(in crate::sdp) mod resize;
pub(in crate::sdp) mod ring;

use kernel::alloc::Flags;

use super::conn::guard::SockGuard;
use super::conn::half::Halves;
use super::conn::sock::SdpSock;
use super::parts::adverts::Adverts;
use super::parts::measured::Measured;
use super::parts::recv_queue::RecvQueue;
use super::parts::ring::Ring;
use super::parts::watch::Watch;
use crate::bindings::gfp_t;
use crate::proto::credits::Credits;
use crate::proto::state::State;
use crate::rdma::link::Link;

/// What receives, and Reads of the peer's adverts, change of a connection: their memory, the queue that their
/// bytes go to, and what is behind it in the stream. None sends a message, and none changes the state of the
/// connection: what must end it is returned.
pub(in crate::sdp) struct Receiver<'a> {
    sock: &'a SdpSock,
    /// For allocations in the context of the lock.
    gfp: (gfp_t, Flags),
    state: State,
    halves: &'a Halves,
    link: &'a mut Option<Link>,
    credits: &'a mut Credits,
    ring: &'a mut Ring,
    inq: &'a mut RecvQueue,
    adverts: &'a mut Adverts,
    watch: &'a mut Watch,
    measured: &'a mut Measured,
}

impl<'a> Receiver<'a> {
    pub(in crate::sdp) fn of(guard: &'a mut SockGuard<'_>) -> Self {
        let (sock, gfp) = (guard.sock(), guard.gfp());
        let conn = guard.conn();
        Self {
            sock,
            gfp,
            state: conn.state,
            halves: &conn.halves,
            link: &mut conn.link,
            credits: &mut conn.credits,
            ring: &mut conn.ring,
            inq: &mut conn.inq,
            adverts: &mut conn.adverts,
            watch: &mut conn.liveness.watch,
            measured: &mut conn.measured,
        }
    }

    fn receives_posted(&self) -> u32 {
        self.link.as_ref().map_or(0, |l| l.receives_posted())
    }

    /// Charges `bytes` bytes for a receive; `false` if there is no room for them.
    fn charge(&mut self, bytes: u32) -> bool {
        self.ring.charge(self.sock.sk(), bytes)
    }

    /// Gives back what is charged for received bytes, or keeps it for the receives to come.
    fn release(&mut self, bytes: u32) {
        let posted = self.receives_posted();
        self.ring.release(self.sock.sk(), posted, bytes);
    }
}
