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
use guest::torment::{torment, Act, Create, RINGS};
use guest::SHARED;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

/// The maximum number of actions, so that each run is short.
const ACTS: usize = 200;
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

/// An address in the pages of rings and work requests, or seldom in the shared region.
fn scribbled(bytes: &mut Unstructured<'_>) -> Result<u64> {
    if bytes.ratio(1, 16)? {
        return bytes.int_in_range(SHARED..=SHARED + 0xfff);
    }
    bytes.int_in_range(RINGS.0..=RINGS.1)
}

/// Where a region is read or written: a register or a doorbell, or seldom any place.
fn place(bytes: &mut Unstructured<'_>) -> Result<(u32, u64)> {
    if bytes.ratio(1, 16)? {
        return Ok((bytes.arbitrary()?, bytes.arbitrary()?));
    }
    // BAR 1, BAR 2 and the configuration space.
    let region = *bytes.choose(&[1, 2, 7])?;
    Ok((region, u64::from(bytes.arbitrary::<u8>()?)))
}

fn create(bytes: &mut Unstructured<'_>) -> Result<Create> {
    let mut numbers = [0; 6];
    for number in &mut numbers {
        *number = if bytes.ratio(1, 16)? {
            bytes.arbitrary()?
        } else {
            bytes.int_in_range(0..=40)?
        };
    }
    Ok(Create {
        what: bytes.int_in_range(0..=2)?,
        directory: bytes.arbitrary()?,
        kind: bytes.int_in_range(0..=5)?,
        shared: bytes
            .arbitrary::<bool>()?
            .then_some(bytes.int_in_range(0..=3)?),
        numbers,
    })
}

/// The next action that the bytes describe.
fn act(bytes: &mut Unstructured<'_>) -> Result<Act> {
    Ok(match bytes.int_in_range(0..=31)? {
        0 => {
            let register = bytes.choose(&[reg::DSR_HIGH, reg::CTL])?;
            Act::Register(*register, bytes.arbitrary()?)
        }
        1 => bytes.choose(&[Act::Reset, Act::Start])?.clone(),
        2..=3 => {
            let register = bytes.choose(&[reg::DSR_LOW, reg::IMR, reg::REQUEST])?;
            Act::Register(*register, bytes.arbitrary()?)
        }
        4 => Act::Register(bytes.arbitrary()?, bytes.arbitrary()?),
        5..=6 => {
            let (region, at) = place(bytes)?;
            let len = bytes.int_in_range(0..=8)?;
            Act::Write(region, at, bytes.bytes(len)?.to_vec())
        }
        7 => {
            let (region, at) = place(bytes)?;
            Act::Read(region, at, bytes.int_in_range(0..=8)?)
        }
        8 => Act::Interrupts(bytes.arbitrary()?),
        9..=12 => Act::Doorbell(bytes.int_in_range(0..=15)?, bytes.arbitrary()?),
        13..=15 => {
            let content = bytes.bytes(COMMAND_BYTES.min(bytes.len()))?;
            Act::Command(bytes.int_in_range(0..=23)?, content.to_vec())
        }
        16..=18 => Act::Create(create(bytes)?),
        19..=22 => Act::Scribble(scribbled(bytes)? & !7, bytes.arbitrary()?),
        23..=25 => Act::Number(scribbled(bytes)? & !3, bytes.arbitrary()?),
        26..=27 => Act::Index(bytes.arbitrary()?, bytes.arbitrary()?, bytes.arbitrary()?),
        28..=29 => Act::Control(line(bytes)?),
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
