// SPDX-License-Identifier: GPL-2.0

//! Which way is faster, by measurement.

use proptest::prelude::*;
use proto_host::proto::trial::{
    Call,
    Trials,
    Way,
    HOLD_MAX, //
};

const MIB: u64 = 1 << 20;

/// A connection on which a MiB takes so many nanoseconds by each way. Bytes reach the peer at once.
struct Stream {
    trials: Trials,
    sent: u64,
    copied: u64,
    ns: u64,
}

impl Stream {
    fn new() -> Self {
        Self {
            trials: Trials::new(),
            sent: 0,
            copied: 0,
            ns: 0,
        }
    }

    /// A call that sends all it is asked to; returns its way.
    fn send(&mut self, size: u64, copied_ns: u64, uncopied_ns: u64) -> Way {
        let way = self.trials.way(size);
        let ns_per_mib = match way {
            Way::Copy => copied_ns,
            Way::Uncopied => uncopied_ns,
        };
        let ns = ns_per_mib * size / MIB;
        self.sent += size;
        self.ns += ns;
        self.copied += if way == Way::Copy { size } else { 0 };
        self.trials.on_send(&Call {
            asked_bytes: size,
            bytes: size,
            way,
            ns,
            sent: self.sent,
            delivered_before: self.sent - size,
        });
        way
    }

    fn send_all(&mut self, bytes: u64, size: u64, copied_ns: u64, uncopied_ns: u64) {
        let end = self.sent + bytes;
        while self.sent < end {
            self.send(size, copied_ns, uncopied_ns);
        }
    }
}

#[test]
fn the_first_sends_go_without_a_copy() {
    for size in [1, 1 << 16, MIB, 1 << 40, u64::MAX] {
        assert_eq!(Trials::new().way(size), Way::Uncopied);
    }
}

#[test]
fn a_trial_that_is_hopeless_costs_little() {
    let mut stream = Stream::new();
    stream.send_all(16 * MIB, 1 << 16, 1000, 6000);
    stream.copied = 0;
    stream.sent = 0;
    stream.ns = 0;
    stream.send_all(1000 * MIB, 1 << 16, 1000, 6000);
    assert!(stream.ns < 1_025 * 1000, "{} ns", stream.ns);
    // It was tried.
    assert!(stream.copied < stream.sent);
}

#[test]
fn without_a_copy_is_preferred_if_both_take_about_as_long() {
    let mut stream = Stream::new();
    stream.send_all(1000 * MIB, MIB, 1000, 1050);
    assert!(stream.copied < 50 * MIB, "{} MiB", stream.copied / MIB);
}

#[test]
fn what_changes_is_noticed() {
    let mut stream = Stream::new();
    stream.send_all(20 * MIB, 1 << 18, 1000, 3000);
    assert_eq!(stream.trials.way(1 << 18), Way::Copy);
    stream.send_all(HOLD_MAX, 1 << 18, 1000, 500);
    assert_eq!(stream.trials.way(1 << 18), Way::Uncopied);
}

#[test]
fn trials_become_rare() {
    let mut stream = Stream::new();
    let mut trials = Vec::new();
    let mut before = Way::Uncopied;
    while stream.sent < 3 * HOLD_MAX {
        let way = stream.send(MIB, 1000, 6000);
        if before == Way::Copy && way == Way::Uncopied {
            trials.push(stream.sent);
        }
        before = way;
    }
    let distances: Vec<u64> = trials.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(distances.is_sorted(), "{distances:?}");
    assert!(trials[0] < HOLD_MAX, "{trials:?}");
    assert!((3..=5).contains(&trials.len()), "{trials:?}");
}

#[test]
fn sizes_are_compared_for_themselves() {
    let mut stream = Stream::new();
    stream.send_all(40 * MIB, 1 << 16, 1000, 6000);
    stream.send_all(60 * MIB, MIB, 1000, 300);
    assert_eq!(stream.trials.way(1 << 16), Way::Copy);
    assert_eq!(stream.trials.way((1 << 17) - 1), Way::Copy);
    assert_eq!(stream.trials.way(MIB), Way::Uncopied);
}

#[test]
fn bytes_that_fill_buffers_are_no_measurement() {
    let mut stream = Stream::new();
    // By copy the first 4 MiB after each change take no time.
    let mut since_change = 0;
    let mut before = Way::Uncopied;
    while stream.sent < 500 * MIB {
        let copied_ns = if since_change < 4 * MIB { 0 } else { 3000 };
        let way = stream.send(1 << 17, copied_ns, 1000);
        since_change = if way == before {
            since_change + (1 << 17)
        } else {
            0
        };
        before = way;
    }
    assert!(stream.copied < 50 * MIB, "{} MiB", stream.copied / MIB);
}

#[test]
fn trials_of_huge_sends_are_far_apart() {
    let mut stream = Stream::new();
    stream.send_all(400 << 30, 512 * MIB, 6000, 1000);
    assert!(
        stream.copied * 10 < stream.sent,
        "{} of {}",
        stream.copied,
        stream.sent
    );
}

#[test]
fn a_call_that_began_before_the_change_says_nothing() {
    let mut stream = Stream::new();
    stream.send_all(20 * MIB, 1 << 16, 1000, 3000);
    let trials = stream.trials;
    stream.trials.on_send(&Call {
        asked_bytes: 1 << 16,
        bytes: 1 << 16,
        way: Way::Uncopied,
        ns: u64::MAX,
        sent: stream.sent,
        delivered_before: stream.sent,
    });
    assert_eq!(stream.trials, trials);
}

proptest! {
    #[test]
    fn the_faster_way_gets_the_most(
        size in (1_u64 << 16)..(16 << 20), copied_ns in 1000_u64..10_000, uncopied_ns in 1000_u64..10_000,
    ) {
        let mut stream = Stream::new();
        let size = size & !4095;
        let warm_up = (64 * MIB).max(32 * size);
        stream.send_all(warm_up, size, copied_ns, uncopied_ns);
        let (ns, sent) = (stream.ns, stream.sent);
        stream.send_all(100 * warm_up, size, copied_ns, uncopied_ns);
        let best = copied_ns.min(uncopied_ns);
        let per_mib = (stream.ns - ns) / ((stream.sent - sent) / MIB);
        prop_assert!(per_mib <= best + best / 5, "{per_mib} ns instead of {best}");
    }

    #[test]
    fn nothing_overflows(calls in proptest::collection::vec(
        (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>()), 0..200)
    ) {
        let mut trials = Trials::new();
        for (asked_bytes, bytes, ns, sent, delivered_before, asked) in calls {
            let way = if asked { trials.way(asked_bytes) } else { Way::Copy };
            trials.on_send(&Call { asked_bytes, bytes, way, ns, sent, delivered_before });
        }
    }
}
