// SPDX-License-Identifier: GPL-2.0
//! The transmit watchdog.

use proto_host::proto::watchdog::{
    Sight,
    Watchdog,
    LEAST_UNANSWERED_MS,
    UNANSWERED_MS,
    WATCH_MS, //
};

const SIGHT: Sight = Sight {
    oldest: Some(7),
    waits: false,
    taken: 100,
};

/// The number of checks with the same findings until that is too long; 0 if it never is.
fn looks(watch: &mut Watchdog, sight: Sight, user_timeout_ms: u32) -> u32 {
    let mut all = 1..100;
    all.find(|_| watch.is_too_long(sight, user_timeout_ms))
        .unwrap_or(0)
}

#[test]
fn how_long_is_too_long() {
    let held_up = Sight {
        oldest: None,
        waits: true,
        ..SIGHT
    };
    for (sight, user_timeout_ms, wanted) in [
        (SIGHT, 0, UNANSWERED_MS / WATCH_MS + 1),
        // One lost packet must not end the connection.
        (SIGHT, 3000, LEAST_UNANSWERED_MS / WATCH_MS + 1),
        (SIGHT, 30_000, 31),
        (held_up, 0, 0),
        (held_up, 3000, 4),
    ] {
        assert_eq!(
            looks(&mut Watchdog::default(), sight, user_timeout_ms),
            wanted
        );
    }
}

#[test]
fn progress_begins_anew() {
    let on = Sight {
        oldest: Some(8),
        ..SIGHT
    };
    let read = Sight { taken: 101, ..on };
    let held_up = Sight {
        oldest: None,
        waits: true,
        ..read
    };
    let mut watch = Watchdog::default();
    for sight in [SIGHT, on, read, held_up] {
        assert!(!watch.is_too_long(sight, 0));
        assert_eq!(watch.looks, 1);
    }
    assert!(!watch.is_too_long(held_up, 0));
    assert_eq!((watch.looks, watch.idle_looks), (2, 2));
}

/// Messages about the other direction come and go, but the peer takes none of the bytes.
#[test]
fn other_messages_are_no_progress() {
    let mut watch = Watchdog::default();
    let too_long = (0..100_u32).position(|n| {
        let sight = Sight {
            oldest: (n % 3 == 0).then_some(n),
            waits: true,
            taken: 100,
        };
        watch.is_too_long(sight, 10_000)
    });
    assert_eq!(too_long, Some(10));
}

/// A short outage of the link does not count for the user's limit, which may be shorter.
#[test]
fn an_outage_is_not_the_peer() {
    let mut watch = Watchdog::default();
    for oldest in [None, Some(9), Some(9), Some(9), Some(9), None] {
        let sight = Sight {
            oldest,
            waits: true,
            taken: 100,
        };
        assert!(!watch.is_too_long(sight, 3000));
    }
}

#[test]
fn the_peer_is_woken_later_each_time() {
    let mut watch = Watchdog {
        wake_ms: 20,
        ..Watchdog::default()
    };
    for wanted in [40, 80, 160, 320, 640, 1280, 0] {
        assert_eq!(watch.next_wake(), wanted);
    }
}
