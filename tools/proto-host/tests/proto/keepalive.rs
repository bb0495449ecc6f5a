// SPDX-License-Identifier: GPL-2.0
//! SO_KEEPALIVE: probes, and when the peer is gone. The clock of these tests counts milliseconds.

use proptest::prelude::*;
use proto_host::proto::keepalive::{
    Keepalive,
    Limits,
    Next,
    Ticks, //
};
use proto_host::proto::watchdog::LEAST_UNANSWERED_MS;

const LIMITS: Limits = Limits {
    idle_ms: 10_000,
    interval_ms: 2000,
    probes: 5,
    user_timeout_ms: 0,
};

/// A connection with its timer and a clock.
struct Clock {
    keepalive: Keepalive,
    limits: Limits,
    now: Ticks,
    others_look: bool,
}

impl Clock {
    /// The peer was heard just now.
    fn new(limits: Limits) -> Self {
        let mut keepalive = Keepalive::default();
        keepalive.on_receive(1000);
        Self {
            keepalive,
            limits,
            now: 1000,
            others_look: false,
        }
    }

    fn look(&mut self) -> Next {
        let now = self.now;
        self.keepalive.look(self.limits, self.others_look, |then| {
            u32::try_from(now - then).expect("short")
        })
    }

    fn probe(&mut self) {
        self.keepalive.on_probe(self.now);
    }

    /// Handles each expiry of the timer until the peer counts as gone or is probed; returns the
    /// time that this takes.
    fn run_until(&mut self, wanted: Next) -> u32 {
        let begin = self.now;
        for _ in 0..2000 {
            let next = self.look();
            if next == wanted {
                break;
            }
            match next {
                Next::Wait(ms) => self.now += ms as Ticks,
                Next::Probe => self.probe(),
                Next::GiveUp => panic!("the peer counts as gone"),
            }
        }
        u32::try_from(self.now - begin).expect("short")
    }
}

#[test]
fn a_silent_peer_is_probed_after_the_idle_time() {
    let mut clock = Clock::new(LIMITS);
    clock.now += 4000;
    assert_eq!(clock.look(), Next::Wait(6000));
    clock.keepalive.on_receive(clock.now);
    assert_eq!(clock.run_until(Next::Probe), 10_000);
}

#[test]
fn no_probe_while_the_watchdog_looks() {
    let mut clock = Clock::new(LIMITS);
    clock.others_look = true;
    clock.now += 50_000;
    assert_eq!(clock.look(), Next::Wait(LIMITS.idle_ms));
    clock.others_look = false;
    assert_eq!(clock.look(), Next::Probe);
}

/// The time from the last message to the end of the connection.
#[test]
fn a_peer_that_does_not_answer_is_gone() {
    for (limits, wanted_ms) in [
        // The probe, and five intervals without an answer.
        (LIMITS, 20_000),
        // One lost packet must not end the connection.
        (
            Limits {
                probes: 1,
                interval_ms: 1000,
                ..LIMITS
            },
            10_000 + LEAST_UNANSWERED_MS,
        ),
        // The user's limit counts from the last message, and replaces the number of probes.
        (
            Limits {
                user_timeout_ms: 30_000,
                ..LIMITS
            },
            30_000,
        ),
        (
            Limits {
                user_timeout_ms: 1,
                ..LIMITS
            },
            10_000 + LEAST_UNANSWERED_MS.next_multiple_of(2000),
        ),
    ] {
        let mut clock = Clock::new(limits);
        clock.run_until(Next::Probe);
        clock.probe();
        // The timer starts with the probe.
        clock.now += limits.interval_ms as Ticks;
        clock.run_until(Next::GiveUp);
        assert_eq!(clock.now - 1000, wanted_ms as Ticks, "{limits:?}");
    }
}

#[test]
fn an_answer_counts_as_heard_at_the_time_of_the_probe() {
    let mut clock = Clock::new(LIMITS);
    clock.run_until(Next::Probe);
    clock.probe();
    let probed = clock.now;
    assert!(clock.keepalive.is_probing());
    clock.now += 2000;
    assert_eq!(clock.look(), Next::Wait(2000));
    assert_eq!(clock.keepalive.unanswered(), 1);
    clock.now += 1000;
    clock.keepalive.on_answer();
    assert!(!clock.keepalive.is_probing());
    assert_eq!(clock.keepalive.heard(), probed);
    assert_eq!(clock.keepalive.unanswered(), 0);
    assert_eq!(clock.look(), Next::Wait(7000));

    // A later message is not forgotten.
    clock.run_until(Next::Probe);
    clock.probe();
    clock.now += 500;
    clock.keepalive.on_receive(clock.now);
    let heard = clock.now;
    clock.now += 500;
    clock.keepalive.on_answer();
    assert_eq!(clock.keepalive.heard(), heard);
}

#[test]
fn a_message_instead_of_an_answer_also_shows_that_the_peer_is_there() {
    let mut clock = Clock::new(LIMITS);
    clock.run_until(Next::Probe);
    clock.probe();
    for _ in 0..100 {
        clock.now += 1000;
        clock.keepalive.on_receive(clock.now);
        clock.now += 1000;
        assert_eq!(clock.look(), Next::Wait(LIMITS.interval_ms));
        assert_eq!(clock.keepalive.unanswered(), 0);
    }
}

proptest! {
    /// The timer never waits for nothing, a peer that answers in time is never gone, and one that
    /// is silent always is, in time.
    #[test]
    fn every_wait_ends(
        idle_ms in 1000u32..100_000,
        interval_ms in 1000u32..100_000,
        probes in 1u32..128,
        user_timeout_ms in prop_oneof![Just(0u32), 1u32..1_000_000],
        answers in 0usize..20,
    ) {
        let limits = Limits { idle_ms, interval_ms, probes, user_timeout_ms };
        let mut clock = Clock::new(limits);
        for _ in 0..answers {
            let waited = clock.run_until(Next::Probe);
            prop_assert!(waited <= idle_ms);
            clock.probe();
            clock.now += LEAST_UNANSWERED_MS.min(interval_ms) as Ticks - 1;
            clock.keepalive.on_answer();
        }
        clock.run_until(Next::Probe);
        clock.probe();
        let probed = clock.now;
        clock.now += interval_ms as Ticks;
        clock.run_until(Next::GiveUp);
        let silent = (clock.now - probed) as u64;
        let limit = if user_timeout_ms > 0 {
            u64::from(user_timeout_ms)
        } else {
            u64::from(probes) * u64::from(interval_ms)
        };
        prop_assert!(silent >= u64::from(LEAST_UNANSWERED_MS));
        prop_assert!(silent < limit.max(LEAST_UNANSWERED_MS.into()) + u64::from(interval_ms));
    }
}
