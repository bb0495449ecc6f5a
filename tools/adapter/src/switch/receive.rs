// SPDX-License-Identifier: GPL-2.0
//! The responder: Sends and Writes.

use std::sync::Arc;
use std::time::Instant;

use super::clock::Happening;
use super::{Address, Switch};
use crate::abi::queue::{wc, Cqe, Status};
use crate::abi::{access, event};
use crate::memory::{copy, Span};
use crate::qp::State;
use crate::request::{Action, Send};

/// Refusal of a message.
pub(super) struct Refusal {
    /// Status of the sender's request.
    pub(super) sender: Status,
    /// Status of the receive, if the message had consumed one.
    pub(super) receiver: Option<Status>,
    /// Event for the receiver's driver.
    pub(super) event: Option<u32>,
    /// Whether it is a local error of the sender that the receiver does not notice.
    pub(super) own: bool,
}

impl Refusal {
    /// The sender's memory is inaccessible.
    pub(super) const SENDER: Self = Self {
        sender: Status::LocalProtection,
        receiver: None,
        event: None,
        own: true,
    };
    /// The receiver's key does not permit the access.
    pub(super) const ACCESS: Self = Self {
        sender: Status::RemoteAccess,
        receiver: None,
        event: Some(event::QP_ACCESS_ERR),
        own: false,
    };
    /// The receiver does not support the request.
    pub(super) const REQUEST: Self = Self {
        sender: Status::RemoteInvalidRequest,
        receiver: None,
        event: Some(event::QP_REQ_ERR),
        own: false,
    };

    /// The receive cannot hold the message.
    fn receive(status: Status, sender: Status) -> Self {
        Self {
            sender,
            receiver: Some(status),
            event: None,
            own: false,
        }
    }
}

impl Switch {
    /// Whether a message is the next one of its connection; `None`: drop it.
    ///
    /// A repeated message is acknowledged again.
    pub(super) fn expected(
        &mut self,
        from: Address,
        to: Address,
        number: u64,
        offset: u64,
        now: Instant,
    ) -> Option<()> {
        let message = self.qp(from)?.requester.get(number)?.message;
        let peer = self.qp_mut(to)?;
        let (expected, at) = (peer.responder.expected, peer.responder.offset);
        if peer.state == State::Rtr && !peer.responder.established {
            peer.responder.established = true;
            self.devices[to.machine].event(event::COMM_EST, to.handle);
        }
        if message < expected {
            self.reply(now, Happening::Ack { to: from, number });
        }
        (message == expected && offset == at).then_some(())
    }

    /// Refuses a message.
    pub(super) fn refuse(
        &mut self,
        from: Address,
        to: Address,
        number: u64,
        why: &Refusal,
        now: Instant,
    ) {
        let refused = Happening::Refused {
            to: from,
            number,
            status: why.sender,
        };
        if why.own {
            self.after(now, refused);
            return;
        }
        let taken = self
            .qp_mut(to)
            .and_then(|peer| peer.responder.receive.take());
        if let Some(receive) = taken {
            let status = why.receiver.unwrap_or(Status::Flushed);
            self.devices[to.machine].complete_receive(to.handle, receive.wr_id, status);
        }
        self.fail(to, why.event);
        self.reply(now, refused);
    }

    /// A piece of a Send or a Write arrives.
    pub(super) fn receive(
        &mut self,
        from: Address,
        number: u64,
        offset: u64,
        len: u64,
        now: Instant,
    ) {
        let Some(to) = self.peer(from) else { return };
        let Some(send) = self
            .qp(from)
            .and_then(|qp| qp.requester.get(number))
            .map(|p| Arc::clone(&p.send))
        else {
            return;
        };
        if self.expected(from, to, number, offset, now).is_none() {
            return;
        }
        let last = offset + len == send.ranges.total();
        let takes_receive = match send.action {
            Some(Action::Send) => offset == 0,
            Some(Action::Write { receive, .. }) => receive && last,
            _ => return,
        };
        if takes_receive
            && self
                .qp(to)
                .is_some_and(|peer| peer.responder.receive.is_none())
        {
            let taken = if self.has_no_receives(to.machine) {
                Ok(None)
            } else {
                self.devices[to.machine].take_receive(to.handle)
            };
            match taken {
                Ok(Some(receive)) => {
                    if let Some(peer) = self.qp_mut(to) {
                        peer.responder.receive = Some(receive);
                    }
                    if let Some(status) = self.receive_failure(to.machine) {
                        let why = Refusal::receive(status, Status::RemoteOperation);
                        self.refuse(from, to, number, &why, now);
                        return;
                    }
                }
                Ok(None) => {
                    let delay = self
                        .qp(to)
                        .map_or_else(Default::default, super::super::qp::Qp::rnr_delay);
                    self.reply(
                        now,
                        Happening::NotReady {
                            to: from,
                            number,
                            offset,
                            delay,
                        },
                    );
                    return;
                }
                Err(why) => {
                    self.broken(to, why);
                    return;
                }
            }
        }
        if let Err(why) = self.take_piece(from, to, &send, offset, len) {
            self.refuse(from, to, number, &why, now);
            return;
        }
        let Some(peer) = self.qp_mut(to) else { return };
        if !last {
            peer.responder.offset += len;
            return;
        }
        if let Some(key) = send.invalidates() {
            let pd = peer.pd;
            if self.devices[to.machine].keys.invalidate(key, pd).is_err() {
                let why = Refusal::receive(Status::LocalAccess, Status::RemoteInvalidRequest);
                self.refuse(from, to, number, &why, now);
                return;
            }
        }
        if let Some(peer) = self.qp_mut(to) {
            peer.responder.expected += 1;
            peer.responder.offset = 0;
        }
        self.received(to, &send);
        self.reply(now, Happening::Ack { to: from, number });
    }

    /// Copies a piece to its destination.
    fn take_piece(
        &self,
        from: Address,
        to: Address,
        send: &Send,
        offset: u64,
        len: u64,
    ) -> Result<(), Refusal> {
        let (source, target) = (&self.devices[from.machine], &self.devices[to.machine]);
        let (Some(sender), Some(peer)) = (self.qp(from), self.qp(to)) else {
            return Ok(());
        };
        let no_source = |_| Refusal::SENDER;
        let mut write = Vec::new();
        let no_target = match send.action {
            Some(Action::Write { to: place, .. }) => {
                if len > 0 {
                    self.writable(
                        to,
                        place.rkey,
                        place.addr.wrapping_add(offset),
                        len,
                        &mut write,
                    )?;
                }
                Refusal::ACCESS
            }
            _ => {
                let ranges = peer
                    .responder
                    .receive
                    .as_ref()
                    .and_then(|receive| receive.ranges.as_ref());
                let wrong = || Refusal::receive(Status::LocalOperation, Status::RemoteOperation);
                let ranges = ranges.ok_or_else(wrong)?;
                if ranges.total() < send.ranges.total() {
                    return Err(Refusal::receive(
                        Status::LocalLength,
                        Status::RemoteInvalidRequest,
                    ));
                }
                let wrong = |_| Refusal::receive(Status::LocalProtection, Status::RemoteOperation);
                write = ranges
                    .spans(&target.keys, peer.pd, access::LOCAL_WRITE, offset, len)
                    .map_err(wrong)?;
                wrong(crate::keys::Denied)
            }
        };
        let read = send
            .ranges
            .spans(&source.keys, sender.pd, 0, offset, len)
            .map_err(no_source)?;
        match copy((&source.memory, &read), (&target.memory, &write)) {
            Ok(_) => Ok(()),
            Err(true) => Err(Refusal::SENDER),
            Err(false) => Err(no_target),
        }
    }

    fn writable(
        &self,
        to: Address,
        rkey: u32,
        addr: u64,
        len: u64,
        spans: &mut Vec<Span>,
    ) -> Result<(), Refusal> {
        let Some(peer) = self.qp(to) else {
            return Ok(());
        };
        if peer.attrs.access & access::REMOTE_WRITE == 0 {
            return Err(Refusal::ACCESS);
        }
        self.devices[to.machine]
            .keys
            .spans(rkey, peer.pd, access::REMOTE_WRITE, addr, len, spans)
            .map_err(|_| Refusal::ACCESS)
    }

    /// A message is complete.
    fn received(&mut self, to: Address, send: &Send) {
        let Some(peer) = self.qp_mut(to) else { return };
        let Some(receive) = peer.responder.receive.take() else {
            return;
        };
        peer.counters.receives += 1;
        let (flags, ex) = send.told();
        let written = matches!(send.action, Some(Action::Write { .. }));
        let cqe = Cqe {
            wr_id: receive.wr_id,
            qp: u64::from(to.handle),
            opcode: if written { wc::RECV_RDMA_IMM } else { wc::RECV },
            byte_len: send.ranges.total() as u32,
            ex,
            flags,
            src_qp: peer.attrs.dest_qpn,
            port: 1,
            ..Cqe::default()
        };
        let cq = peer.recv_cq;
        self.devices[to.machine].complete(cq, &cqe, send.is_solicited());
    }
}
