// SPDX-License-Identifier: GPL-2.0

//! Two programs that both send synchronously and only then read, every order of
//! their moves: with A1 they end where they would over TCP, without it they
//! block each other.

use proto_host::proto::{
    hello::Features,
    pull::{
        pull,
        Pull,
        Waiting, //
    },
    source::{
        Kind,
        SourceAdverts, //
    },
    source_reader::{
        Answer,
        Destination,
        SourceReader, //
    },
};
use std::collections::{
    HashSet,
    VecDeque, //
};

/// Bytes that each program sends, in adverts of 2 bytes.
const BYTES: u64 = 4;
const ADVERT: u32 = 2;

/// When a side pulls.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Policy {
    /// As `pull` says; the delay never ends.
    Module,
    /// As `pull` says, but it does not know of our own sender.
    SenderUnknown,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Side {
    source: SourceAdverts<(), 2>,
    reader: SourceReader<2, 1>,
    /// Bytes that the program has still to send.
    to_send: u64,
    /// Bytes in the receive buffer, and those that it has read.
    buffered: u64,
    read: u64,
    /// Reports on their way to this side.
    reports: VecDeque<u32>,
}

type World = [Side; 2];

fn start() -> World {
    [(); 2].map(|()| Side {
        source: SourceAdverts::new(2, Features::ALL),
        reader: SourceReader::new(2, Features::ALL),
        to_send: BYTES,
        buffered: 0,
        read: 0,
        reports: VecDeque::new(),
    })
}

/// A move; `None` if it cannot happen.
type Step<'a> = &'a dyn Fn(&mut World) -> Option<()>;

/// The program sends until all of it was consumed.
fn is_sending(side: &Side) -> bool {
    side.to_send > 0 || !side.source.is_idle()
}

fn send(world: &mut World, me: usize) -> Option<()> {
    let side = &mut world[me];
    side.to_send = side.to_send.checked_sub(u64::from(ADVERT))?;
    side.source.post(Kind::Synchronous, 0, ADVERT, ()).ok()?;
    world[1 - me].reader.on_advert(0, ADVERT, 1, 0).ok()?;
    Some(())
}

/// Reads an advert, for the program or as the policy says.
fn take(world: &mut World, me: usize, room: u64, policy: Policy) -> Option<()> {
    let side = &mut world[me];
    let reads = !is_sending(side);
    let bytes = if reads && side.buffered == 0 {
        ADVERT
    } else {
        let waiting = Waiting {
            untaken_bytes: side.reader.untaken().into(),
            room_bytes: room.saturating_sub(side.buffered),
            now: None,
            own_sender_waits: !reads && policy == Policy::Module,
            reader_bytes: None,
            end_of_stream: false,
            polls: false,
        };
        match pull(waiting) {
            Pull::Now { bytes, .. } => u32::try_from(bytes).ok()?,
            Pull::No | Pull::Later => return None,
        }
    };
    let read = side.reader.take(bytes, Destination::Kernel)?;
    side.reader.on_read_done()?;
    side.buffered += u64::from(read.len);
    assert!(side.buffered <= room.max(u64::from(ADVERT)));
    while let Some(Answer::ReadCompletion { bytes, .. }) = world[me].reader.next_answer(true) {
        world[1 - me].reports.push_back(bytes);
    }
    Some(())
}

fn report(world: &mut World, me: usize) -> Option<()> {
    let side = &mut world[me];
    let bytes = side.reports.pop_front()?;
    let progress = side.source.on_read_completion(bytes);
    assert!(progress.is_ok(), "an honest peer is never refused");
    Some(())
}

fn consume(world: &mut World, me: usize) -> Option<()> {
    let side = &mut world[me];
    if is_sending(side) || side.buffered == 0 {
        return None;
    }
    side.read += std::mem::take(&mut side.buffered);
    Some(())
}

/// The bytes that the programs have read when nothing can happen any more, in
/// all ends.
fn ends(room: u64, policy: Policy) -> HashSet<[u64; 2]> {
    let mut known = HashSet::from([start()]);
    let mut todo = vec![start()];
    let mut ends = HashSet::new();
    while let Some(world) = todo.pop() {
        let mut is_end = true;
        for me in 0..2 {
            let moves: [Step<'_>; 4] = [
                &|w| send(w, me),
                &|w| take(w, me, room, policy),
                &|w| report(w, me),
                &|w| consume(w, me),
            ];
            for step in moves {
                let mut next = world.clone();
                if step(&mut next).is_some() {
                    is_end = false;
                    if known.insert(next.clone()) {
                        todo.push(next);
                    }
                }
            }
        }
        if is_end {
            ends.insert([world[0].read, world[1].read]);
        }
    }
    assert!(known.len() > 5, "the search did search");
    ends
}

/// With receive buffers for all that is sent, nobody is blocked in the end.
#[test]
fn both_send_before_they_read() {
    for room in [BYTES, BYTES + 1, 100] {
        let done = HashSet::from([[BYTES; 2]]);
        assert_eq!(ends(room, Policy::Module), done, "room {room}");
    }
}

/// Without A1, or with less room (where TCP blocks, too), both wait for ever:
/// the check can fail.
#[test]
fn who_does_not_pull_blocks() {
    let stuck = HashSet::from([[0; 2]]);
    assert_eq!(ends(100, Policy::SenderUnknown), stuck);
    assert!(ends(BYTES - 1, Policy::Module).contains(&[0; 2]));
}
