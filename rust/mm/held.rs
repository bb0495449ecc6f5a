// SPDX-License-Identifier: GPL-2.0

//! Pages to which the module has references, and checks whether others have references to them,
//! too.

use crate::bindings::{
    self,
    folio,
    page, //
};
use crate::params::breaks::Rule;

/// References of the module to the folio of a page.
#[derive(Copy, Clone)]
pub(super) enum Ours {
    /// One reference: the folio has no other page.
    Page,
    /// The number of references to a large folio.
    Folio(usize),
}

/// A page to which the caller has a reference, so that it stays the same page, in the same folio.
#[derive(Copy, Clone)]
pub(super) struct Held(*mut page);

impl Held {
    /// # Safety
    ///
    /// The caller has a reference as long as the value is used.
    pub(super) unsafe fn new(page: *mut page) -> Self {
        Self(page)
    }

    pub(super) fn as_ptr(self) -> *mut page {
        self.0
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

    /// Whether it is a page of hugetlbfs.
    pub(super) fn is_hugetlb(self) -> bool {
        // SAFETY: By the type's promise.
        unsafe { bindings::folio_test_hugetlb(self.folio()) }
    }

    /// Whether it is a page of memory alone: anonymous, of shmem or of hugetlbfs. The file system of
    /// any other page takes part in writing to it.
    pub(super) fn is_memory(self) -> bool {
        // SAFETY: By the type's promise.
        let is_swapped =
            unsafe { bindings::page_anon(self.0) || bindings::folio_test_swapbacked(self.folio()) };
        is_swapped || self.is_hugetlb()
    }

    /// Whether its folio is locked. The folio lock and the lock of a page table are full barriers
    /// where [`SUPPORTED`](super::pte::SUPPORTED).
    pub(super) fn is_locked(self) -> bool {
        // SAFETY: By the type's promise.
        unsafe { bindings::folio_test_locked(self.folio()) }
    }

    /// Its index in its folio.
    pub(super) fn index_in_folio(self) -> usize {
        // SAFETY: By the type's promise.
        unsafe { bindings::folio_page_idx(self.folio(), self.0) }
    }

    /// The number of pages of its folio.
    pub(super) fn folio_pages(self) -> usize {
        // SAFETY: By the type's promise.
        unsafe { bindings::folio_nr_pages(self.folio()) as usize }
    }

    /// References to a page that is alone in its folio (`page_ref_count()`).
    fn references(self) -> i32 {
        // SAFETY: By the type's promise. Others change the counter atomically.
        unsafe { (&raw const (*self.0)._refcount.counter).read_volatile() }
    }

    /// Whether somebody else has pinned the page or has a reference to it, and so can read it
    /// without the page tables. `ours` returns the number of the module's pins of the page, or of
    /// the large folio that contains it. It must not count a pin any more when the pin is dropped.
    ///
    /// If a folio is in no LRU list, a processor that is about to add it may have a reference.
    pub(super) fn is_held_by_others(self, ours: impl Fn() -> usize) -> bool {
        let folio = self.folio();
        // SAFETY: The page is held.
        let known = || unsafe {
            let by_us = if self.is_large() {
                bindings::folio_large_mapcount(folio) as usize + ours()
            } else {
                1 + bindings::SDP_CONST_GUP_PIN_COUNTING_BIAS as usize * ours()
            };
            let of_cache = if bindings::folio_test_swapcache(folio) {
                self.folio_pages()
            } else {
                0
            };
            by_us + of_cache + usize::from(!bindings::folio_test_lru(folio))
        };
        // The known references may change together with the count: one that is dropped must not
        // hide a foreign reference, and a new one must not make room for it.
        let before = known();
        // SAFETY: The page is held.
        let count = unsafe { bindings::folio_ref_count(folio) } as usize;
        count > before.min(known())
    }

    /// Calls `f` if the page belongs to this address space alone, except for references of the
    /// module. Returns whether it did. Exact counts are needed: another holder of a reference could
    /// read the bytes that the program writes later.
    ///
    /// The core makes the same check before it lets a program write to a page that it has shared
    /// (`wp_can_reuse_anon_folio()` in mm/memory.c).
    pub(super) fn with_exclusive(self, ours: Ours, f: impl FnOnce()) -> bool {
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
                // With the lock held, KSM and the swap cache cannot take the page.
                if !bindings::folio_trylock(folio) {
                    return false;
                }
                // The module's reference and that of this mapping: further mappings would have
                // references of their own, and so would the swap cache. KSM may have turned the
                // page into a KSM page in place: it does not compare the references of a page that
                // is clean and was already shared.
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
