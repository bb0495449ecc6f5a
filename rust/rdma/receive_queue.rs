// SPDX-License-Identifier: GPL-2.0

//! The receive queue of a link.
//!
//! Receives are prepared one by one, and posted together: telling an adapter of work takes longer
//! than preparing a receive.

use core::mem::MaybeUninit;
use core::ptr;

use kernel::alloc::Flags;
use kernel::prelude::*;

use super::headers::Headers;
use super::link::{
    Link,
    SLOTS, //
};
use super::receive::{
    Receive,
    Spares,
    MAX_PARTS,
    PAGE_BYTES,
    PART_BYTES, //
};
use crate::bindings;
use crate::kern::errno::ENOBUFS;
use crate::mm::frag::Frag;

/// Places in the receive queue.
pub(crate) const RECV_DEPTH: u32 = 15;
/// The maximum number of receives that are posted by one call of the provider: the largest group
/// ([`crate::proto::policy::post_later`]). Their requests are on the stack.
const AT_ONCE: usize = 4;

const _: () = assert!(RECV_DEPTH <= SLOTS);

/// The receives of a link, by increasing numbers.
pub(super) struct Receives {
    slots: KVec<Option<Receive>>,
    /// The number of fragments of the receives in the slots.
    parts: usize,
    /// The unused part of the page that the last receives share.
    page_rest: Option<Frag>,
    /// The number of the next receive.
    next: u32,
    /// The oldest receive that is prepared, but not posted.
    prepared: u32,
    /// The oldest receive that is posted and not used up.
    done: u32,
}

/// The result of [`Link::post_prepared`].
#[derive(Default)]
pub(crate) struct Given {
    /// The number of receives that the adapter has got.
    pub(crate) count: u32,
    /// The bytes of the receives that the provider has refused. Their memory is freed.
    pub(crate) refused_bytes: u32,
}

impl Receives {
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Self> {
        let mut slots = KVec::with_capacity(SLOTS as usize, GFP_KERNEL)?;
        for _ in 0..SLOTS {
            slots.push(None, GFP_KERNEL)?;
        }
        Ok(Self {
            slots,
            parts: 0,
            page_rest: None,
            next: 0,
            prepared: 0,
            done: 0,
        })
    }

    fn slot(&mut self, number: u32) -> Option<&mut Option<Receive>> {
        self.slots.get_mut((number % SLOTS) as usize)
    }

    fn put(&mut self, number: u32, receive: Receive) -> Result {
        let parts = receive.count();
        *self.slot(number).ok_or(ENOBUFS)? = Some(receive);
        self.parts += parts;
        Ok(())
    }

    fn take(&mut self, number: u32) -> Option<Receive> {
        let receive = self.slot(number)?.take()?;
        self.parts -= receive.count();
        Some(receive)
    }
}

impl Link {
    /// The maximum number of bytes of a receive.
    pub(crate) fn max_receive(&self) -> u32 {
        self.limits.parts as u32 * PART_BYTES
    }

    /// Free places in the receive queue.
    pub(crate) fn recv_room(&self) -> u32 {
        RECV_DEPTH - self.receives_posted()
    }

    /// The number of receives that are posted and not used up, including the prepared ones.
    pub(crate) fn receives_posted(&self) -> u32 {
        self.receives.next.wrapping_sub(self.receives.done)
    }

    /// The number of receives that the adapter has got and that are not used up.
    pub(crate) fn receives_given(&self) -> u32 {
        self.receives.prepared.wrapping_sub(self.receives.done)
    }

    /// Whether receives are prepared that the adapter has not got.
    pub(crate) fn has_prepared(&self) -> bool {
        self.receives.prepared != self.receives.next
    }

    /// The number of fragments of the posted receives.
    pub(crate) fn posted_parts(&self) -> usize {
        self.receives.parts
    }

    /// The number of bytes of the posted receives.
    pub(crate) fn posted_bytes(&self) -> u32 {
        self.receives.slots.iter().flatten().map(Receive::len).sum()
    }

    /// Memory for `bytes`, at most [`Link::max_receive`], that the adapter may write to.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EIO` if the device cannot reach it.
    pub(crate) fn receive_memory(
        &self,
        bytes: u32,
        spares: &mut Spares,
        gfp: (bindings::gfp_t, Flags),
    ) -> Result<Receive> {
        // SAFETY: The id, which outlives the link, holds the device.
        unsafe { Receive::new(self.device, bytes, spares, gfp) }
    }

    /// Prepares a receive for `bytes` of payload of one message, at most [`Link::max_receive`], for
    /// [`Link::post_prepared`].
    ///
    /// # Errors
    ///
    /// `ENOBUFS` without a place; those of [`Link::receive_memory`].
    pub(crate) fn prepare_receive(
        &mut self,
        bytes: u32,
        spares: &mut Spares,
        gfp: (bindings::gfp_t, Flags),
    ) -> Result {
        let receive = if bytes < PAGE_BYTES {
            let rest = &mut self.receives.page_rest;
            // SAFETY: As in `receive_memory`.
            unsafe { Receive::part_of_page(self.device, bytes, rest, gfp.0) }?
        } else {
            self.receive_memory(bytes, spares, gfp)?
        };
        self.prepare(receive)
    }

    /// Prepares a receive again that was just used up.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` without a place.
    pub(crate) fn prepare_again(&mut self, receive: Receive) -> Result {
        receive.sync_for_device();
        self.prepare(receive)
    }

    fn prepare(&mut self, receive: Receive) -> Result {
        if self.recv_room() == 0 {
            return Err(ENOBUFS);
        }
        let receives = &mut self.receives;
        receives.put(receives.next, receive)?;
        receives.next = receives.next.wrapping_add(1);
        Ok(())
    }

    /// Posts the prepared receives.
    pub(crate) fn post_prepared(&mut self) -> Given {
        let mut given = Given::default();
        while self.receives.prepared != self.receives.next {
            let (count, goes_on) = self.post_some();
            given.count += count;
            if !goes_on {
                given.refused_bytes = self.drop_prepared();
            }
        }
        given
    }

    /// Posts up to [`AT_ONCE`] of the prepared receives. Returns the number of receives that the
    /// adapter has got, and whether it takes more.
    fn post_some(&mut self) -> (u32, bool) {
        let mut entries = [[const { MaybeUninit::uninit() }; MAX_PARTS + 1]; AT_ONCE];
        let mut requests = [bindings::ib_recv_wr::default(); AT_ONCE];
        let first = self.receives.prepared;
        let mut wanted = 0;
        for (entries, request) in entries.iter_mut().zip(&mut requests) {
            let number = first.wrapping_add(wanted);
            let slot = self.receives.slots.get((number % SLOTS) as usize);
            let Some(Some(receive)) = slot.filter(|_| number != self.receives.next) else {
                break;
            };
            let header = (self.headers.rx_addr(number % SLOTS), Headers::RX_BYTES);
            let parts = receive.parts().map(|part| (part.addr(), part.len()));
            let ranges = Iterator::chain(core::iter::once(header), parts);
            for (entry, (addr, length)) in entries.iter_mut().zip(ranges) {
                let lkey = self.lkey;
                entry.write(bindings::ib_sge { addr, length, lkey });
            }
            request.sg_list = entries.as_mut_ptr().cast();
            request.num_sge = 1 + receive.count() as i32;
            request.__bindgen_anon_1.wr_id = number.into();
            wanted += 1;
        }
        let mut next = ptr::null_mut();
        for request in requests.iter_mut().take(wanted as usize).rev() {
            request.next = next;
            next = ptr::from_mut(request);
        }
        let mut refused: *const bindings::ib_recv_wr = ptr::null();
        // SAFETY: The queue pair is valid; `next` is a list of requests, which the provider copies,
        // with their entries: as many were written as each request has.
        // The memory of each receive stays in its slot until the receive is taken out.
        let ret = unsafe {
            bindings::ib_post_recv(self.verbs.qp.cast(), next.cast(), (&raw mut refused).cast())
        };
        let is_refused = |request: &bindings::ib_recv_wr| ptr::eq(request, refused);
        let got = match requests.iter().position(is_refused) {
            _ if ret == 0 => wanted,
            Some(at) => at as u32,
            None => 0,
        };
        self.receives.prepared = first.wrapping_add(got);
        (got, ret == 0 && got > 0)
    }

    /// Drops the receives that are prepared and not posted; returns their bytes.
    fn drop_prepared(&mut self) -> u32 {
        let receives = &mut self.receives;
        let mut bytes = 0;
        while receives.next != receives.prepared {
            receives.next = receives.next.wrapping_sub(1);
            let receive = receives.take(receives.next);
            bytes += receive.map_or(0, |receive| receive.len());
        }
        bytes
    }

    /// Takes the oldest receive out, with the message's header; called after
    /// [`Completion::Received`](super::link::Completion::Received).
    pub(crate) fn take_receive(&mut self) -> Option<([u8; 16], Receive)> {
        let receives = &mut self.receives;
        if receives.done == receives.prepared {
            return None;
        }
        let number = receives.done;
        let receive = receives.take(number)?;
        receives.done = number.wrapping_add(1);
        Some((self.headers.read(number % SLOTS), receive))
    }
}
