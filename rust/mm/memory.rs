// SPDX-License-Identifier: GPL-2.0

//! Memory of a program that an adapter uses.

use kernel::bindings::page;

use super::async_dest::Receiving;
use super::lent::Lent;
use super::pin::Pinned;
use super::snapshot::Snapshot;

/// Pages of a program, and how they are held.
pub(crate) enum Memory {
    /// A call has pinned the pages, and waits for the transfer unless its thread was killed.
    Pinned(Pinned),
    /// A send without protection that has returned (MSG_ZEROCOPY, sendfile(), splice()). With
    /// MSG_ZEROCOPY, the program is notified when it may change the memory again.
    Lent(Lent),
    /// An asynchronous send that has returned: the pages are copy-on-write.
    Snapshot(Snapshot),
    /// A receive that has returned early: threads that access the pages wait.
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

    /// No call has promised the bytes that the adapter may still write.
    pub(crate) fn excuse(&self) {
        if let Self::Receiving(receiving) = self {
            receiving.excuse();
        }
    }

    /// The adapter does not access the pages any more. Sleeps.
    pub(crate) fn conclude(&self) {
        match self {
            Self::Receiving(receiving) => receiving.conclude(),
            Self::Snapshot(snapshot) => snapshot.conclude(),
            Self::Pinned(_) | Self::Lent(_) => {}
        }
    }

    /// The adapter has written all its bytes, or will not write any: threads that touch the memory
    /// need not wait. In any context.
    pub(crate) fn open(&self) {
        if let Self::Receiving(receiving) = self {
            receiving.arrived();
        }
    }
}
