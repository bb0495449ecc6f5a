// SPDX-License-Identifier: GPL-2.0

//! From the receive queue to the program.

use super::recvmsg::Recv;
use crate::bindings;
use crate::sdp::conn::guard::SockGuard;

impl SockGuard<'_> {
    /// Copies what the queue has; returns how many bytes of the program's memory are missing, if it
    /// ends because of them.
    pub(super) fn copy_out(&mut self, recv: &mut Recv<'_>) -> Option<usize> {
        if recv.is(bindings::MSG_PEEK) {
            return self.peek(recv);
        }
        while recv.copied < recv.len {
            let want = (recv.len - recv.copied).min(u32::MAX as usize) as u32;
            let front = self.conn().inq.queue.front()?;
            let want = want.min(front.len());
            let got = if recv.is(bindings::MSG_TRUNC) {
                want
            } else {
                front.copy_to_iter(0, want, &mut recv.iter)
            };
            recv.copied += got as usize;
            if got > 0 {
                let glance = &self.sock().glance;
                let rx = &mut self.conn().inq.queue;
                if let Some((frag, truesize)) = rx.change(&glance.unread, |rx| rx.consume(got)) {
                    self.conn().ring.spares.put(frag);
                    self.release_receive(truesize);
                }
            }
            if got < want {
                return Some((want - got) as usize);
            }
        }
        None
    }

    /// Copies what lies behind the bytes that this call has skipped or already copied, and takes nothing.
    fn peek(&mut self, recv: &mut Recv<'_>) -> Option<usize> {
        let mut skip = recv.skipped + recv.copied;
        let count = self.conn().inq.queue.len();
        for i in 0..count {
            let frag = self.conn().inq.queue.get(i)?;
            let len = frag.len() as usize;
            if skip >= len {
                skip -= len;
                continue;
            }
            let want = (len - skip).min(recv.len - recv.copied);
            if want == 0 {
                break;
            }
            let got = if recv.is(bindings::MSG_TRUNC) {
                want
            } else {
                frag.copy_to_iter(skip as u32, want as u32, &mut recv.iter) as usize
            };
            recv.copied += got;
            self.sk().peek_forward(got);
            if got < want {
                return Some(want - got);
            }
            skip = 0;
        }
        None
    }
}
