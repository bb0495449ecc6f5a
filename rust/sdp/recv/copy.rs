// SPDX-License-Identifier: GPL-2.0

//! Copies bytes from the receive queue to the program.

use super::recvmsg::Recv;
use super::Reader;
use crate::bindings;
use crate::proto::urgent::Reach;

impl Reader<'_> {
    /// Copies the bytes of the queue. If pages of the program are not present, stops and returns
    /// the number of bytes that must be faulted in.
    pub(super) fn copy_out(&mut self, recv: &mut Recv<'_>) -> Option<usize> {
        if recv.is(bindings::MSG_PEEK) {
            return self.peek(recv);
        }
        while recv.copied < recv.len {
            let want = (recv.len - recv.copied).min(u32::MAX as usize) as u32;
            let want = want.min(self.inq.queue.front()?.len());
            let want = match self.reach(recv, want) {
                Reach::Bytes(bytes) => bytes,
                Reach::End => return None,
                Reach::Skip => {
                    recv.has_skipped = true;
                    self.skip_urgent();
                    continue;
                }
            };
            let front = self.inq.queue.front()?;
            let got = if recv.is(bindings::MSG_TRUNC) {
                want
            } else {
                front.copy_to_iter(0, want, &mut recv.iter)
            };
            recv.copied += got as usize;
            if got > 0 {
                recv.note_arrival(self.inq.queue.arrived(0));
                let glance = &self.sock.glance;
                let rx = &mut self.inq.queue;
                if let Some((frag, truesize)) = rx.change(&glance.unread, |rx| rx.consume(got)) {
                    self.ring.keep(frag);
                    self.release(truesize);
                }
                self.inq.taken(got, glance);
                self.sock.sk().peek_backward(got as usize);
            }
            if got == 0 {
                return Some(want as usize);
            }
        }
        None
    }

    /// Copies the bytes at the position of this call, and leaves all of them in the queue.
    fn peek(&mut self, recv: &mut Recv<'_>) -> Option<usize> {
        let taken = self.inq.urgent.taken();
        let mut skip = recv.ahead(taken);
        let mut i = 0;
        while recv.copied < recv.len {
            let len = self.inq.queue.get(i)?.len() as usize;
            if skip >= len {
                skip -= len;
                i += 1;
                continue;
            }
            let want = (len - skip).min(recv.len - recv.copied);
            let want = match self.reach(recv, want as u32) {
                Reach::Bytes(bytes) => bytes as usize,
                Reach::End => break,
                Reach::Skip => {
                    recv.peek_forward(taken, 1);
                    skip += 1;
                    continue;
                }
            };
            let frag = self.inq.queue.get(i)?;
            let got = if recv.is(bindings::MSG_TRUNC) {
                want
            } else {
                frag.copy_to_iter(skip as u32, want as u32, &mut recv.iter) as usize
            };
            recv.copied += got;
            if got > 0 {
                recv.note_arrival(self.inq.queue.arrived(i));
            }
            recv.peek_forward(taken, got);
            self.sock.sk().peek_forward(got);
            if got == 0 {
                return Some(want);
            }
            skip += got;
        }
        None
    }
}
