// SPDX-License-Identifier: GPL-2.0

//! Memory of a program that an adapter uses.

use kernel::bindings::page;

use super::absent::Receiving;
use super::lent::Lent;
use super::pin::Pinned;
use super::snapshot::Snapshot;

/// Pages of a program, and how they are kept.
pub(crate) enum Memory {
    /// Whoever waits for the transfer has them pinned, or has been killed.
    Pinned(Pinned),
    /// Nobody waits. The program is told when it may use the memory again, if the memory is its own.
    Lent(Lent),
    /// Nobody waits.
    Snapshot(Snapshot),
    /// Nobody waits, but for those who touch it.
    Receiving(Receiving),
}

impl Memory {
    /// The pages, in their order.
    pub(crate) fn pages(&self) -> &[*mut page] {
        match self {
            Self::Pinned(pinned) => pinned.pages(),
            Self::Lent(lent) => lent.pages(),
            Self::Snapshot(snapshot) => snapshot.pages(),
            Self::Receiving(receiving) => receiving.pages(),
        }
    }

    /// Where the bytes begin in the first page.
    pub(crate) fn offset(&self) -> u32 {
        match self {
            Self::Pinned(pinned) => pinned.offset(),
            Self::Lent(lent) => lent.offset(),
            Self::Snapshot(_) | Self::Receiving(_) => 0,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        match self {
            Self::Pinned(pinned) => pinned.len(),
            Self::Lent(lent) => lent.len(),
            Self::Snapshot(snapshot) => snapshot.len(),
            Self::Receiving(receiving) => receiving.len(),
        }
    }

    /// No call has promised what the adapter may still write.
    pub(crate) fn excuse(&self) {
        if let Self::Receiving(receiving) = self {
            receiving.excuse();
        }
    }

    /// The adapter does no more. Sleeps.
    pub(crate) fn conclude(&self) {
        match self {
            Self::Receiving(receiving) => receiving.conclude(),
            Self::Snapshot(snapshot) => snapshot.conclude(),
            Self::Pinned(_) | Self::Lent(_) => {}
        }
    }

    /// The adapter has written what it writes, or will write nothing: who touches the memory need not
    /// wait. In any context.
    pub(crate) fn open(&self) {
        if let Self::Receiving(receiving) = self {
            receiving.arrived();
        }
    }
}
