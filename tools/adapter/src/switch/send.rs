// SPDX-License-Identifier: GPL-2.0
//! The sending half of queue pairs: requests go out in their order, and end in their order.

use std::time::{Duration, Instant};

use super::{Address, Answer, Happening, Switch};
use crate::abi::queue::{flag, Cqe, FastReg, Status};
use crate::abi::{event, PAGE};
use crate::device::Device;
use crate::keys::Denied;
use crate::qp::{Kind, Pending, Qp, State};
use crate::request::{Action, Progress, Send};

/// An infinite number of retries.
const FOR_EVER: u8 = 7;

impl Switch {
    /// Reads the next request from the ring, unless one is there that is not all sent. `false`: there is none.
    fn fetch(&mut self, who: Address) -> bool {
        let Device { memory, qps, .. } = &mut self.devices[who.machine];
        let Some(qp) = qps.get_mut(who.handle) else {
            return false;
        };
        let requester = &mut qp.requester;
        if requester.next < requester.pending.len() {
            return true;
        }
        // A ring that is full of requests which have not ended has no more.
        if qp.broken || qp.state == State::Sqd || requester.pending.len() as u32 >= qp.sq.capacity()
        {
            return false;
        }
        let read = qp.sq.take(memory).and_then(|address| {
            let most = crate::abi::shared::limit::SGES;
            address
                .map(|a| Send::read(memory, a, most, qp.kind != Kind::Rc))
                .transpose()
                .map_err(Into::into)
        });
        match read {
            Ok(Some(send)) => {
                let frees = qp.sq.own();
                let message = requester.messages;
                if !send.action.is_some_and(|action| action.is_local()) {
                    requester.messages += 1;
                }
                requester.pending.push_back(Pending {
                    send: send.into(),
                    progress: Progress::Waiting,
                    message,
                    frees,
                    answer: 0,
                    came: 0,
                });
                true
            }
            Ok(None) => false,
            Err(_) => {
                self.broken(who);
                false
            }
        }
    }

    /// Sends a piece of a queue pair's next request; returns whether there may be more to send.
    pub(super) fn send(&mut self, who: Address, now: Instant) -> bool {
        match self.qp(who) {
            Some(qp) if qp.state == State::Err => {
                self.flush(who);
                return false;
            }
            Some(qp) if Self::sends(qp) && qp.requester.wait_until.is_none_or(|at| at <= now) => {}
            _ => return false,
        }
        if !self.fetch(who) {
            return false;
        }
        let Some(qp) = self.qp_mut(who) else {
            return false;
        };
        let requester = &mut qp.requester;
        requester.wait_until = None;
        let (index, number) = (requester.next, requester.first + requester.next as u64);
        let pending = &requester.pending[index];
        if pending.progress == Progress::Done {
            // It was done before the queue pair had to go back.
            requester.next += 1;
            return true;
        }
        let Some(action) = pending.send.action else {
            self.refused(who, number, Status::LocalOperation, now);
            return false;
        };
        if Self::must_wait(qp, index, &action) {
            return false;
        }
        let pending = &qp.requester.pending[index];
        let (total, offset) = (pending.send.ranges.total(), qp.requester.offset);
        match action {
            Action::Invalidate | Action::Register(_) => {
                return self.local(who, index, &action, now)
            }
            Action::Read(_) | Action::Atomic { .. } => {
                qp.requester.reads += 1;
                self.sent(who, index);
                self.reply(now, Happening::Request { from: who, number });
            }
            Action::Datagram(_) => {
                self.sent(who, index);
                let at = self.occupy(who.machine, total, now);
                self.after(at, Happening::Datagram { from: who, number });
            }
            Action::Send | Action::Write { .. } => {
                let len = (total - offset).min(self.piece());
                if offset + len == total {
                    self.sent(who, index);
                } else if let Some(qp) = self.qp_mut(who) {
                    qp.requester.offset += len;
                }
                let at = self.occupy(who.machine, len, now);
                self.after(
                    at,
                    Happening::Piece {
                        from: who,
                        number,
                        offset,
                        len,
                    },
                );
            }
        }
        self.start_watch(who, now);
        true
    }

    /// Whether a request must wait for others before it: for Reads if it has a fence, or there are too
    /// many; a request that changes keys, for all that may use them.
    fn must_wait(qp: &Qp, index: usize, action: &Action) -> bool {
        let requester = &qp.requester;
        let fence = requester.pending[index].send.has(flag::FENCE) && requester.reads > 0;
        let reads = action.is_read() && requester.reads >= u32::from(qp.attrs.max_rd_atomic).max(1);
        let local = action.is_local()
            && requester
                .pending
                .iter()
                .take(index)
                .any(|before| before.progress == Progress::Sent && !before.is_read());
        fence || reads || local
    }

    fn sent(&mut self, who: Address, index: usize) {
        if let Some(qp) = self.qp_mut(who) {
            qp.requester.pending[index].progress = Progress::Sent;
            qp.requester.next += 1;
            qp.requester.offset = 0;
        }
    }

    /// Does a request that does not concern the peer.
    fn local(&mut self, who: Address, index: usize, action: &Action, now: Instant) -> bool {
        let Device {
            memory, qps, keys, ..
        } = &mut self.devices[who.machine];
        let Some(qp) = qps.get_mut(who.handle) else {
            return false;
        };
        let done = match action {
            Action::Register(what) => register(memory, keys, qp.pd, what),
            _ => keys.invalidate(qp.requester.pending[index].send.ex, qp.pd),
        };
        let number = qp.requester.first + index as u64;
        if done.is_err() {
            self.refused(who, number, Status::MemoryBind, now);
            return false;
        }
        self.sent(who, index);
        if let Some(qp) = self.qp_mut(who) {
            qp.requester.pending[index].progress = Progress::Done;
        }
        self.retire(who, now);
        true
    }

    /// Ends requests that are done, in their order.
    pub(super) fn retire(&mut self, who: Address, now: Instant) {
        let mut freed = None;
        while let Some(qp) = self.qp_mut(who) {
            let requester = &mut qp.requester;
            let status = match requester.pending.front().map(|first| first.progress) {
                Some(Progress::Done) => Status::Success,
                Some(Progress::Failed(status)) => status,
                _ => break,
            };
            let Some(ended) = requester.pending.pop_front() else {
                break;
            };
            requester.first += 1;
            requester.next = requester.next.saturating_sub(1);
            requester.heard = Some(now);
            freed = Some(ended.frees);
            let total = ended.send.ranges.total();
            if status == Status::Success {
                qp.counters.sends += 1;
                qp.counters.bytes += total;
            } else {
                qp.counters.errors += 1;
            }
            if status != Status::Success || qp.signal_all || ended.send.has(flag::SIGNALED) {
                let (cq, frees) = (qp.send_cq, ended.frees);
                let cqe = completion(&ended.send, who.handle, status, total as u32);
                // The slot is free before the guest sees the completion.
                self.release(who, frees);
                freed = None;
                self.devices[who.machine].complete(cq, &cqe, status != Status::Success);
            }
            if status != Status::Success {
                self.fail(who, None);
                return;
            }
        }
        if let Some(number) = freed {
            self.release(who, number);
        }
        self.drained(who);
    }

    /// Tells the guest which slots of the send queue are free.
    pub(super) fn release(&mut self, who: Address, number: u32) {
        let device = &self.devices[who.machine];
        let released = device
            .qps
            .get(who.handle)
            .map(|qp| qp.sq.release(&device.memory, number));
        if released == Some(Err(crate::ring::Broken)) {
            self.broken(who);
        }
    }

    pub(super) fn drained(&mut self, who: Address) {
        let Some(qp) = self.qp_mut(who) else { return };
        if qp.state == State::Sqd && qp.requester.pending.is_empty() && qp.attrs.draining != 0 {
            qp.attrs.draining = 0;
            self.devices[who.machine].event(event::SQ_DRAINED, who.handle);
        }
    }

    /// The peer has all messages up to that number.
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

    /// Goes back to a message, of which the peer has some bytes.
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
        if index >= requester.pending.len() || index > requester.next {
            return false;
        }
        for pending in requester.pending.iter_mut().skip(index) {
            if pending.progress == Progress::Sent {
                pending.progress = Progress::Waiting;
                if pending.is_read() {
                    requester.reads -= 1;
                    // The former answer's bytes are not taken any more.
                    pending.answer = 0;
                    pending.came = 0;
                }
            }
        }
        requester.next = index;
        requester.offset = offset;
        true
    }

    /// The peer had no receive for a message, and wants to be asked again.
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
        // All before it were taken.
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

    /// A request ends with an error, after those before it.
    pub(super) fn refused(&mut self, who: Address, number: u64, status: Status, now: Instant) {
        let Some(qp) = self.qp_mut(who) else { return };
        let requester = &mut qp.requester;
        let Some(index) = number.checked_sub(requester.first) else {
            return;
        };
        let Some(pending) = requester.get_mut(number) else {
            return;
        };
        pending.progress = Progress::Failed(status);
        // Nothing after it is sent. What is before it was taken by the peer, or it would not have come to it.
        requester.wait_until = None;
        requester.next = requester.pending.len();
        for before in requester.pending.iter_mut().take(index as usize) {
            if before.progress == Progress::Sent && !before.is_read() {
                before.progress = Progress::Done;
            }
        }
        self.retire(who, now);
    }

    fn start_watch(&mut self, who: Address, now: Instant) {
        let Some(qp) = self
            .qp_mut(who)
            .filter(|qp| qp.kind == Kind::Rc && !qp.requester.watched)
        else {
            return;
        };
        let Some(patience) = qp.patience() else {
            return;
        };
        qp.requester.watched = true;
        qp.requester.heard = Some(now);
        self.after(now + patience, Happening::Watch { who });
    }

    /// Looks whether the peer says anything; asks again if it does not, and gives up after some times.
    pub(super) fn watch(&mut self, who: Address, now: Instant) {
        let latency = self.link.latency;
        let has = self
            .peer(who)
            .and_then(|to| self.qp(to))
            .map(|to| (to.responder.expected, to.responder.offset));
        let Some(qp) = self.qp_mut(who) else { return };
        qp.requester.watched = false;
        let Some(patience) = qp.patience().map(|time| time + 4 * latency) else {
            return;
        };
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
        // A peer that has all that was sent may take its time.
        let silent = requester.heard.is_none_or(|heard| heard + patience <= now);
        let mut next = now + patience;
        if !silent {
            next = requester.heard.map_or(next, |heard| heard + patience);
        } else if has.is_none_or(|(expected, _)| expected < sent) && requester.wait_until.is_none()
        {
            qp.counters.retries += 1;
            let Some(left) = requester.retries_left.checked_sub(1) else {
                let number = requester.first;
                self.refused(who, number, Status::RetriesExceeded, now);
                return;
            };
            requester.retries_left = left;
            requester.heard = Some(now);
            // What the peer has is not sent again.
            let first = requester.first;
            let (number, offset) = has
                .and_then(|(message, offset)| {
                    let index = requester
                        .pending
                        .iter()
                        .position(|p| p.message == message && !p.is_local())?;
                    Some((first + index as u64, offset))
                })
                .unwrap_or((first, 0));
            if self.go_back(who, number, offset) {
                self.ready(who);
            }
        }
        if let Some(qp) = self.qp_mut(who) {
            qp.requester.watched = true;
            self.after(next, Happening::Watch { who });
        }
    }

    /// The answer that a Read waits for, if it still does.
    pub(super) fn awaited(&self, answer: &Answer) -> Option<&Pending> {
        self.qp(answer.requester)?
            .requester
            .get(answer.number)
            .filter(|read| read.progress == Progress::Sent && read.answer == answer.id)
    }
}

/// Gives a region the pages that a request names.
fn register(
    memory: &crate::memory::Memory,
    keys: &mut crate::keys::Keys,
    pd: u32,
    what: &FastReg,
) -> Result<(), Denied> {
    if 1u64.checked_shl(what.page_shift) != Some(PAGE)
        || what.pages > crate::abi::shared::limit::FAST_PAGES
    {
        return Err(Denied);
    }
    let pages = memory
        .page_directory(what.directory, u64::from(what.pages))
        .map_err(|_| Denied)?;
    keys.register(
        what.rkey,
        pd,
        what.access,
        what.start,
        u64::from(what.length),
        &pages,
    )
}

/// The completion of a send.
pub(super) fn completion(send: &Send, handle: u32, status: Status, bytes: u32) -> Cqe {
    Cqe {
        wr_id: send.wr_id,
        qp: u64::from(handle),
        opcode: send.completion(),
        status: status as u32,
        byte_len: if status == Status::Success { bytes } else { 0 },
        port: 1,
        ..Cqe::default()
    }
}
