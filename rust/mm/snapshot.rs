// SPDX-License-Identifier: GPL-2.0

//! The content of a program's pages at one moment, without a copy: the sender of AZ-SDP.
//!
//! # Normal operation
//!
//! The pages are referenced and made copy-on-write, as by a fork. When the program writes to one of
//! them, the core copies it for the program, and the adapter keeps the old page: no code of the
//! module runs in the fault. The core also handles fork, exit, munmap(), mremap() and swapping
//! meanwhile. When the transfer is over, the program's write permission is restored in one walk,
//! before the program takes a fault for each page.
//!
//! The protection takes two steps with a flush between them: the first step removes the write
//! permission; only when no processor has it any more does the second step give up the page's
//! exclusivity. With a single step, a write of another thread through a stale TLB entry could go to
//! the old page after a third thread has got its copy.
//!
//! # Exceptions
//!
//! A page that cannot be protected (one that is pinned, a page of KSM, the zero page, or a page to
//! which another thread writes at this moment) is copied. A program may choose to wait for the end
//! of the snapshot instead of having its writes make copies ([`super::block_on_write`]). A page that
//! is not the program's alone when the transfer is over is left read-only: the core decides at the
//! next write.

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
use kernel::sync::Arc;
use kernel::time::{
    Instant,
    Monotonic, //
};

use super::block_on_write::Sent;
use super::folio_refs::{
    self,
    Folio,
    Others,
    Pages, //
};
use super::held::{
    Held,
    Ours, //
};
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
    pause_if_broken,
    Area,
    Entry,
    Said,
    Simple, //
};
use super::space::Space;
use super::turn::OneAtATime;
use super::Refused;
use crate::bindings;
use crate::kern::errno::ENOBUFS;
use crate::params::breaks::Rule;
use crate::proto::choice::Reason;
use crate::stats::counters::{
    Counter,
    Stats, //
};
use crate::trace;

/// The progress of a page's protection.
#[derive(Copy, Clone)]
enum State {
    /// The page is only referenced.
    Referenced,
    /// The entry is no longer writable.
    ReadOnly(Said),
    /// The page is copied when the program writes to it.
    Protected {
        said: Said,
        /// The folio is a large one: the reference is recorded.
        large: bool,
    },
    /// A copy made by the module.
    Copy,
}

impl State {
    fn is_protected(self) -> bool {
        matches!(self, Self::Protected { .. })
    }

    fn is_noted(self) -> bool {
        matches!(self, Self::Protected { large: true, .. })
    }
}

/// The result of a snapshot, in pages.
#[derive(Copy, Clone, Default)]
pub(crate) struct Outcome {
    pub(crate) pages: u32,
    /// Pages that were copied, by the module or because the program has written to them, or for
    /// which the program has waited before it wrote.
    pub(crate) touched: u32,
    /// Pages that the module has copied.
    pub(crate) copied: u32,
    /// Pages that the program has written to.
    pub(crate) written: u32,
    /// Pages of a snapshot for which a thread has waited; of a receive, the number of waits.
    pub(crate) waits: u32,
    /// Pages to which the program may write again without a fault.
    pub(crate) restored: u32,
}

/// The content of whole pages of a program's memory at one moment.
///
/// # Invariants
///
/// This value has a reference to every entry of `pages`; `states` has as many entries. It is
/// dropped before the socket that owns its `stats`.
pub(crate) struct Snapshot {
    mm: ARef<Mm>,
    base: usize,
    pages: KVec<*mut page>,
    states: KVec<State>,
    locked: Option<Locked>,
    /// Set if the program waits before it writes.
    block: Option<Block>,
    stats: Stats,
}

// SAFETY: Any thread may drop the references.
unsafe impl Send for Snapshot {}

impl Snapshot {
    /// Takes a snapshot of `count` pages of the current program, or of fewer pages if the memory area
    /// ends earlier. `base` is the address of the first page. If `blocks`, writes to the pages wait
    /// for the end of the snapshot. Sleeps, and faults pages in: no lock may be held.
    ///
    /// # Errors
    ///
    /// The reason if the memory cannot be protected; `ENOBUFS` if the user may not lock so much
    /// memory, `ENOMEM`, `EFAULT`.
    pub(crate) fn take(
        base: usize,
        count: usize,
        blocks: bool,
        stats: Stats,
    ) -> Result<Self, Refused> {
        let current = current!();
        let mm = current.mm().ok_or(Reason::NotProtectable)?;
        let end = base.checked_add(count * PAGE_SIZE).ok_or(EFAULT)?;
        mmu_notifier::await_bytes(mm, base, end)?;
        let watch = if blocks {
            let watch = watch_of(mm, base, end)?;
            // Before the pages are referenced: threads that already wait for them will continue to
            // wait.
            Some((watch.waits_since(base, end), watch))
        } else {
            None
        };
        let guard = mm.mmap_read_lock();
        // The owner of another notifier has its own mappings, which the module cannot protect.
        // While the lock is held, a notifier can be added only if the module already has one there.
        let of_receives = mmu_notifier::alone(mm);
        let area = Simple::any(&guard, base, end)?;
        let of_receives = of_receives?;
        let count = area.pages();
        let mut states = KVec::from_elem(State::Referenced, count, GFP_KERNEL)?;
        let pages = reference(&area, base, count)?;
        states.truncate(pages.len());
        stats.add(Counter::SnapshotPages, pages.len() as u64);
        // INVARIANT: They were just referenced.
        let mut snapshot = Self {
            mm: ARef::from(&**mm),
            base,
            pages,
            states,
            locked: None,
            block: None,
            stats,
        };
        let Ok(charge) = snapshot.charge() else {
            // The end of the snapshot takes the lock again, and another thread may meanwhile have
            // queued for it.
            drop(guard);
            return Err(ENOBUFS.into());
        };
        snapshot.locked = Some(charge);
        snapshot.protect(&area);
        drop(guard);
        // Before the snapshot may end, which removes the notes.
        snapshot.note();
        if of_receives.is_some_and(|watch| !watch.is_alone()) {
            return Err(Reason::NotProtectable.into());
        }
        let protected = || snapshot.states.iter().filter(|s| s.is_protected()).count();
        trace::protect(base, false, snapshot.pages.len(), protected);
        if let Some((since, watch)) = watch {
            // A write between the protection and this point does not wait: it makes a copy.
            let held = snapshot.states.iter().map(|s| s.is_protected());
            snapshot.block = Some(Block::new(watch, base, held, since)?);
        }
        snapshot.copy_rest()?;
        Ok(snapshot)
    }

    pub(crate) fn len(&self) -> u32 {
        (self.pages.len() * PAGE_SIZE) as u32
    }

    /// The pages, in their order.
    pub(crate) fn pages(&self) -> &[*mut page] {
        &self.pages
    }

    fn held(&self, index: usize) -> Option<Held> {
        let page = *self.pages.get(index)?;
        // SAFETY: By the type invariant.
        Some(unsafe { Held::new(page) })
    }

    fn state(&self, index: usize) -> Option<State> {
        self.states.get(index).copied()
    }

    fn set_state(&mut self, index: usize, state: State) {
        if let Some(place) = self.states.get_mut(index) {
            *place = state;
        }
    }

    fn charge(&self) -> Result<Locked> {
        // SAFETY: By the type invariant.
        let bytes = unsafe { folio_bytes(&self.pages) };
        Locked::charge(bytes, self.stats)
    }

    /// The entry's index in the snapshot, and the page that the entry should map.
    fn expected<A>(&self, entry: &Entry<'_, A>) -> Option<(usize, Held)> {
        let index = entry.index(self.base);
        Some((index, self.held(index)?))
    }

    fn protect(&mut self, area: &Area<'_>) {
        let end = self.base + self.pages.len() * PAGE_SIZE;
        let _turn = if Rule::Turn.is_broken() {
            None
        } else {
            match OneAtATime::begin(self.mm.as_raw(), self.base..end) {
                Ok(turn) => Some(turn),
                Err(_) => return,
            }
        };
        let flushed = area.walk_and_flush(|entry| {
            let Some((index, page)) = self.expected(entry) else {
                return;
            };
            if let Some(mut mapped) = entry.maps(page) {
                if mapped.is_exclusive() && mapped.is_writable() {
                    mapped.write_protect();
                }
                self.set_state(index, State::ReadOnly(mapped.said()));
            }
        });
        if flushed {
            self.stats.inc(Counter::TlbFlush);
        } else {
            self.stats.inc(Counter::FlushMissed);
            return;
        }
        pause_if_broken(1);
        area.walk(|entry| {
            let Some((index, page)) = self.expected(entry) else {
                return;
            };
            let Some(State::ReadOnly(said)) = self.state(index) else {
                return;
            };
            let Some(mut mapped) = entry.still_maps(page, said) else {
                return;
            };
            // Another thread may have written to the page since: then the entry is writable again.
            if !mapped.is_writable() && (!mapped.is_exclusive() || mapped.share()) {
                let (said, large) = (mapped.said(), page.is_large());
                self.set_state(index, State::Protected { said, large });
            }
        });
    }

    /// Records the references to protected pages of large folios. Pages whose references cannot be
    /// recorded are copied.
    fn note(&mut self) {
        let mut index = 0;
        while index < self.pages.len() {
            let Some((folio, pages)) = self.run(index) else {
                index += 1;
                continue;
            };
            let noted = folio_refs::add(folio, pages).is_ok();
            for at in index..index + pages.count {
                if !noted {
                    self.set_state(at, State::Referenced);
                }
            }
            index += pages.count;
        }
    }

    /// The run of adjacent protected pages of one large folio that begins at `index`; it does not
    /// change while the pages are held.
    fn run(&self, index: usize) -> Option<(Folio, Pages)> {
        self.state(index).filter(|s| s.is_noted())?;
        let held = self.held(index)?;
        let (folio, first) = (held.folio(), held.index_in_folio());
        let continues = |offset: &usize| {
            let next = self.held(index + offset);
            self.state(index + offset).is_some_and(State::is_noted)
                && next.is_some_and(|next| {
                    next.folio() == folio && next.index_in_folio() == first + offset
                })
        };
        let count = 1 + (1..).take_while(continues).count();
        Some((Folio(folio as usize), Pages { first, count }))
    }

    /// The number of pages from `index` on that belong to no run of [`Snapshot::run`], at least
    /// one, and the number of protected pages among them.
    fn plain_run(&self, index: usize) -> (usize, usize) {
        let (mut count, mut protected) = (0, 0);
        for state in self.states.iter().skip(index) {
            if state.is_noted() {
                break;
            }
            count += 1;
            protected += usize::from(state.is_protected());
        }
        (count.max(1), protected)
    }

    /// Copies the pages that are not protected.
    fn copy_rest(&mut self) -> Result {
        for (place, state) in self.pages.iter_mut().zip(self.states.iter_mut()) {
            if state.is_protected() {
                continue;
            }
            // SAFETY: Both pages are held; the new page replaces the old one, whose reference is
            // dropped.
            unsafe {
                let copy = bindings::alloc_pages(bindings::SDP_CONST_GFP_KERNEL, 0);
                if copy.is_null() {
                    return Err(ENOMEM);
                }
                // An uncorrectable memory error must not be fatal to the machine.
                if bindings::copy_mc_highpage(copy, *place) != 0 {
                    bindings::put_page(copy);
                    return Err(EFAULT);
                }
                bindings::put_page(core::mem::replace(place, copy));
            }
            *state = State::Copy;
            self.stats.inc(Counter::SnapshotCopied);
        }
        Ok(())
    }

    /// Ends the waits for the end of the snapshot: later writes make copies. In any context.
    pub(crate) fn conclude(&self) {
        if let Some(block) = &self.block {
            block.sent.end();
        }
    }

    /// Ends the snapshot when nobody needs it any more: restores the program's write permission, if
    /// the lock of its address space can be taken. May wait for the lock of the current program's
    /// address space.
    pub(crate) fn finish(mut self) -> Outcome {
        self.restore()
    }

    fn restore(&mut self) -> Outcome {
        let (mut protected, mut touched, mut restored) = (0, 0, 0);
        // Without the lock the pages stay read-only, and the program takes a fault for each of
        // them. If writers wait, a holder of the lock may wait for the end of this snapshot, so the
        // lock is only tried.
        let space = Space::of(&self.mm);
        let lock = match self.block {
            Some(_) => Space::try_lock,
            None => Space::lock,
        };
        let guard = space.as_ref().and_then(lock);
        let mut index = 0;
        while index < self.pages.len() {
            let run = self.run(index);
            let (count, of_them) = match run {
                Some((_, pages)) => (pages.count, pages.count),
                None => self.plain_run(index),
            };
            protected += of_them;
            let mut end = |others: &Others<'_>| {
                if let Some(guard) = &guard {
                    let range = index..index + count;
                    let (untouched, writable) = self.restore_range(guard, range, others);
                    touched += of_them - untouched;
                    restored += writable;
                }
                let pages = self.pages.iter().zip(self.states.iter());
                for (page, state) in pages.skip(index).take(count) {
                    // SAFETY: By the type invariant; the list is emptied below. A page that is
                    // protected but not recorded is a folio of one page.
                    unsafe {
                        match state {
                            State::Protected { large: false, .. } => {
                                bindings::folio_put(page.cast())
                            }
                            _ => bindings::put_page(*page),
                        }
                    };
                }
            };
            match run {
                Some((folio, pages)) => folio_refs::remove(folio, pages, end),
                None => end(&Others::NONE),
            }
            index += count;
        }
        let pages = self.pages.len();
        let copied = pages - protected;
        self.pages.clear();
        // Waiting threads may now write to the page itself, which has no other reference any more.
        let waits = self.block.take().map_or(0, Block::end);
        self.stats.add(Counter::SnapshotWaits, waits.into());
        self.stats.add(Counter::PagesTouched, touched as u64);
        self.stats.add(Counter::PagesRestored, restored as u64);
        let locked = self.locked.take().is_some();
        // The last counter: a reader that sees it finds all the others updated.
        self.stats.add(Counter::SnapshotFreed, pages as u64);
        // Without the charge nothing was protected.
        if locked {
            trace::restore(self.base, false, pages, touched, restored);
        }
        Outcome {
            pages: pages as u32,
            touched: ((copied + touched) as u32 + waits).min(pages as u32),
            copied: copied as u32,
            written: touched as u32,
            waits,
            restored: restored as u32,
        }
    }

    /// Restores the write permission in a range. `others` are references to the folio of these
    /// pages, if it is a large one. Returns the number of protected pages that the program has not
    /// written to, and the number of pages that it may write to again.
    fn restore_range(
        &self,
        guard: &MmapReadGuard<'_>,
        range: Range<usize>,
        others: &Others<'_>,
    ) -> (usize, usize) {
        let ours = if others.is_large() {
            Ours::Folio(others.count() + range.len())
        } else {
            Ours::Page
        };
        let (mut untouched, mut restored) = (0, 0);
        let mut index = range.start;
        while index < range.end {
            let addr = |at| self.base + at * PAGE_SIZE;
            // The program may have changed the area meanwhile.
            let area = Simple::any_unless_broken(guard, addr(index), addr(range.end));
            let Some(area) = area else {
                untouched += usize::from(self.state(index).is_some_and(State::is_protected));
                index += 1;
                continue;
            };
            area.walk(|entry| {
                let Some((at, page)) = self.expected(entry) else {
                    return;
                };
                let Some(State::Protected { said, large }) = self.state(at) else {
                    return;
                };
                let Some(mapped) = entry.still_maps(page, said) else {
                    return;
                };
                untouched += 1;
                let needed = large && others.cover(page.index_in_folio());
                if !needed && mapped.restore(ours) {
                    restored += 1;
                }
            });
            index += area.pages();
        }
        (untouched, restored)
    }
}

impl Drop for Snapshot {
    /// Takes the address space's lock, if pages are left.
    fn drop(&mut self) {
        if !self.pages.is_empty() {
            self.restore();
        }
    }
}

/// Makes a program wait before it writes to the pages of its snapshot, as long as the value lives.
struct Block {
    watch: Arc<Watch>,
    sent: Arc<Sent>,
}

impl Block {
    fn new(
        watch: Arc<Watch>,
        base: usize,
        held: impl ExactSizeIterator<Item = bool>,
        since: Option<Instant<Monotonic>>,
    ) -> Result<Self> {
        let sent = Sent::new(base, held, since)?;
        watch.sent.add(&sent)?;
        Ok(Self { watch, sent })
    }

    /// The number of pages for which a fault has waited.
    fn end(self) -> u32 {
        self.sent.waits()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.watch.sent_ended(&self.sent);
    }
}

/// The watch of an address space, if a range of it can be protected.
fn watch_of(mm: &MmWithUser, base: usize, end: usize) -> Result<Arc<Watch>, Refused> {
    let guard = mm.mmap_read_lock();
    let simple = Simple::any(&guard, base, end).map(drop);
    drop(guard);
    simple?;
    mmu_notifier::of(mm)
}

/// References the first `count` pages of an area of the current program's memory from `base` on, as
/// many as possible.
fn reference(area: &Area<'_>, base: usize, count: usize) -> Result<KVec<*mut page>> {
    // The core's fast path would not split huge pages.
    let fast = area.has_tables();
    pages_by(count, |list: *mut *mut page| {
        let got = if fast {
            // SAFETY: The list has `count` places; the function neither faults nor sleeps. The
            // caller drops the references.
            unsafe { bindings::get_user_pages_fast_only(base, count as i32, 0, list.cast()) }
        } else {
            0
        };
        let got = got.max(0) as usize;
        if got == count {
            return got as isize;
        }
        // SAFETY: `got` places are used; the caller holds the address space's lock.
        let more = unsafe {
            bindings::get_user_pages(
                base + got * PAGE_SIZE,
                count - got,
                bindings::SDP_CONST_FOLL_SPLIT_PMD,
                list.add(got).cast(),
            )
        };
        match got {
            0 => more,
            _ => got as isize + more.max(0),
        }
    })
}
