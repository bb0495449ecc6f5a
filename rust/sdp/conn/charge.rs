// SPDX-License-Identifier: GPL-2.0

//! Uncharges received bytes ([`Ring`](crate::sdp::parts::ring::Ring)).

use super::guard::SockGuard;

impl SockGuard<'_> {
    /// Uncharges received bytes, or keeps their charge for future receives.
    pub(crate) fn release_receive(&mut self, bytes: u32) {
        let sk = self.sk();
        let conn = self.conn();
        conn.ring.release(sk, &conn.link, bytes);
    }
}
