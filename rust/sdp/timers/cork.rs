// SPDX-License-Identifier: GPL-2.0

//! Partial messages that a program holds back go after some time all the same ([`Locked::flush`] starts the
//! timer).

use crate::sdp::conn::guard::Locked;
use crate::sdp::parts::send_queue::HeldBack;

impl Locked<'_> {
    /// The time of [`Locked::limit_hold`] has come.
    pub(crate) fn end_hold(&mut self) {
        if self.stream().out.held_back == HeldBack::Timed {
            self.stream().out.held_back = HeldBack::TooLong;
            self.flush();
            self.settle();
        }
    }
}
