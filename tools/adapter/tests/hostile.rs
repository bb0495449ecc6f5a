// SPDX-License-Identifier: GPL-2.0
//! Guests that write invalid values to registers, commands, doorbells and rings. The switch must
//! not panic and must become idle; connections of other machines must continue.

mod guest;

use std::sync::Arc;
use std::time::Duration;

use adapter::abi::command::{
    attr, code, CreateBind, CreateCq, CreateMr, CreateQp, CreateSrq, DestroyBind, ModifyQp,
    ModifySrq, One, Path, QpAttrs, SrqAttrs,
};
use adapter::abi::queue::{op, Sge, Status};
use adapter::abi::{ctl, event, reg, uar, PAGE};
use adapter::error::Error;
use adapter::log::MOST_OF_A_KIND;
use adapter::qp::State;
use adapter::server::{Backend, Running};
use adapter::switch::Link;
use guest::torment::{torment, Act, Create, RINGS};
use guest::{gid, request, Guest, World, MEMORY, RESPONSE, SHARED};
use parking_lot::{Condvar, Mutex};
use proptest::prelude::*;
use vfio_bindings::bindings::vfio::{VFIO_PCI_BAR1_REGION_INDEX, VFIO_PCI_BAR2_REGION_INDEX};
use vfio_user::ServerBackend;
use zerocopy::{Immutable, IntoBytes};

fn act() -> impl Strategy<Value = Act> {
    let small = prop_oneof![0u32..40, any::<u32>()];
    let rings = RINGS.0..=RINGS.1;
    let scribbled = prop_oneof![9 => rings, 1 => SHARED..=SHARED + 0xfff];
    prop_oneof![
        1 => destruction(),
        6 => access(),
        6 => doorbell(),
        6 => (0u32..24, proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(2), any::<u8>()], 168))
            .prop_map(|(command, bytes)| Act::Command(command, bytes)),
        4 => creation(),
        7 => (scribbled.clone(), any::<u64>()).prop_map(|(at, value)| Act::Scribble(at & !7, value)),
        10 => (scribbled, small.clone()).prop_map(|(at, value)| Act::Number(at & !3, value)),
        4 => (any::<u8>(), 0u8..4, small)
            .prop_map(|(queue, index, value)| Act::Index(queue, index, value)),
        2 => Just(Act::Run),
        2 => line().prop_map(Act::Control),
    ]
}

/// What destroys all objects, or may do so: rare, because the machine can do little afterwards.
fn destruction() -> impl Strategy<Value = Act> {
    let value = || prop_oneof![0u32..4, any::<u32>()];
    prop_oneof![
        Just(Act::Reset),
        Just(Act::Start),
        value().prop_map(|value| Act::Register(reg::DSR_HIGH, value)),
        value().prop_map(|value| Act::Register(reg::CTL, value)),
    ]
}

fn access() -> impl Strategy<Value = Act> {
    // BAR 1 and BAR 2 are the regions 1 and 2, and the configuration space is region 7.
    let region = || prop_oneof![Just(1u32), Just(2), Just(7), any::<u32>()];
    let at = || prop_oneof![0u64..0x50, 0u64..0x20_0000, any::<u64>()];
    // Other registers than those that destroy all objects.
    let written = at().prop_filter("resets", |at| !(5..0x10).contains(at));
    let register = prop_oneof![
        Just(reg::DSR_LOW),
        Just(reg::IMR),
        Just(reg::REQUEST),
        any::<u64>()
    ];
    prop_oneof![
        (register, any::<u32>()).prop_map(|(at, value)| Act::Register(at, value)),
        (
            region(),
            written,
            proptest::collection::vec(any::<u8>(), 0..9)
        )
            .prop_map(|(region, at, bytes)| Act::Write(region, at, bytes)),
        (region(), at(), 0usize..9).prop_map(|(region, at, len)| Act::Read(region, at, len)),
        [0u32..8, 0..64, 0..5, 0..5].prop_map(Act::Interrupts),
        any::<[u32; 4]>().prop_map(Act::Interrupts),
    ]
}

fn doorbell() -> impl Strategy<Value = Act> {
    prop_oneof![
        1 => (prop_oneof![0u64..16, any::<u64>()], any::<u32>())
            .prop_map(|(at, value)| Act::Doorbell(at, value)),
        4 => (0u64..12, 0u32..12, 28u32..32)
            .prop_map(|(at, handle, bit)| Act::Doorbell(at, handle | (1 << bit))),
    ]
}

fn creation() -> impl Strategy<Value = Act> {
    let number = |end: u16| prop_oneof![8 => 0..end, 1 => any::<u16>()];
    let numbers = (
        number(3),
        number(8),
        number(40),
        number(6),
        number(8),
        number(4),
    );
    (
        0u8..3,
        any::<u8>(),
        0u8..6,
        proptest::option::of(0u32..4),
        numbers,
    )
        .prop_map(|(what, directory, kind, shared, numbers)| {
            Act::Create(Create {
                what,
                directory,
                kind,
                shared,
                numbers: numbers.into(),
            })
        })
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
    let taken = CreateBind {
        gid: gid(0),
        index: 3,
        kind: 2,
        ..Default::default()
    };
    assert!(!guests[1].tell(&mut world, code::CREATE_BIND, &taken));
    assert!(guests[0].tell(&mut world, code::CREATE_BIND, &taken));
    let one = DestroyBind {
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
    let bind = |address, index| CreateBind {
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

/// Two machines, of which the first writes the nonsense. The log is empty.
fn two() -> (World, [Guest; 2]) {
    let mut world = World::new(2, Link::default());
    let guests = [Guest::start(&mut world, 0), Guest::start(&mut world, 1)];
    assert_eq!(world.log.take(), [""; 0]);
    (world, guests)
}

/// The only line of the log, about the first machine.
#[track_caller]
fn only_line(world: &World) -> String {
    let lines = world.log.take();
    let [line] = &lines[..] else {
        panic!("not one line: {lines:?}");
    };
    line.strip_prefix("adapter: machine 1: ")
        .unwrap()
        .to_owned()
}

/// A command that the device refuses with this error and this line.
#[track_caller]
fn refused<T: IntoBytes + Immutable>(
    world: &mut World,
    guest: &Guest,
    command: u32,
    body: &T,
    error: Error,
    line: &str,
) {
    assert!(!guest.tell(world, command, body));
    assert_eq!(only_line(world), line);
    let report = world.switch.report();
    let [first, second] = &report.machines[..] else {
        panic!("two machines");
    };
    assert_eq!((first.error, second.error), (error as u32, 0));
    assert_eq!(first.complaints.values().sum::<u64>(), 1);
    assert!(second.complaints.is_empty());
    world.switch.device(0).log = adapter::log::Log::new(1);
    world.switch.device(0).log.redirect(world.log.clone());
}

fn one(value: u32) -> One {
    One { value, reserved: 0 }
}

#[test]
fn a_refused_command_is_named_with_the_value() {
    let (mut world, [mut guest, _]) = two();
    let queue = guest.queue(&mut world, 2);
    let (directory, _) = guest.pages(&mut world, 3);
    let pd = guest.pd;
    macro_rules! refused {
        ($command:ident, $body:expr, $error:ident, $line:expr) => {
            refused(
                &mut world,
                &guest,
                code::$command,
                &$body,
                Error::$error,
                $line,
            )
        };
    }
    refused!(
        DESTROY_PD,
        one(77),
        NoSuch,
        "DESTROY_PD: protection domain 77 does not exist"
    );
    refused!(
        DESTROY_UC,
        one(78),
        NoSuch,
        "DESTROY_UC: user context 78 does not exist"
    );
    refused!(
        DESTROY_MR,
        one(79),
        NoSuch,
        "DESTROY_MR: memory region 79 does not exist"
    );
    refused!(
        DESTROY_CQ,
        one(80),
        NoSuch,
        "DESTROY_CQ: completion queue 80 does not exist"
    );
    refused!(
        DESTROY_SRQ,
        one(81),
        NoSuch,
        "DESTROY_SRQ: shared receive queue 81 does not exist"
    );
    refused!(
        QUERY_SRQ,
        one(82),
        NoSuch,
        "QUERY_SRQ: shared receive queue 82 does not exist"
    );
    refused!(
        DESTROY_QP,
        one(83),
        NoSuch,
        "DESTROY_QP: queue pair 83 does not exist"
    );
    refused!(
        QUERY_QP,
        one(84),
        NoSuch,
        "QUERY_QP: queue pair 84 does not exist"
    );
    let line = format!("DESTROY_CQ: completion queue {} is in use", queue.cq);
    refused!(DESTROY_CQ, one(queue.cq), Busy, &line);
    refused!(
        RESIZE_CQ,
        one(0),
        Invalid,
        "RESIZE_CQ: the command number 7 is invalid"
    );
    let line = "command: the command number 99 is invalid";
    refused(&mut world, &guest, 99, &one(0), Error::Invalid, line);

    let region = CreateMr {
        pd: 85,
        ..CreateMr::default()
    };
    refused!(
        CREATE_MR,
        region,
        NoSuch,
        "CREATE_MR: protection domain 85 does not exist"
    );
    let region = CreateMr {
        pd,
        flags: 9,
        ..CreateMr::default()
    };
    refused!(
        CREATE_MR,
        region,
        Invalid,
        "CREATE_MR: the value 0x9 of the flags is invalid"
    );
    let region = CreateMr {
        pd,
        start: 0x1000,
        length: 0x3000,
        pages: 2,
        ..CreateMr::default()
    };
    let line = "CREATE_MR: a region of 0x3000 bytes at 0x1000 with 2 pages is invalid";
    refused!(CREATE_MR, region, Invalid, line);
    let region = CreateMr {
        directory: MEMORY,
        ..CreateMr { pages: 3, ..region }
    };
    let line = "CREATE_MR: the page directory at 0x400000 is not accessible";
    refused!(CREATE_MR, region, Fault, line);

    let cq = CreateCq {
        directory,
        entries: 3,
        pages: 2,
        ..CreateCq::default()
    };
    refused!(
        CREATE_CQ,
        cq,
        Invalid,
        "CREATE_CQ: the number of entries 3 is invalid"
    );
    let cq = CreateCq { entries: 256, ..cq };
    let line = "CREATE_CQ: a ring of 256 entries of 64 bytes on 1 pages is invalid";
    refused!(CREATE_CQ, cq, Invalid, line);
    let cq = CreateCq { pages: 0, ..cq };
    refused!(
        CREATE_CQ,
        cq,
        Invalid,
        "CREATE_CQ: a page directory with 0 pages is invalid"
    );

    let attrs = SrqAttrs {
        max_wr: 16,
        max_sge: 17,
        ..SrqAttrs::default()
    };
    let srq = CreateSrq {
        directory,
        pd,
        pages: 2,
        attrs,
        ..CreateSrq::default()
    };
    refused!(
        CREATE_SRQ,
        srq,
        Invalid,
        "CREATE_SRQ: max_sge 17 is invalid"
    );
    let attrs = SrqAttrs {
        max_sge: 4,
        limit: 17,
        ..attrs
    };
    let srq = CreateSrq { attrs, ..srq };
    refused!(
        CREATE_SRQ,
        srq,
        Invalid,
        "CREATE_SRQ: the limit 17 is invalid"
    );
    let modify = ModifySrq {
        handle: 86,
        mask: 2,
        attrs,
    };
    let line = "MODIFY_SRQ: shared receive queue 86 does not exist";
    refused!(MODIFY_SRQ, modify, NoSuch, line);

    let cqs = CreateQp {
        send_cq: queue.cq,
        recv_cq: queue.cq,
        ..CreateQp::default()
    };
    let pair = CreateQp {
        directory,
        pd,
        kind: 2,
        total_pages: 3,
        send_pages: 1,
        ..cqs
    };
    refused!(
        CREATE_QP,
        CreateQp { kind: 3, ..pair },
        Invalid,
        "CREATE_QP: the kind 3 is invalid"
    );
    let line = "CREATE_QP: completion queue 87 does not exist";
    refused!(
        CREATE_QP,
        CreateQp {
            recv_cq: 87,
            ..pair
        },
        NoSuch,
        line
    );
    let line = "CREATE_QP: shared receive queue 88 does not exist";
    refused!(
        CREATE_QP,
        CreateQp {
            is_srq: 1,
            srq: 88,
            ..pair
        },
        NoSuch,
        line
    );
    let line = "CREATE_QP: max_send_wr 99999 is invalid";
    refused!(
        CREATE_QP,
        CreateQp {
            max_send_wr: 99_999,
            ..pair
        },
        Invalid,
        line
    );
    let line = "CREATE_QP: send_pages 9 is invalid";
    refused!(
        CREATE_QP,
        CreateQp {
            send_pages: 9,
            ..pair
        },
        Invalid,
        line
    );

    let bind = CreateBind {
        index: 128,
        gid: gid(0),
        ..CreateBind::default()
    };
    refused!(
        CREATE_BIND,
        bind,
        Invalid,
        "CREATE_BIND: the index 128 is invalid"
    );
    let bind = CreateBind {
        index: 1,
        gid: gid(1),
        ..CreateBind::default()
    };
    let line = "CREATE_BIND: the address ::ffff:10.27.1.2 is in use";
    refused!(CREATE_BIND, bind, Busy, line);
    let bind = DestroyBind {
        index: 5,
        gid: gid(0),
        reserved: 0,
    };
    refused!(
        DESTROY_BIND,
        bind,
        NoSuch,
        "DESTROY_BIND: the address at index 5 does not exist"
    );
}

#[test]
fn a_refused_modification_is_an_error_of_the_response() {
    let (mut world, [mut guest, _]) = two();
    let queue = guest.queue(&mut world, 2);
    let path = Path {
        sgid_index: 200,
        ..Path::default()
    };
    for (mask, attrs, line) in [
        (
            attr::STATE,
            QpAttrs {
                state: 3,
                ..QpAttrs::default()
            },
            "state 3 after Reset",
        ),
        (
            attr::STATE,
            QpAttrs {
                state: 9,
                ..QpAttrs::default()
            },
            "state 9 after Reset",
        ),
        (
            attr::TIMEOUT,
            QpAttrs {
                timeout: 32,
                ..QpAttrs::default()
            },
            "timeout 32",
        ),
        (
            attr::RNR_RETRY,
            QpAttrs {
                rnr_retry: 8,
                ..QpAttrs::default()
            },
            "rnr_retry 8",
        ),
        (
            attr::AV,
            QpAttrs {
                path,
                ..QpAttrs::default()
            },
            "sgid_index 200",
        ),
    ] {
        assert!(!guest.modify(&mut world, &queue, mask, attrs));
        assert_eq!(only_line(&world), format!("MODIFY_QP: {line} is invalid"));
        assert_eq!(world.switch.report().machines[0].error, 0);
    }
    let modify = ModifyQp {
        handle: 77,
        ..ModifyQp::default()
    };
    guest.tell(&mut world, code::MODIFY_QP, &modify);
    assert_eq!(
        guest.read::<[u8; 16]>(&mut world, RESPONSE)[12],
        Error::NoSuch as u8
    );
    assert_eq!(only_line(&world), "MODIFY_QP: queue pair 77 does not exist");
}

#[test]
fn registers_and_doorbells_without_sense_are_lines() {
    let (mut world, [mut guest, _]) = two();
    let queue = guest.queue(&mut world, 2);
    let error = |world: &World| world.switch.report().machines[0].error;

    guest.register(&mut world, reg::CTL, 7);
    assert_eq!(only_line(&world), "CTL: the value 0x7 is invalid");
    assert_eq!(error(&world), Error::Invalid as u32);
    guest.register(&mut world, reg::CTL, ctl::UNQUIESCE);
    assert_eq!((world.log.take().len(), error(&world)), (0, 0));

    guest.register(&mut world, reg::VERSION, 5);
    let line = "register: a write of 0x5 at 0x0, where no register can be written";
    assert_eq!(only_line(&world), line);

    for (offset, value, line) in [
        (
            uar::QP,
            uar::QP_SEND | 77,
            "doorbell of queue pairs: there is no 77",
        ),
        (
            uar::QP,
            uar::QP_RECV | 78,
            "doorbell of queue pairs: there is no 78",
        ),
        (
            uar::QP,
            queue.handle,
            "doorbell of queue pairs: the value 0x2 means neither a send nor a receive",
        ),
        (
            3 * PAGE + uar::CQ,
            uar::CQ_ARM | 79,
            "doorbell of completion queues: there is no 79",
        ),
        (
            uar::SRQ,
            80,
            "doorbell of shared receive queues: there is no 80",
        ),
        (
            PAGE + 0x10,
            81,
            "doorbell: a write of 0x51 at 0x10 of a page, where no doorbell is",
        ),
    ] {
        assert!(!world.switch.ring(0, offset, value));
        assert_eq!(only_line(&world), line);
        assert_eq!(error(&world), 0, "{line}");
    }
    // What drivers do is no line.
    for (offset, value) in [
        (uar::QP, uar::QP_SEND | queue.handle),
        (uar::QP, uar::QP_RECV | queue.handle),
        (uar::CQ, uar::CQ_ARM | queue.cq),
        (uar::CQ, uar::CQ_ARM_SOLICITED | queue.cq),
        (uar::CQ, queue.cq),
    ] {
        world.switch.ring(0, offset, value);
        assert_eq!(world.log.take(), [""; 0]);
    }

    guest.register(&mut world, reg::CTL, ctl::RESET);
    assert_eq!((world.log.take().len(), error(&world)), (0, 0));
    guest.register(&mut world, reg::CTL, ctl::ACTIVATE);
    assert_eq!(only_line(&world), "CTL: the shared region does not exist");
    assert_eq!(error(&world), Error::NoSuch as u32);
    guest.register(&mut world, reg::REQUEST, 0);
    assert_eq!(
        only_line(&world),
        "command: the shared region does not exist"
    );
    guest.register(&mut world, reg::DSR_LOW, (MEMORY - 8) as u32);
    guest.register(&mut world, reg::DSR_HIGH, 0);
    assert_eq!(
        only_line(&world),
        "shared region: the shared region at 0x3ffff8 is not accessible"
    );
    assert_eq!(error(&world), Error::Fault as u32);
    // The low half alone is the address of a shared region.
    guest.register(&mut world, reg::DSR_LOW, SHARED as u32);
    guest.register(&mut world, reg::DSR_HIGH, 1);
    assert_eq!(
        only_line(&world),
        "shared region: the shared region at 0x100001000 is not accessible"
    );
    assert_eq!(error(&world), Error::Fault as u32);
}

#[test]
fn one_kind_of_complaint_does_not_hide_others_and_a_reset_shows_it_again() {
    let (mut world, [guest, _]) = two();
    for round in 0..2 {
        for _ in 0..3 * MOST_OF_A_KIND {
            world.switch.ring(0, uar::QP, uar::QP_SEND | 77);
        }
        assert_eq!(world.log.take().len() as u64, MOST_OF_A_KIND + 1, "{round}");
        guest.register(&mut world, reg::CTL, 7);
        assert_eq!(only_line(&world), "CTL: the value 0x7 is invalid");
        guest.register(&mut world, reg::CTL, ctl::RESET);
    }
    let report = world.switch.report();
    let count = report.machines[0].complaints["doorbell of queue pairs"];
    assert_eq!(count, 6 * MOST_OF_A_KIND);
}

#[test]
fn writes_of_other_widths_are_lines() {
    let (world, _) = two();
    let log = world.log.clone();
    let running = Arc::new(Running {
        switch: Mutex::new(world.switch),
        asked: Condvar::new(),
    });
    let mut backend = Backend::new(0, Arc::clone(&running));
    for region in [VFIO_PCI_BAR1_REGION_INDEX, VFIO_PCI_BAR2_REGION_INDEX] {
        for width in [1, 2, 8] {
            backend.region_write(region, 0xc, &vec![1; width]).unwrap();
            let line = format!("a write of {width} bytes at 0xc of BAR {region}");
            assert_eq!(log.take(), [format!("adapter: machine 1: access: {line}")]);
        }
    }
    // The last page has the same doorbells as the first one.
    let at = 511 * PAGE + uar::QP;
    let value = (uar::QP_SEND | 77).to_le_bytes();
    backend
        .region_write(VFIO_PCI_BAR2_REGION_INDEX, at, &value)
        .unwrap();
    let line = "adapter: machine 1: doorbell of queue pairs: there is no 77";
    assert_eq!(log.take(), [line]);
    assert_eq!(running.switch.lock().report().machines[0].doorbells, 1);
}

/// A number that no ring of the tests has.
const NONSENSE: u32 = 0x00c0_ffee;

#[test]
fn a_queue_pair_with_an_invalid_ring_fails_with_a_line() {
    for receives in [false, true] {
        let (mut world, [mut a, _], [mut qa, mut qb]) = guest::connected(Link::default());
        a.write(&mut world, qa.state + 8 * u64::from(receives), &NONSENSE);
        if receives {
            qb.send(&mut world, request(op::SEND, &[0u8; 0]), &[]);
        } else {
            qa.send_doorbell(&mut world);
        }
        world.settle();
        let line = format!(
            "queue pair: the rings of {} are invalid: the number 0xc0ffee is out of range",
            qa.handle
        );
        assert_eq!(only_line(&world), line);
        assert_eq!(a.event(&mut world), Some([event::QP_FATAL, qa.handle]));
        assert_eq!(a.event(&mut world), None);
        let report = world.switch.report();
        assert_eq!(report.machines[0].queue_pairs[0].state, "err");
        // To the peer, the queue pair is gone.
        world.run(Duration::from_secs(1));
        let ends = receives.then_some((0, Status::RetriesExceeded as u32));
        assert_eq!(qb.ended(&mut world), Vec::from_iter(ends));
        // After a reset the queue pair can be used again.
        let reset = QpAttrs {
            state: State::Reset as u32,
            ..QpAttrs::default()
        };
        assert!(a.modify(&mut world, &qa, attr::STATE, reset));
        qa.reset(&mut world);
        a.connect(&mut world, &qa, &qb, State::Rts);
        qa.send_doorbell(&mut world);
        world.settle();
        assert_eq!(world.log.take(), [""; 0]);
    }
}

#[test]
fn an_invalid_completion_queue_is_a_line_and_an_event() {
    let (mut world, [mut a, _], [mut qa, mut qb]) = guest::connected(Link::default());
    a.write(&mut world, qa.cq_state + 12, &NONSENSE);
    qb.receive(&mut world, &[]);
    qa.send(&mut world, request(op::SEND, &[0u8; 0]), &[]);
    world.settle();
    let line = format!(
        "completion queue: {}: the number 0xc0ffee is out of range",
        qa.cq
    );
    assert_eq!(only_line(&world), line);
    assert_eq!(a.event(&mut world), Some([event::CQ_ERR, qa.cq]));
    assert_eq!(qb.ended(&mut world), [(1000, Status::Success as u32)]);
    // Later completions are lost without further lines.
    qb.receive(&mut world, &[]);
    qa.send(&mut world, request(op::SEND, &[0u8; 0]), &[]);
    world.settle();
    assert_eq!(world.log.take(), [""; 0]);
}

#[test]
fn an_invalid_shared_receive_queue_is_a_line_and_an_event() {
    let mut world = World::new(2, Link::default());
    let mut a = Guest::start(&mut world, 0);
    let mut b = Guest::start(&mut world, 1);
    let shared = a.shared_queue(&mut world);
    let qa = a.queue_of(&mut world, 2, Some(&shared));
    let mut qb = b.queue(&mut world, 2);
    a.connect(&mut world, &qa, &qb, State::Rts);
    b.connect(&mut world, &qb, &qa, State::Rts);
    a.write(&mut world, shared.state + 8, &NONSENSE);
    qb.send(&mut world, request(op::SEND, &[0u8; 0]), &[]);
    world.settle();
    let wrong = "the number 0xc0ffee is out of range";
    let lines = [
        format!("shared receive queue: {}: {wrong}", shared.handle),
        format!(
            "queue pair: the rings of {} are invalid: {wrong}",
            qa.handle
        ),
    ];
    assert_eq!(
        world.log.take(),
        lines.map(|line| format!("adapter: machine 1: {line}"))
    );
    assert_eq!(
        [(); 4].map(|()| a.event(&mut world)),
        [
            Some([event::SRQ_ERR, shared.handle]),
            Some([event::QP_FATAL, qa.handle]),
            Some([event::QP_LAST_WQE_REACHED, qa.handle]),
            None,
        ]
    );
}

#[test]
fn an_invalid_ring_of_a_datagram_queue_pair_is_a_line_and_an_event() {
    const UD: u8 = 4;
    const GSI: u8 = 1;
    for kind in [UD, GSI] {
        for sends in [false, true] {
            let mut world = World::new(2, Link::default());
            let mut a = Guest::start(&mut world, 0);
            let mut b = Guest::start(&mut world, 1);
            let (qa, mut qb) = (a.queue(&mut world, kind), b.queue(&mut world, kind));
            a.connect(&mut world, &qa, &qb, State::Rts);
            b.connect(&mut world, &qb, &qa, State::Rts);
            a.write(&mut world, qa.state + if sends { 0 } else { 8 }, &NONSENSE);
            if sends {
                qa.send_doorbell(&mut world);
            } else {
                qb.send_datagram(&mut world, &qa, &[]);
            }
            world.settle();
            let line = format!(
                "queue pair: the rings of {} are invalid: the number 0xc0ffee is out of range",
                qa.handle
            );
            assert_eq!(only_line(&world), line);
            assert_eq!(a.event(&mut world), Some([event::QP_FATAL, qa.handle]));
            let report = world.switch.report();
            assert_eq!(report.machines[0].queue_pairs[0].state, "err");
            // The sender of a datagram does not learn what has become of it.
            let sent = (!sends).then_some((0, Status::Success as u32));
            assert_eq!(qb.ended(&mut world), Vec::from_iter(sent));
        }
    }
}

#[test]
fn invalid_rings_of_events_and_notifications_are_lines() {
    let (mut world, [a, _], [mut qa, mut qb]) = guest::connected(Link::default());
    for (ring, kind) in [(0, "event ring"), (1, "notification ring")] {
        // The directory of the ring leads to its state.
        let directory: u64 = a.read(&mut world, SHARED + 40 + 16 * ring);
        let table: u64 = a.read(&mut world, directory);
        let state: u64 = a.read(&mut world, table);
        a.write(&mut world, state + 12, &NONSENSE);
        if ring == 0 {
            world.tell("link 1 down");
            world.tell("link 1 up");
        } else {
            world.switch.ring(0, uar::CQ, uar::CQ_ARM | qa.cq);
            qb.receive(&mut world, &[]);
            qa.send(&mut world, request(op::SEND, &[0u8; 0]), &[]);
            world.settle();
        }
        let lines = world.log.take();
        let line = format!("adapter: machine 1: {kind}: the number 0xc0ffee is out of range");
        assert!(
            !lines.is_empty() && lines.iter().all(|found| *found == line),
            "{lines:?}"
        );
    }
}
