// SPDX-License-Identifier: GPL-2.0

//! The requests of the send queue that are not messages: registrations, Reads, Writes,
//! invalidations; and the regions of a link.

use kernel::alloc::Flags;
use kernel::error::to_result;
use kernel::prelude::*;

use super::link::{
    Link,
    Reading,
    Tag,
    With,
    MAX_FRAGS,
    SEND_FLAG,
    SLOTS, //
};
use super::receive::{
    Receive,
    MAX_PARTS, //
};
use super::region::{
    Address,
    Call,
    RegionId,
    Use,
    READ_SINK, //
};
use crate::bindings;
use crate::kern::errno::ENOBUFS;
use crate::mm::memory::Memory;
use crate::proto::sink_writer::Write;
use crate::proto::source_reader::Read;

/// The maximum number of Reads in flight: with this number the peer is never idle on soft-RoCE, and
/// a responder needs little memory for the Reads.
pub(crate) const READS: u32 = 4;

/// The maximum number of entries of a request: as many as fit into soft-RoCE's queue element of 512
/// bytes. They suffice for Reads and Writes of 64 KiB whose pages are not adjacent.
pub(super) const ENTRIES: usize = 19;

/// The number of Reads that fill one region without a key, or of Writes that empty it.
pub(super) const PARTS: usize = 2;

const _: () = assert!(MAX_PARTS <= ENTRIES && MAX_FRAGS < ENTRIES);

impl Link {
    /// Whether the adapter supports source adverts: Reads by the peer with a key of ours, and Reads
    /// of our own.
    pub(crate) fn can_advertise(&self) -> bool {
        self.regions.max_pages() > 0
    }

    /// The maximum number of pages of one region.
    pub(crate) fn max_region_pages(&self) -> u32 {
        self.regions.max_pages()
    }

    /// Whether the adapter is software that copies.
    pub(crate) fn is_software(&self) -> bool {
        self.regions.is_software()
    }

    /// Whether the connection uses iWARP.
    pub(crate) fn is_iwarp(&self) -> bool {
        self.regions.is_iwarp()
    }

    /// Our own requests for a region have finished; returns whether the owner may take the region
    /// back.
    pub(crate) fn region_used(&mut self, id: RegionId) -> bool {
        self.regions.used(id)
    }

    /// Whether a region has a key.
    pub(crate) fn has_key(&self, id: RegionId) -> bool {
        self.regions.mr(id).is_some()
    }

    /// Whether there is a place for another region.
    pub(crate) fn has_region_room(&self) -> bool {
        self.regions.has_room()
    }

    /// Makes a region of memory. Sleeps.
    ///
    /// # Errors
    ///
    /// The memory, if there is no place or the adapter cannot use the memory.
    pub(crate) fn add_region(&mut self, memory: Memory, purpose: Use) -> Result<RegionId, Memory> {
        // SAFETY: The domain outlives the regions, and the id the link.
        unsafe {
            self.regions
                .add(self.device, self.domain.0, memory, purpose)
        }
    }

    /// The address of a region, as the peer is told.
    pub(crate) fn region(&self, id: RegionId) -> Option<Address> {
        self.regions.address(id)
    }

    /// The use of a region.
    pub(crate) fn region_use(&self, id: RegionId) -> Option<Use> {
        self.regions.purpose(id)
    }

    /// Bytes of a region.
    pub(crate) fn region_bytes(&self, id: RegionId) -> u32 {
        self.regions.bytes(id)
    }

    /// The peer has invalidated the key of a region.
    pub(crate) fn region_died(&mut self, id: RegionId) {
        self.regions.died(id);
    }

    /// Invalidates the key of a region as soon as there is a place in the send queue.
    pub(crate) fn condemn_region(&mut self, id: RegionId) {
        self.regions.condemn(id);
    }

    /// Whether there are regions of this use.
    pub(crate) fn has_regions(&self, purpose: Use) -> bool {
        self.regions.any(purpose)
    }

    /// Whether there are regions of one of these uses whose key is invalid.
    pub(crate) fn has_dead_regions(&self, purposes: &[Use]) -> bool {
        self.regions.any_dead(purposes)
    }

    /// Takes out the memory of a region whose key is invalid.
    pub(crate) fn take_dead_region(&mut self, purpose: Use) -> Option<Memory> {
        self.regions.take_dead(purpose)
    }

    /// The adapter has finished with the memory of a region: threads that touch it need not wait.
    pub(crate) fn open_region(&mut self, id: RegionId) {
        self.regions.open(id);
    }

    /// The adapter may still write to the memory of a region, but no call has promised the bytes.
    pub(crate) fn excuse_region(&mut self, id: RegionId) {
        self.regions.excuse(id);
    }

    /// The call that waits for regions of this use is being killed: it will not take them back.
    pub(crate) fn leave_regions(&mut self, purpose: Use) {
        self.regions.leave(purpose);
    }

    /// Whether a thread that waits for memory of this connection is being killed, or may have
    /// waited for `ms` milliseconds.
    pub(crate) fn has_unwanted_regions(&self, ms: u32) -> bool {
        self.regions.any_unwanted(ms)
    }

    /// Whether requests are in flight whose completion must not be missed, because a thread waits
    /// for it, or gets its memory back.
    pub(crate) fn awaits_request(&self) -> bool {
        // A connection without adverts has no regions.
        let awaits_region =
            || self.regions.any_ending() || self.has_regions(Use::OwnWrites(Call::Killed));
        self.sends.reads > 0 || (!self.regions.is_empty() && awaits_region())
    }

    /// Whether there are regions from which this adapter writes to the peer's memory.
    pub(crate) fn writes(&self) -> bool {
        self.regions.any_writes()
    }

    /// The number of Reads that are posted and not finished.
    pub(crate) fn reads_in_flight(&self) -> u32 {
        self.sends.reads
    }

    /// Bytes of the memory of Reads in flight.
    pub(crate) fn reading_bytes(&self) -> u32 {
        self.reading.iter().map(|r| r.memory.len()).sum()
    }

    /// Places in the send queue that a registration takes.
    pub(crate) fn registration_places(&self) -> u32 {
        1 + u32::from(self.needs_barrier())
    }

    /// Whether a registration must wait for the requests that are in the send queue.
    fn needs_barrier(&self) -> bool {
        self.regions.repeats() && self.sends_in_flight() > 0
    }

    /// Places in the send queue that a message takes, including its additional request.
    pub(crate) fn places(&self, with: With) -> u32 {
        match with {
            With::Registration(_) => 1 + self.registration_places(),
            With::Nothing | With::Invalidation(_) => 1,
        }
    }

    /// Places in the send queue that [`Link::read_into`] takes.
    pub(crate) fn direct_places(&self) -> u32 {
        let invalidation = u32::from(!self.regions.is_iwarp());
        (self.registration_places() + 1 + invalidation).max(PARTS as u32)
    }

    /// Places in the send queue that [`Link::read`] takes.
    pub(crate) fn read_places(&self) -> u32 {
        match self.regions.is_iwarp() {
            true => 1 + self.registration_places(),
            false => 1,
        }
    }

    /// Creates the MRs that [`Link::read`] needs. Sleeps.
    ///
    /// # Errors
    ///
    /// What the provider returns, `ENOMEM`.
    pub(crate) fn prepare_reads(&mut self) -> Result {
        // SAFETY: The domain outlives the regions.
        unsafe { self.regions.prepare_reads(self.domain.0, READS as usize) }
    }

    /// Whether [`Link::read`] has the MRs that it needs ([`Link::prepare_reads`]).
    pub(crate) fn can_read(&self) -> bool {
        self.regions.can_read()
    }

    /// Places in the send queue that [`Link::write_from`] takes at most.
    pub(crate) fn write_places(&self) -> u32 {
        (self.registration_places() + 1).max(PARTS as u32)
    }

    /// Builds the requests that make the key of a region valid, for the next places of the send
    /// queue and before `next`; returns the first of them.
    pub(super) fn registration(
        &mut self,
        id: RegionId,
        requests: &mut Registration,
        next: *mut bindings::ib_send_wr,
    ) -> Result<*mut bindings::ib_send_wr> {
        let places = self.registration_places();
        let number = self.place(places - 1, Tag::Registration)?;
        let (mr, purpose) = self.regions.mr(id).ok_or(ENOBUFS)?;
        let former_key = mr.former_key();
        let request = &mut requests.request;
        request.mr = mr.as_ptr();
        request.key = mr.key(purpose);
        request.access = purpose.access(self.regions.is_iwarp()) as i32;
        request.wr.opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
        request.wr.__bindgen_anon_1.wr_id = number;
        request.wr.next = next;
        let mut first = (&raw mut requests.request).cast();
        if self.needs_barrier() {
            // An invalidation waits until all earlier requests are finished. The former key of a
            // free MR is already invalid.
            let number = self.place(0, Tag::Registration)?;
            let barrier = &mut requests.barrier;
            barrier.opcode = bindings::ib_wr_opcode_IB_WR_LOCAL_INV;
            barrier.ex.invalidate_rkey = former_key;
            barrier.__bindgen_anon_1.wr_id = number;
            barrier.next = first;
            first = &raw mut requests.barrier;
        }
        self.sends.unsignaled += places;
        Ok(first)
    }

    /// Builds the request that invalidates the key of a region, for the place behind the next
    /// `skip` places.
    fn invalidation(&mut self, skip: u32, id: RegionId) -> Result<bindings::ib_send_wr> {
        let number = self.place(skip, Tag::Invalidation(id))?;
        let (mr, purpose) = self.regions.mr(id).ok_or(ENOBUFS)?;
        let mut wr = bindings::ib_send_wr {
            opcode: bindings::ib_wr_opcode_IB_WR_LOCAL_INV,
            send_flags: bindings::ib_send_flags_IB_SEND_SIGNALED,
            ..Default::default()
        };
        wr.__bindgen_anon_1.wr_id = number;
        wr.ex.invalidate_rkey = mr.key(purpose);
        Ok(wr)
    }

    /// Takes the place behind the next `skip` places; returns the number for the request.
    fn place(&mut self, skip: u32, tag: Tag) -> Result<u64> {
        if self.send_room() <= skip {
            return Err(ENOBUFS);
        }
        let number = self.sends.next.wrapping_add(skip);
        let slot = self.tx.get_mut((number % SLOTS) as usize).ok_or(ENOBUFS)?;
        slot.payload = 0;
        slot.tag = tag;
        slot.is_seen = false;
        Ok(SEND_FLAG | u64::from(number))
    }

    /// Posts a chain of requests for the next `count` places. The last request reports its
    /// completion.
    ///
    /// # Safety
    ///
    /// `wr` is the first of `count` valid requests, whose memory stays until they are reaped or the
    /// queue pair is gone.
    unsafe fn post_chain(&mut self, wr: *const bindings::ib_send_wr, count: u32) -> Result {
        // SAFETY: As the caller promises; the queue pair is valid.
        to_result(unsafe { bindings::ib_post_send(self.verbs.qp.cast(), wr.cast()) })?;
        self.sends.next = self.sends.next.wrapping_add(count);
        self.sends.unsignaled = 0;
        self.sends.completions += 1;
        Ok(())
    }

    /// Posts a request that the peer's adapter acknowledges without involving its host: an RDMA
    /// Write of 0 bytes, for which the adapter checks no key (InfiniBand specification, volume 1,
    /// C9-88).
    ///
    /// # Errors
    ///
    /// `ENOBUFS` without a place; otherwise the error of the provider, after which the connection
    /// must be aborted.
    pub(crate) fn probe(&mut self) -> Result {
        let number = self.place(0, Tag::Probe)?;
        let mut wr = bindings::ib_rdma_wr::default();
        wr.wr.opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE;
        wr.wr.__bindgen_anon_1.wr_id = number;
        wr.wr.send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED;
        // SAFETY: One request, without memory.
        unsafe { self.post_chain((&raw const wr).cast(), 1) }
    }

    /// Posts requests that invalidate condemned keys, as long as there are places.
    ///
    /// # Errors
    ///
    /// The error of the provider, after which the connection must be aborted.
    pub(crate) fn invalidate_condemned(&mut self) -> Result {
        while self.send_room() > 0 {
            let Some(id) = self.regions.condemned() else {
                break;
            };
            let wr = self.invalidation(0, id)?;
            // SAFETY: One request, without memory.
            unsafe { self.post_chain(&raw const wr, 1) }?;
            self.regions.dying(id);
        }
        Ok(())
    }

    /// The request of [`Link::invalidate_condemned`] has finished.
    pub(crate) fn invalidated(&mut self, id: RegionId) {
        self.regions.died(id);
    }

    /// Ensures that [`Link::read`] can keep the memory of a Read.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn reserve_reading(&mut self, flags: Flags) -> Result {
        Ok(self.reading.reserve(1, flags)?)
    }

    /// Posts an RDMA Read into `memory`, which is large enough. The caller has ensured that there
    /// is a place, and has called [`Link::reserve_reading`].
    ///
    /// # Errors
    ///
    /// `ENOBUFS` without a place; otherwise the error of the provider, after which the connection
    /// must be aborted.
    pub(crate) fn read(&mut self, read: &Read, memory: Receive) -> Result {
        let mut sge = [bindings::ib_sge::default(); MAX_PARTS];
        let mut count = 0;
        let mut left = read.len;
        for part in memory.parts() {
            let len = part.len().min(left);
            if len > 0 {
                self.add_sge(&mut sge, &mut count, part.addr(), len)?;
            }
            left -= len;
        }
        if left > 0 || self.send_room() < self.read_places() {
            return Err(ENOBUFS);
        }
        let before = self.read_places() - 1;
        self.reading
            .push_within_capacity(Reading {
                number: self.sends.next.wrapping_add(before),
                memory,
            })
            .map_err(|_| ENOBUFS)?;
        let number = self.place(before, Tag::Read)?;
        let mut requests = Registration::default();
        let mut wr = Remote::of_read(read).request(&mut sge, count);
        wr.wr.__bindgen_anon_1.wr_id = number;
        wr.wr.send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED;
        let mut first: *const bindings::ib_send_wr = (&raw const wr).cast();
        if before > 0 {
            let ranges = sge.get(..count).ok_or(ENOBUFS)?;
            // SAFETY: The memory, which is mapped, is kept until the Read has finished.
            let mr = unsafe { self.regions.describe_read(number as u32, ranges) }?;
            let (mr, key) = (mr.as_ptr(), mr.own_key());
            // SAFETY: The MR is valid.
            let addr = unsafe { (*mr).iova };
            sge = [bindings::ib_sge::default(); MAX_PARTS];
            if let Some(all) = sge.first_mut() {
                (all.addr, all.length, all.lkey) = (addr, read.len, key);
            }
            wr.wr.num_sge = 1;
            wr.wr.opcode = bindings::ib_wr_opcode_IB_WR_RDMA_READ_WITH_INV;
            wr.wr.ex.invalidate_rkey = key;
            let request = &mut requests.request;
            request.mr = mr;
            request.key = key;
            request.access = READ_SINK as i32;
            request.wr.opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
            request.wr.__bindgen_anon_1.wr_id = self.place(0, Tag::Registration)?;
            request.wr.next = (&raw mut wr).cast();
            first = (&raw const requests.request).cast();
        }
        // SAFETY: A chain of `before + 1` requests; the memory is kept until the Read has finished.
        unsafe { self.post_chain(first, before + 1) }?;
        self.sends.reads += 1;
        Ok(())
    }

    /// Posts an RDMA Read into a region of the same size; the region ends with the Read. Takes at
    /// most [`Link::direct_places`].
    ///
    /// # Errors
    ///
    /// As for [`Link::read`].
    pub(crate) fn read_into(&mut self, read: &Read, id: RegionId) -> Result {
        if self.send_room() < self.direct_places() {
            return Err(ENOBUFS);
        }
        let tag = match self.regions.purpose(id) {
            Some(Use::OwnReads(Call::Returns)) => Tag::EarlyRead(id),
            _ => Tag::DirectRead(id),
        };
        if self.has_key(id) {
            self.read_by_key(read, id, tag)
        } else {
            self.post_parts(&Remote::of_read(read), id, tag)
        }?;
        self.sends.reads += 1;
        Ok(())
    }

    /// Posts requests for a region without a key. The requests name the ranges of the region, with
    /// the key that covers all memory for this adapter's own requests (`local_dma_lkey`). If there
    /// are several requests, they are adjacent in the send queue.
    fn post_parts(&mut self, remote: &Remote, id: RegionId, tag: Tag) -> Result {
        let mut sge = [[bindings::ib_sge::default(); ENTRIES]; PARTS];
        let mut requests = [bindings::ib_rdma_wr::default(); PARTS];
        let mut ranges = self.regions.ranges(id).ok_or(ENOBUFS)?;
        let mut left = remote.len;
        let mut count = 0;
        for (sge, request) in sge.iter_mut().zip(&mut requests) {
            let addr = remote.addr + u64::from(remote.len - left);
            let mut entries = 0;
            let mut len = 0;
            for (entry, (addr, length)) in sge.iter_mut().take(self.limits.ranges).zip(&mut ranges)
            {
                if len == left {
                    break;
                }
                *entry = bindings::ib_sge {
                    addr,
                    length: length.min(left - len),
                    lkey: self.lkey,
                };
                len += entry.length;
                entries += 1;
            }
            if len == 0 {
                break;
            }
            *request = Remote { addr, ..*remote }.request(sge, entries);
            left -= len;
            count += 1;
        }
        drop(ranges);
        if left > 0 {
            return Err(ENOBUFS);
        }
        let mut next = core::ptr::null_mut();
        let requests = requests.get_mut(..count).ok_or(ENOBUFS)?;
        for (skip, request) in requests.iter_mut().enumerate().rev() {
            let last = skip + 1 == count;
            let tag = if last { tag } else { Tag::Part };
            let number = self.place(skip as u32, tag)?;
            request.wr.__bindgen_anon_1.wr_id = number;
            request.wr.next = next;
            // With iWARP a Write has finished when TCP has its bytes. soft-iWARP gives a copy of
            // the bytes to TCP, but for a Write that does not report its completion it gives the
            // pages (Linux 7.3: `siw_prepare_fpdu()`).
            if last || self.regions.is_iwarp() {
                request.wr.send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED;
            }
            next = (&raw mut *request).cast();
        }
        // SAFETY: A chain of `count` requests; the region stays until they are finished or the
        // queue pair is gone.
        unsafe { self.post_chain(next, count as u32) }
    }

    /// Posts the Read with the region's own key, which is invalidated with the Read.
    fn read_by_key(&mut self, read: &Read, id: RegionId, tag: Tag) -> Result {
        let address = self.region(id).ok_or(ENOBUFS)?;
        let mut sge = [bindings::ib_sge {
            addr: address.addr,
            length: read.len,
            lkey: address.key,
        }];
        let before = self.registration_places();
        let number = self.place(before, tag)?;
        let mut wr = Remote::of_read(read).request(&mut sge, 1);
        wr.wr.__bindgen_anon_1.wr_id = number;
        if self.regions.is_iwarp() {
            wr.wr.opcode = bindings::ib_wr_opcode_IB_WR_RDMA_READ_WITH_INV;
            wr.wr.ex.invalidate_rkey = address.key;
            wr.wr.send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED;
            let mut requests = Registration::default();
            let first = self.registration(id, &mut requests, (&raw mut wr).cast())?;
            // SAFETY: A chain of `before + 1` requests; the region stays until the Read has
            // finished and the key is invalid, or the queue pair is gone.
            unsafe { self.post_chain(first, before + 1) }?;
            self.regions.ends_with_read(id);
            return Ok(());
        }
        let mut invalidation = self.invalidation(before + 1, id)?;
        // The key must not be invalidated before the bytes have arrived.
        invalidation.send_flags |= bindings::ib_send_flags_IB_SEND_FENCE;
        wr.wr.next = &raw mut invalidation;
        let mut requests = Registration::default();
        let first = self.registration(id, &mut requests, (&raw mut wr).cast())?;
        // SAFETY: A chain of `before + 2` requests; the region stays until its key is invalid or
        // the queue pair is gone.
        unsafe { self.post_chain(first, before + 2) }?;
        self.regions.dying(id);
        Ok(())
    }

    /// Posts an RDMA Write from a region of the same size. Takes at most [`Link::write_places`]. If
    /// the region has a key, the caller must end the region when the Write has finished.
    ///
    /// # Errors
    ///
    /// As for [`Link::read`].
    pub(crate) fn write_from(&mut self, write: &Write, id: RegionId) -> Result {
        if self.send_room() < self.write_places() {
            return Err(ENOBUFS);
        }
        let remote = Remote {
            opcode: bindings::ib_wr_opcode_IB_WR_RDMA_WRITE,
            rkey: write.rkey,
            addr: write.addr,
            len: write.len,
        };
        let tag = Tag::Write(id);
        if !self.has_key(id) {
            return self.post_parts(&remote, id, tag);
        }
        let address = self.region(id).ok_or(ENOBUFS)?;
        let mut sge = [bindings::ib_sge {
            addr: address.addr,
            length: write.len,
            lkey: address.key,
        }];
        let before = self.registration_places();
        let number = self.place(before, tag)?;
        let mut wr = remote.request(&mut sge, 1);
        wr.wr.__bindgen_anon_1.wr_id = number;
        wr.wr.send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED;
        let mut requests = Registration::default();
        let first = self.registration(id, &mut requests, (&raw mut wr).cast())?;
        // SAFETY: A chain of `before + 1` requests; the region stays until its key is invalid,
        // which happens after the Write has finished, or the queue pair is gone.
        unsafe { self.post_chain(first, before + 1) }
    }
}

/// Memory for the requests of a registration.
#[derive(Default)]
pub(super) struct Registration {
    barrier: bindings::ib_send_wr,
    request: bindings::ib_reg_wr,
}

/// The peer's side of an RDMA Read or Write.
struct Remote {
    opcode: bindings::ib_wr_opcode,
    rkey: u32,
    addr: u64,
    len: u32,
}

impl Remote {
    fn of_read(read: &Read) -> Self {
        Self {
            opcode: bindings::ib_wr_opcode_IB_WR_RDMA_READ,
            rkey: read.rkey,
            addr: read.addr,
            len: read.len,
        }
    }

    /// A request with the first `entries` entries.
    fn request(&self, sge: &mut [bindings::ib_sge], entries: usize) -> bindings::ib_rdma_wr {
        let mut wr = bindings::ib_rdma_wr {
            remote_addr: self.addr,
            rkey: self.rkey,
            ..Default::default()
        };
        wr.wr.opcode = self.opcode;
        wr.wr.sg_list = sge.as_mut_ptr();
        wr.wr.num_sge = entries as i32;
        wr
    }
}
