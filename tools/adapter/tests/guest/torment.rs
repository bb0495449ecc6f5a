// SPDX-License-Identifier: GPL-2.0
//! What a hostile guest can do to its adapter. The test `hostile` and the fuzz target `guest` use
//! this module.

use std::sync::Arc;
use std::time::Duration;

use adapter::abi::command::{code, CreateCq, CreateQp, CreateSrq, SrqAttrs};
use adapter::abi::queue::{op, Sge, Status};
use adapter::abi::{ctl, reg};
use adapter::log;
use adapter::qp::State;
use adapter::server::{Backend, Running};
use adapter::switch::{Link, Switch};
use parking_lot::{Condvar, Mutex};
use vfio_user::ServerBackend;

use super::{request, Guest, Queue, World, COMMAND, SHARED};

/// An action of a guest.
#[derive(Clone, Debug)]
pub enum Act {
    Register(u64, u32),
    Doorbell(u64, u32),
    /// Writes bytes of any number to any place of a region, as QEMU does for its guest.
    Write(u32, u64, Vec<u8>),
    /// Reads so many bytes from any place of a region.
    Read(u32, u64, usize),
    /// Sets up interrupts: index, flags, first vector, number of vectors.
    Interrupts([u32; 4]),
    /// The PCI function is reset.
    Reset,
    /// Gives the device the shared region and activates it, as a driver that starts.
    Start,
    /// Writes bytes to the command slot after a plausible header, then rings for the command.
    Command(u32, Vec<u8>),
    /// Creates a queue of a plausible kind and size.
    Create(Create),
    /// Writes a number anywhere in the pages of rings and work requests, or in the shared region.
    Scribble(u64, u64),
    /// The same, with a value that is plausible somewhere.
    Number(u64, u32),
    /// Writes one of the four numbers of the rings of a queue.
    Index(u8, u8, u32),
    /// A line for the control socket about that machine, or an invalid one.
    Control(String),
    Run,
}

/// A command that creates a queue, with small numbers.
#[derive(Clone, Debug)]
pub struct Create {
    /// A completion queue, a shared receive queue, or else a queue pair.
    pub what: u8,
    /// The page directory: one of the guest's queues.
    pub directory: u8,
    /// The kind of a queue pair.
    pub kind: u8,
    /// The shared receive queue of a queue pair, if any.
    pub shared: Option<u32>,
    /// Protection domain, completion queue, entries, ranges, pages, pages of the send queue.
    pub numbers: [u16; 6],
}

/// The smallest and the largest address of the pages of rings and work requests.
pub const RINGS: (u64, u64) = (0x10000, 0x4ffff);

/// The server for the hostile machine. It owns a switch only during an access.
struct Access {
    backend: Backend,
    running: Arc<Running>,
}

impl Access {
    fn new(machine: usize) -> Self {
        let running = Arc::new(Running {
            switch: Mutex::new(Switch::new(0, Link::default())),
            asked: Condvar::new(),
        });
        Self {
            backend: Backend::new(machine, Arc::clone(&running)),
            running,
        }
    }

    /// Runs an access to the switch of `world`. Its result may be an error, which QEMU gets.
    fn run<T>(&mut self, world: &mut World, access: impl FnOnce(&mut Backend) -> T) -> T {
        std::mem::swap(&mut *self.running.switch.lock(), &mut world.switch);
        let result = access(&mut self.backend);
        std::mem::swap(&mut *self.running.switch.lock(), &mut world.switch);
        result
    }
}

/// Writes a command to the slot of a guest and rings for it.
fn command(world: &mut World, machine: usize, command: u32, body: &[u8]) {
    let memory = &world.switch.device(machine).memory;
    memory.write(COMMAND, &[7, 0, command, 0]).unwrap();
    memory.write_bytes(COMMAND + 16, body).unwrap();
    world.switch.write_register(machine, reg::REQUEST, 0);
}

/// Creates a queue; the device may refuse it.
fn create(world: &mut World, queues: &[Queue], machine: usize, create: &Create) {
    use zerocopy::IntoBytes;
    let directory = queues[usize::from(create.directory) % queues.len()].directory;
    let [pd, cq, entries, sges, pages, send_pages] = create.numbers;
    let [pd, cq, entries, sges] = [pd, cq, entries, sges].map(u32::from);
    match create.what {
        0 => {
            let cq = CreateCq {
                directory,
                entries,
                pages: pages.into(),
                ..CreateCq::default()
            };
            command(world, machine, code::CREATE_CQ, cq.as_bytes());
        }
        1 => {
            let srq = CreateSrq {
                directory,
                pd,
                pages: pages.into(),
                attrs: SrqAttrs {
                    max_wr: entries,
                    max_sge: sges,
                    limit: cq,
                    reserved: 0,
                },
                ..CreateSrq::default()
            };
            command(world, machine, code::CREATE_SRQ, srq.as_bytes());
        }
        _ => {
            let qp = CreateQp {
                directory,
                pd,
                send_cq: cq,
                recv_cq: cq,
                srq: create.shared.unwrap_or(0),
                is_srq: create.shared.is_some().into(),
                max_send_wr: entries,
                max_recv_wr: entries,
                max_send_sge: sges,
                max_recv_sge: sges,
                total_pages: pages,
                send_pages,
                kind: create.kind,
                ..CreateQp::default()
            };
            command(world, machine, code::CREATE_QP, qp.as_bytes());
        }
    }
}

/// A machine that executes all actions, next to two that are connected to each other, one of them
/// also to this machine: by a reliable connection, by one with a shared receive queue, and by
/// datagrams.
pub fn torment(acts: &[Act], link: Link) {
    const RC: u8 = 2;
    const UD: u8 = 4;
    const GSI: u8 = 1;
    let mut world = World::new(3, link);
    let mut guests: Vec<Guest> = (0..3)
        .map(|machine| Guest::start(&mut world, machine))
        .collect();
    let [mut qa, mut qb, mut qc, mut qd] =
        [0, 1, 1, 2].map(|machine: usize| guests[machine].queue(&mut world, RC));
    let mut shared = guests[2].shared_queue(&mut world);
    let qf = guests[2].queue_of(&mut world, RC, Some(&shared));
    let [mut qe, mut ua, mut ub, mut gb] =
        [(1, RC), (1, UD), (2, UD), (2, GSI)].map(|(machine, kind)| {
            let guest: &mut Guest = &mut guests[machine];
            guest.queue(&mut world, kind)
        });
    for [one, other] in [[&qa, &qb], [&qc, &qd], [&qe, &qf], [&ua, &ub]] {
        guests[one.machine].connect(&mut world, one, other, State::Rts);
        guests[other.machine].connect(&mut world, other, one, State::Rts);
    }
    guests[2].connect(&mut world, &gb, &ua, State::Rts);
    let hostile = 2;
    let own = Sge {
        addr: 0x30_0000,
        length: 5000,
        lkey: guests[hostile].key,
    };
    let other = Sge {
        addr: 0x30_0000,
        length: 5000,
        lkey: guests[1].key,
    };
    let short = |sge: Sge| Sge { length: 256, ..sge };
    for _ in 0..4 {
        qd.receive(&mut world, &[own]);
        shared.receive(&mut world, &[own]);
        for queue in [&mut ub, &mut gb] {
            queue.receive(&mut world, &[own]);
        }
        for queue in [&mut qc, &mut ua] {
            queue.receive(&mut world, &[other]);
        }
    }
    assert_eq!(world.log.take(), [""; 0]);
    let queues = [qd, qf, ub, gb];
    let of_pairs = queues
        .iter()
        .flat_map(|queue| [queue.state, queue.cq_state]);
    let states: Vec<u64> = of_pairs.chain([shared.state]).collect();
    let mut access = Access::new(hostile);
    for (n, act) in acts.iter().enumerate() {
        match act {
            Act::Register(at, value) => world.switch.write_register(hostile, *at, *value),
            Act::Doorbell(at, value) => {
                world.switch.ring(hostile, *at, *value);
            }
            Act::Write(region, at, bytes) => access
                .run(&mut world, |backend| {
                    backend.region_write(*region, *at, bytes)
                })
                .unwrap(),
            Act::Read(region, at, len) => access
                .run(&mut world, |backend| {
                    backend.region_read(*region, *at, &mut vec![0; *len])
                })
                .unwrap(),
            Act::Interrupts([index, flags, start, count]) => access
                .run(&mut world, |backend| {
                    backend.set_irqs(*index, *flags, *start, *count, Vec::new())
                })
                .unwrap(),
            Act::Reset => access.run(&mut world, ServerBackend::reset).unwrap(),
            Act::Start => {
                for (register, value) in [
                    (reg::DSR_LOW, SHARED as u32),
                    (reg::DSR_HIGH, 0),
                    (reg::CTL, ctl::ACTIVATE),
                ] {
                    world.switch.write_register(hostile, register, value);
                }
            }
            Act::Command(number, bytes) => command(&mut world, hostile, *number, bytes),
            Act::Create(what) => create(&mut world, &queues, hostile, what),
            Act::Scribble(at, value) => world
                .switch
                .device(hostile)
                .memory
                .write(*at, value)
                .unwrap(),
            Act::Number(at, value) => world
                .switch
                .device(hostile)
                .memory
                .write(*at, value)
                .unwrap(),
            Act::Index(queue, index, value) => {
                let state = states[usize::from(*queue) % states.len()];
                let at = state + 4 * u64::from(index % 4);
                let memory = &world.switch.device(hostile).memory;
                memory.write(at, value).unwrap();
            }
            Act::Control(line) => {
                let answer = world.control(line);
                assert!(!answer.to_string().contains('\n'), "{line:?}: {answer}");
            }
            Act::Run => world.run(Duration::from_micros(50)),
        }
        if n % 8 == 0 {
            qd.send(&mut world, request(op::SEND, &[0u8; 0]), &[own]);
            ub.send_datagram(&mut world, &ua, &[short(own)]);
        }
        if n % 16 == 0 {
            qc.send(&mut world, request(op::SEND, &[0u8; 0]), &[other]);
            qe.send(&mut world, request(op::SEND, &[0u8; 0]), &[other]);
            let to = [&ub, &gb][n / 16 % 2];
            ua.send_datagram(&mut world, to, &[short(other)]);
        }
    }
    world.run(Duration::from_secs(3));
    // The log has only complaints about that machine, and not too many of them.
    let lines = world.log.take();
    let others = lines
        .iter()
        .find(|line| !line.starts_with("adapter: machine 3: "));
    assert_eq!(others, None);
    assert!(lines.len() as u64 <= 2 * log::MOST);
    // The connection of the other machines works.
    let (from, to) = (0x20_0000, 0x20_0000);
    guests[0].write(&mut world, from, &0x1122_3344_5566_7788u64);
    qb.receive(
        &mut world,
        &[Sge {
            addr: to,
            length: 8,
            lkey: guests[1].key,
        }],
    );
    qa.send(
        &mut world,
        request(op::SEND, &[0u8; 0]),
        &[Sge {
            addr: from,
            length: 8,
            lkey: guests[0].key,
        }],
    );
    world.run(Duration::from_secs(1));
    assert_eq!(
        qa.poll(&mut world).map(|cqe| cqe.status),
        Some(Status::Success as u32)
    );
    assert_eq!(guests[1].read::<u64>(&mut world, to), 0x1122_3344_5566_7788);
    world.switch.report();
}
