// SPDX-License-Identifier: GPL-2.0

//! The age of a transfer, in steps that fit into the mark of a page table entry.
//!
//! A fault on an absent page reads the entry, waits for the lock of the page's folio, calls the
//! notifiers, and maps the page if the entry is still unchanged. So a notifier that lets the fault
//! go while the page is absent must change the entry to a value that the entry has not had since
//! the fault read the entry. A counter of changes would wrap around if enough threads waited in
//! turn for one lock. The age of the transfer only grows, and each fault is kept until a new step
//! has begun. A transfer should end before its last step. A fault in the last step is kept until
//! the transfer is over; if the transfer has failed, the fault gets the cleared page.

use kernel::macros::kunit_tests;
use kernel::time::{
    msecs_to_jiffies,
    Instant,
    Monotonic, //
};

/// The length of a short step in milliseconds, and the number of short steps.
const SHORT_MS: u64 = 4;
const SHORT_STEPS: u64 = 512;
/// The length of each other step in milliseconds.
const LONG_MS: u64 = 64;

/// The number of different steps, which is the number of marks that an entry has room for. The
/// short steps have the first [`SHORT_STEPS`] marks, and the long steps have the others.
pub(super) const STEPS: usize = 1 << 10;

/// The step of a transfer of that age. The last step does not end.
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

/// The mark of the first step of a transfer that begins at this time of the watch.
const fn first_mark(ms: u64) -> usize {
    (ms / SHORT_MS) as usize
}

/// The mark of a step of a transfer that began with `first`. Short steps keep up with the clock, as
/// the first marks of transfers do, but long steps fall behind. If both had the same marks, the next
/// transfer of the page could begin with the last marks of a transfer that took long.
const fn mark(first: usize, step: usize) -> usize {
    let short_steps = SHORT_STEPS as usize;
    if step < short_steps {
        first.wrapping_add(step) % short_steps
    } else {
        step
    }
}

/// The number of milliseconds from an age to the next step.
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
    /// The age of a transfer that begins now. `since` is the time from which transfers into the
    /// address space have been possible: so the marks of short steps come after those of the
    /// previous transfer of the same pages.
    pub(super) fn new(since: Instant<Monotonic>) -> Self {
        let began = Instant::now();
        Self {
            began,
            first_mark: first_mark((began - since).as_millis().unsigned_abs()),
        }
    }

    /// Whether the transfer is in the last step.
    pub(super) fn is_last(&self) -> bool {
        self.step() == STEPS - 1
    }

    /// In milliseconds.
    pub(super) fn ms(&self) -> u64 {
        ms_since(self.began)
    }

    /// The current step.
    pub(super) fn step(&self) -> usize {
        step(self.ms())
    }

    /// The mark of an entry that is changed now.
    pub(super) fn mark(&self) -> usize {
        mark(self.first_mark, self.step())
    }

    /// The time until the next step, in jiffies.
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

    /// No step is repeated, and each has the length that `ms_to_next` says.
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

    /// Each step of a transfer has another mark, which an entry has room for.
    #[test]
    fn marks_of_a_transfer_differ() {
        for first in [0, 511, 1000] {
            let mut seen = [false; STEPS];
            for step in 0..STEPS {
                let mark = mark(first, step);
                assert!(!seen[mark]);
                seen[mark] = true;
            }
        }
    }

    /// The last mark of a transfer is not a mark of the transfer that follows at once. Only if no
    /// step lies between them may the first mark be the same: a fault that then reads the entry is
    /// kept until the next step.
    #[test]
    fn marks_of_successors_differ() {
        for began in 0..SHORT_MS {
            for ms in 0..20_000 {
                let last = mark(first_mark(began), step(ms));
                let first = first_mark(began + ms);
                let from = if ms < SHORT_STEPS * SHORT_MS { 1 } else { 0 };
                for age in (from * SHORT_MS..100).step_by(SHORT_MS as usize) {
                    assert_ne!(mark(first, step(age)), last);
                }
            }
        }
    }

    #[test]
    fn the_last_step_does_not_end() {
        assert_eq!(step(34_752), STEPS - 1);
        assert_eq!(step(u64::MAX), STEPS - 1);
    }

    /// A fault is kept for no longer than one step.
    #[test]
    fn steps_are_short() {
        for ms in 0..40_000 {
            let left = ms_to_next(ms);
            assert!(left > 0 && left <= if ms < 2048 { 4 } else { 64 });
        }
    }
}
