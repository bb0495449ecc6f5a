// SPDX-License-Identifier: GPL-2.0

//! When the watch over what was sent begins. `timers/tx_watchdog` has what it does.

use super::guard::SockGuard;
use super::sock::{
    Alarm,
    SdpSock, //
};
use crate::sdp::parts::watch::{
    Watch,
    WATCH_MS, //
};

impl Watch {
    /// Has somebody notice a send that fails, or is not acknowledged, while the program waits.
    ///
    /// The notification that is armed then is that of messages received. By the specification a
    /// failure counts as one, but soft-RoCE does not tell of failed sends; and how often an adapter
    /// tries is up to the side that connected, and may be without end.
    pub(in crate::sdp) fn begin(&mut self, sock: &SdpSock) {
        if !core::mem::replace(&mut self.running, true) {
            sock.start_timer(Alarm::Watch, WATCH_MS);
        }
    }
}

impl SockGuard<'_> {
    /// [`Watch::begin`].
    pub(crate) fn watch_sends(&mut self) {
        let sock = self.sock();
        self.conn().liveness.watch.begin(sock);
    }
}
