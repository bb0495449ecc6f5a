// SPDX-License-Identifier: GPL-2.0

//! Notifications of MSG_ZEROCOPY: what tells a program that the memory of a send is its own again.
//!
//! A send of a socket with SO_ZEROCOPY has a notification of the core's, which comes by the socket's
//! error queue (`Documentation/networking/msg_zerocopy.rst` of the kernel). A request of io_uring
//! (`IORING_OP_SEND_ZC`) brings one with it, which becomes a completion of the ring. Both are counted
//! references to a `struct ubuf_info`: the last one sends it.

use core::mem::{
    ManuallyDrop,
    MaybeUninit, //
};
use core::ptr::{
    self,
    NonNull, //
};

use kernel::prelude::*;

use crate::bindings;
use crate::kern::errno::ENOBUFS;

/// A packet that is not looked into. io_uring asks whether there was one: without, it tells the program that
/// the bytes were copied.
struct NoPacket(MaybeUninit<bindings::sk_buff>);

// SAFETY: Nobody reads or writes it.
unsafe impl Sync for NoPacket {}

static NO_PACKET: NoPacket = NoPacket(MaybeUninit::zeroed());

/// A reference to a notification, which is not sent before this reference and all others are gone.
///
/// # Invariants
///
/// The value owns one of the references of a valid `ubuf_info`.
pub(crate) struct Notification {
    ubuf: NonNull<bindings::ubuf_info>,
    /// Whether it was made for this send, and is not io_uring's.
    own: bool,
}

// SAFETY: References may be given back by any thread.
unsafe impl Send for Notification {}

impl Notification {
    /// Makes one for a send of `bytes` bytes, and charges them to what its user may lock
    /// (RLIMIT_MEMLOCK). Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` beyond the limit of the user, or of the socket (`net.core.optmem_max`).
    ///
    /// # Safety
    ///
    /// `sk` is a valid socket whose lock the caller has.
    pub(crate) unsafe fn new(sk: *mut bindings::sock, bytes: usize) -> Result<Self> {
        // SAFETY: As the caller promises.
        let ubuf =
            unsafe { bindings::msg_zerocopy_realloc(sk.cast(), bytes, ptr::null_mut(), false) };
        // INVARIANT: A new one has one reference.
        Ok(Self {
            ubuf: NonNull::new(ubuf).ok_or(ENOBUFS)?,
            own: true,
        })
    }

    /// Another reference to that of a request of io_uring.
    ///
    /// # Safety
    ///
    /// The `ubuf_info` is valid, and the caller has a reference.
    pub(crate) unsafe fn of_request(ubuf: NonNull<bindings::ubuf_info>) -> Self {
        // SAFETY: As the caller promises.
        unsafe { bindings::net_zcopy_get(ubuf.as_ptr()) };
        // INVARIANT: Just taken.
        Self { ubuf, own: false }
    }

    /// Another reference to the same notification.
    pub(crate) fn share(&self) -> Self {
        // SAFETY: By the type invariant.
        unsafe { bindings::net_zcopy_get(self.ubuf.as_ptr()) };
        // INVARIANT: Just taken.
        Self {
            ubuf: self.ubuf,
            own: self.own,
        }
    }

    /// Gives the reference back; the notification will say that the bytes were copied
    /// (`SO_EE_CODE_ZEROCOPY_COPIED`).
    pub(crate) fn say_copied(self) {
        // SAFETY: The value is not used any more.
        unsafe { ManuallyDrop::new(self).complete(false) };
    }

    /// Gives the reference back, of a send that has sent nothing: for which there is no notification.
    pub(crate) fn abort(self) {
        let this = ManuallyDrop::new(self);
        let ubuf = this.ubuf.as_ptr();
        // SAFETY: By the type invariant; the value is not used any more.
        unsafe {
            match this.own {
                true => bindings::msg_zerocopy_put_abort(ubuf, true),
                false => bindings::net_zcopy_put(ubuf),
            }
        }
    }

    /// Gives the reference back.
    ///
    /// # Safety
    ///
    /// The value is not used any more.
    unsafe fn complete(&self, uncopied: bool) {
        let ubuf = self.ubuf.as_ptr();
        let packet = NO_PACKET.0.as_ptr().cast_mut();
        // SAFETY: By the type invariant. The owners of notifications ask no more of a packet than whether
        // there is one.
        unsafe {
            if let Some(complete) = (*(*ubuf).ops).complete {
                complete(packet, ubuf, uncopied);
            }
        }
    }
}

impl Drop for Notification {
    /// In any context.
    fn drop(&mut self) {
        // SAFETY: The value goes.
        unsafe { self.complete(true) };
    }
}
