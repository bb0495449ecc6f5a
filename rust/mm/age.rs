// SPDX-License-Identifier: GPL-2.0

//! How old a transfer is, in steps that fit into the mark of a page table entry.
//!
//! A fault on an absent page reads the entry, waits for the lock of the page's folio, asks the
//! notifiers, and maps the page if the entry is then what it was. So whoever lets a fault go while the
//! page is absent changes the entry to a value that the entry has not had since the fault read it. A
//! count of such changes would come round if enough threads wait in a row for one lock. The age of the
//! transfer only grows, and each fault is kept until a new step has begun. A transfer should end before its
//! last step. A fault in the last step is kept until the transfer is over; when it has failed, the fault
//! sees the cleared page.

use kernel::macros::kunit_tests;
use kernel::time::{
    msecs_to_jiffies,
    Instant,
    Monotonic, //
};

/// How many milliseconds a short step takes, and how many short steps there are.
const SHORT_MS: u64 = 4;
const SHORT_STEPS: u64 = 512;
/// How many milliseconds each of the others takes.
const LONG_MS: u64 = 64;

/// How many different steps there are: the marks that an entry has room for.
pub(super) const STEPS: usize = 1 << 10;

/// The step of a transfer of that age. The last one does not end.
const fn step(ms: u64) -> usize {
    let short = ms / SHORT_MS;
    let step = if short < SHORT_STEPS {
        short
    } else {
        SHORT_STEPS + (ms - SHORT_STEPS * SHORT_MS) / LONG_MS
    };
    if step < STEPS as u64 {
        step as usize
    } else {
        STEPS - 1
    }
}

/// How many milliseconds there are from an age to the next step.
const fn ms_to_next(ms: u64) -> u64 {
    let length = if ms < SHORT_STEPS * SHORT_MS {
        SHORT_MS
    } else {
        LONG_MS
    };
    length - ms % length
}

/// The age of a transfer.
pub(super) struct Age {
    began: Instant<Monotonic>,
    first_mark: usize,
}

impl Age {
    /// Of a transfer that begins now, into an address space in which transfers have been possible
    /// `since` then: the marks of one transfer come after those of the last one of the same pages.
    pub(super) fn new(since: Instant<Monotonic>) -> Self {
        let began = Instant::now();
        Self {
            began,
            first_mark: ((began - since).as_millis().unsigned_abs() / SHORT_MS) as usize,
        }
    }

    /// Whether it is in the last step.
    pub(super) fn is_last(&self) -> bool {
        self.step() == STEPS - 1
    }

    /// In milliseconds.
    pub(super) fn ms(&self) -> u64 {
        ms_since(self.began)
    }

    /// The step that it is in.
    pub(super) fn step(&self) -> usize {
        step(self.ms())
    }

    /// The mark of an entry that is changed now.
    pub(super) fn mark(&self) -> usize {
        self.first_mark.wrapping_add(self.step()) % STEPS
    }

    /// Until the next step, in jiffies.
    pub(super) fn jiffies_to_next(&self) -> usize {
        msecs_to_jiffies(ms_to_next(self.ms()) as u32)
    }
}

fn ms_since(then: Instant<Monotonic>) -> u64 {
    then.elapsed().as_millis().unsigned_abs()
}

#[kunit_tests(ib_sdp_age)]
mod tests {
    use super::*;

    /// No step comes again, and each is as long as it is said to be.
    #[test]
    fn steps_grow_by_one() {
        let mut ms = 0;
        for expected in 0..STEPS - 1 {
            assert_eq!(step(ms), expected);
            let next = ms + ms_to_next(ms);
            assert_eq!(step(next - 1), expected);
            ms = next;
        }
        assert_eq!(step(ms), STEPS - 1);
    }

    #[test]
    fn the_last_step_does_not_end() {
        assert_eq!(step(34_752), STEPS - 1);
        assert_eq!(step(u64::MAX), STEPS - 1);
    }

    /// Between two of them a fault is kept for at most so long.
    #[test]
    fn steps_are_short() {
        for ms in 0..40_000 {
            let left = ms_to_next(ms);
            assert!(left > 0 && left <= if ms < 2048 { 4 } else { 64 });
        }
    }
}
