// SPDX-License-Identifier: GPL-2.0

//! The receives of a connection: their size, their number, and their charge.

use kernel::pr_warn_once;
use kernel::prelude::*;

use crate::inet::memory;
use crate::inet::sock::Sk;
use crate::kern::errno::ENOBUFS;
use crate::mm::frag::Frag;
use crate::proto::hello::BUFS_MIN;
use crate::proto::resize::{
    OwnReceives,
    LARGE_BYTES,
    SMALL_BYTES, //
};
use crate::rdma::link::Link;
use crate::rdma::receive::{
    Spares,
    MAX_PARTS,
    PART_BYTES, //
};
use crate::stats::counters::Counter;

/// Payload of a receive of a new connection if sockets already use much memory: a page has
/// [`IDLE_RECEIVES`] such receives, and no two of them share a cache line.
pub(crate) const TINY_BYTES: u32 = SMALL_BYTES / IDLE_RECEIVES / 128 * 128;
/// Receives posted for an idle connection. Data needs four credits, so the peer can send two such
/// messages at once.
pub(crate) const IDLE_RECEIVES: u32 = BUFS_MIN as u32;

const _: () = assert!(
    LARGE_BYTES <= MAX_PARTS as u32 * PART_BYTES,
    "a receive has fragments for so many bytes"
);

/// The state from which receives are posted. Receives are charged to the receive buffer of the
/// socket, and to the memory of all sockets.
pub(crate) struct Ring {
    pub(in crate::sdp) receives: OwnReceives,
    /// Receives to keep posted while memory allows.
    pub(in crate::sdp) target: u32,
    /// Receive memory that stays charged while the connection lives, and the part of it that is
    /// unused now.
    pub(in crate::sdp) guaranteed: u32,
    pub(in crate::sdp) reserve: u32,
    /// Pages whose bytes were just read, for the next receives; none outside a call.
    pub(in crate::sdp) spares: Spares,
    /// A receive must be posted again at once (rule C2).
    pub(in crate::sdp) repost_due: bool,
}

impl Ring {
    /// For `target` receives of `bytes` bytes each.
    pub(in crate::sdp) const fn new(bytes: u32, target: u32) -> Self {
        Self {
            receives: OwnReceives::new(bytes),
            target,
            guaranteed: 0,
            reserve: 0,
            spares: Spares::new(),
            repost_due: false,
        }
    }

    /// The spares, and the size of the receives for which they are.
    pub(in crate::sdp) fn spares(&mut self) -> (&mut Spares, u32) {
        (&mut self.spares, self.receives.bytes())
    }

    /// Keeps the pages of `used`, whose bytes were read, for the next receives.
    pub(in crate::sdp) fn keep(&mut self, used: Frag) {
        let (spares, bytes) = self.spares();
        spares.put(used, bytes);
    }

    /// Charges the receives that a new connection begins with; returns the size of each.
    ///
    /// # Errors
    ///
    /// `ENOBUFS`.
    pub(in crate::sdp) fn reserve_first(&mut self, sk: Sk) -> Result<u32> {
        let size = if memory::is_ample() {
            SMALL_BYTES
        } else {
            TINY_BYTES
        };
        self.receives = OwnReceives::new(size);
        if let Err(e) = self.reserve(sk, size) {
            sk.net().stats().inc(Counter::RefusedMem);
            pr_warn_once!("mem: the sockets use all of it, new connections are refused\n");
            return Err(e);
        }
        Ok(size)
    }

    /// Charges the minimum for a connection in advance, so that it cannot be refused later.
    ///
    /// # Errors
    ///
    /// `ENOBUFS`.
    pub(in crate::sdp) fn reserve(&mut self, sk: Sk, size: u32) -> Result {
        let wanted = IDLE_RECEIVES * size;
        let more = wanted.saturating_sub(self.guaranteed);
        if !sk.rmem_charge(more) {
            return Err(ENOBUFS);
        }
        self.guaranteed = wanted;
        self.reserve += more;
        Ok(())
    }

    /// Reduces the guaranteed memory to receives of `size` bytes, and uncharges the excess.
    pub(in crate::sdp) fn release_reserve(&mut self, sk: Sk, size: u32) {
        self.guaranteed = IDLE_RECEIVES * size;
        let spare = self.reserve.saturating_sub(self.guaranteed);
        self.reserve -= spare;
        sk.rmem_uncharge(spare);
    }

    /// Uncharges the part of the reserve that other memory of the connection now replaces. While
    /// receives shrink, uncharges nothing, because the other memory will be freed.
    pub(in crate::sdp) fn trim_reserve(&mut self, sk: Sk) {
        if self.receives.is_shrinking() {
            return;
        }
        let spare = self.reserve.min(sk.rmem().saturating_sub(self.guaranteed));
        self.reserve -= spare;
        sk.rmem_uncharge(spare);
    }

    /// Charges `bytes` bytes for a receive; returns `false` if there is no room for them.
    pub(in crate::sdp) fn charge(&mut self, sk: Sk, bytes: u32) -> bool {
        if self.reserve >= bytes {
            self.reserve -= bytes;
            return true;
        }
        sk.rmem_charge(bytes)
    }

    /// Uncharges received bytes, or keeps their charge for future receives of `link`.
    pub(in crate::sdp) fn release(&mut self, sk: Sk, link: &Option<Link>, bytes: u32) {
        let covered = if self.receives.is_shrinking() {
            let posted = link.as_ref().map_or(0, Link::receives_posted);
            // The larger receives will be used up, and will not be posted again.
            let small = posted.saturating_sub(self.receives.larger_left());
            self.reserve + small * self.receives.bytes()
        } else {
            sk.rmem() - bytes
        };
        let kept = bytes.min(self.guaranteed.saturating_sub(covered));
        self.reserve += kept;
        sk.rmem_uncharge(bytes - kept);
    }
}
