// SPDX-License-Identifier: GPL-2.0

//! Starts the transmit watchdog. `timers/tx_watchdog` handles the expiry of its timer.

use super::guard::SockGuard;
use super::sock::{
    Alarm,
    SdpSock, //
};
use crate::proto::watchdog::{
    Watchdog,
    WATCH_MS, //
};

/// Starts the transmit watchdog, which notices messages that fail or are not acknowledged while the
/// program waits.
///
/// Meanwhile, only the notification for received messages may be armed. By the specification, it
/// also reports failures, but soft-RoCE does not report failed sends. Moreover, the number of
/// retries of the adapter is chosen by the side that connected, and may be unlimited.
pub(in crate::sdp) fn begin(watch: &mut Watchdog, sock: &SdpSock) {
    if !core::mem::replace(&mut watch.running, true) {
        sock.start_timer(Alarm::Watch, WATCH_MS);
    }
}

impl SockGuard<'_> {
    /// [`begin`].
    pub(crate) fn watch_sends(&mut self) {
        let sock = self.sock();
        begin(&mut self.conn().liveness.watch, sock);
    }
}
