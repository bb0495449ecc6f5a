// SPDX-License-Identifier: GPL-2.0

//! The measurements that choose the fastest path.

use proptest::prelude::*;
use proto_host::proto::{
    choice::Path,
    trial::{
        Call,
        Trials,
        INTERVAL_MAX_BYTES, //
    },
};

const MIB: u64 = 1 << 20;

/// The time of a MiB on each path, in nanoseconds.
#[derive(Copy, Clone, Debug)]
struct Costs {
    copy: u64,
    synchronous: u64,
    asynchronous: u64,
    sink: u64,
}

impl Costs {
    /// No reader waits, so sends with [`Path::SinkWrite`] are asynchronous.
    const fn new(copy: u64, synchronous: u64, asynchronous: u64) -> Self {
        Self::with_sinks(copy, synchronous, asynchronous, asynchronous)
    }

    const fn with_sinks(copy: u64, synchronous: u64, asynchronous: u64, sink: u64) -> Self {
        Self {
            copy,
            synchronous,
            asynchronous,
            sink,
        }
    }

    const fn of(self, path: Path) -> u64 {
        match path {
            Path::Copy => self.copy,
            Path::Synchronous => self.synchronous,
            Path::Asynchronous => self.asynchronous,
            Path::SinkWrite => self.sink,
        }
    }

    fn best(self) -> u64 {
        [self.copy, self.synchronous, self.asynchronous, self.sink]
            .into_iter()
            .min()
            .unwrap()
    }
}

/// Copies are much faster than the other paths.
const FAST_COPIES: Costs = Costs::new(1000, 6000, 6000);

/// A connection. Bytes reach the peer at once.
#[derive(Clone)]
struct Stream {
    trials: Trials,
    /// The clock, in nanoseconds.
    now_ns: u64,
    may_wait: bool,
    sent: u64,
    /// The number of bytes on each path, by its number.
    by: [u64; 4],
    /// Without the stalls.
    ns: u64,
    /// The reader pauses during the next send, in nanoseconds.
    stall_ns: u64,
    /// The time from the end of a send to the next one, in nanoseconds for a MiB.
    gaps: Costs,
}

impl Stream {
    fn new() -> Self {
        Self {
            trials: Trials::new(),
            now_ns: 0,
            may_wait: true,
            sent: 0,
            by: [0; 4],
            ns: 0,
            stall_ns: 0,
            gaps: Costs::new(0, 0, 0),
        }
    }

    /// A call that sends all it is asked to; returns its path.
    fn send(&mut self, size: u64, costs: Costs) -> Path {
        let path = self.trials.path(size, self.may_wait);
        let ns = costs.of(path) * size / MIB;
        self.sent += size;
        self.ns += ns;
        self.by[path as usize] += size;
        let stall_ns = std::mem::take(&mut self.stall_ns);
        self.record(size, size, path, ns + stall_ns);
        self.now_ns += self.gaps.of(path) * size / MIB;
        path
    }

    /// Records a call that begins now and takes `ns` nanoseconds.
    fn record(&mut self, asked_bytes: u64, bytes: u64, path: Path, ns: u64) {
        let began_ns = self.now_ns;
        self.now_ns += ns;
        self.trials.record(Call {
            asked_bytes,
            bytes,
            path,
            sent: self.sent,
            delivered_before: self.sent - bytes,
            began_ns,
            ended_ns: self.now_ns,
        });
    }

    fn send_all(&mut self, bytes: u64, size: u64, costs: Costs) {
        let end = self.sent + bytes;
        while self.sent < end {
            self.send(size, costs);
        }
    }

    const fn copied(&self) -> u64 {
        self.by[Path::Copy as usize]
    }

    /// The path of the next send of this size.
    fn path(&mut self, size: u64) -> Path {
        self.trials.path(size, self.may_wait)
    }
}

#[test]
fn the_first_sends_write_to_readers_that_wait() {
    for size in [1, 1 << 16, MIB, 1 << 40, u64::MAX] {
        assert_eq!(Trials::new().path(size, true), Path::SinkWrite);
        assert_eq!(Trials::new().path(size, false), Path::SinkWrite);
    }
}

#[test]
fn each_path_can_be_the_fastest() {
    for (costs, fastest) in [
        (Costs::new(1000, 1300, 1300), Path::Copy),
        (Costs::new(1300, 1000, 1300), Path::Synchronous),
        (
            Costs::with_sinks(1300, 1300, 1000, 1300),
            Path::Asynchronous,
        ),
        (Costs::with_sinks(1300, 1300, 1300, 1000), Path::SinkWrite),
        (Costs::new(1000, 1300, 4000), Path::Copy),
        (Costs::new(4000, 1000, 4000), Path::Synchronous),
        (
            Costs::with_sinks(4000, 4000, 1000, 4000),
            Path::Asynchronous,
        ),
        (Costs::new(4000, 4000, 1000), Path::SinkWrite),
    ] {
        let mut stream = Stream::new();
        stream.send_all(1000 * MIB, 1 << 17, costs);
        let share = 100 * stream.by[fastest as usize] / stream.sent;
        assert!(share > 80, "{share}% by {fastest:?}, {costs:?}");
    }
}

/// With the costs that Documentation/performance.rst has for the setting of 2006.
#[test]
fn the_first_second_is_not_lost() {
    for (size, rates) in [
        (1 << 16, [625, 97, 129, 82]),
        (1 << 18, [598, 333, 444, 266]),
        (1 << 20, [590, 636, 681, 442]),
        (1 << 22, [668, 823, 647, 459]),
    ] {
        let times = rates.map(|rate| 1_000_000_000 / rate);
        let costs = Costs::with_sinks(times[0], times[1], times[2], times[3]);
        let mut stream = Stream::new();
        while stream.ns < 1_000_000_000 {
            stream.send(size, costs);
        }
        let rate = stream.sent / MIB;
        let best = 1_000_000_000 / costs.best();
        assert!(rate * 100 >= best * 95, "{size}: {rate} of {best} MiB/s");
    }
}

#[test]
fn a_trial_of_a_much_slower_path_costs_little() {
    let mut stream = Stream::new();
    stream.send_all(16 * MIB, 1 << 16, FAST_COPIES);
    stream.by = [0; 4];
    stream.sent = 0;
    stream.ns = 0;
    stream.send_all(1000 * MIB, 1 << 16, FAST_COPIES);
    assert!(stream.ns < 1_025 * 1000, "{} ns", stream.ns);
    // Another path was tried.
    assert!(stream.copied() < stream.sent);
}

#[test]
fn without_a_copy_is_preferred_if_all_take_about_as_long() {
    let mut stream = Stream::new();
    stream.send_all(1000 * MIB, MIB, Costs::new(1000, 2000, 1040));
    assert!(stream.copied() < 60 * MIB, "{} MiB", stream.copied() / MIB);
}

#[test]
fn what_changes_is_noticed() {
    let mut stream = Stream::new();
    stream.send_all(20 * MIB, 1 << 18, FAST_COPIES);
    assert_eq!(stream.path(1 << 18), Path::Copy);
    stream.send_all(2 * INTERVAL_MAX_BYTES, 1 << 18, Costs::new(1000, 700, 500));
    assert_eq!(stream.path(1 << 18), Path::SinkWrite);
}

#[test]
fn trials_become_rare() {
    let mut stream = Stream::new();
    let mut trials = Vec::new();
    let mut before = Path::SinkWrite;
    while stream.sent < 3 * INTERVAL_MAX_BYTES {
        let path = stream.send(MIB, FAST_COPIES);
        if before == Path::Copy && path != Path::Copy && stream.sent > 30 * MIB {
            trials.push((stream.sent, path));
        }
        before = path;
    }
    let distances: Vec<u64> = trials
        .windows(2)
        .map(|pair| pair[1].0 - pair[0].0)
        .collect();
    assert!(distances.is_sorted(), "{distances:?}");
    assert!(trials[0].0 < INTERVAL_MAX_BYTES, "{trials:?}");
    assert!((3..=7).contains(&trials.len()), "{trials:?}");
    // They take turns.
    for pair in trials.windows(2) {
        assert_ne!(pair[0].1, pair[1].1, "{trials:?}");
    }
}

#[test]
fn sizes_are_compared_for_themselves() {
    let mut stream = Stream::new();
    stream.send_all(40 * MIB, 1 << 16, FAST_COPIES);
    stream.send_all(60 * MIB, MIB, Costs::new(1000, 2000, 300));
    assert_eq!(stream.path(1 << 16), Path::Copy);
    assert_eq!(stream.path((1 << 17) - 1), Path::Copy);
    assert_eq!(stream.path(MIB), Path::SinkWrite);
}

/// A program that waits in poll() instead of send(), and one that changes between the two.
#[test]
fn what_may_not_wait_is_not_synchronous() {
    let fast_waits = Costs::new(3000, 1000, 2000);
    let mut stream = Stream::new();
    stream.may_wait = false;
    while stream.sent < 100 * MIB {
        assert_ne!(stream.send(1 << 17, fast_waits), Path::Synchronous);
    }
    stream.may_wait = true;
    stream.send_all(2 * INTERVAL_MAX_BYTES, 1 << 17, fast_waits);
    assert_eq!(stream.path(1 << 17), Path::Synchronous);
    // What follows is measured although it is not synchronous.
    stream.may_wait = false;
    stream.by = [0; 4];
    stream.send_all(2 * INTERVAL_MAX_BYTES, 1 << 17, Costs::new(1000, 500, 6000));
    assert_eq!(stream.by[Path::Synchronous as usize], 0);
    assert!(stream.copied() > INTERVAL_MAX_BYTES, "{:?}", stream.by);
}

/// A reader that pauses now and then says nothing about the path of the bytes.
#[test]
fn stalls_do_not_replace_the_fastest_path() {
    for (size, costs) in [
        (1 << 16, Costs::with_sinks(1600, 10_300, 7750, 12_200)),
        (MIB, Costs::new(6000, 3000, 3000)),
        (MIB, Costs::new(3000, 1690, 4000)),
    ] {
        for stall_ns in [8_000, 100_000, 1_000_000, 1_000_000_000] {
            let mut stream = Stream::new();
            stream.send_all(100 * MIB, size, costs);
            (stream.ns, stream.sent) = (0, 0);
            for _ in 0..32 {
                stream.stall_ns = stall_ns;
                stream.send_all(1000 * MIB, size, costs);
            }
            let best = costs.best() * stream.sent / MIB;
            let percent = 100 * stream.ns / best;
            assert!(percent <= 105, "{percent}% with {stall_ns} ns, {costs:?}");
        }
    }
}

/// A pause during a trial does not put off the next one for long.
#[test]
fn a_stall_in_a_trial_is_not_held_against_others() {
    for stalled in 1..600 {
        let mut stream = Stream::new();
        stream.send_all(stalled << 17, 1 << 17, FAST_COPIES);
        stream.stall_ns = 60_000_000_000;
        stream.send_all(64 * MIB, 1 << 17, FAST_COPIES);
        stream.send_all(8 * INTERVAL_MAX_BYTES, 1 << 17, Costs::new(1000, 2000, 300));
        assert_ne!(stream.path(1 << 17), Path::Copy, "{stalled}");
    }
}

/// Sends that may not wait do not change the path of those that may, if they are few.
#[test]
fn few_sends_that_may_not_wait_change_nothing() {
    let costs = Costs::new(900, 300, 900);
    let mut stream = Stream::new();
    stream.send_all(100 * MIB, MIB, costs);
    (stream.ns, stream.sent) = (0, 0);
    for _ in 0..100 {
        stream.may_wait = false;
        stream.send(MIB, costs);
        stream.may_wait = true;
        stream.send_all(99 * MIB, MIB, costs);
    }
    let percent = 100 * stream.ns / (costs.best() * stream.sent / MIB);
    assert!(percent <= 106, "{percent}%");
}

/// A program some of whose sends may not wait, from the beginning.
#[test]
fn some_sends_that_may_not_wait_do_not_end_trials() {
    for share in [2, 10, 30, 60] {
        let mut stream = Stream::new();
        for number in 0_u64..20_000 {
            stream.may_wait = number % share != 0;
            stream.send(1 << 17, Costs::new(900, 300, 900));
        }
        let synchronous = 100 * stream.by[Path::Synchronous as usize] / stream.sent;
        let most = 100 - 100 / share;
        assert!(
            synchronous * 10 >= most * 9,
            "{synchronous}% of {most}%, every {share}th"
        );
    }
}

/// What the kernel does after a send has returned is a part of its cost.
#[test]
fn work_behind_a_send_counts() {
    let mut stream = Stream::new();
    stream.gaps = Costs::new(100, 100, 1500);
    stream.send_all(1000 * MIB, 1 << 17, Costs::new(1000, 1500, 500));
    assert!(stream.copied() > 800 * MIB, "{} MiB", stream.copied() / MIB);
}

/// As [`work_behind_a_send_counts`], and in this time the program calls send() for the rest of its
/// bytes, but the call sends nothing.
#[test]
fn calls_that_send_nothing_do_not_end_the_time_behind_a_send() {
    const SIZE: u64 = 1 << 17;
    let costs = Costs::new(1000, 1500, 500);
    let gaps = Costs::new(100, 100, 1500);
    let mut stream = Stream::new();
    while stream.sent < 1000 * MIB {
        let path = stream.send(SIZE, costs);
        stream.record(1 << 20, 0, path, 10);
        stream.now_ns += gaps.of(path) * SIZE / MIB;
    }
    assert!(stream.copied() > 800 * MIB, "{} MiB", stream.copied() / MIB);
}

/// Two threads send at the same time. One of them waits for the lock of the socket while the other
/// one has the lock, so each call takes twice as long as its bytes.
#[test]
fn a_nanosecond_of_overlapping_calls_counts_once() {
    const SIZE: u64 = 1 << 17;
    // By copy, only one of the threads sends.
    let costs = Costs::new(1000, 1500, 700);
    let mut stream = Stream::new();
    while stream.sent < 1000 * MIB {
        let path = stream.trials.path(SIZE, true);
        let ns = costs.of(path) * SIZE / MIB;
        let waited_ns = if path == Path::Copy { 0 } else { ns };
        stream.sent += SIZE;
        stream.by[path as usize] += SIZE;
        // The call has begun when the other thread's call before it has begun.
        stream.now_ns -= waited_ns.min(stream.now_ns);
        stream.record(SIZE, SIZE, path, ns + waited_ns);
    }
    assert!(stream.copied() < 60 * MIB, "{} MiB", stream.copied() / MIB);
}

/// A program that does something else for most of the time is not compared by this time.
#[test]
fn long_gaps_decide_nothing() {
    let mut stream = Stream::new();
    stream.gaps = Costs::new(100_000, 20_000, 50_000);
    stream.send_all(1000 * MIB, 1 << 17, Costs::new(1000, 1500, 1300));
    assert!(stream.copied() > 800 * MIB, "{} MiB", stream.copied() / MIB);
}

#[test]
fn bytes_that_fill_buffers_are_no_measurement() {
    let mut stream = Stream::new();
    // By copy the first 4 MiB after each change take no time.
    let mut since_change = 0;
    let mut before = Path::SinkWrite;
    while stream.sent < 500 * MIB {
        let copy = if since_change < 4 * MIB { 0 } else { 3000 };
        let path = stream.send(1 << 17, Costs::new(copy, 2000, 1000));
        since_change = if path == before {
            since_change + (1 << 17)
        } else {
            0
        };
        before = path;
    }
    assert!(stream.copied() < 50 * MIB, "{} MiB", stream.copied() / MIB);
}

#[test]
fn trials_of_huge_sends_are_far_apart() {
    let mut stream = Stream::new();
    stream.send_all(400 << 30, 512 * MIB, Costs::new(6000, 1500, 1000));
    assert!(
        stream.copied() * 10 < stream.sent,
        "{} of {}",
        stream.copied(),
        stream.sent
    );
}

#[test]
fn a_call_that_began_before_the_change_says_nothing() {
    let mut stream = Stream::new();
    stream.send_all(30 * MIB, 1 << 16, Costs::new(1000, 3000, 3000));
    let mut other = stream.clone();
    for path in [Path::Synchronous, Path::Asynchronous, Path::SinkWrite] {
        other.record(1 << 16, 1 << 16, path, 1_000_000_000);
    }
    while stream.sent < 1000 * MIB {
        let costs = Costs::new(1000, 900, 900);
        assert_eq!(stream.send(1 << 16, costs), other.send(1 << 16, costs));
    }
}

proptest! {
    #[test]
    fn the_fastest_path_gets_the_most(
        size in (1_u64 << 16)..(16 << 20),
        copy in 1000_u64..10_000,
        synchronous in 1000_u64..10_000,
        asynchronous in 1000_u64..10_000,
        sink in 1000_u64..10_000,
    ) {
        let mut stream = Stream::new();
        let size = size & !4095;
        let costs = Costs::with_sinks(copy, synchronous, asynchronous, sink);
        let warm_up = (64 * MIB).max(32 * size);
        stream.send_all(warm_up, size, costs);
        let (ns, sent) = (stream.ns, stream.sent);
        stream.send_all(100 * warm_up, size, costs);
        let best = costs.best();
        let per_mib = (stream.ns - ns) / ((stream.sent - sent) / MIB);
        prop_assert!(per_mib <= best + best / 10, "{per_mib} ns instead of {best}");
    }

    #[test]
    fn nothing_overflows(calls in proptest::collection::vec(
        (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<(bool, bool)>()), 0..200)
    ) {
        let mut trials = Trials::new();
        for (asked_bytes, bytes, began_ns, ended_ns, sent, delivered_before, (asked, may_wait)) in calls {
            let path = if asked { trials.path(asked_bytes, may_wait) } else { Path::Copy };
            trials.record(Call { asked_bytes, bytes, path, sent, delivered_before, began_ns, ended_ns });
        }
    }
}
