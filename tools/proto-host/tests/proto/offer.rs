// SPDX-License-Identifier: GPL-2.0

//! When readers that wait advertise their buffers.

use proptest::prelude::*;
use proto_host::proto::offer::{
    Offers,
    PAUSE_MAX, //
};

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

proptest! {
    #[test]
    fn the_next_advert_is_never_far(events in prop::collection::vec(0_u8..3, 0..200)) {
        let mut offers = Offers::new();
        for event in events {
            match event {
                0 => offers.on_used(),
                1 => offers.on_unused(),
                _ => drop(offers.may_offer()),
            }
            prop_assert!(pause(&mut offers.clone()) <= PAUSE_MAX);
        }
    }
}
