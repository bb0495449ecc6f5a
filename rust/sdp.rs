// SPDX-License-Identifier: GPL-2.0

//! The protocol driver: what a socket of ours does.
//!
//! One file per concern; see `Documentation/locking.rst` for who may call what.

pub(crate) mod accept;
pub(crate) mod advert;
pub(crate) mod bind;
pub(crate) mod close;
pub(crate) mod connect;
pub(crate) mod direct;
pub(crate) mod hold;
pub(crate) mod listen;
pub(crate) mod local;
pub(crate) mod options;
pub(crate) mod poll;
pub(crate) mod pull;
pub(crate) mod recv;
pub(crate) mod rx;
pub(crate) mod send;
pub(crate) mod setup;
pub(crate) mod sock;
pub(crate) mod stream;
pub(crate) mod turn;
pub(crate) mod tx;
pub(crate) mod worker;
pub(crate) mod zcopy;

/// Makes the tables usable.
///
/// # Safety
///
/// Called once, when the module loads, before anything else here.
pub(crate) unsafe fn init() {
    // SAFETY: As the caller promises.
    unsafe {
        bind::init();
        listen::init();
        local::init();
    }
}
