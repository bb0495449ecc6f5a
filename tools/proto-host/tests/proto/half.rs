// SPDX-License-Identifier: GPL-2.0

//! Which call has a half of the stream.

use proto_host::proto::half::{
    Freed,
    Half,
    Halves,
    Side,
    Turn, //
};
use std::collections::HashSet;

const SIDES: [Side; 2] = [Side::Sending, Side::Receiving];

const USES: [Half; 4] = [
    Half::Working,
    Half::TakingMemory,
    Half::AwaitingPeer,
    Half::AwaitingRoom,
];

#[test]
fn a_call_waits_without_a_limit_only_if_no_peer_decides() {
    for side in SIDES {
        for half in USES {
            let mut halves = Halves::new();
            let began = halves.generation();
            assert_eq!(halves.turn(side, began, true), Turn::Now);
            assert!(halves.begin(side, half));
            let turns = [false, true].map(|is_over| halves.turn(side, began, is_over));
            let expected = match half {
                Half::Working => [Turn::Wait; 2],
                _ => [Turn::WaitLimited, Turn::Refused],
            };
            assert_eq!(turns, expected, "{side:?} {half:?}");
            halves.end(side, half);
            assert_eq!(halves.turn(side, began, true), Turn::Now);
        }
    }
}

#[test]
fn the_other_half_is_free() {
    let mut halves = Halves::new();
    let began = halves.generation();
    assert!(halves.begin(Side::Sending, Half::AwaitingPeer));
    assert_eq!(halves.turn(Side::Receiving, began, true), Turn::Now);
    assert!(halves.sender_waits_for_peer() && !halves.sender_waits_for_room());
    assert!(halves.begin(Side::Receiving, Half::AwaitingPeer));
    // Only the sending half counts.
    halves.end(Side::Sending, Half::AwaitingPeer);
    assert!(!halves.sender_waits_for_peer());
}

#[test]
fn senders_that_wait_for_room() {
    let mut halves = Halves::new();
    let began = halves.memory_wait_begins();
    assert!(halves.has_memory_waiter());
    assert!(halves.sender_waits_for_room() && !halves.sender_waits_for_peer());
    halves.memory_wait_ends(began);
    assert!(!halves.has_memory_waiter() && !halves.sender_waits_for_room());
    assert!(halves.begin(Side::Sending, Half::AwaitingRoom));
    assert!(halves.sender_waits_for_room() && halves.sender_waits_for_peer());
    let next = halves.next();
    assert!(!next.sender_waits_for_room() && !next.sender_waits_for_peer());
}

/// A send of the former connection does not end the wait of a send of the next one.
#[test]
fn memory_waits_of_two_connections() {
    let mut halves = Halves::new();
    let former = halves.memory_wait_begins();
    let mut halves = halves.next();
    assert!(!halves.has_memory_waiter());
    let began = halves.memory_wait_begins();
    halves.memory_wait_ends(former);
    assert!(halves.has_memory_waiter());
    halves.memory_wait_ends(began);
    assert!(!halves.has_memory_waiter());
}

/// A refused receive has pollers told once, and a send that poll() has not reported.
#[test]
fn the_end_tells_pollers() {
    let mut halves = Halves::new();
    let began = halves.generation();
    let silent = Freed {
        wake_writer: false,
        wake_reader: false,
    };
    assert!(halves.begin(Side::Receiving, Half::AwaitingPeer));
    assert_eq!(halves.end(Side::Receiving, Half::AwaitingPeer), silent);
    assert!(halves.begin(Side::Receiving, Half::AwaitingPeer));
    assert_eq!(halves.turn(Side::Receiving, began, true), Turn::Refused);
    let reader = Freed {
        wake_reader: true,
        ..silent
    };
    assert_eq!(halves.end(Side::Receiving, Half::AwaitingPeer), reader);
    assert!(halves.begin(Side::Receiving, Half::Working));
    assert_eq!(halves.end(Side::Receiving, Half::Working), silent);
    assert!(halves.begin(Side::Sending, Half::AwaitingPeer));
    assert_eq!(halves.turn(Side::Sending, began, true), Turn::Refused);
    let writer = Freed {
        wake_writer: true,
        ..silent
    };
    assert_eq!(halves.end(Side::Sending, Half::AwaitingPeer), writer);
}

/// A call that uses a half, and the generation in which it began.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
enum Call {
    Waits { is_old: bool },
    Has { half: Half, is_old: bool },
}

#[derive(Copy, Clone, PartialEq, Eq, Hash)]
struct World {
    /// Two calls on each side.
    calls: [[Call; 2]; 2],
    halves: Halves,
    /// A receive was refused since the last call gave its half back.
    refused: bool,
    reconnected: bool,
}

/// Two sends and two receives in every order, with one new connection in between: no two calls have
/// a half, no call for the former connection gets a half, and no refused receive is forgotten.
#[test]
fn every_order_of_calls() {
    let first = Halves::new();
    let start = World {
        calls: [[Call::Waits { is_old: false }; 2]; 2],
        halves: first,
        refused: false,
        reconnected: false,
    };
    let (mut known, mut todo) = (HashSet::from([start]), vec![start]);
    let (mut refused, mut former) = (0, 0);
    while let Some(world) = todo.pop() {
        let mut nexts = Vec::new();
        for (at, side) in SIDES.into_iter().enumerate() {
            for me in 0..2 {
                let mut next = world;
                match world.calls[at][me] {
                    Call::Has { half, .. } => {
                        let freed = next.halves.end(side, half);
                        if side == Side::Receiving {
                            assert_eq!(freed.wake_reader, world.refused);
                            next.refused = false;
                        }
                        next.calls[at][me] = Call::Waits { is_old: false };
                        nexts.push(next);
                    }
                    Call::Waits { is_old } => {
                        let began = if is_old { first } else { world.halves };
                        let other = world.calls[at][1 - me];
                        let turn = next.halves.turn(side, began.generation(), true);
                        match turn {
                            Turn::Now => {
                                assert!(!is_old && matches!(other, Call::Waits { .. }));
                                for half in USES {
                                    let mut next = next;
                                    assert!(next.halves.begin(side, half));
                                    next.calls[at][me] = Call::Has { half, is_old };
                                    nexts.push(next);
                                }
                            }
                            Turn::Former => {
                                assert!(is_old && world.reconnected);
                                former += 1;
                                next.calls[at][me] = Call::Waits { is_old: false };
                                nexts.push(next);
                            }
                            Turn::Refused => {
                                let Call::Has { half, is_old } = other else {
                                    panic!("refused because of nobody");
                                };
                                // A call for the former connection does not wait for its peer.
                                assert!(half != Half::Working);
                                assert!(!is_old || side == Side::Receiving);
                                refused += 1;
                                next.refused |= side == Side::Receiving;
                                nexts.push(next);
                            }
                            Turn::Wait => assert!(matches!(other, Call::Has { .. })),
                            Turn::WaitLimited => panic!("the time is over"),
                        }
                    }
                }
            }
        }
        if !world.reconnected {
            let mut next = world;
            next.halves = world.halves.next();
            next.reconnected = true;
            for call in next.calls.iter_mut().flatten() {
                match call {
                    Call::Waits { is_old } | Call::Has { is_old, .. } => *is_old = true,
                }
            }
            assert!(!next.halves.sender_waits_for_peer());
            nexts.push(next);
        }
        todo.extend(nexts.into_iter().filter(|world| known.insert(*world)));
    }
    assert!(
        refused > 0 && former > 0 && known.len() > 100,
        "the search did search"
    );
}
