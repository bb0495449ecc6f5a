// SPDX-License-Identifier: GPL-2.0

//! What the sides of a connection still owe each other. It decides what may be sent, and whether a
//! connection has ended.

use kernel::prelude::*;

use super::guard::SockGuard;
use super::sock::Want;
use crate::proto::source::{
    self,
    Kind, //
};
use crate::proto::state::State;
use crate::rdma::link::Tag;
use crate::rdma::mr::{
    Call,
    Use, //
};
use crate::sdp::parts::source::ZeroCopy;

impl SockGuard<'_> {
    /// Whether payload other than adverts may be sent now, or the end of the stream.
    pub(in crate::sdp) fn may_send_payload(&mut self) -> bool {
        self.payload_hold().is_none()
    }

    /// What such payload must wait for.
    pub(in crate::sdp) fn payload_hold(&mut self) -> Option<source::Hold> {
        let zcopy = self.conn().adverts.zcopy.as_ref()?;
        zcopy.source.may_send_payload().err()
    }

    /// Whether bytes of the stream are still in the peer's memory, or behind such.
    pub(in crate::sdp) fn holds(&mut self) -> bool {
        let zcopy = &self.conn().adverts.zcopy;
        zcopy.as_ref().is_some_and(|z| !z.hold.is_empty())
    }

    /// Whether the peer waits for an answer about its adverts, or for them to be read.
    fn owes_answers(&mut self) -> bool {
        let zcopy = &self.conn().adverts.zcopy;
        zcopy.as_ref().is_some_and(|z| !z.reader.is_idle()) || self.owes_sink_answers()
    }

    /// Whether the peer waits for an answer that can be sent.
    fn owes_sink_answers(&mut self) -> bool {
        let sinks = &self.conn().adverts.sinks;
        sinks.as_ref().is_some_and(|s| s.writer.has_answer())
    }

    /// Whether the peer has not read all of our adverts.
    pub(in crate::sdp) fn awaits_reads(&mut self) -> bool {
        let zcopy = &self.conn().adverts.zcopy;
        zcopy.as_ref().is_some_and(|z| !z.source.is_idle())
    }

    /// Bytes of our adverts that the peer has not read, as far as it has said so: of those for which
    /// a send waits. The others are in the send buffer.
    pub(super) fn advertised_bytes(&mut self) -> u32 {
        let zcopy = &self.conn().adverts.zcopy;
        let left = |z: &KBox<ZeroCopy>| {
            let waiting = z.source.iter().filter(|a| a.kind == Kind::Synchronous);
            waiting.map(|a| a.len - a.read).sum()
        };
        zcopy.as_ref().map_or(0, left)
    }

    /// Bytes that a program has sent and the peer's adapter does not have yet.
    pub(crate) fn unsent_bytes(&mut self) -> u32 {
        self.sk()
            .wmem_queued()
            .saturating_add(self.advertised_bytes())
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
        if self.awaits_reads() {
            return false;
        }
        let conn = self.conn();
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
        if self.conn().state != State::Draining || self.owes_answers() || !self.peer_has_all() {
            return;
        }
        let link = self.conn().link.as_ref();
        // The end of the queue pair would overtake an answer.
        if !link.is_some_and(|link| link.has_in_flight(|tag| tag == Tag::Answer)) {
            self.want(Want::Teardown);
        }
    }
}
