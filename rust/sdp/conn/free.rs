// SPDX-License-Identifier: GPL-2.0

//! Frees the contents of the queues and adverts of a connection that has ended.

use super::guard::SockGuard;
use crate::mm::queue::FragQueue;
use crate::proto::source::Kind;
use crate::proto::urgent::UrgentSend;
use crate::rdma::link::Link;
use crate::sdp::parts::sink::trace_end;
use crate::sdp::parts::source::traced;
use crate::stats::counters::Counter;
use crate::trace;

impl SockGuard<'_> {
    /// Takes the queues out of use, and uncharges their contents.
    pub(in crate::sdp) fn close_link(&mut self) -> Option<Link> {
        self.free_tx();
        self.conn().inq.short_page = None;
        let link = self.conn().link.take()?;
        let (sent, posted) = (link.in_flight_bytes(), link.posted_bytes());
        let reading = link.reading_bytes();
        self.forget_adverts();
        if sent > 0 {
            self.sk().wmem_uncharge(sent);
        }
        self.conn().ring.guaranteed = 0;
        let reserve = core::mem::replace(&mut self.conn().ring.reserve, 0);
        self.sk().rmem_uncharge(posted + reading + reserve);
        Some(link)
    }

    /// Frees the bytes of both queues, and uncharges them.
    pub(crate) fn free_queues(&mut self) {
        self.free_tx();
        self.forget_adverts();
        self.free_received();
    }

    /// Frees the bytes that wait to be read, also those that follow an advert: a Read of the advert
    /// may still be in flight, and would make them readable.
    pub(crate) fn free_received(&mut self) {
        self.free_held();
        let glance = &self.sock().glance;
        while let Some((frag, truesize)) =
            self.conn().inq.queue.change(&glance.unread, FragQueue::pop)
        {
            drop(frag);
            self.release_receive(truesize);
        }
    }

    fn free_held(&mut self) {
        let sources = self.conn().adverts.sources.as_mut();
        let held = sources.map_or(0, |sources| sources.hold.clear());
        self.release_receive(held);
    }

    /// Frees the bytes that wait to be sent.
    pub(crate) fn free_tx(&mut self) {
        let waiting = self.conn().out.queue.bytes();
        let glance = &self.sock().glance;
        self.conn()
            .out
            .queue
            .change(&glance.notsent, |tx| while tx.pop().is_some() {});
        self.conn().out.urgent = UrgentSend::new();
        if waiting > 0 {
            self.sk().wmem_uncharge(waiting);
        }
    }

    /// Forgets the source adverts of this side, the held bytes of the peer's adverts, and all sink
    /// adverts of this side, when the queues are gone.
    pub(in crate::sdp) fn forget_adverts(&mut self) {
        self.forget_sinks();
        let sk = self.sk();
        let Some(sources) = &mut self.conn().adverts.sources else {
            return;
        };
        let (mut aborted, mut charged) = (0, 0);
        // The regions are freed with the link.
        sources.adverts.abort(|advert| {
            aborted += 1;
            trace::advert_cancelled(sk, traced(advert.len, advert.read));
            if advert.kind == Kind::Asynchronous {
                charged += advert.len - advert.read;
            }
        });
        sources.reader.abort();
        self.stats.add(Counter::AdvertAborted, aborted);
        if charged > 0 {
            self.sk().wmem_uncharge(charged);
        }
        self.free_held();
    }

    /// Forgets the sink adverts of this side, when the queues are gone.
    fn forget_sinks(&mut self) {
        let sk = self.sk();
        let Some(sinks) = &mut self.conn().adverts.sinks else {
            return;
        };
        let mut ended = 0;
        // The regions are freed with the link.
        sinks.adverts.abort(|back| {
            ended += 1;
            trace_end(sk, &back);
        });
        let charged = core::mem::take(&mut sinks.charged_bytes);
        if charged > 0 {
            self.sk().wmem_uncharge(charged);
        }
        self.stats.add(Counter::SinkEnded, ended);
    }
}
