// SPDX-License-Identifier: GPL-2.0

//! Memory of programs that an adapter may use: regions made by fast registration.
//!
//! # Normal operation
//!
//! A region is mapped and described to a memory region object (MR) of the adapter, and a work
//! request makes its key valid. When the peer has read it, the key is made invalid: by the peer's
//! last report, or by a work request of our own. Then whoever sent the bytes takes the region back,
//! which unmaps it and unpins the pages, in this order; the MR is kept for the next one. MRs are
//! made when they are first needed, so that an idle connection has none.
//!
//! # When it ends otherwise
//!
//! The link keeps every region until its queue pair is gone. Only then the MRs go, and with them the
//! keys, and behind each its pages.

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
use super::post::READS;
use crate::bindings;
use crate::mm::pin::Pinned;
use crate::net::errno::ENOBUFS;

const PAGE_BYTES: u32 = 4096;

/// Regions of a connection, at a time.
pub(crate) const REGIONS: usize = 6;

/// The number of a region of a connection.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) struct RegionId(u8);

/// What the adapter may do with a region.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Use {
    /// The peer reads it.
    PeerReads,
    /// The bytes of our own Reads are put there.
    OwnReads,
}

impl Use {
    pub(super) fn access(self) -> u32 {
        match self {
            Self::PeerReads => bindings::ib_access_flags_IB_ACCESS_REMOTE_READ,
            Self::OwnReads => bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE,
        }
    }

    fn direction(self) -> Direction {
        match self {
            Self::PeerReads => Direction::ToDevice,
            Self::OwnReads => Direction::FromDevice,
        }
    }
}

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
    unsafe fn new(pd: *mut bindings::ib_pd, max_pages: u32) -> Result<Self> {
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

    /// The key, which is that of the memory described last: for the peer, or for us.
    pub(super) fn key(&self, purpose: Use) -> u32 {
        // SAFETY: By the type invariant.
        unsafe {
            match purpose {
                Use::PeerReads => (*self.as_ptr()).rkey,
                Use::OwnReads => (*self.as_ptr()).lkey,
            }
        }
    }

    pub(super) fn former_key(&self) -> u32 {
        self.former_key
    }

    /// Describes `memory`, under a new key.
    fn describe(&mut self, memory: &Mapping) -> Result {
        let mr = self.as_ptr();
        let sgt = &memory.table.sgt;
        // SAFETY: The MR is ours and not in use; the table is mapped for its device.
        unsafe {
            let n =
                bindings::ib_map_mr_sg(mr, sgt.sgl, sgt.nents as i32, ptr::null_mut(), PAGE_BYTES);
            if n < 0 || n as u32 != sgt.nents || (*mr).length != u64::from(memory.pinned.len()) {
                return Err(EINVAL);
            }
            // Of the address only the place in the page matters: a peer need not learn more.
            (*mr).iova &= u64::from(PAGE_BYTES - 1);
            // The key is never the one of the memory before: a peer may still have that.
            self.former_key = (*mr).lkey;
            bindings::ib_update_fast_reg_key(mr, (*mr).rkey.wrapping_add(1) as u8);
        }
        Ok(())
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. It fails only for MRs that others use.
        let _ = unsafe { bindings::ib_dereg_mr_user(self.as_ptr(), ptr::null_mut()) };
    }
}

/// A table of pages that is mapped for an adapter.
///
/// # Invariants
///
/// `sgt` is mapped for `device`, which outlives this value.
struct Table {
    sgt: bindings::sg_table,
    device: *mut bindings::ib_device,
    direction: Direction,
}

/// Pinned pages that are mapped for an adapter. The fields are dropped in this order: the pages are
/// unpinned last.
///
/// # Invariants
///
/// `table` describes the bytes of `pinned`.
struct Mapping {
    table: Table,
    pinned: Pinned,
}

// SAFETY: A mapping may be undone by any thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// # Safety
    ///
    /// `device` outlives the value.
    unsafe fn new(
        device: *mut bindings::ib_device,
        pinned: Pinned,
        direction: Direction,
    ) -> Result<Self> {
        let mut sgt = bindings::sg_table::default();
        // SAFETY: The list has so many pages, which hold the bytes. The table is mapped or freed.
        unsafe {
            to_result(bindings::sg_alloc_table_from_pages(
                &raw mut sgt,
                pinned.pages().as_ptr().cast_mut().cast(),
                pinned.pages().len() as u32,
                pinned.offset(),
                pinned.len() as usize,
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
        let table = Table {
            sgt,
            device,
            direction,
        };
        // INVARIANT: The table was made of these pages.
        Ok(Self { table, pinned })
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; the key is dead.
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

/// How far a region is.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Key {
    /// The key is valid, or will be when the posted requests are done.
    Valid,
    /// It shall be made invalid.
    Condemned,
    /// The request for that is posted.
    Dying,
    /// It is invalid: nobody can reach the memory.
    Dead,
}

/// The fields are dropped in this order: the MR, with the key, before the memory.
struct Region {
    mr: Mr,
    memory: Mapping,
    key: Key,
    purpose: Use,
}

/// What the peer is told of a region.
#[derive(Copy, Clone)]
pub(crate) struct Address {
    pub(crate) key: u32,
    pub(crate) addr: u64,
}

/// The regions of a connection, and MRs for the next ones.
pub(super) struct Regions {
    places: KVec<Option<Region>>,
    spare: KVec<Mr>,
    /// Pages that a region may have; 0 if the adapter cannot have any.
    max_pages: u32,
    /// Whether the adapter does a registration again with the requests before it that it sends again.
    repeats: bool,
}

/// The most pages of one region: an adapter's list of them takes memory, and the Reads of shorter
/// ones begin earlier.
const MAX_PAGES: u32 = 256;
/// Fewer than these are not worth it.
const LEAST_PAGES: u32 = 16;

impl Regions {
    /// # Safety
    ///
    /// `device` is valid.
    pub(super) unsafe fn new(device: *mut bindings::ib_device, port: u32) -> Self {
        // SAFETY: As the caller promises.
        let (able, pages, reads) = unsafe {
            let flags = bindings::ib_device_cap_flags(device.cast());
            (
                flags & bindings::SDP_CONST_IB_DEVICE_MEM_MGT_EXTENSIONS != 0
                    // There a Read needs a region that the peer may write to.
                    && !bindings::rdma_protocol_iwarp(device.cast(), port),
                bindings::ib_device_max_fast_reg_pages(device.cast()).min(MAX_PAGES),
                bindings::ib_device_max_qp_rd_atom(device.cast())
                    .min(bindings::ib_device_max_qp_init_rd_atom(device.cast())),
            )
        };
        let able = able && pages >= LEAST_PAGES && reads >= READS as i32;
        Self {
            places: KVec::new(),
            spare: KVec::new(),
            max_pages: if able { pages } else { 0 },
            // SAFETY: As above.
            repeats: unsafe { bindings::ib_device_driver_id(device.cast()) }
                == bindings::SDP_CONST_RDMA_DRIVER_RXE,
        }
    }

    pub(super) fn max_pages(&self) -> u32 {
        self.max_pages
    }

    /// Whether a registration must not come behind requests that are not yet finished.
    ///
    /// soft-RoCE begins anew at the oldest request that was not acknowledged, and does those of its
    /// own behind it once more. A registration then fails, for its MR is not free, or, if the peer
    /// has made the key invalid, makes it valid again.
    pub(super) fn repeats(&self) -> bool {
        self.repeats
    }

    /// Whether there is a place for another one.
    pub(super) fn has_room(&self) -> bool {
        self.places.len() < REGIONS || self.places.iter().any(Option::is_none)
    }

    /// Makes a region of pinned pages, whose key becomes valid by a request that the caller posts
    /// next.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` without a place, `ENOMEM`, `EIO` if the device cannot reach the memory, and what
    /// the provider returns.
    ///
    /// # Safety
    ///
    /// `device` and `pd` outlive the value.
    pub(super) unsafe fn add(
        &mut self,
        device: *mut bindings::ib_device,
        pd: *mut bindings::ib_pd,
        pinned: Pinned,
        purpose: Use,
    ) -> Result<RegionId> {
        let at = match self.places.iter().position(Option::is_none) {
            Some(at) => at,
            None if self.places.len() < REGIONS => {
                self.places.push(None, GFP_KERNEL)?;
                self.places.len() - 1
            }
            None => return Err(ENOBUFS),
        };
        // So that it can be kept later.
        self.spare.reserve(REGIONS, GFP_KERNEL)?;
        // SAFETY: As the caller promises.
        let memory = unsafe { Mapping::new(device, pinned, purpose.direction()) }?;
        let mut mr = match self.spare.pop() {
            Some(mr) => mr,
            // SAFETY: As the caller promises.
            None => unsafe { Mr::new(pd, self.max_pages) }?,
        };
        mr.describe(&memory)?;
        *self.places.get_mut(at).ok_or(ENOBUFS)? = Some(Region {
            mr,
            memory,
            key: Key::Valid,
            purpose,
        });
        Ok(RegionId(at as u8))
    }

    fn get(&self, id: RegionId) -> Option<&Region> {
        self.places.get(usize::from(id.0))?.as_ref()
    }

    fn key_mut(&mut self, id: RegionId) -> Option<&mut Key> {
        let region = self.places.get_mut(usize::from(id.0))?.as_mut()?;
        Some(&mut region.key)
    }

    pub(super) fn mr(&self, id: RegionId) -> Option<(&Mr, Use)> {
        self.get(id).map(|region| (&region.mr, region.purpose))
    }

    pub(super) fn address(&self, id: RegionId) -> Option<Address> {
        let region = self.get(id)?;
        // SAFETY: The MR is valid.
        let addr = unsafe { (*region.mr.as_ptr()).iova };
        Some(Address {
            key: region.mr.key(region.purpose),
            addr,
        })
    }

    /// The key shall be made invalid, by a request of ours.
    pub(super) fn condemn(&mut self, id: RegionId) {
        if let Some(key) = self.key_mut(id).filter(|key| **key == Key::Valid) {
            *key = Key::Condemned;
        }
    }

    /// A region whose key shall be made invalid.
    pub(super) fn condemned(&self) -> Option<RegionId> {
        let is_due = |r: &Option<Region>| r.as_ref().is_some_and(|r| r.key == Key::Condemned);
        self.places
            .iter()
            .position(is_due)
            .map(|at| RegionId(at as u8))
    }

    /// The request for that is posted.
    pub(super) fn dying(&mut self, id: RegionId) {
        if let Some(key) = self.key_mut(id) {
            *key = Key::Dying;
        }
    }

    /// The key is invalid.
    pub(super) fn died(&mut self, id: RegionId) {
        if let Some(key) = self.key_mut(id) {
            *key = Key::Dead;
        }
    }

    /// Whether a request to make a key invalid is posted.
    pub(super) fn any_dying(&self) -> bool {
        self.places.iter().flatten().any(|r| r.key == Key::Dying)
    }

    /// Whether there are regions of this use.
    pub(super) fn any(&self, purpose: Use) -> bool {
        self.places.iter().flatten().any(|r| r.purpose == purpose)
    }

    /// Takes the pages of a region out whose key is dead, and of which `purpose` is the use.
    pub(super) fn take_dead(&mut self, purpose: Use) -> Option<Pinned> {
        let region = self
            .places
            .iter_mut()
            .find_map(|place| place.take_if(|r| r.key == Key::Dead && r.purpose == purpose))?;
        // One for which there is no place is given back to the adapter.
        let _ = self.spare.push_within_capacity(region.mr);
        let Mapping { table, pinned } = region.memory;
        // While the device is there for certain.
        drop(table);
        Some(pinned)
    }
}
