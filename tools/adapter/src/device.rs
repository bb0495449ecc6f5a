// SPDX-License-Identifier: GPL-2.0
//! The adapter of one machine: its objects, its rings, its interrupts.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;

use crate::abi::queue::{wc, Cqe, Status};
use crate::abi::shared::{limit, Capabilities, DriverPart, RingPages, CAPABILITIES_AT};
use crate::abi::{event, vector};
use crate::cq::{Armed, Cq, Put};
use crate::keys::Keys;
use crate::memory::Memory;
use crate::qp::{Counters, Qp};
use crate::request::Recv;
use crate::ring::{Broken, Place, Ring};
use crate::table::Table;

/// Why the device refuses a command, or does not work: what the error register says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Error {
    /// A value makes no sense.
    Invalid = 22,
    /// There is no room for another object.
    NoRoom = 12,
    /// There is no such object.
    NoSuch = 2,
    /// The object is in use.
    Busy = 16,
    /// An address is not accessible, or a ring makes no sense.
    Fault = 14,
}

impl From<crate::memory::Unmapped> for Error {
    fn from(_: crate::memory::Unmapped) -> Self {
        Self::Fault
    }
}

/// What the driver has told of itself in the shared region.
pub struct Shared {
    /// The command slot's address.
    pub commands: u64,
    /// The response slot's address.
    pub responses: u64,
    events: Ring,
    notifications: Ring,
}

/// A shared receive queue.
pub struct Srq {
    /// Protection domain.
    pub pd: u32,
    /// The ring.
    pub ring: Ring,
    /// Ranges of a request.
    pub most: u32,
    /// An event comes when there are fewer requests.
    pub limit: u32,
    /// Requests.
    pub size: u32,
}

/// An adapter.
pub struct Device {
    /// The machine's memory.
    pub memory: Memory,
    /// What the driver has told; `None` until it does.
    pub shared: Option<Shared>,
    /// Whether the driver has activated the device.
    pub active: bool,
    /// The error register.
    pub error: u32,
    /// The interrupt mask register.
    pub masked: u32,
    /// Event file descriptors of the vectors.
    pub vectors: [Option<File>; vector::COUNT],
    /// Protection domains.
    pub pds: Table<()>,
    /// User contexts.
    pub contexts: Table<()>,
    /// Completion queues.
    pub cqs: Table<Cq>,
    /// Queue pairs.
    pub qps: Table<Qp>,
    /// Shared receive queues.
    pub srqs: Table<Srq>,
    /// Regions of memory.
    pub keys: Keys,
    /// Addresses.
    pub gids: Vec<Option<[u8; 16]>>,
    /// What queue pairs that are gone have done.
    pub counters: Counters,
    /// Doorbells that were rung.
    pub doorbells: u64,
    /// Interrupts that were raised.
    pub interrupts: u64,
    /// Completion queues that the notification ring had no room for.
    unnotified: VecDeque<u32>,
    number: usize,
    complaints: u32,
}

/// Lines that the log has of a machine at most: a guest could fill it.
const MOST_COMPLAINTS: u32 = 100;

impl Device {
    /// The adapter of the machine with that number.
    pub fn new(number: usize) -> Self {
        Self {
            memory: Memory::default(),
            shared: None,
            active: false,
            error: 0,
            masked: 0,
            vectors: Default::default(),
            pds: Table::new(1, limit::PDS),
            contexts: Table::new(1, limit::PDS),
            cqs: Table::new(1, limit::CQS),
            // 0 and 1 are numbers of special queue pairs everywhere.
            qps: Table::new(2, limit::QPS),
            srqs: Table::new(1, limit::SRQS),
            keys: Keys::default(),
            gids: vec![None; limit::GIDS as usize],
            counters: Counters::default(),
            doorbells: 0,
            interrupts: 0,
            unnotified: VecDeque::new(),
            number,
            complaints: 0,
        }
    }

    /// The global identifier: locally administered, and another one for each machine.
    fn guid(&self) -> [u8; 8] {
        let [high, low] = (self.number as u16).to_be_bytes();
        [0x02, 0x27, 0, 0xff, 0xfe, 0, high, low]
    }

    /// Says in the log what a guest has done wrong.
    pub fn complain(&mut self, what: &str) {
        self.complaints += 1;
        if self.complaints <= MOST_COMPLAINTS {
            eprintln!("adapter: machine {}: {what}", self.number);
        }
        if self.complaints == MOST_COMPLAINTS {
            eprintln!("adapter: machine {}: no more of it", self.number);
        }
    }

    /// Forgets all that the driver has made; the memory and the interrupts stay.
    pub fn forget(&mut self) {
        let fresh = Self::new(self.number);
        let old = std::mem::replace(self, fresh);
        self.memory = old.memory;
        self.vectors = old.vectors;
        self.counters = old.counters;
        self.doorbells = old.doorbells;
        self.interrupts = old.interrupts;
        self.complaints = old.complaints;
    }

    /// Reads the shared region at that address, and writes what the device can do into it.
    ///
    /// # Errors
    ///
    /// A part of it is not accessible, or its rings make no sense.
    pub fn share(&mut self, address: u64) -> Result<(), Error> {
        self.shared = None;
        let driver: DriverPart = self.memory.read(address)?;
        let ring = |pages: RingPages, entry: u32| -> Result<Ring, Error> {
            if !(2..=64).contains(&pages.pages) {
                return Err(Error::Invalid);
            }
            let found = self
                .memory
                .page_directory(pages.directory, u64::from(pages.pages))?;
            let slots = (pages.pages - 1) * crate::abi::PAGE as u32 / entry;
            Ring::new(found[0], Place::Second, &found[1..], slots, entry).ok_or(Error::Invalid)
        };
        let shared = Shared {
            commands: driver.command_slot,
            responses: driver.response_slot,
            events: ring(driver.events, 8)?,
            notifications: ring(driver.notifications, 4)?,
        };
        let at = address.checked_add(CAPABILITIES_AT).ok_or(Error::Fault)?;
        self.memory.write(at, &Capabilities::of(self.guid()))?;
        self.shared = Some(shared);
        Ok(())
    }

    /// Raises an interrupt.
    pub fn interrupt(&mut self, vector: usize) {
        if self.masked & (1 << vector) != 0 {
            return;
        }
        if let Some(mut file) = self.vectors[vector].as_ref() {
            // An event descriptor takes the number at once; it is full only after 2^64 interrupts.
            if file.write_all(&1u64.to_ne_bytes()).is_ok() {
                self.interrupts += 1;
            }
        }
    }

    /// Tells the driver of an event. One that has no room is lost: the driver does not listen.
    pub fn event(&mut self, kind: u32, info: u32) {
        if let Some(shared) = &mut self.shared {
            if shared.events.put(&self.memory, &[kind, info]) == Ok(true) {
                self.interrupt(vector::ASYNC);
            }
        }
    }

    /// Tells the driver that a completion queue has something.
    pub fn notify(&mut self, cq: u32) {
        if !self.unnotified.contains(&cq) {
            self.unnotified.push_back(cq);
        }
        self.notify_rest();
    }

    /// Tells the driver of completion queues for which there was no room before.
    pub fn notify_rest(&mut self) {
        let mut told = false;
        while let (Some(shared), Some(cq)) = (&mut self.shared, self.unnotified.front()) {
            if shared.notifications.put(&self.memory, cq) != Ok(true) {
                break;
            }
            self.unnotified.pop_front();
            told = true;
        }
        if told {
            self.interrupt(vector::CQ);
        }
    }

    /// The guest wants to be notified of a completion queue.
    pub fn arm(&mut self, handle: u32, armed: Armed) {
        if self
            .cqs
            .get_mut(handle)
            .is_some_and(|cq| cq.arm(&self.memory, armed))
        {
            self.notify(handle);
        }
        self.notify_rest();
    }

    /// Adds a completion to a queue; `solicited`: it wakes those who wait for such.
    pub fn complete(&mut self, cq: u32, cqe: &Cqe, solicited: bool) {
        let Some(queue) = self.cqs.get_mut(cq) else {
            return;
        };
        match queue.put(&self.memory, cqe, solicited) {
            Put::Quiet | Put::Lost => {}
            Put::Notify => self.notify(cq),
            Put::Overflow => {
                self.complain(&format!(
                    "completion queue {cq} has no room, or makes no sense"
                ));
                self.event(event::CQ_ERR, cq);
            }
        }
    }

    /// Ends a receive of the queue pair with that handle.
    pub fn complete_receive(&mut self, handle: u32, wr_id: u64, status: Status) {
        let Some(qp) = self.qps.get_mut(handle) else {
            return;
        };
        if status != Status::Flushed {
            qp.counters.errors += 1;
        }
        let cqe = Cqe {
            wr_id,
            qp: u64::from(handle),
            opcode: wc::RECV,
            status: status as u32,
            port: 1,
            ..Cqe::default()
        };
        let cq = qp.recv_cq;
        self.complete(cq, &cqe, true);
    }

    /// Takes the next receive of a queue pair, from its own or its shared queue.
    ///
    /// # Errors
    ///
    /// The queue makes no sense.
    pub fn take_receive(&mut self, handle: u32) -> Result<Option<Recv>, Broken> {
        let Some(qp) = self.qps.get_mut(handle) else {
            return Ok(None);
        };
        let Some(srq) = qp.srq else {
            let most = limit::SGES;
            return match &mut qp.rq {
                Some(ring) if !qp.broken => Self::take(&self.memory, ring, most),
                _ => Ok(None),
            };
        };
        let Some(queue) = self.srqs.get_mut(srq) else {
            return Ok(None);
        };
        let taken = Self::take(&self.memory, &mut queue.ring, queue.most);
        let few =
            taken.is_err() || queue.limit > 0 && queue.ring.waiting(&self.memory)? < queue.limit;
        if few {
            queue.limit = 0;
            let kind = if taken.is_err() {
                event::SRQ_ERR
            } else {
                event::SRQ_LIMIT_REACHED
            };
            self.event(kind, srq);
        }
        taken
    }

    fn take(memory: &Memory, ring: &mut Ring, most: u32) -> Result<Option<Recv>, Broken> {
        let Some(address) = ring.take(memory)? else {
            return Ok(None);
        };
        let recv = Recv::read(memory, address, most)?;
        ring.release(memory, ring.own())?;
        Ok(Some(recv))
    }
}
