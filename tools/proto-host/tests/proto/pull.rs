// SPDX-License-Identifier: GPL-2.0

//! When adverts are read without a reader.

use proptest::prelude::*;
use proto_host::proto::pull::{
    pull,
    Expired,
    Pull,
    PullReason,
    ReaderWait,
    Waiting, //
};
use std::collections::HashSet;

/// An advert that has just come, and nobody who reads.
const WAITING: Waiting = Waiting {
    untaken_bytes: 1000,
    room_bytes: 600,
    now: None,
    own_sender_waits: false,
    reader_bytes: None,
    end_of_stream: false,
    polls: false,
};

fn now(why: PullReason) -> Pull {
    Pull::Now { bytes: 600, why }
}

#[test]
fn each_reason() {
    assert_eq!(pull(WAITING), Pull::Later);
    for why in [PullReason::Delay, PullReason::Reader] {
        let waiting = Waiting {
            now: Some(why),
            ..WAITING
        };
        assert_eq!(pull(waiting), now(why));
    }
    let sender = Waiting {
        own_sender_waits: true,
        ..WAITING
    };
    assert_eq!(pull(sender), now(PullReason::OwnSenderWaits));
    let end = Waiting {
        end_of_stream: true,
        ..WAITING
    };
    assert_eq!(pull(end), now(PullReason::EndOfStream));
    let polls = Waiting {
        polls: true,
        ..WAITING
    };
    assert_eq!(pull(polls), now(PullReason::Polls));
    let reader = |bytes| Waiting {
        reader_bytes: Some(bytes),
        ..sender
    };
    assert_eq!(pull(reader(16_384)), Pull::No);
    assert_eq!(pull(reader(16_383)), now(PullReason::SmallRead));
}

#[test]
fn names() {
    for why in PullReason::ALL {
        assert_eq!(why.name(), format!("{why:?}"));
        assert_eq!(PullReason::ALL[why as usize], why);
    }
}

proptest! {
    /// Nothing without bytes and room, never more than both.
    #[test]
    fn bounds(untaken in 0_u64..9, room in 0_u64..9, b: [bool; 5]) {
        let waiting = Waiting {
            untaken_bytes: untaken,
            room_bytes: room,
            now: b[1].then_some(PullReason::Delay),
            own_sender_waits: b[0],
            reader_bytes: b[2].then_some(16_384),
            end_of_stream: b[3],
            polls: b[4],
        };
        match pull(waiting) {
            Pull::No => prop_assert!(untaken == 0 || room == 0 || b[2]),
            Pull::Later => prop_assert!(!b[1] && !b[2]),
            Pull::Now { bytes, .. } => prop_assert!(bytes > 0 && bytes == untaken.min(room)),
        }
    }
}

#[test]
fn an_advert_waits_once_more_for_a_reader_that_came() {
    let mut wait = ReaderWait::new();
    // A reader that came before the timer was started does not extend the wait.
    wait.reader_came();
    assert!(wait.must_start_timer());
    assert!(!wait.must_start_timer());
    assert_eq!(wait.expired(false, false), Expired::Pull);
    for then in [Expired::Decide, Expired::Pull] {
        assert!(wait.must_start_timer());
        wait.reader_came();
        assert_eq!(wait.expired(false, false), then);
    }
    // The next advert may wait once more again; a reader that waits takes the bytes.
    wait.read_posted(true, false);
    for then in [Expired::Decide, Expired::Nothing] {
        assert!(wait.must_start_timer());
        wait.reader_came();
        assert_eq!(wait.expired(false, true), then);
    }
}

#[test]
fn the_reason_ends_with_the_last_advert() {
    let mut wait = ReaderWait::new();
    wait.set_over(Some(PullReason::Reader));
    wait.read_posted(false, false);
    wait.read_posted(true, false);
    assert_eq!(wait.over(), Some(PullReason::Reader));
    wait.read_posted(true, true);
    assert_eq!(wait.over(), None);
}

/// Every order of events: while no Read of a reader is in flight, the wait of one advert goes on
/// after at most one run of the timer, and there is never a second timer.
#[test]
fn every_wait_ends() {
    #[derive(Copy, Clone, PartialEq, Eq, Hash)]
    struct World {
        wait: ReaderWait,
        running: bool,
        /// The runs of the timer after which the wait for the present advert went on.
        extended: u8,
    }
    let start = World {
        wait: ReaderWait::new(),
        running: false,
        extended: 0,
    };
    let (mut known, mut todo) = (HashSet::from([start]), vec![start]);
    let (mut pulled, mut left) = (false, false);
    while let Some(world) = todo.pop() {
        let [mut timer, mut came, mut part, mut rest, mut all] = [world; 5];
        if timer.wait.must_start_timer() {
            assert!(!timer.running, "two timers");
            timer.running = true;
        }
        came.wait.reader_came();
        part.wait.read_posted(false, false);
        rest.wait.read_posted(true, false);
        all.wait.read_posted(true, true);
        (rest.extended, all.extended) = (0, 0);
        let mut nexts = vec![timer, came, part, rest, all];
        if world.running {
            for [reads, reader_waits] in [[false, false], [false, true], [true, false]] {
                let mut after = World {
                    running: false,
                    ..world
                };
                match after.wait.expired(reads, reader_waits) {
                    Expired::Decide if reads => {}
                    Expired::Decide => after.extended += 1,
                    Expired::Pull => pulled = true,
                    Expired::Nothing => left = true,
                }
                assert!(after.extended < 2, "the advert waits for ever");
                nexts.push(after);
            }
        }
        todo.extend(nexts.into_iter().filter(|world| known.insert(*world)));
    }
    // Each state of the timer, with and without an extension.
    assert!(pulled && left && known.len() == 6, "the search did search");
}
