// SPDX-License-Identifier: GPL-2.0
//! Ethernet frames of several network cards: the switch must send each frame where its destination
//! was seen last, or to all others, and must not keep more addresses than its limit.

#![no_main]

use std::collections::HashMap;

use adapter::ethernet::{Addresses, Route, KNOWN};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

/// The maximum number of frames, so that each run is short.
const FRAMES: usize = 5000;
const CARDS: usize = 4;
/// Size of the addresses and the type of a frame.
const HEADER: usize = 14;

/// An address: one of a few or of many, or of a group.
fn address(bytes: &mut Unstructured<'_>) -> Result<[u8; 6]> {
    let number: u16 = if bytes.arbitrary()? {
        u16::from(bytes.arbitrary::<u8>()? & 7)
    } else {
        bytes.arbitrary()?
    };
    let [high, low] = number.to_be_bytes();
    Ok([bytes.arbitrary::<u8>()? & 3, 0, 0, 0, high, low])
}

fn frame(bytes: &mut Unstructured<'_>) -> Result<(usize, Vec<u8>)> {
    let from = bytes.choose_index(CARDS)?;
    let mut frame = [address(bytes)?, address(bytes)?].concat();
    frame.extend([8, 0]);
    if bytes.ratio(1, 16)? {
        frame.truncate(bytes.int_in_range(0..=HEADER)?);
    }
    Ok((from, frame))
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = Unstructured::new(data);
    let mut addresses = Addresses::default();
    // Where each address was seen last. The switch may have forgotten it.
    let mut seen: HashMap<[u8; 6], usize> = HashMap::new();
    for _ in 0..FRAMES {
        if bytes.is_empty() {
            break;
        }
        let Ok((from, frame)) = frame(&mut bytes) else {
            break;
        };
        let route = addresses.route(from, &frame);
        assert!(addresses.len() <= KNOWN);
        let Some((to, rest)) = frame.split_first_chunk::<6>() else {
            assert_eq!(route, Route::Drop);
            continue;
        };
        let sender = rest.first_chunk::<6>().filter(|_| frame.len() >= HEADER);
        let Some(sender) = sender.filter(|sender| sender[0] & 1 == 0) else {
            assert_eq!(route, Route::Drop);
            continue;
        };
        seen.insert(*sender, from);
        match route {
            Route::Drop => assert_eq!(seen.get(to), Some(&from)),
            Route::To(card) => {
                assert_ne!(card, from);
                assert_eq!(seen.get(to), Some(&card));
            }
            Route::Flood => assert!(!seen.contains_key(to) || seen.len() > KNOWN),
        }
    }
});
