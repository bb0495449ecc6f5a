// SPDX-License-Identifier: GPL-2.0

//! What both sides can do, as they agree when the connection is set up.

use crate::inet::netns::Net;
use crate::inet::sysctl::Setting;
use crate::params::ADVERTS;
use crate::proto::hello::Features;
use crate::sdp::conn::guard::SockGuard;
use crate::sdp::parts::adverts::Adverts;
use crate::sdp::parts::counts::Counts;

/// What we can do if the adapter can.
pub(crate) const FEATURES: Features = Features::SOURCE
    .union(Features::ORDERED)
    .union(Features::SINK)
    .union(Features::REMOTE_INV)
    .union(Features::SHRINK);

/// Adverts that a connection of the namespace has out, and has the peer have out, at a time.
pub(super) fn max_adverts_of(net: Net<'_>) -> u8 {
    net.settings()
        .get(Setting::MaxAdverts)
        .clamp(1, ADVERTS as i32) as u8
}

impl SockGuard<'_> {
    /// Both sides agreed on `features`; the peer holds `theirs` adverts, and we `ours`.
    pub(super) fn agree(&mut self, features: Features, theirs: u8, ours: u8) {
        let conn = self.conn();
        conn.adverts = Adverts::new(features, theirs, ours);
        conn.measured.counts = Counts {
            messages: conn.measured.counts.messages.take(),
            ..Counts::new()
        };
    }
}
