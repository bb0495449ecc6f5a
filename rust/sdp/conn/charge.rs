// SPDX-License-Identifier: GPL-2.0

//! What calls give back of what receives are charged for ([`Ring`](crate::sdp::parts::ring::Ring)).

use super::guard::SockGuard;

impl SockGuard<'_> {
    /// Gives back what is charged for received bytes, or keeps it for the receives to come.
    pub(crate) fn release_receive(&mut self, bytes: u32) {
        let sk = self.sk();
        let conn = self.conn();
        let posted = conn.link.as_ref().map_or(0, |l| l.receives_posted());
        conn.ring.release(sk, posted, bytes);
    }
}
