// SPDX-License-Identifier: GPL-2.0

//! sendmsg(): sends the bytes of the program's buffers, each piece on the path chosen for it.

use kernel::prelude::*;

use super::choose::Chooser;
use super::copy::Copier;
use super::lent::Lending;
use super::timed::Timed;
use crate::bindings;
use crate::inet::memory;
use crate::kern::errno::ENOBUFS;
use crate::kern::iov::{
    Access,
    Iov,
    Source, //
};
use crate::kern::signal::signal_pending;
use crate::kern::time::Timeout;
use crate::kern::zerocopy::Request;
use crate::proto::choice::{
    Path,
    Reason, //
};
use crate::proto::half::{
    Generation,
    Halves, //
};
use crate::sdp::conn::guard::{
    SockGuard,
    SockOwner, //
};
use crate::sdp::conn::sock::SdpSock;
use crate::sdp::cq::poll::{
    poll_cq_if_due,
    rearm_cq, //
};
use crate::sdp::flush::flush;
use crate::sdp::output::Output;
use crate::sdp::parts::send_queue::{
    HeldBack,
    SendQueue, //
};
use crate::stats::counters::Counter;

/// The number of bytes that are faulted in at a time: about as many as are copied at a time.
const FAULT_BYTES: usize = 32768;

/// One call of sendmsg().
pub(in crate::sdp) struct Send<'a> {
    pub(in crate::sdp) began: Generation,
    pub(in crate::sdp) iter: Iov<'a, Source>,
    pub(in crate::sdp) flags: u32,
    /// The error in the control messages, if there is one.
    control: Result,
    /// Set if the memory needs no protection.
    pub(super) lending: Option<Lending>,
    pub(in crate::sdp) timeo: Timeout,
    /// Bytes taken from the program for good.
    pub(in crate::sdp) copied: usize,
    /// The number of bytes that go by copy before the path is chosen again.
    pub(in crate::sdp) by_copy: usize,
    /// Bytes of the whole call.
    pub(in crate::sdp) total: usize,
    /// Why the program's memory cannot be protected, if this was tried.
    pub(super) unprotectable: Option<Reason>,
    /// The next bytes could be written to the peer's memory if a reader of the peer waited and this
    /// side could write ([`Choice::awaits_sink`](crate::proto::choice::Choice::awaits_sink)).
    pub(super) lacks_sink: bool,
    /// The send has already waited for a reader of the peer.
    pub(super) sink_awaited: bool,
    /// Set if the time of the call is compared with the time of sends on other paths.
    pub(super) timed: Option<Timed>,
}

/// Sends the bytes of `iter`; returns the number of bytes taken. `request` is the notification that
/// io_uring has for the send. For MSG_FASTOPEN, `open` makes the connection first.
///
/// # Errors
///
/// As `man 2 send`: `EAGAIN`, `EINTR` (or a restart), `EFAULT`, `EPIPE` (with SIGPIPE unless
/// MSG_NOSIGNAL), and the error that ended the connection; also the error of `open`, or of the
/// control messages. As with TCP, a missing connection is reported before an error of the control
/// messages.
pub(crate) fn sendmsg(
    sock: &SdpSock,
    iter: Iov<'_, Source>,
    flags: u32,
    control: Result,
    request: Option<Request<'_>>,
    open: impl FnOnce(&mut SockOwner<'_>) -> Result,
) -> Result<usize> {
    let mut guard = sock.lock();
    let lending = Lending::of_call(&guard, flags, iter.len(), request)
        .map_err(|e| stream_error(sock, flags, e))?;
    if let Err(e) = open(&mut guard) {
        if let Some(lending) = lending {
            lending.end(0, sock.stats);
        }
        // A send that has not begun changes nothing: a message that MSG_MORE has left open stays
        // open.
        return Err(stream_error(sock, flags, e));
    }
    let nonblock = flags & bindings::MSG_DONTWAIT != 0;
    let mut send = Send {
        began: guard.generation(),
        total: iter.len(),
        // Of all messages only Data can end with an urgent byte.
        by_copy: if flags & bindings::MSG_OOB != 0 {
            iter.len()
        } else {
            0
        },
        iter,
        flags,
        control,
        lending,
        timeo: sock.sk().sndtimeo(nonblock),
        copied: 0,
        unprotectable: None,
        lacks_sink: false,
        sink_awaited: false,
        timed: None,
    };
    send.timed = Timed::of_call(&mut guard, &send);
    let result = send.send_all(&mut guard);
    finish(&mut guard, &send);
    if let Some(timed) = send.timed.take() {
        timed.end(&mut guard, &send);
    }
    if let Some(lending) = send.lending.take() {
        lending.end(send.copied, sock.stats);
    }
    match result {
        Ok(()) => Ok(send.copied),
        // If bytes were taken, their number is returned and not the error.
        Err(_) if send.copied > 0 => Ok(send.copied),
        Err(e) => Err(stream_error(sock, flags, e)),
    }
}

/// Why a send cannot take more bytes.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Lack {
    /// The send buffer is full, or too many bytes are not sent yet (TCP_NOTSENT_LOWAT).
    Room,
    /// The memory of all sockets is used up, or an allocation has failed.
    Memory,
}

/// The error to report for `e` ([`Sk::stream_error`](crate::inet::sock::Sk::stream_error)); `e`
/// itself if the program goes on with TCP.
fn stream_error(sock: &SdpSock, flags: u32, e: Error) -> Error {
    if sock.glance.is_tcp.get() {
        return e;
    }
    sock.sk().stream_error(flags, e)
}

impl Send<'_> {
    /// Marks the last byte that a send with MSG_OOB has given so far as urgent. If the send gives
    /// more bytes, a later mark replaces this one.
    fn mark_urgent(&self, out: &mut SendQueue) {
        if self.flags & bindings::MSG_OOB != 0 && self.copied > 0 {
            out.urgent.mark(out.queue.bytes());
        }
    }

    /// Leaves the last message open if the call has MSG_MORE, and the socket still has the
    /// connection for which the call began.
    fn leave_open(&self, halves: &Halves, out: &mut SendQueue) {
        if halves.generation() == self.began {
            out.more = self.flags & bindings::MSG_MORE != 0;
        }
    }
}

/// Closes the last message: the program removes the cork, or the file that was sent with MSG_MORE has
/// ended.
pub(crate) fn close_message(guard: &mut SockGuard<'_>) {
    guard.conn().out.more = false;
    flush(guard);
}

/// Sends the bytes that wait, as `__tcp_sock_set_nodelay()`: TCP_CORK and MSG_MORE hold back only
/// bytes that are sent after these are gone.
pub(in crate::sdp) fn push(guard: &mut SockGuard<'_>) {
    let out = &mut guard.conn().out;
    if !out.queue.is_empty() {
        out.held_back = HeldBack::TooLong;
    }
    flush(guard);
}

fn finish(guard: &mut SockGuard<'_>, send: &Send<'_>) {
    if guard.generation() == send.began {
        guard.note_send(send.copied);
        send.mark_urgent(&mut guard.conn().out);
    }
    let conn = guard.conn();
    send.leave_open(&conn.halves, &mut conn.out);
    flush(guard);
    if guard.awaits_send_completion() {
        rearm_cq(guard);
    }
}

impl Send<'_> {
    fn send_all(&mut self, guard: &mut SockOwner<'_>) -> Result {
        self.wait_connected(guard)?;
        if !guard.sk().snd_shutdown() {
            self.control?;
        }
        let sk = guard.sk();
        guard.conn().check_sendable(sk)?;
        self.began = guard.generation();
        poll_cq_if_due(guard);
        let conn = guard.conn();
        self.leave_open(&conn.halves, &mut conn.out);
        while self.iter.len() > 0 {
            guard.await_turn(Access::Read, self.began, &mut self.timeo)?;
            let sk = guard.sk();
            guard.conn().check_sendable(sk)?;
            let path = match self.lending {
                Some(_) if self.by_copy == 0 => Chooser::of(guard).choose_path_of_lent(self),
                Some(_) => Path::Copy,
                None => Chooser::of(guard).choose_path(self),
            };
            match path {
                Path::Copy if Chooser::of(guard).awaits_sink(self) => {
                    self.await_sink(guard)?;
                    continue;
                }
                Path::Copy => {}
                Path::SinkWrite => {
                    let before = self.copied;
                    if !self.write_ahead(guard) {
                        self.send_by_writes(guard)?;
                    }
                    self.sink_awaited &= self.copied == before;
                    // The send may have waited for the Writes, and a signal may have come
                    // meanwhile.
                    if self.iter.len() > 0 && signal_pending() {
                        return Err(self.timeo.interrupted());
                    }
                    continue;
                }
                Path::Synchronous => {
                    self.send_by_adverts(guard)?;
                    continue;
                }
                Path::Asynchronous => {
                    let before = self.copied;
                    let result = self.send_later(guard);
                    if let Some(lending) = &mut self.lending {
                        lending.add_uncopied(self.copied - before);
                    }
                    result?;
                    continue;
                }
            }
            if !self.has_space(guard)? {
                continue;
            }
            if self.ends_copy_at_piece() {
                self.fault_in(guard)?;
                continue;
            }
            match Copier::of(guard).copy_some(self) {
                Ok(0) => self.fault_in(guard)?,
                Ok(n) => {
                    self.copied += n;
                    self.by_copy = self.by_copy.saturating_sub(n);
                    if self.iter.len() == 0 {
                        // Mark the byte before a flush can send it.
                        self.mark_urgent(&mut guard.conn().out);
                    }
                    if guard.conn().out.queue.bytes() >= Output::of(guard).message_limit() {
                        flush(guard);
                    }
                }
                Err(e) if e == ENOBUFS => {
                    guard.stats.inc(Counter::NoSendMemory);
                    self.wait_memory(guard, Lack::Memory)?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Whether the copy ends with a short piece only because the bytes of the next piece may go
    /// another way, and it is not yet known whether these are accessible. With TCP, a send takes
    /// none of the bytes that are copied together with an inaccessible part.
    fn ends_copy_at_piece(&self) -> bool {
        (1..FAULT_BYTES).contains(&self.by_copy)
            && self.by_copy < self.iter.len()
            && self.by_copy == self.iter.piece_bytes()
            && self.iter.accessible() == 0
    }

    /// Faults in the bytes that are copied next.
    fn fault_in(&mut self, guard: &mut SockOwner<'_>) -> Result {
        let len = self.iter.len().min(FAULT_BYTES);
        guard.fault_in(&mut self.iter, len)
    }

    /// Waits until the socket is connected, if it is being connected.
    fn wait_connected(&mut self, guard: &mut SockOwner<'_>) -> Result {
        // As with TCP, a send of a socket that is being connected waits even if its sends will fail.
        if guard.conn().state.can_send()
            || (guard.sk().snd_shutdown() && !guard.sk().is_connecting())
        {
            return Ok(());
        }
        guard.wait_for_connection(&mut self.timeo)
    }

    /// Whether there is space in the send buffer. Otherwise makes some, if the core has made the
    /// buffer smaller, or waits for some; the caller begins anew.
    pub(super) fn has_space(&mut self, guard: &mut SockOwner<'_>) -> Result<bool> {
        if guard.sk().stream_memory_free() {
            return Ok(true);
        }
        let bytes = guard.conn().options.sndbuf_bytes;
        if memory::is_short() || !guard.sk().restore_sndbuf(bytes) {
            self.wait_memory(guard, Lack::Room)?;
        }
        Ok(false)
    }

    /// Waits until there is space in the send buffer, or memory.
    fn wait_memory(&mut self, guard: &mut SockOwner<'_>, lack: Lack) -> Result {
        guard.sk().want_space(false);
        guard.conn().out.more = false;
        // As long as something in flight will make space, a partial message is not sent: this call
        // fills it later.
        self.mark_urgent(&mut guard.conn().out);
        let connection = guard.conn().halves.memory_wait_begins();
        flush(guard);
        // The completion that makes space may have come already.
        rearm_cq(guard);
        // The completion must not wait for a polling reader to be scheduled.
        guard.leave_to_bh();
        // If the call had to wait for TCP_NOTSENT_LOWAT only, the flush may have sent enough bytes.
        // Then no completion is needed.
        let waited = if lack == Lack::Room && guard.sk().stream_memory_free() {
            Ok(())
        } else {
            guard.wait_for_memory(&mut self.timeo)
        };
        let conn = guard.conn();
        conn.halves.memory_wait_ends(connection);
        self.leave_open(&conn.halves, &mut conn.out);
        waited
    }
}
