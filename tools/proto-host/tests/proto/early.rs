// SPDX-License-Identifier: GPL-2.0

//! When receives return before their bytes have arrived.

use super::digits::{
    Digits,
    BOTH,
    WANTED, //
};
use proto_host::proto::{
    choice::{
        Path,
        Reason,
        Wanted, //
    },
    early::{
        part,
        Part,
        Receive, //
    },
};

const PAGE: u64 = 4096;

/// A receive into 1 MiB that may return early.
const RECEIVE: Receive = Receive {
    addr: 0x10_0000,
    room_bytes: 1 << 20,
    advert_bytes: 1 << 20,
    page_shift: 12,
    max_pages: 256,
    two_reads: true,
    call_bytes: 1 << 20,
    has_enough: false,
    excluded: false,
    closing: false,
    may_hold_up: true,
    wanted: Wanted::Automatic,
    threshold_bytes: 65_536,
    few_faults: true,
    has_overlap: true,
};

/// The parts of buffers of some sizes.
#[test]
fn parts() {
    for (addr, bytes, expected) in [
        (0, 16_383, None),
        (0, 16_384, Some((0, 4))),
        (0, 20_000, Some((0, 4))),
        // A short buffer is read into in small parts, a long one in large ones.
        (0, 40 * PAGE, Some((0, 32))),
        (0, 127 * PAGE, Some((0, 32))),
        (0, 128 * PAGE, Some((0, 128))),
        (0, 300 * PAGE, Some((0, 256))),
        (16, 32 * PAGE, None),
        (16, 33 * PAGE - 17, None),
        (16, 33 * PAGE - 16, Some((4080, 32))),
        (16, 300 * PAGE, Some((4080, 256))),
    ] {
        for (room_bytes, advert_bytes) in [(bytes, 1 << 30), (1 << 30, bytes)] {
            let receive = Receive {
                addr: RECEIVE.addr + addr,
                room_bytes,
                advert_bytes,
                ..RECEIVE
            };
            let expected = expected.map(|(head_bytes, pages)| Part { head_bytes, pages });
            assert_eq!(part(&receive).ok(), expected, "{receive:?}");
        }
    }
}

/// A call that has enough bytes returns in any case, so it does not count for a pause.
#[test]
fn pauses() {
    let faults = Receive {
        few_faults: false,
        ..RECEIVE
    };
    let chosen = Receive {
        wanted: Wanted::Only(Path::Asynchronous),
        ..faults
    };
    let idle = Receive {
        has_overlap: false,
        ..chosen
    };
    for (receive, why) in [
        (faults, Some(Reason::TooManyFaults)),
        (chosen, None),
        (idle, Some(Reason::NoOverlap)),
    ] {
        assert_eq!(part(&receive).err(), why.map(Some), "{receive:?}");
        let enough = Receive {
            has_enough: true,
            ..receive
        };
        assert_eq!(part(&enough).err(), why.map(|_| None), "{receive:?}");
    }
}

const SIZES: [u64; 5] = [0, 16_383, 5 * PAGE, 34 * PAGE, 400 * PAGE];

/// Every combination of the conditions.
fn receives() -> impl Iterator<Item = Receive> {
    (0..).map_while(|number| {
        let mut digits = Digits(number);
        let receive = Receive {
            addr: digits.next(&[0x10_0000, 0x10_0008, 0x10_0fff]),
            room_bytes: digits.next(&SIZES),
            advert_bytes: digits.next(&SIZES),
            page_shift: 12,
            max_pages: digits.next(&[0, 8, 256]),
            two_reads: digits.next(&BOTH),
            call_bytes: digits.next(&[65_535, 65_536]),
            has_enough: digits.next(&BOTH),
            excluded: digits.next(&BOTH),
            closing: digits.next(&BOTH),
            may_hold_up: digits.next(&BOTH),
            wanted: digits.next(&WANTED),
            threshold_bytes: digits.next(&[0, 65_536]),
            few_faults: digits.next(&BOTH),
            has_overlap: digits.next(&BOTH),
        };
        (digits.0 == 0).then_some(receive)
    })
}

/// What Documentation/overview.rst says about the call, except for the pages.
fn may_return(receive: &Receive) -> bool {
    let mode = match receive.wanted {
        Wanted::Only(path) => path == Path::Asynchronous,
        Wanted::Automatic => {
            receive.threshold_bytes != 0
                && receive.threshold_bytes <= receive.call_bytes
                && receive.few_faults
        }
    };
    let refusals = [
        receive.excluded,
        receive.closing,
        !receive.may_hold_up,
        !receive.has_overlap,
    ];
    mode && !refusals.contains(&true)
}

/// The number of whole pages of the buffer for which the peer has bytes.
fn whole_pages(receive: &Receive) -> u64 {
    let end = receive.addr + receive.room_bytes.min(receive.advert_bytes);
    (end / PAGE).saturating_sub(receive.addr.div_ceil(PAGE))
}

#[test]
fn every_receive() {
    let (mut early, mut faults, mut idle, mut with_head) = (0, 0, 0, 0);
    for receive in receives() {
        let result = part(&receive);
        let whole = whole_pages(&receive);
        let is_aligned = receive.addr % PAGE == 0;
        let is_long = if is_aligned {
            // 16 KiB.
            whole > 3
        } else {
            // 128 KiB, and the call waits anyway.
            whole > 31 && receive.two_reads && !receive.has_enough
        };
        let may = is_long && receive.max_pages > 0 && may_return(&receive);
        assert_eq!(result.is_ok(), may, "{receive:?}");
        // A receive is counted for a pause exactly if it would return early without the pause and
        // waits for its bytes now.
        let unpaused = Receive {
            few_faults: true,
            has_overlap: true,
            ..receive
        };
        let is_paused = !may && part(&unpaused).is_ok();
        let is_counted = matches!(result, Err(Some(_)));
        assert_eq!(is_counted, is_paused && !receive.has_enough, "{receive:?}");
        match result {
            Ok(part) => {
                early += 1;
                with_head += usize::from(part.head_bytes > 0);
                assert_eq!((receive.addr + part.head_bytes) % PAGE, 0, "{receive:?}");
                assert_eq!(part.head_bytes == 0, is_aligned, "{receive:?}");
                assert!(part.head_bytes < PAGE, "{receive:?}");
                let limit = if whole > 127 { u64::MAX } else { 32 };
                let most = [whole, receive.max_pages.into(), limit];
                assert_eq!(Some(part.pages), most.into_iter().min(), "{receive:?}");
            }
            Err(Some(Reason::TooManyFaults)) => {
                faults += 1;
                assert!(!receive.few_faults, "{receive:?}");
                assert_eq!(receive.wanted, Wanted::Automatic);
            }
            Err(Some(why)) => {
                idle += 1;
                assert_eq!(why, Reason::NoOverlap);
                assert!(!receive.has_overlap, "{receive:?}");
            }
            Err(None) => {}
        }
    }
    assert!(early > with_head && with_head > 0 && faults > 0 && idle > 0);
}
