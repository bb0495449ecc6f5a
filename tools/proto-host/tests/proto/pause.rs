// SPDX-License-Identifier: GPL-2.0

//! When asynchronous sends pause.

use proptest::prelude::*;
use proto_host::proto::pause::{
    Overlap,
    Pause,
    IDLE_SAMPLE,
    PAUSE_MAX,
    PAUSE_MIN,
    SAMPLE, //
};
use std::collections::HashSet;

/// Lets transfers of 100 pages go until they pause, at most `most`.
fn transfers(record: &mut Pause, touched: u32, most: u32) -> u32 {
    (0..most)
        .take_while(|_| {
            let may = record.may_go_async();
            record.on_transfer(100, touched);
            may
        })
        .count()
        .try_into()
        .expect("few")
}

/// Waits until the pause is over; returns how long it was.
fn pause(record: &mut Pause) -> u32 {
    let mut sends = 0;
    while !record.may_go_async() {
        record.on_other_path();
        sends += 1;
    }
    sends
}

#[test]
fn pauses_grow_while_trials_go_wrong() {
    let mut record = Pause::new();
    let mut expected = PAUSE_MIN;
    for _ in 0..20 {
        assert_eq!(transfers(&mut record, 100, 1000), u32::from(SAMPLE));
        assert_eq!(pause(&mut record), expected);
        expected = (expected * 2).min(PAUSE_MAX);
    }
    assert_eq!(expected, PAUSE_MAX);
}

#[test]
fn a_trial_that_goes_well_makes_pauses_short_again() {
    let mut record = Pause::new();
    for _ in 0..3 {
        transfers(&mut record, 100, 1000);
        pause(&mut record);
    }
    // Between the limits nothing changes.
    assert_eq!(transfers(&mut record, 15, 1000), 1000);
    transfers(&mut record, 100, 1000);
    assert_eq!(pause(&mut record), 8 * PAUSE_MIN);
    assert_eq!(transfers(&mut record, 5, 1000), 1000);
    transfers(&mut record, 100, 1000);
    assert_eq!(pause(&mut record), PAUSE_MIN);
}

#[test]
fn the_share_decides_not_the_number() {
    for (touched, most) in [(24, 1000), (27, 8)] {
        let mut record = Pause::new();
        assert_eq!(transfers(&mut record, touched, 1000), most);
    }
    // Small transfers are judged, too.
    let mut small = Pause::new();
    (0..20).for_each(|_| small.on_transfer(1, 1));
    assert!(!small.may_go_async());
}

#[test]
fn receives_that_are_not_worth_it_pause() {
    let mut good = Pause::new();
    (0..100).for_each(|_| good.on_receive(Overlap::Enough));
    assert!(good.may_go_async());
    let mut bad = Pause::new();
    (0..SAMPLE).for_each(|_| bad.on_receive(Overlap::Little));
    assert_eq!(pause(&mut bad), PAUSE_MIN);
}

/// A program that only waits for its bytes is known after few receives; one that has done without
/// waits for long is not judged by them.
#[test]
fn receives_without_overlap_pause_soon() {
    let mut idle = Pause::new();
    for _ in 0..IDLE_SAMPLE {
        assert!(idle.may_go_async());
        idle.on_receive(Overlap::None);
    }
    assert_eq!(pause(&mut idle), PAUSE_MIN);
    for before in 1..100 {
        let mut good = Pause::new();
        (0..before).for_each(|_| good.on_receive(Overlap::Enough));
        good.on_receive(Overlap::None);
        assert!(good.may_go_async(), "{before}");
    }
}

/// The limits that the documentation names.
#[test]
fn overlap_by_time() {
    for (gained_ns, overlap) in [
        (0, Overlap::None),
        (249, Overlap::None),
        (250, Overlap::Little),
        (1999, Overlap::Little),
        (2000, Overlap::Enough),
    ] {
        assert_eq!(Overlap::of(gained_ns, 1000), overlap, "{gained_ns}");
    }
}

#[test]
fn what_ends_during_a_pause_has_had_its_verdict() {
    let mut record = Pause::new();
    transfers(&mut record, 100, 1000);
    (0..1000).for_each(|_| record.on_transfer(100, 100));
    assert_eq!(pause(&mut record), PAUSE_MIN);
}

/// Waits until the pause is over, if there is one; returns the number of bad receives until the
/// next one begins.
fn bad_receives(record: &mut Pause) -> u32 {
    pause(record);
    let mut receives = 0;
    while record.may_go_async() {
        record.on_receive(Overlap::Little);
        receives += 1;
    }
    receives
}

/// Searches every state that receives can reach.
#[test]
fn bad_receives_always_pause_and_good_ones_never() {
    let mut seen = HashSet::from([Pause::new()]);
    let mut open = vec![Pause::new()];
    while let Some(state) = open.pop() {
        let mut bad = state;
        assert!(bad_receives(&mut bad) <= u32::from(SAMPLE), "{state:?}");
        let length = pause(&mut bad);
        assert!(length.is_power_of_two(), "{state:?}: {length}");
        assert!(
            (PAUSE_MIN..=PAUSE_MAX).contains(&length),
            "{state:?}: {length}"
        );

        // The verdict about earlier receives may still come.
        let mut good = state;
        for _ in 0..SAMPLE {
            pause(&mut good);
            good.on_receive(Overlap::Enough);
        }
        pause(&mut good);
        for _ in 0..64 {
            good.on_receive(Overlap::Enough);
            assert!(good.may_go_async(), "{state:?}");
        }
        bad_receives(&mut good);
        assert_eq!(pause(&mut good), PAUSE_MIN, "{state:?}");

        for overlap in [Overlap::Enough, Overlap::Little, Overlap::None] {
            let mut next = state;
            pause(&mut next);
            next.on_receive(overlap);
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    // The search has reached the longest pause.
    assert!(seen.iter().any(|state| {
        let mut state = *state;
        pause(&mut state) == PAUSE_MAX
    }));
}

proptest! {
    /// Untouched pages never pause, and every pause ends.
    #[test]
    fn pauses_have_a_cause_and_an_end(steps in prop::collection::vec((any::<u32>(), any::<u32>()), 0..200)) {
        let mut record = Pause::new();
        let mut clean = Pause::new();
        for (pages, touched) in steps {
            record.on_transfer(pages, touched);
            clean.on_transfer(pages, 0);
            prop_assert!(clean.may_go_async());
        }
        prop_assert!(pause(&mut record) <= PAUSE_MAX);
    }
}
