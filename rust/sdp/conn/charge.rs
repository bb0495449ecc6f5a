// SPDX-License-Identifier: GPL-2.0

//! What receives are charged for: the socket's receive buffer and the memory of all sockets.

use kernel::pr_warn_once;
use kernel::prelude::*;

use super::connection::{
    IDLE_RECEIVES,
    LEAST_BYTES,
    SMALL_BYTES, //
};
use super::guard::SockGuard;
use crate::inet::memory;
use crate::kern::errno::ENOBUFS;
use crate::proto::resize::OwnReceives;

impl SockGuard<'_> {
    /// Charges the receives that a new connection begins with; returns the size of each.
    ///
    /// # Errors
    ///
    /// `ENOBUFS`.
    pub(in crate::sdp) fn reserve_first_receives(&mut self) -> Result<u32> {
        let size = if memory::is_ample() {
            SMALL_BYTES
        } else {
            LEAST_BYTES
        };
        self.conn().ring.receives = OwnReceives::new(size);
        if let Err(e) = self.reserve_receives(size) {
            pr_warn_once!("mem: the sockets use all of it, new connections are refused\n");
            return Err(e);
        }
        Ok(size)
    }

    /// Charges the least that a connection needs, so that later nothing can take it away.
    ///
    /// # Errors
    ///
    /// `ENOBUFS`.
    pub(crate) fn reserve_receives(&mut self, size: u32) -> Result {
        let wanted = IDLE_RECEIVES * size;
        let more = wanted.saturating_sub(self.conn().ring.guaranteed);
        if !self.sk().rmem_charge(more) {
            return Err(ENOBUFS);
        }
        let conn = self.conn();
        conn.ring.guaranteed = wanted;
        conn.ring.reserve += more;
        Ok(())
    }

    /// A connection needs only receives of `size` bytes from now on: gives back what is too much.
    pub(in crate::sdp) fn release_reserve(&mut self, size: u32) {
        let ring = &mut self.conn().ring;
        ring.guaranteed = IDLE_RECEIVES * size;
        let spare = ring.reserve.saturating_sub(ring.guaranteed);
        ring.reserve -= spare;
        self.sk().rmem_uncharge(spare);
    }

    /// Gives back what of the reserve other memory of the connection stands for by now. While receives
    /// shrink, that memory goes away.
    pub(in crate::sdp) fn trim_reserve(&mut self) {
        let charged = self.sk().rmem();
        let ring = &mut self.conn().ring;
        if ring.receives.is_shrinking() {
            return;
        }
        let spare = ring.reserve.min(charged.saturating_sub(ring.guaranteed));
        ring.reserve -= spare;
        self.sk().rmem_uncharge(spare);
    }

    pub(in crate::sdp) fn charge_receive(&mut self, bytes: u32) -> bool {
        let reserve = &mut self.conn().ring.reserve;
        if *reserve >= bytes {
            *reserve -= bytes;
            return true;
        }
        self.sk().rmem_charge(bytes)
    }

    /// Gives back what is charged for received bytes, or keeps it for the receives to come.
    pub(crate) fn release_receive(&mut self, bytes: u32) {
        let charged = self.sk().rmem();
        let conn = self.conn();
        let posted = conn.link.as_ref().map_or(0, |l| l.receives_posted());
        let ring = &mut conn.ring;
        let covered = if ring.receives.is_shrinking() {
            // The larger receives go, and do not come again.
            let small = posted.saturating_sub(ring.receives.larger_left());
            ring.reserve + small * ring.receives.bytes()
        } else {
            charged - bytes
        };
        let kept = bytes.min(ring.guaranteed.saturating_sub(covered));
        ring.reserve += kept;
        self.sk().rmem_uncharge(bytes - kept);
    }
}
