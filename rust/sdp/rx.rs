// SPDX-License-Identifier: GPL-2.0

//! The receiving side: the ring of posted receives, the receive queue, and the bytes of the stream
//! that are still in the peer's memory.

mod queue;
pub(in crate::sdp) mod reads;
mod reassembly;
pub(in crate::sdp) mod resize;
pub(in crate::sdp) mod ring;

use kernel::alloc::Flags;

use super::conn::guard::SockGuard;
use super::conn::sock::SdpSock;
use super::parts::adverts::Adverts;
use super::parts::measured::Measured;
use super::parts::recv_queue::RecvQueue;
use super::parts::ring::Ring;
use crate::bindings::gfp_t;
use crate::proto::credits::Credits;
use crate::proto::half::Halves;
use crate::proto::state::State;
use crate::proto::watchdog::Watchdog;
use crate::rdma::link::Link;

/// The parts of a connection that receives, and Reads of the peer's adverts, change: their memory,
/// the queue for their bytes, and the stream behind the queue. The methods send no messages, and do
/// not change the state of the connection: they return the error that must end it.
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
    watch: &'a mut Watchdog,
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

    /// Gives back the charge for received bytes, or keeps it for later receives.
    fn release(&mut self, bytes: u32) {
        self.ring.release(self.sock.sk(), self.link, bytes);
    }
}
