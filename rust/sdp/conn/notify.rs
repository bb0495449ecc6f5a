// SPDX-License-Identifier: GPL-2.0

//! Which completions must cause a notification, and the requests for notifications.

use super::connection::Connection;
use super::guard::SockGuard;
use super::sock::SdpSock;
use crate::proto::state::State;
use crate::rdma::link::Link;

/// Bytes that may stay in the send queue of an idle connection: their completions are handled with
/// the next event.
pub(in crate::sdp) const IDLE_BYTES: u32 = 65536;

impl Connection {
    /// Whether the next completion of a send must cause a notification, even if nothing is
    /// received.
    pub(in crate::sdp) fn awaits_send_completion(&self, sock: &SdpSock) -> bool {
        let sk = sock.sk();
        !self.out.queue.is_empty()
            || self.halves.has_memory_waiter()
            // Without a free place, a message may be waiting for one.
            || self.link.as_ref().is_some_and(|l| l.awaits_request() || l.send_room() == 0)
            || (self.halves.sender_waits_for_peer() && !self.awaits_messages_only())
            || self.adverts.waits
            || self.adverts.is_cancel_due()
            // Pages of a program stay protected until their Write has finished.
            || self.adverts.sinks.as_ref().is_some_and(|s| s.charged_bytes > 0)
            // A Read waits for places in the send queue.
            || self.adverts.untaken() > 0
            || self.out.disconn_due
            || self.out.peer_receives.has_to_use_up()
            || matches!(
                self.state,
                State::FinWait1 | State::LastAck | State::Closing | State::Draining
            )
            || ((sk.wmem_queued() > IDLE_BYTES || !sock.has_space())
                // An empty send buffer has room.
                && sk.wmem_queued() > 0
                && !self.awaits_messages_only())
    }

    /// Whether the send buffer and the sends wait for nothing but messages of the peer, which reads
    /// adverts and reports so. If this side writes, or sends payload, completions of its requests
    /// must cause a notification, too. The same applies to software adapters: soft-RoCE does not
    /// notify of failed requests if it is asked for received messages.
    fn awaits_messages_only(&self) -> bool {
        let is_such = |l: &Link| !l.is_software() && !l.writes() && !l.sends_payload();
        self.link.as_ref().is_some_and(is_such)
    }
}

impl SockGuard<'_> {
    /// [`Connection::awaits_send_completion`].
    pub(crate) fn awaits_send_completion(&mut self) -> bool {
        let sock = self.sock();
        self.conn().awaits_send_completion(sock)
    }

    /// Requests the next notification, unless the previous request is still pending; returns `true`
    /// if the queue must be polled again.
    pub(crate) fn arm(&mut self) -> bool {
        let every = self.awaits_send_completion();
        self.arm_for(every)
    }

    /// As [`SockGuard::arm`]; `every` is what [`SockGuard::awaits_send_completion`] returns now.
    pub(crate) fn arm_for(&mut self, every: bool) -> bool {
        let sock = self.sock();
        let Some(link) = &mut self.conn().link else {
            return false;
        };
        if !sock.was_notified() && link.is_armed_for_messages(|| every) {
            return false;
        }
        sock.forget_notification();
        link.arm(every)
    }

    /// Whether there is nothing to poll: the CQ was empty when the next notification was requested,
    /// and the notification has not come yet. With some adapters, each poll of an empty queue and
    /// each request for a notification rings a doorbell.
    pub(crate) fn is_cq_quiet(&mut self) -> bool {
        let sock = self.sock();
        let conn = self.conn();
        // The cheapest checks first.
        let is_quiet = |l: &Link| {
            let every = || conn.awaits_send_completion(sock);
            !l.is_software() && !sock.was_notified() && l.is_armed(every)
        };
        conn.link.as_ref().is_some_and(is_quiet)
    }

    /// Whether a notification was requested that has not come yet: so the CQ has no messages. It may
    /// have completions of requests of which the notification does not tell.
    pub(crate) fn has_no_news(&mut self) -> bool {
        let sock = self.sock();
        let link = self.conn().link.as_ref();
        !sock.was_notified() && link.is_some_and(|l| l.is_armed_for_messages(|| false))
    }
}
