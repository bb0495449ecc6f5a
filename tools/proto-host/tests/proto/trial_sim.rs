// SPDX-License-Identifier: GPL-2.0

//! The choice of the fastest path on a simulated connection: bytes arrive late and in their order,
//! the send buffer is limited, calls send less than they were asked to, and the calls of several
//! threads overlap.

use proto_host::proto::{
    choice::Path,
    trial::{
        Call,
        Trials,
        MARGIN_PERCENT, //
    },
};
use std::collections::VecDeque;

const MIB: u64 = 1 << 20;

/// The send buffer, in bytes: the default of the module.
const BUFFER_BYTES: u64 = 2 << 20;

/// The bytes of a message. A send by copy may wait after each message.
const MESSAGE_BYTES: u64 = 1 << 17;

/// The cost of a path in nanoseconds for a MiB.
#[derive(Copy, Clone, Debug)]
struct Cost {
    /// The time of the sender's processor.
    cpu: u64,
    /// The time of the adapters and of the peer's processor.
    wire: u64,
}

/// The costs of the paths, by the number of the path.
type Costs = [Cost; Path::ALL.len()];

/// The time of a MiB, if the program sends without a pause.
fn lasting_cost(costs: &Costs, path: Path) -> u64 {
    let Cost { cpu, wire } = costs[path as usize];
    match path {
        Path::Synchronous => cpu + wire,
        Path::Copy | Path::Asynchronous | Path::SinkWrite => cpu.max(wire),
    }
}

/// What the program does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Program {
    /// Each call sends all its bytes.
    Waits,
    /// Some calls end early, as after a signal. The next call sends the rest and more bytes.
    EndsEarly,
    /// The calls must not wait, so some of them send only a part of their bytes. If the send buffer
    /// is full, the program waits in poll() until a third of the buffer is free.
    Polls,
}

/// A call of a thread that has begun, and waits for the calls of other threads.
struct Begun {
    path: Path,
    delivered_before: u64,
    began_ns: u64,
}

struct Sim {
    trials: Trials,
    costs: Costs,
    program: Program,
    /// The bytes of a send.
    size: u64,
    /// The calls in the order in which they get the connection.
    begun: VecDeque<Begun>,
    /// The end of the last call.
    now_ns: u64,
    /// The arrival times of bytes that have not reached the peer, and their number.
    in_flight: VecDeque<(u64, u64)>,
    sent: u64,
    delivered: u64,
    /// The arrival time of the last byte.
    wire_free_ns: u64,
    random: u64,
    /// The number of bytes that the connection had sent when a path other than the fastest one was
    /// chosen; `None` while the fastest path is chosen.
    trial_since: Option<u64>,
    /// The largest number of bytes that the connection has sent during a trial.
    longest_trial: u64,
}

impl Sim {
    fn new(costs: Costs, program: Program, threads: usize, size: u64) -> Self {
        let mut sim = Self {
            trials: Trials::new(),
            costs,
            program,
            size,
            begun: VecDeque::new(),
            now_ns: 0,
            in_flight: VecDeque::new(),
            sent: 0,
            delivered: 0,
            wire_free_ns: 0,
            random: 1,
            trial_since: None,
            longest_trial: 0,
        };
        for _ in 0..threads {
            sim.begin();
        }
        sim
    }

    const fn may_wait(&self) -> bool {
        !matches!(self.program, Program::Polls)
    }

    /// Whether no other path that the program can use takes much less time.
    fn is_fastest(&self, path: Path) -> bool {
        let usable = |path: &Path| self.may_wait() || *path != Path::Synchronous;
        let cost = |path| lasting_cost(&self.costs, path);
        let least = Path::ALL.into_iter().filter(usable).map(cost).min();
        usable(&path) && cost(path) * 100 <= least.unwrap() * MARGIN_PERCENT
    }

    /// A thread calls send().
    fn begin(&mut self) {
        self.arrive();
        let path = self.trials.path(self.size, self.may_wait());
        self.begun.push_back(Begun {
            path,
            delivered_before: self.delivered,
            began_ns: self.now_ns,
        });
        if self.is_fastest(path) {
            self.trial_since = None;
        } else {
            let since = *self.trial_since.get_or_insert(self.sent);
            self.longest_trial = self.longest_trial.max(self.sent - since);
        }
    }

    /// Counts the bytes that have reached the peer by now.
    fn arrive(&mut self) {
        while let Some(&(at, bytes)) = self.in_flight.front() {
            if at > self.now_ns {
                break;
            }
            self.in_flight.pop_front();
            self.delivered += bytes;
        }
    }

    /// The room in the send buffer. An empty buffer has room for every send.
    fn room(&mut self) -> u64 {
        self.arrive();
        match self.sent - self.delivered {
            0 => u64::MAX,
            bytes => BUFFER_BYTES.saturating_sub(bytes),
        }
    }

    /// Waits for this much room.
    fn wait_for_room(&mut self, bytes: u64) {
        while self.room() < bytes {
            self.now_ns = self.in_flight.front().unwrap().0;
        }
    }

    /// Hands bytes to the adapter.
    fn post(&mut self, path: Path, bytes: u64) {
        let Cost { cpu, wire } = self.costs[path as usize];
        self.now_ns += cpu * bytes / MIB;
        self.wire_free_ns = self.wire_free_ns.max(self.now_ns) + wire * bytes / MIB;
        self.in_flight.push_back((self.wire_free_ns, bytes));
        self.sent += bytes;
    }

    /// Sends up to `bytes` bytes; returns their number.
    fn send(&mut self, path: Path, bytes: u64) -> u64 {
        match path {
            Path::Synchronous => {
                self.post(path, bytes);
                self.now_ns = self.wire_free_ns;
                bytes
            }
            Path::Asynchronous | Path::SinkWrite => {
                let bytes = match self.may_wait() {
                    true => bytes,
                    false => bytes.min(self.room()),
                };
                if bytes > 0 {
                    self.wait_for_room(bytes);
                    self.post(path, bytes);
                }
                bytes
            }
            Path::Copy => {
                let mut left = bytes;
                while left > 0 {
                    let message = left.min(MESSAGE_BYTES);
                    if !self.may_wait() && self.room() < message {
                        break;
                    }
                    self.wait_for_room(message);
                    self.post(path, message);
                    left -= message;
                }
                bytes - left
            }
        }
    }

    /// The maximum number of bytes of the next call.
    fn limit(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005) + 1;
        let number = self.random >> 33;
        match self.program {
            Program::EndsEarly if number % 3 == 0 => 4096 * (1 + number / 3 % (self.size / 4096)),
            Program::EndsEarly | Program::Waits | Program::Polls => self.size,
        }
    }

    /// Makes the next call. Its thread then begins another one.
    fn call(&mut self) {
        let begun = self.begun.pop_front().unwrap();
        let limit = self.limit();
        let bytes = self.send(begun.path, limit);
        self.trials.record(Call {
            asked_bytes: self.size,
            bytes,
            path: begun.path,
            sent: self.sent,
            delivered_before: begun.delivered_before,
            began_ns: begun.began_ns,
            ended_ns: self.now_ns,
        });
        if bytes == 0 {
            self.wait_for_room(BUFFER_BYTES / 3);
        }
        self.begin();
    }
}

/// The costs of paths that take this much time for a MiB, with a wire that is faster than the copies
/// of the processor, and with one that is as slow.
fn costs_of(lasting: [u64; 4]) -> [Costs; 2] {
    [4, 1].map(|wire_speed| {
        Path::ALL.map(|path| {
            let ns = lasting[path as usize];
            match path {
                Path::Synchronous => Cost {
                    cpu: ns / 8,
                    wire: ns - ns / 8,
                },
                Path::Copy => Cost {
                    cpu: ns,
                    wire: ns / wire_speed,
                },
                Path::Asynchronous | Path::SinkWrite => Cost {
                    cpu: ns / wire_speed / 2,
                    wire: ns,
                },
            }
        })
    })
}

/// Checks that the first trials end, that each later trial ends, and that the sends take the fastest
/// path otherwise. The fastest path takes 1000 ns for a MiB, and the other paths take each of
/// `times`.
fn check(program: Program, times: [u64; 2]) {
    for fastest in Path::ALL {
        for (number, ns) in times.into_iter().enumerate() {
            let mut lasting = [ns; Path::ALL.len()];
            lasting[fastest as usize] = 1000;
            for costs in costs_of(lasting) {
                for (threads, size) in [(1, 1 << 18), (1, MIB), (3, 1 << (17 + number))] {
                    check_one(Sim::new(costs, program, threads, size));
                }
            }
        }
    }
}

fn check_one(mut sim: Sim) {
    let what = format!(
        "{:?}, {} threads, {} bytes, {:?}",
        sim.program,
        sim.begun.len(),
        sim.size,
        sim.costs
    );
    while sim.sent < 256 * MIB {
        sim.call();
    }
    // The measurement of the first path is short, and later windows correct it.
    let first = sim.longest_trial / MIB;
    assert!(first < 192, "{first} MiB: {what}");
    sim.longest_trial = 0;
    let (from, mut on_fastest) = (sim.sent, 0);
    while sim.sent < from + 512 * MIB {
        let before = sim.sent;
        sim.call();
        if sim.trial_since.is_none() {
            on_fastest += sim.sent - before;
        }
    }
    // A trial begins when the bytes in flight have arrived, and by copy after 4 MiB more. It
    // measures 4 MiB.
    let longest = sim.longest_trial / MIB;
    assert!(longest <= 24, "{longest} MiB: {what}");
    let percent = 100 * on_fastest / (sim.sent - from);
    assert!(percent >= 85, "{percent}%: {what}");
}

#[test]
fn calls_that_wait() {
    check(Program::Waits, [1200, 4000]);
}

#[test]
fn calls_that_end_early() {
    check(Program::EndsEarly, [1200, 4000]);
}

/// Each poll() waits for two thirds of a MiB. In a window, one such wait more or less changes the
/// time a lot, so the measurements do not distinguish paths that take nearly as long.
#[test]
fn calls_that_must_not_wait() {
    check(Program::Polls, [2000, 4000]);
}
