// SPDX-License-Identifier: GPL-2.0

//! The size of the receives. It grows when the peer has much to send, and shrinks when the peer has
//! sent nothing for some time.

use kernel::alloc::Flags;
use kernel::prelude::*;

use super::ring::MIN_RECEIVE_BUFFER;
use super::Receiver;
use crate::inet::memory;
use crate::kern::time::ms_since;
use crate::proto::bsdh::Class;
use crate::proto::hello::Features;
use crate::proto::resize::{
    Stuck,
    LARGE_BYTES,
    SMALL_BYTES, //
};
use crate::proto::state::State;
use crate::proto::violation::Violation;
use crate::rdma::receive::PART_BYTES;
use crate::rdma::receive_queue::RECV_DEPTH;
use crate::sdp::conn::guard::SockGuard;
use crate::sdp::conn::watchdog;
use crate::sdp::flush::flush;
use crate::sdp::output::abort::end_for;
use crate::sdp::output::Output;
use crate::sdp::parts::fatal::Fatal;
use crate::stats::counters::Counter;

/// How long a peer sends no payload before the receives become smaller: normally, and if the
/// sockets are short of memory.
const IDLE_MS: u32 = 10_000;
const SHORT_IDLE_MS: u32 = 2000;

/// The number of checks in a row, one per second, after which the connection ends because the peer
/// keeps memory from others: the peer makes no progress in using up larger receives (rule R4), or
/// gives no credit for the message about smaller ones. A peer that cannot be reached is detected in
/// another way; this time is longer than a link may be down.
const PATIENCE: u32 = 60;

/// The result of a check of whether the receives are too large.
enum Look {
    /// The receives are small.
    Small,
    /// The receives are large, and payload was received not long ago.
    InUse,
    /// The receives are to become smaller, or have begun to.
    Idle,
}

/// If the peer sends nothing any more, announces smaller receives, and checks that the peer uses up
/// the larger ones. Returns whether more checks are needed.
pub(in crate::sdp) fn shrink(guard: &mut SockGuard<'_>) -> bool {
    match Receiver::of(guard).shrink() {
        Look::Small => return false,
        Look::InUse => {}
        Look::Idle => {
            Receiver::of(guard).refill();
            flush(guard);
            if let Err(why) = Receiver::of(guard).look_after_shrinking() {
                end_for(guard, why);
            }
        }
    }
    true
}

/// The peer announces the size that its receives have from now on. `flags` are for allocations in
/// the context of the lock.
///
/// # Errors
///
/// [`Fatal::Violation`].
pub(in crate::sdp) fn size_received(
    output: &mut Output<'_>,
    size: u32,
    flags: Flags,
) -> Result<(), Fatal> {
    let may_shrink = output.adverts.features.contains(Features::SHRINK);
    let credits = may_shrink.then(|| output.credits.available());
    output.out.peer_receives.answered(size, credits)?;
    let link = output.link.as_mut().filter(|_| size > PART_BYTES);
    if link.is_some_and(|link| link.lengthen_messages(flags).is_err()) {
        output.sock.stats.inc(Counter::NoSendMemory);
    }
    Ok(())
}

impl Receiver<'_> {
    /// The peer asks for larger receives because it has much to send.
    pub(in crate::sdp) fn grow(&mut self, wanted: u32) {
        let sk = self.sock.sk();
        let rcvbuf = sk.rcvbuf().max(MIN_RECEIVE_BUFFER);
        let is_shrinking = self.ring.receives.is_shrinking();
        if wanted > SMALL_BYTES && !is_shrinking {
            self.ring.target = RECV_DEPTH;
        }
        let bytes = self.ring.receives.bytes();
        let may_grow = self.adverts.features.contains(Features::SHRINK) && !is_shrinking;
        let most = self.link.as_ref().map_or(0, |l| l.max_receive());
        let larger = [LARGE_BYTES, LARGE_BYTES / 2, PART_BYTES, SMALL_BYTES]
            .into_iter()
            .find(|&size| {
                // The receive buffer must hold many of them: receives that wait to be read, and
                // those of control messages.
                let share = if size < LARGE_BYTES { 8 } else { 16 };
                let fits = size <= wanted.min(rcvbuf / share).min(most);
                fits && (size == SMALL_BYTES || memory::has_room(size * RECV_DEPTH))
            });
        if let Some(size) = larger.filter(|&size| may_grow && size > bytes) {
            if !memory::is_short() && self.ring.reserve(sk, size).is_ok() {
                let posted = self.receives_posted();
                self.ring.receives.grow(size, posted);
                // The transmit watchdog shrinks the receives when no more payload comes.
                watchdog::begin(self.watch, self.sock);
            }
        }
        self.ring.receives.owe_answer();
    }

    fn shrink(&mut self) -> Look {
        let may_shrink = matches!(
            self.state,
            State::Established | State::FinWait1 | State::FinWait2 | State::CloseWait
        ) && self.adverts.features.contains(Features::SHRINK);
        let receives = &mut self.ring.receives;
        if !may_shrink || (receives.bytes() <= SMALL_BYTES && !receives.is_shrinking()) {
            return Look::Small;
        }
        let idle_ms = if memory::is_short() {
            SHORT_IDLE_MS
        } else {
            IDLE_MS
        };
        if ms_since(self.measured.pacing.received_at) < idle_ms {
            return Look::InUse;
        }
        receives.shrink();
        Look::Idle
    }

    /// Counts the checks that find a peer which keeps memory from others.
    ///
    /// # Errors
    ///
    /// [`Fatal::Violation`] or [`Fatal::TimedOut`] if the connection must end so that its memory is
    /// freed.
    fn look_after_shrinking(&mut self) -> Result<(), Fatal> {
        // A peer with a single credit keeps the credit for updates.
        let may_use_up = self.credits.peer_has_left() >= Class::Control.min_credits();
        match self.ring.receives.check(may_use_up) {
            Some((stuck, checks))
                if checks >= PATIENCE && !memory::has_room(LARGE_BYTES * RECV_DEPTH) =>
            {
                Err(match stuck {
                    Stuck::NotUsedUp => Violation::ReceivesNotUsedUp.into(),
                    Stuck::NotTold => Fatal::TimedOut,
                })
            }
            _ => Ok(()),
        }
    }
}
