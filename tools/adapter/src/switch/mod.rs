// SPDX-License-Identifier: GPL-2.0
//! The switch: adapters of all machines, links between them, and the clock.
//!
//! The wire is a list of events with times: a piece of a message arrives, an answer arrives, a
//! retry after a missing receive is due. The bytes of a piece are copied from one guest's memory to
//! the other's when it arrives. A machine's link carries one piece at a time. With a rate, a piece
//! occupies the link in proportion to its bytes; the latency is added to each arrival. Nothing
//! waits in a loop: [`Switch::step`] does one step, or returns the time of the next event.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::qp::{Qp, State};

mod clock;
mod command;
mod create;
mod datagram;
mod end;
mod fault;
mod receive;
mod registers;
mod report;
mod respond;
mod retry;
mod send;

use clock::{Answer, Happening, Timed};
pub use fault::{Kind, MachineFaults, Slow};
pub use report::Report;

/// A machine's number.
pub type Machine = usize;

/// A queue pair of a machine. The queue pair no longer exists if the unique number differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The machine.
    pub machine: Machine,
    /// The handle, which is also the number that peers use.
    pub handle: u32,
    /// The unique number.
    pub uid: u64,
}

/// Speed of links.
#[derive(Clone, Copy, Debug, Default)]
pub struct Link {
    /// Bytes per second; `None`: as fast as the host copies.
    pub rate: Option<u64>,
    /// Latency between adapters.
    pub latency: Duration,
}

/// Maximum number of bytes that occupy a link at a time: others wait for them.
const PIECE: u64 = 64 << 10;
/// Number of events in the clock above which events of destroyed queue pairs are removed: a guest
/// could create and destroy queue pairs without end.
const MANY: usize = 1 << 18;
/// How much a late clock may catch up, so that a link with work keeps its rate if the host's
/// scheduler is late.
const LATE: Duration = Duration::from_micros(500);

impl Link {
    /// How long a number of bytes occupies the link.
    fn time(&self, bytes: u64) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| {
            Duration::from_nanos(
                (u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))) as u64,
            )
        })
    }
}

/// Work of a link.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// A queue pair's next request.
    Send(Address),
    /// The response to a Read.
    Answer(Answer),
}

/// A machine's link to the switch.
struct Port {
    work: VecDeque<Work>,
    free_at: Instant,
    /// Whether the next work has waited for the link, or for the work before it.
    has_waited: bool,
}

/// Result of [`Switch::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A step was done; there may be more.
    Done,
    /// Nothing to do before this time unless a guest rings a doorbell.
    Until(Option<Instant>),
}

/// All machines.
pub struct Switch {
    devices: Vec<Device>,
    ports: Vec<Port>,
    link: Link,
    gids: HashMap<[u8; 16], Machine>,
    clock: BinaryHeap<Reverse<Timed>>,
    look_at: usize,
    order: u64,
    uid: u64,
    low_halves: Vec<u32>,
    faults: fault::Faults,
}

impl Switch {
    /// A switch with this number of machines.
    pub fn new(machines: usize, link: Link) -> Self {
        let now = Instant::now();
        Self {
            devices: (1..=machines).map(Device::new).collect(),
            ports: (0..machines)
                .map(|_| Port {
                    work: VecDeque::new(),
                    free_at: now,
                    has_waited: false,
                })
                .collect(),
            link,
            gids: HashMap::new(),
            clock: BinaryHeap::new(),
            look_at: MANY,
            order: 0,
            uid: 0,
            low_halves: vec![0; machines],
            faults: fault::Faults::new(machines),
        }
    }

    /// Sets how many bytes per second each link carries from now on; `None` is as fast as the host copies.
    pub fn set_rate(&mut self, rate: Option<u64>) {
        self.link.rate = rate;
    }

    /// A machine's adapter.
    pub fn device(&mut self, machine: Machine) -> &mut Device {
        &mut self.devices[machine]
    }

    /// The number of machines.
    pub fn machines(&self) -> usize {
        self.devices.len()
    }

    /// A new unique number.
    fn unique(&mut self) -> u64 {
        self.uid += 1;
        self.uid
    }

    /// The queue pair, if it still exists.
    fn qp(&self, who: Address) -> Option<&Qp> {
        self.devices[who.machine]
            .qps
            .get(who.handle)
            .filter(|qp| qp.uid == who.uid)
    }

    /// The queue pair, if it still exists.
    fn qp_mut(&mut self, who: Address) -> Option<&mut Qp> {
        self.devices[who.machine]
            .qps
            .get_mut(who.handle)
            .filter(|qp| qp.uid == who.uid)
    }

    /// The address of the queue pair with this handle.
    fn address(&self, machine: Machine, handle: u32) -> Option<Address> {
        self.devices[machine].qps.get(handle).map(|qp| Address {
            machine,
            handle,
            uid: qp.uid,
        })
    }

    /// The peer of a connected queue pair, if it exists and is connected to this one.
    fn peer(&self, who: Address) -> Option<Address> {
        let qp = self.qp(who)?;
        let machine = *self.gids.get(&qp.attrs.path.dgid)?;
        let to = self.address(machine, qp.attrs.dest_qpn)?;
        let peer = self.qp(to)?;
        let connected = peer.kind == qp.kind
            && peer.state.receives()
            && peer.attrs.dest_qpn == who.handle
            && peer.attrs.rq_psn == qp.attrs.sq_psn
            && self.gids.get(&peer.attrs.path.dgid) == Some(&who.machine);
        connected.then_some(to)
    }

    /// Schedules an event.
    fn after(&mut self, at: Instant, what: Happening) {
        if self.clock.len() >= self.look_at {
            let mut clock = std::mem::take(&mut self.clock);
            clock.retain(|Reverse(timed)| self.qp(timed.what.concerns()).is_some());
            self.clock = clock;
            self.look_at = MANY.max(2 * self.clock.len());
        }
        self.order += 1;
        self.clock.push(Reverse(Timed {
            at,
            order: self.order,
            what,
        }));
    }

    /// Schedules the arrival of an answer, which does not occupy the link.
    fn reply(&mut self, now: Instant, what: Happening) {
        self.after(now + self.link.latency, what);
    }

    /// Size of the next piece that a machine's link carries.
    fn piece(&self) -> u64 {
        // About 20 us of the link, so that a short message does not wait long behind others.
        self.link
            .rate
            .map_or(PIECE, |rate| ((rate / 50_000) & !4095).clamp(4096, PIECE))
    }

    /// Occupies the link for a number of bytes; returns their arrival time.
    fn occupy(&mut self, machine: Machine, bytes: u64, now: Instant) -> Instant {
        let port = &mut self.ports[machine];
        let earliest = if port.has_waited {
            now.checked_sub(LATE).unwrap_or(now)
        } else {
            now
        };
        let begin = port.free_at.max(earliest);
        port.free_at = begin + self.link.time(bytes);
        port.free_at.max(now) + self.link.latency
    }

    /// Queues a queue pair that may have requests to send.
    fn ready(&mut self, who: Address) {
        if let Some(qp) = self.qp_mut(who).filter(|qp| !qp.requester.queued) {
            qp.requester.queued = true;
            self.ports[who.machine].work.push_back(Work::Send(who));
        }
    }

    /// Does one step that is due.
    pub fn step(&mut self, now: Instant) -> Step {
        if self
            .clock
            .peek()
            .is_some_and(|Reverse(next)| next.at <= now)
        {
            if let Some(Reverse(next)) = self.clock.pop() {
                self.happen(next.what, now);
            }
            return Step::Done;
        }
        let mut until = self.clock.peek().map(|Reverse(next)| next.at);
        for port in &mut self.ports {
            port.has_waited |= !port.work.is_empty() && port.free_at > now;
        }
        // Use the link that has been free for the longest time, so that all links get their turn.
        let next = (0..self.ports.len())
            .filter(|m| !self.ports[*m].work.is_empty())
            .min_by_key(|m| self.ports[*m].free_at);
        if let Some(machine) = next {
            let free_at = self.ports[machine].free_at;
            if free_at <= now {
                self.carry(machine, now);
                return Step::Done;
            }
            until = Some(until.map_or(free_at, |at| at.min(free_at)));
        }
        Step::Until(until)
    }

    /// Lets a machine's link carry its next piece.
    fn carry(&mut self, machine: Machine, now: Instant) {
        match self.ports[machine].work.pop_front() {
            Some(Work::Send(who)) => {
                if let Some(qp) = self.qp_mut(who) {
                    qp.requester.queued = false;
                    if self.send(who, now) {
                        self.ready(who);
                    }
                }
            }
            Some(Work::Answer(answer)) => {
                if let Some(rest) = self.answer(answer, now) {
                    self.ports[machine].work.push_back(Work::Answer(rest));
                }
            }
            None => {}
        }
        let port = &mut self.ports[machine];
        port.has_waited = !port.work.is_empty();
        // A link without a rate is free at once and queues behind the others.
        if self.link.rate.is_none() {
            self.ports[machine].free_at = now;
        }
    }

    fn happen(&mut self, what: Happening, now: Instant) {
        if self.faults.any && self.is_lost(&what, now) {
            return;
        }
        match what {
            Happening::Piece {
                from,
                number,
                offset,
                len,
            } => self.receive(from, number, offset, len, now),
            Happening::Request { from, number } => self.respond(from, number, now),
            Happening::Datagram { from, number } => self.deliver(from, number, now),
            Happening::Answer { answer } => self.begin_to_answer(answer),
            Happening::Data { answer, len } => self.read_came(answer, len, now),
            Happening::Result { to, number, value } => self.result_came(to, number, value, now),
            Happening::Ack { to, number } => self.acknowledged(to, number, now),
            Happening::NotReady {
                to,
                number,
                offset,
                delay,
            } => self.not_ready(to, number, offset, delay, now),
            Happening::Refused { to, number, status } => self.refused(to, number, status, now),
            Happening::Wake { who } => self.ready(who),
            Happening::Watch { who } => self.watch(who, now),
        }
    }

    /// Whether the queue pair may send.
    fn sends(qp: &Qp) -> bool {
        matches!(qp.state, State::Rts | State::Sqd)
    }
}
