// SPDX-License-Identifier: GPL-2.0

//! The memory of a receive, into which the adapter writes the bytes of a message behind the header.

use kernel::alloc::Flags;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

use super::dma::{
    Incoming,
    Mapped, //
};
use crate::bindings;
use crate::mm::frag::Frag;

/// The maximum number of fragments of a receive.
pub(crate) const MAX_PARTS: usize = 4;
/// Bytes of the largest fragment: the largest order that the page allocator keeps on per-CPU lists,
/// and tries hard to allocate (`PAGE_ALLOC_COSTLY_ORDER`).
pub(crate) const PART_BYTES: u32 = PAGE_BYTES << PART_ORDER;
const PART_ORDER: u32 = 3;
pub(super) const PAGE_BYTES: u32 = PAGE_SIZE as u32;

/// Fragments that were read or stayed empty, for reuse by later receives: new pages would have to be
/// cleared. They are whole pages, of the size of a fragment of the present receives.
pub(crate) struct Spares([Option<Frag>; MAX_PARTS]);

impl Spares {
    pub(crate) const fn new() -> Self {
        Self([const { None }; MAX_PARTS])
    }

    /// Keeps the pages of `used`, if receives of `bytes` have fragments of their size, nobody else
    /// uses them, and there is room.
    pub(crate) fn put(&mut self, used: Frag, bytes: u32) {
        let place = self.0.iter_mut().find(|place| place.is_none());
        let whole = used.into_whole();
        let fitting = whole.filter(|whole| whole.len() == bytes.min(PART_BYTES));
        if let (Some(place), Some(whole)) = (place, fitting) {
            *place = Some(whole);
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Whether a receive of `bytes` finds all its fragments here.
    pub(crate) fn suffice_for(&self, bytes: u32) -> bool {
        let part = bytes.min(PART_BYTES);
        let fitting = self.0.iter().flatten().filter(|frag| frag.len() == part);
        fitting.count() as u32 * part >= bytes
    }

    /// Takes out a fragment of `bytes`.
    fn take(&mut self, bytes: u32) -> Option<Frag> {
        let fits = |frag: &mut Frag| frag.len() == bytes;
        self.0.iter_mut().find_map(|place| place.take_if(fits))
    }
}

/// Fragments that the adapter may write to.
pub(crate) struct Receive {
    first: Mapped<Incoming>,
    /// Separate, because most connections have none.
    rest: Option<KBox<Rest>>,
}

type Rest = [Option<Mapped<Incoming>>; MAX_PARTS - 1];

impl Receive {
    /// Allocates and maps `bytes`: a page times a power of two, up to `MAX_PARTS * PART_BYTES`.
    /// Uses fragments of `spares` if there are any.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EIO` if the device cannot reach the memory.
    ///
    /// # Safety
    ///
    /// `device` outlives the value.
    pub(super) unsafe fn new(
        device: *mut bindings::ib_device,
        bytes: u32,
        spares: &mut Spares,
        (gfp, flags): (bindings::gfp_t, Flags),
    ) -> Result<Self> {
        let mut part = || {
            let part_bytes = bytes.min(PART_BYTES);
            let frag = match spares.take(part_bytes) {
                Some(frag) => frag,
                None => Frag::alloc((part_bytes / PAGE_BYTES).trailing_zeros(), gfp)?,
            };
            // SAFETY: The caller vouches for the device.
            unsafe { Mapped::new(device, frag) }
        };
        let first = part()?;
        let count = bytes.div_ceil(PART_BYTES) as usize;
        if count <= 1 {
            return Ok(Self { first, rest: None });
        }
        let mut rest = KBox::new([const { None }; MAX_PARTS - 1], flags)?;
        for place in rest.iter_mut().take(count - 1) {
            *place = Some(part()?);
        }
        Ok(Self {
            first,
            rest: Some(rest),
        })
    }

    /// Maps `bytes`, fewer than a page, of the page `rest`, which several receives share; of a new
    /// page if `rest` is used up.
    ///
    /// # Errors
    ///
    /// As [`Receive::new`].
    ///
    /// # Safety
    ///
    /// `device` outlives the value.
    pub(super) unsafe fn part_of_page(
        device: *mut bindings::ib_device,
        bytes: u32,
        rest: &mut Option<Frag>,
        gfp: bindings::gfp_t,
    ) -> Result<Self> {
        let mut page = match rest.take() {
            Some(page) => page,
            None => Frag::alloc(0, gfp)?,
        };
        let part = page.split_front(bytes);
        if page.len() >= bytes {
            *rest = Some(page);
        }
        // SAFETY: The caller vouches for the device.
        let first = unsafe { Mapped::new(device, part) }?;
        Ok(Self { first, rest: None })
    }

    /// The mapped fragments, in the order in which they are filled.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Mapped<Incoming>> {
        let rest = self.rest.as_deref().into_iter().flatten().flatten();
        Iterator::chain(core::iter::once(&self.first), rest)
    }

    /// The number of fragments.
    pub(super) fn count(&self) -> usize {
        self.parts().count()
    }

    /// Bytes of payload (and body) that it can take.
    pub(crate) fn len(&self) -> u32 {
        self.parts().map(Mapped::len).sum()
    }

    /// Lets the CPU read the first `len` bytes.
    pub(crate) fn sync_for_cpu(&self, len: u32) {
        let mut left = len;
        for part in self.parts() {
            part.sync_for_cpu(left.min(part.len()));
            left = left.saturating_sub(part.len());
        }
    }

    /// Gives all fragments back to the adapter.
    pub(super) fn sync_for_device(&self) {
        self.parts().for_each(Mapped::sync_for_device);
    }

    /// The bytes of the first fragment, which contains every body and every short payload.
    pub(crate) fn front(&self) -> &[u8] {
        // SAFETY: A receive's pages are the module's. The adapter does not write to them: only
        // receives that have completed leave the queue of posted receives.
        unsafe { self.first.frag().as_slice() }
    }

    /// The byte at an offset.
    pub(crate) fn byte(&self, at: u32) -> Option<u8> {
        let mut at = at as usize;
        for part in self.parts() {
            // SAFETY: As in `front`.
            let bytes = unsafe { part.frag().as_slice() };
            if let Some(byte) = bytes.get(at) {
                return Some(*byte);
            }
            at -= bytes.len();
        }
        None
    }

    /// The `len` bytes behind the first `skip`, as fragments; fragments without such bytes go to
    /// `spares`, for receives of `bytes`.
    pub(crate) fn into_payload(
        self,
        skip: u32,
        len: u32,
        (spares, bytes): (&mut Spares, u32),
    ) -> [Option<Frag>; MAX_PARTS] {
        let mut skip = skip;
        let mut left = len;
        let mut part = |part: Mapped<Incoming>| {
            let mut frag = part.into_frag();
            if left == 0 {
                spares.put(frag, bytes);
                return None;
            }
            let skipped = skip.min(frag.len());
            frag.skip(skipped);
            frag.truncate(left);
            skip -= skipped;
            left -= frag.len();
            (frag.len() > 0).then_some(frag)
        };
        let mut payload = [const { None }; MAX_PARTS];
        let mut rest = self.rest;
        let rest = rest.iter_mut().flat_map(|rest| rest.iter_mut());
        let parts = Iterator::chain(core::iter::once(Some(self.first)), rest.map(Option::take));
        for (place, from) in payload.iter_mut().zip(parts.flatten()) {
            *place = part(from);
        }
        payload
    }
}
