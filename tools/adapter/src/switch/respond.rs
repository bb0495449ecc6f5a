// SPDX-License-Identifier: GPL-2.0
//! Reads and atomic operations: responses of the peer, and their arrival.

use std::sync::Arc;
use std::time::Instant;

use super::clock::{Answer, Happening};
use super::receive::Refusal;
use super::{Address, Switch};
use crate::abi::access;
use crate::abi::queue::{Atomic, Rdma, Status};
use crate::memory::{copy, scatter};
use crate::request::{Action, Progress, Send};

/// Results of atomic operations that a queue pair keeps: as many as can be in flight.
const RESULTS: usize = crate::abi::shared::limit::READS as usize;

impl Switch {
    /// A Read or an atomic operation arrives.
    pub(super) fn respond(&mut self, from: Address, number: u64, now: Instant) {
        let Some(to) = self.peer(from) else { return };
        let waits = |read: &&crate::qp::Pending| read.progress == Progress::Sent;
        let read = self
            .qp(from)
            .and_then(|qp| qp.requester.get(number))
            .filter(waits);
        let Some((send, message)) = read.map(|read| (Arc::clone(&read.send), read.message)) else {
            return;
        };
        let before = self.qp(to).map_or(0, |peer| peer.responder.expected);
        // Respond to a repeated request again: the response may have been lost.
        if message >= before && self.expected(from, to, number, 0, now).is_none() {
            return;
        }
        let answered = match send.action {
            Some(Action::Read(what)) => self.begin_answer(from, to, number, &what, &send, now),
            Some(Action::Atomic { what, adds }) => self.operate(from, to, number, &what, adds, now),
            _ => return,
        };
        match answered {
            Err(why) => self.refuse(from, to, number, &why, now),
            Ok(()) => {
                if let Some(peer) = self
                    .qp_mut(to)
                    .filter(|peer| peer.responder.expected == message)
                {
                    peer.responder.expected += 1;
                }
                // All earlier messages have been received.
                if let Some(number) = number.checked_sub(1) {
                    self.reply(now, Happening::Ack { to: from, number });
                }
            }
        }
    }

    fn begin_answer(
        &mut self,
        from: Address,
        to: Address,
        number: u64,
        what: &Rdma,
        send: &Send,
        now: Instant,
    ) -> Result<(), Refusal> {
        let total = send.ranges.total();
        // Respond to a repeated Read from the first byte that has not arrived.
        let came = self
            .qp(from)
            .and_then(|qp| qp.requester.get(number))
            .map_or(0, |read| read.came);
        self.readable(to, what, came, total - came)?;
        let id = self.unique();
        if let Some(read) = self
            .qp_mut(from)
            .and_then(|qp| qp.requester.get_mut(number))
        {
            read.answer = id;
        }
        let answer = Answer {
            id,
            requester: from,
            number,
            responder: to,
            offset: came,
            total,
        };
        if self.faults.any {
            self.travel(now, Happening::Answer { answer });
        } else {
            self.begin_to_answer(answer);
        }
        Ok(())
    }

    /// Checks the responder's access rights, and returns the location of the bytes.
    fn readable(
        &self,
        to: Address,
        what: &Rdma,
        offset: u64,
        len: u64,
    ) -> Result<Vec<crate::memory::Span>, Refusal> {
        let Some(peer) = self.qp(to) else {
            return Err(Refusal::ACCESS);
        };
        let mut spans = Vec::new();
        if len == 0 {
            return Ok(spans);
        }
        if peer.attrs.access & access::REMOTE_READ == 0 {
            return Err(Refusal::ACCESS);
        }
        let addr = what.addr.checked_add(offset).ok_or(Refusal::ACCESS)?;
        self.devices[to.machine]
            .keys
            .spans(
                what.rkey,
                peer.pd,
                access::REMOTE_READ,
                addr,
                len,
                &mut spans,
            )
            .map_err(|_| Refusal::ACCESS)?;
        Ok(spans)
    }

    /// Sends a piece of a response; returns the rest.
    pub(super) fn answer(&mut self, answer: Answer, now: Instant) -> Option<Answer> {
        self.awaited(&answer)?;
        self.qp(answer.responder)
            .filter(|peer| peer.state.receives())?;
        let len = (answer.total - answer.offset).min(self.piece());
        let at = self.occupy(answer.responder.machine, len, now);
        self.after(at, Happening::Data { answer, len });
        let offset = answer.offset + len;
        (offset < answer.total).then_some(Answer { offset, ..answer })
    }

    /// A piece of a response arrives.
    pub(super) fn read_came(&mut self, answer: Answer, len: u64, now: Instant) {
        let (who, to) = (answer.requester, answer.responder);
        // Ignore pieces after a lost piece.
        let awaited = self
            .awaited(&answer)
            .filter(|read| read.came == answer.offset);
        let Some(send) = awaited.map(|read| Arc::clone(&read.send)) else {
            return;
        };
        let Some(Action::Read(what)) = send.action else {
            return;
        };
        // A responder whose queue pair has failed sends nothing more.
        if self.qp(to).is_none_or(|peer| !peer.state.receives()) {
            return;
        }
        match self.take_answer(&answer, &what, &send, len) {
            Err(why) => self.refuse(who, to, answer.number, &why, now),
            Ok(()) => {
                let Some(qp) = self.qp_mut(who) else { return };
                qp.requester.heard = Some(now);
                qp.requester.retries_left = qp.attrs.retry_cnt;
                let Some(read) = qp.requester.get_mut(answer.number) else {
                    return;
                };
                read.came += len;
                if read.came == answer.total {
                    self.answered(who, answer.number, now);
                }
            }
        }
    }

    fn take_answer(
        &self,
        answer: &Answer,
        what: &Rdma,
        send: &Send,
        len: u64,
    ) -> Result<(), Refusal> {
        let (who, to) = (answer.requester, answer.responder);
        let read = self.readable(to, what, answer.offset, len)?;
        let pd = self.qp(who).map_or(0, |qp| qp.pd);
        let (source, target) = (&self.devices[to.machine], &self.devices[who.machine]);
        let write = send
            .ranges
            .spans(&target.keys, pd, access::LOCAL_WRITE, answer.offset, len)
            .map_err(|_| Refusal::SENDER)?;
        match copy((&source.memory, &read), (&target.memory, &write)) {
            Ok(_) => Ok(()),
            Err(true) => Err(Refusal::ACCESS),
            Err(false) => Err(Refusal::SENDER),
        }
    }

    /// A Read or an atomic operation has succeeded.
    fn answered(&mut self, who: Address, number: u64, now: Instant) {
        let Some(qp) = self.qp_mut(who) else { return };
        let retries = qp.attrs.retry_cnt;
        qp.requester.reads = qp.requester.reads.saturating_sub(1);
        qp.requester.retries_left = retries;
        if let Some(read) = qp.requester.get_mut(number) {
            read.progress = Progress::Done;
        }
        self.retire(who, now);
        self.ready(who);
    }

    /// Executes an atomic operation, once.
    fn operate(
        &mut self,
        from: Address,
        to: Address,
        number: u64,
        what: &Atomic,
        adds: bool,
        now: Instant,
    ) -> Result<(), Refusal> {
        let Some(peer) = self.qp(to) else {
            return Ok(());
        };
        let known = peer
            .responder
            .results
            .iter()
            .find(|(n, _)| *n == number)
            .map(|(_, value)| *value);
        let value = if let Some(value) = known {
            value
        } else {
            if what.addr % 8 != 0 {
                return Err(Refusal::REQUEST);
            }
            if peer.attrs.access & access::REMOTE_ATOMIC == 0 {
                return Err(Refusal::ACCESS);
            }
            let device = &self.devices[to.machine];
            let mut spans = Vec::new();
            device
                .keys
                .spans(
                    what.rkey,
                    peer.pd,
                    access::REMOTE_ATOMIC,
                    what.addr,
                    8,
                    &mut spans,
                )
                .map_err(|_| Refusal::ACCESS)?;
            // Eight aligned bytes are on one page.
            let place = spans.first().ok_or(Refusal::ACCESS)?.addr;
            let change = |old: u64| match adds {
                true => old.wrapping_add(what.compare_add),
                false if old == what.compare_add => what.swap,
                false => old,
            };
            device
                .memory
                .atomic(place, change)
                .map_err(|_| Refusal::ACCESS)?
        };
        if let Some(peer) = self.qp_mut(to) {
            peer.responder.results.push_back((number, value));
            if peer.responder.results.len() > RESULTS {
                peer.responder.results.pop_front();
            }
        }
        self.reply(
            now,
            Happening::Result {
                to: from,
                number,
                value,
            },
        );
        Ok(())
    }

    /// The result of an atomic operation arrives.
    pub(super) fn result_came(&mut self, who: Address, number: u64, value: u64, now: Instant) {
        let Some(qp) = self.qp(who) else { return };
        let Some(read) = qp
            .requester
            .get(number)
            .filter(|read| read.progress == Progress::Sent)
        else {
            return;
        };
        let device = &self.devices[who.machine];
        let written = read
            .send
            .ranges
            .spans(&device.keys, qp.pd, access::LOCAL_WRITE, 0, 8)
            .ok()
            .filter(|spans| spans.iter().map(|span| span.len).sum::<u64>() == 8)
            .and_then(|spans| scatter(&value.to_ne_bytes(), (&device.memory, &spans)).ok());
        if written.is_some() {
            self.answered(who, number, now);
        } else {
            self.refused(who, number, Status::LocalProtection, now);
        }
    }
}
