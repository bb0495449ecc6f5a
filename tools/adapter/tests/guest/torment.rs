// SPDX-License-Identifier: GPL-2.0
//! What a hostile guest can do to its adapter. The test `hostile` and the fuzz target `guest` use
//! this module.

use std::time::Duration;

use adapter::abi::queue::{op, Sge, Status};
use adapter::abi::{reg, uar};
use adapter::log;
use adapter::qp::State;
use adapter::switch::Link;

use super::{request, Guest, World, COMMAND};

/// An action of a guest.
#[derive(Clone, Debug)]
pub enum Act {
    Register(u64, u32),
    Doorbell(u64, u32),
    /// Writes bytes to the command slot after a plausible header, then rings for the command.
    Command(u32, Vec<u8>),
    /// Writes a number anywhere in the pages of rings and work requests.
    Scribble(u64, u64),
    /// The same, with a value that is plausible somewhere.
    Number(u64, u32),
    /// A line for the control socket about that machine, or an invalid one.
    Control(String),
    Run,
}

/// A machine that executes all actions, next to two that are connected to each other, one of them
/// also to this machine.
pub fn torment(acts: &[Act], link: Link) {
    let mut world = World::new(3, link);
    let mut guests: Vec<Guest> = (0..3)
        .map(|machine| Guest::start(&mut world, machine))
        .collect();
    let [mut qa, mut qb, mut qc, mut qd] =
        [0, 1, 1, 2].map(|machine: usize| guests[machine].queue(&mut world, 2));
    guests[0].connect(&mut world, &qa, &qb, State::Rts);
    guests[1].connect(&mut world, &qb, &qa, State::Rts);
    guests[1].connect(&mut world, &qc, &qd, State::Rts);
    guests[2].connect(&mut world, &qd, &qc, State::Rts);
    let own = Sge {
        addr: 0x30_0000,
        length: 5000,
        lkey: guests[2].key,
    };
    let other = Sge {
        addr: 0x30_0000,
        length: 5000,
        lkey: guests[1].key,
    };
    for _ in 0..4 {
        qd.receive(&mut world, &[own]);
        qc.receive(&mut world, &[other]);
    }
    let hostile = 2;
    for (n, act) in acts.iter().enumerate() {
        match act {
            Act::Register(at, value) => world.switch.write_register(hostile, *at, *value),
            Act::Doorbell(at, value) => {
                world.switch.ring(hostile, *at, *value);
            }
            Act::Command(command, bytes) => {
                let memory = &world.switch.device(hostile).memory;
                memory.write(COMMAND, &[7, 0, *command, 0]).unwrap();
                memory.write_bytes(COMMAND + 16, bytes).unwrap();
                world.switch.write_register(hostile, reg::REQUEST, 0);
            }
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
            Act::Control(line) => {
                let answer = world.control(line);
                assert!(!answer.to_string().contains('\n'), "{line:?}: {answer}");
            }
            Act::Run => world.run(Duration::from_micros(50)),
        }
        if n % 8 == 0 {
            qd.put_send(&mut world, request(op::SEND, &[0u8; 0]), &[own]);
            world
                .switch
                .ring(hostile, uar::QP, uar::QP_SEND | qd.handle);
        }
        if n % 16 == 0 {
            qc.put_send(&mut world, request(op::SEND, &[0u8; 0]), &[other]);
            qc.send_doorbell(&mut world);
        }
    }
    world.run(Duration::from_secs(3));
    // The log has only complaints about that machine, and not too many of them.
    let lines = world.log.take();
    let other = lines
        .iter()
        .find(|line| !line.starts_with("adapter: machine 3: "));
    assert_eq!(other, None);
    assert!(lines.len() as u64 <= log::MOST + 100);
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
