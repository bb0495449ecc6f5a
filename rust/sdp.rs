// SPDX-License-Identifier: GPL-2.0

//! The protocol driver: the operations of SDP sockets.
//!
//! `rust/layers` lists the modules, their purposes, and the modules that each may use.
//! `Documentation/locking.rst` describes the contexts in which functions may be called.
//!
//! # Unsafe code
//!
//! The layers below wrap the kernel's interfaces in safe functions. The unsafe code here relies on
//! facts that only these layers know:
//!
//! - `conn` has the memory of the socket object, its references, timers and work items, and turns
//!   the possession of the lock into access to the connection. It knows that the socket of an open
//!   accept queue is not a connection.
//! - The functions of work items and of the CM's listeners (`cm::worker`, `cm::listen`, `cq::poll`)
//!   get a pointer from the core, and know which object it points to. `cm::bind` knows that the
//!   tables of ports contain only SDP sockets.
//! - `cm` gives ids and links of the RDMA CM a pointer to the socket, and returns the reference of
//!   the connection: it knows that the socket outlives them.
//! - `cm::listen` initialises its static lock when the module loads, and uses the namespace of a
//!   port, which the listening sockets hold. It initialises the copy of a listener's socket.
//! - `cm::accept`, `cm::close`, `cm::fallback`, `options`, `send::copy` and `send::lent` promise to
//!   functions of lower layers that the lock is held, or that a program has the socket open. The
//!   lower layers do not know the lock.

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
