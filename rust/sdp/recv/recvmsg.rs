// SPDX-License-Identifier: GPL-2.0

//! recvmsg(): from the receive queue into the program's buffers.

use core::ops::Range;

use kernel::prelude::*;

use super::read_async::{
    note_next_call,
    note_return,
    note_wait, //
};
use super::read_zcopy::{
    may_read_directly,
    reader_waits, //
};
use super::{
    Direct,
    Reader, //
};
use crate::bindings;
use crate::inet::sock::Sk;
use crate::kern::errno::ENOTCONN;
use crate::kern::iov::{
    Access,
    Dest,
    Iov, //
};
use crate::kern::signal::signal_pending;
use crate::kern::time::Timeout;
use crate::proto::state::State;
use crate::sdp::conn::guard::{
    SockGuard,
    SockOwner, //
};
use crate::sdp::conn::half::Generation;
use crate::sdp::conn::sock::SdpSock;
use crate::sdp::cq::poll::poll_cq_if_due;
use crate::sdp::flush::flush;
use crate::sdp::parts::recv_queue::RecvQueue;
use crate::sdp::rx::reads::pull;
use crate::sdp::rx::Receiver;
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;

/// One call of recvmsg().
pub(super) struct Recv<'a> {
    pub(in crate::sdp) began: Generation,
    pub(in crate::sdp) iter: Iov<'a, Dest>,
    pub(in crate::sdp) len: usize,
    flags: u32,
    pub(in crate::sdp) timeo: Timeout,
    /// Return as soon as there are so many bytes.
    pub(super) target: usize,
    /// Bytes given to the program, and those of them without a copy.
    pub(in crate::sdp) copied: usize,
    pub(super) direct: usize,
    /// Of MSG_PEEK: bytes before those that are looked at (SO_PEEK_OFF).
    pub(super) skipped: usize,
    /// Places of the urgent bytes that the call has skipped: while it waits, an urgent byte may follow another
    /// one.
    hole: Range<u64>,
    /// The program's memory cannot be read into.
    pub(in crate::sdp) by_copy: bool,
    /// It can, but the call must wait for that.
    pub(in crate::sdp) awaited: bool,
    /// The call does not advertise its memory (any more).
    pub(super) no_offer: bool,
    /// It could return.
    pub(super) has_enough: bool,
}

impl Recv<'_> {
    pub(super) fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Bytes between the `taken` bytes of the stream and the place where the call is.
    pub(super) fn ahead(&self, taken: u64) -> usize {
        if self.is(bindings::MSG_PEEK) {
            // Without what was lost, or others have taken.
            let hole = self.hole.end.saturating_sub(self.hole.start.max(taken));
            self.skipped + self.copied + hole as usize
        } else {
            0
        }
    }

    /// Skips the urgent byte, to which the call has come with nothing.
    pub(super) fn skip_urgent(&mut self, taken: u64) {
        let place = taken.saturating_add(self.ahead(taken) as u64);
        self.hole = taken.saturating_add(self.skipped as u64)..place.saturating_add(1);
    }

    /// Whether the call ends with what it has: nothing is left of `inq`. `comes` says that there is something
    /// behind what was received.
    fn must_stop(&self, sk: Sk, inq: &RecvQueue, comes: bool) -> Result<bool> {
        // What the peer has advertised comes before the end, and that before an error that came
        // after it.
        let fin = inq.fin_received && !comes;
        let done = sk.has_flag(bindings::sock_flags_SOCK_DONE);
        // Both sides may have ended, and the connection lives on for what comes.
        let lives = inq.fin_received && comes;
        let ended = (sk.rcv_shutdown() || done) && !lives;
        let closed = sk.state() == bindings::TCP_CLOSE as u8 && !lives;
        if self.copied > 0 {
            let stop =
                sk.err() != 0 || fin || ended || closed || self.timeo.is_over() || signal_pending();
            return Ok(stop);
        }
        if fin {
            return Ok(true);
        }
        if sk.err() != 0 {
            sk.take_err()?;
        }
        if ended {
            return Ok(true);
        }
        if closed {
            return Err(ENOTCONN);
        }
        self.timeo.check()?;
        Ok(false)
    }
}

/// Receives up to `len` bytes into `iter`; returns how many, 0 at the end of the stream.
///
/// # Errors
///
/// As `man 2 recv`: `EAGAIN`, `EINTR` (or a restart), `EFAULT`, `ENOTCONN`, and what ended the connection.
pub(crate) fn recvmsg(
    sock: &SdpSock,
    iter: Iov<'_, Dest>,
    len: usize,
    flags: u32,
) -> Result<usize> {
    let mut guard = sock.lock();
    if matches!(guard.conn().state, State::Listen) {
        return Err(ENOTCONN);
    }
    let sk = sock.sk();
    let mut timeo = sk.rcvtimeo(flags & bindings::MSG_DONTWAIT != 0);
    guard.await_next(&mut timeo)?;
    let mut recv = Recv {
        began: guard.generation(),
        iter,
        len,
        flags,
        timeo,
        target: sk.rcvlowat(flags & bindings::MSG_WAITALL != 0, len),
        copied: 0,
        skipped: 0,
        hole: 0..0,
        direct: 0,
        by_copy: false,
        awaited: false,
        no_offer: false,
        has_enough: false,
    };
    note_next_call(guard.conn(), &recv);
    if flags & bindings::MSG_PEEK != 0 {
        recv.skipped = sk.peek_offset().unwrap_or(0);
    }
    let result = guard.recv_all(&mut recv);
    if flags & bindings::MSG_PEEK == 0 && guard.generation() == recv.began {
        sk.peek_backward(recv.copied);
    }
    finish(&mut guard, &recv);
    match result {
        Err(e) if recv.copied == 0 => Err(e),
        _ => Ok(recv.copied),
    }
}

/// Bytes that can be received at once, without the lock, as `tcp_inq_hint()`; 1 at the end of the stream,
/// which is received as no byte.
pub(crate) fn bytes_left(sock: &SdpSock) -> u32 {
    match sock.glance.unread.get() {
        0 => sock.sk().has_flag(bindings::sock_flags_SOCK_DONE).into(),
        bytes => bytes,
    }
}

/// Posts new receives for what was read, and looks at the CQ once more.
fn finish(guard: &mut SockGuard<'_>, recv: &Recv<'_>) {
    let timeless = recv.timeo.is_over() && recv.copied == 0;
    if recv.direct > 0 {
        guard.forget_poller();
        note_return(guard.conn());
    }
    let inq = &mut guard.conn().inq;
    inq.reader_bytes = None;
    inq.polled = timeless || (inq.polled && recv.direct == 0);
    let took = recv.copied > 0 || !recv.hole.is_empty();
    if took && !recv.is(bindings::MSG_PEEK) {
        let copied = recv.copied - recv.direct;
        if guard.generation() == recv.began {
            guard.count(Kept::RxCopiedBytes, copied as u64);
        } else {
            guard.stats.add(Counter::RxCopiedBytes, copied as u64);
        }
        Receiver::of(guard).refill();
        flush(guard);
    }
    pull(guard);
    poll_cq_if_due(guard);
}

impl SockOwner<'_> {
    fn recv_all(&mut self, recv: &mut Recv<'_>) -> Result {
        loop {
            self.await_turn(Access::Write, recv.began, &mut recv.timeo)?;
            if Reader::of(self).ends_at_mark(recv)? {
                return Ok(());
            }
            if let Some(missing) = Reader::of(self).copy_out(recv) {
                self.fault_in(&mut recv.iter, missing)?;
                continue;
            }
            if Reader::of(self).ends_at_mark(recv)? {
                return Ok(());
            }
            let enough = match recv.len {
                // Nothing is wanted, but as with TCP not before there is something.
                0 => !self.conn().inq.queue.is_empty(),
                len => recv.copied >= recv.target.min(len),
            };
            if enough {
                // What needs no wait is taken along: a buffer that does not begin with a page may have
                // just got the bytes up to the next one.
                recv.has_enough = true;
                if may_read_directly(self, recv) && self.read_early(recv)? {
                    continue;
                }
                return Ok(());
            }
            // Its buffer may be among what adapters have finished with.
            if recv.direct_room() > 0 && self.restore_in_turn(Access::Write) {
                continue;
            }
            if may_read_directly(self, recv) {
                if !self.read_early(recv)? {
                    self.read_directly(recv)?;
                }
                continue;
            }
            // The queue is empty (or, for a peek, all of it was seen): perhaps the CQ has more.
            let before = self.conn().inq.queue.bytes();
            poll_cq_if_due(self);
            if self.conn().inq.queue.bytes() > before || may_read_directly(self, recv) {
                continue;
            }
            let (sk, conn) = (self.sk(), self.conn());
            if recv.must_stop(sk, &conn.inq, conn.adverts.holds())? {
                return Ok(());
            }
            // What was read makes room; the peer may wait for just that.
            Receiver::of(self).refill();
            if Direct::of(self).may_offer(recv) {
                self.offer(recv)?;
                continue;
            }
            reader_waits(self, recv);
            note_wait(self.conn());
            flush(self);
            self.conn().ring.spares.clear();
            self.wait_and_poll(&mut recv.timeo);
            self.conn().inq.reader_bytes = None;
            // As with TCP: a receive of no bytes that has waited ends without an error, which is left to the
            // next call.
            let sk = self.sk();
            if recv.len == 0 && (recv.timeo.is_over() || signal_pending() || sk.err() != 0) {
                return Ok(());
            }
        }
    }
}
