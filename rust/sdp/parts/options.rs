// SPDX-License-Identifier: GPL-2.0

//! The options of a socket.

use crate::inet::sysctl::{
    Setting,
    Settings, //
};
use crate::proto::choice::Wanted;

/// What the user has set, but for what calls look at without the lock: that is in
/// [`Glance`](super::glance::Glance).
#[derive(Copy, Clone)]
pub(crate) struct Options {
    pub(crate) nodelay: bool,
    pub(crate) cork: bool,
    pub(crate) keepidle_s: i32,
    pub(crate) keepintvl_s: i32,
    pub(crate) keepcnt: i32,
    pub(crate) user_timeout_ms: i32,
    /// The size that the send buffer began with.
    pub(crate) sndbuf_bytes: i32,
    /// The least bytes of a send without a copy; 0 for none.
    pub(crate) zcopy_thresh_bytes: i32,
    /// The way that sends go.
    pub(crate) wanted: Wanted,
    /// Who writes to memory that a send still needs waits, instead of having a copy.
    pub(crate) blocks: bool,
}

impl Options {
    /// Of a new socket of a namespace with these settings.
    pub(in crate::sdp) fn new(settings: &Settings) -> Self {
        let wanted = Wanted::from_number(settings.get(Setting::ZcopyMode));
        Self {
            nodelay: false,
            cork: false,
            keepidle_s: settings.get(Setting::KeepaliveTime),
            keepintvl_s: settings.get(Setting::KeepaliveIntvl),
            keepcnt: settings.get(Setting::KeepaliveProbes),
            user_timeout_ms: 0,
            sndbuf_bytes: settings.get(Setting::WmemDefault),
            zcopy_thresh_bytes: settings.get(Setting::ZcopyThresh),
            wanted: wanted.unwrap_or(Wanted::Automatic),
            blocks: settings.get(Setting::FaultPolicy) == 1,
        }
    }
}
