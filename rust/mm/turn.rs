// SPDX-License-Identifier: GPL-2.0

//! Snapshots of the same page are taken one after the other.
//!
//! A snapshot removes the write permission, flushes, and then assumes that nobody has written to a
//! page since the flush if its entry is still read-only. So no other snapshot may remove the write
//! permission in between: otherwise the program may have written to the page after the flush, and a
//! processor may keep a stale TLB entry that permits writes, until the other snapshot has flushed,
//! too.

use core::ops::Range;

use kernel::prelude::*;
use kernel::sync::Arc;

use crate::bindings::mm_struct;
use crate::kern::completion::{
    Completion,
    FOR_EVER, //
};

kernel::sync::global_lock! {
    // SAFETY: Initialised by `init`, before there is a socket.
    unsafe(uninit) static TURNS: Mutex<KVec<Arc<Turn>>> = KVec::new();
}

/// Initialises the lock.
///
/// # Safety
///
/// Called once, when the module loads, before any other function of this layer.
pub(super) unsafe fn init() {
    // SAFETY: As the caller promises.
    unsafe { TURNS.init() };
}

/// Frees the list. No socket is left.
pub(super) fn stop() {
    // A static is never dropped.
    *TURNS.lock() = KVec::new();
}

/// A snapshot that has its turn, or waits for it.
#[pin_data]
struct Turn {
    /// The address of the address space, used only for comparison.
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

/// The place of a snapshot in the list, as long as the value lives.
pub(super) struct OneAtATime(Arc<Turn>);

impl OneAtATime {
    /// Waits until each earlier snapshot of a page of the range has had its turn. The caller holds
    /// the lock of the address space for reading. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EINTR` if the thread is being killed.
    pub(super) fn begin(mm: *mut mm_struct, range: Range<usize>) -> Result<Self> {
        let mm = mm.addr();
        let turn = pin_init!(Turn {
            mm,
            range,
            over <- Completion::new(),
        });
        let turn = Self(Arc::pin_init(turn, GFP_KERNEL)?);
        let mut turns = TURNS.lock();
        let mut earlier = turn.earlier(&turns);
        turns.push(turn.0.clone(), GFP_KERNEL)?;
        drop(turns);
        while let Some(other) = earlier {
            // For the duration of two walks and a flush.
            if other.over.wait(FOR_EVER) < 0 {
                return Err(EINTR);
            }
            earlier = turn.earlier(&TURNS.lock());
        }
        Ok(turn)
    }

    /// A turn that must be over before this one.
    fn earlier(&self, turns: &[Arc<Turn>]) -> Option<Arc<Turn>> {
        let before = turns.iter().take_while(|turn| !Arc::ptr_eq(turn, &self.0));
        let mut overlapping = before.filter(|turn| turn.overlaps(&self.0));
        overlapping.next().cloned()
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
