// SPDX-License-Identifier: GPL-2.0

//! SO_KEEPALIVE: starts the timer. `timers/keepalive` handles its expiry.

use super::guard::SockGuard;
use super::sock::Alarm;
use crate::bindings;
use crate::kern::time::{
    ms_since,
    now, //
};

impl SockGuard<'_> {
    /// Called when the connection is established.
    pub(super) fn begin_keepalive(&mut self) {
        self.conn().liveness.keepalive.on_receive(now());
        if self.sk().has_flag(bindings::sock_flags_SOCK_KEEPOPEN) {
            self.await_idle(0);
        }
    }

    /// Called when the program sets SO_KEEPALIVE, before the core changes the flag.
    pub(crate) fn set_keepalive(&mut self, on: bool) {
        if !on {
            self.stop_timer(Alarm::Keepalive);
        } else if self.conn().state.is_connected()
            && !self.sk().has_flag(bindings::sock_flags_SOCK_KEEPOPEN)
        {
            self.await_idle(0);
        }
    }

    /// Called when the program has set TCP_KEEPIDLE.
    pub(in crate::sdp) fn keepidle_set(&mut self) {
        if self.keeps_alive() && !self.conn().liveness.keepalive.is_probing() {
            let idle_ms = ms_since(self.conn().liveness.keepalive.heard());
            self.await_idle(idle_ms);
        }
    }

    pub(in crate::sdp) fn keeps_alive(&mut self) -> bool {
        let flag = self.sk().has_flag(bindings::sock_flags_SOCK_KEEPOPEN);
        flag && self.conn().state.is_connected()
    }

    /// Starts the timer for the rest of TCP_KEEPIDLE, of which `idle_ms` have passed.
    pub(in crate::sdp) fn await_idle(&mut self, idle_ms: u32) {
        let keepidle_ms = self.conn().options.keepalive_limits().idle_ms;
        self.start_timer(Alarm::Keepalive, keepidle_ms.saturating_sub(idle_ms));
    }
}
