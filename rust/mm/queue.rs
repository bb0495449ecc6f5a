// SPDX-License-Identifier: GPL-2.0

//! A first-in first-out queue of fragments: the bytes of a stream that wait.

use kernel::alloc::Flags;
use kernel::prelude::*;

use super::frag::Frag;
use crate::kern::time::RealNs;

/// A fragment in the queue.
struct Queued {
    frag: Frag,
    /// Bytes of memory charged for it; the caller keeps account of them.
    truesize: u32,
    /// When its last byte arrived.
    arrived: Option<RealNs>,
}

/// A ring of fragments that grows by doubling and never shrinks.
///
/// # Invariants
///
/// The `len` places from `head` on, modulo the ring's size, hold a fragment; no others do.
pub(crate) struct FragQueue {
    ring: KVec<Option<Queued>>,
    head: usize,
    len: usize,
    bytes: u32,
}

impl FragQueue {
    pub(crate) const fn new() -> Self {
        Self {
            ring: KVec::new(),
            head: 0,
            len: 0,
            bytes: 0,
        }
    }

    /// Bytes in the queue.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fragments in the queue.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn place(&self, i: usize) -> usize {
        (self.head + i) % self.ring.len().max(1)
    }

    /// Ensures that `more` pushes succeed.
    pub(crate) fn reserve(&mut self, more: usize, flags: Flags) -> Result {
        let need = self.len + more;
        if need <= self.ring.len() {
            return Ok(());
        }
        let size = need.max(8).next_power_of_two();
        let mut ring = KVec::with_capacity(size, flags)?;
        while let Some(queued) = self.pop_queued() {
            ring.push(Some(queued), flags)?;
        }
        let len = ring.len();
        while ring.len() < size {
            ring.push(None, flags)?;
        }
        self.ring = ring;
        self.head = 0;
        self.len = len;
        Ok(())
    }

    /// Appends `frag`, for which `truesize` bytes are charged.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if no place was reserved; the fragment is then dropped.
    pub(crate) fn push(&mut self, frag: Frag, truesize: u32) -> Result {
        self.push_arrived(frag, truesize, None)
    }

    /// As [`FragQueue::push`], with the time at which the last byte of `frag` arrived.
    ///
    /// # Errors
    ///
    /// Those of [`FragQueue::push`].
    pub(crate) fn push_arrived(
        &mut self,
        frag: Frag,
        truesize: u32,
        arrived: Option<RealNs>,
    ) -> Result {
        if self.len >= self.ring.len() {
            return Err(ENOMEM);
        }
        let at = self.place(self.len);
        let place = self.ring.get_mut(at).ok_or(ENOMEM)?;
        self.bytes += frag.len();
        *place = Some(Queued {
            frag,
            truesize,
            arrived,
        });
        self.len += 1;
        Ok(())
    }

    fn pop_queued(&mut self) -> Option<Queued> {
        if self.len == 0 {
            return None;
        }
        let at = self.head;
        let next = self.place(1);
        let queued = self.ring.get_mut(at)?.take()?;
        self.head = next;
        self.len -= 1;
        Some(queued)
    }

    /// Takes the first fragment out, with its charge.
    pub(crate) fn pop(&mut self) -> Option<(Frag, u32)> {
        let Queued { frag, truesize, .. } = self.pop_queued()?;
        self.bytes -= frag.len();
        Some((frag, truesize))
    }

    /// Takes at most `max` bytes from the first fragment.
    pub(crate) fn take(&mut self, max: u32) -> Option<Frag> {
        let first = self.front()?;
        if first.len() <= max {
            return self.pop().map(|(frag, _)| frag);
        }
        let head = self.head;
        let front = self.ring.get_mut(head)?.as_mut()?.frag.split_front(max);
        self.bytes -= front.len();
        Some(front)
    }

    /// Drops the first `n` bytes of the first fragment; returns the fragment and its charge if it
    /// is used up.
    pub(crate) fn consume(&mut self, n: u32) -> Option<(Frag, u32)> {
        let first = self.front()?;
        if n >= first.len() {
            return self.pop();
        }
        let head = self.head;
        if let Some(Some(first)) = self.ring.get_mut(head) {
            first.frag.skip(n);
            self.bytes -= n;
        }
        None
    }

    pub(crate) fn front(&self) -> Option<&Frag> {
        self.get(0)
    }

    /// The fragment `i` places behind the first.
    pub(crate) fn get(&self, i: usize) -> Option<&Frag> {
        self.queued(i).map(|queued| &queued.frag)
    }

    /// When the last byte of this fragment arrived, if somebody has asked for the time.
    pub(crate) fn arrived(&self, i: usize) -> Option<RealNs> {
        self.queued(i)?.arrived
    }

    fn queued(&self, i: usize) -> Option<&Queued> {
        if i >= self.len {
            return None;
        }
        self.ring.get(self.place(i))?.as_ref()
    }

    /// Lets `f` try to extend the last fragment; `f` returns the number of bytes added. `arrived` is
    /// the time of the new last byte; `None` keeps the former time.
    pub(crate) fn grow_last(
        &mut self,
        arrived: Option<RealNs>,
        f: impl FnOnce(&mut Frag) -> u32,
    ) -> bool {
        if self.len == 0 {
            return false;
        }
        let at = self.place(self.len - 1);
        let Some(Some(last)) = self.ring.get_mut(at) else {
            return false;
        };
        let grown = f(&mut last.frag);
        self.bytes += grown;
        if grown > 0 {
            last.arrived = arrived.or(last.arrived);
        }
        grown > 0
    }
}

#[kunit_tests(ib_sdp_queue)]
mod tests {
    use core::num::NonZero;

    use super::*;
    use crate::bindings;

    fn page(fill: u8) -> Result<Frag> {
        let frag = Frag::alloc(0, bindings::SDP_CONST_GFP_KERNEL)?;
        // SAFETY: A new page, which nobody else uses.
        unsafe { frag.fill(&[fill; 64]) };
        Ok(frag)
    }

    #[test]
    fn nothing_is_pushed_without_a_place() -> Result {
        let mut queue = FragQueue::new();
        assert!(queue.push(page(1)?, 0).is_err());
        assert!(queue.is_empty());
        assert_eq!(queue.bytes(), 0);
        Ok(())
    }

    #[test]
    fn keeps_order_and_bytes_while_it_grows() -> Result {
        let mut queue = FragQueue::new();
        for i in 0..40u8 {
            queue.reserve(1, GFP_KERNEL)?;
            let mut frag = page(i)?;
            frag.truncate(u32::from(i) + 1);
            queue.push(frag, u32::from(i))?;
            // Makes the ring wrap around while it grows.
            if i % 3 == 2 {
                let (first, truesize) = queue.pop().ok_or(EINVAL)?;
                // SAFETY: `page()` has written the first bytes, and nobody else uses them.
                let bytes = unsafe { first.as_slice() };
                assert_eq!(bytes.first().copied(), Some(i / 3));
                assert_eq!(truesize, u32::from(i / 3));
            }
        }
        assert_eq!(queue.len(), 40 - 13);
        let mut bytes = queue.bytes();
        for i in 13..40u8 {
            let (frag, _) = queue.pop().ok_or(EINVAL)?;
            assert_eq!(frag.len(), u32::from(i) + 1);
            bytes -= frag.len();
            assert_eq!(queue.bytes(), bytes);
        }
        assert!(queue.is_empty());
        assert_eq!(bytes, 0);
        Ok(())
    }

    #[test]
    fn takes_and_consumes_parts() -> Result {
        let mut queue = FragQueue::new();
        queue.reserve(2, GFP_KERNEL)?;
        queue.push(page(1)?, 7)?;
        queue.push(page(2)?, 8)?;
        let front = queue.take(100).ok_or(EINVAL)?;
        assert_eq!(front.len(), 100);
        assert_eq!(queue.bytes(), 8192 - 100);
        assert!(queue.consume(96).is_none());
        assert_eq!(queue.front().ok_or(EINVAL)?.offset(), 196);
        assert_eq!(queue.consume(4096 - 196).ok_or(EINVAL)?.1, 7);
        assert_eq!(queue.bytes(), 4096);
        assert_eq!(queue.consume(u32::MAX).ok_or(EINVAL)?.1, 8);
        assert_eq!(queue.bytes(), 0);
        assert!(queue.take(1).is_none());
        Ok(())
    }

    #[test]
    fn grows_only_over_what_follows() -> Result {
        let mut queue = FragQueue::new();
        queue.reserve(1, GFP_KERNEL)?;
        let mut rest = page(3)?;
        let first = rest.split_front(10);
        let second = rest.split_front(20);
        queue.push(first, 0)?;
        assert!(queue.grow_last(None, |last| last.join(&second)));
        assert!(!queue.grow_last(None, |last| last.join(&second)));
        assert_eq!(queue.bytes(), 30);
        Ok(())
    }

    #[test]
    fn fragments_keep_their_times() -> Result {
        let at = |ns| NonZero::new(ns);
        let mut queue = FragQueue::new();
        for i in 0..20u8 {
            queue.reserve(1, GFP_KERNEL)?;
            queue.push_arrived(page(i)?, 0, at(i.into()))?;
        }
        assert_eq!(queue.arrived(0), None);
        assert_eq!(queue.arrived(19), at(19));
        assert_eq!(queue.arrived(20), None);
        assert!(queue.consume(u32::MAX).is_some());
        assert!(queue.consume(1).is_none());
        assert_eq!(queue.arrived(0), at(1));

        let mut rest = page(3)?;
        let [first, second, third] = [1; 3].map(|len| rest.split_front(len));
        queue.reserve(1, GFP_KERNEL)?;
        queue.push_arrived(first, 0, at(50))?;
        assert!(queue.grow_last(at(60), |last| last.join(&second)));
        assert_eq!(queue.arrived(19), at(60));
        assert!(queue.grow_last(None, |last| last.join(&third)));
        assert_eq!(queue.arrived(19), at(60));
        Ok(())
    }
}
