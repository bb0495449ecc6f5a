// SPDX-License-Identifier: GPL-2.0

//! What both sides can do, as they agree when the connection is set up.

use crate::inet::netns::Net;
use crate::inet::sysctl::Setting;
use crate::params::ADVERTS;
use crate::proto::hello::Features;

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
