// SPDX-License-Identifier: GPL-2.0
//! A minimal driver: a guest's use of its adapter, run on the host.

// Each test program uses only a part of it.
#![allow(dead_code, unreachable_pub)]

pub mod torment;

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use adapter::abi::command::{
    attr, code, CreateBind, CreateCq, CreateMr, CreateQp, CreateSrq, CreatedMr, CreatedQp, Header,
    ModifyQp, One, Path, QpAttrs, ResponseHeader, SrqAttrs, MR_DMA, MR_FAST,
};
use adapter::abi::queue::{Cqe, Datagram, FastReg, Rdma, RecvHeader, SendHeader, Sge};
use adapter::abi::shared::{DriverPart, RingPages};
use adapter::abi::{access, ctl, reg, uar, PAGE};
use adapter::memory::Memory;
use adapter::qp::State;
use adapter::switch::{Link, Step, Switch};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Size of a machine's memory.
pub const MEMORY: u64 = 4 << 20;
/// Addresses that all tests use.
pub const SHARED: u64 = 0x1000;
pub const COMMAND: u64 = 0x2000;
pub const RESPONSE: u64 = 0x3000;
/// Number of entries of queues.
pub const ENTRIES: u32 = 16;
/// Size of an entry with four ranges.
const SEND_ENTRY: u64 = 256;
const RECV_ENTRY: u64 = 128;

/// The lines that the adapters of all machines have logged.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Returns the lines since the last call.
    pub fn take(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap());
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The world: a switch, its time and its log.
pub struct World {
    pub switch: Switch,
    pub now: Instant,
    pub log: Lines,
}

impl World {
    pub fn new(machines: usize, link: Link) -> Self {
        let mut switch = Switch::new(machines, link);
        let log = Lines::default();
        for machine in 0..machines {
            let device = switch.device(machine);
            device.memory.map_anonymous(0, MEMORY).unwrap();
            device.log.redirect(log.clone());
        }
        Self {
            switch,
            now: Instant::now(),
            log,
        }
    }

    /// Runs all events within `time`.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..1_000_000 {
            match self.switch.step(self.now) {
                Step::Done => {}
                Step::Until(Some(at)) if at <= end => self.now = self.now.max(at),
                Step::Until(_) => {
                    self.now = end;
                    return;
                }
            }
        }
        panic!("the switch does not come to rest");
    }

    /// Executes a line of the control socket; returns the answer.
    pub fn control(&mut self, line: &str) -> serde_json::Value {
        adapter::control::obey(&mut self.switch, line, self.now)
    }

    /// Executes a line of the control socket that must succeed.
    pub fn tell(&mut self, line: &str) {
        assert_eq!(self.control(line), serde_json::json!({}), "{line}");
    }

    /// A counter, summed over all queue pairs of a machine.
    pub fn total(&self, machine: usize, name: &str) -> u64 {
        let report = serde_json::to_value(self.switch.report()).unwrap();
        let machine = &report["machines"][machine];
        let value = machine.get(name).unwrap_or(&machine["total"][name]);
        value.as_u64().unwrap()
    }

    /// Runs all events that are due.
    pub fn settle(&mut self) {
        self.run(Duration::from_millis(1));
    }
}

/// A queue pair as its driver sees it.
#[derive(Clone, Copy)]
pub struct Queue {
    pub machine: usize,
    pub handle: u32,
    pub cq: u32,
    pub directory: u64,
    pub cq_state: u64,
    pub state: u64,
    sent: u32,
    received: u32,
    polled: u32,
}

/// A shared receive queue as its driver sees it.
pub struct SharedQueue {
    pub machine: usize,
    pub handle: u32,
    pub state: u64,
    received: u32,
}

/// A driver.
pub struct Guest {
    pub machine: usize,
    free: u64,
    pub pd: u32,
    pub key: u32,
    events: u64,
    seen: u32,
}

impl Guest {
    /// The driver of a machine, with a protection domain and a key for all memory.
    pub fn start(world: &mut World, machine: usize) -> Self {
        let mut guest = Self {
            machine,
            free: 0x10000,
            pd: 0,
            key: 0,
            events: 0,
            seen: 0,
        };
        let mut ring = |guest: &mut Self| {
            let (directory, state) = guest.pages(world, 4);
            guest.events = state;
            RingPages {
                pages: 4,
                reserved: 0,
                directory,
            }
        };
        let notifications = ring(&mut guest);
        let driver = DriverPart {
            driver_version: 20,
            command_slot: COMMAND,
            response_slot: RESPONSE,
            events: ring(&mut guest),
            notifications,
            ..DriverPart::default()
        };
        guest.write(world, SHARED, &driver);
        guest.register(world, reg::DSR_LOW, SHARED as u32);
        guest.register(world, reg::DSR_HIGH, 0);
        guest.register(world, reg::CTL, ctl::ACTIVATE);
        assert_eq!(world.switch.read_register(machine, reg::ERR), 0);
        guest.pd = guest
            .command::<_, One>(world, code::CREATE_PD, &One::default())
            .unwrap()
            .value;
        let all = CreateMr {
            pd: guest.pd,
            access: access::LOCAL_WRITE,
            flags: MR_DMA,
            ..CreateMr::default()
        };
        guest.key = guest
            .command::<_, CreatedMr>(world, code::CREATE_MR, &all)
            .unwrap()
            .lkey;
        let bind = CreateBind {
            gid: gid(machine),
            kind: 2,
            ..CreateBind::default()
        };
        assert!(guest.tell(world, code::CREATE_BIND, &bind));
        guest
    }

    pub fn register(&self, world: &mut World, register: u64, value: u32) {
        world.switch.write_register(self.machine, register, value);
    }

    pub fn write<T: IntoBytes + Immutable>(&self, world: &mut World, addr: u64, value: &T) {
        world
            .switch
            .device(self.machine)
            .memory
            .write(addr, value)
            .unwrap();
    }

    pub fn read<T: FromBytes + IntoBytes>(&self, world: &mut World, addr: u64) -> T {
        world.switch.device(self.machine).memory.read(addr).unwrap()
    }

    /// The next event of the event ring: its kind and its object.
    pub fn event(&mut self, world: &mut World) -> Option<[u32; 2]> {
        let memory = &world.switch.device(self.machine).memory;
        if memory.load(self.events + 8).unwrap() == self.seen {
            return None;
        }
        let at = self.events + PAGE + u64::from(self.seen) * 8;
        self.seen += 1;
        Some(memory.read(at).unwrap())
    }

    /// Allocates memory in whole pages.
    pub fn memory(&mut self, bytes: u64) -> u64 {
        let at = self.free;
        self.free += bytes.next_multiple_of(PAGE);
        assert!(self.free <= MEMORY);
        at
    }

    /// Allocates pages and their directory; returns the directory's address and the first page's.
    pub fn pages(&mut self, world: &mut World, count: u64) -> (u64, u64) {
        let (directory, table, first) = (
            self.memory(PAGE),
            self.memory(PAGE),
            self.memory(count * PAGE),
        );
        self.write(world, directory, &table);
        for page in 0..count {
            self.write(world, table + page * 8, &(first + page * PAGE));
        }
        (directory, first)
    }

    /// Executes a command without a response; returns whether it succeeded.
    pub fn tell<T: IntoBytes + Immutable>(
        &self,
        world: &mut World,
        command: u32,
        body: &T,
    ) -> bool {
        self.write(
            world,
            COMMAND,
            &Header {
                response: 7,
                command,
                reserved: 0,
            },
        );
        world
            .switch
            .device(self.machine)
            .memory
            .write_bytes(COMMAND + 16, body.as_bytes())
            .unwrap();
        self.register(world, reg::REQUEST, 0);
        world.switch.read_register(self.machine, reg::ERR) == 0
    }

    /// Executes a command; `None` if the device refuses it.
    pub fn command<T: IntoBytes + Immutable, R: FromBytes + IntoBytes>(
        &self,
        world: &mut World,
        command: u32,
        body: &T,
    ) -> Option<R> {
        if !self.tell(world, command, body) {
            return None;
        }
        let header: ResponseHeader = self.read(world, RESPONSE);
        assert_eq!((header.response, header.ack), (7, command | code::RESPONSE));
        (header.err == 0).then(|| self.read(world, RESPONSE + 16))
    }

    /// Creates a queue pair with its own completion queue.
    pub fn queue(&mut self, world: &mut World, kind: u8) -> Queue {
        self.queue_of(world, kind, None)
    }

    /// Creates a queue pair with its own completion queue, and with this shared receive queue.
    pub fn queue_of(&mut self, world: &mut World, kind: u8, shared: Option<&SharedQueue>) -> Queue {
        let (directory, cq_state) = self.pages(world, 2);
        let cq = CreateCq {
            directory,
            entries: 64,
            pages: 2,
            ..CreateCq::default()
        };
        let cq: [u32; 2] = self.command(world, code::CREATE_CQ, &cq).unwrap();
        let (directory, state) = self.pages(world, 3);
        let create = CreateQp {
            directory,
            pd: self.pd,
            send_cq: cq[0],
            recv_cq: cq[0],
            max_send_wr: ENTRIES,
            max_recv_wr: ENTRIES,
            max_send_sge: 4,
            max_recv_sge: 4,
            total_pages: 3,
            send_pages: 1,
            kind,
            is_srq: shared.is_some().into(),
            srq: shared.map_or(0, |shared| shared.handle),
            ..CreateQp::default()
        };
        let made: CreatedQp = self.command(world, code::CREATE_QP, &create).unwrap();
        Queue {
            machine: self.machine,
            handle: made.handle,
            cq: cq[0],
            directory,
            cq_state,
            state,
            sent: 0,
            received: 0,
            polled: 0,
        }
    }

    /// Creates a shared receive queue.
    pub fn shared_queue(&mut self, world: &mut World) -> SharedQueue {
        let (directory, state) = self.pages(world, 2);
        let create = CreateSrq {
            directory,
            pd: self.pd,
            pages: 2,
            attrs: SrqAttrs {
                max_wr: ENTRIES,
                max_sge: 4,
                ..SrqAttrs::default()
            },
            ..CreateSrq::default()
        };
        let made: One = self.command(world, code::CREATE_SRQ, &create).unwrap();
        SharedQueue {
            machine: self.machine,
            handle: made.value,
            state,
            received: 0,
        }
    }

    pub fn modify(&self, world: &mut World, queue: &Queue, mask: u32, attrs: QpAttrs) -> bool {
        let modify = ModifyQp {
            handle: queue.handle,
            mask,
            attrs,
        };
        self.command::<_, [u8; 0]>(world, code::MODIFY_QP, &modify)
            .is_some()
    }

    /// Connects a queue pair to another one, up to the state `until`.
    pub fn connect(&self, world: &mut World, queue: &Queue, to: &Queue, until: State) {
        let all = access::REMOTE_WRITE | access::REMOTE_READ | access::REMOTE_ATOMIC;
        let attrs = QpAttrs {
            dest_qpn: to.handle,
            access: all,
            max_rd_atomic: 4,
            timeout: 8,
            retry_cnt: 3,
            rnr_retry: 3,
            min_rnr_timer: 1,
            path: Path {
                dgid: gid(to.machine),
                ..Path::default()
            },
            ..QpAttrs::default()
        };
        let mask = attr::STATE
            | attr::DEST_QPN
            | attr::ACCESS
            | attr::MAX_RD_ATOMIC
            | attr::TIMEOUT
            | attr::RETRY_CNT
            | attr::RNR_RETRY
            | attr::MIN_RNR_TIMER
            | attr::AV;
        for state in [State::Init, State::Rtr, State::Rts] {
            if state <= until {
                assert!(self.modify(
                    world,
                    queue,
                    mask,
                    QpAttrs {
                        state: state as u32,
                        ..attrs
                    }
                ));
            }
        }
    }

    /// Creates a region for work requests.
    pub fn fast_region(&self, world: &mut World, pages: u32) -> u32 {
        let create = CreateMr {
            pd: self.pd,
            flags: MR_FAST,
            pages,
            ..CreateMr::default()
        };
        self.command::<_, CreatedMr>(world, code::CREATE_MR, &create)
            .unwrap()
            .rkey
    }

    /// A request that registers memory at `addr` with this key.
    pub fn registration(
        &mut self,
        world: &mut World,
        key: u32,
        access: u32,
        addr: u64,
        bytes: u32,
    ) -> SendHeader {
        let (directory, table) = (self.memory(PAGE), self.memory(PAGE));
        self.write(world, directory, &table);
        let pages = adapter::keys::pages_of(addr, u64::from(bytes)).unwrap();
        for page in 0..pages {
            self.write(world, table + page * 8, &(addr / PAGE * PAGE + page * PAGE));
        }
        let what = FastReg {
            start: addr,
            directory,
            page_shift: 12,
            pages: pages as u32,
            length: bytes,
            access,
            rkey: key,
            reserved: 0,
        };
        request(adapter::abi::queue::op::FAST_REG, &what)
    }
}

/// The address of a machine.
pub fn gid(machine: usize) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..].copy_from_slice(&[0xff, 0xff, 10, 27, 1, machine as u8 + 1]);
    gid
}

/// A send request with a body.
pub fn request<T: IntoBytes + Immutable>(opcode: u32, body: &T) -> SendHeader {
    let mut header = SendHeader {
        opcode,
        flags: adapter::abi::queue::flag::SIGNALED,
        ..SendHeader::default()
    };
    header.body.as_mut_bytes()[..size_of::<T>()].copy_from_slice(body.as_bytes());
    header
}

/// A request to the peer's memory.
pub fn rdma(opcode: u32, addr: u64, rkey: u32) -> SendHeader {
    request(
        opcode,
        &Rdma {
            addr,
            rkey,
            reserved: 0,
        },
    )
}

/// Puts a receive into the ring with this state and these entries.
fn put_receive(memory: &Memory, state: u64, entries: u64, received: &mut u32, sges: &[Sge]) {
    let at = entries + u64::from(*received % ENTRIES) * RECV_ENTRY;
    let header = RecvHeader {
        wr_id: 1000 + u64::from(*received),
        num_sge: sges.len() as u32,
        total_len: 0,
    };
    memory.write(at, &header).unwrap();
    memory
        .write_bytes(at + size_of::<RecvHeader>() as u64, sges.as_bytes())
        .unwrap();
    *received += 1;
    memory.store(state + 8, *received % (2 * ENTRIES)).unwrap();
}

impl SharedQueue {
    /// Posts a receive.
    pub fn receive(&mut self, world: &mut World, sges: &[Sge]) {
        let memory = &world.switch.device(self.machine).memory;
        let entries = self.state + PAGE;
        put_receive(memory, self.state, entries, &mut self.received, sges);
        world.switch.ring(self.machine, uar::SRQ, self.handle);
    }
}

impl Queue {
    fn memory<'a>(&self, world: &'a mut World) -> &'a Memory {
        &world.switch.device(self.machine).memory
    }

    /// Posts a datagram to a queue pair.
    pub fn send_datagram(&mut self, world: &mut World, to: &Self, sges: &[Sge]) {
        let what = Datagram {
            dgid: gid(to.machine),
            qpn: to.handle,
            ..Datagram::default()
        };
        let opcode = adapter::abi::queue::op::SEND;
        self.send(world, request(opcode, &what), sges);
    }

    /// Posts a send without telling the device.
    pub fn put_send(&mut self, world: &mut World, header: SendHeader, sges: &[Sge]) {
        let at = self.state + PAGE + u64::from(self.sent % ENTRIES) * SEND_ENTRY;
        let header = SendHeader {
            wr_id: u64::from(self.sent),
            num_sge: sges.len() as u32,
            ..header
        };
        let memory = self.memory(world);
        memory.write(at, &header).unwrap();
        memory
            .write_bytes(at + size_of::<SendHeader>() as u64, sges.as_bytes())
            .unwrap();
        self.sent += 1;
        let sent = self.sent;
        self.memory(world)
            .store(self.state, sent % (2 * ENTRIES))
            .unwrap();
    }

    /// Posts a send.
    pub fn send(&mut self, world: &mut World, header: SendHeader, sges: &[Sge]) {
        self.put_send(world, header, sges);
        world
            .switch
            .ring(self.machine, uar::QP, uar::QP_SEND | self.handle);
    }

    /// Posts a receive.
    pub fn receive(&mut self, world: &mut World, sges: &[Sge]) {
        let memory = self.memory(world);
        let entries = self.state + 2 * PAGE;
        put_receive(memory, self.state, entries, &mut self.received, sges);
        world
            .switch
            .ring(self.machine, uar::QP, uar::QP_RECV | self.handle);
    }

    /// The next completion.
    pub fn poll(&mut self, world: &mut World) -> Option<Cqe> {
        let (state, polled) = (self.cq_state, self.polled);
        let memory = self.memory(world);
        let produced = memory.load(state + 8).unwrap();
        if produced == polled {
            return None;
        }
        let cqe = memory
            .read(state + PAGE + u64::from(polled % 64) * 64)
            .unwrap();
        let next = (polled + 1) % 128;
        memory.store(state + 12, next).unwrap();
        self.polled = next;
        Some(cqe)
    }

    /// Statuses of all completions, by the cookies of the requests.
    pub fn ended(&mut self, world: &mut World) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| self.poll(world))
            .map(|cqe| (cqe.wr_id, cqe.status))
            .collect()
    }

    /// The number of sends whose slots the device has freed.
    pub fn freed(&self, world: &mut World) -> u32 {
        self.memory(world).load(self.state + 4).unwrap()
    }
}

/// Two machines with a connection.
pub fn connected(link: Link) -> (World, [Guest; 2], [Queue; 2]) {
    let mut world = World::new(2, link);
    let mut a = Guest::start(&mut world, 0);
    let mut b = Guest::start(&mut world, 1);
    let (qa, qb) = (a.queue(&mut world, 2), b.queue(&mut world, 2));
    a.connect(&mut world, &qa, &qb, State::Rts);
    b.connect(&mut world, &qb, &qa, State::Rts);
    (world, [a, b], [qa, qb])
}

impl Queue {
    /// Rings the doorbell for all posted sends.
    pub fn send_doorbell(&self, world: &mut World) {
        world
            .switch
            .ring(self.machine, uar::QP, uar::QP_SEND | self.handle);
    }

    /// Resets the queue as the driver does after a reset of the queue pair.
    pub fn reset(&mut self, world: &mut World) {
        (self.sent, self.received) = (0, 0);
        let state = self.state;
        self.memory(world).write(state, &[0u32; 4]).unwrap();
    }
}
