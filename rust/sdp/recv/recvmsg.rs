// SPDX-License-Identifier: GPL-2.0

//! recvmsg(): from the receive queue into the program's buffers.

use core::ops::Range;

use kernel::prelude::*;

use crate::bindings;
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
    guard.note_time_used(&recv);
    if flags & bindings::MSG_PEEK != 0 {
        recv.skipped = sk.peek_offset().unwrap_or(0);
    }
    let result = guard.recv_all(&mut recv);
    if flags & bindings::MSG_PEEK == 0 && guard.generation() == recv.began {
        sk.peek_backward(recv.copied);
    }
    guard.finish_recv(&recv);
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

impl SockGuard<'_> {
    /// Whether the call ends with what it has.
    fn must_stop(&mut self, recv: &Recv<'_>) -> Result<bool> {
        let sk = self.sk();
        // What the peer has advertised comes before the end, and that before an error that came
        // after it.
        let comes = self.holds();
        let fin = self.conn().inq.fin_received && !comes;
        let done = sk.has_flag(bindings::sock_flags_SOCK_DONE);
        // Both sides may have ended, and the connection lives on for what comes.
        let lives = self.conn().inq.fin_received && comes;
        let ended = (sk.rcv_shutdown() || done) && !lives;
        let closed = sk.state() == bindings::TCP_CLOSE as u8 && !lives;
        if recv.copied > 0 {
            let stop =
                sk.err() != 0 || fin || ended || closed || recv.timeo.is_over() || signal_pending();
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
        recv.timeo.check()?;
        Ok(false)
    }

    /// Posts new receives for what was read, and looks at the CQ once more.
    fn finish_recv(&mut self, recv: &Recv<'_>) {
        self.reader_is_back();
        let timeless = recv.timeo.is_over() && recv.copied == 0;
        if recv.direct > 0 {
            self.forget_poller();
        }
        let conn = self.conn();
        conn.inq.polled = timeless || (conn.inq.polled && recv.direct == 0);
        let took = recv.copied > 0 || !recv.hole.is_empty();
        if took && !recv.is(bindings::MSG_PEEK) {
            let copied = recv.copied - recv.direct;
            if self.generation() == recv.began {
                self.count(Kept::RxCopiedBytes, copied as u64);
            } else {
                self.stats.add(Counter::RxCopiedBytes, copied as u64);
            }
            self.refill();
            self.flush();
        }
        self.pull();
        self.poll_cq();
    }
}

impl SockOwner<'_> {
    fn recv_all(&mut self, recv: &mut Recv<'_>) -> Result {
        loop {
            self.await_turn(Access::Write, recv.began, &mut recv.timeo)?;
            if self.ends_at_mark(recv)? {
                return Ok(());
            }
            if let Some(missing) = self.copy_out(recv) {
                self.fault_in(&mut recv.iter, missing)?;
                continue;
            }
            if self.ends_at_mark(recv)? {
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
                if self.may_read_directly(recv) && self.read_early(recv)? {
                    continue;
                }
                return Ok(());
            }
            // Its buffer may be among what adapters have finished with.
            if self.direct_room(recv) > 0 && self.restore_in_turn(Access::Write) {
                continue;
            }
            if self.may_read_directly(recv) {
                if !self.read_early(recv)? {
                    self.read_directly(recv)?;
                }
                continue;
            }
            // The queue is empty (or, for a peek, all of it was seen): perhaps the CQ has more.
            let before = self.conn().inq.queue.bytes();
            self.poll_cq();
            if self.conn().inq.queue.bytes() > before || self.may_read_directly(recv) {
                continue;
            }
            if self.must_stop(recv)? {
                return Ok(());
            }
            // What was read makes room; the peer may wait for just that.
            self.refill();
            if self.may_offer(recv) {
                self.offer(recv)?;
                continue;
            }
            self.reader_waits(recv);
            self.note_wait();
            self.flush();
            self.conn().ring.spares.clear();
            self.wait_and_poll(&mut recv.timeo);
            self.reader_is_back();
            // As with TCP, neither the time nor a signal is an error for who wants nothing and has waited.
            if recv.len == 0 && (recv.timeo.is_over() || signal_pending()) {
                return Ok(());
            }
        }
    }
}
