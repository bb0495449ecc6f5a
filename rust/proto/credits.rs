// SPDX-License-Identifier: GPL-2.0

//! Credits: how many messages each side may have in flight.
//!
//! A side may send a message only into a receive that its peer has posted and announced. Every
//! message carries the credit limit L of its sender, as the sum of two fields: `mseq_ack + bufs`,
//! the number of receives that it has ever posted, modulo 2^32. L never shrinks. The number of
//! messages that a side may still send is the L of its peer minus the number of the side's last
//! message.
//!
//! - **C1** A message of [`Class::Payload`] needs at least 4 credits, one of [`Class::Control`] at
//!   least 2, one of [`Class::Update`] at least 1: the last credits are reserved for messages that
//!   return credits. A Data without payload that only announces an urgent byte or uses up a receive
//!   returns none, so its sender requires 2 credits, although a receiver cannot distinguish the
//!   message from an update.
//! - **C2** The receive of a message without payload is posted again at once.
//! - **C3** A pure update is due only if at least 2 receives are unreturned (posted, but not
//!   announced) and either the peer has at most 3 credits left, too few for payload, or the
//!   unreturned receives are at least as many as the peer has credits left. So an update, which
//!   itself uses up one receive, is never the only reason for the next update.
//!
//! With thresholds of 3, 2 and 1 and updates for a single receive, as in OFED, two sides that only
//! return credits do so for ever. The model check in `tools/proto-host` shows both results.
//!
//! # Set-up
//!
//! A side calls [`Credits::posted`] for its first receives, [`Credits::announce`] for the `bufs` of
//! its Hello or HelloAck, and [`Credits::set_peer_limit`] with the `bufs` of the peer's message;
//! then [`Credits::stamp`] for every message that it sends, and [`Credits::received`] for every
//! message that it receives.

use super::{
    bsdh::{
        Bsdh,
        Class, //
    },
    violation::Violation,
};

/// The numbers that a message carries.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Stamp {
    /// The number of the message.
    pub mseq: u32,
    /// The number of the last message received.
    pub mseq_ack: u32,
    /// The number of receives posted beyond `mseq_ack`.
    pub bufs: u16,
}

/// The credits of a connection, both directions.
///
/// # Invariants
///
/// All differences are modulo 2^32.
///
/// - `sent - acked <= limit - acked`, and `limit - sent <= 65535`: the peer
///   acknowledges only what was sent, and its limit is never exceeded.
/// - `advertised - received <= posted - received`: no receive is announced
///   that was not posted.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Credits {
    /// The number of the last message sent.
    sent: u32,
    /// The number of the last message that the peer has acknowledged.
    acked: u32,
    /// The peer's L.
    limit: u32,
    /// The number of the last message received.
    received: u32,
    /// Receives ever posted.
    posted: u32,
    /// The L of this side that the peer was last told.
    advertised: u32,
}

impl Default for Credits {
    fn default() -> Self {
        Self::new()
    }
}

impl Credits {
    /// The credits of a new connection: no receive is posted on either side,
    /// and the first message of each direction is number 1.
    pub const fn new() -> Self {
        Self::starting_at(0, 0)
    }

    /// Like [`Credits::new`], but the last message sent was number `sent`, the
    /// last received number `received`. The wire always starts at 0; tests
    /// start just before the numbers wrap.
    pub const fn starting_at(sent: u32, received: u32) -> Self {
        Self {
            sent,
            acked: sent,
            limit: sent,
            received,
            posted: received,
            advertised: received,
        }
    }

    /// Records `n` more posted receives.
    pub fn posted(&mut self, n: u32) {
        self.posted = self.posted.wrapping_add(n);
    }

    /// Returns the `bufs` of the Hello or HelloAck about to be sent, and records that the peer will
    /// know of these receives.
    pub fn announce(&mut self) -> u16 {
        let bufs = self.bufs();
        self.advertised = self.received.wrapping_add(u32::from(bufs));
        bufs
    }

    /// Uses the `bufs` of the peer's Hello or HelloAck.
    pub fn set_peer_limit(&mut self, bufs: u16) {
        self.limit = self.sent.wrapping_add(u32::from(bufs));
    }

    /// The number of messages for which the peer has room.
    pub const fn available(&self) -> u32 {
        self.limit.wrapping_sub(self.sent)
    }

    /// Whether a message of `class` may be sent (rule C1).
    pub const fn may_send(&self, class: Class) -> bool {
        self.available() >= class.min_credits()
    }

    /// Takes a credit and returns the numbers for a message of `class`, which
    /// must be the next to be sent; `None` if rule C1 forbids it.
    pub fn stamp(&mut self, class: Class) -> Option<Stamp> {
        if !self.may_send(class) {
            return None;
        }
        self.sent = self.sent.wrapping_add(1);
        Some(Stamp {
            mseq: self.sent,
            mseq_ack: self.received,
            bufs: self.announce(),
        })
    }

    /// Records a received message: it has used up one receive, and its numbers may raise the limit.
    /// After an error nothing has changed, and the connection must be aborted.
    ///
    /// # Errors
    ///
    /// [`Violation::BadSequence`] if it is not the next message, [`Violation::CreditOverrun`] if no
    /// receive was announced for it, [`Violation::BadAck`] if it acknowledges a message that was
    /// not sent, or less than before, [`Violation::CreditShrunk`] if its limit is less than before.
    pub fn received(&mut self, hdr: &Bsdh) -> Result<(), Violation> {
        let next = self.received.wrapping_add(1);
        if hdr.mseq != next {
            return Err(Violation::BadSequence);
        }
        if self.peer_has_left() == 0 {
            return Err(Violation::CreditOverrun);
        }
        let newly_acked = hdr.mseq_ack.wrapping_sub(self.acked);
        if newly_acked > self.unacked() {
            return Err(Violation::BadAck);
        }
        // As mseq_ack is at most `sent`, the limit of this message is at most 65535 beyond `sent`,
        // and a limit below the old one appears as a number with the top bit set.
        let limit = hdr.limit();
        if limit.wrapping_sub(self.limit) > u32::MAX / 2 {
            return Err(Violation::CreditShrunk);
        }
        self.received = next;
        self.acked = hdr.mseq_ack;
        self.limit = limit;
        Ok(())
    }

    /// Whether a pure credit update is due (rule C3). It may still have to wait
    /// for a credit ([`Credits::may_send`]).
    pub const fn wants_update(&self) -> bool {
        let unreturned = self.unreturned();
        let left = self.peer_has_left();
        unreturned >= 2 && (left <= 3 || unreturned >= left)
    }

    /// Posted receives that were not announced to the peer.
    pub const fn unreturned(&self) -> u32 {
        self.posted.wrapping_sub(self.advertised)
    }

    /// Posted receives that are not used up.
    pub const fn outstanding(&self) -> u32 {
        self.posted.wrapping_sub(self.received)
    }

    /// Whether the peer has acknowledged the message that was sent with the number `mseq`.
    pub const fn has_acked(&self, mseq: u32) -> bool {
        self.acked.wrapping_sub(mseq) <= self.sent.wrapping_sub(mseq)
    }

    /// Sent messages that the peer has not acknowledged.
    pub const fn unacked(&self) -> u32 {
        self.sent.wrapping_sub(self.acked)
    }

    /// The maximum number of messages that may arrive before the peer is told of more receives.
    pub const fn peer_has_left(&self) -> u32 {
        self.advertised.wrapping_sub(self.received)
    }

    /// The number of receives to announce. Receives beyond the range of a `u16` stay unreturned.
    fn bufs(&self) -> u16 {
        u16::try_from(self.outstanding()).unwrap_or(u16::MAX)
    }
}
