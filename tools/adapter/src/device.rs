// SPDX-License-Identifier: GPL-2.0
//! The adapter of one machine: its objects, its rings, its interrupts.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;

use crate::abi::queue::{wc, Cqe, Status};
use crate::abi::shared::{limit, Capabilities, DriverPart, RingPages, CAPABILITIES_AT};
use crate::abi::{event, vector};
use crate::cq::{Armed, Cq, Put};
use crate::error::{Error, Refused};
use crate::keys::Keys;
use crate::log::Log;
use crate::memory::Memory;
use crate::qp::{Counters, Qp};
use crate::request::Recv;
use crate::ring::{Broken, Place, Ring};
use crate::table::Table;

/// Contents of the driver's part of the shared region.
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
    /// Maximum number of ranges of a request.
    pub most: u32,
    /// An event is raised when fewer requests are left.
    pub limit: u32,
    /// Maximum number of requests.
    pub size: u32,
}

/// An adapter.
pub struct Device {
    /// The machine's memory.
    pub memory: Memory,
    /// The shared region; `None` until the driver has set it.
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
    /// The machine's addresses (GIDs).
    pub gids: Vec<Option<[u8; 16]>>,
    /// Sum of the counters of destroyed queue pairs.
    pub counters: Counters,
    /// Number of doorbells rung.
    pub doorbells: u64,
    /// Number of interrupts raised.
    pub interrupts: u64,
    /// Completion queues that did not fit in the notification ring.
    unnotified: VecDeque<u32>,
    /// The log of errors of the guest.
    pub log: Log,
    number: usize,
}

impl Device {
    /// The adapter of machine `number`.
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
            // 0 and 1 are reserved for special queue pairs.
            qps: Table::new(2, limit::QPS),
            srqs: Table::new(1, limit::SRQS),
            keys: Keys::default(),
            gids: vec![None; limit::GIDS as usize],
            counters: Counters::default(),
            doorbells: 0,
            interrupts: 0,
            unnotified: VecDeque::new(),
            log: Log::new(number),
            number,
        }
    }

    /// The global identifier: locally administered, different for each machine.
    fn guid(&self) -> [u8; 8] {
        let [high, low] = (self.number as u16).to_be_bytes();
        [0x02, 0x27, 0, 0xff, 0xfe, 0, high, low]
    }

    /// Destroys all objects of the driver. Memory and interrupts stay.
    pub fn forget(&mut self) {
        let fresh = Self::new(self.number);
        let old = std::mem::replace(self, fresh);
        self.memory = old.memory;
        self.vectors = old.vectors;
        self.counters = old.counters;
        self.doorbells = old.doorbells;
        self.interrupts = old.interrupts;
        self.log = old.log;
        self.log.reset();
    }

    /// Reads the shared region at `address`, and writes the capabilities to it.
    ///
    /// # Errors
    ///
    /// A part of it is not accessible, or its rings are invalid.
    pub fn share(&mut self, address: u64) -> Result<(), Refused> {
        self.shared = None;
        let fault = |_| Error::Fault.of(format_args!("the shared region at {address:#x}"));
        let driver: DriverPart = self.memory.read(address).map_err(fault)?;
        let ring = |pages: RingPages, entry: u32| -> Result<Ring, Refused> {
            if !(2..=64).contains(&pages.pages) {
                return Err(Error::Invalid.of(format_args!("a ring of {} pages", pages.pages)));
            }
            let found = self
                .memory
                .page_directory(pages.directory, u64::from(pages.pages))?;
            let slots = (pages.pages - 1) * crate::abi::PAGE as u32 / entry;
            Ring::new(found[0], Place::Second, &found[1..], slots, entry)
        };
        let shared = Shared {
            commands: driver.command_slot,
            responses: driver.response_slot,
            events: ring(driver.events, 8)?,
            notifications: ring(driver.notifications, 4)?,
        };
        // The driver's part is accessible, so its end is an address.
        let at = address.saturating_add(CAPABILITIES_AT);
        let capabilities = Capabilities::of(self.guid());
        self.memory.write(at, &capabilities).map_err(fault)?;
        self.shared = Some(shared);
        Ok(())
    }

    /// Raises an interrupt.
    pub fn interrupt(&mut self, vector: usize) {
        if self.masked & (1 << vector) != 0 {
            return;
        }
        if let Some(mut file) = self.vectors[vector].as_ref() {
            // A write to an event descriptor does not block; the descriptor overflows only after
            // 2^64 interrupts.
            if file.write_all(&1u64.to_ne_bytes()).is_ok() {
                self.interrupts += 1;
            }
        }
    }

    /// Sends an event to the driver. The event is lost if the ring is full: the driver does not
    /// read it.
    pub fn event(&mut self, kind: u32, info: u32) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        match shared.events.put(&self.memory, &[kind, info]) {
            Ok(true) => self.interrupt(vector::ASYNC),
            Ok(false) => self.log.complain("event ring", "it is full"),
            Err(broken) => self.log.complain("event ring", broken),
        }
    }

    /// Tells the driver that a completion queue has new completions.
    pub fn notify(&mut self, cq: u32) {
        if !self.unnotified.contains(&cq) {
            self.unnotified.push_back(cq);
        }
        self.notify_rest();
    }

    /// Retries notifications that found the ring full.
    pub fn notify_rest(&mut self) {
        let mut told = false;
        while let (Some(shared), Some(cq)) = (&mut self.shared, self.unnotified.front()) {
            match shared.notifications.put(&self.memory, cq) {
                Ok(true) => {}
                // The guest reads the ring later.
                Ok(false) => break,
                Err(broken) => {
                    self.log.complain("notification ring", broken);
                    break;
                }
            }
            self.unnotified.pop_front();
            told = true;
        }
        if told {
            self.interrupt(vector::CQ);
        }
    }

    /// The guest wants to be notified of completions.
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

    /// Adds a completion to a queue. `solicited`: it also notifies a guest that waits for solicited
    /// completions.
    pub fn complete(&mut self, cq: u32, cqe: &Cqe, solicited: bool) {
        let Some(queue) = self.cqs.get_mut(cq) else {
            return;
        };
        match queue.put(&self.memory, cqe, solicited) {
            Put::Quiet | Put::Lost => {}
            Put::Notify => self.notify(cq),
            Put::Overflow => {
                self.log
                    .complain("completion queue", format_args!("{cq} overflows"));
                self.event(event::CQ_ERR, cq);
            }
            Put::Broken(broken) => {
                self.log
                    .complain("completion queue", format_args!("{cq}: {broken}"));
                self.event(event::CQ_ERR, cq);
            }
        }
    }

    /// Completes a receive of the queue pair with this handle.
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

    /// Takes the next receive of a queue pair from its own or its shared queue.
    ///
    /// # Errors
    ///
    /// The queue is invalid.
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
        if let Err(broken) = taken {
            queue.limit = 0;
            self.log
                .complain("shared receive queue", format_args!("{srq}: {broken}"));
            self.event(event::SRQ_ERR, srq);
        } else if queue.limit > 0 && queue.ring.waiting(&self.memory)? < queue.limit {
            queue.limit = 0;
            self.event(event::SRQ_LIMIT_REACHED, srq);
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
