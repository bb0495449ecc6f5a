// SPDX-License-Identifier: GPL-2.0
//! Faults on demand: lost packets, delays, failing requests.
//!
//! Before the first fault the data path has one check, [`Faults::any`]. Loss on the wire has the
//! same effects as with hardware: requests are sent again and finally fail, but bytes are never
//! wrong.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::clock::{Answer, Happening};
use super::{Address, Machine, Switch, Work, MANY};
use crate::abi::event;
use crate::abi::queue::{op, Status};
use crate::keys::Keys;
use crate::qp::{Kind as QpKind, Qp};
use crate::request::{Action, Send};

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A Send, with or without immediate data.
    Send,
    /// A Send that invalidates a key of the peer.
    SendInv,
    /// A Write.
    Write,
    /// A Read.
    Read,
    /// An atomic operation.
    Atomic,
    /// A fast registration.
    Reg,
    /// An invalidation of a local key.
    Inv,
    /// A receive.
    Receive,
}

impl Kind {
    fn of(send: &Send, action: &Action) -> Self {
        match action {
            Action::Send if send.opcode == op::SEND_INV => Self::SendInv,
            Action::Send | Action::Datagram(_) => Self::Send,
            Action::Write { .. } => Self::Write,
            Action::Read(_) => Self::Read,
            Action::Atomic { .. } => Self::Atomic,
            Action::Invalidate => Self::Inv,
            Action::Register(_) => Self::Reg,
        }
    }

    /// Whether requests of this kind can be delayed.
    pub fn travels(self) -> bool {
        matches!(self, Self::Send | Self::SendInv | Self::Write | Self::Read)
    }
}

/// Delay of a kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slow {
    /// Delayed by a time.
    By(Duration),
    /// Delayed until released.
    Held,
}

/// The faults of one machine's adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MachineFaults {
    /// The link is down.
    pub link_down: bool,
    /// One of this number of outgoing pieces is lost.
    pub lose_every: Option<u64>,
    /// Kinds of requests that are delayed.
    pub slow: Vec<(Kind, Slow)>,
    /// Kind, status and number of the next requests that fail.
    pub fail: Vec<(Kind, Status, u32)>,
    /// Time-out of its queue pairs, instead of the drivers' value.
    pub timeout: Option<Duration>,
    /// Peers find no receive posted.
    pub no_receives: bool,
    /// The device is removed.
    pub removed: bool,
}

/// The faults of all machines.
pub(super) struct Faults {
    /// Whether a fault was ever set. It stays set, because delayed requests may still be in flight
    /// after the fault has ended.
    pub(super) any: bool,
    machines: Vec<MachineFaults>,
    /// Held events, the oldest first.
    held: Vec<Happening>,
    look_at: usize,
    /// Number of lost pieces by sending machine.
    lost: Vec<u64>,
    /// Number of pieces that each machine sends until the next loss.
    until_lost: Vec<u64>,
    random: u64,
}

fn is_answer(what: &Happening) -> bool {
    matches!(what, Happening::Answer { .. })
}

impl Faults {
    pub(super) fn new(machines: usize) -> Self {
        Self {
            any: false,
            machines: vec![MachineFaults::default(); machines],
            held: Vec::new(),
            look_at: MANY,
            lost: vec![0; machines],
            until_lost: vec![0; machines],
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Whether to lose a piece of this machine: on average one of `lose_every`, at random
    /// distances. At equal distances each retry of a message could lose the same piece.
    fn loses(&mut self, machine: Machine) -> bool {
        let Some(every) = self.machines[machine].lose_every else {
            return false;
        };
        let until = &mut self.until_lost[machine];
        if *until > 0 {
            *until -= 1;
            return false;
        }
        // Marsaglia's xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        *until = self.random % every.saturating_mul(2).saturating_sub(1);
        true
    }

    fn slow(&self, machine: Machine, kind: Kind) -> Option<Slow> {
        let mut slow = self.machines[machine].slow.iter();
        slow.find(|(k, _)| *k == kind).map(|(_, slow)| *slow)
    }

    fn holds(&self, who: Address) -> bool {
        self.held.iter().any(|what| what.concerns() == who)
    }

    /// Whether an earlier event is held that must not be overtaken. Responses to Reads are ordered
    /// among themselves only; other events may pass them.
    fn is_behind(&self, what: &Happening) -> bool {
        let (who, answer) = (what.concerns(), is_answer(what));
        let mut before = self.held.iter();
        before.any(|held| held.concerns() == who && is_answer(held) == answer)
    }

    /// Consumes one of the errors that requests of a kind must end with.
    fn take_failure(&mut self, machine: Machine, kind: Kind) -> Option<Status> {
        let fail = &mut self.machines[machine].fail;
        let index = fail.iter().position(|(k, ..)| *k == kind)?;
        let (_, status, count) = &mut fail[index];
        let status = *status;
        *count -= 1;
        if *count == 0 {
            fail.remove(index);
        }
        Some(status)
    }
}

impl Switch {
    /// The faults of a machine.
    pub fn faults(&self, machine: Machine) -> &MachineFaults {
        &self.faults.machines[machine]
    }

    /// Number of pieces of a machine that were lost.
    pub(super) fn lost(&self, machine: Machine) -> u64 {
        self.faults.lost[machine]
    }

    /// Whether the device of a machine is removed.
    pub fn is_removed(&self, machine: Machine) -> bool {
        self.faults.any && self.faults.machines[machine].removed
    }

    /// Changes the faults of a machine, with immediate effect.
    pub fn change_faults(
        &mut self,
        machine: Machine,
        change: impl FnOnce(&mut MachineFaults),
        now: Instant,
    ) {
        let before = self.faults.machines[machine].clone();
        change(&mut self.faults.machines[machine]);
        let none = MachineFaults::default();
        self.faults.any |= self.faults.machines[machine] != none;
        let after = &self.faults.machines[machine];
        let (down, removed) = (after.link_down, after.removed);
        if down != before.link_down {
            if down {
                self.lose_held(machine);
            }
            let kind = if down {
                event::PORT_ERR
            } else {
                event::PORT_ACTIVE
            };
            self.devices[machine].event(kind, 1);
        }
        match (before.removed, removed) {
            (false, true) => self.die(machine),
            (true, false) => self.forget(machine),
            _ => {}
        }
        self.let_go(now);
    }

    /// A device is removed: all its requests complete, no key is valid, and no peer finds it. Its
    /// queue pairs stay in the error state until there is a new device, so that requests posted to
    /// them are flushed. Otherwise the kernel would wait for ever for messages of its connection
    /// manager, which vmw_pvrdma does not flush by itself.
    fn die(&mut self, machine: Machine) {
        self.gids.retain(|_, owner| *owner != machine);
        let device = &mut self.devices[machine];
        device.keys = Keys::default();
        device.event(event::DEVICE_FATAL, 1);
        let handles: Vec<_> = device.qps.iter().map(|(handle, _)| handle).collect();
        for handle in handles {
            if let Some(who) = self.address(machine, handle) {
                self.fail(who, Some(event::QP_FATAL));
            }
        }
    }

    /// Schedules events that are no longer held.
    fn let_go(&mut self, now: Instant) {
        for what in std::mem::take(&mut self.faults.held) {
            let machine = what.concerns().machine;
            let held = self.faults.is_behind(&what)
                || self
                    .kind_of(&what)
                    .is_some_and(|kind| self.faults.slow(machine, kind) == Some(Slow::Held));
            if held {
                self.faults.held.push(what);
            } else {
                self.after(now, what);
            }
        }
    }

    /// The kind of request whose delay applies to the event.
    fn kind_of(&self, what: &Happening) -> Option<Kind> {
        let (who, number) = match *what {
            Happening::Piece { from, number, .. } => (from, number),
            // The Read itself is not delayed, so that later requests pass its response.
            Happening::Answer { answer } => (answer.requester, answer.number),
            _ => return None,
        };
        let send = &self.qp(who)?.requester.get(number)?.send;
        Some(Kind::of(send, send.action.as_ref()?))
    }

    fn hold(&mut self, what: Happening) {
        // On a link that is down nothing is held: retries are lost as well.
        let (from, to) = self.way(&what);
        if [from, to].into_iter().flatten().any(|m| self.is_down(m)) {
            return self.lose(&what);
        }
        if self.faults.held.len() >= self.faults.look_at {
            let mut held = std::mem::take(&mut self.faults.held);
            held.retain(|what| self.qp(what.concerns()).is_some());
            self.faults.look_at = MANY.max(2 * held.len());
            self.faults.held = held;
        }
        self.faults.held.push(what);
    }

    /// Loses held events from or to a machine, because its link goes down.
    fn lose_held(&mut self, machine: Machine) {
        for what in std::mem::take(&mut self.faults.held) {
            let (from, to) = self.way(&what);
            if from == Some(machine) || to == Some(machine) {
                self.lose(&what);
            } else {
                self.faults.held.push(what);
            }
        }
    }

    /// Schedules the arrival of a part of a request, delayed if its kind is, and not before earlier
    /// parts.
    pub(super) fn travel(&mut self, at: Instant, what: Happening) {
        if !self.faults.any {
            return self.after(at, what);
        }
        let who = what.concerns();
        let slow = self
            .kind_of(&what)
            .and_then(|kind| self.faults.slow(who.machine, kind));
        if slow == Some(Slow::Held) || self.faults.is_behind(&what) {
            return self.hold(what);
        }
        let Some(qp) = self.qp_mut(who) else { return };
        let last = if is_answer(&what) {
            &mut qp.requester.answers_at
        } else {
            &mut qp.requester.arrives_at
        };
        let slower = match slow {
            Some(Slow::By(time)) => at + time,
            _ => at,
        };
        let at = last.map_or(slower, |last| last.max(slower));
        *last = slow.map_or(*last, |_| Some(at));
        self.after(at, what);
    }

    /// The sending and the receiving machine of an event, if any.
    fn way(&self, what: &Happening) -> (Option<Machine>, Option<Machine>) {
        let peer = |who: Address| {
            self.qp(who)
                .and_then(|qp| self.gids.get(&qp.attrs.path.dgid))
                .copied()
        };
        match *what {
            Happening::Piece { from, .. } | Happening::Request { from, .. } => {
                (Some(from.machine), peer(from))
            }
            Happening::Datagram { from, .. } => (Some(from.machine), None),
            Happening::Answer { answer } | Happening::Data { answer, .. } => (
                Some(answer.responder.machine),
                Some(answer.requester.machine),
            ),
            Happening::Result { to, .. }
            | Happening::Ack { to, .. }
            | Happening::NotReady { to, .. }
            | Happening::Refused { to, .. } => (peer(to), Some(to.machine)),
            Happening::Wake { .. } | Happening::Watch { .. } => (None, None),
        }
    }

    /// Whether a machine's link is down.
    pub(super) fn is_down(&self, machine: Machine) -> bool {
        self.faults.any && self.faults.machines[machine].link_down
    }

    /// Loses an arriving event if a fault applies; returns whether it was lost.
    pub(super) fn is_lost(&mut self, what: &Happening, now: Instant) -> bool {
        // The response to a Read is not on the wire yet.
        if is_answer(what) {
            return false;
        }
        let (from, to) = self.way(what);
        let down = [from, to].into_iter().flatten().any(|m| self.is_down(m));
        // Connections are established by datagrams, whose loss would only slow a test down.
        let datagram = match *what {
            Happening::Datagram { from, number } => Some((from, number)),
            _ => None,
        };
        let nth = datagram.is_none() && from.is_some_and(|machine| self.faults.loses(machine));
        if !down && !nth {
            return false;
        }
        self.lose(what);
        if let Some((from, number)) = datagram {
            self.datagram_is_gone(from, number, now);
        }
        true
    }

    fn lose(&mut self, what: &Happening) {
        if let (Some(from), _) = self.way(what) {
            self.faults.lost[from] += 1;
        }
        if let Some(qp) = self.qp_mut(what.concerns()) {
            qp.requester.lost = true;
        }
    }

    /// Until when a part of a queue pair's requests is delayed on demand, so that a missing answer
    /// is no time-out.
    pub(super) fn is_late(&self, who: Address, now: Instant) -> Option<Instant> {
        if !self.faults.any {
            return None;
        }
        if self.faults.holds(who) {
            return Some(now);
        }
        let requester = &self.qp(who)?.requester;
        requester
            .arrives_at
            .max(requester.answers_at)
            .filter(|at| *at > now)
    }

    /// The time-out of a queue pair for an answer.
    pub(super) fn patience(&self, machine: Machine, qp: &Qp) -> Option<Duration> {
        let patience = qp.patience()?;
        Some(self.faults.machines[machine].timeout.unwrap_or(patience))
    }

    /// Fails a request if a fault says so; returns whether it failed.
    pub(super) fn fails(&mut self, who: Address, number: u64, now: Instant) -> bool {
        let kind = self
            .qp(who)
            .filter(|qp| qp.kind == QpKind::Rc)
            .and_then(|qp| {
                let send = &qp.requester.get(number)?.send;
                Some(Kind::of(send, send.action.as_ref()?))
            });
        let status = kind.and_then(|kind| self.faults.take_failure(who.machine, kind));
        let Some(status) = status else { return false };
        // A peer that refuses a request has its queue pair in the error state as well.
        let why = match status {
            Status::RemoteAccess => Some(event::QP_ACCESS_ERR),
            Status::RemoteInvalidRequest => Some(event::QP_REQ_ERR),
            Status::RemoteOperation => Some(event::QP_FATAL),
            _ => None,
        };
        if let (Some(why), Some(peer)) = (why, self.peer(who)) {
            self.fail(peer, Some(why));
        }
        self.refused(who, number, status, now);
        true
    }

    /// The error that the next receive of a machine must end with.
    pub(super) fn receive_failure(&mut self, machine: Machine) -> Option<Status> {
        if !self.faults.any {
            return None;
        }
        self.faults.take_failure(machine, Kind::Receive)
    }

    /// Whether peers of a machine find no receive.
    pub(super) fn has_no_receives(&self, machine: Machine) -> bool {
        self.faults.any && self.faults.machines[machine].no_receives
    }

    /// Queues the response to a Read at the responder's link.
    pub(super) fn begin_to_answer(&mut self, answer: Answer) {
        self.ports[answer.responder.machine]
            .work
            .push_back(Work::Answer(answer));
    }
}
