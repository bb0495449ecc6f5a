// SPDX-License-Identifier: GPL-2.0

//! An exhaustive check of the advert rules: a sender and a receiver made of the
//! module's own `SourceAdverts`, `SourceReader`, `SinkAdverts` and
//! `SinkWriter`, one direction of the stream, every order of their moves.
//!
//! Shown for the bounds below: no message of an honest side is refused; every
//! byte is delivered in order and once; no Read touches memory that its sender
//! has back, no Write a buffer that its reader has back, nor one behind another
//! that was declined; each cancel gets one SendSm; every run ends, and with everything delivered and answered.
//!
//! The rules weakened one at a time fail the same search.

mod world;

use super::credit_model::has_cycle;
use proto_host::proto::violation::Violation;
use std::{
    collections::HashMap,
    hash::{
        DefaultHasher,
        Hash,
        Hasher, //
    },
};
use world::{
    Bounds,
    Failure,
    Rule,
    World, //
};

struct Outcome {
    states: usize,
    ends: usize,
    failure: Option<Failure>,
}

/// States are told apart by 64 bits of hash: among some 10^6 of them, two that
/// differ are taken for one with a probability below 10^-6.
fn digest(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// Searches all worlds, with `without` left out of the rules.
fn explore(bounds: Bounds, without: Option<Rule>) -> Outcome {
    let first = World::start(bounds, without);
    let mut known = HashMap::from([(digest(&first), 0)]);
    let mut todo = vec![(0, first)];
    let mut edges = Vec::new();
    let mut ends = 0;
    let mut failure = None;
    while let Some((at, world)) = todo.pop() {
        match world.moves() {
            Err(why) => failure = Some(why),
            Ok(next) if next.is_empty() => {
                ends += 1;
                failure = world.check_end().err();
            }
            Ok(next) => {
                for world in next {
                    let fresh = known.len();
                    let to = *known.entry(digest(&world)).or_insert(fresh);
                    edges.push((at, to));
                    if to == fresh {
                        todo.push((to, world));
                    }
                }
            }
        }
        if failure.is_some() {
            break;
        }
    }
    let states = known.len();
    if failure.is_none() && has_cycle(states, &edges) {
        failure = Some(Failure::Endless);
    }
    Outcome {
        states,
        ends,
        failure,
    }
}

fn check(bounds: Bounds) {
    let got = explore(bounds, None);
    println!("{bounds:?}: {} states, {} ends", got.states, got.ends);
    assert_eq!(got.failure, None, "{bounds:?}");
    assert!(got.states > 1000 && got.ends > 0, "the search did search");
}

/// Source adverts alone, with cancels.
const SOURCE: Bounds = Bounds {
    units: 4,
    max_adverts: 2,
    ordered: true,
    source: true,
    source_cancels: 1,
    sink_adverts: 0,
    sink_cancels: 0,
};

/// Sink adverts alone, with cancels.
const SINK: Bounds = Bounds {
    units: 4,
    max_adverts: 2,
    ordered: true,
    source: false,
    source_cancels: 0,
    sink_adverts: 4,
    sink_cancels: 2,
};

#[test]
fn source_adverts() {
    check(SOURCE);
    check(Bounds {
        units: 3,
        max_adverts: 3,
        source_cancels: 2,
        ..SOURCE
    });
}

#[test]
fn source_adverts_in_combined_mode() {
    check(Bounds {
        ordered: false,
        source_cancels: 2,
        ..SOURCE
    });
}

#[test]
fn sink_adverts() {
    check(SINK);
    check(Bounds {
        units: 3,
        max_adverts: 3,
        sink_cancels: 1,
        ..SINK
    });
}

#[test]
fn source_and_sink_adverts() {
    check(Bounds {
        units: 3,
        max_adverts: 2,
        sink_adverts: 2,
        sink_cancels: 1,
        ..SOURCE
    });
}

/// The ways in which the search fails without `rule`.
fn fails(bounds: Bounds, rule: Rule, expected: &[Failure]) {
    let got = explore(bounds, Some(rule)).failure;
    println!("without {rule:?}: {got:?}");
    assert!(got.is_some_and(|why| expected.contains(&why)), "{got:?}");
}

/// The check can fail: sink adverts with one rule left out.
#[test]
fn weaker_sink_rules_fail() {
    use Failure::{
        OutOfOrder,
        Refused,
        WriteBehindDeclined,
        WriteToReturned, //
    };
    let voided = Refused(Violation::WriteVoided);
    let write = [WriteToReturned, voided];
    fails(SINK, Rule::AdvertOnlyWhenEmpty, &[OutOfOrder]);
    fails(SINK, Rule::AcceptOnlyEqualCount, &write);
    fails(SINK, Rule::DeclineBeforePayload, &write);
    let patient = Bounds {
        sink_cancels: 0,
        ..SINK
    };
    fails(patient, Rule::DeclineCloses, &[WriteBehindDeclined]);
    fails(SINK, Rule::ShortVoids, &write);
    fails(SINK, Rule::ShortCounts, &write);
}

/// The check can fail: source adverts with one rule left out.
#[test]
fn weaker_source_rules_fail() {
    use Failure::{
        OutOfOrder,
        ReadOfReleased,
        Refused,
        Unfinished, //
    };
    let behind = [Refused(Violation::CancelBehindPayload)];
    fails(SOURCE, Rule::NoDataBehindSynchronous, &behind);
    fails(SOURCE, Rule::NoInlineBehindSynchronous, &behind);
    fails(SOURCE, Rule::AsynchronousStays, &[OutOfOrder, Unfinished]);
    fails(SOURCE, Rule::ReportAfterRead, &[ReadOfReleased]);
    // Or the report of the Read finds no advert any more.
    let early = [ReadOfReleased, Refused(Violation::NoAnswerDue)];
    fails(SOURCE, Rule::SendSmAfterReads, &early);
    let patient = Bounds {
        source_cancels: 0,
        ..SOURCE
    };
    fails(patient, Rule::ReportAfterRead, &[ReadOfReleased]);
}

/// A cancel that the sink leaves without an answer is found, too.
#[test]
fn a_cancel_without_answer_fails() {
    fails(SOURCE, Rule::CancelIsAnswered, &[Failure::Unfinished]);
}
