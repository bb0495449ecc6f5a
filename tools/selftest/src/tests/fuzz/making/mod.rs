// SPDX-License-Identifier: GPL-2.0
//! Generates random calls. They only depend on the seed, not on the results of earlier calls.

mod abuse;
mod bytes;
mod settings;
mod sockets;
mod splices;

use super::call::{Arg, Call, SLOTS};
use super::room::HOLE;
use super::world::{LISTENER, PAIRS};
use crate::support::pattern::Rng;
use crate::support::sys::PAGE;

/// One end of a connection sends `len` bytes, and the other end receives all bytes that have
/// arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) len: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Call(Box<Call>),
    Transfer(Transfer),
}

impl Step {
    pub(super) fn name(&self) -> String {
        match self {
            Step::Call(call) => call.name.clone(),
            Step::Transfer(_) => "a transfer".to_owned(),
        }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Step::Call(call) => call.fmt(f),
            Step::Transfer(transfer) => write!(f, "{transfer:?}"),
        }
    }
}

/// The purpose of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// A comparison: no calls whose results depend on the time.
    Comparison,
    /// Threads: any calls.
    Threads,
    /// Threads beside a stream: no calls that take or add a byte, or end the stream.
    Watching,
}

pub(super) struct Maker {
    rng: Rng,
    purpose: Use,
    /// The slots that probably have a socket.
    open: [bool; SLOTS],
    /// The number of bytes that may still be sent without being received.
    budget: usize,
}

/// Far fewer bytes than fit into the buffers of either family.
const BUDGET: usize = 24 << 10;

impl Maker {
    pub(super) fn new(seed: u64, purpose: Use) -> Maker {
        let mut open = [false; SLOTS];
        open[..6].fill(true);
        Maker {
            rng: Rng::new(seed),
            purpose,
            open,
            budget: BUDGET,
        }
    }

    pub(super) fn steps(mut self, count: usize) -> Vec<Step> {
        (0..count).map(|_| self.step()).collect()
    }

    fn step(&mut self) -> Step {
        if !self.chance(30) {
            return Step::Call(Box::new(self.call()));
        }
        let (one, two) = self.one_of(&PAIRS);
        let (from, to) = if self.chance(2) {
            (one, two)
        } else {
            (two, one)
        };
        let len = self.rng.length(super::room::SENT_LEN);
        Step::Transfer(Transfer { from, to, len })
    }

    pub(super) fn call(&mut self) -> Call {
        let watching = self.purpose == Use::Watching;
        match self.rng.below(if self.purpose == Use::Threads {
            116
        } else {
            100
        }) {
            0..18 if !watching => self.send(),
            18..36 if !watching => self.receive(),
            36..44 if !watching => self.splice(),
            44..59 if !watching => self.socket_call(),
            59..64 => self.name(),
            64..72 => self.get_option(),
            72..82 => self.set_option(),
            82..87 => self.ioctl(),
            87..90 => self.fcntl(),
            90..93 => self.poll(),
            93..100 => self.epoll(),
            100.. => self.abuse(),
            _ => self.peek(),
        }
    }

    fn chance(&mut self, of: usize) -> bool {
        self.rng.below(of) == 0
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.rng.below(choices.len())]
    }

    /// A slot, usually one that has a socket.
    fn slot(&mut self) -> usize {
        if self.purpose == Use::Watching {
            return self.one_of(&[PAIRS[0].0, PAIRS[0].1]);
        }
        for _ in 0..8 {
            let slot = match self.chance(2) {
                true => self.one_of(&[PAIRS[0].0, PAIRS[0].1, PAIRS[1].0, PAIRS[1].1]),
                false => self.rng.below(SLOTS),
            };
            // Fewer calls are possible with a listener, so it is chosen less often.
            if self.open[slot] && (slot != LISTENER || self.chance(3)) {
                return slot;
            }
        }
        self.rng.below(SLOTS)
    }

    /// The slot for a new socket, usually one without a socket.
    fn new_slot(&mut self) -> usize {
        let free: Vec<usize> = (0..SLOTS).filter(|&slot| !self.open[slot]).collect();
        let slot = match free.len() {
            0 => 3 + self.rng.below(SLOTS - 3),
            _ => self.one_of(&free),
        };
        self.open[slot] = true;
        slot
    }

    fn bad_pointer(&mut self) -> Arg {
        self.one_of(&[
            Arg::Num(0),
            Arg::Num(1),
            Arg::Num(usize::MAX - 4095),
            Arg::At(HOLE),
            Arg::At(PAGE - 2),
        ])
    }

    /// An address in the memory, or sometimes a bad one.
    fn pointer(&mut self, at: usize) -> Arg {
        match self.chance(12) {
            true => self.bad_pointer(),
            false => Arg::At(at),
        }
    }

    /// A length: usually `good`, which is the right one.
    fn length(&mut self, good: i32) -> i32 {
        match self.rng.below(10) {
            0..6 => good,
            6 => self.one_of(&[0, 1, 2, 3, 4]),
            7 => self.one_of(&[-1, i32::MIN, i32::MAX]),
            _ => self.rng.below(2 * good.max(1) as usize) as i32,
        }
    }

    fn number(&mut self) -> i32 {
        match self.rng.below(4) {
            0 => self.rng.next() as i32,
            1 => self.one_of(&[-1, 0, 1, i32::MAX, i32::MIN]),
            2 => 1_i32.wrapping_shl(self.rng.next() as u32),
            _ => self.rng.below(300) as i32,
        }
    }
}
