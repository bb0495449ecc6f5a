// SPDX-License-Identifier: GPL-2.0

//! The receives that are posted.

use kernel::prelude::*;

use crate::bindings;
use crate::inet::memory;
use crate::kern::errno::{
    ENOBUFS,
    ENOTCONN, //
};
use crate::proto::bsdh::Class;
use crate::proto::state::State;
use crate::rdma::receive::{
    Receive,
    MAX_PARTS, //
};
use crate::sdp::conn::guard::SockGuard;
use crate::sdp::conn::sock::Want;
use crate::sdp::parts::ring::{
    IDLE_RECEIVES,
    SMALL_BYTES, //
};
use crate::stats::counters::Counter;

/// Unread bytes, with what they are charged beyond, that even the smallest buffer holds.
pub(super) const LEAST_BUFFER: u32 = 8 * SMALL_BYTES;

/// Receives that only control messages can use: with so few credits the peer sends no payload.
pub(in crate::sdp) const CONTROL_RECEIVES: u32 = Class::Payload.min_credits() - 1;

impl SockGuard<'_> {
    /// Posts a receive again that holds nothing of the stream.
    pub(in crate::sdp) fn recycle(&mut self, receive: Receive) {
        let conn = self.conn();
        if receive.len() != conn.ring.receives.bytes() {
            self.discard(receive);
            return;
        }
        let Some(link) = conn.link.as_mut() else {
            return self.discard(receive);
        };
        let truesize = receive.len();
        match link.repost(receive) {
            Ok(()) => {
                conn.credits.posted(1);
                self.stats.inc(Counter::RecvPosted);
            }
            Err(_) => {
                self.release_receive(truesize);
                self.stats.inc(Counter::PostFailed);
            }
        }
    }

    pub(in crate::sdp) fn discard(&mut self, receive: Receive) {
        self.release_receive(receive.len());
    }

    /// Posts receives up to the target, as far as the receive buffer and the memory allow.
    pub(crate) fn refill(&mut self) {
        while self.wants_receive() {
            if self.post_one().is_err() {
                self.stats.inc(Counter::NoReceiveMemory);
                let posted = self.receives_posted();
                if posted < IDLE_RECEIVES {
                    self.want(Want::Refill);
                }
                break;
            }
        }
        if self.conn().ring.reserve > 0 {
            let sk = self.sk();
            self.conn().ring.trim_reserve(sk);
        }
        let starved = self.receives_posted() < IDLE_RECEIVES;
        self.glance.starved.set(starved);
    }

    pub(crate) fn receives_posted(&mut self) -> u32 {
        self.conn().link.as_ref().map_or(0, |l| l.receives_posted())
    }

    fn wants_receive(&mut self) -> bool {
        let sk = self.sk();
        let conn = self.conn();
        let Some(link) = &conn.link else {
            return false;
        };
        let posted = link.receives_posted();
        // Behind its DisConn the peer still sends credits.
        let target = if conn.inq.fin_received {
            IDLE_RECEIVES
        } else {
            conn.ring.target
        };
        if posted >= target || link.recv_room() == 0 || conn.state == State::Dead {
            return false;
        }
        // Control messages must get through although nobody reads (rule C2).
        if posted < CONTROL_RECEIVES {
            return true;
        }
        // The least that a connection needs is posted even into the smallest buffer, and when
        // memory is short.
        let in_use = sk.rmem() - conn.ring.reserve;
        let size = conn.ring.receives.bytes();
        if posted < IDLE_RECEIVES {
            self.may_post_least(0)
        } else {
            in_use + size <= sk.rcvbuf() && !memory::is_short()
        }
    }

    /// Whether the least that a connection needs may be posted, beside what waits to be read, with
    /// `held` bytes of receives in neither. What is posted does not count, and the smallest buffer
    /// is one for [`LEAST_BUFFER`]: a program that looks for a few bytes more must get them.
    pub(super) fn may_post_least(&mut self, held: u32) -> bool {
        let sk = self.sk();
        let conn = self.conn();
        let posted = conn.link.as_ref().map_or(0, |l| l.posted_bytes());
        let unread = (sk.rmem() - conn.ring.reserve).saturating_sub(posted + held);
        let held = conn
            .adverts
            .zcopy
            .as_ref()
            .is_some_and(|z| z.hold.has_ready());
        let nothing_unread = conn.inq.queue.is_empty() && !held;
        nothing_unread || unread + conn.ring.receives.bytes() <= sk.rcvbuf().max(LEAST_BUFFER)
    }

    fn post_one(&mut self) -> Result {
        let (gfp, flags) = self.gfp();
        let size = self.conn().ring.receives.bytes();
        let posted = self.receives_posted() as usize;
        // What the connection cannot do without is worth some effort.
        let gfp = if posted < IDLE_RECEIVES as usize {
            gfp
        } else {
            gfp | bindings::SDP_CONST___GFP_NORETRY
        };
        let places = self.places_due() + MAX_PARTS;
        self.reserve_unread(places, flags)?;
        let sk = self.sk();
        let conn = self.conn();
        if !conn.ring.charge(sk, size) {
            return Err(ENOBUFS);
        }
        let result = match &mut conn.link {
            Some(link) => link.post_receive(size, &mut conn.ring.spares, (gfp, flags)),
            None => Err(ENOTCONN),
        };
        if let Err(e) = result {
            self.release_receive(size);
            return Err(e);
        }
        self.conn().credits.posted(1);
        self.stats.inc(Counter::RecvPosted);
        Ok(())
    }
}
