// SPDX-License-Identifier: GPL-2.0

//! Snapshots of the same page are taken one after the other.
//!
//! A snapshot takes the right to write away, flushes, and then takes an entry that is still read-only for
//! a page that nobody has written to since the flush. This needs that no other snapshot takes the right to
//! write away in between: then the program may have written to the page after the flush, and a processor
//! may keep a stale entry that allows to write, until the other snapshot has flushed too.

use core::ops::Range;

use kernel::prelude::*;
use kernel::sync::Arc;

use crate::bindings::mm_struct;
use crate::kern::completion::Completion;

kernel::sync::global_lock! {
    // SAFETY: Initialised by `init`, before there is a socket.
    unsafe(uninit) static TURNS: Mutex<KVec<Arc<Turn>>> = KVec::new();
}

/// Makes the lock usable.
///
/// # Safety
///
/// Called once, when the module loads, before anything else here.
pub(super) unsafe fn init() {
    // SAFETY: As the caller promises.
    unsafe { TURNS.init() };
}

/// Frees the list. No socket is left.
pub(super) fn stop() {
    // A static is never dropped.
    *TURNS.lock() = KVec::new();
}

/// Whose turn it is.
#[pin_data]
struct Turn {
    /// The address space, by its address: it is a name here, no more.
    mm: usize,
    range: Range<usize>,
    #[pin]
    over: Completion,
}

impl Turn {
    fn overlaps(&self, other: &Self) -> bool {
        self.mm == other.mm
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

/// The turn of a snapshot, until this goes.
pub(super) struct OneAtATime(Arc<Turn>);

impl OneAtATime {
    /// Waits until no other snapshot has its turn on a page of the range. The caller holds the lock of the
    /// address space for reading. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn begin(mm: *mut mm_struct, range: Range<usize>) -> Result<Self> {
        let mm = mm.addr();
        let turn = Arc::pin_init(
            pin_init!(Turn { mm, range, over <- Completion::new() }),
            GFP_KERNEL,
        )?;
        loop {
            let mut turns = TURNS.lock();
            let Some(other) = turns.iter().find(|other| other.overlaps(&turn)).cloned() else {
                turns.push(turn.clone(), GFP_KERNEL)?;
                return Ok(Self(turn));
            };
            drop(turns);
            // For two walks and a flush.
            other.over.wait_unkillable();
        }
    }
}

impl Drop for OneAtATime {
    fn drop(&mut self) {
        let mut turns = TURNS.lock();
        let ours = turns.iter().position(|turn| Arc::ptr_eq(turn, &self.0));
        let taken = ours.map(|at| turns.remove(at));
        drop(turns);
        self.0.over.complete_all();
        drop(taken);
    }
}
