// SPDX-License-Identifier: GPL-2.0

//! The module itself: what the core knows of it, and whether it has loaded.

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

/// Whether the module will not fail to load any more. Whoever gets a reference to it before, with a
/// socket or a dump, would be left with freed code: the loader does not look at references then.
pub(crate) fn has_started() -> bool {
    STARTED.load(Acquire) != 0
}

/// The module will not fail to load any more.
pub(crate) fn set_started() {
    STARTED.store(1, Release);
}
