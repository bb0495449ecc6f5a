// SPDX-License-Identifier: GPL-2.0

//! The headers of the messages in a connection's queues, in memory that the adapter may use.

use core::ptr;

use kernel::prelude::*;

use super::dma::{
    map_single,
    sync_for_cpu,
    sync_for_device,
    unmap_single,
    Direction, //
};
use crate::bindings;
use crate::proto::bsdh::{
    BSDH_LEN,
    BSDH_LEN_U32, //
};
use crate::proto::message::MAX_BODY;

/// Places for each direction.
pub(super) const PLACES: u32 = 16;
/// The longest header with its body, rounded up so that all places are aligned.
const TX_BYTES: usize = (BSDH_LEN + MAX_BODY).next_multiple_of(8);
/// The headers to send come first; the received headers begin at a cache line of their own.
const TX_PART: usize = PLACES as usize * TX_BYTES;
const RX_PART: usize = PLACES as usize * BSDH_LEN;

const _: () = assert!(TX_PART % 64 == 0);

/// # Invariants
///
/// `bytes` is the memory of a box, whole cache lines from the slab allocator; `tx` and `rx` are
/// mappings of its two parts for `device`, which outlives this value. The adapter uses the memory
/// at any time, so it is accessed by pointers only.
pub(super) struct Headers {
    bytes: *mut Bytes,
    tx: u64,
    rx: u64,
    device: *mut bindings::ib_device,
}

type Bytes = [u8; TX_PART + RX_PART];

impl Headers {
    /// Bytes of a received header.
    pub(super) const RX_BYTES: u32 = BSDH_LEN_U32;
    /// Bytes available for a header to send, with its body.
    pub(super) const TX_BYTES: usize = TX_BYTES;

    /// # Errors
    ///
    /// `ENOMEM`; `EIO` if the device cannot reach the memory.
    ///
    /// # Safety
    ///
    /// `device` outlives the value.
    pub(super) unsafe fn new(device: *mut bindings::ib_device) -> Result<Self> {
        let mut bytes = KBox::new([0; TX_PART + RX_PART], GFP_KERNEL)?;
        let base = bytes.as_mut_ptr();
        // SAFETY: The first part lies in the box; the caller vouches for the device.
        let tx = unsafe { map_single(device, base, TX_PART, Direction::ToDevice) }?;
        // SAFETY: The second part also lies in the box.
        let rx = unsafe { map_single(device, base.add(TX_PART), RX_PART, Direction::FromDevice) }
            .inspect_err(|_| {
            // SAFETY: Mapped above.
            unsafe { unmap_single(device, tx, TX_PART, Direction::ToDevice) }
        })?;
        // INVARIANT: Both were just mapped.
        Ok(Self {
            bytes: KBox::into_raw(bytes),
            tx,
            rx,
            device,
        })
    }

    /// The address of the header to send in `place`.
    pub(super) fn tx_addr(&self, place: u32) -> u64 {
        self.tx + u64::from(place % PLACES) * TX_BYTES as u64
    }

    /// The address for the header of the message received in `place`.
    pub(super) fn rx_addr(&self, place: u32) -> u64 {
        self.rx + u64::from(place % PLACES) * BSDH_LEN as u64
    }

    /// Writes the header to be sent in `place`, with its body. The adapter does not use the place.
    pub(super) fn write(&mut self, place: u32, header: &[u8]) {
        let addr = self.tx_addr(place);
        let len = header.len().min(TX_BYTES);
        // SAFETY: The place is inside the first part, and has `len` bytes.
        unsafe {
            sync_for_cpu(self.device, addr, len, Direction::ToDevice);
            let to = self.bytes.cast::<u8>().add((addr - self.tx) as usize);
            ptr::copy_nonoverlapping(header.as_ptr(), to, len);
            sync_for_device(self.device, addr, len, Direction::ToDevice);
        }
    }

    /// The header of the message that was received in `place`.
    pub(super) fn read(&self, place: u32) -> [u8; BSDH_LEN] {
        let addr = self.rx_addr(place);
        // SAFETY: The place is inside the second part, and the adapter has finished with it.
        unsafe {
            sync_for_cpu(self.device, addr, BSDH_LEN, Direction::FromDevice);
            let from = self
                .bytes
                .cast::<u8>()
                .add(TX_PART + (addr - self.rx) as usize);
            from.cast::<[u8; BSDH_LEN]>().read()
        }
    }
}

impl Drop for Headers {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; the queues that used the memory are gone.
        unsafe {
            unmap_single(self.device, self.tx, TX_PART, Direction::ToDevice);
            unmap_single(self.device, self.rx, RX_PART, Direction::FromDevice);
            drop(KBox::from_raw(self.bytes));
        }
    }
}
