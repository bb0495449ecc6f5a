// SPDX-License-Identifier: GPL-2.0

//! The choice of the fastest path, with every combination of classes of times, and with a
//! disturbance at every call of the first trials and of the trials behind them. Bytes reach the peer
//! at once.

use proto_host::proto::{
    choice::Path,
    trial::{
        Call,
        Trials,
        MARGIN_PERCENT,
        REFUSED_MAX, //
    },
};
use std::fmt::Debug;

const MIB: u64 = 1 << 20;

/// The times of a path for a MiB, in nanoseconds: as long as the shortest time, longer but within
/// the margin, longer than the margin, and twice as long.
const TIMES: [u64; 4] = [1000, 1040, 1060, 2000];

/// The number of bytes of the first calls on a path. All calls are in the last class.
const SIZE: u64 = 8 * MIB;

/// The maximum number of successive calls of a trial: up to two calls before those that are measured,
/// four calls in a window, one because a call only counts when the next one is known, and up to two
/// calls that do not count because they must not wait.
const TRIAL_CALLS: u32 = 9;

/// The number of successive calls on a path that are certainly not a trial.
const LASTING_CALLS: u32 = 20;

/// The number of calls of the undisturbed run at which a disturbance can begin.
const PLACES: u32 = 48;

/// The maximum number of calls until the fastest path is found.
const SEARCH_CALLS: u32 = 300;

/// What happens at a call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Disturbance {
    /// The reader pauses for this many nanoseconds, during each of so many successive calls.
    Pauses(u64, u32),
    /// So many successive calls must not wait.
    Refused(u32),
}

const DISTURBANCES: [Disturbance; 5] = [
    Disturbance::Pauses(60_000_000_000, 1),
    Disturbance::Pauses(1 << 55, 1),
    Disturbance::Pauses(60_000_000_000, 8),
    Disturbance::Refused(REFUSED_MAX - 1),
    Disturbance::Refused(REFUSED_MAX + 1),
];

/// Which calls may wait.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum MayWait {
    All,
    EverySecond,
    None,
}

#[derive(Copy, Clone)]
struct Run {
    trials: Trials,
    times: [u64; Path::ALL.len()],
    may_wait: MayWait,
    calls: u32,
    now_ns: u64,
    sent: u64,
    /// The path at the last call; that of the calls that may wait, if there are any.
    path: Path,
    /// The number of successive calls with this path.
    on_path: u32,
}

impl Run {
    const fn new(times: [u64; Path::ALL.len()], may_wait: MayWait) -> Self {
        Self {
            trials: Trials::new(),
            times,
            may_wait,
            calls: 0,
            now_ns: 0,
            sent: 0,
            path: Path::SinkWrite,
            on_path: 0,
        }
    }

    /// Whether the choice of the path is right, if all calls take the times of this run.
    fn is_fastest(&self, path: Path) -> bool {
        let cost = |path: Path| {
            let ns = self.times[path as usize];
            match path {
                Path::Copy => ns * MARGIN_PERCENT,
                Path::Synchronous if self.may_wait == MayWait::None => u64::MAX,
                Path::Synchronous | Path::Asynchronous | Path::SinkWrite => ns * 100,
            }
        };
        Path::ALL.into_iter().all(|other| cost(path) <= cost(other))
    }

    fn call(&mut self) {
        let may_wait = match self.may_wait {
            MayWait::All => true,
            MayWait::EverySecond => self.calls % 2 == 0,
            MayWait::None => false,
        };
        self.call_with(may_wait, 0);
    }

    fn call_with(&mut self, may_wait: bool, pause_ns: u64) {
        let main_path = self.trials.path(SIZE, self.may_wait != MayWait::None);
        if main_path != self.path {
            self.path = main_path;
            self.on_path = 0;
        }
        // Trials have small calls. A long interval has large calls, so that it soon ends.
        let doublings =
            self.on_path.min(2) + self.on_path.saturating_sub(2 * LASTING_CALLS).min(10);
        let size = SIZE << doublings;
        self.on_path += 1;
        let path = self.trials.path(size, may_wait);
        let began_ns = self.now_ns;
        self.now_ns += self.times[path as usize] * size / MIB + pause_ns;
        self.sent += size;
        self.trials.record(Call {
            asked_bytes: size,
            bytes: size,
            path,
            sent: self.sent,
            delivered_before: self.sent - size,
            began_ns,
            ended_ns: self.now_ns,
        });
        self.calls += 1;
    }

    fn disturb(&mut self, disturbance: Disturbance) {
        match disturbance {
            Disturbance::Pauses(ns, calls) => {
                for _ in 0..calls {
                    self.call_with(self.may_wait != MayWait::None, ns);
                }
            }
            Disturbance::Refused(calls) => {
                for _ in 0..calls {
                    self.call_with(false, 0);
                }
            }
        }
        self.on_path = 0;
    }
}

/// Checks that the calls find the fastest path, and that they take the path from then on, except in
/// trials, which end.
fn check(mut run: Run, what: &impl Debug) {
    let from = run.calls;
    while run.on_path < LASTING_CALLS || !run.is_fastest(run.path) {
        run.call();
        assert!(run.calls - from < SEARCH_CALLS, "{:?}: {what:?}", run.times);
    }
    let from = run.calls;
    while run.calls < from + 3 * LASTING_CALLS {
        run.call();
        let ends = run.is_fastest(run.path) || run.on_path <= TRIAL_CALLS;
        assert!(ends, "{} calls, {:?}: {what:?}", run.on_path, run.times);
    }
}

#[test]
fn after_each_disturbance_the_fastest_path_is_found() {
    let mut runs = 0;
    for number in 0..TIMES.len().pow(4) {
        let times = [0, 1, 2, 3].map(|path| TIMES[number / TIMES.len().pow(path) % TIMES.len()]);
        if !times.contains(&TIMES[0]) {
            continue;
        }
        for may_wait in [MayWait::All, MayWait::EverySecond, MayWait::None] {
            let mut run = Run::new(times, may_wait);
            check(run, &may_wait);
            for place in 0..PLACES {
                let is_synchronous = run.trials.path(SIZE, true) == Path::Synchronous;
                for disturbance in DISTURBANCES {
                    // Other paths do not depend on whether a call may wait.
                    if !is_synchronous && matches!(disturbance, Disturbance::Refused(_)) {
                        continue;
                    }
                    let mut disturbed = run;
                    disturbed.disturb(disturbance);
                    check(disturbed, &(may_wait, place, disturbance));
                    runs += 1;
                }
                run.call();
            }
        }
    }
    assert!(runs > 90_000, "{runs}");
}
