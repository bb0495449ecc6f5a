// SPDX-License-Identifier: GPL-2.0

//! What the sides of a connection still owe each other. It decides what may be sent, and whether a
//! connection has ended.

use super::guard::SockGuard;
use super::sock::Want;
use crate::proto::state::State;
use crate::rdma::link::Tag;
use crate::rdma::region::{
    Call,
    Use, //
};

impl SockGuard<'_> {
    /// Bytes that a program has sent and the peer's adapter does not have yet.
    pub(crate) fn unsent_bytes(&mut self) -> u32 {
        let sk = self.sk();
        self.conn().unsent_bytes(sk)
    }

    /// Whether a receive waits for its own pages to be filled.
    pub(super) fn reads_directly(&mut self) -> bool {
        let link = self.conn().link.as_ref();
        link.is_some_and(|link| link.has_regions(Use::OwnReads(Call::Waits)))
    }

    /// Whether Reads into a program's memory are in flight.
    pub(in crate::sdp) fn has_direct_reads(&mut self) -> bool {
        let is_direct = |tag| matches!(tag, Tag::DirectRead(_) | Tag::EarlyRead(_));
        let link = self.conn().link.as_ref();
        link.is_some_and(|link| link.has_in_flight(is_direct))
    }

    /// Whether the peer has all of the stream, and our DisConn if that was sent.
    pub(super) fn peer_has_all(&mut self) -> bool {
        let conn = self.conn();
        if conn.adverts.awaits_reads() {
            return false;
        }
        // With iWARP it is on its way when TCP has it: what of the peer's comes after the end has our
        // TCP reset the connection, and then the peer may not get it. So the peer's module must say that
        // it has come.
        let is_iwarp = conn.link.as_ref().is_some_and(|link| link.is_iwarp());
        let is_acked = |mseq| conn.credits.has_acked(mseq);
        !is_iwarp || conn.out.last_needed.is_none_or(is_acked)
    }

    /// Ends the connection when nothing is owed any more; an orphan waits for its peer to close when only that
    /// is left.
    pub(in crate::sdp) fn finish_if_drained(&mut self) {
        if self.sk().is_orphan() {
            self.start_fin_timer();
        }
        let conn = self.conn();
        if conn.state != State::Draining || conn.adverts.owes_answers() || !self.peer_has_all() {
            return;
        }
        let link = self.conn().link.as_ref();
        // The end of the queue pair would overtake an answer.
        if !link.is_some_and(|link| link.has_in_flight(|tag| tag == Tag::Answer)) {
            self.want(Want::Teardown);
        }
    }
}
