// SPDX-License-Identifier: GPL-2.0

//! A snapshot whose program waits before it writes to the pages: the papers' policy "block on write".
//!
//! A page of a snapshot is copied when the program writes to it. The core tells the address space's
//! notifiers before it puts the copy into its place, and ours makes the program wait there until the
//! snapshot is no longer needed: then the page is the program's own again, unless others have a
//! reference to it, or to the large folio that it is part of. So waits, too, who has the page made his
//! own for reading (a pin for direct I/O, another send).
//!
//! Nobody waits longer than [`LIMIT_MS`], for the peer may wait for this very program to read; then
//! there is a copy. Snapshots of the same page of which the next begins before the last has ended, or
//! soon after, count as one.

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

/// How long a program waits for one snapshot, or several without a gap.
const LIMIT_MS: i64 = 1000;

/// Who writes to the page does not wait: it is not protected.
const FREE: i32 = 0;
/// Who writes to the page waits.
const HELD: i32 = 1;
/// Somebody has waited.
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
    /// The pages from `base` on that are `held`; whoever waits for them may have done so from `began`
    /// on.
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

    /// Whether who writes to an address waits.
    pub(super) fn holds(&self, addr: usize) -> bool {
        self.page(addr)
            .is_some_and(|page| page.load(Relaxed) != FREE)
            && self.over.load(Acquire) == 0
            && self.began.elapsed().as_millis() < LIMIT_MS
    }

    /// Since when somebody may have waited for a page of a range.
    pub(super) fn since(&self, base: usize, end: usize) -> Option<Instant<Monotonic>> {
        let own = self.range();
        (own.start < end && base < own.end).then_some(self.began)
    }

    /// For how many pages somebody has waited.
    pub(super) fn waits(&self) -> u32 {
        let waited = |page: &&Atomic<i32>| page.load(Relaxed) == WAITED;
        self.pages.iter().filter(waited).count() as u32
    }

    /// Nobody needs the snapshot any more.
    pub(super) fn end(&self) {
        self.over.store(1, Release);
        self.done.complete_all();
    }

    /// Whether somebody has waited for the page at an address, and nobody has asked this before.
    pub(super) fn has_released(&self, addr: usize) -> bool {
        self.page(addr)
            .is_some_and(|page| page.cmpxchg(WAITED, FREE, Relaxed).is_ok())
    }

    /// Waits for the end for so long before a write to an address; `false` if the thread is being
    /// killed. Sleeps.
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
