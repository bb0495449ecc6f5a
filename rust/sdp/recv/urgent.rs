// SPDX-License-Identifier: GPL-2.0

//! The receiver's side of urgent data: receives out of line (MSG_OOB), and where receives in line
//! end.

use kernel::prelude::*;

use super::recvmsg::Recv;
use super::Reader;
use crate::bindings;
use crate::kern::errno::ENOTCONN;
use crate::kern::iov::{
    Dest,
    Iov, //
};
use crate::kern::signal::signal_pending;
use crate::kern::time::{
    ms_since,
    Timeout, //
};
use crate::mm::user;
use crate::proto::state::State;
use crate::proto::urgent::{
    Byte,
    Reach, //
};
use crate::sdp::conn::connection::Connection;
use crate::sdp::conn::sock::SdpSock;
use crate::sdp::cq::poll::{
    poll_cq,
    rearm_cq, //
};

/// The maximum time for which SIOCATMARK waits if only the next message will show whether the next
/// byte is the urgent one. The limit holds for all calls at one position of the stream together,
/// because a peer may announce a byte that never comes.
const MARK_MS: u32 = 100;

/// Receives the urgent byte into `iter`, as `tcp_recv_urg()`; never waits. Returns the number of
/// bytes, 0 or 1, and the flags to add to those of the message.
///
/// # Errors
///
/// `EINVAL` if there is none, `EAGAIN` if it has not arrived, `ENOTCONN`, `EFAULT`.
pub(crate) fn receive_urgent(
    sock: &SdpSock,
    mut iter: Iov<'_, Dest>,
    flags: u32,
) -> Result<(usize, u32)> {
    let byte = {
        let mut guard = sock.lock();
        // The byte may have arrived.
        poll_cq(&mut guard);
        if guard.conn().state == State::Listen {
            return Err(ENOTCONN);
        }
        Reader::of(&mut guard).take_urgent(flags & bindings::MSG_PEEK != 0)?
    };
    let Some(byte) = byte else {
        return Ok((0, 0));
    };
    if iter.len() == 0 {
        return Ok((0, bindings::MSG_OOB | bindings::MSG_TRUNC));
    }
    if flags & bindings::MSG_TRUNC == 0 {
        user::put_byte(&mut iter, byte)?;
    }
    Ok((1, bindings::MSG_OOB))
}

/// Whether the next byte of the stream is the urgent one (SIOCATMARK).
///
/// The announcement of an urgent byte does not say how far away the byte is. If the program has
/// read all received bytes, only the next message will show this. The peer has credits for the next
/// message, so the call waits for it.
pub(crate) fn is_at_mark(sock: &SdpSock) -> bool {
    let mut guard = sock.lock();
    while is_mark_open(guard.conn()) && !signal_pending() {
        let waited_ms = ms_since(guard.conn().inq.open_since());
        let mut left = Timeout::from_ms(MARK_MS.saturating_sub(waited_ms));
        poll_cq(&mut guard);
        if left.is_over() {
            break;
        }
        rearm_cq(&mut guard);
        if is_mark_open(guard.conn()) {
            guard.wait(&mut left);
        }
    }
    guard.conn().inq.urgent.is_at_mark()
}

/// Whether a splice may receive. As with TCP, a splice does not go past the mark: at the mark it
/// ends as if there were no bytes.
///
/// # Errors
///
/// `EAGAIN`, and the error that ended the connection.
pub(crate) fn may_splice(sock: &SdpSock, nonblock: bool) -> Result<bool> {
    let mut guard = sock.lock();
    if !guard.conn().inq.urgent.is_at_mark() {
        return Ok(true);
    }
    let sk = sock.sk();
    if guard.conn().inq.fin_received {
        return Ok(false);
    }
    sk.take_err()?;
    if sk.rcvtimeo(nonblock).is_over() && !sk.rcv_shutdown() {
        return Err(EAGAIN);
    }
    Ok(false)
}

impl Reader<'_> {
    /// The urgent byte for a receive out of line; the receive takes the byte unless it only
    /// `looks`. `None` if the byte will not arrive any more.
    fn take_urgent(&mut self, looks: bool) -> Result<Option<u8>> {
        let sk = self.sock.sk();
        let inline = sk.is_oob_inline();
        let closed = sk.state() == bindings::TCP_CLOSE as u8;
        match self.inq.urgent.byte(inline) {
            Byte::None => Err(EINVAL),
            _ if closed && !self.inq.fin_received => Err(ENOTCONN),
            Byte::Is(byte) => {
                if !looks {
                    self.inq.urgent.on_read();
                    self.inq.show_urgent(&self.sock.glance);
                }
                Ok(Some(byte))
            }
            Byte::Comes if closed || sk.rcv_shutdown() => Ok(None),
            Byte::Comes => Err(EAGAIN),
        }
    }

    /// How far a receive that wants `want` bytes may go.
    pub(super) fn reach(&self, recv: &Recv<'_>, want: u32) -> Reach {
        let urgent = &self.inq.urgent;
        if !urgent.has_mark() {
            return Reach::Bytes(want);
        }
        let inline = self.sock.sk().is_oob_inline();
        let ahead = recv.ahead(urgent.taken()) as u64;
        urgent.reach(ahead, want, recv.copied > 0, inline)
    }

    /// Skips the urgent byte, which must be the next byte of the stream.
    pub(super) fn skip_urgent(&mut self) {
        let (sk, glance) = (self.sock.sk(), &self.sock.glance);
        let (ring, link) = (&mut *self.ring, self.link);
        self.inq.taken(1, glance);
        self.inq
            .lose_byte(glance, |bytes| ring.release(sk, link, bytes));
    }

    /// Whether a receive ends because it has come to the mark.
    ///
    /// # Errors
    ///
    /// `EAGAIN`, `EINTR` (or a restart) if the receive has no bytes and a signal is pending, which
    /// may be the SIGURG for the urgent byte.
    pub(super) fn ends_at_mark(&self, recv: &Recv<'_>) -> Result<bool> {
        let urgent = &self.inq.urgent;
        if !urgent.is_mark(recv.ahead(urgent.taken()) as u64) {
            return Ok(false);
        }
        if recv.copied == 0 && signal_pending() {
            return Err(if recv.timeo.is_over() {
                EAGAIN
            } else {
                recv.timeo.interrupted()
            });
        }
        Ok(recv.copied > 0)
    }
}

/// Whether an urgent byte was announced and may still come, and all received bytes were read.
fn is_mark_open(conn: &Connection) -> bool {
    let comes = conn.state.can_receive() && !conn.inq.fin_received;
    conn.inq.urgent.is_open() && comes
}
