// SPDX-License-Identifier: GPL-2.0

//! Which way bytes go.

use super::digits::{
    Digits,
    BOTH,
    WANTED, //
};
use proto_host::proto::{
    choice::{
        choose,
        fits_sink,
        lends_to_sink,
        may_lend,
        may_write_ahead,
        sink_room,
        sink_write,
        Ahead,
        Choice,
        Copied,
        LentPiece,
        MemoryKind,
        Path,
        Possible,
        Reason,
        Sending,
        SinkTarget,
        Wanted, //
    },
    hello::Features,
    source::NotYet,
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
    page_bytes: 98_304,
    memory: MemoryKind::Untried,
    wanted: Wanted::Automatic,
    measured: Some(Path::SinkWrite),
    features: Features::ALL,
    blocking: true,
    may_go_async: true,
    sink: SINK,
};

/// A reader of the peer waits with the smallest buffer that is written to.
const SINK: SinkTarget = SinkTarget {
    reader_bytes: 16_384,
    may_write: true,
    payload_blocked_by: None,
};

/// Nobody waits.
const NOBODY: SinkTarget = SinkTarget {
    reader_bytes: 0,
    ..SINK
};

fn path(sending: Sending) -> Path {
    choose(&sending).path
}

/// Whether SinkWrite, Asynchronous and Synchronous are possible.
fn possible(sending: Sending) -> [Possible; 3] {
    let choice = choose(&sending);
    [choice.sink_write, choice.asynchronous, choice.synchronous]
}

const fn refused(why: Reason) -> Possible {
    Err(Some(why))
}

/// A size is admitted from the threshold on; a mode that the user has chosen admits every size.
#[test]
fn sizes_that_are_admitted() {
    for (bytes, threshold, expected) in [
        (0, 0, false),
        (u64::MAX, 0, false),
        (0, 1, false),
        (9_999, 10_000, false),
        (10_000, 10_000, true),
    ] {
        let admits = Wanted::Automatic.admits_uncopied(bytes, threshold);
        assert_eq!(admits, expected, "{bytes} {threshold}");
        for path in Path::ALL {
            let admits = Wanted::Only(path).admits_uncopied(bytes, threshold);
            assert_eq!(admits, path != Path::Copy);
        }
    }
}

#[test]
fn the_order_of_preference() {
    assert_eq!(possible(SENDING), [Ok(()); 3]);
    assert_eq!(path(SENDING), Path::SinkWrite);
    let nobody_waits = Sending {
        sink: NOBODY,
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
    let short = Sending {
        page_bytes: 16_383,
        ..SENDING
    };
    let slower = Sending {
        measured: Some(Path::Copy),
        ..SENDING
    };
    let foreign = Sending {
        memory: MemoryKind::Other,
        page_bytes: 0,
        ..SENDING
    };
    let plain = Sending {
        features: Features::NONE,
        ..SENDING
    };
    for (sending, why, copied) in [
        (short, Reason::BelowThreshold, Copied::Piece),
        (slower, Reason::Slower, Copied::Rest),
        (foreign, Reason::NotPinnable, Copied::Rest),
        (plain, Reason::NotAgreed, Copied::Rest),
    ] {
        assert_eq!(path(sending), Path::Copy);
        assert_eq!(choose(&sending).copied, copied, "{sending:?}");
        assert_eq!(possible(sending), [refused(why); 3]);
    }
}

#[test]
fn reasons_against_some() {
    let ok = Ok(());
    let cases = [
        (
            Sending {
                page_bytes: 16_384,
                ..SENDING
            },
            [ok; 3],
        ),
        (
            Sending {
                sink: SinkTarget {
                    reader_bytes: 16_383,
                    ..SINK
                },
                ..SENDING
            },
            [refused(Reason::BelowThreshold), ok, ok],
        ),
        (
            Sending {
                sink: SinkTarget {
                    may_write: false,
                    ..SINK
                },
                ..SENDING
            },
            [refused(Reason::QueueBusy), ok, ok],
        ),
        (
            Sending {
                memory: MemoryKind::Unprotectable(Reason::HugeTlb),
                ..SENDING
            },
            [ok, refused(Reason::HugeTlb), ok],
        ),
        (
            Sending {
                blocking: false,
                ..SENDING
            },
            [
                refused(Reason::NonBlocking),
                ok,
                refused(Reason::NonBlocking),
            ],
        ),
        (
            Sending {
                features: Features::SOURCE,
                ..SENDING
            },
            [refused(Reason::NotAgreed), ok, ok],
        ),
        (
            Sending {
                may_go_async: false,
                sink: NOBODY,
                ..SENDING
            },
            [
                refused(Reason::PeerDoesNotWait),
                refused(Reason::TooManyFaults),
                ok,
            ],
        ),
        (
            Sending {
                sink: SinkTarget {
                    payload_blocked_by: Some(NotYet::BehindSynchronous),
                    ..SINK
                },
                ..SENDING
            },
            [refused(Reason::AdvertsBusy), ok, ok],
        ),
        (
            Sending {
                measured: Some(Path::Synchronous),
                ..SENDING
            },
            [refused(Reason::Slower), refused(Reason::Slower), ok],
        ),
        (
            Sending {
                measured: Some(Path::Asynchronous),
                ..SENDING
            },
            [refused(Reason::Slower), ok, ok],
        ),
        (
            Sending {
                wanted: Wanted::Only(Path::Synchronous),
                measured: Some(Path::Copy),
                ..SENDING
            },
            [Err(None), Err(None), ok],
        ),
    ];
    for (sending, expected) in cases {
        assert_eq!(possible(sending), expected, "{sending:?}");
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
        (16_383, true, false),
        (16_383, false, false),
        (16_384, false, true),
    ] {
        let sink = SinkTarget {
            reader_bytes: room,
            may_write,
            ..SINK
        };
        let sending = Sending { sink, ..forced };
        assert_eq!(awaits(sending), expected, "{sending:?}");
        assert!(!awaits(Sending {
            memory: MemoryKind::Other,
            ..sending
        }));
    }
}

#[test]
fn a_forced_path_ignores_only_measurements() {
    for only in Path::ALL {
        let forced = Sending {
            wanted: Wanted::Only(only),
            measured: Some(Path::Copy),
            ..SENDING
        };
        assert_eq!(path(forced), only);
        let foreign = Sending {
            memory: MemoryKind::Other,
            ..forced
        };
        assert_eq!(path(foreign), Path::Copy);
    }
}

/// A send of memory that needs no protection, which goes without a copy.
const LENT_PIECE: LentPiece = LentPiece {
    piece_bytes: 65_536,
    asked: false,
    wanted: Wanted::Automatic,
    threshold_bytes: 65_536,
    features: Features::SOURCE,
};

#[test]
fn memory_that_needs_no_protection() {
    let (ok, forced): (Possible, Possible) = (Ok(()), Err(None));
    let below = refused(Reason::BelowThreshold);
    let modes = [
        (Wanted::Automatic, ok, ok),
        (Wanted::Only(Path::Copy), forced, forced),
        (Wanted::Only(Path::Synchronous), forced, ok),
        (Wanted::Only(Path::Asynchronous), ok, ok),
        (Wanted::Only(Path::SinkWrite), forced, ok),
    ];
    for (wanted, of_files, asked) in modes {
        let piece = LentPiece {
            wanted,
            ..LENT_PIECE
        };
        assert_eq!(may_lend(&piece), of_files, "{wanted:?}");
        let piece = LentPiece {
            asked: true,
            // It is for those who have not asked.
            threshold_bytes: 0,
            ..piece
        };
        assert_eq!(may_lend(&piece), asked, "{wanted:?}");
        let plain = LentPiece {
            features: Features::NONE,
            ..piece
        };
        assert_eq!(may_lend(&plain), asked.and(refused(Reason::NotAgreed)));
        let odd = LentPiece {
            piece_bytes: 0,
            ..piece
        };
        assert_eq!(may_lend(&odd), asked.and(refused(Reason::NotPinnable)));
        for (piece_bytes, why) in [(16_383, below), (16_384, ok)] {
            let short = LentPiece {
                piece_bytes,
                ..piece
            };
            assert_eq!(may_lend(&short), asked.and(why));
        }
    }
    for (piece_bytes, threshold_bytes, why) in [
        (65_535, 65_536, below),
        (u64::MAX, 0, forced),
        // A low threshold does not make small pieces pay.
        (16_383, 1, below),
        (16_384, 1, ok),
    ] {
        let piece = LentPiece {
            piece_bytes,
            threshold_bytes,
            ..LENT_PIECE
        };
        assert_eq!(may_lend(&piece), why, "{piece:?}");
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
        for path in Path::ALL {
            let admits = number == SDP_MODE_AUTO || wanted == Wanted::Only(path);
            assert_eq!(wanted.admits(path), admits, "{wanted:?} {path:?}");
        }
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

const MEMORIES: [MemoryKind; 3] = [
    MemoryKind::Untried,
    MemoryKind::Unprotectable(Reason::SharedMapping),
    MemoryKind::Other,
];

const BLOCKS: [Option<NotYet>; 4] = [
    None,
    Some(NotYet::Combined),
    Some(NotYet::BehindSynchronous),
    Some(NotYet::Cancelling),
];

const MEASURED: [Option<Path>; 5] = [
    None,
    Some(Path::Copy),
    Some(Path::Synchronous),
    Some(Path::Asynchronous),
    Some(Path::SinkWrite),
];

/// Bytes in whole pages, on both sides of the limit.
const SIZES: [u64; 4] = [0, 12_288, 16_384, 32_768];

/// The smallest size that is worth its cost.
const LEAST_BYTES: u64 = 16_384;

/// Every combination of the conditions.
fn sendings() -> impl Iterator<Item = Sending> {
    let features: [u32; 16] = std::array::from_fn(|bits| bits as u32);
    (0..).map_while(move |number| {
        let mut digits = Digits(number);
        let sending = Sending {
            page_bytes: digits.next(&SIZES),
            memory: digits.next(&MEMORIES),
            wanted: digits.next(&WANTED),
            measured: digits.next(&MEASURED),
            features: Features::from_bits(digits.next(&features)),
            blocking: digits.next(&BOTH),
            may_go_async: digits.next(&BOTH),
            sink: SinkTarget {
                reader_bytes: digits.next(&[0, 16_383, 16_384]),
                may_write: digits.next(&BOTH),
                payload_blocked_by: digits.next(&BLOCKS),
            },
        };
        (digits.0 == 0).then_some(sending)
    })
}

/// The path is the best possible one; and what must never happen does not.
#[test]
fn every_choice() {
    let mut counts = [0; Path::ALL.len()];
    for sending in sendings() {
        let choice = choose(&sending);
        let Choice {
            path,
            copied,
            sink_write,
            awaits_sink,
            asynchronous,
            synchronous,
        } = choice;
        counts[path as usize] += 1;
        let paths = [
            (Path::SinkWrite, sink_write),
            (Path::Asynchronous, asynchronous),
            (Path::Synchronous, synchronous),
        ];
        let first = paths.iter().find(|(_, possible)| possible.is_ok());
        let best = first.map_or(Path::Copy, |(path, _)| *path);
        assert_eq!(path, best, "{sending:?}");
        for (path, possible) in paths {
            let excluded = ![Wanted::Automatic, Wanted::Only(path)].contains(&sending.wanted);
            assert_eq!(possible == Err(None), excluded, "{sending:?}");
        }
        if path != Path::Copy {
            assert!(sending.memory != MemoryKind::Other, "{sending:?}");
            assert!(sending.page_bytes >= LEAST_BYTES, "{sending:?}");
            let admitted = match sending.measured {
                _ if sending.wanted != Wanted::Automatic => true,
                Some(Path::Copy) => false,
                Some(Path::Synchronous) => path == Path::Synchronous,
                Some(Path::Asynchronous) => path != Path::SinkWrite,
                Some(Path::SinkWrite) | None => true,
            };
            assert!(admitted, "{sending:?}");
        }
        // A long piece after a short one may go another way, if the memory can be pinned.
        let short = sending.page_bytes < LEAST_BYTES && sending.memory != MemoryKind::Other;
        assert_eq!(copied == Copied::Piece, short, "{sending:?}");
        if path == Path::Asynchronous {
            let unprotectable = matches!(sending.memory, MemoryKind::Unprotectable(_));
            assert!(!unprotectable && sending.may_go_async, "{sending:?}");
        }
        if path == Path::SinkWrite {
            let room = u64::from(sending.sink.reader_bytes);
            assert!(sending.sink.may_write && room >= LEAST_BYTES, "{sending:?}");
            assert!(sending.sink.payload_blocked_by.is_none(), "{sending:?}");
        }
        assert!(!awaits_sink || sink_write.is_err(), "{sending:?}");
        if !sending.blocking {
            let waits = matches!(path, Path::SinkWrite | Path::Synchronous);
            assert!(!waits, "{sending:?}");
        }
    }
    let all =
        SIZES.len() * MEMORIES.len() * WANTED.len() * 16 * BLOCKS.len() * MEASURED.len() * 3 * 8;
    assert_eq!(counts.iter().sum::<usize>(), all);
    assert!(!counts.contains(&0), "each path is chosen");
}

/// Bytes can be written exactly if a reader waits with a large buffer, and no bytes, places or
/// adverts of this side are in the way.
#[test]
fn every_target() {
    for sending in sendings() {
        let sink = sending.sink;
        let waits = sink.reader_bytes > 0;
        let expected = match (waits, sink.room()) {
            (_, Ok(room)) => waits && room == sink.reader_bytes && room >= 16_384,
            (waits, Err(Reason::PeerDoesNotWait)) => !waits,
            (waits, Err(Reason::BelowThreshold)) => waits && sink.reader_bytes < 16_384,
            (waits, Err(Reason::QueueBusy)) => waits && !sink.may_write,
            (waits, Err(why)) => {
                waits && why == Reason::AdvertsBusy && sink.payload_blocked_by.is_some()
            }
        };
        assert!(expected, "{sink:?}");
        let in_the_way = !sink.may_write || sink.payload_blocked_by.is_some();
        assert!(!(in_the_way && sink.room().is_ok()), "{sink:?}");
    }
}

/// A send that waits, or that has taken its memory, writes where the choice would write: it differs
/// only in what is decided when its memory is taken.
#[test]
fn every_write() {
    let (mut fit, mut lent, mut ahead, mut not) = (0, 0, 0, 0);
    for sending in sendings() {
        assert_eq!(choose(&sending).sink_write, sink_write(&sending));
        let waiting = Sending {
            page_bytes: 32_768,
            memory: MemoryKind::Untried,
            features: Features::ALL,
            blocking: true,
            ..sending
        };
        let writes = path(waiting) == Path::SinkWrite;
        let room = u64::from(sending.sink.reader_bytes);
        let most = sink_room(&sending).map(u64::from);
        assert_eq!(most, writes.then_some(room), "{sending:?}");
        for left in [1, 4096, 16_383, 16_384, 16_385, 40_000] {
            for bytes in [1, 4096, 16_383, 16_384, 16_385, 40_000] {
                if bytes > left {
                    continue;
                }
                let is_end = bytes == left && bytes <= room;
                let fills = bytes == room;
                let fits = fits_sink(&sending, bytes, left);
                assert_eq!(fits, writes && (is_end || fills), "{sending:?}");
                // As many bytes are taken as the buffer has room for.
                let lends = lends_to_sink(&sending, bytes, left);
                let suffices = bytes == left || bytes >= room;
                assert_eq!(lends, writes && suffices, "{sending:?}");
                fit += usize::from(fits);
                lent += usize::from(lends);
                for (head_bytes, has_space) in [(0, true), (0, false), (8, true)] {
                    let piece = Ahead {
                        head_bytes,
                        region_bytes: bytes,
                        left_bytes: left,
                        has_space,
                    };
                    let may = may_write_ahead(&sending, &piece);
                    // Such a send could be asynchronous, too, if the user and measurements agreed.
                    let protects = Sending {
                        page_bytes: 32_768,
                        wanted: Wanted::Only(Path::Asynchronous),
                        features: Features::ALL,
                        ..sending
                    };
                    let is_protected = path(protects) == Path::Asynchronous;
                    let is_whole = head_bytes == 0 && has_space;
                    assert_eq!(
                        may,
                        fits && is_protected && is_whole,
                        "{sending:?} {piece:?}"
                    );
                    ahead += usize::from(may);
                    not += usize::from(fits && !may);
                }
            }
        }
    }
    assert!(fit > 0 && lent > fit && ahead > 0 && not > 0);
}

/// Memory that needs no protection goes without a copy only where that is agreed on, pays and is
/// not forbidden; a program that asks is refused no piece that a program which does not ask may
/// send so.
#[test]
fn every_lending() {
    let (mut lent, mut refused) = (0, 0);
    for sending in sendings() {
        for (asked, threshold_bytes) in [(false, 0), (false, 20_000), (true, 0), (true, 20_000)] {
            let piece = LentPiece {
                piece_bytes: sending.page_bytes,
                asked,
                wanted: sending.wanted,
                threshold_bytes,
                features: sending.features,
            };
            let possible = may_lend(&piece);
            if possible.is_ok() {
                lent += 1;
                assert!(piece.features.contains(Features::SOURCE), "{piece:?}");
                assert!(piece.piece_bytes >= LEAST_BYTES, "{piece:?}");
                assert!(piece.wanted != Wanted::Only(Path::Copy), "{piece:?}");
                let asking = LentPiece {
                    asked: true,
                    ..piece
                };
                assert_eq!(may_lend(&asking), Ok(()), "{piece:?}");
            } else {
                refused += 1;
            }
            if possible == Err(None) && piece.wanted == Wanted::Automatic {
                assert!(!asked && threshold_bytes == 0, "{piece:?}");
            }
        }
    }
    assert!(lent > 0 && refused > 0);
}
