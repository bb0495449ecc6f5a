// SPDX-License-Identifier: GPL-2.0
//! Acknowledgements, refusals, time-outs and retries of the requester.

use std::time::{Duration, Instant};

use super::clock::Happening;
use super::{Address, Switch};
use crate::abi::queue::Status;
use crate::qp::Kind;
use crate::request::Progress;

/// The value for an infinite number of retries.
const FOR_EVER: u8 = 7;

impl Switch {
    /// The peer has received all messages up to `number`.
    pub(super) fn acknowledged(&mut self, who: Address, number: u64, now: Instant) {
        let Some(qp) = self.qp_mut(who) else { return };
        let (rnr, retries) = (qp.attrs.rnr_retry, qp.attrs.retry_cnt);
        let requester = &mut qp.requester;
        let Some(last) = number.checked_sub(requester.first) else {
            return;
        };
        for pending in requester.pending.iter_mut().take(last as usize + 1) {
            if pending.progress == Progress::Sent && !pending.is_read() {
                pending.progress = Progress::Done;
            }
        }
        requester.rnr_left = rnr;
        requester.retries_left = retries;
        requester.heard = Some(now);
        self.retire(who, now);
        self.ready(who);
    }

    /// Goes back to a request of which the peer has received `offset` bytes.
    fn go_back(&mut self, who: Address, number: u64, offset: u64) -> bool {
        let Some(qp) = self.qp_mut(who) else {
            return false;
        };
        let requester = &mut qp.requester;
        let Some(index) = number
            .checked_sub(requester.first)
            .map(|index| index as usize)
        else {
            return false;
        };
        if index > requester.next {
            return false;
        }
        let Some(again) = requester.pending.get(index) else {
            return false;
        };
        // A peer that has not been reset together with this end expects the rest of a message of
        // the earlier connection, which may be longer than this one. Start from the beginning: the
        // peer drops it, and the request fails after its retries.
        let offset = if offset < again.send.ranges.total() {
            offset
        } else {
            0
        };
        for pending in requester.pending.iter_mut().skip(index) {
            if pending.progress == Progress::Sent {
                pending.progress = Progress::Waiting;
                if pending.is_read() {
                    requester.reads -= 1;
                    // Ignore further bytes of the earlier response.
                    pending.answer = 0;
                }
            }
        }
        requester.next = index;
        requester.offset = offset;
        true
    }

    /// The peer had no receive for a message: retry after `delay`.
    pub(super) fn not_ready(
        &mut self,
        who: Address,
        number: u64,
        offset: u64,
        delay: Duration,
        now: Instant,
    ) {
        let Some(qp) = self.qp_mut(who) else { return };
        qp.counters.rnr += 1;
        if qp.attrs.rnr_retry != FOR_EVER {
            let Some(left) = qp.requester.rnr_left.checked_sub(1) else {
                self.refused(who, number, Status::RnrRetriesExceeded, now);
                return;
            };
            qp.requester.rnr_left = left;
        }
        // All earlier messages were received.
        if let Some(before) = number.checked_sub(1) {
            let kept = self.qp(who).map_or(0, |qp| qp.requester.rnr_left);
            self.acknowledged(who, before, now);
            if let Some(qp) = self.qp_mut(who) {
                qp.requester.rnr_left = kept;
            }
        }
        if self.go_back(who, number, offset) {
            if let Some(qp) = self.qp_mut(who) {
                qp.requester.wait_until = Some(now + delay);
                qp.requester.heard = Some(now + delay);
            }
            self.after(now + delay, Happening::Wake { who });
        }
    }

    /// A request fails, after earlier requests have completed.
    pub(super) fn refused(&mut self, who: Address, number: u64, status: Status, now: Instant) {
        let Some(qp) = self.qp_mut(who) else { return };
        let requester = &mut qp.requester;
        let Some(index) = number.checked_sub(requester.first) else {
            return;
        };
        let index = index as usize;
        let Some(pending) = requester.pending.get_mut(index) else {
            return;
        };
        match pending.progress {
            Progress::Waiting => {}
            // Earlier Reads may be sent again, and must not wait for this one.
            Progress::Sent if pending.is_read() => {
                requester.reads = requester.reads.saturating_sub(1);
            }
            Progress::Sent => {}
            // The first result stays.
            Progress::Done | Progress::Failed(_) => return,
        }
        pending.progress = Progress::Failed(status);
        // Send nothing after it: `send()` does not pass a failed request. Only a request before it
        // may be sent again, if an answer was lost.
        if requester.next >= index {
            requester.next = index;
            requester.offset = 0;
            requester.wait_until = None;
        }
        // The peer has received all earlier messages, since it has processed this one.
        for before in requester.pending.iter_mut().take(index) {
            if before.progress == Progress::Sent && !before.is_read() {
                before.progress = Progress::Done;
            }
        }
        self.retire(who, now);
    }

    pub(super) fn start_watch(&mut self, who: Address, now: Instant) {
        let patience = self
            .qp(who)
            .filter(|qp| qp.kind == Kind::Rc && !qp.requester.watched)
            .and_then(|qp| self.patience(who.machine, qp));
        let (Some(patience), Some(qp)) = (patience, self.qp_mut(who)) else {
            return;
        };
        qp.requester.watched = true;
        qp.requester.heard = Some(now);
        self.after(now + patience, Happening::Watch { who });
    }

    /// Checks whether the peer has answered. Retries if it has not, and fails after a number of
    /// retries.
    pub(super) fn watch(&mut self, who: Address, now: Instant) {
        let latency = self.link.latency;
        let has = self
            .peer(who)
            .and_then(|to| self.qp(to))
            .map(|to| (to.responder.expected, to.responder.offset));
        let late = self.is_late(who, now);
        let patience = self.qp(who).and_then(|qp| self.patience(who.machine, qp));
        let Some(qp) = self.qp_mut(who) else { return };
        qp.requester.watched = false;
        let Some(patience) = patience.map(|time| time + 4 * latency) else {
            return;
        };
        qp.requester.heard = qp.requester.heard.max(late);
        let requester = &mut qp.requester;
        let oldest = requester.pending.front().map(|first| first.progress);
        if oldest.is_none()
            || requester.next == 0 && requester.offset == 0 && requester.wait_until.is_none()
        {
            return;
        }
        let sent = requester
            .pending
            .get(requester.next)
            .map_or(requester.messages, |next| next.message);
        // A peer that has received everything may take its time.
        let silent = requester.heard.is_none_or(|heard| heard + patience <= now);
        let mut next = now + patience;
        if !silent {
            next = requester.heard.map_or(next, |heard| heard + patience);
        } else if (requester.lost || has.is_none_or(|(expected, _)| expected < sent))
            && requester.wait_until.is_none()
        {
            qp.counters.retries += 1;
            // The peer has received more since the last retry, which counts as an answer.
            if has > requester.had {
                requester.had = has;
                requester.retries_left = qp.attrs.retry_cnt;
            }
            let Some(left) = requester.retries_left.checked_sub(1) else {
                let number = requester.first;
                self.refused(who, number, Status::RetriesExceeded, now);
                return;
            };
            requester.retries_left = left;
            requester.heard = Some(now);
            // Do not repeat messages that the peer has received.
            let first = requester.first;
            let pending = &requester.pending;
            let wanted = has.and_then(|(message, offset)| {
                let index = pending
                    .iter()
                    .position(|p| p.message == message && !p.is_local())?;
                Some((index, offset))
            });
            // The response to a Read may have been lost.
            let unanswered = pending
                .iter()
                .position(|p| requester.lost && p.is_read() && p.progress == Progress::Sent)
                .map(|index| (index, 0));
            let (index, offset) = wanted.into_iter().chain(unanswered).min().unwrap_or((0, 0));
            let number = first + index as u64;
            requester.lost = false;
            if self.go_back(who, number, offset) {
                self.ready(who);
            }
        }
        if let Some(qp) = self.qp_mut(who) {
            qp.requester.watched = true;
            self.after(next, Happening::Watch { who });
        }
    }
}
