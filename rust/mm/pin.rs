// SPDX-License-Identifier: GPL-2.0

//! Pages of a program that are pinned while an adapter uses them.

use core::ptr;

use kernel::bindings::page;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

use super::folio_refs::Noted;
use super::held::Held;
use super::mmu_notifier;
use crate::bindings;
use crate::kern::errno::ENOBUFS;
use crate::kern::iov::{
    Access,
    Direction,
    Iov, //
};
use crate::stats::counters::{
    Counter,
    Stats, //
};

/// The pages that a `get` function of the kernel writes to a list with `count` places. `get`
/// returns their number, or an error.
pub(super) fn pages_by<P>(
    count: usize,
    get: impl FnOnce(*mut *mut P) -> isize,
) -> Result<KVec<*mut page>> {
    let mut pages = KVec::with_capacity(count, GFP_KERNEL)?;
    let list: *mut *mut page = pages.spare_capacity_mut().as_mut_ptr().cast();
    let got = get(list.cast());
    match usize::try_from(got) {
        Ok(0) => Err(EFAULT),
        Ok(got) => {
            // SAFETY: `got` entries were written.
            unsafe { pages.inc_len(got) };
            Ok(pages)
        }
        Err(_) => Err(Error::from_errno(got as i32)),
    }
}

/// The size of the folios of some pages in bytes: a reference to one page holds the whole folio.
/// Only pages of hugetlbfs count individually: they were reserved before, and nobody else can use
/// the rest.
///
/// # Safety
///
/// The caller has references to the pages.
pub(super) unsafe fn folio_bytes(pages: &[*mut page]) -> usize {
    let mut last = ptr::null_mut();
    let mut count = 0;
    for page in pages {
        // SAFETY: As the caller promises.
        let held = unsafe { Held::new(*page) };
        if held.is_hugetlb() {
            count += 1;
        } else if held.folio() != last {
            count += held.folio_pages();
            last = held.folio();
        }
    }
    count * PAGE_SIZE
}

/// A charge to the limit of memory that a user may lock (RLIMIT_MEMLOCK), as for MSG_ZEROCOPY:
/// users without a limit are not charged.
///
/// # Invariants
///
/// `charged` holds the charged amount, which is given back once.
pub(super) struct Locked {
    charged: bindings::ubuf_info_msgzc_mmpin,
}

impl Locked {
    /// # Errors
    ///
    /// `ENOBUFS` beyond the limit.
    pub(super) fn charge(bytes: usize, stats: Stats) -> Result<Self> {
        let mut charged = bindings::ubuf_info_msgzc_mmpin::default();
        // SAFETY: We are in process context, and the value is a new one.
        if unsafe { bindings::mm_account_pinned_pages(&raw mut charged, bytes) } != 0 {
            stats.inc(Counter::MemlockRefused);
            return Err(ENOBUFS);
        }
        // INVARIANT: Just charged, or free of charge.
        Ok(Self { charged })
    }

    /// Whether the user has no limit.
    pub(super) fn is_unlimited(&self) -> bool {
        self.charged.user.is_null()
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::mm_unaccount_pinned_pages(&raw mut self.charged) };
    }
}

/// Whether the current program could write to this memory without a fault: all pages are present,
/// and none is shared, protected or the target of a receive. The answer may be out of date at once.
pub(crate) fn is_writable(start: usize, bytes: usize) -> bool {
    let end = start.saturating_add(bytes);
    let mut at = start - start % PAGE_SIZE;
    while at < end {
        let mut pages = [ptr::null_mut(); 16];
        let want = (end - at).div_ceil(PAGE_SIZE).min(pages.len());
        let flags = bindings::SDP_CONST_FOLL_WRITE;
        // SAFETY: The list has room for `want` pages; the function neither faults nor sleeps.
        let got = unsafe {
            bindings::get_user_pages_fast_only(at, want as i32, flags, pages.as_mut_ptr())
        };
        let got = got.max(0) as usize;
        for page in pages.iter().take(got) {
            // SAFETY: Just referenced.
            unsafe { bindings::put_page((*page).cast()) };
        }
        if got < want {
            return false;
        }
        at += want * PAGE_SIZE;
    }
    true
}

/// Whether no file system takes part in writing to the pages ([`Held::is_memory`]). When pages of
/// another file are unpinned, the core waits for the lock of their folio, which a file system holds
/// for as long as it likes: a FUSE server could stop all workers of the module.
///
/// # Safety
///
/// The caller has references to the pages.
unsafe fn pages_are_memory(pages: &[*mut page]) -> bool {
    pages.iter().all(|page| {
        // SAFETY: As the caller promises.
        let held = unsafe { Held::new(*page) };
        held.is_memory()
    })
}

/// How long pages stay pinned.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Term {
    /// Until an adapter has written the bytes that are already available, as for direct I/O; or, if
    /// the adapter only reads, until the peer has read.
    Short,
    /// As [`Term::Short`], for a send whose notification is charged for the memory
    /// (RLIMIT_MEMLOCK).
    Lent,
    /// Until a peer has written. Memory of files whose file system must learn of writes cannot be
    /// pinned for this term, and the kernel may first move pages to a place where they may stay.
    Long,
}

/// A run of bytes in pinned pages of a program.
///
/// # Invariants
///
/// Every entry of `pages` is pinned once by this value; the bytes begin at `offset` in the first
/// page and end in the last. The value is dropped before the socket that owns its `stats`.
pub(crate) struct Pinned {
    pages: KVec<*mut page>,
    offset: u32,
    len: u32,
    access: Access,
    stats: Stats,
    noted: Noted,
    locked: Option<Locked>,
}

// SAFETY: Any thread may unpin pages.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Pins the next bytes of `iter` that lie in one piece, at most `max_bytes` in `max_pages`
    /// pages, and takes them from `iter`. Faults pages in: no lock may be held.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` if the user may not lock so much memory, `ENOMEM`; `EFAULT` and others if not even
    /// the first page can be pinned, the bytes are not memory of a program, or the adapter would
    /// write to pages of a file that is not in memory alone. In these cases `iter` is unchanged.
    pub(crate) fn new<D: Direction>(
        iter: &mut Iov<'_, D>,
        max_bytes: usize,
        max_pages: usize,
        term: Term,
        stats: Stats,
    ) -> Result<Self> {
        let piece = iter.piece().ok_or(EFAULT)?;
        let start = piece.addr;
        let want = piece.len.min(max_bytes);
        // Faulting in pages that wait for bytes would hold a lock during the wait.
        if let Some(mm) = current!().mm() {
            mmu_notifier::await_bytes(mm, start, start.saturating_add(want))?;
        }
        let offset = start % PAGE_SIZE;
        let count = (offset + want).div_ceil(PAGE_SIZE).min(max_pages);
        if want == 0 || count == 0 {
            // The core's fast path does not check this.
            return Err(EFAULT);
        }
        let want = want.min(count * PAGE_SIZE - offset);
        let mut flags = 0;
        if D::ACCESS == Access::Write {
            flags |= bindings::SDP_CONST_FOLL_WRITE;
        }
        if term == Term::Long {
            flags |= bindings::SDP_CONST_FOLL_LONGTERM;
        }
        let pages = pages_by(count, |list| {
            // SAFETY: The list has room for `count` pages; no lock is held.
            unsafe {
                bindings::pin_user_pages_fast(start - offset, count as i32, flags, list) as isize
            }
        })?;
        let len = want.min(pages.len() * PAGE_SIZE - offset);
        stats.add(Counter::PinnedBytes, len as u64);
        // INVARIANT: The core has pinned them for us.
        let mut pinned = Self {
            pages,
            offset: offset as u32,
            len: len as u32,
            access: D::ACCESS,
            stats,
            noted: Noted::NONE,
            locked: None,
        };
        // SAFETY: They are pinned.
        let are_memory = || unsafe { pages_are_memory(&pinned.pages) };
        if D::ACCESS == Access::Write && !are_memory() {
            // They were not written to, so they are unpinned as after a read.
            pinned.access = Access::Read;
            return Err(EFAULT);
        }
        if term != Term::Lent {
            // SAFETY: They are pinned.
            let bytes = unsafe { folio_bytes(&pinned.pages) };
            pinned.locked = Some(Locked::charge(bytes, stats)?);
        }
        // SAFETY: They are pinned as long as the value lives, and its drop removes the record
        // first.
        pinned.noted = unsafe { Noted::new(&pinned.pages)? };
        iter.advance(len);
        Ok(pinned)
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    /// The pages, in their order.
    pub(crate) fn pages(&self) -> &[*mut page] {
        &self.pages
    }
}

impl Drop for Pinned {
    /// Takes the locks of the folios if the pages were written to; only for a short time, because
    /// they are memory alone.
    fn drop(&mut self) {
        self.noted = Noted::NONE;
        self.stats.add(Counter::UnpinnedBytes, self.len.into());
        let (list, count) = (self.pages.as_mut_ptr(), self.pages.len());
        // SAFETY: By the type invariant. The value is dropped in process context, after the adapter
        // has stopped using the pages.
        unsafe {
            match self.access {
                Access::Read => bindings::unpin_user_pages(list.cast(), count),
                Access::Write => bindings::unpin_user_pages_dirty_lock(list.cast(), count, true),
            }
        }
    }
}
