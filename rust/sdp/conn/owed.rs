// SPDX-License-Identifier: GPL-2.0

//! The outstanding work of a connection: unsent bytes, Reads in flight, and missing answers. It
//! decides whether a connection has ended.

use super::guard::SockGuard;
use super::sock::Want;
use crate::proto::state::State;
use crate::rdma::link::Tag;

impl SockGuard<'_> {
    /// Bytes that a program has sent and the peer's adapter does not have yet.
    pub(crate) fn unsent_bytes(&mut self) -> u32 {
        let sk = self.sk();
        self.conn().unsent_bytes(sk)
    }

    /// Whether Reads into a program's memory are in flight.
    pub(in crate::sdp) fn has_direct_reads(&mut self) -> bool {
        let is_direct = |tag| matches!(tag, Tag::DirectRead(_) | Tag::EarlyRead(_));
        let link = self.conn().link.as_ref();
        link.is_some_and(|link| link.has_in_flight(is_direct))
    }

    /// Whether the peer has the whole stream, including DisConn if it was sent.
    pub(super) fn peer_has_all(&mut self) -> bool {
        let conn = self.conn();
        if conn.adverts.awaits_reads() {
            return false;
        }
        // On iWARP, a completion only shows that TCP has the message. If bytes of the peer arrive
        // after the end, the local TCP resets the connection, and the peer may not get the message.
        // So the peer's module must acknowledge it.
        let is_iwarp = conn.link.as_ref().is_some_and(|link| link.is_iwarp());
        let is_acked = |mseq| conn.credits.has_acked(mseq);
        !is_iwarp || conn.out.last_needed.is_none_or(is_acked)
    }

    /// Ends the connection if neither side owes the other anything any more. For an orphan, starts
    /// the timer for the peer's close if only the close is left.
    pub(in crate::sdp) fn finish_if_drained(&mut self) {
        if self.sk().is_orphan() {
            self.start_fin_timer();
        }
        let conn = self.conn();
        if conn.state != State::Draining || conn.adverts.owes_answers() || !self.peer_has_all() {
            return;
        }
        let link = self.conn().link.as_ref();
        // Ending the queue pair could overtake an answer that is in flight.
        if !link.is_some_and(|link| link.has_in_flight(|tag| tag == Tag::Answer)) {
            self.want(Want::Teardown);
        }
    }
}
