// SPDX-License-Identifier: GPL-2.0

//! Notifications of MSG_ZEROCOPY: they tell a program that it may use the memory of a send again.
//!
//! A send of a socket with SO_ZEROCOPY has a notification of the core, which arrives in the
//! socket's error queue (`Documentation/networking/msg_zerocopy.rst` of the kernel). A request of
//! io_uring (`IORING_OP_SEND_ZC`) brings its own notification, which becomes a completion of the
//! ring. Both are counted references to a `struct ubuf_info`: dropping the last reference sends the
//! notification.

use core::marker::PhantomData;
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

/// A packet that nobody reads. io_uring checks whether there was a packet: if not, it tells the
/// program that the bytes were copied.
struct NoPacket(MaybeUninit<bindings::sk_buff>);

// SAFETY: Nobody reads or writes it.
unsafe impl Sync for NoPacket {}

static NO_PACKET: NoPacket = NoPacket(MaybeUninit::zeroed());

/// The notification of a request of io_uring, to which the core has a reference during the call
/// `'a`.
#[derive(Copy, Clone)]
pub(crate) struct Request<'a>(NonNull<bindings::ubuf_info>, PhantomData<&'a ()>);

impl Request<'_> {
    /// `None` for a null pointer.
    ///
    /// # Safety
    ///
    /// The pointer is null, or the `ubuf_info` is valid for the lifetime.
    pub(crate) unsafe fn new(ubuf: *mut bindings::ubuf_info) -> Option<Self> {
        NonNull::new(ubuf).map(|ubuf| Self(ubuf, PhantomData))
    }
}

/// A reference to a notification. The notification is sent when this reference and all others are
/// gone.
///
/// # Invariants
///
/// The value owns one of the references of a valid `ubuf_info`.
pub(crate) struct Notification {
    ubuf: NonNull<bindings::ubuf_info>,
    /// Whether the notification was created for this send, and does not belong to io_uring.
    own: bool,
}

// SAFETY: Any thread may drop references.
unsafe impl Send for Notification {}

impl Notification {
    /// Creates a notification for a send of `bytes` bytes, and charges the bytes to the memory that
    /// the user may lock (RLIMIT_MEMLOCK). Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` beyond the limit of the user, or of the socket (`net.core.optmem_max`).
    ///
    /// # Safety
    ///
    /// `sk` is a valid socket, and the caller holds its lock.
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

    /// Takes a reference to the notification of a request of io_uring.
    pub(crate) fn of_request(request: Request<'_>) -> Self {
        let Request(ubuf, _) = request;
        // SAFETY: The core has a reference, as the creator of the value has promised.
        unsafe { bindings::net_zcopy_get(ubuf.as_ptr()) };
        // INVARIANT: Just taken.
        Self { ubuf, own: false }
    }

    /// Takes another reference to this notification.
    pub(crate) fn share(&self) -> Self {
        // SAFETY: By the type invariant.
        unsafe { bindings::net_zcopy_get(self.ubuf.as_ptr()) };
        // INVARIANT: Just taken.
        Self {
            ubuf: self.ubuf,
            own: self.own,
        }
    }

    /// Drops the reference; the notification will say that the bytes were copied
    /// (`SO_EE_CODE_ZEROCOPY_COPIED`).
    pub(crate) fn say_copied(self) {
        // SAFETY: The value is not used any more.
        unsafe { ManuallyDrop::new(self).complete(false) };
    }

    /// Drops the reference of a send that has sent nothing, and therefore has no notification.
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

    /// Drops the reference.
    ///
    /// # Safety
    ///
    /// The value is not used any more.
    unsafe fn complete(&self, uncopied: bool) {
        let ubuf = self.ubuf.as_ptr();
        let packet = NO_PACKET.0.as_ptr().cast_mut();
        // SAFETY: By the type invariant. The owners of notifications only check whether there is a
        // packet.
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
        // SAFETY: The value is not used any more.
        unsafe { self.complete(true) };
    }
}
