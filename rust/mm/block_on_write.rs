// SPDX-License-Identifier: GPL-2.0

//! A snapshot whose program waits before it writes to the pages: the papers' policy "block on
//! write".
//!
//! When the program writes to a page of a snapshot, the core copies the page. The core calls the
//! address space's notifiers before it puts the copy into the page's place, and the module's
//! notifier makes the program wait until the snapshot is no longer needed: then the page is the
//! program's own again, unless others have a reference to it, or to its large folio. A thread also
//! waits if the core gives it its own copy of the page for reading (a pin for direct I/O, another
//! send).
//!
//! No thread waits longer than [`LIMIT_MS`], because the peer may wait for this very program to
//! read; then the write makes a copy. Snapshots of the same page count as one if the next begins
//! before the previous has ended, or soon after.

use core::ops::Range;

use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::atomic::{
    ordering::{
        Acquire,
        Relaxed,
        Release, //
    },
    Atomic, //
};
use kernel::sync::Arc;
use kernel::time::{
    Instant,
    Monotonic, //
};

use super::ranges::Ranged;
use crate::kern::completion::Completion;

/// How long a program waits for one snapshot, or for several without a gap.
const LIMIT_MS: i64 = 1000;

/// A write to the page does not wait: the page is not protected.
const FREE: i32 = 0;
/// A write to the page waits.
const HELD: i32 = 1;
/// A thread has waited for the page.
const WAITED: i32 = 2;

/// The pages of a snapshot, and whether it is still needed.
#[pin_data]
pub(super) struct Sent {
    base: usize,
    pages: KVec<Atomic<i32>>,
    began: Instant<Monotonic>,
    over: Atomic<i32>,
    #[pin]
    done: Completion,
}

impl Sent {
    /// The pages from `base` on that are `held`; the limit of the waits counts from `began`, or
    /// from now.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(
        base: usize,
        held: impl ExactSizeIterator<Item = bool>,
        began: Option<Instant<Monotonic>>,
    ) -> Result<Arc<Self>> {
        let mut pages = KVec::with_capacity(held.len(), GFP_KERNEL)?;
        for held in held {
            pages.push(Atomic::new(if held { HELD } else { FREE }), GFP_KERNEL)?;
        }
        let sent = Arc::pin_init(
            pin_init!(Self {
                base,
                pages,
                began: began.unwrap_or_else(Instant::now),
                over: Atomic::new(0),
                done <- Completion::new(),
            }),
            GFP_KERNEL,
        )?;
        Ok(sent)
    }

    /// The state of the page at an address.
    fn page(&self, addr: usize) -> Option<&Atomic<i32>> {
        self.pages.get(addr.checked_sub(self.base)? / PAGE_SIZE)
    }

    /// Whether a write to an address waits.
    pub(super) fn holds(&self, addr: usize) -> bool {
        self.page(addr)
            .is_some_and(|page| page.load(Relaxed) != FREE)
            && self.over.load(Acquire) == 0
            && self.began.elapsed().as_millis() < LIMIT_MS
    }

    /// Since when threads may have waited for a page of a range.
    pub(super) fn since(&self, base: usize, end: usize) -> Option<Instant<Monotonic>> {
        let own = self.range();
        (own.start < end && base < own.end).then_some(self.began)
    }

    /// The number of pages for which a thread has waited.
    pub(super) fn waits(&self) -> u32 {
        let waited = |page: &&Atomic<i32>| page.load(Relaxed) == WAITED;
        self.pages.iter().filter(waited).count() as u32
    }

    /// The snapshot is no longer needed.
    pub(super) fn end(&self) {
        self.over.store(1, Release);
        self.done.complete_all();
    }

    /// Whether a thread has waited for the page at an address; `true` only at the first call.
    pub(super) fn has_released(&self, addr: usize) -> bool {
        self.page(addr)
            .is_some_and(|page| page.cmpxchg(WAITED, FREE, Relaxed).is_ok())
    }

    /// Waits for the end of the snapshot before a write to an address, `jiffies` at most; `false`
    /// if the thread is being killed. Sleeps.
    pub(super) fn wait(&self, addr: usize, jiffies: usize) -> bool {
        if let Some(page) = self.page(addr) {
            page.store(WAITED, Relaxed);
        }
        self.done.wait(jiffies) >= 0
    }
}

impl Ranged for Sent {
    fn range(&self) -> Range<usize> {
        self.base..self.base + self.pages.len() * PAGE_SIZE
    }
}
