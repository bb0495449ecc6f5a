// SPDX-License-Identifier: GPL-2.0

//! Memory of programs that an adapter may use.
//!
//! # Normal operation
//!
//! A region that the peer reads is mapped and described to a memory region object (MR) of the
//! adapter, and a work request makes its key valid (fast registration). When the peer has read it, the
//! key is made invalid: by the peer's last report, or by a work request of our own. Then whoever sent
//! the bytes takes the region back, which unmaps it and gives the pages back, in this order; the MR is
//! kept for the next one. MRs are made when they are first needed, so that an idle connection has none.
//!
//! A region of our own Reads or Writes needs no key: these name its ranges of addresses themselves,
//! and it ends with the last of them. Only one of many ranges is described to an MR like the others.
//! For the requests that make keys valid and invalid keep the others apart: one waits for all before
//! it, the other must (on soft-RoCE both), and then one Read is in flight at a time.
//!
//! With iWARP the memory of a Read, even the kernel's, needs a key with which the peer may write to it:
//! the peer's adapter sends the bytes as those of a Write. The key is that of this Read alone, and is
//! made invalid by the adapter when the Read has finished (Read with invalidation); the domain is the
//! connection's, so that nobody else than this peer can use it.
//!
//! # When it ends otherwise
//!
//! The link keeps every region until its queue pair is gone. Only then the mappings go, and the MRs
//! with their pages behind them.

use core::ptr::{
    self,
    NonNull, //
};

use kernel::error::{
    from_err_ptr,
    to_result, //
};
use kernel::prelude::*;

use super::device::Abilities;
use super::dma::Direction;
use super::receive::{
    MAX_PARTS,
    PART_BYTES, //
};
use crate::bindings;
use crate::kern::errno::ENOBUFS;
use crate::mm::memory::Memory;
use crate::proto::source::Kind;

const PAGE_BYTES: u32 = 4096;

/// Regions of a connection, at a time.
pub(crate) const REGIONS: usize = 34;

/// The number of a region of a connection.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) struct RegionId(u8);

/// What memory needs that a Read with iWARP puts its bytes into.
pub(super) const READ_SINK: u32 = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
    | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;

/// The call whose memory our own requests use.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    /// It waits until they are finished, and takes the memory back.
    Waits,
    /// It returns as soon as they are posted.
    Returns,
    /// It has waited, and was killed.
    Killed,
}

/// What the adapter may do with a region. A call that waits for the peer and is killed resets the
/// connection: so only our own requests outlive one.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Use {
    /// The peer reads the bytes of a send.
    PeerReads(Kind),
    /// Our own Reads put the bytes there, for a receive.
    OwnReads(Call),
    /// The peer writes to it, and a receive waits for that.
    PeerWrites,
    /// Our own Writes take their bytes from it, for a send.
    OwnWrites(Call),
}

impl Use {
    /// With iWARP, the peer's adapter puts the bytes of our Reads there as those of its own Writes: so
    /// the key must allow Writes.
    pub(super) fn access(self, iwarp: bool) -> u32 {
        match self {
            Self::PeerReads(_) => bindings::ib_access_flags_IB_ACCESS_REMOTE_READ,
            Self::OwnReads(_) if iwarp => READ_SINK,
            Self::OwnReads(_) => bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE,
            Self::PeerWrites => {
                bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
                    | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
            }
            // To be read from by the adapter itself is what every region can.
            Self::OwnWrites(_) => 0,
        }
    }

    /// Whether our own Reads put bytes there.
    fn is_read(self) -> bool {
        matches!(self, Self::OwnReads(_))
    }

    /// Whether the peer uses it, by the key for others.
    fn is_remote(self) -> bool {
        matches!(self, Self::PeerReads(_) | Self::PeerWrites)
    }

    fn direction(self) -> Direction {
        match self {
            Self::PeerReads(_) | Self::OwnWrites(_) => Direction::ToDevice,
            Self::OwnReads(_) | Self::PeerWrites => Direction::FromDevice,
        }
    }

    /// What it is when the call that waits is killed, and leaves it.
    fn left(self) -> Self {
        match self {
            Self::OwnReads(Call::Waits) => Self::OwnReads(Call::Killed),
            Self::OwnWrites(Call::Waits) => Self::OwnWrites(Call::Killed),
            // No call waits, or the connection ends with the call.
            other => other,
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
    fn describe(&mut self, table: &Table, bytes: u32) -> Result {
        // SAFETY: The table is mapped for the MR's device, and has so many entries.
        unsafe { self.describe_list(table.sgt.sgl, table.sgt.nents, bytes) }
    }

    /// As [`Mr::describe`], for the ranges of addresses in a list.
    ///
    /// # Safety
    ///
    /// The list has `entries` entries, whose addresses are mapped for the MR's device. The MR is not in
    /// use.
    unsafe fn describe_list(
        &mut self,
        list: *mut bindings::scatterlist,
        entries: u32,
        bytes: u32,
    ) -> Result {
        let mr = self.as_ptr();
        // SAFETY: The MR is ours; the list is as the caller promises.
        unsafe {
            let n = bindings::ib_map_mr_sg(mr, list, entries as i32, ptr::null_mut(), PAGE_BYTES);
            if n < 0 || n as u32 != entries || (*mr).length != u64::from(bytes) {
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

impl Table {
    /// # Safety
    ///
    /// `device` outlives the value, and the pages what uses the table.
    unsafe fn new(
        device: *mut bindings::ib_device,
        memory: &Memory,
        direction: Direction,
    ) -> Result<Self> {
        let mut sgt = bindings::sg_table::default();
        // SAFETY: The list has so many pages, which hold the bytes. The table is mapped or freed.
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
}

impl Table {
    /// How many ranges of addresses it has.
    fn len(&self) -> usize {
        self.sgt.nents as usize
    }

    /// The ranges: where they begin, and their bytes.
    fn ranges(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let mut entry = self.sgt.sgl;
        (0..self.len()).map(move |_| {
            // SAFETY: The table is mapped, and has so many entries.
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

// SAFETY: A mapping may be undone by any thread.
unsafe impl Send for Table {}

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
    /// There is none: only our own requests reach the memory, of which some are posted or will be.
    None,
    /// The key is valid, or will be when the posted requests are done.
    Valid,
    /// It becomes invalid with the Read that is posted.
    Read,
    /// It shall be made invalid.
    Condemned,
    /// The request for that is posted.
    Dying,
    /// It is invalid, or there was none and the requests are finished: nobody can reach the memory.
    Dead,
}

/// The fields are dropped in this order: the MR, with the key, before the mapping, and that before
/// the pages.
struct Region {
    /// Memory of few ranges that only our own requests reach has none: they name them.
    mr: Option<Mr>,
    table: Option<Table>,
    memory: Memory,
    key: Key,
    purpose: Use,
}

/// What the peer is told of a region.
#[derive(Copy, Clone)]
pub(crate) struct Address {
    pub(crate) key: u32,
    pub(crate) addr: u64,
}

/// An MR for Reads into memory of ours, and the number of the Read that it is used for.
struct ReadMr {
    mr: Mr,
    number: Option<u32>,
}

/// The regions of a connection, and MRs for the next ones.
pub(super) struct Regions {
    places: KVec<Option<Region>>,
    spare: KVec<Mr>,
    /// With iWARP: Reads are posted where no MR can be made.
    for_reads: KVec<ReadMr>,
    /// Pages that a region may have; 0 if the adapter cannot have any.
    max_pages: u32,
    /// Ranges that memory without a key may have.
    max_ranges: usize,
    iwarp: bool,
    /// Whether the adapter does a registration again with the requests before it that it sends again.
    soft_roce: bool,
    /// Whether the adapter is a program that copies.
    software: bool,
}

impl Drop for Regions {
    /// The queue pair is gone. All that were on their way fail before one of them is given back: for
    /// that takes locks, and who has them may wait for another one.
    fn drop(&mut self) {
        for region in self.places.iter_mut().flatten() {
            // What is in a bounce buffer comes now, or would overwrite what is made of the pages. No
            // key is of use any more.
            region.table = None;
            region.memory.conclude();
        }
    }
}

/// The most pages of one region: an adapter's list of them takes memory, and the Reads of shorter
/// ones begin earlier.
pub(super) const MAX_PAGES: u32 = 256;
/// Fewer than these are not worth it.
pub(super) const LEAST_PAGES: u32 = 16;

impl Regions {
    /// # Safety
    ///
    /// `device` is valid.
    pub(super) unsafe fn new(
        device: *mut bindings::ib_device,
        port: u32,
        abilities: &Abilities,
        max_ranges: usize,
    ) -> Self {
        // SAFETY: As the caller promises.
        let iwarp = unsafe { bindings::rdma_protocol_iwarp(device.cast(), port) };
        Self {
            places: KVec::new(),
            spare: KVec::new(),
            for_reads: KVec::new(),
            max_pages: abilities.advert_pages(),
            max_ranges,
            iwarp,
            soft_roce: abilities.soft_roce,
            software: abilities.is_software(),
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
        self.soft_roce
    }

    pub(super) fn is_software(&self) -> bool {
        self.software
    }

    /// Whether there is a place for another one.
    pub(super) fn has_room(&self) -> bool {
        self.places.len() < REGIONS || self.places.iter().any(Option::is_none)
    }

    /// Makes a region of memory, whose key becomes valid by a request that the caller posts next.
    ///
    /// # Errors
    ///
    /// The memory, if there is no place or the adapter cannot have it.
    ///
    /// # Safety
    ///
    /// `device` and `pd` outlive the value.
    pub(super) unsafe fn add(
        &mut self,
        device: *mut bindings::ib_device,
        pd: *mut bindings::ib_pd,
        memory: Memory,
        purpose: Use,
    ) -> Result<RegionId, Memory> {
        // SAFETY: As the caller promises; the memory is kept in the region.
        let Ok((at, mr, table)) = (unsafe { self.map(device, pd, &memory, purpose) }) else {
            return Err(memory);
        };
        let region = Region {
            key: mr.as_ref().map_or(Key::None, |_| Key::Valid),
            mr,
            table: Some(table),
            memory,
            purpose,
        };
        match self.places.get_mut(at) {
            Some(place) => *place = Some(region),
            None => return Err(region.memory),
        }
        Ok(RegionId(at as u8))
    }

    /// # Safety
    ///
    /// As for [`Regions::add`]; `memory` outlives the key.
    unsafe fn map(
        &mut self,
        device: *mut bindings::ib_device,
        pd: *mut bindings::ib_pd,
        memory: &Memory,
        purpose: Use,
    ) -> Result<(usize, Option<Mr>, Table)> {
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
        let table = unsafe { Table::new(device, memory, purpose.direction()) }?;
        let needs_key = purpose.is_remote() || (self.iwarp && purpose.is_read());
        if !needs_key && table.len() <= self.max_ranges {
            return Ok((at, None, table));
        }
        let mut mr = match self.spare.pop() {
            Some(mr) => mr,
            // SAFETY: As the caller promises.
            None => unsafe { Mr::new(pd, self.max_pages) }?,
        };
        mr.describe(&table, memory.len())?;
        Ok((at, Some(mr), table))
    }

    pub(super) fn is_iwarp(&self) -> bool {
        self.iwarp
    }

    /// The most bytes of a Read into memory of ours, if it needs a region.
    pub(super) fn max_read_bytes(&self) -> Option<u32> {
        let bytes = (self.max_pages * PAGE_BYTES).min(MAX_PARTS as u32 * PART_BYTES);
        self.iwarp.then_some(bytes)
    }

    /// Makes what Reads into memory of ours need, so many at a time. Sleeps.
    ///
    /// # Errors
    ///
    /// What the provider returns, `ENOMEM`.
    ///
    /// # Safety
    ///
    /// `pd` outlives the value.
    pub(super) unsafe fn prepare_reads(
        &mut self,
        pd: *mut bindings::ib_pd,
        reads: usize,
    ) -> Result {
        while self.iwarp && self.for_reads.len() < reads {
            self.for_reads.reserve(1, GFP_KERNEL)?;
            // SAFETY: As the caller promises.
            let mr = unsafe { Mr::new(pd, self.max_pages) }?;
            let read = ReadMr { mr, number: None };
            self.for_reads
                .push_within_capacity(read)
                .map_err(|_| ENOMEM)?;
        }
        Ok(())
    }

    /// Whether there is what a Read into memory of ours needs.
    pub(super) fn can_read(&self) -> bool {
        !self.iwarp || self.for_reads.iter().any(|read| read.number.is_none())
    }

    /// Describes the ranges of a Read with this number, into memory of ours; returns the MR.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` without an MR or with too many ranges; what the provider returns.
    ///
    /// # Safety
    ///
    /// The ranges are mapped for the device, until the Read has finished or the queue pair is gone.
    pub(super) unsafe fn describe_read(
        &mut self,
        number: u32,
        ranges: &[bindings::ib_sge],
    ) -> Result<&Mr> {
        let free = |read: &&mut ReadMr| read.number.is_none();
        let read = self.for_reads.iter_mut().find(free).ok_or(ENOBUFS)?;
        let mut list = [bindings::scatterlist::default(); MAX_PARTS];
        let entries = list.get_mut(..ranges.len()).ok_or(ENOBUFS)?;
        // SAFETY: The list has so many entries.
        unsafe { bindings::sg_init_table(entries.as_mut_ptr(), ranges.len() as u32) };
        for (entry, range) in entries.iter_mut().zip(ranges) {
            // SAFETY: The entry is valid.
            unsafe { bindings::sg_set_dma((&raw mut *entry).cast(), range.addr, range.length) };
        }
        let bytes = ranges.iter().map(|range| range.length).sum();
        // SAFETY: The entries are as the caller promises, and the MR is free.
        unsafe {
            read.mr
                .describe_list(entries.as_mut_ptr(), ranges.len() as u32, bytes)
        }?;
        read.number = Some(number);
        Ok(&read.mr)
    }

    /// The Read with this number has finished, and with it the key.
    pub(super) fn read_done(&mut self, number: u32) {
        let is_such = |read: &&mut ReadMr| read.number == Some(number);
        if let Some(read) = self.for_reads.iter_mut().find(is_such) {
            read.number = None;
        }
    }

    fn get(&self, id: RegionId) -> Option<&Region> {
        self.places.get(usize::from(id.0))?.as_ref()
    }

    fn key_mut(&mut self, id: RegionId) -> Option<&mut Key> {
        let region = self.places.get_mut(usize::from(id.0))?.as_mut()?;
        Some(&mut region.key)
    }

    pub(super) fn mr(&self, id: RegionId) -> Option<(&Mr, Use)> {
        let region = self.get(id)?;
        region.mr.as_ref().map(|mr| (mr, region.purpose))
    }

    pub(super) fn purpose(&self, id: RegionId) -> Option<Use> {
        self.get(id).map(|region| region.purpose)
    }

    /// The ranges of a region without a key.
    pub(super) fn ranges(&self, id: RegionId) -> Option<impl Iterator<Item = (u64, u32)> + '_> {
        let region = self.get(id).filter(|region| region.mr.is_none())?;
        region.table.as_ref().map(Table::ranges)
    }

    pub(super) fn address(&self, id: RegionId) -> Option<Address> {
        let (mr, purpose) = self.mr(id)?;
        // SAFETY: The MR is valid.
        let addr = unsafe { (*mr.as_ptr()).iova };
        Some(Address {
            key: mr.key(purpose),
            addr,
        })
    }

    /// Our own requests for a region are finished; returns whether that makes an end of it: not if it
    /// has a key that does not end with them.
    pub(super) fn used(&mut self, id: RegionId) -> bool {
        let ends = |key: &&mut Key| matches!(**key, Key::None | Key::Read);
        let key = self.key_mut(id).filter(ends);
        key.map(|key| *key = Key::Dead).is_some()
    }

    /// Its bytes.
    pub(super) fn bytes(&self, id: RegionId) -> u32 {
        self.get(id).map_or(0, |region| region.memory.len())
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

    /// The Read is posted with which the key becomes invalid.
    pub(super) fn ends_with_read(&mut self, id: RegionId) {
        if let Some(key) = self.key_mut(id) {
            *key = Key::Read;
        }
    }

    /// The key is invalid.
    pub(super) fn died(&mut self, id: RegionId) {
        if let Some(key) = self.key_mut(id) {
            *key = Key::Dead;
        }
    }

    /// The key is invalid, and the adapter has done with the memory: nobody need wait for it longer
    /// than for its owner to take it. In any context.
    pub(super) fn open(&mut self, id: RegionId) {
        let region = self
            .places
            .get_mut(usize::from(id.0))
            .and_then(Option::as_mut);
        if let Some(region) = region {
            // The bytes may only now come out of a bounce buffer.
            region.table = None;
            region.memory.open();
        }
    }

    /// The adapter may still write to the memory, but nobody was promised anything.
    pub(super) fn excuse(&self, id: RegionId) {
        if let Some(region) = self.get(id) {
            region.memory.excuse();
        }
    }

    /// The call that waits for regions of this use is being killed, and waits no more.
    pub(super) fn leave(&mut self, purpose: Use) {
        let is_such = |r: &&mut Region| r.purpose == purpose;
        for region in self.places.iter_mut().flatten().filter(is_such) {
            region.purpose = purpose.left();
        }
    }

    /// Whether somebody who waits for memory of this connection is being killed, or has waited for
    /// `ms` milliseconds.
    pub(super) fn any_unwanted(&self, ms: u32) -> bool {
        let is_unwanted =
            |r: &Region| matches!(&r.memory, Memory::Receiving(m) if m.is_unwanted(ms));
        self.places.iter().flatten().any(is_unwanted)
    }

    /// Whether a request to make a key invalid is posted, or waits for its place.
    pub(super) fn any_ending(&self) -> bool {
        let is_ending = |r: &Region| matches!(r.key, Key::Condemned | Key::Dying);
        self.places.iter().flatten().any(is_ending)
    }

    /// Whether there are regions of this use.
    pub(super) fn any(&self, purpose: Use) -> bool {
        self.places.iter().flatten().any(|r| r.purpose == purpose)
    }

    /// Whether there are regions of one of these uses whose key is dead.
    pub(super) fn any_dead(&self, purposes: &[Use]) -> bool {
        let is_dead = |r: &Region| r.key == Key::Dead && purposes.contains(&r.purpose);
        self.places.iter().flatten().any(is_dead)
    }

    /// Takes the memory of a region out whose key is dead, and of which `purpose` is the use.
    pub(super) fn take_dead(&mut self, purpose: Use) -> Option<Memory> {
        let region = self
            .places
            .iter_mut()
            .find_map(|place| place.take_if(|r| r.key == Key::Dead && r.purpose == purpose))?;
        if let Some(mr) = region.mr {
            // One for which there is no place is given back to the adapter.
            let _ = self.spare.push_within_capacity(mr);
        }
        // While the device is there for certain.
        drop(region.table);
        Some(region.memory)
    }
}
