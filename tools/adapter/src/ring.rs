// SPDX-License-Identifier: GPL-2.0
//! Rings in the guest's memory.
//!
//! A ring has two numbers, the producer's and the consumer's, that count on from each entry to the
//! next, wrap, and name an entry by their lower bits; the bit above tells a full ring from an empty
//! one. The driver computes with bit masks of the number of slots. Two of its rings, of events and of
//! notifications, do not have a power of two of slots (1536 and 3072): there the masks have gaps, the
//! numbers wrap early, and some slots are never used. [`Shape`] does the same.

use crate::abi::PAGE;
use crate::memory::{Memory, Unmapped};

/// The arithmetic of a ring with so many slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    slots: u32,
}

impl Shape {
    /// `None` for a ring without slots, or with more than any ring has.
    pub fn new(slots: u32) -> Option<Self> {
        (slots > 0 && slots <= 1 << 24).then_some(Self { slots })
    }

    /// Bits that a number may have.
    fn mask(self) -> u32 {
        (self.slots << 1) - 1
    }

    /// How many numbers there are until they repeat.
    fn period(self) -> u32 {
        1 << self.mask().trailing_ones()
    }

    /// How many entries fit.
    pub fn capacity(self) -> u32 {
        self.period() / 2
    }

    /// Whether the guest may have written the number.
    pub fn is_valid(self, number: u32) -> bool {
        number < self.period()
    }

    /// The entry that a number names.
    pub fn slot(self, number: u32) -> u32 {
        number & (self.slots - 1)
    }

    /// The number after it.
    pub fn next(self, number: u32) -> u32 {
        number.wrapping_add(1) & (self.period() - 1)
    }

    /// How many entries are from the consumer's number to the producer's.
    pub fn filled(self, consumer: u32, producer: u32) -> u32 {
        producer.wrapping_sub(consumer) & (self.period() - 1)
    }
}

/// The guest has written numbers that make no sense, or taken the ring's memory away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl From<Unmapped> for Broken {
    fn from(_: Unmapped) -> Self {
        Self
    }
}

/// A ring whose entries the guest or the device writes: where it is, and the device's own number.
///
/// Of both numbers, the device believes the guest only the guest's own.
#[derive(Clone, Debug)]
pub struct Ring {
    /// Addresses of the two numbers.
    producer: u64,
    consumer: u64,
    /// Addresses of the pages with the entries.
    pages: Box<[u64]>,
    entry: u64,
    shape: Shape,
    /// The device's number: of the next entry that it takes, or makes.
    own: u32,
}

/// Where the two numbers of a ring are on the page with its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The send queue of a queue pair.
    First = 0,
    /// The receive queue, and the only ring of all other pages.
    Second = 8,
}

impl Ring {
    /// A ring of `slots` entries of `entry` bytes, a power of two up to a page, on the pages.
    ///
    /// `None` if the numbers do not fit together.
    pub fn new(state: u64, place: Place, pages: &[u64], slots: u32, entry: u32) -> Option<Self> {
        let shape = Shape::new(slots)?;
        let entry = u64::from(entry);
        let bytes = u64::from(slots) * entry;
        // What a guest gives beyond what the ring needs is not kept.
        let pages = pages.get(..bytes.div_ceil(PAGE) as usize)?;
        let fits = entry.is_power_of_two() && entry <= PAGE;
        let producer = state.checked_add(place as u64)?;
        fits.then(|| Self {
            producer,
            consumer: producer.wrapping_add(4),
            pages: pages.into(),
            entry,
            shape,
            own: 0,
        })
    }

    /// How many entries fit.
    pub fn capacity(&self) -> u32 {
        self.shape.capacity()
    }

    /// The device's number.
    pub fn own(&self) -> u32 {
        self.own
    }

    /// Begins anew, as the driver does with its number.
    pub fn reset(&mut self) {
        self.own = 0;
    }

    /// The address of an entry. It does not cross a page.
    fn address(&self, number: u32) -> u64 {
        let offset = u64::from(self.shape.slot(number)) * self.entry;
        // The slots fit on the pages.
        self.pages[(offset / PAGE) as usize] + offset % PAGE
    }

    /// A ring that the guest fills: how many entries wait after the device's number.
    ///
    /// # Errors
    ///
    /// The guest's number makes no sense, or is more entries ahead than there are.
    pub fn waiting(&self, memory: &Memory) -> Result<u32, Broken> {
        let producer = memory.load(self.producer)?;
        let filled = self.shape.filled(self.own, producer);
        if self.shape.is_valid(producer) && filled <= self.shape.capacity() {
            Ok(filled)
        } else {
            Err(Broken)
        }
    }

    /// The address of the next entry if there is one; the device's number goes on.
    ///
    /// # Errors
    ///
    /// As for [`Ring::waiting`].
    pub fn take(&mut self, memory: &Memory) -> Result<Option<u64>, Broken> {
        if self.waiting(memory)? == 0 {
            return Ok(None);
        }
        let address = self.address(self.own);
        self.own = self.shape.next(self.own);
        Ok(Some(address))
    }

    /// Tells the guest that entries before the number are free. The number is one that
    /// [`Ring::own`] had.
    ///
    /// # Errors
    ///
    /// The guest took the memory away.
    pub fn release(&self, memory: &Memory, number: u32) -> Result<(), Broken> {
        Ok(memory.store(self.consumer, number)?)
    }

    /// The number after that one.
    pub fn after(&self, number: u32) -> u32 {
        self.shape.next(number)
    }

    /// A ring that the device fills: adds an entry; `false` if the guest has left no room.
    ///
    /// # Errors
    ///
    /// The guest's number makes no sense, or it took the memory away.
    pub fn put<T: zerocopy::IntoBytes + zerocopy::Immutable>(
        &mut self,
        memory: &Memory,
        entry: &T,
    ) -> Result<bool, Broken> {
        let filled = self.unread(memory)?;
        if filled >= self.shape.capacity() {
            return Ok(false);
        }
        memory.write(self.address(self.own), entry)?;
        self.own = self.shape.next(self.own);
        memory.store(self.producer, self.own)?;
        Ok(true)
    }

    /// A ring that the device fills: how many entries the guest has not taken.
    ///
    /// # Errors
    ///
    /// The guest's number makes no sense, or it took the memory away.
    pub fn unread(&self, memory: &Memory) -> Result<u32, Broken> {
        let consumer = memory.load(self.consumer)?;
        let filled = self.shape.filled(consumer, self.own);
        if self.shape.is_valid(consumer) && filled <= self.shape.capacity() {
            Ok(filled)
        } else {
            Err(Broken)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the driver's masks do, step by step.
    fn driver_next(number: u32, slots: u32) -> u32 {
        (number + 1) & ((slots << 1) - 1)
    }

    #[test]
    fn numbers_go_as_the_drivers() {
        for slots in [1, 2, 64, 1536, 3072, 1024] {
            let shape = Shape::new(slots).unwrap();
            let mut number = 0;
            for _ in 0..3 * slots {
                assert_eq!(shape.next(number), driver_next(number, slots), "{slots}");
                number = shape.next(number);
                assert!(shape.is_valid(number));
            }
        }
    }

    #[test]
    fn filled_slots_are_different_ones() {
        for slots in [1, 64, 1536, 3072] {
            let shape = Shape::new(slots).unwrap();
            let mut number = 0;
            let mut seen = std::collections::HashSet::new();
            for _ in 0..shape.capacity() {
                assert!(seen.insert(shape.slot(number)));
                assert!(shape.slot(number) < slots);
                number = shape.next(number);
            }
            assert_eq!(shape.filled(0, number), shape.capacity());
        }
        assert_eq!(Shape::new(1536).unwrap().capacity(), 512);
        assert_eq!(Shape::new(3072).unwrap().capacity(), 1024);
        assert_eq!(Shape::new(64).unwrap().capacity(), 64);
    }

    #[test]
    fn a_full_ring_takes_nothing() {
        let mut memory = Memory::default();
        memory.map_anonymous(0, 0x4000).unwrap();
        let mut ring = Ring::new(0, Place::Second, &[0x1000], 4, 8).unwrap();
        for n in 0..4u64 {
            assert_eq!(ring.put(&memory, &n), Ok(true));
        }
        assert_eq!(ring.put(&memory, &9u64), Ok(false));
        memory.store(12, 1).unwrap();
        assert_eq!(ring.put(&memory, &4u64), Ok(true));
        assert_eq!(memory.read::<u64>(0x1000), Ok(4));
        for wrong in [6, 7, 8, u32::MAX] {
            memory.store(12, wrong).unwrap();
            assert_eq!(ring.put(&memory, &5u64), Err(Broken), "{wrong}");
        }
    }

    #[test]
    fn a_guest_cannot_be_ahead_of_its_ring() {
        let mut memory = Memory::default();
        memory.map_anonymous(0, 0x4000).unwrap();
        let mut ring = Ring::new(0, Place::First, &[0x1000, 0x2000], 64, 128).unwrap();
        memory.store(0, 33).unwrap();
        for n in 0..33 {
            let address = ring.take(&memory).unwrap().unwrap();
            assert_eq!(address, 0x1000 + n * 128);
        }
        assert_eq!(ring.take(&memory), Ok(None));
        memory.store(0, 33 + 65).unwrap();
        assert_eq!(ring.take(&memory), Err(Broken));
        memory.store(0, 128).unwrap();
        assert_eq!(ring.take(&memory), Err(Broken));
        assert!(Ring::new(0, Place::First, &[0x1000], 64, 128).is_none());
        assert!(Ring::new(0, Place::First, &[0x1000], 1, 3).is_none());
        assert!(Ring::new(0, Place::First, &[], 0, 128).is_none());
    }
}
