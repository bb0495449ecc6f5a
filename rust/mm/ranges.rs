// SPDX-License-Identifier: GPL-2.0

//! Transfers of an address space, by address.
//!
//! The set is searched with a page table locked, and one address space may have thousands of
//! transfers: so it is a tree.

use core::ops::Range;

use kernel::prelude::*;
use kernel::rbtree::{
    RBTree,
    RBTreeNode, //
};
use kernel::sync::{
    new_spinlock,
    Arc,
    SpinLock, //
};

/// An object that concerns a range of addresses, which never changes.
pub(super) trait Ranged {
    /// The range.
    fn range(&self) -> Range<usize>;
}

struct Tree<T> {
    /// The ranges, ordered by their start. Ranges with the same start are ordered by the address of
    /// their object.
    tree: RBTree<(usize, usize), Arc<T>>,
    /// The length of the longest range so far, in bytes.
    longest: usize,
}

/// A set of ranges, which may overlap.
#[pin_data]
pub(super) struct Ranges<T> {
    #[pin]
    tree: SpinLock<Tree<T>>,
}

fn key<T: Ranged>(range: &Arc<T>) -> (usize, usize) {
    (range.range().start, Arc::as_ptr(range) as usize)
}

impl<T: Ranged> Ranges<T> {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            tree <- new_spinlock!(
                Tree {
                    tree: RBTree::new(),
                    longest: 0,
                },
                "sdp_ranges"
            ),
        })
    }

    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn add(&self, range: &Arc<T>) -> Result {
        let node = RBTreeNode::new(key(range), range.clone(), GFP_KERNEL)?;
        let mut tree = self.tree.lock();
        tree.longest = tree.longest.max(range.range().len());
        let former = tree.tree.insert(node);
        // Dropped without the lock.
        drop(tree);
        drop(former);
        Ok(())
    }

    pub(super) fn remove(&self, range: &Arc<T>) {
        let node = self.tree.lock().tree.remove_node(&key(range));
        drop(node);
    }

    /// Calls `f` for each range that overlaps `range`, in the order of the addresses, until `f`
    /// returns a value.
    pub(super) fn find_map<R>(
        &self,
        range: Range<usize>,
        mut f: impl FnMut(&Arc<T>) -> Option<R>,
    ) -> Option<R> {
        let mut tree = self.tree.lock();
        let first = (range.start.saturating_sub(tree.longest), 0);
        // The kernel crate's read-only cursor cannot be moved.
        let mut cursor = tree.tree.cursor_lower_bound_mut(&first);
        while let Some(at) = cursor {
            let (_, one) = at.current();
            let its = one.range();
            if its.start >= range.end {
                break;
            }
            if its.end > range.start {
                if let Some(found) = f(one) {
                    return Some(found);
                }
            }
            cursor = at.move_next();
        }
        None
    }

    /// The first range that overlaps `range` and for which `is_such` holds.
    pub(super) fn find(
        &self,
        range: Range<usize>,
        is_such: impl Fn(&Arc<T>) -> bool,
    ) -> Option<Arc<T>> {
        self.find_map(range, |one| is_such(one).then(|| one.clone()))
    }
}
