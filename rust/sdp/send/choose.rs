// SPDX-License-Identifier: GPL-2.0

//! The choice of the path of the bytes of a send.

use kernel::alloc::Flags;

use super::sendmsg::Send;
use crate::proto::choice::{
    choose,
    fits_sink,
    lends_to_sink,
    may_write_ahead,
    sink_room,
    sink_write,
    Ahead,
    Copied,
    MemoryKind,
    Path,
    Reason,
    Sending,
    SinkTarget,
    Wanted, //
};
use crate::proto::split::{
    piece_bytes,
    split,
    Split, //
};
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

/// The state that decides which path bytes take, and the counters of paths that were not possible.
pub(super) struct Chooser<'a> {
    pub(super) sock: &'a SdpSock,
    /// [`Connection::threshold_bytes`](crate::sdp::conn::connection::Connection::threshold_bytes).
    pub(super) threshold: usize,
    pub(super) options: &'a Options,
    out: &'a SendQueue,
    link: &'a Option<Link>,
    pub(super) adverts: &'a mut Adverts,
    counts: &'a mut Counts,
}

impl<'a> Chooser<'a> {
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

/// The parts of the next piece of a send; nothing if its memory cannot be pinned.
fn split_next(send: &Send<'_>) -> Split {
    send.iter.piece().map_or_else(Split::default, |piece| {
        split(piece.addr as u64, piece.len as u64, PAGE_SHIFT)
    })
}

impl Chooser<'_> {
    /// Counts bytes that do not go the preferred way, for the reason `why`.
    pub(super) fn count_by_copy(&mut self, why: Reason) {
        let to = (self.sock.sk(), self.sock.stats);
        self.counts.add_by_copy(to, why);
    }

    /// How many of the next bytes of a send can be written to the peer's memory; 0 if none can.
    pub(super) fn sink_room(&self) -> u32 {
        self.sink_target().room().unwrap_or(0)
    }

    fn sink_target(&self) -> SinkTarget {
        let sinks = &self.adverts.sinks;
        SinkTarget {
            reader_bytes: sinks.as_ref().map_or(0, |sinks| sinks.writer.room()),
            may_write: self.may_write(),
            payload_blocked_by: self.adverts.payload_blocked_by(),
        }
    }

    /// [`SinkTarget::may_write`], with a place for the answer behind the Write.
    fn may_write(&self) -> bool {
        self.out.queue.is_empty()
            && self.link.as_ref().is_some_and(|link| {
                let places = link.write_places() + 1 + CONTROL_PLACES;
                link.has_region_room() && link.send_room() >= places
            })
    }

    /// Whether a send that may go another way shall write to the peer's memory instead.
    pub(super) fn prefers_sink(&self, send: &Send<'_>) -> bool {
        sink_write(&self.sending(send)).is_ok()
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

    /// [`fits_sink()`], for the next `bytes` bytes, whose memory was taken.
    pub(super) fn fits_sink(&self, send: &Send<'_>, bytes: usize) -> bool {
        fits_sink(&self.sending(send), bytes as u64, send.iter.len() as u64)
    }

    /// [`lends_to_sink()`].
    pub(super) fn lends_to_sink(&self, send: &Send<'_>) -> bool {
        let bytes = send.piece_bytes() as u64;
        lends_to_sink(&self.sending(send), bytes, send.iter.len() as u64)
    }

    /// The largest size in bytes of the next piece of a send of memory that needs no protection.
    pub(super) fn most_lent(&self, send: &Send<'_>) -> usize {
        sink_room(&self.sending(send)).map_or(usize::MAX, |room| room as usize)
    }

    /// [`may_write_ahead()`]. `flags` are for allocations in the context of the lock.
    pub(super) fn may_write_ahead(&mut self, send: &Send<'_>, flags: Flags) -> bool {
        let parts = split_next(send);
        let link = self.link.as_ref();
        let pages = link.map_or(0, |link| link.max_region_pages());
        let ahead = Ahead {
            head_bytes: parts.head,
            region_bytes: piece_bytes(parts.middle, pages, PAGE_SHIFT).into(),
            left_bytes: send.iter.len() as u64,
            has_space: self.sock.sk().stream_memory_free(),
        };
        may_write_ahead(&self.sending(send), &ahead)
            // The record of how often programs touch such pages must exist.
            && self.adverts.sources_or_new(flags).is_some()
    }

    /// The properties of the next piece of a send.
    fn sending(&self, send: &Send<'_>) -> Sending {
        let sources = self.adverts.sources.as_ref();
        Sending {
            page_bytes: split_next(send).middle,
            memory: match (send.iter.piece(), send.unprotectable) {
                (None, _) => MemoryKind::Other,
                (Some(_), None) => MemoryKind::Untried,
                (Some(_), Some(why)) => MemoryKind::Unprotectable(why),
            },
            wanted: self.options.wanted,
            measured: send.timed.as_ref().map(|timed| timed.path),
            features: self.adverts.features,
            blocking: !send.timeo.is_over(),
            may_go_async: sources.is_none_or(|sources| sources.send_pause.may_go_async()),
            sink: self.sink_target(),
        }
    }

    /// Chooses the path of the next bytes of a send. If only some of them go by copy, `by_copy` of
    /// the send is their number.
    pub(super) fn choose_path(&mut self, send: &mut Send<'_>) -> Path {
        let wanted = self.options.wanted;
        send.lacks_sink = false;
        if send.by_copy > 0 {
            return Path::Copy;
        }
        // Skip empty pieces.
        send.iter.advance(0);
        let bytes = send.iter.len();
        if !wanted.admits_uncopied(send.total as u64, self.threshold as u64) {
            send.by_copy = bytes;
            return Path::Copy;
        }
        let choice = choose(&self.sending(send));
        if choice.path == Path::SinkWrite {
            // Where the peer's readers always wait, no other send would end the pause.
            if let Some(sources) = &mut self.adverts.sources {
                sources.send_pause.on_other_path();
            }
            return Path::SinkWrite;
        }
        if choice.path == Path::Copy && choice.copied == Copied::Piece {
            send.by_copy = send.iter.piece_bytes();
            return Path::Copy;
        }
        let head = split_next(send).head as usize;
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
            Path::Asynchronous if head > 0 => {
                send.by_copy = head;
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
