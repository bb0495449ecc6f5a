// SPDX-License-Identifier: GPL-2.0

//! Memory of programs that an adapter may use.
//!
//! # Normal operation
//!
//! A region that the peer reads is mapped and described to a memory region object (MR) of the
//! adapter, and a work request makes its key valid (fast registration). When the peer has read the
//! region, the key is invalidated: by the peer's last report, or by a work request of this side.
//! Then the sender takes the region back: it unmaps the region and then releases the pages. The MR
//! is kept for the next region. MRs are created when they are first needed, so an idle connection
//! has none.
//!
//! A region for Reads or Writes of this side needs no key: these requests name its address ranges
//! themselves, and the region ends with the last of the requests. A region of many ranges is
//! described to an MR nevertheless. The module avoids this where it can, because an invalidation
//! waits for all earlier requests, and with soft-RoCE a registration must wait for them, too: then
//! only one Read is in flight at a time.
//!
//! With iWARP the memory of a Read, even the kernel's, needs a key that allows the peer to write to
//! it: the peer's adapter sends the bytes like those of a Write. The key belongs to this Read
//! alone, and the adapter invalidates it when the Read has finished (Read with invalidation). The
//! domain belongs to the connection, so only this peer can use the key.
//!
//! # Failures
//!
//! The link keeps every region until its queue pair is gone. Only then the mappings are removed,
//! then the MRs, and then the pages are released.

use kernel::prelude::*;

use super::device::{
    Abilities,
    Driver, //
};
use super::dma::Direction;
use super::mr::{
    Mr,
    Table, //
};
use super::receive::{
    MAX_PARTS,
    PAGE_BYTES,
    PART_BYTES, //
};
use crate::bindings;
use crate::kern::errno::ENOBUFS;
use crate::mm::memory::Memory;
use crate::proto::source::Kind;

/// The maximum number of regions of a connection.
pub(crate) const REGIONS: usize = 34;

/// The number of a region of a connection.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) struct RegionId(u8);

/// The access flags of memory into which a Read with iWARP puts its bytes.
pub(super) const READ_SINK: u32 = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
    | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;

/// The state of the call whose memory our own requests use.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    /// It waits until they are finished, and takes the memory back.
    Waits,
    /// It returns as soon as they are posted.
    Returns,
    /// It has waited, and was killed.
    Killed,
}

/// What the adapter may do with a region. If a call that waits for the peer is killed, the call
/// resets the connection: so only our own requests can outlive a killed call.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Use {
    /// The peer reads the bytes of a send.
    PeerReads(Kind),
    /// Our own Reads put the bytes of a receive there.
    OwnReads(Call),
    /// The peer writes to it, and a receive waits for the Write.
    PeerWrites,
    /// Our own Writes take the bytes of a send from it.
    OwnWrites(Call),
}

impl Use {
    /// The access flags. With iWARP, the peer's adapter sends the bytes of our Reads as those of
    /// Writes of its own: so the key must allow Writes.
    pub(super) fn access(self, iwarp: bool) -> u32 {
        match self {
            Self::PeerReads(_) => bindings::ib_access_flags_IB_ACCESS_REMOTE_READ,
            Self::OwnReads(_) if iwarp => READ_SINK,
            Self::OwnReads(_) => bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE,
            Self::PeerWrites => {
                bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
                    | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
            }
            // The adapter itself can read every region.
            Self::OwnWrites(_) => 0,
        }
    }

    /// Whether our own Reads put bytes there.
    fn is_read(self) -> bool {
        matches!(self, Self::OwnReads(_))
    }

    /// Whether the peer uses it, by the remote key.
    pub(super) fn is_remote(self) -> bool {
        matches!(self, Self::PeerReads(_) | Self::PeerWrites)
    }

    fn direction(self) -> Direction {
        match self {
            Self::PeerReads(_) | Self::OwnWrites(_) => Direction::ToDevice,
            Self::OwnReads(_) | Self::PeerWrites => Direction::FromDevice,
        }
    }

    /// The use after the waiting call was killed.
    fn left(self) -> Self {
        match self {
            Self::OwnReads(Call::Waits) => Self::OwnReads(Call::Killed),
            Self::OwnWrites(Call::Waits) => Self::OwnWrites(Call::Killed),
            // No call waits, or the connection ends with the call.
            other => other,
        }
    }
}

/// The state of a region's key.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Key {
    /// There is none: only our own requests access the memory, and some of them are posted or will
    /// be.
    None,
    /// The key is valid, or will be when the posted requests have been executed.
    Valid,
    /// The posted Read will invalidate it.
    Read,
    /// It is to be invalidated.
    Condemned,
    /// The request to invalidate it is posted.
    Dying,
    /// It is invalid, or there was none and the requests are finished: nobody can access the
    /// memory.
    Dead,
}

/// The fields are dropped in this order: first the MR with the key, then the mapping, then the
/// pages.
struct Region {
    /// `None` for memory of few ranges that only our own requests access: they name the ranges.
    mr: Option<Mr>,
    table: Option<Table>,
    memory: Memory,
    key: Key,
    purpose: Use,
}

/// The address of a region, as the peer is told.
#[derive(Copy, Clone)]
pub(crate) struct Address {
    pub(crate) key: u32,
    pub(crate) addr: u64,
}

/// An MR for Reads into memory of the module, and the number of the Read that uses it.
struct ReadMr {
    mr: Mr,
    number: Option<u32>,
}

/// The regions of a connection, and MRs for the next ones.
pub(super) struct Regions {
    places: KVec<Option<Region>>,
    spare: KVec<Mr>,
    /// Used with iWARP: a Read may be posted in a context in which no MR can be created.
    for_reads: KVec<ReadMr>,
    /// The maximum number of pages of a region; 0 if the adapter supports no regions.
    max_pages: u32,
    /// The maximum number of ranges of memory without a key.
    max_ranges: usize,
    iwarp: bool,
    driver: Driver,
}

impl Drop for Regions {
    fn drop(&mut self) {
        self.leave_device();
    }
}

/// The memory of regions that no adapter uses any more. Giving it back may wait for a lock of a page
/// of a file, as long as a user's file system likes: nothing of the device must wait for it.
pub(crate) struct Released {
    _regions: Regions,
}

/// The maximum number of pages of one region: an adapter's page list takes memory, and the Reads of
/// shorter regions begin earlier.
pub(super) const MAX_PAGES: u32 = 256;
/// An adapter whose regions can have fewer pages is not used for adverts: smaller regions are not
/// worth the effort.
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
            driver: abilities.driver,
        }
    }

    /// Releases the memory from the device. The queue pair is gone.
    pub(super) fn release(mut self) -> Released {
        self.leave_device();
        Released { _regions: self }
    }

    /// Removes the keys and the mappings of all memory; the queue pair is gone. All transfers fail
    /// before the first of them is given back: giving one back takes locks, whose holders may wait
    /// for another transfer.
    fn leave_device(&mut self) {
        for region in self.places.iter_mut().flatten() {
            region.mr = None;
            // Unmapping copies bytes out of a bounce buffer now; later it would overwrite new
            // content of the pages. No key can be used any more.
            region.table = None;
            region.memory.conclude();
        }
        self.spare = KVec::new();
        self.for_reads = KVec::new();
    }

    pub(super) fn max_pages(&self) -> u32 {
        self.max_pages
    }

    /// Whether a registration must not be posted behind unfinished requests.
    ///
    /// soft-RoCE restarts at the oldest unacknowledged request, and executes its local requests
    /// behind it again. A repeated registration then fails, because its MR is not free; or, if the
    /// peer has invalidated the key, it makes the key valid again.
    pub(super) fn repeats(&self) -> bool {
        self.driver == Driver::SoftRoce
    }

    pub(super) fn is_software(&self) -> bool {
        self.driver.is_software()
    }

    /// Whether there is a place for another region.
    pub(super) fn has_room(&self) -> bool {
        self.places.len() < REGIONS || self.places.iter().any(Option::is_none)
    }

    /// Creates a region of memory. A request that the caller posts next makes its key valid.
    ///
    /// # Errors
    ///
    /// The memory, if there is no place or the adapter cannot use the memory.
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
        // So that the MR can be kept later.
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
        // SAFETY: The table was mapped for the device above. The MR is new, or a spare one, which is
        // not in use.
        unsafe { mr.describe(&table, memory.len()) }?;
        Ok((at, Some(mr), table))
    }

    pub(super) fn is_iwarp(&self) -> bool {
        self.iwarp
    }

    /// The maximum number of bytes of a Read into memory of the module, if such a Read needs a
    /// region.
    pub(super) fn max_read_bytes(&self) -> Option<u32> {
        let bytes = (self.max_pages * PAGE_BYTES).min(MAX_PARTS as u32 * PART_BYTES);
        self.iwarp.then_some(bytes)
    }

    /// Creates the MRs for `reads` simultaneous Reads into memory of the module. Sleeps.
    ///
    /// # Errors
    ///
    /// The error of the provider, `ENOMEM`.
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

    /// Whether there is an MR for a Read into memory of the module, if the Read needs one.
    pub(super) fn can_read(&self) -> bool {
        !self.iwarp || self.for_reads.iter().any(|read| read.number.is_none())
    }

    /// Describes the ranges of the Read with this number into memory of the module; returns the MR.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` without an MR or with too many ranges; the error of the provider.
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
        // SAFETY: The list has `ranges.len()` entries.
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

    /// The Read with this number has finished, which has invalidated its key.
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

    /// Our own requests for a region have finished. Returns whether the region has ended: not if it
    /// has a key that does not end with them.
    pub(super) fn used(&mut self, id: RegionId) -> bool {
        let ends = |key: &&mut Key| matches!(**key, Key::None | Key::Read);
        let key = self.key_mut(id).filter(ends);
        key.map(|key| *key = Key::Dead).is_some()
    }

    /// The size of a region in bytes.
    pub(super) fn bytes(&self, id: RegionId) -> u32 {
        self.get(id).map_or(0, |region| region.memory.len())
    }

    /// The key is to be invalidated by a request of this side.
    pub(super) fn condemn(&mut self, id: RegionId) {
        if let Some(key) = self.key_mut(id).filter(|key| **key == Key::Valid) {
            *key = Key::Condemned;
        }
    }

    /// A region whose key is to be invalidated.
    pub(super) fn condemned(&self) -> Option<RegionId> {
        let is_due = |r: &Option<Region>| r.as_ref().is_some_and(|r| r.key == Key::Condemned);
        self.places
            .iter()
            .position(is_due)
            .map(|at| RegionId(at as u8))
    }

    /// The request to invalidate the key is posted.
    pub(super) fn dying(&mut self, id: RegionId) {
        if let Some(key) = self.key_mut(id) {
            *key = Key::Dying;
        }
    }

    /// A Read is posted that will invalidate the key.
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

    /// The key is invalid, and the adapter has finished with the memory: threads that touch the
    /// memory need not wait any more. In any context.
    pub(super) fn open(&mut self, id: RegionId) {
        let region = self
            .places
            .get_mut(usize::from(id.0))
            .and_then(Option::as_mut);
        if let Some(region) = region {
            // Bytes in a bounce buffer are copied out only now.
            region.table = None;
            region.memory.open();
        }
    }

    /// The adapter may still write to the memory, but no call has promised the bytes.
    pub(super) fn excuse(&self, id: RegionId) {
        if let Some(region) = self.get(id) {
            region.memory.excuse();
        }
    }

    /// The call that waits for regions of this use is being killed, and does not wait any more.
    pub(super) fn leave(&mut self, purpose: Use) {
        let is_such = |r: &&mut Region| r.purpose == purpose;
        for region in self.places.iter_mut().flatten().filter(is_such) {
            region.purpose = purpose.left();
        }
    }

    /// Whether a thread that waits for memory of this connection is being killed, or may have
    /// waited for `ms` milliseconds.
    pub(super) fn any_unwanted(&self, ms: u32) -> bool {
        let is_unwanted =
            |r: &Region| matches!(&r.memory, Memory::Receiving(m) if m.is_unwanted(ms));
        self.places.iter().flatten().any(is_unwanted)
    }

    /// Whether there are no regions, and were none.
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether a request to invalidate a key is posted, or waits for its place.
    pub(super) fn any_ending(&self) -> bool {
        let is_ending = |r: &Region| matches!(r.key, Key::Condemned | Key::Dying);
        self.places.iter().flatten().any(is_ending)
    }

    /// Whether there are regions of this use.
    pub(super) fn any(&self, purpose: Use) -> bool {
        self.places.iter().flatten().any(|r| r.purpose == purpose)
    }

    /// Whether there are regions from which this adapter writes to the peer's memory.
    pub(super) fn any_writes(&self) -> bool {
        let mut regions = self.places.iter().flatten();
        regions.any(|r| matches!(r.purpose, Use::OwnWrites(_)))
    }

    /// Whether there are regions of one of these uses whose key is invalid.
    pub(super) fn any_dead(&self, purposes: &[Use]) -> bool {
        let is_dead = |r: &Region| r.key == Key::Dead && purposes.contains(&r.purpose);
        self.places.iter().flatten().any(is_dead)
    }

    /// Takes out the memory of a region of the use `purpose` whose key is invalid.
    pub(super) fn take_dead(&mut self, purpose: Use) -> Option<Memory> {
        let region = self
            .places
            .iter_mut()
            .find_map(|place| place.take_if(|r| r.key == Key::Dead && r.purpose == purpose))?;
        if let Some(mr) = region.mr {
            // If there is no place for it, it is given back to the adapter.
            let _ = self.spare.push_within_capacity(mr);
        }
        // Here the device certainly still exists.
        drop(region.table);
        Some(region.memory)
    }
}
