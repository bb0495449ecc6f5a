// SPDX-License-Identifier: GPL-2.0

//! The combining of small sends, and the signaling of work requests.

use proptest::prelude::*;
use proto_host::proto::policy::{
    full_message_bytes,
    message_bytes,
    post_later,
    push_now,
    signal_now,
    Tail, //
};

/// A partial message with nothing set.
const PARTIAL: Tail = Tail {
    waiting_bytes: 100,
    full_bytes: 1000,
    small_in_flight: false,
    nodelay: false,
    cork: false,
    more: false,
    held_too_long: false,
    urgent: false,
    may_grow: true,
    gets_more: false,
    last: false,
};

#[test]
fn nagle() {
    assert!(push_now(PARTIAL));
    let behind_small = Tail {
        small_in_flight: true,
        ..PARTIAL
    };
    assert!(!push_now(behind_small));
    assert!(push_now(Tail {
        nodelay: true,
        ..behind_small
    }));
}

#[test]
fn cork_and_more_hold_back_even_with_nodelay() {
    for nodelay in [false, true] {
        assert!(!push_now(Tail {
            cork: true,
            nodelay,
            ..PARTIAL
        }));
        assert!(!push_now(Tail {
            more: true,
            nodelay,
            ..PARTIAL
        }));
    }
}

#[test]
fn cork_and_more_end() {
    for (cork, more) in [(true, false), (false, true)] {
        let held = Tail {
            cork,
            more,
            ..PARTIAL
        };
        for released in [
            Tail {
                held_too_long: true,
                ..held
            },
            Tail {
                may_grow: false,
                ..held
            },
        ] {
            assert!(push_now(released));
            // Nagle's algorithm still applies.
            assert!(!push_now(Tail {
                small_in_flight: true,
                ..released
            }));
        }
    }
}

#[test]
fn a_sender_that_waits_adds_bytes_after_a_completion() {
    let waits = Tail {
        nodelay: true,
        may_grow: false,
        gets_more: true,
        ..PARTIAL
    };
    assert!(!push_now(waits));
    assert!(push_now(Tail {
        gets_more: false,
        ..waits
    }));
}

#[test]
fn nothing_holds_back_an_urgent_byte_or_the_last_ones() {
    let held = Tail {
        small_in_flight: true,
        cork: true,
        more: true,
        gets_more: true,
        ..PARTIAL
    };
    assert!(!push_now(held));
    assert!(push_now(Tail {
        urgent: true,
        ..held
    }));
    assert!(push_now(Tail { last: true, ..held }));
}

#[test]
fn signaled_are_a_quarter_and_the_last() {
    // 63 slots: every 15th.
    let signaled: Vec<u32> = (0..20).filter(|&n| signal_now(n, 63, false)).collect();
    assert_eq!(signaled, [14, 15, 16, 17, 18, 19]);
    assert!(signal_now(0, 63, true));
    // A queue too short for quarters signals all.
    for depth in 0..=7 {
        assert!(signal_now(0, depth, false));
    }
    assert!(!signal_now(0, 8, false));
    assert!(signal_now(u32::MAX, u32::MAX, false));
}

fn tail() -> impl Strategy<Value = Tail> {
    (0_u32..300, 1_u32..300, any::<[bool; 9]>()).prop_map(|(waiting_bytes, full_bytes, b)| Tail {
        waiting_bytes,
        full_bytes,
        small_in_flight: b[0],
        nodelay: b[1],
        cork: b[2],
        more: b[3],
        held_too_long: b[4],
        urgent: b[5],
        may_grow: b[6],
        gets_more: b[7],
        last: b[8],
    })
}

proptest! {
    #[test]
    fn a_full_message_always_goes(tail in tail()) {
        if tail.waiting_bytes >= tail.full_bytes {
            prop_assert!(push_now(tail));
        }
    }

    #[test]
    fn nothing_waits_for_nothing(tail in tail()) {
        // Bytes wait only for something that ends: a small message in flight, the user's own cork,
        // or a completion that lets a send go on.
        if tail.waiting_bytes > 0 && !push_now(tail) {
            let nagle = tail.small_in_flight && !tail.nodelay;
            let held = (tail.cork || tail.more) && tail.may_grow && !tail.held_too_long;
            prop_assert!(nagle || held || tail.gets_more);
            prop_assert!(!tail.urgent && !tail.last);
        }
        let empty = Tail { waiting_bytes: 0, ..tail };
        prop_assert!(!push_now(empty));
    }

    /// Every byte goes, in messages that the peer's receives take; and the long
    /// ones before the last fill their packets, whatever the packets' size.
    #[test]
    fn a_stream_is_cut_to_fit(bytes in 0_u32..1 << 20, order in 9_u32..20, odd in 0_u32..99) {
        let peer_bytes = (1 << order) + odd;
        let mut left = bytes;
        while left > 0 {
            let full = message_bytes(left, peer_bytes);
            prop_assert!(full <= peer_bytes && full > peer_bytes - 17);
            prop_assert!(left <= peer_bytes || full == full_message_bytes(peer_bytes));
            if left > full && order >= 13 && odd == 0 {
                prop_assert_eq!((full + 16) % 4096, 0);
            }
            left -= left.min(full);
        }
    }

    /// Receives that are used up one by one are posted in groups, and never more than a quarter is
    /// missing. The smallest number of receives is posted one by one.
    #[test]
    fn receives_are_posted_in_groups(target in 1_u32..100, used in 1_usize..1000) {
        let (mut posted, mut posts) = (target, 0);
        for _ in 0..used {
            posted -= 1;
            if !post_later(posted, target) {
                posted = target;
                posts += 1;
            }
            prop_assert!(4 * (target - posted) <= target);
        }
        let group = (target as usize + 1) / 4;
        prop_assert_eq!(posts, used / group.max(1));
        prop_assert!(!post_later(target, target));
        prop_assert!(target > 5 || posted == target);
    }

    /// However many are posted, a free slot is at most a quarter away.
    #[test]
    fn a_quarter_at_most_is_unsignaled(depth in 4_u32..1000, posts in 1_usize..2000) {
        let mut unsignaled = 0;
        for _ in 0..posts {
            unsignaled = if signal_now(unsignaled, depth, false) { 0 } else { unsignaled + 1 };
            prop_assert!(unsignaled < depth / 4 || unsignaled == 0);
        }
    }
}
