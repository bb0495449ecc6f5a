// SPDX-License-Identifier: GPL-2.0

//! The protocol driver: the operations of SDP sockets.
//!
//! `rust/layers` lists the modules, their purposes, and the modules that each may use.
//! `Documentation/locking.rst` describes the contexts in which functions may be called.

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

/// Initialises the global tables.
///
/// # Safety
///
/// Must be called once, when the module loads, before any other function of the driver.
pub(crate) unsafe fn init() {
    // SAFETY: As the caller promises.
    unsafe {
        cm::listen::init();
    }
}
