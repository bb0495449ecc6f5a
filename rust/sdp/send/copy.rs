// SPDX-License-Identifier: GPL-2.0

//! Copies bytes from the program to the send queue.

use kernel::prelude::*;

use super::sendmsg::Send;
use crate::inet::sock::charge::MIN_BUFFER_BYTES;
use crate::kern::errno::ENOBUFS;
use crate::mm::page_frag::PageFrag;
use crate::proto::bsdh::BSDH_LEN_U32;
use crate::rdma::receive::PART_BYTES;
use crate::sdp::conn::guard::SockOwner;
use crate::sdp::output::Output;
use crate::stats::tally::Kept;

/// With fewer fragments than this in the send queue, bytes are copied to the task's page, however
/// short the fragments are.
const FRAGS_FROM_TASK: usize = 16;
/// Otherwise the task's page is used only if the fragments have at least this many bytes on
/// average.
const LONG_FRAG_BYTES: usize = 16384;

/// Copies a program's bytes to the send queue.
///
/// # Invariants
///
/// This thread owns the lock of the socket.
pub(super) struct Copier<'a>(Output<'a>);

impl<'a> Copier<'a> {
    /// The copier of a socket whose lock this thread owns as long as the value exists.
    pub(super) fn of(owner: &'a mut SockOwner<'_>) -> Self {
        // INVARIANT: The owner is borrowed, and gives the lock back only by methods that borrow it
        // mutably.
        Self(Output::of(owner))
    }

    /// Whether to copy to the socket's own page, because many short fragments wait. The task's page
    /// is filled best; but if a program sends on many sockets by turns, each byte could keep a
    /// whole page in use.
    fn needs_own_page(&self) -> bool {
        let tx = &self.0.out.queue;
        tx.len() >= FRAGS_FROM_TASK && (tx.bytes() as usize) < tx.len() * LONG_FRAG_BYTES
    }

    /// Copies as many bytes as fit into the current page. Returns their number; 0 if a page of the
    /// program is not present.
    pub(super) fn copy_some(&mut self, send: &mut Send<'_>) -> Result<usize> {
        let sock = self.0.sock;
        let (sk, glance) = (sock.sk(), &sock.glance);
        self.0
            .out
            .queue
            .change(&glance.notsent, |tx| tx.reserve(1, GFP_KERNEL))
            .map_err(|_| ENOBUFS)?;
        let left = match send.by_copy {
            0 => send.iter.len(),
            // The bytes behind these go another way.
            bytes => send.iter.len().min(bytes),
        };
        let own = self.needs_own_page();
        // SAFETY: By the type invariant this thread owns the lock until the function returns.
        let mut page = unsafe {
            if own {
                PageFrag::of_socket(sk)
            } else {
                PageFrag::of_task(sk)
            }
        };
        // The first of several pages is a new one: otherwise the message has one more fragment.
        if self.0.out.queue.is_empty() && left >= page.page_bytes() {
            page.leave_page();
        }
        let room = page.refill().ok_or(ENOBUFS)?;
        let limit = self.0.message_limit();
        let room = if self.0.out.queue.bytes() as usize + left > limit as usize {
            // Each page leaves room for its share of the message's header, so that whole pages make
            // whole messages ([`crate::proto::policy::message_bytes`]).
            let header_share = BSDH_LEN_U32.div_ceil((limit / PART_BYTES).max(1));
            room - header_share.min(room / 2)
        } else {
            room
        };
        let want = left.min(room as usize).min(sk.sndbuf() as usize);
        let admitted = sk.wmem_admit(want as u32) as usize;
        if admitted == 0 {
            let sndbuf = (sk.wmem_queued() / 2).max(MIN_BUFFER_BYTES);
            glance.refused_sndbuf.set(sndbuf);
            return Err(ENOBUFS);
        }
        if admitted == want {
            glance.refused_sndbuf.set(0);
        }
        let Some(copied) = page.copy_from_iter(admitted, &mut send.iter) else {
            return Ok(0);
        };
        let len = copied.len();
        sk.wmem_charge(len);
        let counts = &mut self.0.measured.counts;
        counts.add(sock.stats, Kept::TxCopiedBytes, len.into());
        let pushed = self.0.out.queue.change(&glance.notsent, |tx| {
            if tx.grow_last(None, |last| copied.join_to(last)) {
                return Ok(());
            }
            // The place was reserved.
            tx.push(copied.into_frag(), 0)
        });
        pushed.map_err(|_| ENOBUFS)?;
        Ok(len as usize)
    }
}
