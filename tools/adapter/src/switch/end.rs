// SPDX-License-Identifier: GPL-2.0
//! Failing queue pairs and invalid rings.

use super::{Address, Switch};
use crate::abi::event;
use crate::abi::queue::Status;
use crate::device::Device;
use crate::qp::{Kind, State};
use crate::request::{Recv, Send};
use crate::ring::Broken;

impl Switch {
    /// A queue pair fails and all its requests complete. `why`: an event for its driver.
    pub(super) fn fail(&mut self, who: Address, why: Option<u32>) {
        let Some(qp) = self.qp_mut(who).filter(|qp| qp.state != State::Err) else {
            return;
        };
        // Queue pairs of the connection manager and for datagrams continue to receive.
        let next = if qp.kind == Kind::Rc || why.is_some() {
            State::Err
        } else {
            State::Sqe
        };
        qp.state = next;
        qp.attrs.state = next as u32;
        qp.attrs.current_state = next as u32;
        let shared = qp.srq.is_some();
        if let Some(kind) = why {
            self.devices[who.machine].event(kind, who.handle);
        }
        self.flush(who);
        if shared && next == State::Err {
            self.devices[who.machine].event(event::QP_LAST_WQE_REACHED, who.handle);
        }
    }

    /// A queue pair's rings are invalid: they are no longer read.
    pub(super) fn broken(&mut self, who: Address, why: Broken) {
        if let Some(qp) = self.qp_mut(who).filter(|qp| !qp.broken) {
            qp.broken = true;
            self.devices[who.machine].log.complain(
                "queue pair",
                format_args!("the rings of {} are invalid: {why}", who.handle),
            );
            self.fail(who, Some(event::QP_FATAL));
        }
    }

    /// Completes all requests of a failed queue pair; its receives stay if only sending has failed.
    pub(super) fn flush(&mut self, who: Address) {
        let Some(qp) = self.qp_mut(who) else { return };
        let all = qp.state == State::Err;
        let cq = qp.send_cq;
        qp.requester.wait_until = None;
        qp.requester.next = 0;
        qp.requester.offset = 0;
        qp.requester.reads = 0;
        qp.requester.first += qp.requester.pending.len() as u64;
        let pending = std::mem::take(&mut qp.requester.pending);
        let receive = if all {
            qp.responder.receive.take()
        } else {
            None
        };
        if let Some(last) = pending.back() {
            self.release(who, last.frees);
        }
        let device = &mut self.devices[who.machine];
        for ended in pending {
            let cqe = super::send::completion(&ended.send, who.handle, Status::Flushed, 0);
            device.complete(cq, &cqe, true);
        }
        if let Some(receive) = receive {
            device.complete_receive(who.handle, receive.wr_id, Status::Flushed);
        }
        // At most one round of the rings: the guest may go on posting.
        let most = device.qps.get(who.handle).map_or(0, |qp| {
            qp.sq
                .capacity()
                .max(qp.rq.as_ref().map_or(0, crate::ring::Ring::capacity))
        });
        for _ in 0..most {
            let Some(send) = self.unsent(who) else { break };
            let cqe = super::send::completion(&send, who.handle, Status::Flushed, 0);
            self.devices[who.machine].complete(cq, &cqe, true);
        }
        for _ in 0..if all { most } else { 0 } {
            let Some(receive) = self.unreceived(who) else {
                break;
            };
            self.devices[who.machine].complete_receive(who.handle, receive.wr_id, Status::Flushed);
        }
    }

    /// The next send of a failed queue pair; frees its slot.
    fn unsent(&mut self, who: Address) -> Option<Send> {
        self.take_unsent(who).unwrap_or_else(|why| {
            self.broken(who, why);
            None
        })
    }

    fn take_unsent(&mut self, who: Address) -> Result<Option<Send>, Broken> {
        let Device { memory, qps, .. } = &mut self.devices[who.machine];
        let qp = qps.get_mut(who.handle).filter(|qp| qp.uid == who.uid);
        let Some(qp) = qp.filter(|qp| !qp.broken) else {
            return Ok(None);
        };
        let Some(address) = qp.sq.take(memory)? else {
            return Ok(None);
        };
        let most = crate::abi::shared::limit::SGES;
        let send = Send::read(memory, address, most, qp.kind != Kind::Rc)?;
        qp.requester.first += 1;
        qp.sq.release(memory, qp.sq.own())?;
        Ok(Some(send))
    }

    /// The next receive of a failed queue pair. Receives of a shared queue are left for other queue
    /// pairs.
    fn unreceived(&mut self, who: Address) -> Option<Recv> {
        self.qp(who).filter(|qp| qp.srq.is_none())?;
        let taken = self.devices[who.machine].take_receive(who.handle);
        taken.unwrap_or_else(|why| {
            self.broken(who, why);
            None
        })
    }
}
