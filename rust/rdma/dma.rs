// SPDX-License-Identifier: GPL-2.0

//! DMA mappings of page fragments.

use kernel::prelude::*;

use crate::bindings;
use crate::mm::frag::Frag;

/// Who writes and who reads a mapped buffer.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Direction {
    ToDevice,
    FromDevice,
}

impl Direction {
    fn raw(self) -> bindings::dma_data_direction {
        match self {
            Self::ToDevice => bindings::dma_data_direction_DMA_TO_DEVICE,
            Self::FromDevice => bindings::dma_data_direction_DMA_FROM_DEVICE,
        }
    }
}

/// Maps slab memory.
///
/// # Errors
///
/// `EIO` if the device cannot reach it.
///
/// # Safety
///
/// `device` is valid; the memory stays until it is unmapped.
pub(super) unsafe fn map_single(
    device: *mut bindings::ib_device,
    memory: *mut u8,
    len: usize,
    direction: Direction,
) -> Result<u64> {
    // SAFETY: As the caller promises.
    unsafe {
        let addr = bindings::ib_dma_map_single(device.cast(), memory.cast(), len, direction.raw());
        match bindings::ib_dma_mapping_error(device.cast(), addr) {
            0 => Ok(addr),
            _ => Err(EIO),
        }
    }
}

/// Undoes [`map_single`].
///
/// # Safety
///
/// The arguments are those of the mapping, which exists.
pub(super) unsafe fn unmap_single(
    device: *mut bindings::ib_device,
    addr: u64,
    len: usize,
    direction: Direction,
) {
    // SAFETY: As the caller promises.
    unsafe { bindings::ib_dma_unmap_single(device.cast(), addr, len, direction.raw()) };
}

/// Lets the CPU look at what the adapter wrote, or write what it shall read.
///
/// # Safety
///
/// The range is part of a mapping in this direction.
pub(super) unsafe fn sync_for_cpu(
    device: *mut bindings::ib_device,
    addr: u64,
    len: usize,
    direction: Direction,
) {
    // SAFETY: As the caller promises.
    unsafe { bindings::ib_dma_sync_for_cpu(device.cast(), addr, len, direction.raw()) };
}

/// Hands a range back to the adapter after the CPU used it.
///
/// # Safety
///
/// The range is part of a mapping in this direction.
pub(super) unsafe fn sync_for_device(
    device: *mut bindings::ib_device,
    addr: u64,
    len: usize,
    direction: Direction,
) {
    // SAFETY: As the caller promises.
    unsafe { bindings::ib_dma_sync_for_device(device.cast(), addr, len, direction.raw()) };
}

/// A fragment that the adapter may use.
///
/// # Invariants
///
/// `addr` is a mapping of `len` bytes of `frag` for `device`, which exists while the mapping does:
/// a connection's id, which goes last, holds it.
pub(crate) struct Mapped {
    frag: Option<Frag>,
    addr: u64,
    len: u32,
    direction: Direction,
    device: *mut bindings::ib_device,
}

// SAFETY: A mapping may be used and undone on any CPU.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Maps all of `frag`.
    ///
    /// # Errors
    ///
    /// `EIO` if the device cannot reach it; the fragment is dropped then.
    ///
    /// # Safety
    ///
    /// `device` outlives the mapping.
    pub(crate) unsafe fn new(
        device: *mut bindings::ib_device,
        frag: Frag,
        direction: Direction,
    ) -> Result<Self> {
        let len = frag.len();
        // SAFETY: The page is valid and the range inside it.
        let addr = unsafe {
            bindings::ib_dma_map_page(
                device.cast(),
                frag.page().cast(),
                frag.offset() as usize,
                len as usize,
                direction.raw(),
            )
        };
        // SAFETY: The device is valid.
        if unsafe { bindings::ib_dma_mapping_error(device.cast(), addr) } != 0 {
            return Err(EIO);
        }
        // INVARIANT: Just mapped.
        Ok(Self {
            frag: Some(frag),
            addr,
            len,
            direction,
            device,
        })
    }

    /// The address for a scatter entry, `offset` bytes into the fragment.
    pub(crate) fn addr(&self, offset: u32) -> u64 {
        self.addr.wrapping_add(offset.into())
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn frag(&self) -> Option<&Frag> {
        self.frag.as_ref()
    }

    /// Lets the CPU look at what the adapter wrote.
    pub(crate) fn sync_for_cpu(&self, offset: u32, len: u32) {
        // SAFETY: The range is part of the mapping.
        unsafe { sync_for_cpu(self.device, self.addr(offset), len as usize, self.direction) };
    }

    /// Hands a range back to the adapter after the CPU used it.
    pub(crate) fn sync_for_device(&self, offset: u32, len: u32) {
        // SAFETY: The range is part of the mapping.
        unsafe { sync_for_device(self.device, self.addr(offset), len as usize, self.direction) };
    }

    fn unmap(&mut self) {
        // SAFETY: By the type invariant, with the fragment as the sign that it still is mapped.
        unsafe {
            bindings::ib_dma_unmap_page(
                self.device.cast(),
                self.addr,
                self.len as usize,
                self.direction.raw(),
            );
        }
    }

    /// Undoes the mapping and returns the fragment.
    pub(crate) fn into_frag(mut self) -> Option<Frag> {
        let frag = self.frag.take()?;
        self.unmap();
        Some(frag)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.frag.is_some() {
            self.unmap();
        }
    }
}
