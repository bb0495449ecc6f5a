// SPDX-License-Identifier: GPL-2.0

//! Payload that has arrived while earlier bytes of the stream are still in the peer's memory.

use kernel::alloc::Flags;
use kernel::prelude::*;

use crate::mm::frag::Frag;
use crate::proto::advert::Id;

/// A part of such payload.
struct Held {
    /// The advert of the peer that it follows in the stream.
    after: Id,
    frag: Frag,
    /// The bytes that are charged for it.
    charge: u32,
}

/// The parts, in stream order. A peer can make many, which are taken out one after the other under
/// the socket lock: so taking out the first one does not move the others.
pub(crate) struct Hold {
    /// The parts that were taken out are `None`, and come first.
    parts: KVec<Option<Held>>,
    /// The number of parts that were taken out.
    taken: usize,
}

impl Hold {
    pub(crate) const fn new() -> Self {
        Self {
            parts: KVec::new(),
            taken: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of parts.
    pub(crate) fn len(&self) -> usize {
        self.parts.len() - self.taken
    }

    /// Makes room for so many more parts.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn reserve(&mut self, parts: usize, flags: Flags) -> Result {
        self.forget_taken();
        Ok(self.parts.reserve(parts, flags)?)
    }

    /// Appends payload.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; the fragment is dropped then.
    pub(crate) fn push(&mut self, after: Id, frag: Frag, charge: u32, flags: Flags) -> Result {
        let held = Held {
            after,
            frag,
            charge,
        };
        self.forget_taken();
        Ok(self.parts.push(Some(held), flags)?)
    }

    /// Makes the places of the parts that were taken out free, once they are at least half of all.
    fn forget_taken(&mut self) {
        if self.taken > 0 && self.taken >= self.len() {
            let left = self.len();
            self.parts.rotate_left(self.taken);
            self.parts.truncate(left);
            self.taken = 0;
        }
    }

    /// Takes out the first part, and its charge, if the advert that it follows `has_arrived`.
    pub(crate) fn pop(&mut self, has_arrived: impl FnOnce(Id) -> bool) -> Option<(Frag, u32)> {
        let first = self.parts.get_mut(self.taken)?;
        if !has_arrived(first.as_ref()?.after) {
            return None;
        }
        let Held { frag, charge, .. } = first.take()?;
        self.taken += 1;
        Some((frag, charge))
    }

    /// Drops everything; returns the charge.
    pub(crate) fn clear(&mut self) -> u32 {
        let charged = self.parts.iter().flatten().map(|held| held.charge).sum();
        self.parts.clear();
        self.taken = 0;
        charged
    }
}
