// SPDX-License-Identifier: GPL-2.0

//! Static C objects that the module gives to the core.

use core::cell::UnsafeCell;

/// A C object that the core changes under its own locks.
#[repr(transparent)]
pub(crate) struct Shared<T>(UnsafeCell<T>);

// SAFETY: Only the core reads and writes it, after registration.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    pub(crate) const fn get(&self) -> *mut T {
        self.0.get()
    }
}
