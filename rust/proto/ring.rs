// SPDX-License-Identifier: GPL-2.0

//! A queue of bounded length without allocation, used for adverts.

use core::hash::{
    Hash,
    Hasher, //
};

/// A first-in, first-out queue of at most `N` items.
///
/// # Invariants
///
/// `head < N` or both are 0. The `len` slots from `head` on, wrapping around at the end, hold
/// items; all others are `None`.
#[derive(Clone, Debug)]
pub struct Ring<T, const N: usize> {
    slots: [Option<T>; N],
    head: usize,
    len: usize,
}

impl<T, const N: usize> Default for Ring<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const N: usize> Ring<T, N> {
    /// An empty queue.
    pub const fn new() -> Self {
        // INVARIANT: no item, and all slots are `None`.
        Self {
            slots: [const { None }; N],
            head: 0,
            len: 0,
        }
    }

    /// The number of items.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no item.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is no room for another item.
    pub const fn is_full(&self) -> bool {
        self.len >= N
    }

    /// The slot of the item number `nth`, counted from the first.
    const fn slot(&self, nth: usize) -> usize {
        let slot = self.head.wrapping_add(nth);
        if slot < N {
            slot
        } else {
            slot.wrapping_sub(N)
        }
    }

    /// Adds an item behind all others.
    ///
    /// # Errors
    ///
    /// The item, if the queue is full.
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.is_full() {
            return Err(item);
        }
        let slot = self.slot(self.len);
        match self.slots.get_mut(slot) {
            Some(free) => *free = Some(item),
            None => return Err(item),
        }
        // INVARIANT: the slot behind the last item was free and is filled.
        self.len = self.len.wrapping_add(1);
        Ok(())
    }

    /// Removes the first item.
    pub fn pop(&mut self) -> Option<T> {
        let item = self.slots.get_mut(self.head)?.take()?;
        // INVARIANT: the slot at `head` is free, and no longer counted.
        self.head = self.slot(1);
        self.len = self.len.wrapping_sub(1);
        Some(item)
    }

    /// Removes the last item.
    pub fn pop_last(&mut self) -> Option<T> {
        let last = self.slot(self.len.checked_sub(1)?);
        let item = self.slots.get_mut(last)?.take()?;
        // INVARIANT: the slot of the last item is free, and no longer counted.
        self.len = self.len.wrapping_sub(1);
        Some(item)
    }

    /// The first item.
    pub fn first(&self) -> Option<&T> {
        self.slots.get(self.head)?.as_ref()
    }

    /// The first item.
    pub fn first_mut(&mut self) -> Option<&mut T> {
        self.slots.get_mut(self.head)?.as_mut()
    }

    /// The last item.
    pub fn last(&self) -> Option<&T> {
        let last = self.slot(self.len.checked_sub(1)?);
        self.slots.get(last)?.as_ref()
    }

    /// The last item.
    pub fn last_mut(&mut self) -> Option<&mut T> {
        let last = self.slot(self.len.checked_sub(1)?);
        self.slots.get_mut(last)?.as_mut()
    }

    /// All items, the first one first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots
            .split_at_checked(self.head)
            .into_iter()
            .flat_map(|(wrapped, from_head)| from_head.iter().chain(wrapped))
            .take(self.len)
            .filter_map(Option::as_ref)
    }

    /// All items, the first one first.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots
            .split_at_mut_checked(self.head)
            .into_iter()
            .flat_map(|(wrapped, from_head)| from_head.iter_mut().chain(wrapped))
            .take(self.len)
            .filter_map(Option::as_mut)
    }
}

/// Queues are equal if they hold the same items in the same order, in whichever slots.
impl<T: PartialEq, const N: usize> PartialEq for Ring<T, N> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Eq, const N: usize> Eq for Ring<T, N> {}

impl<T: Hash, const N: usize> Hash for Ring<T, N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len.hash(state);
        self.iter().for_each(|item| item.hash(state));
    }
}
