// SPDX-License-Identifier: GPL-2.0
//! The requester: requests are sent in order and complete in order.

use std::time::Instant;

use super::clock::{Answer, Happening};
use super::{Address, Switch};
use crate::abi::queue::{flag, Cqe, FastReg, Status};
use crate::abi::{event, PAGE};
use crate::device::Device;
use crate::keys::Denied;
use crate::qp::{Kind, Pending, Qp, State};
use crate::request::{Action, Progress, Send};

impl Switch {
    /// Reads the next request from the ring, unless the current one has not been sent completely.
    /// `false`: there is none.
    fn fetch(&mut self, who: Address) -> bool {
        let Device { memory, qps, .. } = &mut self.devices[who.machine];
        let Some(qp) = qps.get_mut(who.handle) else {
            return false;
        };
        let requester = &mut qp.requester;
        if requester.next < requester.pending.len() {
            return true;
        }
        // The ring is full of requests that have not completed.
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
            Err(why) => {
                self.broken(who, why);
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
        match pending.progress {
            Progress::Done => {
                // The request was already done before the queue pair went back.
                requester.next += 1;
                requester.offset = 0;
                return true;
            }
            // The queue pair enters the error state when the earlier requests have completed. The
            // later ones are flushed then, so the peer must not see them.
            Progress::Failed(_) => return false,
            Progress::Waiting | Progress::Sent => {}
        }
        let Some(action) = pending.send.action else {
            self.refused(who, number, Status::LocalOperation, now);
            return false;
        };
        if Self::must_wait(qp, index, &action) {
            return false;
        }
        if self.faults.any && self.fails(who, number, now) {
            return false;
        }
        let Some(qp) = self.qp_mut(who) else {
            return false;
        };
        let pending = &qp.requester.pending[index];
        let (total, offset) = (pending.send.ranges.total(), qp.requester.offset);
        match action {
            Action::Invalidate | Action::Register(_) => {
                return self.local(who, index, &action, now)
            }
            Action::Read(_) | Action::Atomic { .. } => {
                qp.requester.reads += 1;
                self.sent(who, index);
                let at = now + self.link.latency;
                self.travel(at, Happening::Request { from: who, number });
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
                self.travel(
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

    /// Whether a request must wait for earlier ones: for Reads if it has a fence or the limit of
    /// Reads is reached; a request that changes keys, for all requests that may use them.
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

    /// Executes a local request.
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

    /// Completes requests that are done, in order.
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
                // Free the slot before the guest can see the completion.
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
        if let Some(qp) = self.qp_mut(who) {
            qp.requester.lost &= !qp.requester.pending.is_empty();
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
        if let Some(Err(why)) = released {
            self.broken(who, why);
        }
    }

    pub(super) fn drained(&mut self, who: Address) {
        let Some(qp) = self.qp_mut(who) else { return };
        if qp.state == State::Sqd && qp.requester.pending.is_empty() && qp.attrs.draining != 0 {
            qp.attrs.draining = 0;
            self.devices[who.machine].event(event::SQ_DRAINED, who.handle);
        }
    }

    /// The Read that waits for this response, if it still does.
    pub(super) fn awaited(&self, answer: &Answer) -> Option<&Pending> {
        self.qp(answer.requester)?
            .requester
            .get(answer.number)
            .filter(|read| read.progress == Progress::Sent && read.answer == answer.id)
    }
}

/// Registers the pages of a request.
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
