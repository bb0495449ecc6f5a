// SPDX-License-Identifier: GPL-2.0

//! The protocol driver: what a socket of ours does.
//!
//! One file per concern; see `Documentation/locking.rst` for who may call what.

pub(crate) mod accept;
pub(crate) mod advert;
mod ahead;
pub(crate) mod bind;
pub(crate) mod close;
pub(crate) mod connect;
mod count;
pub(crate) mod details;
pub(crate) mod direct;
mod early;
pub(crate) mod glance;
pub(crate) mod hold;
pub(crate) mod info;
mod keepalive;
mod later;
pub(crate) mod listen;
pub(crate) mod local;
mod offer;
pub(crate) mod options;
mod path;
pub(crate) mod poll;
pub(crate) mod pull;
pub(crate) mod recv;
pub(crate) mod rx;
pub(crate) mod send;
pub(crate) mod setup;
pub(crate) mod shown;
pub(crate) mod sink;
pub(crate) mod sock;
pub(crate) mod stream;
pub(crate) mod turn;
pub(crate) mod tx;
pub(crate) mod worker;
mod write;
pub(crate) mod zcopy;

/// Makes the tables usable.
///
/// # Safety
///
/// Called once, when the module loads, before anything else here.
pub(crate) unsafe fn init() {
    // SAFETY: As the caller promises.
    unsafe {
        listen::init();
    }
}
