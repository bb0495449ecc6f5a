// SPDX-License-Identifier: GPL-2.0

//! The large folios to which transfers have references or pins, and the number of these references.
//!
//! A page of a large folio may be made writable again, or taken away, only if nobody else has a
//! reference to the folio. So the module must know its own references, those of all transfers in
//! all address spaces. References to small folios are not recorded: there a sender treats the
//! reference of a second transfer as a foreign one, and a receiver finds the pins of other
//! transfers by the address (`Receiving::pins_of`).

use kernel::bindings::page;
use kernel::prelude::*;
use kernel::rbtree::RBTree;

use super::held::Held;

/// A large folio, identified by its address; the address is never dereferenced.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Folio(pub(super) usize);

/// Pages of a folio that a transfer has references to, by their index in the folio.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) struct Pages {
    pub(super) first: usize,
    pub(super) count: usize,
}

impl Pages {
    fn contains(self, index: usize) -> bool {
        (self.first..self.first + self.count).contains(&index)
    }
}

type Tree = RBTree<Folio, KVec<Pages>>;

kernel::sync::global_lock! {
    // SAFETY: Initialised by `init`, before there is a socket.
    unsafe(uninit) static FOLIO_REFS: Mutex<Option<Tree>> = None;
}

/// Initialises the lock.
///
/// # Safety
///
/// Called once, when the module loads, before any other function of this layer.
pub(crate) unsafe fn init() {
    // SAFETY: As the caller promises.
    unsafe { FOLIO_REFS.init() };
}

/// Records references that the caller has.
///
/// # Errors
///
/// `ENOMEM`.
pub(super) fn add(folio: Folio, pages: Pages) -> Result {
    let mut refs = FOLIO_REFS.lock();
    let refs = refs.get_or_insert_with(RBTree::new);
    if let Some(all) = refs.get_mut(&folio) {
        return Ok(all.push(pages, GFP_KERNEL)?);
    }
    let mut all = KVec::new();
    all.push(pages, GFP_KERNEL)?;
    refs.try_create_and_insert(folio, all, GFP_KERNEL)?;
    Ok(())
}

/// The references of other transfers to a folio.
pub(super) struct Others<'a>(Option<&'a [Pages]>);

impl Others<'_> {
    /// The value for a small folio, whose references are not recorded.
    pub(super) const NONE: Self = Self(None);

    fn all(&self) -> impl Iterator<Item = &Pages> {
        self.0.iter().copied().flatten()
    }

    /// Whether the folio is a large one.
    pub(super) fn is_large(&self) -> bool {
        self.0.is_some()
    }

    /// The number of references.
    pub(super) fn count(&self) -> usize {
        self.all().map(|pages| pages.count).sum()
    }

    /// Whether one of them is to this page.
    pub(super) fn cover(&self, index: usize) -> bool {
        self.all().any(|pages| pages.contains(index))
    }
}

/// Removes references from the record. The caller still has them, and drops them in `f` or later.
/// Every transfer removes its references from the record before it drops them, and the record is
/// locked while `f` runs: so the number that `f` gets is at most the real number.
pub(super) fn remove(folio: Folio, pages: Pages, f: impl FnOnce(&Others<'_>)) {
    let mut refs = FOLIO_REFS.lock();
    let refs = refs.get_or_insert_with(RBTree::new);
    let Some(all) = refs.get_mut(&folio) else {
        return f(&Others(Some(&[])));
    };
    if let Some(at) = all.iter().position(|p| *p == pages) {
        // The order does not matter.
        let _ = all.remove(at);
    }
    f(&Others(Some(all)));
    if all.is_empty() {
        refs.remove(&folio);
    }
}

/// Runs `f`, which may ask for the recorded number of references to a folio: none are removed
/// meanwhile.
pub(super) fn with_counts<R>(f: impl FnOnce(&dyn Fn(Folio) -> usize) -> R) -> R {
    let refs = FOLIO_REFS.lock();
    f(&|folio| {
        let all = refs.as_ref().and_then(|refs| refs.get(&folio));
        Others(all.map(|all| all.as_slice())).count()
    })
}

/// A record of pins that exists as long as the value. It must be dropped before the pins.
pub(super) struct Noted(KVec<(Folio, Pages)>);

impl Noted {
    /// An empty record.
    pub(super) const NONE: Self = Self(KVec::new());

    /// Records those pages whose folios are large.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Safety
    ///
    /// The pages stay pinned as long as the value lives.
    pub(super) unsafe fn new(pages: &[*mut page]) -> Result<Self> {
        let mut noted = Self::NONE;
        let mut rest = pages;
        while let [first, ..] = rest {
            // SAFETY: As the caller promises.
            let held = |page: *mut page| unsafe { Held::new(page) };
            let first = held(*first);
            let in_order = |(i, page): &(usize, &*mut page)| {
                let page = held(**page);
                page.folio() == first.folio() && page.index_in_folio() == first.index_in_folio() + i
            };
            let count = rest.iter().enumerate().take_while(in_order).count().max(1);
            if first.is_large() {
                let run = (
                    Folio(first.folio() as usize),
                    Pages {
                        first: first.index_in_folio(),
                        count,
                    },
                );
                noted.0.reserve(1, GFP_KERNEL)?;
                add(run.0, run.1)?;
                // The place was reserved above.
                let _ = noted.0.push_within_capacity(run);
            }
            rest = rest.get(count..).unwrap_or(&[]);
        }
        Ok(noted)
    }

    /// Whether no folio was large.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        for (folio, pages) in self.0.iter() {
            remove(*folio, *pages, |_| ());
        }
    }
}
