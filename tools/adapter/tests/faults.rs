// SPDX-License-Identifier: GPL-2.0
//! Faults on demand: loss leads to retries and finally to an error, never to wrong bytes.

mod guest;

use std::time::Duration;

use adapter::abi::command::{code, One, Port};
use adapter::abi::queue::{flag, op, SendHeader, Sge, Status};
use adapter::abi::{access, event, reg, PAGE};
use adapter::qp::State;
use adapter::switch::Link;
use guest::{connected, rdma, request, Guest, Queue, World};

const OK: u32 = Status::Success as u32;
const FLUSHED: u32 = Status::Flushed as u32;
const NONE: [u32; 0] = [];
/// Length of a message of several pieces.
const LONG: u32 = 300_000;
/// Longer than all retries of a queue pair: four times 6 ms.
const GIVEN_UP: Duration = Duration::from_millis(100);

fn byte(at: u64) -> u8 {
    (at as u8).wrapping_mul(7) ^ (at >> 8) as u8
}

fn fill(guest: &Guest, world: &mut World, addr: u64) {
    let bytes: Vec<u8> = (0..u64::from(LONG)).map(byte).collect();
    let memory = &world.switch.device(guest.machine).memory;
    memory.write_bytes(addr, &bytes).unwrap();
}

fn check(guest: &Guest, world: &mut World, addr: u64) {
    for at in 0..u64::from(LONG) {
        let found: u8 = guest.read(world, addr + at);
        assert_eq!(found, byte(at), "byte {at}");
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

/// A kind of message.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Send,
    Write,
    Read,
}

const WAYS: [Way; 3] = [Way::Send, Way::Write, Way::Read];

/// Two machines, and a long message of the first machine's queue pair.
struct Scene {
    world: World,
    guests: [Guest; 2],
    queues: [Queue; 2],
    mine: u64,
    theirs: u64,
    key: u32,
}

impl Scene {
    fn new(link: Link) -> Self {
        let (mut world, mut guests, mut queues) = connected(link);
        let [a, b] = &mut guests;
        let (mine, theirs) = (a.memory(u64::from(LONG)), b.memory(u64::from(LONG)));
        let key = b.fast_region(&mut world, 80) | 5;
        let rights = access::REMOTE_READ | access::REMOTE_WRITE | access::LOCAL_WRITE;
        let register = b.registration(&mut world, key, rights, theirs, LONG);
        queues[1].send(&mut world, register, &[]);
        world.settle();
        assert_eq!(queues[1].ended(&mut world), [(0, OK)]);
        Self {
            world,
            guests,
            queues,
            mine,
            theirs,
            key,
        }
    }

    fn post(&mut self, way: Way) {
        let (from, to) = match way {
            Way::Read => ((1, self.theirs), (0, self.mine)),
            _ => ((0, self.mine), (1, self.theirs)),
        };
        fill(&self.guests[from.0], &mut self.world, from.1);
        let zeros = vec![0; LONG as usize];
        let memory = &self.world.switch.device(to.0).memory;
        memory.write_bytes(to.1, &zeros).unwrap();
        let own = [sge(&self.guests[0], self.mine, LONG)];
        let header = match way {
            Way::Send => {
                let place = [sge(&self.guests[1], self.theirs, LONG)];
                self.queues[1].receive(&mut self.world, &place);
                plain()
            }
            Way::Write => rdma(op::RDMA_WRITE, self.theirs, self.key),
            Way::Read => rdma(op::RDMA_READ, self.theirs, self.key),
        };
        self.queues[0].send(&mut self.world, header, &own);
    }

    fn run(&mut self, ms: u64) {
        self.world.run(Duration::from_millis(ms));
    }

    fn statuses(&mut self) -> Vec<u32> {
        let ended = self.queues[0].ended(&mut self.world);
        ended.into_iter().map(|(_, status)| status).collect()
    }

    fn arrived(&mut self, way: Way) {
        let (guest, at) = match way {
            Way::Read => (&self.guests[0], self.mine),
            _ => (&self.guests[1], self.theirs),
        };
        check(guest, &mut self.world, at);
    }

    fn retries(&self) -> u64 {
        self.world.total(0, "retries")
    }
}

/// A link on which a long message takes 30 ms.
fn slow() -> Link {
    Link {
        rate: Some(10_000_000),
        latency: Duration::from_micros(50),
    }
}

#[test]
fn a_link_that_comes_back_in_time_costs_retries_only() {
    for way in WAYS {
        // Link down before the message, during it, and when only the answer is in flight.
        for down_at in [0, 10_000, 29_000, 29_570] {
            for machine in [1, 2] {
                let mut scene = Scene::new(slow());
                scene.post(way);
                scene.world.run(Duration::from_micros(down_at));
                scene.world.tell(&format!("link {machine} down"));
                scene.run(10);
                assert_ne!(scene.statuses(), [OK], "{way:?} at {down_at}");
                scene.world.tell(&format!("link {machine} up"));
                scene.run(200);
                assert_eq!(scene.statuses(), [OK], "{way:?} at {down_at}");
                scene.arrived(way);
                assert!(scene.retries() > 0, "{way:?} at {down_at}");
            }
        }
    }
}

#[test]
fn a_link_that_stays_down_ends_requests() {
    for way in WAYS {
        let mut scene = Scene::new(slow());
        scene.post(way);
        scene.run(10);
        scene.world.tell("link 2 down");
        scene.queues[0].send(&mut scene.world, plain(), &[]);
        scene.world.run(GIVEN_UP);
        assert_eq!(
            scene.statuses(),
            [Status::RetriesExceeded as u32, FLUSHED],
            "{way:?}"
        );
        assert_eq!(scene.retries(), 4);
        assert!(scene.world.total(0, "lost") + scene.world.total(1, "lost") > 0);
    }
}

#[test]
fn the_driver_is_told_of_its_link() {
    let mut scene = Scene::new(Link::default());
    let state = |scene: &mut Scene| {
        let ask = One {
            value: 1,
            reserved: 0,
        };
        let port: Port = scene.guests[0]
            .command(&mut scene.world, code::QUERY_PORT, &ask)
            .unwrap();
        port.state
    };
    assert_eq!(state(&mut scene), 4);
    scene.world.tell("link 1 down");
    scene.world.tell("link 1 down");
    assert_eq!(state(&mut scene), 1);
    scene.world.tell("link 1 up");
    assert_eq!(state(&mut scene), 4);
    let Scene { world, guests, .. } = &mut scene;
    for kind in [event::PORT_ERR, event::PORT_ACTIVE] {
        assert_eq!(guests[0].event(world), Some([kind, 1]));
    }
    assert_eq!(guests[0].event(world), None);
    assert_eq!(guests[1].event(world), None);
}

#[test]
fn lost_pieces_are_sent_again() {
    for way in WAYS {
        // With 8, the losses on the slow link have the rhythm of the repetitions of a Read, and the
        // retries run out.
        for every in 9..16 {
            for link in [Link::default(), slow()] {
                let mut scene = Scene::new(link);
                for machine in [1, 2] {
                    scene.world.tell(&format!("lose {machine} {every}"));
                }
                for _ in 0..3 {
                    scene.post(way);
                }
                scene.run(3000);
                assert_eq!(
                    scene.statuses(),
                    [OK; 3],
                    "{way:?}, one of {every}, {link:?}"
                );
                scene.arrived(way);
                assert!(scene.retries() > 0, "{way:?}, one of {every}");
            }
        }
    }
}

#[test]
fn an_acknowledgement_that_is_lost_repeats_nothing() {
    let mut scene = Scene::new(Link::default());
    let [a, b] = &scene.guests;
    scene.queues[1].receive(&mut scene.world, &[sge(b, scene.theirs, 8)]);
    scene.queues[1].receive(&mut scene.world, &[sge(b, scene.theirs, 8)]);
    scene.world.tell("lose 2 1");
    scene.queues[0].send(&mut scene.world, plain(), &[sge(a, scene.mine, 8)]);
    scene.run(3);
    scene.world.tell("lose 2 0");
    scene.run(10);
    assert_eq!(scene.statuses(), [OK]);
    assert_eq!(scene.queues[1].ended(&mut scene.world), [(1000, OK)]);
    assert_eq!(scene.retries(), 1);
}

#[test]
fn a_slow_read_holds_up_nothing_else() {
    let mut scene = Scene::new(Link::default());
    scene.world.tell("delay 1 read 500ms");
    scene.post(Way::Read);
    scene.queues[1].receive(&mut scene.world, &[]);
    scene.queues[0].send(&mut scene.world, plain(), &[]);
    scene.run(10);
    // The Send was received; its completion is reported after that of the Read.
    assert_eq!(scene.queues[1].ended(&mut scene.world), [(1000, OK)]);
    scene.run(480);
    assert_eq!(scene.statuses(), NONE);
    scene.world.tell("delay 1 read 0s");
    scene.run(20);
    assert_eq!(scene.statuses(), [OK, OK]);
    scene.arrived(Way::Read);
    assert_eq!(scene.retries(), 0);
    scene.post(Way::Read);
    scene.run(1);
    assert_eq!(scene.statuses(), [OK]);
}

#[test]
fn slow_messages_keep_their_order() {
    for way in [Way::Send, Way::Write] {
        let mut scene = Scene::new(Link::default());
        let kind = if way == Way::Send { "send" } else { "write" };
        scene.world.tell(&format!("delay 1 {kind} 500ms"));
        scene.post(way);
        scene.run(1);
        // Later requests are not delayed but do not overtake the delayed one.
        scene.world.tell(&format!("delay 1 {kind} 0s"));
        scene.queues[1].receive(&mut scene.world, &[]);
        scene.queues[0].send(&mut scene.world, plain(), &[]);
        scene.run(490);
        assert_eq!(scene.statuses(), NONE);
        scene.run(20);
        assert_eq!(scene.statuses(), [OK, OK], "{way:?}");
        scene.arrived(way);
        assert_eq!(scene.retries(), 0, "{way:?}");
    }
}

#[test]
fn what_is_held_goes_on_when_it_is_released() {
    for way in WAYS {
        for down in [false, true] {
            let mut scene = Scene::new(Link::default());
            let kind = format!("{way:?}").to_lowercase();
            scene.world.tell(&format!("hold 1 {kind}"));
            scene.post(way);
            scene.run(1000);
            assert_eq!(scene.statuses(), NONE, "{way:?}");
            assert_eq!(scene.retries(), 0, "{way:?}");
            if down {
                // Held requests are lost when the link goes down.
                scene.world.tell("link 2 down");
                scene.run(8);
            }
            scene.world.tell("release 1");
            scene.world.tell("link 2 up");
            scene.run(20);
            assert_eq!(scene.statuses(), [OK], "{way:?} {down}");
            scene.arrived(way);
            assert_eq!(scene.retries() > 0, down, "{way:?}");
        }
    }
}

#[test]
fn nothing_is_held_on_a_link_that_is_down() {
    for way in WAYS {
        let mut scene = Scene::new(Link::default());
        let kind = format!("{way:?}").to_lowercase();
        scene.world.tell(&format!("hold 1 {kind}"));
        scene.post(way);
        scene.run(20);
        scene.world.tell("link 1 down");
        scene.world.run(GIVEN_UP);
        let given_up = Status::RetriesExceeded as u32;
        assert_eq!(scene.statuses(), [given_up], "{way:?}");
    }
}

#[test]
fn each_kind_of_request_ends_as_told() {
    type Post = (&'static str, fn(&mut Scene));
    let posts: [Post; 6] = [
        ("send", |scene| scene.post(Way::Send)),
        ("write", |scene| scene.post(Way::Write)),
        ("read", |scene| scene.post(Way::Read)),
        ("send-inv", |scene| {
            let header = SendHeader {
                opcode: op::SEND_INV,
                ex: scene.key,
                ..plain()
            };
            scene.queues[1].receive(&mut scene.world, &[]);
            scene.queues[0].send(&mut scene.world, header, &[]);
        }),
        ("reg", |scene| {
            let Scene { world, guests, .. } = scene;
            let key = guests[0].fast_region(world, 1);
            let memory = guests[0].memory(PAGE);
            let header = guests[0].registration(world, key, access::REMOTE_READ, memory, 9);
            scene.queues[0].send(world, header, &[]);
        }),
        ("inv", |scene| {
            let header = SendHeader {
                opcode: op::LOCAL_INV,
                ex: 0x100,
                ..plain()
            };
            scene.queues[0].send(&mut scene.world, header, &[]);
        }),
    ];
    for (kind, post) in posts {
        for (name, status) in [
            ("local-protection", Status::LocalProtection),
            ("remote-access", Status::RemoteAccess),
            ("retries-exceeded", Status::RetriesExceeded),
        ] {
            let mut scene = Scene::new(Link::default());
            scene.world.tell(&format!("fail 1 {kind} {name}"));
            // Requests of another kind are not affected.
            let other = if kind == "write" {
                Way::Read
            } else {
                Way::Write
            };
            scene.post(other);
            scene.run(1);
            scene.arrived(other);
            post(&mut scene);
            scene.queues[0].send(&mut scene.world, plain(), &[]);
            scene.run(20);
            let ended = [OK, status as u32, FLUSHED];
            assert_eq!(scene.statuses(), ended, "{kind} {name}");
            let faults = scene.world.control("faults 1");
            assert_eq!(faults["fail"], serde_json::json!([]), "{kind}");
        }
    }
}

#[test]
fn a_receive_ends_as_told() {
    let mut scene = Scene::new(Link::default());
    scene.world.tell("fail 2 receive local-protection");
    scene.post(Way::Send);
    scene.run(20);
    assert_eq!(scene.statuses(), [Status::RemoteOperation as u32]);
    assert_eq!(
        scene.queues[1].ended(&mut scene.world),
        [(1000, Status::LocalProtection as u32)]
    );
}

#[test]
fn receives_that_are_held_back_run_out() {
    for in_time in [true, false] {
        let mut scene = Scene::new(Link::default());
        scene.world.tell("receives 2 held");
        scene.post(Way::Send);
        scene.world.run(Duration::from_micros(25));
        if in_time {
            scene.world.tell("receives 2 given");
        }
        scene.run(10);
        if in_time {
            assert_eq!(scene.statuses(), [OK]);
            scene.arrived(Way::Send);
        } else {
            assert_eq!(scene.statuses(), [Status::RnrRetriesExceeded as u32]);
        }
        assert!(scene.world.total(0, "rnr") > 0);
    }
}

#[test]
fn a_timeout_can_be_shorter_and_longer() {
    for (time, tries) in [("1ms", 8), ("50ms", 0)] {
        let mut scene = Scene::new(Link::default());
        scene.world.tell(&format!("timeout 1 {time}"));
        scene.world.tell("link 1 down");
        scene.post(Way::Write);
        scene.run(tries);
        assert_eq!(scene.statuses().is_empty(), tries == 0);
        scene.run(40);
        assert_eq!(scene.statuses(), NONE);
        assert_eq!(scene.retries() > 0, tries > 0);
    }
}

#[test]
fn a_device_that_is_removed_is_gone() {
    let mut scene = Scene::new(Link::default());
    scene.post(Way::Write);
    scene.world.tell("device 2 removed");
    scene.world.run(GIVEN_UP);
    assert_eq!(scene.statuses(), [Status::RetriesExceeded as u32]);
    let world = &mut scene.world;
    for register in [reg::VERSION, reg::ERR, reg::IMR] {
        assert_eq!(world.switch.read_register(1, register), u32::MAX);
    }
    world.switch.write_register(1, reg::REQUEST, 0);
    world.switch.ring(1, 0, u32::MAX);
    assert_eq!(world.control("keys 2"), serde_json::json!([]));
    world.tell("device 2 present");
    // The driver resets the device, and so does the peer's driver.
    for machine in [0, 1] {
        let memory = &world.switch.device(machine).memory;
        memory
            .write_bytes(0, &vec![0; guest::MEMORY as usize])
            .unwrap();
    }
    scene.guests = [0, 1].map(|machine| Guest::start(world, machine));
    scene.queues = [0, 1].map(|machine| scene.guests[machine].queue(world, 2));
    let [qa, qb] = scene.queues;
    scene.guests[0].connect(world, &qa, &qb, State::Rts);
    scene.guests[1].connect(world, &qb, &qa, State::Rts);
    scene.mine = scene.guests[0].memory(u64::from(LONG));
    scene.theirs = scene.guests[1].memory(u64::from(LONG));
    scene.post(Way::Send);
    scene.run(1);
    assert_eq!(scene.statuses(), [OK]);
    scene.arrived(Way::Send);
}

#[test]
fn keys_that_are_valid_are_told() {
    let mut scene = Scene::new(Link::default());
    let registered = |scene: &mut Scene| {
        let keys = scene.world.control("keys 2");
        let keys = keys.as_array().unwrap().clone();
        keys.into_iter()
            .filter(|key| key["kind"] == "registered")
            .collect::<Vec<_>>()
    };
    let keys = registered(&mut scene);
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0]["key"], scene.key);
    assert_eq!(keys[0]["bytes"], LONG);
    assert_eq!(keys[0]["peers_read"], true);
    let header = SendHeader {
        opcode: op::LOCAL_INV,
        ex: scene.key,
        ..plain()
    };
    scene.queues[1].send(&mut scene.world, header, &[]);
    scene.run(1);
    assert_eq!(registered(&mut scene), Vec::<serde_json::Value>::new());
}

#[test]
fn faults_of_a_machine_end_together() {
    let mut scene = Scene::new(Link::default());
    let none = scene.world.control("faults 1");
    for line in [
        "link 1 down",
        "lose 1 3",
        "hold 1 write",
        "delay 1 read 1s",
        "fail 1 send flushed 4",
        "receives 1 held",
        "timeout 1 1s",
    ] {
        scene.world.tell(line);
        assert_ne!(scene.world.control("faults 1"), none, "{line}");
        scene.world.tell("clear 1");
        assert_eq!(scene.world.control("faults 1"), none, "{line}");
    }
    for way in WAYS {
        scene.post(way);
        scene.run(1);
        assert_eq!(scene.statuses(), [OK]);
    }
}

#[test]
fn the_rate_can_change() {
    let mut scene = Scene::new(Link::default());
    for (rate, at_once) in [("0", true), ("80M", false), ("80M", false), ("0", true)] {
        scene.world.tell(&format!("rate {rate}"));
        scene.post(Way::Write);
        scene.run(10);
        assert_eq!(scene.statuses() == [OK], at_once, "{rate}");
        scene.run(40);
        assert_eq!(scene.statuses().is_empty(), at_once, "{rate}");
    }
}

#[test]
fn help_names_the_commands() {
    let mut world = World::new(1, Link::default());
    let help = world.control("help")["help"].to_string();
    for command in ["counters", "link", "hold", "release", "device", "clear"] {
        assert!(help.contains(command), "{help}");
    }
}

#[test]
fn a_wrong_line_is_told_what_is_wrong() {
    let mut scene = Scene::new(Link::default());
    for (line, why) in [
        ("", "Commands"),
        ("links 1 down", "unrecognized subcommand 'links'"),
        ("link 0 down", "there are machines 1 to 2, and no 0"),
        ("link 3 down", "there are machines 1 to 2, and no 3"),
        ("link 1", "<STATE>"),
        ("link x down", "invalid value 'x' for '<MACHINE>'"),
        ("link 1 sideways", "possible values: up, down"),
        ("link 1 down now", "unexpected argument 'now'"),
        ("delay 1 read 5", "a number and one of ns, us, ms, s"),
        ("delay 1 read 1000s", "600s at most"),
        ("delay 1 reg 1s", "only Sends, Writes and Reads"),
        ("hold 1 atomic", "only Sends, Writes and Reads"),
        ("timeout 1 1us", "1ms at least"),
        ("rate 10", "a number and one of G, M, K"),
        ("rate 1K", "from 1M to 10000G"),
        ("lose 1 -2", "unexpected argument '-2'"),
        ("fail 1 read success", "invalid value 'success'"),
        ("fail 1 read flushed 99999999", "99999999 is not in"),
        ("\u{0}\u{1b}[2J", "unrecognized subcommand"),
    ] {
        let answer = scene.world.control(line);
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(error.contains(why), "{line:?}: {answer}");
        assert!(!error.contains('\n'), "{line:?}: {answer}");
    }
}

/// A Read whose answer is late, with requests behind it.
fn behind_a_late_read() -> Scene {
    let mut scene = Scene::new(Link::default());
    scene.world.tell("delay 1 read 20ms");
    scene.post(Way::Read);
    scene.run(1);
    scene
}

#[test]
fn nothing_is_sent_after_a_refused_request() {
    let mut scene = behind_a_late_read();
    // The second piece of a Write has no memory.
    let (own, no) = (sge(&scene.guests[0], scene.mine, 64 << 10), 99);
    let bad = Sge {
        lkey: no,
        length: 128 << 10,
        ..own
    };
    let write = rdma(op::RDMA_WRITE, scene.theirs, scene.key);
    scene.queues[0].send(&mut scene.world, write, &[own, bad]);
    scene.run(1);
    let short = Sge { length: 8, ..own };
    scene.queues[0].send(&mut scene.world, write, &[short]);
    scene.run(1);
    assert_eq!(scene.statuses(), NONE);
    scene.run(100);
    let ended = [OK, Status::LocalProtection as u32, FLUSHED];
    assert_eq!(scene.statuses(), ended);
}

#[test]
fn nothing_is_sent_after_a_failed_registration() {
    let mut scene = behind_a_late_read();
    let Scene { world, guests, .. } = &mut scene;
    let memory = guests[0].memory(PAGE);
    // There is no such region.
    let register = guests[0].registration(world, 0x1234_5600, access::REMOTE_READ, memory, 9);
    scene.queues[1].receive(&mut scene.world, &[]);
    scene.queues[0].send(&mut scene.world, register, &[]);
    scene.queues[0].send(&mut scene.world, plain(), &[]);
    scene.run(1);
    scene.queues[0].send(&mut scene.world, plain(), &[]);
    scene.run(100);
    let ended = [OK, Status::MemoryBind as u32, FLUSHED, FLUSHED];
    assert_eq!(scene.statuses(), ended);
    // The peer has received nothing.
    assert_eq!(scene.queues[1].ended(&mut scene.world), []);
}

#[test]
fn a_lost_answer_is_asked_for_again_before_a_failed_request() {
    let mut scene = Scene::new(slow());
    let own = sge(&scene.guests[0], scene.mine, LONG);
    let read = rdma(op::RDMA_READ, scene.theirs, scene.key);
    let fenced = SendHeader {
        flags: read.flags | flag::FENCE,
        ..read
    };
    fill(&scene.guests[1], &mut scene.world, scene.theirs);
    scene.queues[0].send(&mut scene.world, fenced, &[own]);
    // The answer to this Read fails, because its memory has no valid key.
    let bad = Sge {
        lkey: 99,
        length: 8,
        ..own
    };
    scene.queues[0].send(&mut scene.world, read, &[bad]);
    scene.run(10);
    scene.world.tell("link 2 down");
    scene.run(10);
    scene.world.tell("link 2 up");
    scene.run(200);
    let ended = [OK, Status::LocalProtection as u32];
    assert_eq!(scene.statuses(), ended);
    scene.arrived(Way::Read);
    assert!(scene.retries() > 0);
}
