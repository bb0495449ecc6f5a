// SPDX-License-Identifier: GPL-2.0

//! Memory region objects (MRs) of an adapter, and tables of pages that are mapped for it.

use core::ptr::{
    self,
    NonNull, //
};

use kernel::error::{
    from_err_ptr,
    to_result, //
};
use kernel::prelude::*;

use super::dma::Direction;
use super::receive::PAGE_BYTES;
use super::region::Use;
use crate::bindings;
use crate::mm::memory::Memory;

/// An MR of the adapter.
///
/// # Invariants
///
/// `mr` is a valid MR that this value owns.
pub(super) struct Mr {
    mr: NonNull<bindings::ib_mr>,
    /// The key before the present one.
    former_key: u32,
}

impl Mr {
    /// # Safety
    ///
    /// `pd` is valid and outlives the value.
    pub(super) unsafe fn new(pd: *mut bindings::ib_pd, max_pages: u32) -> Result<Self> {
        let kind = bindings::ib_mr_type_IB_MR_TYPE_MEM_REG;
        // SAFETY: As the caller promises.
        let mr = from_err_ptr(unsafe { bindings::ib_alloc_mr(pd, kind, max_pages) })?;
        // INVARIANT: A new MR.
        Ok(Self {
            mr: NonNull::new(mr).ok_or(ENOMEM)?,
            former_key: 0,
        })
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::ib_mr {
        self.mr.as_ptr()
    }

    /// The key of the memory that was described last: for the peer, or for our own requests.
    pub(super) fn key(&self, purpose: Use) -> u32 {
        if purpose.is_remote() {
            // SAFETY: By the type invariant.
            unsafe { (*self.as_ptr()).rkey }
        } else {
            self.own_key()
        }
    }

    /// The key for our own requests.
    pub(super) fn own_key(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { (*self.as_ptr()).lkey }
    }

    pub(super) fn former_key(&self) -> u32 {
        self.former_key
    }

    /// Describes the `bytes` bytes of `table`, under a new key.
    ///
    /// # Safety
    ///
    /// The table is mapped for the MR's device. The MR is not in use.
    pub(super) unsafe fn describe(&mut self, table: &Table, bytes: u32) -> Result {
        // SAFETY: A table has `nents` entries. The rest is as the caller promises.
        unsafe { self.describe_list(table.sgt.sgl, table.sgt.nents, bytes) }
    }

    /// As [`Mr::describe`], for the ranges of addresses in a list.
    ///
    /// # Safety
    ///
    /// The list has `entries` entries, whose addresses are mapped for the MR's device. The MR is
    /// not in use.
    pub(super) unsafe fn describe_list(
        &mut self,
        list: *mut bindings::scatterlist,
        entries: u32,
        bytes: u32,
    ) -> Result {
        let mr = self.as_ptr();
        // SAFETY: This value owns the MR; the list is as the caller promises.
        unsafe {
            let n = bindings::ib_map_mr_sg(mr, list, entries as i32, ptr::null_mut(), PAGE_BYTES);
            if n < 0 || n as u32 != entries || (*mr).length != u64::from(bytes) {
                return Err(EINVAL);
            }
            // Only the offset in the page matters: the peer need not know more of the address.
            (*mr).iova &= u64::from(PAGE_BYTES - 1);
            // The new key differs from the previous one, which a peer may still know.
            self.former_key = (*mr).lkey;
            bindings::ib_update_fast_reg_key(mr, (*mr).rkey.wrapping_add(1) as u8);
        }
        Ok(())
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. The function fails only for MRs that others use.
        let _ = unsafe { bindings::ib_dereg_mr_user(self.as_ptr(), ptr::null_mut()) };
    }
}

/// A table of pages that is mapped for an adapter.
///
/// # Invariants
///
/// `sgt` is mapped for `device`, which outlives this value.
pub(super) struct Table {
    sgt: bindings::sg_table,
    device: *mut bindings::ib_device,
    direction: Direction,
}

impl Table {
    /// # Safety
    ///
    /// `device` outlives the value, and the pages outlive all users of the table.
    pub(super) unsafe fn new(
        device: *mut bindings::ib_device,
        memory: &Memory,
        direction: Direction,
    ) -> Result<Self> {
        let mut sgt = bindings::sg_table::default();
        // SAFETY: The list has all pages of the bytes. The table is either mapped or freed.
        unsafe {
            to_result(bindings::sg_alloc_table_from_pages(
                &raw mut sgt,
                memory.pages().as_ptr().cast_mut().cast(),
                memory.pages().len() as u32,
                memory.offset(),
                memory.len() as usize,
                bindings::SDP_CONST_GFP_KERNEL,
            ))?;
            to_result(bindings::ib_dma_map_sgtable(
                device.cast(),
                &raw mut sgt,
                direction.raw(),
            ))
            .inspect_err(|_| bindings::sg_free_table(&raw mut sgt))?;
        }
        // INVARIANT: Just mapped.
        Ok(Self {
            sgt,
            device,
            direction,
        })
    }

    /// The number of address ranges.
    pub(super) fn len(&self) -> usize {
        self.sgt.nents as usize
    }

    /// The ranges: start address and length in bytes.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let mut entry = self.sgt.sgl;
        (0..self.len()).map(move |_| {
            // SAFETY: The table is mapped, and has `len()` entries.
            unsafe {
                let range = (
                    bindings::sg_dma_address(entry.cast()),
                    bindings::sg_dma_len(entry.cast()),
                );
                entry = bindings::sg_next(entry);
                range
            }
        })
    }
}

// SAFETY: Any thread may remove a mapping.
unsafe impl Send for Table {}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. The key is dead, or the queue pair is gone: nobody can
        // access the memory.
        unsafe {
            bindings::ib_dma_unmap_sgtable(
                self.device.cast(),
                &raw mut self.sgt,
                self.direction.raw(),
            );
            bindings::sg_free_table(&raw mut self.sgt);
        }
    }
}
