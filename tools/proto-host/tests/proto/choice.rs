// SPDX-License-Identifier: GPL-2.0

//! Which way bytes go.

use proptest::prelude::*;
use proto_host::proto::{
    choice::{
        choose,
        no_lending,
        Choice,
        Lending,
        Memory,
        Path,
        Reason,
        Sending,
        Wanted, //
    },
    hello::Features,
    source::Hold,
};
use uapi::socket::{
    SDP_MODE_AUTO,
    SDP_MODE_AZCOPY,
    SDP_MODE_COPY,
    SDP_MODE_SINK,
    SDP_MODE_ZCOPY, //
};

/// A send for which every path is open.
const SENDING: Sending = Sending {
    bytes: 100_000,
    page_bytes: 98_304,
    memory: Memory::Untried,
    least_bytes: 1000,
    wanted: Wanted::Automatic,
    threshold_bytes: 10_000,
    features: Features::ALL,
    blocking: true,
    payload_hold: None,
    may_go_async: true,
    sink_room_bytes: 1000,
    may_write: true,
};

fn path(sending: Sending) -> Path {
    choose(&sending).path
}

/// The reasons against SinkWrite, Asynchronous and Synchronous.
fn reasons(sending: Sending) -> [Option<Reason>; 3] {
    let choice = choose(&sending);
    [
        choice.no_sink_write,
        choice.no_asynchronous,
        choice.no_synchronous,
    ]
}

#[test]
fn the_order_of_preference() {
    assert_eq!(reasons(SENDING), [None; 3]);
    assert_eq!(path(SENDING), Path::SinkWrite);
    let nobody_waits = Sending {
        sink_room_bytes: 0,
        ..SENDING
    };
    assert_eq!(path(nobody_waits), Path::Asynchronous);
    let faults = Sending {
        may_go_async: false,
        ..nobody_waits
    };
    assert_eq!(path(faults), Path::Synchronous);
    let neither = Sending {
        blocking: false,
        ..faults
    };
    assert_eq!(path(neither), Path::Copy);
}

#[test]
fn reasons_against_all() {
    let small = Sending {
        bytes: 9_999,
        ..SENDING
    };
    let foreign = Sending {
        memory: Memory::Other,
        ..SENDING
    };
    let no_page = Sending {
        page_bytes: 0,
        ..SENDING
    };
    let plain = Sending {
        features: Features::NONE,
        ..SENDING
    };
    for (sending, why) in [
        (small, Reason::BelowThreshold),
        (foreign, Reason::NotPinnable),
        (no_page, Reason::NoWholePage),
        (plain, Reason::NotAgreed),
    ] {
        assert_eq!(path(sending), Path::Copy);
        assert_eq!(reasons(sending), [Some(why); 3]);
    }
}

#[test]
fn reasons_against_some() {
    let (none, busy) = (None, Some(Reason::AdvertsBusy));
    let cases = [
        (
            Sending {
                bytes: 10_000,
                ..SENDING
            },
            [none; 3],
        ),
        (
            Sending {
                sink_room_bytes: 999,
                ..SENDING
            },
            [Some(Reason::BelowThreshold), none, none],
        ),
        (
            Sending {
                may_write: false,
                ..SENDING
            },
            [Some(Reason::QueueBusy), none, none],
        ),
        (
            Sending {
                memory: Memory::Unprotectable(Reason::HugeTlb),
                ..SENDING
            },
            [none, Some(Reason::HugeTlb), none],
        ),
        (
            Sending {
                blocking: false,
                ..SENDING
            },
            [Some(Reason::NonBlocking), none, Some(Reason::NonBlocking)],
        ),
        (
            Sending {
                features: Features::SOURCE,
                ..SENDING
            },
            [Some(Reason::NotAgreed), none, none],
        ),
        (
            Sending {
                may_go_async: false,
                sink_room_bytes: 0,
                ..SENDING
            },
            [
                Some(Reason::PeerDoesNotWait),
                Some(Reason::TooManyFaults),
                none,
            ],
        ),
        (
            Sending {
                payload_hold: Some(Hold::BehindSynchronous),
                ..SENDING
            },
            [busy, none, none],
        ),
    ];
    for (sending, expected) in cases {
        assert_eq!(reasons(sending), expected, "{sending:?}");
    }
}

/// A send waits only for what may end: a reader that comes, and room in its own queue.
#[test]
fn what_a_send_awaits() {
    let forced = Sending {
        wanted: Wanted::Only(Path::SinkWrite),
        ..SENDING
    };
    let awaits = |sending| choose(&sending).awaits_sink;
    assert!(!awaits(forced));
    for (room, may_write, expected) in [
        (0, true, true),
        (0, false, true),
        (999, true, false),
        (999, false, false),
        (1000, false, true),
    ] {
        let sending = Sending {
            sink_room_bytes: room,
            may_write,
            ..forced
        };
        assert_eq!(awaits(sending), expected, "{sending:?}");
        assert!(!awaits(Sending {
            memory: Memory::Other,
            ..sending
        }));
    }
}

#[test]
fn a_forced_path_ignores_only_the_threshold() {
    for only in Path::ALL {
        let tiny = Sending {
            bytes: 1,
            wanted: Wanted::Only(only),
            ..SENDING
        };
        assert_eq!(path(tiny), only);
        let foreign = Sending {
            memory: Memory::Other,
            ..tiny
        };
        assert_eq!(path(foreign), Path::Copy);
    }
}

/// A send of memory that needs no protection, which goes without a copy.
const LENDING: Lending = Lending {
    piece_bytes: 65_536,
    least_bytes: 16_384,
    asked: false,
    wanted: Wanted::Automatic,
    threshold_bytes: 65_536,
    features: Features::SOURCE,
};

#[test]
fn memory_that_needs_no_protection() {
    let forced = Some(Reason::Forced);
    let below = Some(Reason::BelowThreshold);
    let modes = [
        (Wanted::Automatic, None, None),
        (Wanted::Only(Path::Copy), forced, forced),
        (Wanted::Only(Path::Synchronous), forced, None),
        (Wanted::Only(Path::Asynchronous), None, None),
        (Wanted::Only(Path::SinkWrite), forced, None),
    ];
    for (wanted, of_files, asked) in modes {
        let lending = Lending { wanted, ..LENDING };
        assert_eq!(no_lending(&lending), of_files, "{wanted:?}");
        let lending = Lending {
            asked: true,
            // It is for those who have not asked.
            threshold_bytes: 0,
            ..lending
        };
        assert_eq!(no_lending(&lending), asked, "{wanted:?}");
        let plain = Lending {
            features: Features::NONE,
            ..lending
        };
        assert_eq!(no_lending(&plain), asked.or(Some(Reason::NotAgreed)));
        let odd = Lending {
            piece_bytes: 0,
            ..lending
        };
        assert_eq!(no_lending(&odd), asked.or(Some(Reason::NotPinnable)));
        for (piece_bytes, why) in [(16_383, below), (16_384, None)] {
            let short = Lending {
                piece_bytes,
                ..lending
            };
            assert_eq!(no_lending(&short), asked.or(why));
        }
    }
    for (piece_bytes, threshold_bytes, why) in [
        (65_535, 65_536, below),
        (u64::MAX, 0, forced),
        // A low threshold does not make small pieces pay.
        (16_383, 1, below),
        (16_384, 1, None),
    ] {
        let lending = Lending {
            piece_bytes,
            threshold_bytes,
            ..LENDING
        };
        assert_eq!(no_lending(&lending), why, "{lending:?}");
    }
}

#[test]
fn numbers_of_a_user() {
    // What programs are told: the numbers of the crate and of the header for C.
    let choices = [
        (SDP_MODE_AUTO, Wanted::Automatic),
        (SDP_MODE_COPY, Wanted::Only(Path::Copy)),
        (SDP_MODE_ZCOPY, Wanted::Only(Path::Synchronous)),
        (SDP_MODE_AZCOPY, Wanted::Only(Path::Asynchronous)),
        (SDP_MODE_SINK, Wanted::Only(Path::SinkWrite)),
    ];
    for (number, wanted) in choices {
        assert_eq!(Wanted::from_number(number), Some(wanted));
        assert_eq!(wanted.number(), number);
        let sinks = matches!(number, SDP_MODE_AUTO | SDP_MODE_SINK);
        assert_eq!(wanted.sinks(), sinks, "{wanted:?}");
    }
    for number in [i32::MIN, -1, 5, 6, i32::MAX] {
        assert_eq!(Wanted::from_number(number), None);
    }
}

#[test]
fn names() {
    for (at, why) in Reason::ALL.into_iter().enumerate() {
        assert_eq!((why as usize, why.name()), (at, &*format!("{why:?}")));
    }
    for (at, path) in Path::ALL.into_iter().enumerate() {
        assert_eq!((path as usize, path.name()), (at, &*format!("{path:?}")));
    }
}

fn sending() -> impl Strategy<Value = Sending> {
    let memory = prop::sample::select(vec![
        Memory::Untried,
        Memory::Unprotectable(Reason::SharedMapping),
        Memory::Other,
    ]);
    let hold = prop::sample::select(vec![
        None,
        Some(Hold::Combined),
        Some(Hold::BehindSynchronous),
        Some(Hold::Cancelling),
    ]);
    let wanted = prop::sample::select(vec![
        Wanted::Automatic,
        Wanted::Only(Path::Copy),
        Wanted::Only(Path::Asynchronous),
        Wanted::Only(Path::SinkWrite),
    ]);
    let numbers = (0_u64..50_000, 0_u32..16, 0_u32..3, any::<[bool; 4]>());
    (memory, hold, wanted, numbers).prop_map(
        |(memory, payload_hold, wanted, (bytes, f, room, b))| Sending {
            bytes,
            page_bytes: if b[0] { bytes & !4095 } else { 0 },
            memory,
            least_bytes: 2,
            wanted,
            threshold_bytes: 20_000,
            features: Features::from_bits(f),
            blocking: b[1],
            payload_hold,
            may_go_async: b[2],
            sink_room_bytes: room,
            may_write: b[3],
        },
    )
}

proptest! {
    /// The path taken has no reason against it, every better one has; and what
    /// must never happen does not.
    #[test]
    fn choices(sending in sending()) {
        let choice = choose(&sending);
        let Choice { path, no_sink_write, awaits_sink, no_asynchronous, no_synchronous } = choice;
        let against = [
            (Path::SinkWrite, no_sink_write),
            (Path::Asynchronous, no_asynchronous),
            (Path::Synchronous, no_synchronous),
        ];
        let first = against.iter().find(|(_, why)| why.is_none());
        prop_assert_eq!(path, first.map_or(Path::Copy, |(path, _)| *path));
        if path != Path::Copy {
            prop_assert!(sending.memory != Memory::Other);
        }
        if path == Path::Asynchronous {
            let unprotectable = matches!(sending.memory, Memory::Unprotectable(_));
            prop_assert!(!unprotectable && sending.may_go_async);
        }
        if path == Path::SinkWrite {
            let room = sending.sink_room_bytes;
            prop_assert!(sending.may_write && u64::from(room) >= sending.least_bytes);
            prop_assert!(sending.payload_hold.is_none());
        }
        prop_assert!(!awaits_sink || no_sink_write.is_some());
        if !sending.blocking {
            prop_assert!(matches!(path, Path::Copy | Path::Asynchronous));
        }
    }

    /// Memory that needs no protection goes without a copy only where that is agreed on, pays and is not
    /// forbidden; a program that asks is refused no piece that a program which does not ask may send so.
    #[test]
    fn lending(sending in sending(), asked: bool, threshold_bytes in 0_u64..50_000) {
        let lending = Lending {
            piece_bytes: sending.page_bytes,
            least_bytes: 16_384,
            asked,
            wanted: sending.wanted,
            threshold_bytes,
            features: sending.features,
        };
        let why = no_lending(&lending);
        if why.is_none() {
            prop_assert!(lending.features.contains(Features::SOURCE));
            prop_assert!(lending.piece_bytes >= lending.least_bytes);
            prop_assert!(lending.wanted != Wanted::Only(Path::Copy));
            prop_assert_eq!(no_lending(&Lending { asked: true, ..lending }), None);
        }
        let automatic = lending.wanted == Wanted::Automatic;
        if why == Some(Reason::Forced) && automatic {
            prop_assert!(!asked && threshold_bytes == 0);
        }
    }
}
