// SPDX-License-Identifier: GPL-2.0

//! DMA mappings of page fragments.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr;

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
    pub(super) fn raw(self) -> bindings::dma_data_direction {
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

/// The direction of a [`Mapped`] fragment, as a type: a mapping has no place for it.
pub(crate) trait Way {
    const DIRECTION: Direction;
}

/// To be sent.
pub(crate) enum Outgoing {}

/// To be received into.
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
/// `addr` is a mapping of all of `frag` for `device`, which exists while the mapping does: a
/// connection's id, which goes last, holds it.
pub(crate) struct Mapped<W: Way> {
    frag: Frag,
    addr: u64,
    device: *mut bindings::ib_device,
    way: PhantomData<W>,
}

// SAFETY: A mapping may be used and undone on any CPU.
unsafe impl<W: Way> Send for Mapped<W> {}

impl<W: Way> Mapped<W> {
    /// Maps all of `frag`.
    ///
    /// # Errors
    ///
    /// `EIO` if the device cannot reach it; the fragment is dropped then.
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

    /// The address for a scatter entry.
    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }

    pub(crate) fn len(&self) -> u32 {
        self.frag.len()
    }

    pub(crate) fn frag(&self) -> &Frag {
        &self.frag
    }

    /// Lets the CPU look at the first `len` bytes that the adapter wrote.
    pub(crate) fn sync_for_cpu(&self, len: u32) {
        let len = len.min(self.len()) as usize;
        // SAFETY: The range is part of the mapping.
        unsafe { sync_for_cpu(self.device, self.addr, len, W::DIRECTION) };
    }

    /// Hands all of it back to the adapter after the CPU used it.
    pub(crate) fn sync_for_device(&self) {
        // SAFETY: The range is the mapping.
        unsafe { sync_for_device(self.device, self.addr, self.len() as usize, W::DIRECTION) };
    }

    /// Undoes the mapping and returns the fragment.
    pub(crate) fn into_frag(self) -> Frag {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: It is never used again, nor dropped, so that the fragment has one owner.
        unsafe {
            this.unmap();
            ptr::read(&this.frag)
        }
    }

    /// # Safety
    ///
    /// The adapter does not use the mapping any more, nor does anybody after this.
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
        // SAFETY: Whoever posted it drops it after the completion or after the queue pair.
        unsafe { self.unmap() };
    }
}
