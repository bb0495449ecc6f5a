// SPDX-License-Identifier: GPL-2.0

//! The choice of the way by which the bytes of a send go.

use kernel::alloc::Flags;

use super::sendmsg::Send;
use crate::proto::choice::{
    choose,
    Copied,
    MemoryKind,
    Path,
    Reason,
    Sending,
    Wanted,
    MIN_UNCOPIED_BYTES, //
};
use crate::proto::split::{
    piece_bytes,
    split,
    Split, //
};
use crate::proto::trial::Way;
use crate::rdma::link::Link;
use crate::sdp::conn::guard::SockGuard;
use crate::sdp::conn::sock::SdpSock;
use crate::sdp::output::CONTROL_PLACES;
use crate::sdp::parts::adverts::Adverts;
use crate::sdp::parts::counts::Counts;
use crate::sdp::parts::options::Options;
use crate::sdp::parts::send_queue::SendQueue;

/// An argument of functions in `proto/`, which do not know the machine.
pub(super) const PAGE_SHIFT: u32 = kernel::page::PAGE_SHIFT as u32;

/// The state that decides which way bytes go, and the counters of ways that were not possible.
pub(super) struct Ways<'a> {
    pub(super) sock: &'a SdpSock,
    /// [`Connection::threshold_bytes`](crate::sdp::conn::connection::Connection::threshold_bytes).
    pub(super) threshold: usize,
    pub(super) options: &'a Options,
    out: &'a SendQueue,
    link: &'a Option<Link>,
    pub(super) adverts: &'a mut Adverts,
    counts: &'a mut Counts,
}

impl<'a> Ways<'a> {
    pub(super) fn of(guard: &'a mut SockGuard<'_>) -> Self {
        let sock = guard.sock();
        let conn = guard.conn();
        Self {
            sock,
            threshold: conn.threshold_bytes() as usize,
            options: &conn.options,
            out: &conn.out,
            link: &conn.link,
            adverts: &mut conn.adverts,
            counts: &mut conn.measured.counts,
        }
    }
}

impl Ways<'_> {
    /// Counts bytes that do not go the preferred way, for the reason `why`.
    pub(super) fn count_by_copy(&mut self, why: Reason) {
        let to = (self.sock.sk(), self.sock.stats);
        self.counts.add_by_copy(to, why);
    }

    /// How many of the next bytes of a send can be written to the peer's memory; 0 if none can.
    pub(super) fn sink_room(&self) -> u32 {
        let room = self.reader_room();
        // For fewer bytes a copy is cheaper.
        if room >= MIN_UNCOPIED_BYTES && self.may_write() {
            room
        } else {
            0
        }
    }

    /// The size in bytes of the buffer with which a reader of the peer waits; 0 if none waits.
    fn reader_room(&self) -> u32 {
        let sinks = &self.adverts.sinks;
        sinks.as_ref().map_or(0, |sinks| sinks.writer.room())
    }

    /// Whether this side can post a Write now, and the answer behind it.
    fn may_write(&self) -> bool {
        // Bytes that wait in the send queue come first in the stream.
        self.out.queue.is_empty()
            && self.link.as_ref().is_some_and(|link| {
                let places = link.write_places() + 1 + CONTROL_PLACES;
                link.has_region_room() && link.send_room() >= places
            })
    }

    /// Whether a send that may go another way shall write to the peer's memory instead.
    pub(super) fn prefers_sink(&self, send: &Send<'_>) -> bool {
        !send.timeo.is_over()
            && self.wants_sinks(send)
            && self.adverts.may_send_payload()
            && self.sink_room() > 0
    }

    /// Whether a send may write to the peer's memory, as far as the user and measurements decide.
    fn wants_sinks(&self, send: &Send<'_>) -> bool {
        let timed = send.timed.as_ref();
        self.options.wanted.sinks() && timed.is_none_or(|timed| timed.way == Way::Sink)
    }

    /// Whether a send shall wait until it can write to the buffer of a reader of the peer, because
    /// the user wants this way only. The send waits at most once until some of its bytes were
    /// written.
    pub(super) fn awaits_sink(&self, send: &mut Send<'_>) -> bool {
        self.options.wanted == Wanted::Only(Path::SinkWrite)
            && send.lacks_sink
            && !send.timeo.is_over()
            && !core::mem::replace(&mut send.sink_awaited, true)
    }

    /// Whether the next `bytes` bytes of a send end it, or fill the buffer of a reader that waits.
    /// Any other Write would leave a part of the buffer unused and end the advert too early.
    pub(super) fn fits_sink(&self, send: &Send<'_>, bytes: usize) -> bool {
        let room = self.sink_room() as usize;
        room > 0 && bytes == send.iter.len().min(room) && self.wants_sinks(send)
    }

    /// Whether the next bytes of a send can be written from a snapshot, so that the call need not
    /// wait: they are whole pages, and fit as for [`Ways::fits_sink`]. `flags` are for allocations
    /// in the context of the lock.
    pub(super) fn may_write_ahead(&mut self, send: &Send<'_>, flags: Flags) -> bool {
        let Some(piece) = send.iter.piece() else {
            return false;
        };
        let link = self.link.as_ref();
        let pages = link.map_or(0, |link| link.max_region_pages());
        let bytes = piece_bytes(piece.len as u64, pages, PAGE_SHIFT) as usize;
        let bytes = bytes & !((1 << PAGE_SHIFT) - 1);
        piece.addr % (1 << PAGE_SHIFT) == 0
            && self.fits_sink(send, bytes)
            && send.unprotectable.is_none()
            && self.sock.sk().stream_memory_free()
            // `sources` has the record of how often programs touch such pages.
            && self
                .adverts
                .sources_or_new(flags)
                .is_some_and(|sources| sources.send_pause.may_go_async())
    }

    /// Chooses the way of the next bytes of a send. If only some of them go by copy, `by_copy` of
    /// the send is their number.
    pub(super) fn choose_path(&mut self, send: &mut Send<'_>) -> Path {
        let wanted = self.options.wanted;
        send.lacks_sink = false;
        if send.by_copy > 0 {
            return Path::Copy;
        }
        let bytes = send.iter.len();
        if !wanted.admits_uncopied(send.total as u64, self.threshold as u64) {
            send.by_copy = bytes;
            return Path::Copy;
        }
        let piece = send.iter.piece();
        let parts = piece.map_or_else(Split::default, |piece| {
            split(piece.addr as u64, piece.len as u64, PAGE_SHIFT)
        });
        let send_pause = self
            .adverts
            .sources
            .as_ref()
            .map(|sources| sources.send_pause);
        let choice = choose(&Sending {
            page_bytes: parts.middle,
            memory: match (piece, send.unprotectable) {
                (None, _) => MemoryKind::Other,
                (Some(_), None) => MemoryKind::Untried,
                (Some(_), Some(why)) => MemoryKind::Unprotectable(why),
            },
            wanted,
            measured: send.timed.as_ref().map(|timed| timed.way),
            features: self.adverts.features,
            blocking: !send.timeo.is_over(),
            payload_blocked_by: self.adverts.payload_blocked_by(),
            may_go_async: send_pause.is_none_or(|pause| pause.may_go_async()),
            sink_room_bytes: self.reader_room(),
            may_write: self.may_write(),
        });
        if choice.path == Path::SinkWrite {
            return Path::SinkWrite;
        }
        if let (Path::Copy, Copied::Piece, Some(piece)) = (choice.path, choice.copied, piece) {
            send.by_copy = piece.len;
            return Path::Copy;
        }
        // An attempt that failed was counted already.
        let is_new = |why: &Reason| Some(*why) != send.unprotectable;
        let not_asynchronous = choice.asynchronous.err().flatten();
        if let Some(why) = not_asynchronous.filter(is_new) {
            // A synchronous send goes the preferred way if it was measured to be the fastest.
            if why != Reason::Slower || choice.path == Path::Copy {
                self.count_by_copy(why);
            }
            // The pause of asynchronous sends ends after a number of other sends.
            if matches!(why, Reason::TooManyFaults | Reason::Slower) {
                if let Some(sources) = &mut self.adverts.sources {
                    sources.send_pause.on_other_path();
                }
            }
        }
        match choice.path {
            // Only whole pages can be protected.
            Path::Asynchronous if parts.head > 0 => {
                send.by_copy = parts.head as usize;
                Path::Copy
            }
            Path::Copy => {
                send.by_copy = bytes;
                send.lacks_sink = choice.awaits_sink;
                let possible = match wanted {
                    Wanted::Only(Path::SinkWrite) if send.lacks_sink && !send.sink_awaited => {
                        Ok(())
                    }
                    Wanted::Only(Path::SinkWrite) => choice.sink_write,
                    _ => choice.synchronous,
                };
                let why = possible.err().flatten().filter(is_new);
                if let Some(why) = why.filter(|_| why != not_asynchronous) {
                    self.count_by_copy(why);
                }
                Path::Copy
            }
            path => path,
        }
    }
}
