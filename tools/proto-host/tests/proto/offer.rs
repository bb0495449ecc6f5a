// SPDX-License-Identifier: GPL-2.0

//! When readers that wait advertise their buffers.

use proto_host::proto::offer::{
    Offers,
    PAUSE_MAX, //
};
use std::collections::HashSet;

/// The waits that go without an advert until there is one again.
fn pause(offers: &mut Offers) -> u32 {
    (0..)
        .find(|_| offers.may_offer())
        .expect("an advert in the end")
}

#[test]
fn pauses_grow_up_to_a_limit() {
    let mut offers = Offers::new();
    assert_eq!(pause(&mut offers), 0);
    for want in [1, 3, 7, 15, 31, 63, 63, 63] {
        offers.on_unused();
        assert_eq!(pause(&mut offers), want);
    }
    assert_eq!(PAUSE_MAX, 63);
}

#[test]
fn one_of_use_is_enough() {
    let mut offers = Offers::new();
    for _ in 0..10 {
        offers.on_unused();
    }
    offers.on_used();
    assert_eq!(pause(&mut offers), 0);
    offers.on_unused();
    assert_eq!(pause(&mut offers), 1);
}

/// Which of the waits of a reader have an advert if nobody ever writes.
#[test]
fn waits_in_vain() {
    let mut offers = Offers::new();
    let mut with = Vec::new();
    for wait in 0..100 {
        if offers.may_offer() {
            with.push(wait);
            offers.on_unused();
        }
    }
    assert_eq!(with, [0, 2, 6, 14, 30, 62]);
}

/// One that has not ended says nothing.
#[test]
fn waits_alone_change_nothing() {
    let mut offers = Offers::new();
    for _ in 0..100 {
        assert!(offers.may_offer());
    }
}

/// Every order of events: the next advert is never far, and after a used one it comes at once.
#[test]
fn every_state() {
    let (mut known, mut todo) = (HashSet::new(), vec![Offers::new()]);
    while let Some(offers) = todo.pop() {
        if !known.insert(offers) {
            continue;
        }
        assert!(pause(&mut offers.clone()) <= PAUSE_MAX);
        let [mut used, mut unused, mut waits] = [offers; 3];
        used.on_used();
        assert!(used.clone().may_offer());
        unused.on_unused();
        assert!(!unused.clone().may_offer());
        waits.may_offer();
        todo.extend([used, unused, waits]);
    }
    assert!(known.len() > 100, "the search did search");
}
