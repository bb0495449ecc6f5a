// SPDX-License-Identifier: GPL-2.0
//! What a guest writes to registers, doorbells, commands and rings, and what is written to the
//! control socket: the switch must not panic and must become idle; connections of other machines
//! must continue.

#![no_main]

#[path = "../../tests/guest/mod.rs"]
mod guest;

use std::time::Duration;

use adapter::abi::reg;
use adapter::switch::Link;
use guest::torment::{torment, Act};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

/// The maximum number of actions, so that each run is short.
const ACTS: usize = 200;
/// The pages of the rings and of the work requests of the machines.
const RINGS: std::ops::RangeInclusive<u64> = 0x10000..=0x2ffff;
/// The size of a command behind its header.
const COMMAND_BYTES: usize = 168;

/// Lines for the control socket about the hostile machine.
const LINES: [&str; 12] = [
    "keys 3",
    "release 3",
    "clear 3",
    "counters",
    "link 3 down",
    "link 3 up",
    "device 3 removed",
    "device 3 present",
    "receives 3 held",
    "receives 3 given",
    "lose 3 2",
    "hold 3 read",
];

/// A line for the control socket that does not name the other machines.
fn line(bytes: &mut Unstructured<'_>) -> Result<String> {
    if bytes.arbitrary()? {
        return bytes.choose(&LINES).map(|line| line.to_string());
    }
    let text: &str = bytes.arbitrary()?;
    Ok(text.replace(['1', '2'], "3"))
}

/// The next action that the bytes describe.
fn act(bytes: &mut Unstructured<'_>) -> Result<Act> {
    Ok(match bytes.int_in_range(0..=7)? {
        0 => {
            let register = bytes.choose(&[reg::DSR_LOW, reg::IMR, reg::REQUEST])?;
            Act::Register(*register, bytes.arbitrary()?)
        }
        1 => Act::Register(bytes.arbitrary()?, bytes.arbitrary()?),
        2 => Act::Doorbell(bytes.int_in_range(0..=15)?, bytes.arbitrary()?),
        3 => {
            let content = bytes.bytes(COMMAND_BYTES.min(bytes.len()))?;
            Act::Command(bytes.int_in_range(0..=23)?, content.to_vec())
        }
        4 => Act::Scribble(bytes.int_in_range(RINGS)? & !7, bytes.arbitrary()?),
        5 => Act::Number(bytes.int_in_range(RINGS)? & !3, bytes.arbitrary()?),
        6 => Act::Control(line(bytes)?),
        _ => Act::Run,
    })
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = Unstructured::new(data);
    let slow = Link {
        rate: Some(50_000_000),
        latency: Duration::from_micros(20),
    };
    let link = match bytes.arbitrary() {
        Ok(true) => slow,
        _ => Link::default(),
    };
    let mut acts = Vec::new();
    while acts.len() < ACTS && !bytes.is_empty() {
        match act(&mut bytes) {
            Ok(act) => acts.push(act),
            Err(_) => break,
        }
    }
    torment(&acts, link);
});
