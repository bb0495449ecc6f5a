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

/// The parts, in stream order.
pub(crate) struct Hold {
    parts: KVec<Held>,
}

impl Hold {
    pub(crate) const fn new() -> Self {
        Self { parts: KVec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The number of parts.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// Makes room for so many more parts.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn reserve(&mut self, parts: usize, flags: Flags) -> Result {
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
        Ok(self.parts.push(held, flags)?)
    }

    /// Takes out the first part, and its charge, if the advert that it follows `has_arrived`.
    pub(crate) fn pop(&mut self, has_arrived: impl FnOnce(Id) -> bool) -> Option<(Frag, u32)> {
        if !has_arrived(self.parts.first()?.after) {
            return None;
        }
        let Held { frag, charge, .. } = self.parts.remove(0).ok()?;
        Some((frag, charge))
    }

    /// Drops everything; returns the charge.
    pub(crate) fn clear(&mut self) -> u32 {
        let charged = self.parts.iter().map(|held| held.charge).sum();
        self.parts.clear();
        charged
    }
}
