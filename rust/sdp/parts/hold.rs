// SPDX-License-Identifier: GPL-2.0

//! The part of the stream from the first byte that is still in the peer's memory, in stream order.

use kernel::alloc::Flags;
use kernel::prelude::*;

use crate::mm::frag::Frag;

/// A stretch of the stream.
enum Held {
    /// Bytes of an advert for which a Read is in flight, into the kernel's memory.
    Reading,
    /// Bytes of an advert for which a Read into a program's memory is in flight. A receive has
    /// returned them already, or waits for them.
    Given,
    /// Received bytes, and their charge.
    Ready(Frag, u32),
    /// Bytes of an advert for which no Read was posted.
    Advert(u32),
}

/// The stretches after the receive queue, in order.
///
/// # Invariants
///
/// The first is not [`Held::Ready`], except while bytes move to the receive queue. No advert has
/// fewer than one byte.
pub(crate) struct Hold {
    stretches: KVec<Held>,
}

impl Hold {
    pub(crate) const fn new() -> Self {
        Self {
            stretches: KVec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.stretches.len()
    }

    /// Appends bytes that were received.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; the fragment is dropped then.
    pub(crate) fn push(&mut self, frag: Frag, charge: u32, flags: Flags) -> Result {
        Ok(self.stretches.push(Held::Ready(frag, charge), flags)?)
    }

    /// Appends an advert of `len` bytes.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn push_advert(&mut self, len: u32, flags: Flags) -> Result {
        Ok(self.stretches.push(Held::Advert(len), flags)?)
    }

    fn first_advert(&self) -> Option<(usize, u32)> {
        let left = |held: &Held| match held {
            Held::Advert(left) => Some(*left),
            _ => None,
        };
        let mut all = self.stretches.iter().enumerate();
        all.find_map(|(at, held)| Some((at, left(held)?)))
    }

    /// Bytes of the first advert for which no Read was posted; 0 if there is none.
    pub(crate) fn untaken(&self) -> u32 {
        self.first_advert().map_or(0, |(_, left)| left)
    }

    /// The length of the advert that comes first after the bytes given to programs; 0 if other
    /// bytes come first.
    pub(crate) fn next_untaken(&self) -> u32 {
        let mut open = self.stretches.iter();
        match open.find(|held| !matches!(held, Held::Given)) {
            Some(Held::Advert(left)) => *left,
            _ => 0,
        }
    }

    /// Makes sure that [`Hold::read`] succeeds.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn reserve(&mut self, flags: Flags) -> Result {
        Ok(self.stretches.reserve(1, flags)?)
    }

    /// Records a Read of the first `len` bytes of [`Hold::untaken`] into the kernel's memory.
    pub(crate) fn read(&mut self, len: u32) {
        self.take(len, Held::Reading);
    }

    /// As [`Hold::read`], for a Read into a program's memory.
    pub(crate) fn give(&mut self, len: u32) {
        self.take(len, Held::Given);
    }

    fn take(&mut self, len: u32, how: Held) {
        let Some((at, left)) = self.first_advert() else {
            return;
        };
        if len >= left {
            if let Some(place) = self.stretches.get_mut(at) {
                *place = how;
            }
            return;
        }
        if let Some(place) = self.stretches.get_mut(at) {
            *place = Held::Advert(left - len);
        }
        // The entry was reserved.
        let _ = self.stretches.insert_within_capacity(at, how);
    }

    /// Removes the oldest Read, which has finished: its bytes are the next of the stream. Returns
    /// `false` if there is none.
    pub(crate) fn finish_read(&mut self) -> bool {
        match self.stretches.first() {
            Some(Held::Reading | Held::Given) => self.stretches.remove(0).is_ok(),
            _ => false,
        }
    }

    /// Removes the bytes for which no Read was posted, because the peer has cancelled its adverts.
    pub(crate) fn cut(&mut self) {
        self.stretches
            .retain(|held| !matches!(held, Held::Advert(_)));
    }

    /// Takes received bytes out if they are the next of the stream.
    pub(crate) fn pop_ready(&mut self) -> Option<(Frag, u32)> {
        if !matches!(self.stretches.first(), Some(Held::Ready(..))) {
            return None;
        }
        match self.stretches.remove(0) {
            Ok(Held::Ready(frag, charge)) => Some((frag, charge)),
            _ => None,
        }
    }

    /// Whether bytes were received after the adverts.
    pub(crate) fn has_ready(&self) -> bool {
        let is_ready = |held: &Held| matches!(held, Held::Ready(..));
        self.stretches.iter().any(is_ready)
    }

    /// Drops everything; returns the charge of the bytes.
    pub(crate) fn clear(&mut self) -> u32 {
        let charge = |held: &Held| match held {
            Held::Ready(_, charge) => *charge,
            _ => 0,
        };
        let charged = self.stretches.iter().map(charge).sum();
        self.stretches.clear();
        charged
    }
}

#[kunit_tests(ib_sdp_hold)]
mod tests {
    use super::*;
    use crate::bindings;

    #[test]
    fn reads_take_the_place_of_their_advert() -> Result {
        let mut hold = Hold::new();
        hold.push_advert(100, GFP_KERNEL)?;
        let frag = Frag::alloc(0, bindings::SDP_CONST_GFP_KERNEL)?;
        hold.push(frag, 7, GFP_KERNEL)?;
        hold.push_advert(5, GFP_KERNEL)?;
        assert_eq!(hold.untaken(), 100);
        hold.reserve(GFP_KERNEL)?;
        hold.read(60);
        assert_eq!(hold.untaken(), 40);
        hold.read(40);
        assert_eq!(hold.untaken(), 5);
        assert!(hold.pop_ready().is_none());
        assert!(hold.finish_read());
        assert!(hold.pop_ready().is_none());
        assert!(hold.finish_read());
        let (_, charge) = hold.pop_ready().ok_or(EINVAL)?;
        assert_eq!(charge, 7);
        assert!(!hold.finish_read());
        hold.cut();
        assert!(hold.is_empty());
        Ok(())
    }

    #[test]
    fn a_cancel_leaves_the_reads() -> Result {
        let mut hold = Hold::new();
        hold.push_advert(10, GFP_KERNEL)?;
        hold.reserve(GFP_KERNEL)?;
        hold.read(4);
        hold.cut();
        assert_eq!(hold.untaken(), 0);
        assert!(hold.finish_read());
        assert!(hold.is_empty());
        Ok(())
    }
}
