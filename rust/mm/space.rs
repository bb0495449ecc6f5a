// SPDX-License-Identifier: GPL-2.0

//! The address space of a program, which may have ended, and may be another program's.

use kernel::mm::{
    Mm,
    MmWithUserAsync,
    MmapReadGuard, //
};
use kernel::sync::aref::ARef;

use crate::bindings::mm_struct;

/// An address space that has not ended, and does not end while the value lives.
pub(super) struct Space(ARef<MmWithUserAsync>);

impl Space {
    /// `None` if the address space has ended.
    pub(super) fn of(mm: &Mm) -> Option<Self> {
        let user = ARef::into_raw(mm.mmget_not_zero()?).cast::<MmWithUserAsync>();
        // SAFETY: The types differ only in how the last reference is dropped: another thread then
        // destroys the address space.
        Some(Self(unsafe { ARef::from_raw(user) }))
    }

    pub(super) fn as_raw(&self) -> *mut mm_struct {
        self.0.as_raw()
    }

    /// As [`Space::lock`], without waiting even for the current program's lock.
    pub(super) fn try_lock(&self) -> Option<MmapReadGuard<'_>> {
        self.0.mmap_read_trylock()
    }

    /// Takes its lock for reading. The lock of another program's address space may be held for as
    /// long as that program likes: the function does not wait for it, and returns `None`.
    pub(super) fn lock(&self) -> Option<MmapReadGuard<'_>> {
        let current = kernel::current!();
        if current
            .mm()
            .is_some_and(|own| own.as_raw() == self.as_raw())
        {
            Some(self.0.mmap_read_lock())
        } else {
            self.0.mmap_read_trylock()
        }
    }
}
