// SPDX-License-Identifier: GPL-2.0
//! Guests that write invalid values to registers, commands, doorbells and rings. The switch must
//! not panic and must become idle; connections of other machines must continue.

mod guest;

use std::time::Duration;

use adapter::abi::command::code;
use adapter::abi::queue::{op, Sge, Status};
use adapter::abi::reg;
use adapter::switch::Link;
use guest::torment::{torment, Act};
use guest::{gid, request, Guest, World, MEMORY};
use proptest::prelude::*;

fn act() -> impl Strategy<Value = Act> {
    let small = prop_oneof![0u32..40, any::<u32>()];
    prop_oneof![
        1 => (prop_oneof![Just(reg::DSR_LOW), Just(reg::IMR), Just(reg::REQUEST), any::<u64>()], any::<u32>())
            .prop_map(|(at, value)| Act::Register(at, value)),
        1 => (prop_oneof![0u64..16, any::<u64>()], any::<u32>()).prop_map(|(at, value)| Act::Doorbell(at, value)),
        4 => (0u64..12, 0u32..8, 28u32..32).prop_map(|(at, handle, bit)| Act::Doorbell(at, handle | (1 << bit))),
        6 => (0u32..24, proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(2), any::<u8>()], 168))
            .prop_map(|(command, bytes)| Act::Command(command, bytes)),
        6 => (0x10000u64..0x30000, any::<u64>()).prop_map(|(at, value)| Act::Scribble(at & !7, value)),
        12 => (0x10000u64..0x30000, small).prop_map(|(at, value)| Act::Number(at & !3, value)),
        2 => Just(Act::Run),
        2 => line().prop_map(Act::Control),
    ]
}

/// Lines for the control socket: most of them are valid and concern the third machine.
fn line() -> impl Strategy<Value = String> {
    const KIND: &str = "(send|send-inv|write|read|atomic|reg|inv|receive)";
    const STATUS: &str = "(local-length|remote-access|retries-exceeded|flushed|memory-bind)";
    let lines = [
        "(keys|faults|release|clear) 3".to_owned(),
        "counters".to_owned(),
        "link 3 (up|down)".to_owned(),
        "device 3 (present|removed)".to_owned(),
        "receives 3 (given|held)".to_owned(),
        "lose 3 [0-9]".to_owned(),
        "timeout 3 [0-9](us|ms)".to_owned(),
        format!("delay 3 {KIND} [0-9](us|ms)"),
        format!("hold 3 {KIND}"),
        format!("fail 3 {KIND} {STATUS} [0-9]"),
        "[a-z]{0,8}( [03-9]{1,3}){0,3}".to_owned(),
        "\\PC{0,40}".to_owned(),
    ];
    let pattern = |line: &String| proptest::string::string_regex(line).unwrap();
    proptest::strategy::Union::new(lines.iter().map(pattern).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn nonsense_harms_only_its_author(acts in proptest::collection::vec(act(), 1..200), slow in any::<bool>()) {
        let link = Link { rate: Some(50_000_000), latency: Duration::from_micros(20) };
        let link = if slow { link } else { Link::default() };
        torment(&acts, link);
    }
}

#[test]
fn nothing_works_before_the_shared_region() {
    let mut world = World::new(1, Link::default());
    for at in (0..0x30).step_by(4) {
        world.switch.write_register(0, at, 0xffff_ffff);
        world.switch.read_register(0, at);
    }
    for handle in [0, 1, 2, 0x00ff_ffff] {
        for bits in 0..8u32 {
            world.switch.ring(0, u64::from(bits), handle | (bits << 29));
        }
    }
    world.settle();
    world
        .switch
        .write_register(0, reg::DSR_LOW, (MEMORY - 8) as u32);
    world.switch.write_register(0, reg::DSR_HIGH, 0);
    assert_ne!(world.switch.read_register(0, reg::ERR), 0);
}

#[test]
fn an_address_belongs_to_who_had_it_first() {
    let mut world = World::new(2, Link::default());
    let guests = [Guest::start(&mut world, 0), Guest::start(&mut world, 1)];
    let taken = adapter::abi::command::CreateBind {
        gid: gid(0),
        index: 3,
        kind: 2,
        ..Default::default()
    };
    assert!(!guests[1].tell(&mut world, code::CREATE_BIND, &taken));
    assert!(guests[0].tell(&mut world, code::CREATE_BIND, &taken));
    let one = adapter::abi::command::DestroyBind {
        index: 0,
        gid: gid(0),
        reserved: 0,
    };
    assert!(guests[0].tell(&mut world, code::DESTROY_BIND, &one));
    assert!(!guests[0].tell(&mut world, code::DESTROY_BIND, &one));
    assert!(!guests[1].tell(&mut world, code::CREATE_BIND, &taken));
    world.switch.forget(0);
    assert!(guests[1].tell(&mut world, code::CREATE_BIND, &taken));
}

#[test]
fn an_address_that_is_replaced_is_free() {
    let mut world = World::new(2, Link::default());
    let guests = [Guest::start(&mut world, 0), Guest::start(&mut world, 1)];
    let bind = |address, index| adapter::abi::command::CreateBind {
        gid: gid(address),
        index,
        kind: 2,
        ..Default::default()
    };
    assert!(guests[0].tell(&mut world, code::CREATE_BIND, &bind(7, 3)));
    assert!(guests[0].tell(&mut world, code::CREATE_BIND, &bind(7, 4)));
    // Replaced by itself, or still at another index: it stays.
    assert!(guests[0].tell(&mut world, code::CREATE_BIND, &bind(7, 3)));
    assert!(guests[0].tell(&mut world, code::CREATE_BIND, &bind(8, 3)));
    assert!(!guests[1].tell(&mut world, code::CREATE_BIND, &bind(7, 3)));
    assert!(guests[0].tell(&mut world, code::CREATE_BIND, &bind(9, 4)));
    assert!(guests[1].tell(&mut world, code::CREATE_BIND, &bind(7, 3)));
    // A refused command changes nothing.
    assert!(!guests[1].tell(&mut world, code::CREATE_BIND, &bind(8, 3)));
    assert!(!guests[0].tell(&mut world, code::CREATE_BIND, &bind(7, 3)));
}

#[test]
fn memory_that_is_not_there_is_an_error_of_the_request() {
    let (mut world, [a, _], [mut qa, mut qb]) = guest::connected(Link::default());
    qb.receive(
        &mut world,
        &[Sge {
            addr: 0,
            length: 8,
            lkey: a.key,
        }],
    );
    let sge = Sge {
        addr: MEMORY - 4,
        length: 8,
        lkey: a.key,
    };
    qa.send(&mut world, request(op::SEND, &[0u8; 0]), &[sge]);
    world.settle();
    assert_eq!(qa.ended(&mut world), [(0, Status::LocalProtection as u32)]);
}
