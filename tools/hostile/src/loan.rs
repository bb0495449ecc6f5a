// SPDX-License-Identifier: GPL-2.0
//! Memory that one side lets the other side read or write.

use crate::cm::errno_fail;
use crate::fail::Result;
use crate::ffi;
use crate::pages::Pages;

/// The place of lent memory, as the other side addresses it.
#[derive(Clone, Copy)]
pub(crate) struct Lent {
    pub(crate) len: u32,
    pub(crate) rkey: u32,
    pub(crate) addr: u64,
}

/// Pages from which messages are sent without the page tables while the value lives.
///
/// # Invariants
///
/// The pointer is a valid region of all of the pages, owned by this value; the pages outlive it.
pub(crate) struct Region(*mut ffi::ibv_mr);

impl Region {
    /// The adapter pins the pages, or if `on_demand` faults each page in when it needs the page.
    ///
    /// # Safety
    ///
    /// The domain is valid; it and the pages outlive the value.
    pub(crate) unsafe fn new(
        pd: *mut ffi::ibv_pd,
        pages: &Pages,
        on_demand: bool,
    ) -> Result<Region> {
        let mut access = ffi::IBV_ACCESS_LOCAL_WRITE;
        if on_demand {
            access |= ffi::IBV_ACCESS_ON_DEMAND;
        }
        let at = pages.addr() as *mut libc::c_void;
        // SAFETY: by the caller's promise; there are no references to the pages.
        let mr = unsafe { ffi::ibv_reg_mr(pd, at, pages.len(), access as i32) };
        if mr.is_null() {
            return Err(errno_fail("ibv_reg_mr"));
        }
        // INVARIANT: the region was registered just now.
        Ok(Region(mr))
    }

    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: by the type invariant.
        unsafe { (*self.0).lkey }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: by the type invariant.
        unsafe { ffi::ibv_dereg_mr(self.0) };
    }
}

/// Memory of this side that the peer may read while the value lives.
///
/// # Invariants
///
/// `mr` is a valid region of all of `bytes`, owned by this value.
pub(crate) struct Loan {
    mr: *mut ffi::ibv_mr,
    bytes: Vec<u8>,
}

impl Loan {
    /// Lends a copy of `bytes`.
    ///
    /// # Safety
    ///
    /// The domain is valid, and outlives the value.
    pub(crate) unsafe fn new(pd: *mut ffi::ibv_pd, bytes: &[u8]) -> Result<Loan> {
        let mut bytes = bytes.to_vec();
        let access = ffi::IBV_ACCESS_LOCAL_WRITE | ffi::IBV_ACCESS_REMOTE_READ;
        // SAFETY: by the caller's promise; the memory does not move, and is freed after the region.
        let mr =
            unsafe { ffi::ibv_reg_mr(pd, bytes.as_mut_ptr().cast(), bytes.len(), access as i32) };
        if mr.is_null() {
            return Err(errno_fail("ibv_reg_mr"));
        }
        Ok(Loan { mr, bytes })
    }

    pub(crate) fn lent(&self) -> Lent {
        Lent {
            len: self.bytes.len() as u32,
            // SAFETY: by the type invariant.
            rkey: unsafe { (*self.mr).rkey },
            addr: self.bytes.as_ptr() as u64,
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // SAFETY: by the type invariant.
        unsafe { ffi::ibv_dereg_mr(self.mr) };
    }
}
