// SPDX-License-Identifier: GPL-2.0

//! The features and limits that this side announces when a connection is set up.

use crate::inet::netns::Net;
use crate::inet::sysctl::Setting;
use crate::params::ADVERTS;
use crate::proto::hello::Features;

/// The features of this side, if the adapter supports them.
pub(crate) const FEATURES: Features = Features::SOURCE
    .union(Features::ORDERED)
    .union(Features::SINK)
    .union(Features::REMOTE_INV)
    .union(Features::SHRINK);

/// The maximum number of outstanding adverts of each side of a connection in the namespace.
pub(super) fn max_adverts_of(net: Net<'_>) -> u8 {
    net.settings()
        .get(Setting::MaxAdverts)
        .clamp(1, ADVERTS as i32) as u8
}
