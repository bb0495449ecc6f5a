// SPDX-License-Identifier: GPL-2.0
//! Faults on demand: what the wire loses, what is slow, what ends with an error.
//!
//! Until the first fault the data path has one check, [`Faults::any`]. What is lost on the wire shows as it does
//! with hardware: as requests that are sent again, and in the end as an error; never as wrong bytes.

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
    /// A Send that invalidates a key of the peer's.
    SendInv,
    /// A Write.
    Write,
    /// A Read.
    Read,
    /// An atomic operation.
    Atomic,
    /// A registration.
    Reg,
    /// An invalidation of an own key.
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

    /// Whether it can be slow.
    pub fn travels(self) -> bool {
        matches!(self, Self::Send | Self::SendInv | Self::Write | Self::Read)
    }
}

/// How slow a kind of request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slow {
    /// By so much.
    By(Duration),
    /// Until it is released.
    Held,
}

/// The faults of one machine's adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MachineFaults {
    /// Nothing passes its link.
    pub link_down: bool,
    /// Every so many pieces that leave it are lost.
    pub lose_every: Option<u64>,
    /// Kinds of its requests that are slow.
    pub slow: Vec<(Kind, Slow)>,
    /// Its next requests of a kind that end with a status: how many.
    pub fail: Vec<(Kind, Status, u32)>,
    /// What its queue pairs wait for an answer, instead of what their drivers have set.
    pub timeout: Option<Duration>,
    /// Its peers find no receive.
    pub no_receives: bool,
    /// The device is gone.
    pub removed: bool,
}

/// The faults of all machines.
pub(super) struct Faults {
    /// Whether there was any: what was slow is on its way when nothing is slow any more.
    pub(super) any: bool,
    machines: Vec<MachineFaults>,
    /// What is held, the oldest first.
    held: Vec<Happening>,
    look_at: usize,
    /// What has left each machine and was lost.
    lost: Vec<u64>,
    /// How many more leave each machine until the next one is lost.
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

    /// Whether what leaves a machine is to be lost: one of so many, but not at equal distances. Else each
    /// try of a message could lose the same piece.
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

    /// Whether something is held that must not be overtaken. Answers have an order of their own: what is
    /// not one passes them.
    fn is_behind(&self, what: &Happening) -> bool {
        let (who, answer) = (what.concerns(), is_answer(what));
        let mut before = self.held.iter();
        before.any(|held| held.concerns() == who && is_answer(held) == answer)
    }

    /// Takes one of the errors that requests of a kind are to end with.
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

    /// Pieces of a machine that were lost.
    pub(super) fn lost(&self, machine: Machine) -> u64 {
        self.faults.lost[machine]
    }

    /// Whether the device of a machine is gone.
    pub fn is_removed(&self, machine: Machine) -> bool {
        self.faults.any && self.faults.machines[machine].removed
    }

    /// Changes the faults of a machine. What that ends or begins happens now.
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

    /// A device is gone: all its requests end, no key is valid, no peer finds it. Its queue pairs stay, in
    /// error, until there is a new device: what is posted to them is flushed. Without that the kernel would wait
    /// for ever for messages of its connection manager, which vmw_pvrdma does not end by itself.
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

    /// Lets happen what nothing holds any more.
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

    /// The kind of request whose slowness concerns that.
    fn kind_of(&self, what: &Happening) -> Option<Kind> {
        let (who, number) = match *what {
            Happening::Piece { from, number, .. } => (from, number),
            // The Read itself is on time, so that what follows it passes its answer.
            Happening::Answer { answer } => (answer.requester, answer.number),
            _ => return None,
        };
        let send = &self.qp(who)?.requester.get(number)?.send;
        Some(Kind::of(send, send.action.as_ref()?))
    }

    fn hold(&mut self, what: Happening) {
        // A link that is down holds nothing: what is sent again is lost again.
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

    /// What is held of a machine's requests, or for them, is lost with the link.
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

    /// Lets a part of a request arrive at that time, or later if its kind is slow: after what is before it.
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

    /// From which machine to which one something goes; none for what does not leave a machine.
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

    /// Whether a machine's link carries nothing.
    pub(super) fn is_down(&self, machine: Machine) -> bool {
        self.faults.any && self.faults.machines[machine].link_down
    }

    /// Loses what arrives, if a fault says so; returns whether it did.
    pub(super) fn is_lost(&mut self, what: &Happening, now: Instant) -> bool {
        // The answer of a Read is not on the wire yet.
        if is_answer(what) {
            return false;
        }
        let (from, to) = self.way(what);
        let down = [from, to].into_iter().flatten().any(|m| self.is_down(m));
        // A connection is made by datagrams, whose loss would only make a test slow.
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

    /// Whether a part of a queue pair's requests is late, so that its silence means nothing; and until when.
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

    /// How long a queue pair waits for an answer.
    pub(super) fn patience(&self, machine: Machine, qp: &Qp) -> Option<Duration> {
        let patience = qp.patience()?;
        Some(self.faults.machines[machine].timeout.unwrap_or(patience))
    }

    /// Ends a request with an error, if it is the next one that is to; returns whether it did.
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
        // Who refuses a request has a queue pair in error as well.
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

    /// The error that a receive of a machine is to end with.
    pub(super) fn receive_failure(&mut self, machine: Machine) -> Option<Status> {
        if !self.faults.any {
            return None;
        }
        self.faults.take_failure(machine, Kind::Receive)
    }

    /// Whether the peers of a machine find no receive.
    pub(super) fn has_no_receives(&self, machine: Machine) -> bool {
        self.faults.any && self.faults.machines[machine].no_receives
    }

    /// The answer of a Read may go on its way.
    pub(super) fn begin_to_answer(&mut self, answer: Answer) {
        self.ports[answer.responder.machine]
            .work
            .push_back(Work::Answer(answer));
    }
}
