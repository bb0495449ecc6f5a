// SPDX-License-Identifier: GPL-2.0

//! Pages of a program that it cannot touch before the peer's bytes have arrived: the receiver of
//! AZ-SDP.
//!
//! # Normal operation
//!
//! The pages are pinned, and their page table entries are replaced by device-exclusive entries. A
//! touch faults; the core calls the address space's notifiers before it gives the page back, and
//! the module's notifier ([`super::mmu_notifier`]) makes the fault wait. When the bytes have
//! arrived, faults are no longer held up, and a worker gives back the untouched pages in one walk.
//!
//! # Failures
//!
//! If the bytes do not arrive, nobody may see the previous content of the pages: the pages are
//! cleared, then taken out of the address space, and guard markers are left, which give SIGSEGV.
//! Copies and moves that happened in between contain zeros. All transfers of a connection fail
//! together, before any of them takes a lock: the holder of the lock may wait for another one of
//! these transfers. If the lock cannot be taken for some time, the cleared pages stay. If no call
//! has promised the bytes yet, the pages are given back unchanged.

use core::ops::Range;

use kernel::bindings::page;
use kernel::mm::{
    Mm,
    MmWithUser,
    MmapReadGuard, //
};
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{
    ordering::{
        Acquire,
        Full,
        Relaxed,
        Release, //
    },
    Atomic, //
};
use kernel::sync::Arc;
use kernel::task::Task;
use kernel::time::{
    msecs_to_jiffies,
    Instant,
    Monotonic, //
};

use super::age::Age;
use super::folio_refs::{
    self,
    Folio,
    Noted, //
};
use super::held::Held;
use super::mmu_notifier::{
    self,
    Watch, //
};
use super::pin::{
    folio_bytes,
    pages_by,
    Locked, //
};
use super::pte::{
    Area,
    Simple,
    SUPPORTED, //
};
use super::ranges::Ranged;
use super::snapshot::Outcome;
use super::space::Space;
use super::Refused;
use crate::bindings;
use crate::kern::completion::Completion;
use crate::params::breaks::Rule;
use crate::proto::choice::Reason;
use crate::stats::counters::{
    Counter,
    Stats, //
};
use crate::trace;

/// The bytes are on their way.
const READING: i32 = 0;
/// The bytes have arrived.
const ARRIVED: i32 = 1;
/// The bytes will not arrive.
const FAILED: i32 = 2;

/// A call has promised the bytes: it has returned their number to the program, or will return it.
const GIVEN: i32 = 0;
/// No call has promised the bytes yet, and perhaps none will.
const UNDECIDED: i32 = 1;
/// The pages were given back unchanged: no call can promise the bytes any more.
const REFUSED: i32 = 2;

/// The number of ticks for which a failed transfer tries to take the lock of the address space.
const TRIES: u32 = 50;

/// How long the broken rule [`Rule::Soon`] delays giving pages back: less than the time for which
/// bytes are on their way.
const LATE_MS: u32 = 5;

/// A range of a program's memory, and the state of the transfer into it, as needed by threads that
/// touch the range.
#[pin_data]
pub(super) struct Absent {
    base: usize,
    end: usize,
    /// The pages that it has pinned, as numbers.
    pages: KVec<usize>,
    state: Atomic<i32>,
    /// A waiting thread is being killed, or has waited for too long: the connection is to be
    /// aborted.
    pub(super) abort: Atomic<i32>,
    /// Whether a call has promised the bytes.
    promise: Atomic<i32>,
    /// The thread that takes the pages out, as a number.
    closer: Atomic<usize>,
    /// The looks of waiting faults at mmap_lock that found other threads waiting for the lock: the
    /// age of the transfer, in milliseconds, at the first and at the last of consecutive such
    /// looks; the first is 0 if there was none.
    pub(super) contended: Atomic<i64>,
    pub(super) contended_last: Atomic<i64>,
    /// The number of waits.
    pub(super) waits: Atomic<i32>,
    pub(super) age: Age,
    #[pin]
    done: Completion,
}

impl Absent {
    fn new(base: usize, pins: &Pins, since: Instant<Monotonic>) -> Result<Arc<Self>> {
        let end = base + pins.pages.len() * PAGE_SIZE;
        let mut pages = KVec::with_capacity(pins.pages.len(), GFP_KERNEL)?;
        for page in &pins.pages {
            pages.push(*page as usize, GFP_KERNEL)?;
        }
        let absent = Arc::pin_init(
            pin_init!(Self {
                base,
                end,
                pages,
                state: Atomic::new(READING),
                abort: Atomic::new(0),
                promise: Atomic::new(GIVEN),
                closer: Atomic::new(0),
                contended: Atomic::new(0),
                contended_last: Atomic::new(0),
                waits: Atomic::new(0),
                age: Age::new(since),
                done <- Completion::new(),
            }),
            GFP_KERNEL,
        )?;
        Ok(absent)
    }

    /// Lets faults through to the pages although the bytes did not arrive: the pages are cleared.
    fn let_through(&self) {
        self.state.store(ARRIVED, Release);
    }

    /// Whether nobody may see the pages.
    pub(super) fn is_absent(&self) -> bool {
        self.state.load(Acquire) != ARRIVED
    }

    /// Whether the bytes may still arrive.
    pub(super) fn is_reading(&self) -> bool {
        self.state.load(Acquire) == READING
    }

    /// Whether the bytes will not arrive.
    pub(super) fn has_failed(&self) -> bool {
        self.state.load(Acquire) == FAILED
    }

    fn end_with(&self, state: i32) {
        if self.state.cmpxchg(READING, state, Full).is_ok() {
            self.done.complete_all();
        }
    }

    /// Waits for the end of the transfer. Returns the jiffies that are left; 0 if `jiffies` have
    /// passed; less than 0 if the thread is being killed.
    pub(super) fn wait(&self, jiffies: usize) -> isize {
        self.done.wait(jiffies)
    }

    /// Waits for the end of the transfer, also if the thread is being killed: within a second the
    /// worker sees the request to abort the connection.
    pub(super) fn wait_unkillable(&self) {
        self.done.wait_unkillable();
    }

    /// Whether the transfer is in the last step of its age and has failed. Then faults do not wait
    /// until its pages are taken out: the pages are cleared, and the worker that takes them out
    /// would wait for the faults.
    pub(super) fn is_too_old(&self) -> bool {
        self.has_failed() && self.age.is_last()
    }

    /// Whether it has pinned the page at an address.
    fn has_pinned(&self, addr: usize, page: *mut page) -> bool {
        let index = addr.checked_sub(self.base).map(|bytes| bytes / PAGE_SIZE);
        index.and_then(|index| self.pages.get(index)) == Some(&(page as usize))
    }

    /// Whether the current thread takes the pages out.
    pub(super) fn is_closed_by_current(&self) -> bool {
        self.closer.load(Relaxed) == Task::current_raw() as usize
    }
}

impl Ranged for Absent {
    fn range(&self) -> Range<usize> {
        self.base..self.end
    }
}

/// The permission to promise that bytes arrive, or that a touch fails.
pub(crate) struct Promise(Arc<Absent>);

impl Promise {
    /// Makes the promise. Returns `false` if the pages were given back unchanged, or will be: the
    /// connection is not `alive`, and the bytes have not arrived.
    pub(crate) fn give(self, alive: bool) -> bool {
        let holds = alive || !self.0.is_absent();
        holds && self.0.promise.cmpxchg(UNDECIDED, GIVEN, Full).is_ok()
    }
}

/// Whole pages of a program's memory that wait for bytes.
///
/// The value must be dropped before the socket that owns its `stats`.
pub(crate) struct Receiving {
    absent: Arc<Absent>,
    watch: Arc<Watch>,
    mm: ARef<Mm>,
    pins: Pins,
    _locked: Locked,
    stats: Stats,
}

impl Receiving {
    /// Takes away access to `count` pages of the current program until [`Receiving::arrived`], or to
    /// fewer pages if the memory area ends earlier. `base` is the address of the first page. Sleeps,
    /// and faults pages in: no lock may be held. If `may_wait`, waits for bytes of another transfer
    /// that are on their way into the range.
    ///
    /// # Errors
    ///
    /// The reason if the memory cannot be protected; `EAGAIN` if it cannot be protected now,
    /// `ENOBUFS` if the user may not lock so much memory, `ENOMEM`, `EFAULT`, `EINTR` if the thread
    /// is being killed.
    pub(crate) fn take(
        base: usize,
        count: usize,
        may_wait: bool,
        stats: Stats,
    ) -> Result<Self, Refused> {
        if !SUPPORTED {
            return Err(Reason::NotProtectable.into());
        }
        let current = current!();
        let mm = current.mm().ok_or(Reason::NotProtectable)?;
        let end = base.checked_add(count * PAGE_SIZE).ok_or(EFAULT)?;
        let watch = mmu_notifier::of(mm)?;
        if may_wait {
            mmu_notifier::await_bytes(mm, base, end)?;
        } else if watch.has_bytes_to_come(base, end) {
            return Err(EAGAIN.into());
        }
        let take = |pins| Self::take_pinned(mm, &watch, base, pins, stats);
        let receiving = match Pins::fast(mm, base, end).and_then(take) {
            // The pages are part of a huge page, for which a table must be made first; or others
            // have changed the entries meanwhile. While the lock is held, other transfers must not
            // be waited for.
            Err(Refused::Error(e)) if e == EAGAIN && !watch.has_bytes_to_come(base, end) => {
                Pins::split(mm, base, end).and_then(take)
            }
            other => other,
        }?;
        let pages = receiving.pins.pages.len();
        stats.add(Counter::AbsentPages, pages as u64);
        trace::protect(base, true, pages, || pages);
        Ok(receiving)
    }

    /// As [`Receiving::take`], for pages that were pinned from `base` on.
    fn take_pinned(
        mm: &MmWithUser,
        watch: &Arc<Watch>,
        base: usize,
        pins: Pins,
        stats: Stats,
    ) -> Result<Self, Refused> {
        let pages = pins.pages.len();
        let end = base + pages * PAGE_SIZE;
        let locked = Locked::charge(pins.folio_bytes(), stats)?;
        let guard = mm.mmap_read_lock();
        let area = Simple::any(&guard, base, end)?;
        if area.pages() < pages {
            return Err(EAGAIN.into());
        }
        // munlock() skips pages that are away: they would stay unevictable, but not count any more.
        if area.is_locked() && !locked.is_unlimited() {
            return Err(Reason::NotProtectable.into());
        }
        let absent = Absent::new(base, &pins, watch.began)?;
        let mut receiving = Self {
            absent,
            watch: watch.clone(),
            mm: ARef::from(&**mm),
            pins,
            _locked: locked,
            stats,
        };
        let taken = receiving.take_away(&guard, end);
        if taken.is_err() {
            // No bytes were read into the pages, so waiting faults may get them back.
            receiving.arrived();
            receiving.give_back(&guard);
        }
        drop(guard);
        if let Err(e) = taken {
            receiving.leave();
            // Other holders of the pages can read them without the page tables, and cannot be made
            // to wait.
            return Err(if e == EBUSY {
                Reason::NotProtectable.into()
            } else {
                e.into()
            });
        }
        Ok(receiving)
    }

    fn take_away(&self, guard: &MmapReadGuard<'_>, end: usize) -> Result {
        // From here on a fault on the pages finds the transfer.
        self.watch.transfers.add(&self.absent)?;
        let area = Area::any(guard, self.absent.base, end).ok_or(EFAULT)?;
        if self.watch.has_other(&self.absent, self.absent.range()) {
            // Another thread takes some of these pages at this moment.
            return Err(EAGAIN);
        }
        // If another transfer begins only now, its pins count as foreign ones, and the call waits.
        let is_other = |t: &Arc<Absent>| !Arc::ptr_eq(t, &self.absent);
        let range = self.absent.range();
        let has_former = self.watch.transfers.find(range, is_other).is_some();
        let (mut taken, mut refused) = (0, EAGAIN);
        let mut walk = |noted: &dyn Fn(Folio) -> usize| {
            area.walk_and_flush(|entry| {
                let index = entry.index(self.absent.base);
                let page = self.held(index);
                let Some((page, mapped)) = page.and_then(|page| Some((page, entry.maps(page)?)))
                else {
                    return;
                };
                // The number of the module's pins does not change if the folio is large, because
                // the record is locked, or if no former transfer of the range can drop its pins.
                let constant = if page.is_large() {
                    Some(noted(Folio(page.folio() as usize)))
                } else {
                    (!has_former).then_some(1)
                };
                let ours = || constant.unwrap_or_else(|| self.pins_of(index, entry.addr()));
                match mapped.take_away(self.absent.age.mark(), ours) {
                    Ok(()) => taken += 1,
                    Err(why) => refused = why,
                }
            })
        };
        let flushed = if self.pins.noted.is_empty() {
            walk(&|_| 0)
        } else {
            folio_refs::with_counts(walk)
        };
        if flushed {
            self.stats.inc(Counter::TlbFlush);
        } else {
            self.stats.inc(Counter::FlushMissed);
        }
        if !self.watch.is_alone() {
            // The owner of another notifier may have mappings from before the entries were changed.
            Err(EBUSY)
        } else if flushed && taken == self.pins.pages.len() {
            Ok(())
        } else {
            Err(refused)
        }
    }

    /// How often the transfers of this address space have pinned the page at an address: a finished
    /// transfer keeps its pins until it has given the page back, and leaves the list before it
    /// drops its pins.
    fn pins_of(&self, index: usize, addr: usize) -> usize {
        let Some(page) = self.pins.pages.get(index) else {
            return 0;
        };
        let mut count = 0;
        self.watch.transfers.find_map(addr..addr + PAGE_SIZE, |t| {
            count += usize::from(t.has_pinned(addr, *page));
            None::<()>
        });
        count
    }

    pub(crate) fn len(&self) -> u32 {
        (self.pins.pages.len() * PAGE_SIZE) as u32
    }

    /// The pages, in their order.
    pub(crate) fn pages(&self) -> &[*mut page] {
        &self.pins.pages
    }

    fn held(&self, index: usize) -> Option<Held> {
        let page = *self.pins.pages.get(index)?;
        // SAFETY: It is pinned.
        Some(unsafe { Held::new(page) })
    }

    /// The bytes have arrived. In any context.
    pub(crate) fn arrived(&self) {
        self.absent.end_with(ARRIVED);
    }

    /// Whether the bytes have not arrived, and a thread that waits for them is being killed, or may
    /// have waited for `ms` milliseconds.
    pub(crate) fn is_unwanted(&self, ms: u32) -> bool {
        self.absent.is_absent()
            && (self.absent.abort.load(Relaxed) != 0 || self.absent.age.ms() >= u64::from(ms))
    }

    /// Notes that no call has promised the bytes, although the adapter may still write some of
    /// them.
    pub(crate) fn excuse(&self) {
        self.absent.promise.store(UNDECIDED, Relaxed);
    }

    /// As [`Receiving::excuse`], until the promise is made.
    pub(crate) fn promise_later(&self) -> Promise {
        self.excuse();
        Promise(self.absent.clone())
    }

    /// The adapter does not write any more: bytes that have not arrived will not arrive. Sleeps.
    pub(crate) fn conclude(&self) {
        if !self.absent.is_reading() {
            return;
        }
        if self
            .absent
            .promise
            .cmpxchg(UNDECIDED, REFUSED, Full)
            .is_ok()
        {
            return self.arrived();
        }
        for page in &self.pins.pages {
            // SAFETY: The page is pinned; only the program has a right to its content, and the
            // program waits for other bytes.
            unsafe { bindings::clear_highpage((*page).cast()) };
        }
        self.absent.end_with(FAILED);
    }

    /// Ends the transfer, after the adapter has finished with the pages: gives them back to the
    /// program, or takes them out if the bytes did not arrive. In process context.
    pub(crate) fn finish(mut self) -> Outcome {
        self.end()
    }

    fn end(&mut self) -> Outcome {
        self.conclude();
        let pages = self.pins.pages.len() as u32;
        let (mut touched, mut restored) = (0, 0);
        if let Some(space) = Space::of(&self.mm) {
            if self.absent.has_failed() && !self.close(&space) {
                self.absent.let_through();
            }
            if !self.absent.is_absent() {
                if Rule::Soon.is_broken() {
                    // SAFETY: The caller may sleep.
                    unsafe {
                        bindings::schedule_timeout_uninterruptible(
                            msecs_to_jiffies(LATE_MS) as isize
                        );
                    }
                }
                if let Some(guard) = space.lock() {
                    (touched, restored) = self.give_back(&guard);
                }
            }
        }
        self.leave();
        let waits = self.absent.waits.load(Relaxed).unsigned_abs();
        self.stats.add(Counter::AbsentFreed, pages.into());
        self.stats.add(Counter::AbsentTouched, touched.into());
        self.stats.add(Counter::AbsentWaits, waits.into());
        trace::restore(
            self.absent.base,
            true,
            pages as usize,
            touched as usize,
            restored as usize,
        );
        Outcome {
            pages,
            touched,
            waits,
            ..Outcome::default()
        }
    }

    /// Gives the untouched pages back, except those that a later transfer has taken. Returns how
    /// many pages were touched, and how many were given back.
    fn give_back(&self, guard: &MmapReadGuard<'_>) -> (u32, u32) {
        let (mut touched, mut restored) = (self.pins.pages.len(), 0);
        let mut addr = self.absent.base;
        // Whether later bytes may be on their way to the pages up to this address: a transfer is in
        // the list before it takes a page, and takes no page of a table that is locked.
        let (mut known_to, mut later) = (addr, false);
        while addr < self.absent.end {
            // The program may have changed the area meanwhile.
            let Ok(area) = Simple::any(guard, addr, self.absent.end) else {
                addr += PAGE_SIZE;
                continue;
            };
            area.walk(|entry| {
                let page = self.held(entry.index(self.absent.base));
                let Some(away) = page.and_then(|page| entry.is_away(page)) else {
                    return;
                };
                touched -= 1;
                let addr = entry.addr();
                if addr >= known_to {
                    known_to = entry.table_end(area.end());
                    later = self.watch.has_other(&self.absent, addr..known_to);
                }
                let later = later && self.watch.has_other(&self.absent, addr..addr + PAGE_SIZE);
                if !later || Rule::Later.is_broken() {
                    away.give_back();
                    restored += 1;
                }
            });
            addr = area.end();
        }
        (touched as u32, restored)
    }

    /// Takes out the pages whose bytes did not arrive; `false` if the lock cannot be taken: its
    /// holder may be about to touch these pages, without releasing the lock in between.
    fn close(&self, space: &Space) -> bool {
        let mm = space.as_raw();
        self.stats.inc(Counter::AbsentFailed);
        // SAFETY: The address space is alive; the caller may sleep.
        let locked = (0..TRIES).any(|_| unsafe {
            bindings::mmap_lock_down_write_trylock(mm) || {
                bindings::schedule_timeout_uninterruptible(1);
                false
            }
        });
        if !locked {
            return false;
        }
        // SAFETY: The lock is held; together they are `mmap_write_lock()`.
        unsafe { bindings::mm_lock_seqcount_begin(mm) };
        self.absent
            .closer
            .store(Task::current_raw() as usize, Relaxed);
        let mut addr = self.absent.base;
        // SAFETY: The lock is held.
        while let Some(area) = unsafe { self.next_area(mm, addr) } {
            match self.next_run(&area) {
                Some(run) => {
                    // SAFETY: The lock is held for writing.
                    unsafe { area.close(run.start, run.end) };
                    addr = run.end;
                }
                None => addr = area.end(),
            }
        }
        // SAFETY: Taken above.
        unsafe { bindings::mmap_write_unlock(mm) };
        self.absent.closer.store(0, Relaxed);
        true
    }

    /// The next area from `addr` on that contains a part of the range.
    ///
    /// # Safety
    ///
    /// The lock of the address space is held as long as the result is used.
    unsafe fn next_area(&self, mm: *mut bindings::mm_struct, addr: usize) -> Option<Area<'_>> {
        (addr..self.absent.end)
            .step_by(PAGE_SIZE)
            // SAFETY: As the caller promises.
            .find_map(|addr| unsafe { Area::of(mm, addr, self.absent.end) })
    }

    /// The first run of adjacent pages in an area that are still device-exclusive.
    fn next_run(&self, area: &Area<'_>) -> Option<Range<usize>> {
        let mut run: Option<Range<usize>> = None;
        area.walk(|entry| {
            let page = self.held(entry.index(self.absent.base));
            let away = page.is_some_and(|page| entry.is_away(page).is_some());
            let addr = entry.addr();
            match &mut run {
                None if away => run = Some(addr..addr + PAGE_SIZE),
                Some(run) if away && run.end == addr => run.end += PAGE_SIZE,
                _ => {}
            }
        });
        run
    }

    /// Ends all waits, and unpins the pages.
    fn leave(&mut self) {
        self.watch.transfers.remove(&self.absent);
        // For threads that still wait for the transfer.
        self.absent.let_through();
        self.pins.release();
    }
}

impl Drop for Receiving {
    /// As [`Receiving::finish`].
    fn drop(&mut self) {
        if !self.pins.pages.is_empty() {
            self.end();
        }
    }
}

/// Pinned pages of a program, for writing.
///
/// # Invariants
///
/// Every entry of `pages` is pinned once by this value.
struct Pins {
    pages: KVec<*mut page>,
    noted: Noted,
}

// SAFETY: Any thread may unpin pages.
unsafe impl Send for Pins {}

impl Pins {
    /// # Safety
    ///
    /// The caller has pinned the pages; the value unpins them.
    unsafe fn new(pages: KVec<*mut page>) -> Result<Self> {
        // INVARIANT: As the caller promises.
        let mut pins = Self {
            pages,
            noted: Noted::NONE,
        };
        // SAFETY: They are pinned until `release`, which drops the record first.
        pins.noted = unsafe { Noted::new(&pins.pages)? };
        Ok(pins)
    }

    /// Pins the pages of a range of the current program's memory: the first ones that are eligible
    /// and can be pinned. Sleeps.
    fn fast(mm: &MmWithUser, base: usize, end: usize) -> Result<Self, Refused> {
        // Do not fault in pages that are not eligible.
        let count = {
            let guard = mm.mmap_read_lock();
            Simple::any(&guard, base, end)?.pages()
        };
        if count == 0 {
            // The core's fast path does not check this.
            return Err(EFAULT.into());
        }
        let flags = bindings::SDP_CONST_FOLL_WRITE;
        let pages = pages_by(count, |list| {
            // SAFETY: The list has `count` places; no lock is held.
            unsafe { bindings::pin_user_pages_fast(base, count as i32, flags, list) as isize }
        })?;
        // SAFETY: Just pinned.
        Ok(unsafe { Self::new(pages)? })
    }

    /// As [`Pins::fast`]; afterwards huge pages in the range have a table.
    fn split(mm: &MmWithUser, base: usize, end: usize) -> Result<Self, Refused> {
        let guard = mm.mmap_read_lock();
        let count = Simple::any(&guard, base, end)?.pages();
        let flags = bindings::SDP_CONST_FOLL_WRITE | bindings::SDP_CONST_FOLL_SPLIT_PMD;
        let pages = pages_by(count, |list| {
            // SAFETY: The list has `count` places; the lock is held.
            unsafe { bindings::pin_user_pages(base, count, flags, list) }
        })?;
        drop(guard);
        // SAFETY: Just pinned.
        Ok(unsafe { Self::new(pages)? })
    }

    /// The size of the folios of the pages in bytes.
    fn folio_bytes(&self) -> usize {
        // SAFETY: They are pinned.
        unsafe { folio_bytes(&self.pages) }
    }

    /// Sleeps.
    fn release(&mut self) {
        self.noted = Noted::NONE;
        let (list, count) = (self.pages.as_mut_ptr(), self.pages.len());
        // SAFETY: By the type invariant; the list is emptied below.
        unsafe { bindings::unpin_user_pages_dirty_lock(list.cast(), count, true) };
        self.pages.clear();
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        self.release();
    }
}
