// SPDX-License-Identifier: GPL-2.0

//! Partial messages that a program holds back go after some time all the same ([`crate::sdp::flush`] starts
//! the timer).

use crate::sdp::conn::guard::SockGuard;
use crate::sdp::flush::flush;
use crate::sdp::parts::send_queue::HeldBack;

impl SockGuard<'_> {
    /// The time has come.
    pub(crate) fn end_hold(&mut self) {
        if self.conn().out.held_back == HeldBack::Timed {
            self.conn().out.held_back = HeldBack::TooLong;
            flush(self);
            self.rearm_cq();
        }
    }
}
