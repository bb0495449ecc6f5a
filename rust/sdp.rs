// SPDX-License-Identifier: GPL-2.0

//! The protocol driver: what a socket of ours does.
//!
//! `rust/layers` says what each module is for, and which may use which; see
//! `Documentation/locking.rst` for who may call what in which context.

pub(crate) mod advert;
pub(crate) mod cm;
pub(crate) mod conn;
pub(crate) mod cq;
mod flush;
pub(crate) mod info;
pub(crate) mod options;
mod output;
mod parts;
pub(crate) mod poll;
mod reclaim;
pub(crate) mod recv;
mod rx;
pub(crate) mod send;
mod timers;

/// Makes the tables usable.
///
/// # Safety
///
/// Called once, when the module loads, before anything else here.
pub(crate) unsafe fn init() {
    // SAFETY: As the caller promises.
    unsafe {
        cm::listen::init();
    }
}
