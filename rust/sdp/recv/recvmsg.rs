// SPDX-License-Identifier: GPL-2.0

//! recvmsg(): fills the program's buffers from the receive queue, or without a copy.

use kernel::prelude::*;
use kernel::time::Delta;

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
use crate::kern::time::{
    RealNs,
    Timeout, //
};
use crate::proto::half::Generation;
use crate::proto::state::State;
use crate::sdp::conn::guard::{
    SockGuard,
    SockOwner, //
};
use crate::sdp::conn::sock::SdpSock;
use crate::sdp::cq::poll::{
    poll_messages_if_due,
    wait_and_poll, //
};
use crate::sdp::flush::flush;
use crate::sdp::parts::recv_queue::RecvQueue;
use crate::sdp::reclaim::restore_in_turn;
use crate::sdp::rx::reads::pull;
use crate::sdp::rx::Receiver;
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;

/// The ways of receiving without a copy that the call must not use, or must not use any more.
pub(super) struct Excluded {
    /// Reads into the program's memory.
    pub(super) reads: bool,
    /// Reads into the program's memory for which the call does not wait.
    pub(super) early_reads: bool,
    /// Adverts of the program's memory.
    pub(super) adverts: bool,
}

/// One call of recvmsg().
pub(super) struct Recv<'a> {
    pub(in crate::sdp) began: Generation,
    pub(in crate::sdp) iter: Iov<'a, Dest>,
    pub(in crate::sdp) len: usize,
    flags: u32,
    pub(in crate::sdp) timeo: Timeout,
    /// The call returns as soon as it has this many bytes.
    pub(super) target: usize,
    /// Bytes given to the program, and the number of these that came without a copy.
    pub(in crate::sdp) copied: usize,
    pub(super) direct: usize,
    /// When the last of these bytes arrived, if the program asks for the time and it is known.
    arrived: Option<RealNs>,
    /// With MSG_PEEK: the position in the stream of the next byte that the call looks at. While the
    /// call waits, other calls may take bytes up to this position and beyond.
    peek_place: u64,
    /// The call has skipped an urgent byte.
    pub(super) has_skipped: bool,
    pub(super) excluded: Excluded,
    /// The call has enough bytes to return.
    pub(super) has_enough: bool,
    /// The receive queue has the room of this call's buffer ([`RecvQueue::reader_bytes`]).
    is_reader: bool,
    /// The time that the call needed to take pages away for the Reads for which the call does not
    /// wait; `None` if the call has posted no such Read.
    pub(super) taking: Option<Delta>,
}

impl Recv<'_> {
    pub(super) fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Records the room of the call's buffer for a Read while the call waits for bytes or takes
    /// them, so that the bytes are not read into the kernel's memory.
    pub(super) fn set_room(&mut self, guard: &mut SockGuard<'_>, room: Option<usize>) {
        self.is_reader = room.is_some();
        guard.conn().inq.reader_bytes = room;
    }

    /// The number of bytes between the `taken` bytes of the stream and the position of the call.
    pub(super) fn ahead(&self, taken: u64) -> usize {
        if self.is(bindings::MSG_PEEK) {
            self.peek_place.saturating_sub(taken) as usize
        } else {
            0
        }
    }

    /// Counts `bytes` that have come to the program's memory without a copy, while the call waited
    /// for them.
    pub(super) fn got_direct(&mut self, guard: &mut SockGuard<'_>, bytes: usize) {
        if bytes > 0 {
            let arrived = guard.conn().inq.direct_arrived.take();
            self.count_direct(guard, bytes, arrived);
        }
    }

    /// Counts `bytes` that will come to the program's memory after the call has returned. Their time
    /// is the present.
    pub(super) fn promised_direct(&mut self, guard: &mut SockGuard<'_>, bytes: usize) {
        let arrived = guard.sk().arrival_time();
        self.count_direct(guard, bytes, arrived);
    }

    fn count_direct(&mut self, guard: &mut SockGuard<'_>, bytes: usize, arrived: Option<RealNs>) {
        if guard.generation() == self.began {
            guard.sk().peek_backward(bytes);
        }
        self.copied += bytes;
        self.direct += bytes;
        self.note_arrival(arrived);
    }

    /// Records when the last byte of the call arrived. As with TCP, bytes without a time leave the
    /// time of the bytes before them.
    pub(super) fn note_arrival(&mut self, arrived: Option<RealNs>) {
        self.arrived = arrived.or(self.arrived);
    }

    /// Moves a call with MSG_PEEK forward by `bytes`, from the `taken` bytes of the stream if other
    /// calls have taken bytes beyond its position.
    pub(super) fn peek_forward(&mut self, taken: u64, bytes: usize) {
        self.peek_place = self.peek_place.max(taken).saturating_add(bytes as u64);
    }

    /// Whether the call ends with the bytes that it has; `inq` has no more bytes for it. `comes`
    /// says that the stream continues with bytes of the peer's adverts.
    fn must_stop(&self, sk: Sk, inq: &RecvQueue, comes: bool) -> Result<bool> {
        // Advertised bytes come before the end of the stream, and the end comes before an error
        // that has occurred after it.
        let fin = inq.fin_received && !comes;
        let done = sk.has_flag(bindings::sock_flags_SOCK_DONE);
        // Even if both sides have ended the stream, the connection lives on for the advertised
        // bytes.
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

/// What a receive returns.
pub(crate) struct Received {
    /// The number of bytes, 0 at the end of the stream.
    pub(crate) bytes: usize,
    /// When the last byte arrived, if the program has asked for the time and it is known.
    pub(crate) arrived: Option<RealNs>,
}

/// Receives up to `len` bytes into `iter`.
///
/// # Errors
///
/// As `man 2 recv`: `EAGAIN`, `EINTR` (or a restart), `EFAULT`, `ENOTCONN`, and the error that
/// ended the connection.
pub(crate) fn recvmsg(
    sock: &SdpSock,
    iter: Iov<'_, Dest>,
    len: usize,
    flags: u32,
) -> Result<Received> {
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
        peek_place: 0,
        has_skipped: false,
        direct: 0,
        arrived: None,
        excluded: Excluded {
            reads: false,
            early_reads: false,
            adverts: false,
        },
        has_enough: false,
        is_reader: false,
        taking: None,
    };
    note_next_call(guard.conn(), &recv);
    if flags & bindings::MSG_PEEK != 0 {
        let offset = sk.peek_offset().unwrap_or(0);
        recv.peek_forward(guard.conn().inq.urgent.taken(), offset);
    }
    let result = recv.recv_all(&mut guard);
    finish(&mut guard, &recv);
    match result {
        Err(e) if recv.copied == 0 => Err(e),
        _ => Ok(Received {
            bytes: recv.copied,
            arrived: recv.arrived,
        }),
    }
}

/// The number of bytes that can be received at once, as `tcp_inq_hint()`; 1 at the end of the
/// stream, where a receive returns 0 bytes. Does not take the lock.
pub(crate) fn bytes_left(sock: &SdpSock) -> u32 {
    match sock.glance.unread.get() {
        0 => sock.sk().has_flag(bindings::sock_flags_SOCK_DONE).into(),
        bytes => bytes,
    }
}

/// Posts new receives in place of those that were read, and handles messages that have come
/// meanwhile.
fn finish(guard: &mut SockGuard<'_>, recv: &Recv<'_>) {
    let timeless = recv.timeo.is_over() && recv.copied == 0;
    if recv.direct > 0 {
        guard.forget_poller();
        note_return(guard.conn(), recv);
    }
    if timeless {
        guard.note_empty_read();
    }
    if recv.is_reader {
        guard.conn().inq.reader_bytes = None;
    }
    let took = recv.copied > 0 || recv.has_skipped;
    if took && !recv.is(bindings::MSG_PEEK) {
        let copied = recv.copied - recv.direct;
        if guard.generation() == recv.began {
            guard.count(Kept::RxCopiedBytes, copied as u64);
        } else {
            guard.stats.add(Counter::RxCopiedBytes, copied as u64);
        }
        give_room(guard);
    }
    pull(guard);
    poll_messages_if_due(guard);
}

/// Posts receives after bytes were read, and sends what has become possible. Without new receives
/// and without adverts, no message has.
fn give_room(guard: &mut SockGuard<'_>) {
    if Receiver::of(guard).refill() || guard.conn().adverts.are_used() {
        flush(guard);
    }
}

impl Recv<'_> {
    fn recv_all(&mut self, guard: &mut SockOwner<'_>) -> Result {
        loop {
            guard.await_turn(Access::Write, self.began, &mut self.timeo)?;
            if Reader::of(guard).ends_at_mark(self)? {
                return Ok(());
            }
            if let Some(missing) = Reader::of(guard).copy_out(self) {
                guard.fault_in(&mut self.iter, missing)?;
                continue;
            }
            if Reader::of(guard).ends_at_mark(self)? {
                return Ok(());
            }
            if self.len == 0 {
                // As with TCP, the call has the time of the bytes for which it has waited.
                let first = guard.conn().inq.queue.arrived(0);
                self.note_arrival(first);
            }
            let enough = match self.len {
                // The call wants no bytes, but as with TCP it does not return before there are
                // some.
                0 => !guard.conn().inq.queue.is_empty(),
                len => self.copied >= self.target.min(len),
            };
            if enough {
                // Bytes for which the call need not wait are received, too: if the buffer does not
                // begin with a page, the call may just have got the bytes up to the next page
                // boundary.
                self.has_enough = true;
                if may_read_directly(guard, self) && self.read_early(guard)? {
                    continue;
                }
                return Ok(());
            }
            // Pages of the buffer may belong to a former transfer that has finished: give them back
            // first.
            if self.direct_room() > 0 && restore_in_turn(guard, Access::Write) {
                continue;
            }
            if may_read_directly(guard, self) {
                if !self.read_early(guard)? {
                    self.read_directly(guard)?;
                }
                continue;
            }
            // The queue is empty (or, for a peek, all of it was seen): perhaps the CQ has more.
            let before = guard.conn().inq.queue.bytes();
            poll_messages_if_due(guard);
            if guard.conn().inq.queue.bytes() > before || may_read_directly(guard, self) {
                continue;
            }
            let (sk, conn) = (guard.sk(), guard.conn());
            if self.must_stop(sk, &conn.inq, conn.adverts.holds())? {
                return Ok(());
            }
            // The bytes that were read make room for receives; the peer may be waiting for these.
            let has_posted = Receiver::of(guard).refill();
            if Direct::of(guard).may_offer(self) {
                self.offer(guard)?;
                continue;
            }
            reader_waits(guard, self);
            note_wait(guard.conn(), self);
            if has_posted || guard.conn().adverts.are_used() {
                flush(guard);
            }
            guard.conn().ring.spares.clear();
            wait_and_poll(guard, &mut self.timeo);
            self.set_room(guard, None);
            // As with TCP: a receive of no bytes that has waited ends without an error. The error
            // is left to the next call.
            let sk = guard.sk();
            if self.len == 0 && (self.timeo.is_over() || signal_pending() || sk.err() != 0) {
                return Ok(());
            }
        }
    }
}
