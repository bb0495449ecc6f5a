// SPDX-License-Identifier: GPL-2.0
//! How long a closed socket waits.

use proptest::prelude::*;
use proto_host::proto::orphan::{Rest, PERIODS};

#[test]
fn nothing_left_is_one_period() {
    assert!(!Rest::new(0).ends_period(0));
}

#[test]
fn nothing_taken_is_the_end() {
    assert!(!Rest::new(1000).ends_period(1000));
}

/// One message of many.
#[test]
fn too_little_is_the_end() {
    let mut rest = Rest::new(2 << 20);
    assert!(rest.ends_period((2 << 20) - (200 << 10)));
    assert!(!rest.ends_period((2 << 20) - (204 << 10)));
}

/// The last bytes may be fewer than a part. The peer has the time of a period to close.
#[test]
fn who_has_taken_all_may_still_close() {
    let mut rest = Rest::new(16_000);
    assert!(rest.ends_period(10));
    assert!(rest.ends_period(0));
    assert!(!rest.ends_period(0));
}

proptest! {
    /// Whatever the peer takes, the socket waits for no more periods than the parts of the rest, and one to close.
    #[test]
    fn it_ends(left in any::<u32>(), taken in proptest::collection::vec(any::<u32>(), 64)) {
        let mut rest = Rest::new(left);
        let mut left = left;
        let mut periods = 0;
        for taken in taken {
            left = left.saturating_sub(taken);
            periods += 1;
            if !rest.ends_period(left) {
                break;
            }
        }
        prop_assert!(periods <= PERIODS + 1);
    }

    /// A peer that takes a part in each period gets all bytes.
    #[test]
    fn who_takes_its_part_gets_all(all in 1..=u32::MAX) {
        let mut rest = Rest::new(all);
        let part = all.div_ceil(PERIODS);
        let mut left = all;
        while left > 0 {
            left = left.saturating_sub(part);
            prop_assert!(rest.ends_period(left));
        }
    }
}
