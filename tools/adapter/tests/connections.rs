// SPDX-License-Identifier: GPL-2.0
//! Connections, as seen by a minimal driver.

mod guest;

use std::fs::File;
use std::os::fd::FromRawFd;
use std::time::Duration;

use adapter::abi::command::{attr, QpAttrs};
use adapter::abi::queue::{flag, op, wc, Atomic, SendHeader, Sge, Status};
use adapter::abi::{access, uar, PAGE};
use adapter::qp::State;
use adapter::switch::Link;
use guest::{connected, rdma, request, Guest, Queue, World, ENTRIES, MEMORY};

const OK: u32 = Status::Success as u32;
const FLUSHED: u32 = Status::Flushed as u32;

fn fill(guest: &Guest, world: &mut World, addr: u64, bytes: u64, seed: u8) {
    for at in 0..bytes {
        guest.write(
            world,
            addr + at,
            &((at as u8).wrapping_mul(7).wrapping_add(seed)),
        );
    }
}

fn check(guest: &Guest, world: &mut World, addr: u64, bytes: u64, seed: u8) {
    for at in 0..bytes {
        let byte: u8 = guest.read(world, addr + at);
        assert_eq!(
            byte,
            (at as u8).wrapping_mul(7).wrapping_add(seed),
            "byte {at}"
        );
    }
}

fn sge(guest: &Guest, addr: u64, length: u32) -> Sge {
    Sge {
        addr,
        length,
        lkey: guest.key,
    }
}

fn plain() -> SendHeader {
    request(op::SEND, &[0u8; 0])
}

fn links() -> [Link; 3] {
    [
        Link::default(),
        Link {
            rate: Some(1_000_000_000),
            latency: Duration::from_micros(5),
        },
        Link {
            rate: Some(1_000_000),
            latency: Duration::from_millis(2),
        },
    ]
}

#[test]
fn a_message_arrives_whole_and_in_order() {
    for link in links() {
        let (mut world, [mut a, mut b], [mut qa, mut qb]) = connected(link);
        let (from, to) = (a.memory(200_000), b.memory(200_000));
        fill(&a, &mut world, from, 150_000, 3);
        let half = sge(&b, to, 70_000);
        qb.receive(&mut world, &[half, sge(&b, to + 70_000, 80_000)]);
        qb.receive(&mut world, &[]);
        qa.send(
            &mut world,
            SendHeader {
                flags: 0,
                ..plain()
            },
            &[sge(&a, from, 1), sge(&a, from + 1, 149_999)],
        );
        qa.send(
            &mut world,
            SendHeader {
                opcode: op::SEND_IMM,
                ex: 0x1234_5678,
                ..plain()
            },
            &[],
        );
        world.run(Duration::from_secs(2));
        check(&b, &mut world, to, 150_000, 3);
        let (first, second) = (qb.poll(&mut world).unwrap(), qb.poll(&mut world).unwrap());
        assert_eq!(
            (first.wr_id, first.status, first.byte_len, first.flags),
            (1000, OK, 150_000, 0)
        );
        assert_eq!(
            (second.wr_id, second.ex, second.flags),
            (1001, 0x1234_5678, wc::WITH_IMM)
        );
        assert_eq!(second.opcode, wc::RECV);
        // The first send did not request a completion.
        assert_eq!(qa.ended(&mut world), [(1, OK)]);
        assert_eq!(qa.freed(&mut world), 2);
    }
}

#[test]
fn the_link_has_a_rate_and_a_latency() {
    let link = Link {
        rate: Some(100_000_000),
        latency: Duration::from_millis(3),
    };
    let (mut world, [mut a, mut b], [mut qa, mut qb]) = connected(link);
    let (from, to) = (a.memory(1_000_000), b.memory(1_000_000));
    let begin = world.now;
    qb.receive(&mut world, &[sge(&b, to, 1_000_000)]);
    qa.send(&mut world, plain(), &[sge(&a, from, 1_000_000)]);
    let mut came = None;
    while qa.poll(&mut world).is_none() {
        if came.is_none() && qb.poll(&mut world).is_some() {
            came = Some(world.now - begin);
        }
        world.run(Duration::from_micros(100));
    }
    // 10 ms on the link, plus the latency in both directions.
    let (came, done) = (came.unwrap(), world.now - begin);
    assert!(
        (Duration::from_micros(13_000)..Duration::from_micros(13_500)).contains(&came),
        "{came:?}"
    );
    assert!(
        (Duration::from_micros(2_900)..Duration::from_micros(3_300)).contains(&(done - came)),
        "{done:?}"
    );
}

#[test]
fn writes_and_reads_by_registered_keys() {
    for link in links() {
        let (mut world, [mut a, mut b], [mut qa, mut qb]) = connected(link);
        let (mine, theirs) = (a.memory(300_000), b.memory(300_000));
        fill(&a, &mut world, mine, 100_000, 9);
        let key = b.fast_region(&mut world, 64) | 0x42;
        let rights = access::REMOTE_READ | access::REMOTE_WRITE | access::LOCAL_WRITE;
        let register = b.registration(&mut world, key, rights, theirs + 10, 100_000);
        qb.send(&mut world, register, &[]);
        world.settle();
        assert_eq!(qb.ended(&mut world), [(0, OK)]);
        qa.send(
            &mut world,
            rdma(op::RDMA_WRITE, theirs + 10, key),
            &[sge(&a, mine, 100_000)],
        );
        let back = rdma(op::RDMA_READ, theirs + 10, key);
        qa.send(
            &mut world,
            SendHeader {
                flags: back.flags | flag::FENCE,
                ..back
            },
            &[sge(&a, mine + 150_000, 100_000)],
        );
        world.run(Duration::from_secs(2));
        assert_eq!(qa.ended(&mut world), [(0, OK), (1, OK)]);
        check(&b, &mut world, theirs + 10, 100_000, 9);
        check(&a, &mut world, mine + 150_000, 100_000, 9);
        // One byte beyond the region.
        qa.send(
            &mut world,
            rdma(op::RDMA_WRITE, theirs + 10, key),
            &[sge(&a, mine, 100_001)],
        );
        world.run(Duration::from_secs(2));
        assert_eq!(qa.ended(&mut world), [(2, Status::RemoteAccess as u32)]);
        let byte: u8 = b.read(&mut world, theirs + 100_010);
        assert_eq!(byte, 0);
    }
}

#[test]
fn a_key_is_dead_after_its_invalidation() {
    for remote in [false, true] {
        let (mut world, [mut a, mut b], [mut qa, mut qb]) = connected(Link::default());
        let (mine, theirs) = (a.memory(PAGE), b.memory(PAGE));
        let key = b.fast_region(&mut world, 1);
        let register = b.registration(&mut world, key, access::REMOTE_READ, theirs, 100);
        qb.send(&mut world, register, &[]);
        world.settle();
        qa.send(
            &mut world,
            rdma(op::RDMA_READ, theirs, key),
            &[sge(&a, mine, 100)],
        );
        world.settle();
        if remote {
            qb.receive(&mut world, &[]);
            qa.send(
                &mut world,
                SendHeader {
                    opcode: op::SEND_INV,
                    ex: key,
                    ..plain()
                },
                &[],
            );
        } else {
            let header = SendHeader {
                opcode: op::LOCAL_INV,
                ex: key,
                ..plain()
            };
            qb.send(&mut world, header, &[]);
        }
        world.settle();
        if remote {
            qb.poll(&mut world).unwrap();
            let came = qb.poll(&mut world).unwrap();
            assert_eq!(
                (came.status, came.flags, came.ex),
                (OK, wc::WITH_INVALIDATE, key)
            );
        }
        qa.send(
            &mut world,
            rdma(op::RDMA_READ, theirs, key),
            &[sge(&a, mine, 100)],
        );
        world.settle();
        let ended = qa.ended(&mut world);
        let last = *ended.last().unwrap();
        assert_eq!(last.1, Status::RemoteAccess as u32);
    }
}

#[test]
fn a_peer_without_a_receive_is_asked_again() {
    let (mut world, _, [mut qa, mut qb]) = connected(Link::default());
    qa.send(&mut world, plain(), &[]);
    world.run(Duration::from_micros(15));
    assert_eq!(qa.ended(&mut world), []);
    qb.receive(&mut world, &[]);
    world.settle();
    assert_eq!(qa.ended(&mut world), [(0, OK)]);
    // No receive is left: three retries, then an error; later requests are flushed.
    qa.send(&mut world, plain(), &[]);
    qa.send(&mut world, plain(), &[]);
    world.settle();
    assert_eq!(
        qa.ended(&mut world),
        [(1, Status::RnrRetriesExceeded as u32), (2, FLUSHED)]
    );
}

#[test]
fn a_peer_that_is_gone_is_given_up() {
    let (mut world, _, [mut qa, mut qb]) = connected(Link::default());
    qb.receive(&mut world, &[]);
    world.switch.forget(1);
    qa.send(&mut world, plain(), &[]);
    world.run(Duration::from_millis(15));
    assert_eq!(qa.ended(&mut world), []);
    world.run(Duration::from_millis(100));
    assert_eq!(qa.ended(&mut world), [(0, Status::RetriesExceeded as u32)]);
}

#[test]
fn errors_end_with_the_status_that_tells_them() {
    // The posted requests, and the statuses at both ends.
    type Case = (
        fn(&mut World, &mut [Guest; 2], &mut [Queue; 2]),
        Status,
        Option<Status>,
    );
    let cases: [Case; 5] = [
        (
            |world, guests, queues| {
                queues[1].receive(world, &[sge(&guests[1], 0x20000, 10)]);
                queues[0].send(world, plain(), &[sge(&guests[0], 0x20000, 11)]);
            },
            Status::RemoteInvalidRequest,
            Some(Status::LocalLength),
        ),
        (
            |world, guests, queues| {
                queues[1].receive(
                    world,
                    &[Sge {
                        lkey: 99,
                        ..sge(&guests[1], 0x20000, 10)
                    }],
                );
                queues[0].send(world, plain(), &[sge(&guests[0], 0x20000, 10)]);
            },
            Status::RemoteOperation,
            Some(Status::LocalProtection),
        ),
        (
            |world, guests, queues| {
                queues[1].receive(world, &[sge(&guests[1], 0x20000, 10)]);
                queues[0].send(
                    world,
                    plain(),
                    &[Sge {
                        lkey: 99,
                        ..sge(&guests[0], 0x20000, 10)
                    }],
                );
            },
            Status::LocalProtection,
            None,
        ),
        (
            |world, _, queues| {
                queues[0].send(
                    world,
                    SendHeader {
                        opcode: 77,
                        ..plain()
                    },
                    &[],
                );
            },
            Status::LocalOperation,
            None,
        ),
        (
            |world, guests, queues| {
                let sges = [sge(&guests[0], 0x20000, 8)];
                let what = Atomic {
                    addr: 0x20004,
                    rkey: guests[1].key,
                    ..Atomic::default()
                };
                queues[0].send(world, request(op::ATOMIC_ADD, &what), &sges);
            },
            Status::RemoteInvalidRequest,
            None,
        ),
    ];
    for (n, (post, sender, receiver)) in cases.into_iter().enumerate() {
        let (mut world, mut guests, mut queues) = connected(Link::default());
        post(&mut world, &mut guests, &mut queues);
        queues[0].send(&mut world, plain(), &[]);
        world.settle();
        let [mut qa, mut qb] = queues;
        assert_eq!(
            qa.ended(&mut world),
            [(0, sender as u32), (1, FLUSHED)],
            "case {n}"
        );
        if let Some(status) = receiver {
            assert_eq!(qb.ended(&mut world), [(1000, status as u32)], "case {n}");
        }
    }
}

#[test]
fn requests_that_stay_at_home_have_no_number_on_the_wire() {
    let (mut world, [mut a, _], [mut qa, mut qb]) = connected(Link::default());
    let mine = a.memory(PAGE);
    let key = a.fast_region(&mut world, 1);
    for n in 0..3 {
        qb.receive(&mut world, &[]);
        let register = a.registration(&mut world, key | n, access::REMOTE_READ, mine, 100);
        qa.send(&mut world, register, &[]);
        qa.send(&mut world, plain(), &[]);
        let header = SendHeader {
            opcode: op::LOCAL_INV,
            ex: key | n,
            ..plain()
        };
        qa.send(&mut world, header, &[]);
    }
    world.settle();
    assert_eq!(
        qa.ended(&mut world),
        (0..9).map(|n| (n, OK)).collect::<Vec<_>>()
    );
    assert_eq!(qb.ended(&mut world).len(), 3);
}

#[test]
fn atomic_operations() {
    let (mut world, [mut a, mut b], [mut qa, mut qb]) = connected(Link::default());
    let (mine, theirs) = (a.memory(PAGE), b.memory(PAGE));
    let key = b.fast_region(&mut world, 1);
    let register = b.registration(&mut world, key, access::REMOTE_ATOMIC, theirs, 64);
    qb.send(&mut world, register, &[]);
    world.settle();
    b.write(&mut world, theirs + 8, &40u64);
    let add = Atomic {
        addr: theirs + 8,
        compare_add: 2,
        rkey: key,
        ..Atomic::default()
    };
    qa.send(
        &mut world,
        request(op::ATOMIC_ADD, &add),
        &[sge(&a, mine, 8)],
    );
    let swap = Atomic {
        compare_add: 42,
        swap: 1000,
        ..add
    };
    qa.send(
        &mut world,
        request(op::ATOMIC_SWAP, &swap),
        &[sge(&a, mine + 8, 8)],
    );
    qa.send(
        &mut world,
        request(op::ATOMIC_SWAP, &swap),
        &[sge(&a, mine + 16, 8)],
    );
    world.settle();
    assert_eq!(qa.ended(&mut world), [(0, OK), (1, OK), (2, OK)]);
    let found: [u64; 3] = a.read(&mut world, mine);
    assert_eq!(found, [40, 42, 1000]);
}

#[test]
fn an_error_state_flushes_both_queues() {
    let (mut world, [a, _], [mut qa, mut qb]) = connected(Link::default());
    for _ in 0..3 {
        qa.receive(&mut world, &[]);
    }
    qa.put_send(
        &mut world,
        SendHeader {
            flags: 0,
            ..plain()
        },
        &[],
    );
    let attrs = QpAttrs {
        state: State::Err as u32,
        ..QpAttrs::default()
    };
    assert!(a.modify(&mut world, &qa, attr::STATE, attrs));
    assert_eq!(
        qa.ended(&mut world),
        [
            (0, FLUSHED),
            (1000, FLUSHED),
            (1001, FLUSHED),
            (1002, FLUSHED)
        ]
    );
    // Requests posted later are flushed as well.
    qa.receive(&mut world, &[]);
    qa.send(&mut world, plain(), &[]);
    world.settle();
    assert_eq!(qa.ended(&mut world), [(1, FLUSHED), (1003, FLUSHED)]);
    qb.send(&mut world, plain(), &[]);
    world.run(Duration::from_millis(100));
    assert_eq!(qb.ended(&mut world), [(0, Status::RetriesExceeded as u32)]);
}

#[test]
fn doorbells_that_need_the_switch_say_so() {
    let (mut world, [a, _], [qa, _]) = connected(Link::default());
    let (send, receive) = (uar::QP_SEND | qa.handle, uar::QP_RECV | qa.handle);
    assert!(world.switch.ring(0, uar::QP, send));
    assert!(!world.switch.ring(0, uar::QP, receive));
    assert!(!world.switch.ring(0, uar::CQ, uar::CQ_ARM | qa.cq));
    assert!(!world.switch.ring(0, uar::CQ, qa.cq));
    let attrs = QpAttrs {
        state: State::Err as u32,
        ..QpAttrs::default()
    };
    assert!(a.modify(&mut world, &qa, attr::STATE, attrs));
    assert!(world.switch.ring(0, uar::QP, receive));
}

#[test]
fn a_queue_goes_round() {
    let (mut world, _, [mut qa, mut qb]) = connected(Link::default());
    for _ in 0..100 {
        for _ in 0..ENTRIES {
            qb.receive(&mut world, &[]);
            qa.put_send(&mut world, plain(), &[]);
        }
        qa.send_doorbell(&mut world);
        world.settle();
        assert_eq!(qa.ended(&mut world).len(), ENTRIES as usize);
        assert_eq!(qb.ended(&mut world).len(), ENTRIES as usize);
    }
}

#[test]
fn a_queue_pair_that_is_reset_begins_anew() {
    let (mut world, [a, b], [mut qa, mut qb]) = connected(Link::default());
    qa.send(&mut world, plain(), &[]);
    world.run(Duration::from_micros(5));
    let reset = QpAttrs {
        state: State::Reset as u32,
        ..QpAttrs::default()
    };
    for (guest, queue) in [(&a, &mut qa), (&b, &mut qb)] {
        assert!(guest.modify(&mut world, queue, attr::STATE, reset));
        queue.reset(&mut world);
    }
    a.connect(&mut world, &qa, &qb, State::Rts);
    b.connect(&mut world, &qb, &qa, State::Rts);
    qb.receive(&mut world, &[]);
    qa.send(&mut world, plain(), &[]);
    world.settle();
    assert_eq!(
        (qa.ended(&mut world), qb.ended(&mut world)),
        (vec![(0, OK)], vec![(1000, OK)])
    );
}

#[test]
fn a_machine_can_talk_to_itself() {
    let mut world = World::new(1, Link::default());
    let mut guest = Guest::start(&mut world, 0);
    let (mut qa, mut qb) = (guest.queue(&mut world, 2), guest.queue(&mut world, 2));
    guest.connect(&mut world, &qa, &qb, State::Rts);
    guest.connect(&mut world, &qb, &qa, State::Rts);
    let (from, to) = (guest.memory(PAGE), guest.memory(PAGE));
    fill(&guest, &mut world, from, 4096, 1);
    qb.receive(&mut world, &[sge(&guest, to, 4096)]);
    qa.send(&mut world, plain(), &[sge(&guest, from, 4096)]);
    world.settle();
    check(&guest, &mut world, to, 4096, 1);
    assert_eq!(
        (qa.ended(&mut world), qb.ended(&mut world)),
        (vec![(0, OK)], vec![(1000, OK)])
    );
}

/// How long it takes until two messages of 1 ms each have arrived, if the clock jumps by `late`
/// while the first one is on the link.
fn two_messages(idle: Duration, late: Duration) -> Duration {
    let link = Link {
        rate: Some(65_536_000),
        latency: Duration::ZERO,
    };
    let (mut world, [mut a, mut b], [mut qa, mut qb]) = connected(link);
    let (from, to) = (a.memory(1 << 17), b.memory(1 << 17));
    world.run(idle);
    let begin = world.now;
    for _ in 0..2 {
        qb.receive(&mut world, &[sge(&b, to, 1 << 16)]);
        qa.send(&mut world, plain(), &[sge(&a, from, 1 << 16)]);
    }
    world.run(Duration::from_micros(300));
    world.now += late;
    for _ in 0..2 {
        while qb.poll(&mut world).is_none() {
            world.run(Duration::from_micros(10));
        }
    }
    world.now - begin
}

#[test]
fn a_link_with_work_catches_up_what_a_late_clock_has_missed() {
    for late in [0, 100, 400] {
        let took = two_messages(Duration::ZERO, Duration::from_micros(late));
        let most = Duration::from_micros(2050);
        assert!(
            (Duration::from_millis(2)..most).contains(&took),
            "{late}: {took:?}"
        );
    }
    // A clock that is later does not catch up all of it.
    let took = two_messages(Duration::ZERO, Duration::from_millis(1));
    assert!(took > Duration::from_micros(2400), "{took:?}");
}

#[test]
fn an_idle_link_catches_up_nothing() {
    let took = two_messages(Duration::from_millis(10), Duration::ZERO);
    assert!(took >= Duration::from_millis(2), "{took:?}");
}

#[test]
fn a_peer_that_is_not_reset_as_well_is_given_up() {
    // Of the message that the reset interrupts, more has arrived than the next message is long.
    let link = Link {
        rate: Some(10_000_000),
        latency: Duration::from_micros(5),
    };
    let (mut world, [mut a, mut b], [mut qa, mut qb]) = connected(link);
    let (from, to) = (a.memory(1 << 20), b.memory(1 << 20));
    qb.receive(&mut world, &[sge(&b, to, 1 << 20)]);
    qa.send(&mut world, plain(), &[sge(&a, from, 1 << 20)]);
    world.run(Duration::from_millis(30));
    let reset = QpAttrs {
        state: State::Reset as u32,
        ..QpAttrs::default()
    };
    assert!(a.modify(&mut world, &qa, attr::STATE, reset));
    qa.reset(&mut world);
    a.connect(&mut world, &qa, &qb, State::Rts);
    qa.send(&mut world, plain(), &[sge(&a, from, 8)]);
    world.run(Duration::from_secs(1));
    assert_eq!(qa.ended(&mut world), [(0, Status::RetriesExceeded as u32)]);
    assert_eq!(qb.ended(&mut world), []);
}

/// Two queue pairs for datagrams.
fn datagrams(world: &mut World) -> ([Guest; 2], [Queue; 2]) {
    let mut guests = [0, 1].map(|machine| Guest::start(world, machine));
    let [a, b] = &mut guests;
    let queues = [a.queue(world, 4), b.queue(world, 4)];
    a.connect(world, &queues[0], &queues[1], State::Rts);
    b.connect(world, &queues[1], &queues[0], State::Rts);
    (guests, queues)
}

#[test]
fn a_datagram_without_memory_takes_no_receive() {
    let mut world = World::new(2, Link::default());
    let ([mut a, mut b], [mut qa, mut qb]) = datagrams(&mut world);
    let (from, to) = (a.memory(PAGE), b.memory(PAGE));
    qb.receive(&mut world, &[sge(&b, to, 100)]);
    qa.send_datagram(&mut world, &qb, &[sge(&a, MEMORY, 8)]);
    world.settle();
    assert_eq!(qa.ended(&mut world), [(0, Status::LocalProtection as u32)]);
    let again = QpAttrs {
        state: State::Rts as u32,
        ..QpAttrs::default()
    };
    assert!(a.modify(&mut world, &qa, attr::STATE, again));
    fill(&a, &mut world, from, 60, 5);
    qa.send_datagram(&mut world, &qb, &[sge(&a, from, 60)]);
    world.settle();
    assert_eq!(qa.ended(&mut world), [(1, OK)]);
    assert_eq!(qb.ended(&mut world), [(1000, OK)]);
    check(&b, &mut world, to + 40, 60, 5);
}

/// The address at which the process maps a file with this name.
fn mapped_at(name: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.contains(name)).unwrap();
    let (start, _) = line.split_once('-').unwrap();
    usize::from_str_radix(start, 16).unwrap()
}

#[test]
fn the_memory_of_a_datagram_is_only_read() {
    let mut world = World::new(2, Link::default());
    let name = c"memory-that-is-only-read";
    // SAFETY: The name is a string that ends with a zero, and the result is checked.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: The descriptor is open and has no other owner.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(MEMORY).unwrap();
    let memory = &mut world.switch.device(0).memory;
    memory.unmap(0, MEMORY);
    memory.map(0, MEMORY, file, 0).unwrap();
    let ([mut a, b], [mut qa, mut qb]) = datagrams(&mut world);
    let from = a.memory(PAGE);
    // A write to the page would end the process.
    let page = mapped_at(name.to_str().unwrap()) + from as usize;
    // SAFETY: The page is in the mapping of the file, and no reference to it exists.
    let done = unsafe { libc::mprotect(page as *mut _, PAGE as usize, libc::PROT_READ) };
    assert_eq!(done, 0);
    // The receive has no memory, so the datagram does not arrive.
    qb.receive(&mut world, &[sge(&b, MEMORY, 100)]);
    qa.send_datagram(&mut world, &qb, &[sge(&a, from, 60)]);
    world.settle();
    assert_eq!(qa.ended(&mut world), [(0, OK)]);
    let status = Status::LocalProtection as u32;
    assert_eq!(qb.ended(&mut world), [(1000, status)]);
}
