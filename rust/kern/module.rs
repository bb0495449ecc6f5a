// SPDX-License-Identifier: GPL-2.0

//! The module itself: its object in the core, and whether it has loaded.

use kernel::bindings;
use kernel::sync::atomic::{
    ordering::{
        Acquire,
        Release, //
    },
    Atomic, //
};

/// The module as an owner of files and operations: `THIS_MODULE` in C.
pub(crate) const fn this_module() -> *mut bindings::module {
    (&raw const bindings::__this_module).cast_mut()
}

static STARTED: Atomic<i32> = Atomic::new(0);

/// Whether loading the module can no longer fail. If a user took a reference to the module earlier,
/// with a socket or a dump, it would be left with freed code when loading fails: the loader then
/// ignores references.
pub(crate) fn has_started() -> bool {
    STARTED.load(Acquire) != 0
}

/// Notes that loading the module can no longer fail.
pub(crate) fn set_started() {
    STARTED.store(1, Release);
}
