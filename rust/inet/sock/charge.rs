// SPDX-License-Identifier: GPL-2.0

//! The memory that is charged to a socket.

use core::ptr;

use super::Sk;
use crate::bindings;

/// The size in bytes that each of a socket's buffers may always have, however short memory is, as
/// with TCP.
pub(crate) const MIN_BUFFER_BYTES: u32 = 4096;

impl Sk {
    pub(crate) fn wmem_queued(self) -> u32 {
        field!(self, sk_wmem_queued).unsigned_abs()
    }

    /// Whether a poller or waiter should write: there is more than the minimum of free space.
    pub(crate) fn stream_writeable(self) -> bool {
        // SAFETY: The object is valid.
        unsafe { bindings::__sk_stream_is_writeable(self.0.cast(), 1) }
    }

    pub(crate) fn stream_memory_free(self) -> bool {
        // SAFETY: The object is valid.
        unsafe { bindings::sk_stream_memory_free(self.0.cast()) }
    }

    /// Reserves memory for `bytes` to send; `false` if there is none.
    pub(crate) fn wmem_schedule(self, bytes: u32) -> bool {
        // SAFETY: The object is valid, and the caller holds the lock.
        unsafe { bindings::sk_wmem_schedule(self.0.cast(), bytes as i32) }
    }

    /// Whether the socket has its own page for copies; the caller holds the lock.
    pub(crate) fn has_page_frag(self) -> bool {
        !field!(self, sk_frag.page).is_null()
    }

    /// Reserves memory for up to `bytes` to send; returns for how many. As TCP
    /// (`tcp_wmem_schedule()`): the first [`MIN_BUFFER_BYTES`] in the send buffer are always admitted,
    /// so that a socket which poll() reports as writable really is.
    pub(crate) fn wmem_admit(self, bytes: u32) -> u32 {
        if self.wmem_schedule(bytes) {
            return bytes;
        }
        let least = MIN_BUFFER_BYTES.saturating_sub(self.wmem_queued());
        let bytes = bytes.min(least);
        if bytes > 0 && self.wmem_force(bytes) {
            bytes
        } else {
            0
        }
    }

    /// As `sk_forced_mem_schedule()`, which is not exported: if the send buffer of a socket is
    /// full, the core admits the bytes and charges them to the control group. So this function
    /// makes the buffer appear full during the call.
    fn wmem_force(self, bytes: u32) -> bool {
        let locks = field!(self, sk_userlocks);
        let sndbuf = field!(self, sk_sndbuf);
        set_field!(self, locks | bindings::SOCK_SNDBUF_LOCK as u8, sk_userlocks);
        set_field!(self, self.wmem_queued() as i32 + 1, sk_sndbuf);
        let admitted = self.wmem_schedule(bytes);
        set_field!(self, sndbuf, sk_sndbuf);
        set_field!(self, locks, sk_userlocks);
        // poll(), which takes no lock, may have seen the full buffer.
        if self.stream_writeable() {
            self.wake_writer();
        }
        admitted
    }

    /// Frees the page into which the socket copies, as `tcp_disconnect()` does: a socket with such
    /// a page must not become a listener ([`Sk::clone_listener`]).
    pub(crate) fn free_page_frag(self) {
        // SAFETY: The object is valid; the caller holds the lock, which guards the page. The
        // pointer is null, or a page to which the socket has a reference, which is dropped once.
        unsafe {
            let frag = core::mem::take(&mut (*self.0).sk_frag);
            if !frag.page.is_null() {
                bindings::put_page(frag.page);
            }
        }
    }

    pub(crate) fn wmem_charge(self, bytes: u32) {
        // SAFETY: The object is valid, and the caller holds the lock.
        unsafe {
            bindings::sk_wmem_queued_add(self.0.cast(), bytes as i32);
            bindings::sk_mem_charge(self.0.cast(), bytes as i32);
        }
    }

    pub(crate) fn wmem_uncharge(self, bytes: u32) {
        // SAFETY: As above.
        unsafe {
            bindings::sk_wmem_queued_add(self.0.cast(), -(bytes as i32));
            bindings::sk_mem_uncharge(self.0.cast(), bytes as i32);
        }
    }

    /// Charges `bytes` of receive memory; `false` if the limits forbid it.
    pub(crate) fn rmem_charge(self, bytes: u32) -> bool {
        // SAFETY: As above.
        unsafe {
            if !bindings::sk_rmem_schedule(self.0.cast(), bytes as i32, false) {
                return false;
            }
            bindings::sk_mem_charge(self.0.cast(), bytes as i32);
            bindings::sk_rmem_alloc_add(self.0.cast(), bytes as i32);
        }
        true
    }

    pub(crate) fn rmem_uncharge(self, bytes: u32) {
        // SAFETY: As above.
        unsafe {
            bindings::sk_rmem_alloc_add(self.0.cast(), -(bytes as i32));
            bindings::sk_mem_uncharge(self.0.cast(), bytes as i32);
        }
    }

    /// The charged receive memory in bytes.
    pub(crate) fn rmem(self) -> u32 {
        // SAFETY: The object is valid.
        unsafe { bindings::sk_rmem_alloc_get(self.0.cast()).unsigned_abs() }
    }
}
