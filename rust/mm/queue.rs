// SPDX-License-Identifier: GPL-2.0

//! A first-in first-out queue of fragments: the bytes of a stream that wait.

use kernel::alloc::Flags;
use kernel::prelude::*;

use super::frag::Frag;

/// One place of the ring.
struct Place {
    frag: Option<Frag>,
    /// Bytes of memory charged for it; the caller's to keep.
    truesize: u32,
}

/// A ring of fragments that grows by doubling and never shrinks before it is dropped.
///
/// # Invariants
///
/// The places from `head` on, `len` of them, modulo the ring's size, hold a fragment; no others do.
pub(crate) struct FragQueue {
    ring: KVec<Place>,
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

    /// Where the number of bytes is, for those who look without a lock.
    pub(crate) fn bytes_ptr(&self) -> *const u32 {
        &raw const self.bytes
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

    /// Makes sure that `more` pushes succeed.
    pub(crate) fn reserve(&mut self, more: usize, flags: Flags) -> Result {
        let need = self.len + more;
        if need <= self.ring.len() {
            return Ok(());
        }
        let size = need.max(8).next_power_of_two();
        let mut ring = KVec::with_capacity(size, flags)?;
        while let Some((frag, truesize)) = self.pop_place() {
            ring.push(
                Place {
                    frag: Some(frag),
                    truesize,
                },
                flags,
            )?;
        }
        let len = ring.len();
        while ring.len() < size {
            ring.push(
                Place {
                    frag: None,
                    truesize: 0,
                },
                flags,
            )?;
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
    /// `ENOMEM` if nothing was reserved; the fragment is dropped then.
    pub(crate) fn push(&mut self, frag: Frag, truesize: u32) -> Result {
        if self.len >= self.ring.len() {
            return Err(ENOMEM);
        }
        let at = self.place(self.len);
        let place = self.ring.get_mut(at).ok_or(ENOMEM)?;
        self.bytes += frag.len();
        place.frag = Some(frag);
        place.truesize = truesize;
        self.len += 1;
        Ok(())
    }

    fn pop_place(&mut self) -> Option<(Frag, u32)> {
        if self.len == 0 {
            return None;
        }
        let at = self.head;
        let next = self.place(1);
        let place = self.ring.get_mut(at)?;
        let frag = place.frag.take()?;
        let truesize = place.truesize;
        self.head = next;
        self.len -= 1;
        Some((frag, truesize))
    }

    /// Takes the first fragment out, with its charge.
    pub(crate) fn pop(&mut self) -> Option<(Frag, u32)> {
        let (frag, truesize) = self.pop_place()?;
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
        let front = self.ring.get_mut(head)?.frag.as_mut()?.split_front(max);
        self.bytes -= front.len();
        Some(front)
    }

    /// Drops the first `n` bytes of the first fragment; returns the charge of the fragment if that
    /// was its end.
    pub(crate) fn consume(&mut self, n: u32) -> Option<u32> {
        let first = self.front()?;
        if n >= first.len() {
            return self.pop().map(|(_, truesize)| truesize);
        }
        let head = self.head;
        if let Some(frag) = self.ring.get_mut(head).and_then(|p| p.frag.as_mut()) {
            frag.skip(n);
            self.bytes -= n;
        }
        None
    }

    pub(crate) fn front(&self) -> Option<&Frag> {
        self.get(0)
    }

    /// The fragment `i` places behind the first.
    pub(crate) fn get(&self, i: usize) -> Option<&Frag> {
        if i >= self.len {
            return None;
        }
        self.ring.get(self.place(i))?.frag.as_ref()
    }

    /// Lets `f` try to grow the last fragment; it returns by how many bytes it did.
    pub(crate) fn grow_last(&mut self, f: impl FnOnce(&mut Frag) -> u32) -> bool {
        if self.len == 0 {
            return false;
        }
        let at = self.place(self.len - 1);
        match self.ring.get_mut(at).and_then(|p| p.frag.as_mut()) {
            Some(frag) => {
                let grown = f(frag);
                self.bytes += grown;
                grown > 0
            }
            None => false,
        }
    }
}
