// SPDX-License-Identifier: GPL-2.0

//! Which way the bytes of a send go.

use super::sendmsg::Send;
use crate::proto::choice::{
    choose,
    Memory,
    Path,
    Reason,
    Sending,
    Thresholds,
    Wanted, //
};
use crate::proto::split::{
    split,
    Split, //
};
use crate::sdp::conn::guard::SockGuard;

/// Bytes of the smallest piece that is advertised: for fewer, pinning costs more than copying.
pub(in crate::sdp) const LEAST_BYTES: usize = 16384;

pub(super) const PAGE_SHIFT: u32 = kernel::page::PAGE_SHIFT as u32;

impl SockGuard<'_> {
    /// The way of the next bytes of a send; if only some of them go by copy, `send` says how many.
    pub(super) fn choose_path(&mut self, send: &mut Send<'_>) -> Path {
        let threshold = self.threshold();
        let wanted = self.conn().options.wanted;
        let automatic = wanted == Wanted::Automatic;
        send.no_reader = false;
        if send.by_copy > 0 || (automatic && threshold == 0) {
            return Path::Copy;
        }
        let bytes = send.iter.len();
        if wanted == Wanted::Only(Path::Copy) || (automatic && send.total < threshold) {
            send.by_copy = bytes;
            return Path::Copy;
        }
        let piece = send.iter.piece();
        let parts = piece.map_or_else(Split::default, |piece| {
            split(piece.addr as u64, piece.len as u64, PAGE_SHIFT)
        });
        if let Some(piece) = piece.filter(|_| (parts.middle as usize) < LEAST_BYTES) {
            send.by_copy = piece.len;
            return Path::Copy;
        }
        let fallback = self
            .conn()
            .adverts
            .zcopy
            .as_ref()
            .map(|zcopy| zcopy.fallback);
        let payload_hold = self.conn().adverts.payload_hold();
        let sending = Sending {
            bytes: send.total as u64,
            page_bytes: parts.middle,
            memory: match (piece, send.unprotectable) {
                (None, _) => Memory::Other,
                (Some(_), None) => Memory::Private,
                (Some(_), Some(why)) => Memory::Unprotectable(why),
            },
            wanted,
            features: self.conn().adverts.features,
            blocking: !send.timeo.is_over(),
            payload_hold,
            may_go_async: fallback.is_none_or(|fallback| fallback.may_go_async()),
            sink_room_bytes: self.sink_room(),
        };
        let thresholds = Thresholds {
            synchronous_bytes: threshold as u64,
            asynchronous_bytes: threshold as u64,
            sink_write_bytes: threshold as u64,
        };
        let choice = choose(&sending, &thresholds);
        // What the user has chosen is no fallback; what was tried is counted already.
        let is_fallback = |why: &Reason| *why != Reason::Forced && Some(*why) != send.unprotectable;
        if choice.path == Path::SinkWrite {
            return Path::SinkWrite;
        }
        if let Some(why) = choice.no_asynchronous.filter(is_fallback) {
            self.fallback(why);
            if why == Reason::TooManyFaults {
                if let Some(zcopy) = &mut self.conn().adverts.zcopy {
                    zcopy.fallback.on_other_path();
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
                send.no_reader = choice.no_sink_write == Some(Reason::PeerDoesNotWait);
                let why = match wanted {
                    Wanted::Only(Path::SinkWrite) if send.no_reader && !send.sink_awaited => None,
                    Wanted::Only(Path::SinkWrite) => choice.no_sink_write,
                    _ => choice.no_synchronous,
                };
                if let Some(why) = why.filter(is_fallback) {
                    self.fallback(why);
                }
                Path::Copy
            }
            path => path,
        }
    }
}
