// SPDX-License-Identifier: GPL-2.0

//! DMA mappings of page fragments.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr;

use kernel::prelude::*;

use crate::bindings;
use crate::mm::frag::Frag;

/// The direction of a mapping: which side writes the buffer, and which side reads it.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Direction {
    ToDevice,
    FromDevice,
}

impl Direction {
    pub(super) fn raw(self) -> bindings::dma_data_direction {
        match self {
            Self::ToDevice => bindings::dma_data_direction_DMA_TO_DEVICE,
            Self::FromDevice => bindings::dma_data_direction_DMA_FROM_DEVICE,
        }
    }
}

/// Maps memory of the slab allocator.
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

/// Removes a mapping of [`map_single`].
///
/// # Safety
///
/// The arguments are those of an existing mapping.
pub(super) unsafe fn unmap_single(
    device: *mut bindings::ib_device,
    addr: u64,
    len: usize,
    direction: Direction,
) {
    // SAFETY: As the caller promises.
    unsafe { bindings::ib_dma_unmap_single(device.cast(), addr, len, direction.raw()) };
}

/// Lets the CPU read bytes that the adapter has written, or write bytes that the adapter will read.
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

/// Gives a range back to the adapter after the CPU has used it.
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

/// The direction of a [`Mapped`] fragment, as a type, so that the mapping need not store it.
pub(crate) trait Way {
    const DIRECTION: Direction;
}

/// For sending.
pub(crate) enum Outgoing {}

/// For receiving.
pub(crate) enum Incoming {}

impl Way for Outgoing {
    const DIRECTION: Direction = Direction::ToDevice;
}

impl Way for Incoming {
    const DIRECTION: Direction = Direction::FromDevice;
}

/// A fragment that the adapter may use.
///
/// # Invariants
///
/// `addr` is a mapping of all of `frag` for `device`. The device exists as long as the mapping: the
/// id of the connection, which is destroyed last, holds the device.
pub(crate) struct Mapped<W: Way> {
    frag: Frag,
    addr: u64,
    device: *mut bindings::ib_device,
    way: PhantomData<W>,
}

// SAFETY: A mapping may be used and removed on any CPU.
unsafe impl<W: Way> Send for Mapped<W> {}

impl<W: Way> Mapped<W> {
    /// Maps all of `frag`.
    ///
    /// # Errors
    ///
    /// `EIO` if the device cannot reach it; then the fragment is dropped.
    ///
    /// # Safety
    ///
    /// `device` outlives the mapping.
    pub(crate) unsafe fn new(device: *mut bindings::ib_device, frag: Frag) -> Result<Self> {
        // SAFETY: The page is valid and the range inside it.
        let addr = unsafe {
            bindings::ib_dma_map_page(
                device.cast(),
                frag.page().cast(),
                frag.offset() as usize,
                frag.len() as usize,
                W::DIRECTION.raw(),
            )
        };
        // SAFETY: The device is valid.
        if unsafe { bindings::ib_dma_mapping_error(device.cast(), addr) } != 0 {
            return Err(EIO);
        }
        // INVARIANT: Just mapped.
        Ok(Self {
            frag,
            addr,
            device,
            way: PhantomData,
        })
    }

    /// The address for a scatter/gather entry.
    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }

    pub(crate) fn len(&self) -> u32 {
        self.frag.len()
    }

    pub(crate) fn frag(&self) -> &Frag {
        &self.frag
    }

    /// Lets the CPU read the first `len` bytes that the adapter has written.
    pub(crate) fn sync_for_cpu(&self, len: u32) {
        let len = len.min(self.len()) as usize;
        // SAFETY: The range is part of the mapping.
        unsafe { sync_for_cpu(self.device, self.addr, len, W::DIRECTION) };
    }

    /// Gives the whole fragment back to the adapter after the CPU has used it.
    pub(crate) fn sync_for_device(&self) {
        // SAFETY: The range is the mapping.
        unsafe { sync_for_device(self.device, self.addr, self.len() as usize, W::DIRECTION) };
    }

    /// Removes the mapping and returns the fragment.
    pub(crate) fn into_frag(self) -> Frag {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: As in `drop`. The value is neither used again nor dropped, so the fragment has one
        // owner.
        unsafe {
            this.unmap();
            ptr::read(&this.frag)
        }
    }

    /// # Safety
    ///
    /// The adapter does not use the mapping any more, and nobody uses the value afterwards.
    unsafe fn unmap(&mut self) {
        // SAFETY: By the type invariant it is mapped.
        unsafe {
            bindings::ib_dma_unmap_page(
                self.device.cast(),
                self.addr,
                self.len() as usize,
                W::DIRECTION.raw(),
            );
        }
    }
}

impl<W: Way> Drop for Mapped<W> {
    fn drop(&mut self) {
        // SAFETY: The code that posted the fragment drops it after the completion or after the
        // queue pair.
        unsafe { self.unmap() };
    }
}
