// SPDX-License-Identifier: GPL-2.0

//! When readers that wait advertise their buffers.

use super::digits::{
    Digits,
    BOTH,
    WANTED, //
};
use proto_host::proto::{
    choice::{
        Path,
        Wanted, //
    },
    offer::{
        Advertising,
        Offers,
        Waiting,
        PAUSE_MAX, //
    },
    sink::SinkHold,
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

/// Every combination: a receive advertises in mode 4, or in mode 0 from the threshold on.
#[test]
fn every_receive_that_waits() {
    let mut wants = 0;
    for number in 0.. {
        let mut digits = Digits(number);
        let waiting = Waiting {
            wanted: digits.next(&WANTED),
            threshold_bytes: digits.next(&[0, 65_536]),
            call_bytes: digits.next(&[65_535, 65_536]),
            room_bytes: digits.next(&[0, 16_384]),
            excluded: digits.next(&BOTH),
        };
        if digits.0 > 0 {
            break;
        }
        let is_large = waiting.threshold_bytes > 0 && waiting.call_bytes == 65_536;
        let expected = match (waiting.wanted, waiting.room_bytes) {
            _ if waiting.excluded => false,
            (_, 0) => false,
            (Wanted::Automatic, _) => is_large,
            (Wanted::Only(path), _) => path == Path::SinkWrite,
        };
        assert_eq!(waiting.wants_advert(), expected, "{waiting:?}");
        wants += usize::from(expected);
    }
    // Mode 4 with both sizes and both thresholds, and mode 0 once.
    assert_eq!(wants, 5);
}

/// Every combination: nothing is in the way of an advert, and the advert before it is out exactly if
/// the piece comes behind another one.
#[test]
fn every_advert() {
    let mut may = 0;
    for number in 0.. {
        let mut digits = Digits(number);
        let now = Advertising {
            agreed: digits.next(&BOTH),
            read_out: digits.next(&BOTH),
            can_receive: digits.next(&BOTH),
            has_region_room: digits.next(&BOTH),
            has_places: digits.next(&BOTH),
            has_credits: digits.next(&BOTH),
            is_live: digits.next(&BOTH),
            hold: digits.next(&[None, Some(SinkHold::Full), Some(SinkHold::Cancelling)]),
        };
        if digits.0 > 0 {
            break;
        }
        let in_the_way = [
            !now.agreed,
            !now.read_out,
            !now.can_receive,
            !now.has_region_room,
            !now.has_places,
            !now.has_credits,
            now.hold.is_some(),
        ];
        let free = !in_the_way.contains(&true);
        let expected = [free && !now.is_live, free && now.is_live];
        let result = BOTH.map(|behind| now.may_advertise(behind));
        assert_eq!(result, expected, "{now:?}");
        may += usize::from(free);
    }
    assert_eq!(may, 2);
}
