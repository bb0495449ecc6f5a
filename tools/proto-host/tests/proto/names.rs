// SPDX-License-Identifier: GPL-2.0

//! What is counted and logged by name: the indices are dense, the names unique
//! and those of the variants.

use proto_host::proto::{
    bsdh::Mid,
    hello::Refusal,
    state::{
        Event,
        State, //
    },
    violation::Violation,
};
use std::{
    collections::HashSet,
    fmt::Debug, //
};

fn check<T: Copy + Debug>(all: &[T], index: impl Fn(T) -> usize, name: impl Fn(T) -> &'static str) {
    let mut seen = HashSet::new();
    for (at, &item) in all.iter().enumerate() {
        assert_eq!(index(item), at, "{item:?}");
        assert_eq!(name(item), format!("{item:?}"));
        assert!(seen.insert(name(item)));
    }
}

#[test]
fn violations() {
    check(&Violation::ALL, Violation::index, Violation::name);
    assert_eq!(Violation::COUNT, Violation::ALL.len());
}

#[test]
fn messages() {
    check(&Mid::ALL, Mid::index, Mid::name);
    assert_eq!(Mid::COUNT, 18);
}

#[test]
fn refusals() {
    check(&Refusal::ALL, Refusal::index, Refusal::name);
}

#[test]
fn states() {
    check(&State::ALL, State::index, State::name);
}

#[test]
fn events() {
    check(&Event::ALL, |e| e as usize, Event::name);
}
