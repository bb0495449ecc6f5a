// SPDX-License-Identifier: GPL-2.0

//! Page table entries of a program's private memory.
//!
//! The core's own walkers are not exported, or they allocate tables, split huge pages and clear
//! entries that they do not know. This walker looks at present tables only; the walk itself changes
//! nothing.

use core::borrow::Borrow;
use core::ops::Deref;

use super::age::STEPS;
use super::held::{
    Held,
    Ours, //
};
use crate::bindings::{
    self,
    mm_struct,
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

/// Whether memory can be protected on this machine. Other architectures were not tested.
pub(crate) const SUPPORTED: bool = cfg!(CONFIG_X86_64);

/// A range of a program's memory in one area, while the address space's lock is held for reading.
pub(super) struct Area<'a> {
    vma: &'a VmaRef,
    start: usize,
    end: usize,
}

impl<'a> Area<'a> {
    /// The part of the range that lies in the area at `start`, if there is such an area.
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
        // SAFETY: The area is valid as long as the lock is held.
        let vma = unsafe { VmaRef::from_raw(vma.cast()) };
        let end = end.min(vma.end());
        (vma.start() <= start).then_some(Self { vma, start, end })
    }

    /// The end address.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// Takes the pages of the range out, and leaves guard markers, which give SIGSEGV.
    ///
    /// # Safety
    ///
    /// The address space's lock is held for writing.
    pub(super) unsafe fn close(&self, start: usize, end: usize) {
        // SAFETY: As the caller promises; the function waits for holders of the area's own lock.
        unsafe { bindings::vma_start_write(self.vma.as_ptr().cast()) };
        self.vma.zap_vma_range(start, end - start);
        // SAFETY: As the caller promises; the area covers the range. An empty entry can take a
        // marker, and no counter includes markers.
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

    /// Whether the program has locked the area, as by mlock().
    pub(super) fn is_locked(&self) -> bool {
        self.vma.flags() & bindings::SDP_CONST_VM_LOCKED != 0
    }

    pub(super) fn pages(&self) -> usize {
        (self.end - self.start) / PAGE_SIZE
    }

    /// Whether all tables of the range are present, so no huge page contains a part of it. The
    /// answer may be out of date at once.
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

    /// As [`Area::walk`], where `f` takes access away. When this returns `true`, no processor has a
    /// former version of the entries in its TLB. `false` if this is not certain.
    ///
    /// The kernel exports no function that flushes. But `tlb_finish_mmu()` checks whether another
    /// flush is pending, and then flushes the whole address space.
    #[must_use]
    pub(super) fn walk_and_flush(&self, f: impl FnMut(&Entry<'_, Self>)) -> bool {
        if Rule::Flush.is_broken() {
            self.walk(f);
            return true;
        }
        // SAFETY: The address space is valid; the pending flush ends below.
        unsafe { bindings::inc_tlb_flush_pending(self.mm()) };
        self.walk(f);
        // Longer than the pause before the second step, so that a second step can come before the
        // flush of another snapshot.
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

/// Sleeps for some jiffies between two steps, if a test has broken [`Rule::AtOnce`].
pub(super) fn pause_if_broken(jiffies: isize) {
    if Rule::AtOnce.is_broken() {
        // SAFETY: The callers hold the lock of an address space for reading, and may sleep.
        unsafe { bindings::schedule_timeout_uninterruptible(jiffies) };
    }
}

/// An area of the program's own pages, private, anonymous and writable: the write permission is
/// restored only in such an area.
pub(super) struct Simple<'a>(Area<'a>);

impl<'a> Simple<'a> {
    /// As [`Area::any`], if the area can be protected here.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be protected.
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

    /// As [`Simple::any`], or any area if [`Rule::Area`] is broken.
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

/// The value of an entry (`ptep_get()`): where [`SUPPORTED`], a single load.
///
/// # Safety
///
/// The table of the entry is locked.
unsafe fn read(ptep: *const pte_t) -> pte_t {
    // SAFETY: As the caller promises; processors may set the accessed and dirty bits meanwhile.
    unsafe { ptep.read_volatile() }
}

/// Calls `f` with every entry of the range that has a table, and its address, under the table's
/// lock.
///
/// # Safety
///
/// The address space's lock is held, or another lock that keeps the upper tables of the range.
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

/// Locks the last table for `addr`, if there is one; the table stays while the value lives.
///
/// # Safety
///
/// As for [`walk`].
unsafe fn lock_table(mm: *mut mm_struct, addr: usize) -> Option<Table> {
    // SAFETY: As the caller promises.
    let pmdp = unsafe { table_entry(mm, addr)? };
    loop {
        // SAFETY: The last table may be removed at any time, but its memory stays until the end of
        // a grace period. With its lock held, and if the entry above is unchanged, the table stays.
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

/// The entry that refers to the last table for `addr`, if the tables above it are present.
///
/// # Safety
///
/// As for [`walk`].
unsafe fn table_entry(mm: *mut mm_struct, addr: usize) -> Option<*mut pmd_t> {
    // SAFETY: As the caller promises: the upper tables stay if they are present.
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

/// The value of an entry, if it refers to a table and not to a huge page or to nothing. The answer
/// may be out of date at once.
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
    /// The index of the page in a range that begins at `base`.
    pub(super) fn index(&self, base: usize) -> usize {
        (self.addr - base) / PAGE_SIZE
    }

    fn get(&self) -> pte_t {
        // SAFETY: The entry is valid while its table is locked.
        unsafe { read(self.ptep) }
    }

    fn set(&self, pte: pte_t) {
        // SAFETY: As above; the value is a variant of the previous one.
        unsafe { bindings::set_pte_at(self.mm, self.addr, self.ptep, pte) };
    }

    /// The address of the page.
    pub(super) fn addr(&self) -> usize {
        self.addr
    }

    /// The end of the addresses that the table maps, or `end` if that is lower.
    pub(super) fn table_end(&self, end: usize) -> usize {
        // SAFETY: No precondition.
        unsafe { bindings::pmd_addr_end(self.addr, end) }
    }

    /// The entry, if it is a device-exclusive entry for the page.
    pub(super) fn is_away(&self, page: Held) -> Option<Away<'_, A>> {
        let pte = self.get();
        // SAFETY: Only reads the value; the page is held.
        let away = unsafe {
            is_device_exclusive(pte)
                && bindings::pte_device_exclusive_page(pte).cast() == page.as_ptr()
                && !bindings::pte_swp_uffd(pte)
                && bindings::page_anon_exclusive(page.as_ptr())
        };
        away.then_some(Away { entry: self, page })
    }

    /// The entry, if it is an ordinary mapping of the anonymous page: not of a page of KSM, and not
    /// for a fault of NUMA balancing.
    pub(super) fn maps(&self, page: Held) -> Option<Mapped<'_, A>> {
        let pte = self.get();
        // SAFETY: Only reads; the page is held.
        let plain = unsafe {
            bindings::pte_present(pte)
                && !bindings::pte_protnone(pte)
                && bindings::pte_pfn(pte) == bindings::page_to_pfn(page.as_ptr())
                && !bindings::pte_uffd(pte)
                && bindings::page_anon(page.as_ptr())
                && !bindings::folio_test_ksm(page.folio())
        };
        plain.then(|| Mapped {
            entry: self,
            page,
            said: Said::new(pte),
        })
    }

    /// As [`Entry::maps`], if the entry had the value `said` before, and the page was held since:
    /// properties that do not change while the page is held are not checked again.
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

/// The value of an entry that maps a page.
#[derive(Copy, Clone)]
pub(super) struct Said {
    pte: pte_t,
    writable: bool,
}

impl Said {
    fn new(pte: pte_t) -> Self {
        Self {
            pte,
            // SAFETY: Only reads the value.
            writable: unsafe { bindings::pte_write(pte) },
        }
    }
}

fn is_device_exclusive(pte: pte_t) -> bool {
    // SAFETY: Only reads the value.
    unsafe {
        !bindings::pte_none(pte)
            && !bindings::pte_present(pte)
            && bindings::pte_device_exclusive(pte)
    }
}

/// The bits of an entry's offset above the page frame number, which has at most 40 bits on x86. The
/// core uses the first two of them, but not in a device-exclusive entry.
const MARK_SHIFT: u32 = 40;
const MARK_MASK: usize = (STEPS - 1) << MARK_SHIFT;

/// The device-exclusive entry with another mark.
///
/// # Safety
///
/// `pte` is a device-exclusive entry, and its page stays valid.
unsafe fn with_mark(pte: pte_t, mark: usize) -> pte_t {
    // SAFETY: As the caller promises; the new value differs only in the mark.
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

/// Changes the marks of device-exclusive entries: a fault that is about to restore one finds that
/// the entry has changed, and is repeated. `mark` is called for the new mark with the entry's table
/// locked; if it returns none, the entry is unchanged.
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
    // SAFETY: As the caller promises; the new entry is a variant of the present one.
    unsafe {
        walk(mm, start, end, |ptep, addr| {
            let pte = read(ptep);
            if let (true, Some(mark)) = (is_device_exclusive(pte), mark()) {
                bindings::set_pte_at(mm, addr, ptep, with_mark(pte, mark));
            }
        });
    }
}

/// The young bit of a read-only entry: a write of the program through such an entry makes a copy.
pub(super) struct Seen {
    young: bool,
}

/// The state of the entry of an address, if a write to its page makes a copy.
///
/// # Safety
///
/// As for [`walk`].
pub(super) unsafe fn copied_on_write(mm: *mut mm_struct, addr: usize) -> Option<Seen> {
    let mut seen = None;
    // SAFETY: As the caller promises; only reads.
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
    // SAFETY: Only reads the value.
    unsafe {
        bindings::pte_present(pte) && !bindings::pte_protnone(pte) && !bindings::pte_write(pte)
    }
}

/// Changes an entry through which a program is about to get a copy: the fault finds that the entry
/// has changed since it was `seen`, and is repeated. Only the young bit changes, which says that
/// the page was used recently. All threads that have seen the same value set the same new value. If
/// a thread has seen the entry after another thread's change, or the processor changes the bit
/// back, a copy may be made nevertheless.
///
/// # Safety
///
/// As for [`walk`].
pub(super) unsafe fn stir(mm: *mut mm_struct, addr: usize, seen: &Seen) {
    // SAFETY: As the caller promises. The entry is cleared before it is changed, so an accessed or
    // dirty bit that the processor sets in between is not lost, and nobody uses the entry
    // meanwhile.
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

/// A device-exclusive entry.
pub(super) struct Away<'a, A> {
    entry: &'a Entry<'a, A>,
    page: Held,
}

impl Away<'_, Simple<'_>> {
    /// Gives the page back; its content has changed.
    pub(super) fn give_back(&self) {
        let area = self.entry.of;
        // SAFETY: The entry is valid while its table is locked, and is the only mapping of the
        // page, by this address space. The program may write in the area.
        unsafe {
            let pte = bindings::vma_mk_pte(area.vma.as_ptr().cast(), self.page.as_ptr().cast());
            let pte = bindings::pte_mkdirty(bindings::pte_mkwrite_novma(pte));
            self.entry.set(pte);
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

    /// Whether the page is marked as exclusive to this entry: on a fault the program may then write
    /// in place, whatever references exist.
    pub(super) fn is_exclusive(&self) -> bool {
        // SAFETY: The page is held, and anonymous.
        unsafe { bindings::page_anon_exclusive(self.page.as_ptr()) }
    }

    /// The value of the entry.
    pub(super) fn said(&self) -> Said {
        self.said
    }

    /// Removes the write permission. A processor may still have it in its TLB.
    pub(super) fn write_protect(&mut self) {
        let entry = self.entry;
        // SAFETY: The entry is valid while its table is locked.
        unsafe { bindings::ptep_set_wrprotect(entry.mm, entry.addr, entry.ptep) };
        self.said = Said {
            pte: entry.get(),
            writable: false,
        };
    }

    /// Turns the page into one that is copied when it is written to, as after a fork; `false` if
    /// the page is pinned. It must be exclusive, and no processor may be able to write to it.
    pub(super) fn share(&mut self) -> bool {
        let entry = self.entry;
        // SAFETY: The entry is valid while its table is locked. Code that reads the entry without
        // the lock must not find it while the exclusive mark changes
        // (`folio_try_share_anon_rmap_pte()`).
        unsafe {
            let pte = bindings::ptep_get_and_clear(entry.mm, entry.addr, entry.ptep);
            let refused =
                bindings::folio_try_share_anon_rmap_pte(self.page.folio(), self.page.as_ptr()) != 0;
            entry.set(pte);
            self.said.pte = pte;
            !refused
        }
    }

    /// Takes the page away: replaces the entry by a device-exclusive entry with a mark. A processor
    /// may still have the former entry in its TLB.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the page is not the program's alone, or its folio is locked; `EBUSY` if somebody
    /// else holds it; `ours` is as for [`Held::is_held_by_others`].
    ///
    /// A fault that restores the page first locks the folio, then calls the notifiers, and finally
    /// checks whether the entry is unchanged. A fault that has called the notifiers for a former
    /// transfer, and holds the folio lock, would find the entry unchanged and map the page. So the
    /// page is not taken while the folio is locked. A fault that locks the folio later calls the
    /// notifiers for this transfer.
    pub(super) fn take_away(&self, mark: usize, ours: impl Fn() -> usize) -> Result {
        if !self.is_writable() || !self.is_exclusive() || self.page.is_locked() {
            return Err(EAGAIN);
        }
        let entry = self.entry;
        // SAFETY: The entry is valid while its table is locked. The page is pinned, and stays
        // mapped by this entry: only the form of the entry changes.
        unsafe {
            let pte = bindings::ptep_get_and_clear(entry.mm, entry.addr, entry.ptep);
            // Code that pins the page without the table's lock is seen here, or sees that the entry
            // has changed (gup_fast_pte_range() in mm/gup.c).
            if self.page.is_held_by_others(ours) {
                entry.set(pte);
                return Err(EBUSY);
            }
            // The adapter will write to the page.
            bindings::folio_mark_dirty(self.page.folio());
            let away = with_mark(
                bindings::make_device_exclusive_pte(self.page.as_ptr().cast()),
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
    /// Restores the write permission, if only the module has other references to the page, and if
    /// the core would grant it without a fault (`maybe_change_pte_writable()` in mm/mprotect.c).
    pub(super) fn restore(&self, ours: Ours) -> bool {
        let entry = self.entry;
        let may_be_tracked = entry.of.vma.flags() & bindings::SDP_CONST_VM_SOFTDIRTY == 0;
        // SAFETY: Only reads the value.
        let is_clean = || unsafe {
            bindings::pgtable_supports_soft_dirty() && !bindings::pte_soft_dirty(self.said.pte)
        };
        let tracked = may_be_tracked && is_clean();
        if tracked || self.is_writable() {
            return false;
        }
        self.page.with_exclusive(ours, || {
            // SAFETY: The page is mapped by this entry alone, and the program may write in the
            // area.
            unsafe {
                bindings::set_page_anon_exclusive(self.page.as_ptr());
                entry.set(bindings::pte_mkwrite_novma(self.said.pte));
            }
        })
    }
}

/// Does not compile if [`Away::give_back`] or [`Mapped::restore`] exists for an [`Area`], which may
/// be of any kind: a method of the type itself is preferred to that of the trait, and has another
/// result.
const _: fn(&Away<'_, Area<'_>>, &Mapped<'_, Area<'_>>, Ours) = |away, mapped, ours| {
    struct Refused;
    trait UnlessGiven {
        fn give_back(&self) -> Refused {
            Refused
        }
        fn restore(&self, _: Ours) -> Refused {
            Refused
        }
    }
    impl<A> UnlessGiven for Away<'_, A> {}
    impl<A> UnlessGiven for Mapped<'_, A> {}
    let (Refused, Refused) = (away.give_back(), mapped.restore(ours));
};
