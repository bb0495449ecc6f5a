// SPDX-License-Identifier: GPL-2.0

//! Page table entries of a program's private memory.
//!
//! The core's own walkers are not exported, or allocate tables, split huge pages and clear what they
//! do not know. This one looks at present tables only, and changes nothing by itself.

use core::borrow::Borrow;
use core::ops::Deref;

use super::age::STEPS;
use crate::bindings::{
    self,
    folio,
    mm_struct,
    page,
    pmd_t,
    pte_t, //
};
use crate::params::breaks::Rule;
use crate::proto::choice::Reason;
use kernel::mm::{
    virt::{
        flags::{
            HUGETLB,
            WRITE, //
        },
        vm_flags_t,
        VmaRef, //
    },
    MmapReadGuard, //
};
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

/// Whether memory can be protected on this machine: elsewhere nothing was tried.
pub(crate) const SUPPORTED: bool = cfg!(CONFIG_X86_64);

/// A range of a program's memory in one area, while its address space's lock is held for reading.
pub(super) struct Area<'a> {
    vma: &'a VmaRef,
    start: usize,
    end: usize,
}

impl<'a> Area<'a> {
    /// The part of the range that lies in the area at `start`, if there is one.
    pub(super) fn any(guard: &'a MmapReadGuard<'_>, start: usize, end: usize) -> Option<Self> {
        let vma = guard.vma_lookup(start)?;
        let end = end.min(vma.end());
        Some(Self { vma, start, end })
    }

    /// As [`Area::any`], without a guard.
    ///
    /// # Safety
    ///
    /// The lock of the address space is held as long as the value is used.
    pub(super) unsafe fn of(mm: *mut mm_struct, start: usize, end: usize) -> Option<Self> {
        // SAFETY: As the caller promises.
        let vma = unsafe { bindings::find_vma(mm.cast(), start) };
        if vma.is_null() {
            return None;
        }
        // SAFETY: It is valid as long as the lock is held.
        let vma = unsafe { VmaRef::from_raw(vma.cast()) };
        let end = end.min(vma.end());
        (vma.start() <= start).then_some(Self { vma, start, end })
    }

    /// The address behind it.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// Takes the pages of the range out, and leaves marks that give SIGSEGV.
    ///
    /// # Safety
    ///
    /// The address space's lock is held for writing.
    pub(super) unsafe fn close(&self, start: usize, end: usize) {
        // SAFETY: As the caller promises; whoever holds the area's own lock is waited for.
        unsafe { bindings::vma_start_write(self.vma.as_ptr().cast()) };
        self.vma.zap_vma_range(start, end - start);
        // SAFETY: As the caller promises; the area covers the range. An entry that is empty takes a
        // mark, which is counted nowhere.
        unsafe {
            walk(self.mm(), start, end, |ptep, addr| {
                if bindings::pte_none(read(ptep)) {
                    bindings::set_pte_at(self.mm(), addr, ptep, bindings::make_guard_pte());
                }
            });
        }
    }

    fn why_not_simple(&self) -> Option<Reason> {
        let flags = self.vma.flags();
        let has = |any: vm_flags_t| flags & any != 0;
        // SAFETY: The area is valid while the lock is held.
        let anonymous = unsafe { bindings::vma_is_anonymous(self.vma.as_ptr()) };
        if has(HUGETLB) {
            Some(Reason::HugeTlb)
        } else if has(bindings::SDP_CONST_VM_UFFD) {
            Some(Reason::Userfaultfd)
        } else if has(bindings::SDP_CONST_VM_SPECIAL) {
            Some(Reason::NotProtectable)
        } else if has(bindings::SDP_CONST_VM_SHARED) {
            Some(Reason::SharedMapping)
        } else if !anonymous {
            Some(Reason::FileMapping)
        } else if !has(WRITE) {
            Some(Reason::NotProtectable)
        } else {
            None
        }
    }

    pub(super) fn pages(&self) -> usize {
        (self.end - self.start) / PAGE_SIZE
    }

    /// Whether all tables of the range are there, so that no huge page has any of it. It may be otherwise
    /// at once.
    pub(super) fn has_tables(&self) -> bool {
        let mut addr = self.start;
        while addr < self.end {
            // SAFETY: The address space's lock is held, and the area covers the range.
            if unsafe { table_entry(self.mm(), addr).and_then(|pmdp| table_in(pmdp)) }.is_none() {
                return false;
            }
            // SAFETY: No precondition.
            addr = unsafe { bindings::pmd_addr_end(addr, self.end) };
        }
        true
    }

    fn mm(&self) -> *mut mm_struct {
        self.vma.mm().as_raw()
    }

    /// Calls `f` for every entry of the range that has a table, under the table's lock.
    pub(super) fn walk(&self, f: impl FnMut(&Entry<'_, Self>)) {
        walk_in(self, f);
    }

    /// As [`Area::walk`], where `f` takes access away; when this returns no processor has what the
    /// entries said before. `false` if that cannot be told.
    ///
    /// No function that flushes is exported. But whoever gathers pages to be freed looks whether
    /// somebody else has a flush pending, and flushes all of the address space then.
    #[must_use]
    pub(super) fn walk_and_flush(&self, f: impl FnMut(&Entry<'_, Self>)) -> bool {
        if Rule::Flush.is_broken() {
            self.walk(f);
            return true;
        }
        // SAFETY: The address space is valid; what is begun here is ended below.
        unsafe { bindings::inc_tlb_flush_pending(self.mm()) };
        self.walk(f);
        // Longer than the pause before the second step: then a second step can come before the flush of another
        // snapshot.
        pause_if_broken(2);
        // SAFETY: The address space is valid.
        let before = unsafe { bindings::mm_tlb_gen(self.mm()) };
        self.vma.zap_vma_range(self.vma.start(), 0);
        // SAFETY: As above.
        unsafe {
            let after = bindings::mm_tlb_gen(self.mm());
            bindings::dec_tlb_flush_pending(self.mm());
            after != before
        }
    }
}

/// Sleeps for some jiffies between two steps, where a test wants them apart.
pub(super) fn pause_if_broken(jiffies: isize) {
    if Rule::AtOnce.is_broken() {
        // SAFETY: The callers hold the lock of an address space for reading, and may sleep.
        unsafe { bindings::schedule_timeout_uninterruptible(jiffies) };
    }
}

/// An area whose pages are simply the program's own, private and anonymous, and to which the program may
/// write: only there is the right to write given.
pub(super) struct Simple<'a>(Area<'a>);

impl<'a> Simple<'a> {
    /// As [`Area::any`], if the area can be protected here.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    pub(super) fn any(
        guard: &'a MmapReadGuard<'_>,
        start: usize,
        end: usize,
    ) -> Result<Self, Reason> {
        let area = Area::any(guard, start, end).ok_or(Reason::NotProtectable)?;
        match area.why_not_simple() {
            None if SUPPORTED => Ok(Self(area)),
            why => Err(why.unwrap_or(Reason::NotProtectable)),
        }
    }

    /// As [`Simple::any`], or any area if the rule is broken.
    pub(super) fn any_unless_broken(
        guard: &'a MmapReadGuard<'_>,
        start: usize,
        end: usize,
    ) -> Option<Self> {
        let area = Area::any(guard, start, end)?;
        (area.why_not_simple().is_none() || Rule::Area.is_broken()).then_some(Self(area))
    }

    /// As [`Area::walk`].
    pub(super) fn walk(&self, f: impl FnMut(&Entry<'_, Self>)) {
        walk_in(self, f);
    }
}

impl<'a> Deref for Simple<'a> {
    type Target = Area<'a>;

    fn deref(&self) -> &Area<'a> {
        &self.0
    }
}

impl<'a> Borrow<Area<'a>> for Simple<'a> {
    fn borrow(&self) -> &Area<'a> {
        &self.0
    }
}

fn walk_in<'a, A: Borrow<Area<'a>>>(of: &A, mut f: impl FnMut(&Entry<'_, A>)) {
    let area = of.borrow();
    // SAFETY: The address space's lock is held, and the area covers the range.
    unsafe {
        walk(area.mm(), area.start, area.end, |ptep, addr| {
            f(&Entry {
                of,
                mm: area.mm(),
                ptep,
                addr,
            });
        });
    }
}

/// What an entry says (`ptep_get()`): where [`SUPPORTED`], one load.
///
/// # Safety
///
/// The table of the entry is locked.
unsafe fn read(ptep: *const pte_t) -> pte_t {
    // SAFETY: As the caller promises; processors may mark it used or written to meanwhile.
    unsafe { ptep.read_volatile() }
}

/// Calls `f` with every entry of the range that has a table, and its address, under the table's lock.
///
/// # Safety
///
/// The address space's lock is held, or another one that keeps the upper tables of the range.
unsafe fn walk(mm: *mut mm_struct, start: usize, end: usize, mut f: impl FnMut(*mut pte_t, usize)) {
    let mut addr = start;
    while addr < end {
        // SAFETY: No precondition.
        let next = unsafe { bindings::pmd_addr_end(addr, end) };
        // SAFETY: As the caller promises.
        if let Some(table) = unsafe { lock_table(mm, addr) } {
            for (i, addr) in (addr..next).step_by(PAGE_SIZE).enumerate() {
                // SAFETY: The range up to `next` is in one table.
                f(unsafe { table.first.add(i) }, addr);
            }
        }
        addr = next;
    }
}

/// The last table for `addr`, if there is one; it stays while the value lives.
///
/// # Safety
///
/// As for [`walk`].
unsafe fn lock_table(mm: *mut mm_struct, addr: usize) -> Option<Table> {
    // SAFETY: As the caller promises.
    let pmdp = unsafe { table_entry(mm, addr)? };
    loop {
        // SAFETY: The last table may go at any time, but its memory stays until a grace period
        // has passed. Under its lock, and if the entry above is still the same, it stays.
        unsafe {
            bindings::rcu_read_lock();
            let Some(mut pmd) = table_in(pmdp) else {
                bindings::rcu_read_unlock();
                return None;
            };
            let first = bindings::pte_offset_kernel(&raw mut pmd, addr);
            let lock = bindings::pte_lockptr(mm, &raw mut pmd);
            bindings::spin_lock(lock);
            // INVARIANT: Locked just now.
            let table = Table { first, lock };
            if bindings::pmd_same(pmd, bindings::pmdp_get_lockless(pmdp)) {
                return Some(table);
            }
        }
    }
}

/// The entry that says where the last table for `addr` is, if the tables above it are there.
///
/// # Safety
///
/// As for [`walk`].
unsafe fn table_entry(mm: *mut mm_struct, addr: usize) -> Option<*mut pmd_t> {
    // SAFETY: As the caller promises: so the upper tables stay, if they are there.
    unsafe {
        let pgdp = bindings::pgd_offset(mm, addr);
        let pgd = bindings::pgdp_get(pgdp);
        if bindings::pgd_none(pgd) || bindings::pgd_bad(pgd) {
            return None;
        }
        let p4dp = bindings::p4d_offset(pgdp, addr);
        let p4d = bindings::p4dp_get(p4dp);
        if bindings::p4d_none(p4d) || bindings::p4d_bad(p4d) {
            return None;
        }
        let pudp = bindings::pud_offset(p4dp, addr);
        let pud = bindings::pudp_get(pudp);
        if bindings::pud_none(pud) || bindings::pud_leaf(pud) || bindings::pud_bad(pud) {
            return None;
        }
        Some(bindings::pmd_offset(pudp, addr))
    }
}

/// What an entry says, if that is where a table is: not that there is none, or a huge page. It may be
/// otherwise at once.
///
/// # Safety
///
/// The entry is in a table that stays.
unsafe fn table_in(pmdp: *mut pmd_t) -> Option<pmd_t> {
    // SAFETY: As the caller promises.
    unsafe {
        let pmd = bindings::pmdp_get_lockless(pmdp);
        let is_table = !bindings::pmd_none(pmd)
            && bindings::pmd_present(pmd)
            && !bindings::pmd_leaf(pmd)
            && !bindings::pmd_bad(pmd);
        is_table.then_some(pmd)
    }
}

/// The entries of a table from some address on.
///
/// # Invariants
///
/// `lock` is held, within an RCU section of its own.
struct Table {
    first: *mut pte_t,
    lock: *mut bindings::spinlock_t,
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe {
            bindings::spin_unlock(self.lock);
            bindings::rcu_read_unlock();
        }
    }
}

/// An entry of a locked table, in an area of the kind `A`.
pub(super) struct Entry<'a, A> {
    of: &'a A,
    mm: *mut mm_struct,
    ptep: *mut pte_t,
    addr: usize,
}

impl<A> Entry<'_, A> {
    /// The place of the page in a range that begins at `base`.
    pub(super) fn index(&self, base: usize) -> usize {
        (self.addr - base) / PAGE_SIZE
    }

    fn get(&self) -> pte_t {
        // SAFETY: The entry is valid while its table is locked.
        unsafe { read(self.ptep) }
    }

    fn set(&self, pte: pte_t) {
        // SAFETY: As above; the value is a variant of the one that was there.
        unsafe { bindings::set_pte_at(self.mm, self.addr, self.ptep, pte) };
    }

    /// The address of the page.
    pub(super) fn addr(&self) -> usize {
        self.addr
    }

    /// Where what the table maps ends, or `end` if that comes before.
    pub(super) fn table_end(&self, end: usize) -> usize {
        // SAFETY: No precondition.
        unsafe { bindings::pmd_addr_end(self.addr, end) }
    }

    /// The entry, if it says that a device has the page for itself.
    pub(super) fn is_away(&self, page: Held) -> Option<Away<'_, A>> {
        let pte = self.get();
        // SAFETY: Only looks at the value; the page is held.
        let away = unsafe {
            is_device_exclusive(pte)
                && bindings::pte_device_exclusive_page(pte).cast() == page.0
                && !bindings::pte_swp_uffd(pte)
                && bindings::page_anon_exclusive(page.0)
        };
        away.then_some(Away { entry: self, page })
    }

    /// The entry, if it maps an anonymous page as any other: not one of KSM's, not for a fault of
    /// NUMA balancing.
    pub(super) fn maps(&self, page: Held) -> Option<Mapped<'_, A>> {
        let pte = self.get();
        // SAFETY: Only reads; the page is held.
        let plain = unsafe {
            bindings::pte_present(pte)
                && !bindings::pte_protnone(pte)
                && bindings::pte_pfn(pte) == bindings::page_to_pfn(page.0)
                && !bindings::pte_uffd(pte)
                && bindings::page_anon(page.0)
                && !bindings::folio_test_ksm(page.folio())
        };
        plain.then(|| Mapped {
            entry: self,
            page,
            said: Said::new(pte),
        })
    }

    /// As [`Entry::maps`], if the entry `said` so before, and the page was held all the time: what does
    /// not change while it is held need not be asked again.
    pub(super) fn still_maps(&self, page: Held, said: Said) -> Option<Mapped<'_, A>> {
        let same = self.get().pte == said.pte.pte;
        let said = if same { said } else { self.maps(page)?.said };
        Some(Mapped {
            entry: self,
            page,
            said,
        })
    }
}

/// What an entry says that maps a page.
#[derive(Copy, Clone)]
pub(super) struct Said {
    pte: pte_t,
    writable: bool,
}

impl Said {
    fn new(pte: pte_t) -> Self {
        Self {
            pte,
            // SAFETY: Only looks at the value.
            writable: unsafe { bindings::pte_write(pte) },
        }
    }
}

/// References of ours to the folio of a page.
#[derive(Copy, Clone)]
pub(super) enum Ours {
    /// One: it has no other page.
    Page,
    /// So many: it is a large one.
    Folio(usize),
}

fn is_device_exclusive(pte: pte_t) -> bool {
    // SAFETY: Only looks at the value.
    unsafe {
        !bindings::pte_none(pte)
            && !bindings::pte_present(pte)
            && bindings::pte_device_exclusive(pte)
    }
}

/// The bits of an entry's offset that lie above the page's number, which on x86 has at most 40 bits:
/// the core uses the first two of them, but not in an entry of this kind.
const MARK_SHIFT: u32 = 40;
const MARK_MASK: usize = (STEPS - 1) << MARK_SHIFT;

/// The entry which says that a device has a page, with another mark.
///
/// # Safety
///
/// `pte` says that a device has a page, which stays.
unsafe fn with_mark(pte: pte_t, mark: usize) -> pte_t {
    // SAFETY: As the caller promises; what is made differs in the mark alone.
    unsafe {
        let offset = bindings::pte_swp_offset(pte) & !MARK_MASK;
        let mark = (mark << MARK_SHIFT) & MARK_MASK;
        let mut other = bindings::make_device_exclusive_offset_pte(offset | mark);
        if bindings::pte_swp_soft_dirty(pte) {
            other = bindings::pte_swp_mksoft_dirty(other);
        }
        if bindings::pte_swp_uffd(pte) {
            other = bindings::pte_swp_mkuffd(other);
        }
        other
    }
}

/// Makes the core look again at entries which say that a device has the page: a fault that is about
/// to give one back finds that it has changed, and comes again. `mark` is asked for the new mark with
/// the entry's table locked; without one, an entry stays as it is.
///
/// # Safety
///
/// As for [`walk`].
pub(super) unsafe fn mark(
    mm: *mut mm_struct,
    start: usize,
    end: usize,
    mark: impl Fn() -> Option<usize>,
) {
    // SAFETY: As the caller promises; the entry is a variant of the one that is there.
    unsafe {
        walk(mm, start, end, |ptep, addr| {
            let pte = read(ptep);
            if let (true, Some(mark)) = (is_device_exclusive(pte), mark()) {
                bindings::set_pte_at(mm, addr, ptep, with_mark(pte, mark));
            }
        });
    }
}

/// What an entry through which a program gets a copy of a page said of its age.
pub(super) struct Seen {
    young: bool,
}

/// What the entry of an address says, if a program that writes to its page gets a copy.
///
/// # Safety
///
/// As for [`walk`].
pub(super) unsafe fn copied_on_write(mm: *mut mm_struct, addr: usize) -> Option<Seen> {
    let mut seen = None;
    // SAFETY: As the caller promises; only looks.
    unsafe {
        walk(mm, addr, addr + PAGE_SIZE, |ptep, _| {
            let pte = read(ptep);
            if is_read_only(pte) {
                let young = bindings::pte_young(pte);
                seen = Some(Seen { young });
            }
        });
    }
    seen
}

fn is_read_only(pte: pte_t) -> bool {
    // SAFETY: Only looks at the value.
    unsafe {
        bindings::pte_present(pte) && !bindings::pte_protnone(pte) && !bindings::pte_write(pte)
    }
}

/// Makes the core look again at an entry through which a program is about to get a copy: the fault finds
/// that it has changed since it was `seen`, and comes again. What changes says no more than that the
/// page was used lately. All who have seen the same change it to the same. Where one has seen it after
/// another one's change, or the processor changes it back, there may be a copy after all.
///
/// # Safety
///
/// As for [`walk`].
pub(super) unsafe fn stir(mm: *mut mm_struct, addr: usize, seen: &Seen) {
    // SAFETY: As the caller promises. The entry is taken out before it is changed, so that a mark that
    // the processor makes in between is not lost, and nobody uses it meanwhile.
    unsafe {
        walk(mm, addr, addr + PAGE_SIZE, |ptep, addr| {
            let pte = read(ptep);
            if !is_read_only(pte) || bindings::pte_young(pte) != seen.young {
                return;
            }
            let pte = bindings::ptep_get_and_clear(mm, addr, ptep);
            let other = if seen.young {
                bindings::pte_mkold(pte)
            } else {
                bindings::pte_mkyoung(pte)
            };
            bindings::set_pte_at(mm, addr, ptep, other);
        });
    }
}

/// An entry which says that a device has the page.
pub(super) struct Away<'a, A> {
    entry: &'a Entry<'a, A>,
    page: Held,
}

impl Away<'_, Simple<'_>> {
    /// Gives the page back, which has changed.
    pub(super) fn give_back(&self) {
        let area = self.entry.of;
        // SAFETY: The entry is valid while its table is locked, and stands for a mapping of the page
        // by this address space alone. The program may write in the area.
        unsafe {
            let pte = bindings::vma_mk_pte(area.vma.as_ptr().cast(), self.page.0.cast());
            let pte = bindings::pte_mkdirty(bindings::pte_mkwrite_novma(pte));
            self.entry.set(pte);
        }
    }
}

/// A page to which the caller has a reference, so that it stays what it is: not even a part of
/// another folio.
#[derive(Copy, Clone)]
pub(super) struct Held(*mut page);

impl Held {
    /// # Safety
    ///
    /// The caller has a reference as long as the value is used.
    pub(super) unsafe fn new(page: *mut page) -> Self {
        Self(page)
    }

    pub(super) fn folio(self) -> *mut folio {
        // SAFETY: By the type's promise.
        unsafe { bindings::page_folio(self.0) }
    }

    /// Whether its folio has several pages.
    pub(super) fn is_large(self) -> bool {
        // SAFETY: By the type's promise.
        unsafe { bindings::folio_test_large(self.folio()) }
    }

    /// Whether it is one of hugetlbfs.
    pub(super) fn is_hugetlb(self) -> bool {
        // SAFETY: By the type's promise.
        unsafe { bindings::folio_test_hugetlb(self.folio()) }
    }

    /// Whether somebody has locked its folio. Both the lock and that of a page table are full barriers
    /// where [`SUPPORTED`].
    fn is_locked(self) -> bool {
        // SAFETY: By the type's promise.
        unsafe { bindings::folio_test_locked(self.folio()) }
    }

    /// Its place in its folio.
    pub(super) fn index_in_folio(self) -> usize {
        // SAFETY: By the type's promise.
        unsafe { bindings::folio_page_idx(self.folio(), self.0) }
    }

    /// Pages of its folio.
    pub(super) fn folio_pages(self) -> usize {
        // SAFETY: By the type's promise.
        unsafe { bindings::folio_nr_pages(self.folio()) as usize }
    }

    /// References to a page that has no other in its folio (`page_ref_count()`).
    fn references(self) -> i32 {
        // SAFETY: By the type's promise. Others change the counter atomically.
        unsafe { (&raw const (*self.0)._refcount.counter).read_volatile() }
    }

    /// Whether somebody else has it pinned or has a reference to it, and so can read it without the page
    /// tables. `ours` is how often it is pinned by us, or the large folio that it is part of.
    ///
    /// A folio that is in no LRU list may have a reference of a processor that is about to put it there.
    fn is_held_by_others(self, ours: usize) -> bool {
        let folio = self.folio();
        // SAFETY: The page is held.
        let known = || unsafe {
            let by_us = if self.is_large() {
                bindings::folio_large_mapcount(folio) as usize + ours
            } else {
                1 + bindings::SDP_CONST_GUP_PIN_COUNTING_BIAS as usize * ours
            };
            let of_cache = if bindings::folio_test_swapcache(folio) {
                self.folio_pages()
            } else {
                0
            };
            by_us + of_cache + usize::from(!bindings::folio_test_lru(folio))
        };
        // Each of them may change meanwhile, together with the count: one that goes must not hide
        // another's reference, and one that comes must not make room for it.
        let before = known();
        // SAFETY: The page is held.
        let count = unsafe { bindings::folio_ref_count(folio) } as usize;
        count > before.min(known())
    }

    /// Whether it is this address space's alone, but for references of ours: by exact counts, for
    /// whoever else has a reference could read what the program writes later.
    ///
    /// The core asks the same before it lets a program write to a page that it has shared
    /// (`wp_can_reuse_anon_folio()` in mm/memory.c).
    fn with_exclusive(self, ours: Ours, f: impl FnOnce()) -> bool {
        let folio = match ours {
            Ours::Page => self.0.cast(),
            Ours::Folio(_) => self.folio(),
        };
        // SAFETY: The page is held.
        if Rule::Exclusive.is_broken() && !unsafe { bindings::folio_test_ksm(folio) } {
            f();
            return true;
        }
        // SAFETY: The page is held, and mapped by an entry whose table is locked.
        unsafe {
            let Ours::Folio(ours) = ours else {
                // With the lock, KSM and the swap cache cannot get at it.
                if !bindings::folio_trylock(folio) {
                    return false;
                }
                // Ours and that of this mapping: further mappings would have references of their own,
                // and so would the swap cache. KSM may have made the page one of its own in place: it
                // does not count the references of a page that is clean and was shared already.
                let exclusive = self.references() == 2 && !bindings::folio_test_ksm(folio);
                if exclusive {
                    f();
                }
                bindings::folio_unlock(folio);
                return exclusive;
            };
            if bindings::folio_test_swapcache(folio) {
                return false;
            }
            bindings::folio_lock_large_mapcount(folio);
            let exclusive = !bindings::folio_mm_ids_shared(folio)
                && bindings::folio_ref_count(folio) as usize
                    == bindings::folio_large_mapcount(folio) as usize + ours
                && !bindings::folio_test_swapcache(folio);
            if exclusive {
                f();
            }
            bindings::folio_unlock_large_mapcount(folio);
            exclusive
        }
    }
}

/// An entry that maps a page.
pub(super) struct Mapped<'a, A> {
    entry: &'a Entry<'a, A>,
    page: Held,
    said: Said,
}

impl<A> Mapped<'_, A> {
    pub(super) fn is_writable(&self) -> bool {
        self.said.writable
    }

    /// Whether the page is known to be this entry's alone: a fault on it lets the program write in
    /// place, whatever references there are.
    pub(super) fn is_exclusive(&self) -> bool {
        // SAFETY: The page is held, and anonymous.
        unsafe { bindings::page_anon_exclusive(self.page.0) }
    }

    /// What the entry says.
    pub(super) fn said(&self) -> Said {
        self.said
    }

    /// Takes the right to write away. A processor may still have it.
    pub(super) fn write_protect(&mut self) {
        let entry = self.entry;
        // SAFETY: The entry is valid while its table is locked.
        unsafe { bindings::ptep_set_wrprotect(entry.mm, entry.addr, entry.ptep) };
        self.said = Said {
            pte: entry.get(),
            writable: false,
        };
    }

    /// Makes the page one that is copied when it is written to, as after a fork; `false` if it is
    /// pinned. It must be exclusive and no processor be able to write to it.
    pub(super) fn share(&mut self) -> bool {
        let entry = self.entry;
        // SAFETY: The entry is valid while its table is locked. Who looks without the lock must not
        // find it while the mark is changed (`folio_try_share_anon_rmap_pte()`).
        unsafe {
            let pte = bindings::ptep_get_and_clear(entry.mm, entry.addr, entry.ptep);
            let refused =
                bindings::folio_try_share_anon_rmap_pte(self.page.folio(), self.page.0) != 0;
            entry.set(pte);
            self.said.pte = pte;
            !refused
        }
    }

    /// Takes the page away, as if a device had it for itself, with a mark in the entry. A processor may
    /// still have it.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if it is not the program's alone, or its folio is locked; `EBUSY` if somebody else holds
    /// it; `ours` is as for [`Held::is_held_by_others`].
    ///
    /// A fault that gives a page back locks the folio first, asks the notifiers then, and looks last
    /// whether the entry is still what it has seen. One that was let through for a former transfer would
    /// find it so. Where the folio is not locked, all faults still have to ask.
    pub(super) fn take_away(&self, mark: usize, ours: usize) -> Result {
        if !self.is_writable() || !self.is_exclusive() || self.page.is_locked() {
            return Err(EAGAIN);
        }
        let entry = self.entry;
        // SAFETY: The entry is valid while its table is locked. The page is pinned, and its mapping
        // by this entry stays one: only the form of the entry changes.
        unsafe {
            let pte = bindings::ptep_get_and_clear(entry.mm, entry.addr, entry.ptep);
            // Who pins it without the table's lock is seen here, or sees that the entry has changed
            // (gup_fast_pte_range() in mm/gup.c).
            if self.page.is_held_by_others(ours) {
                entry.set(pte);
                return Err(EBUSY);
            }
            // It will be, if it is not.
            bindings::folio_mark_dirty(self.page.folio());
            let away = with_mark(
                bindings::make_device_exclusive_pte(self.page.0.cast()),
                mark,
            );
            entry.set(if bindings::pte_soft_dirty(pte) {
                bindings::pte_swp_mksoft_dirty(away)
            } else {
                away
            });
        }
        Ok(())
    }
}

impl Mapped<'_, Simple<'_>> {
    /// Gives the right to write back, if the page is nobody else's but for references of ours, and if
    /// the core would give it without a fault (`maybe_change_pte_writable()` in mm/mprotect.c).
    pub(super) fn restore(&self, ours: Ours) -> bool {
        let entry = self.entry;
        let may_be_tracked = entry.of.vma.flags() & bindings::SDP_CONST_VM_SOFTDIRTY == 0;
        // SAFETY: Only looks at the value.
        let is_clean = || unsafe {
            bindings::pgtable_supports_soft_dirty() && !bindings::pte_soft_dirty(self.said.pte)
        };
        let tracked = may_be_tracked && is_clean();
        if tracked || self.is_writable() {
            return false;
        }
        self.page.with_exclusive(ours, || {
            // SAFETY: The page is mapped by this entry alone, and the program may write in the area.
            unsafe {
                bindings::set_page_anon_exclusive(self.page.0);
                entry.set(bindings::pte_mkwrite_novma(self.said.pte));
            }
        })
    }
}
