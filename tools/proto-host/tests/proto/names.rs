// SPDX-License-Identifier: GPL-2.0

//! What is counted and logged by name: the indices are dense, the names unique
//! and those of the variants.

use proto_host::proto::{
    bsdh::Mid,
    choice::Reason,
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

/// The numbers and names of a table of the trace events' header.
fn traced(table: &str) -> Vec<(u8, &'static str)> {
    const HEADER: &str = include_str!("../../../../rust/helpers/sdp_trace.h");
    let (_, rest) = HEADER.split_once(&format!("#define {table}(")).unwrap();
    let (entries, _) = rest.split_once("\n\n").unwrap();
    let entry = |line: &'static str| {
        let (number, name) = line.split_once('{')?.1.split_once(", \"")?;
        let number = number.trim();
        let number = match number.strip_prefix("0x") {
            Some(hex) => u8::from_str_radix(hex, 16).unwrap(),
            None => number.parse().unwrap(),
        };
        Some((number, name.split_once('"')?.0))
    };
    entries.lines().filter_map(entry).collect()
}

/// What tracefs prints is what the numbers mean.
#[test]
fn traces() {
    let shown = State::ALL.iter().filter(|state| state.shown() == **state);
    let states: Vec<_> = shown.map(|&state| (state as u8, state.name())).collect();
    assert_eq!(traced("sdp_show_state"), states);
    let mids = Mid::ALL.map(|mid| (mid.wire(), mid.name()));
    assert_eq!(traced("sdp_show_mid"), mids);
    let reasons = Reason::ALL.map(|reason| (reason as u8, reason.name()));
    assert_eq!(traced("sdp_show_reason"), reasons);
}
