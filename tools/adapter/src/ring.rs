// SPDX-License-Identifier: GPL-2.0
//! Rings in the guest's memory.
//!
//! A ring has a producer and a consumer number. Each is incremented per entry and wraps; its lower
//! bits are the entry's index, and the bit above distinguishes a full ring from an empty one. The
//! driver computes with bit masks of the number of slots. The rings of events and of notifications
//! have 1536 and 3072 slots, which are not powers of two: their masks have gaps, the numbers wrap
//! early, and some slots are never used. [`Shape`] does the same.

use std::fmt::{self, Display, Formatter};

use crate::abi::PAGE;
use crate::error::{Error, Refused};
use crate::memory::{Memory, Unmapped};

/// The arithmetic of a ring with this number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    slots: u32,
}

impl Shape {
    /// `None` if there are no slots, or more than any ring has.
    pub fn new(slots: u32) -> Option<Self> {
        (slots > 0 && slots <= 1 << 24).then_some(Self { slots })
    }

    /// Valid bits of a number.
    fn mask(self) -> u32 {
        (self.slots << 1) - 1
    }

    /// Number of increments until a number repeats.
    fn period(self) -> u32 {
        1 << self.mask().trailing_ones()
    }

    /// Maximum number of entries.
    pub fn capacity(self) -> u32 {
        self.period() / 2
    }

    /// Whether the number is valid.
    pub fn is_valid(self, number: u32) -> bool {
        number < self.period()
    }

    /// The index of the number's entry.
    pub fn slot(self, number: u32) -> u32 {
        number & (self.slots - 1)
    }

    /// The successor of a number.
    pub fn next(self, number: u32) -> u32 {
        number.wrapping_add(1) & (self.period() - 1)
    }

    /// The number of entries between consumer and producer.
    pub fn filled(self, consumer: u32, producer: u32) -> u32 {
        producer.wrapping_sub(consumer) & (self.period() - 1)
    }
}

/// A ring is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The guest has written this invalid number.
    Number(u32),
    /// The guest has removed the ring's memory, or its address is invalid.
    Unmapped,
}

impl From<Unmapped> for Broken {
    fn from(_: Unmapped) -> Self {
        Self::Unmapped
    }
}

impl Display for Broken {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "the number {number:#x} is out of range"),
            Self::Unmapped => f.write_str("the memory is not accessible"),
        }
    }
}

/// A ring: its addresses, and the device's number.
///
/// The device trusts only its own copy of its own number.
#[derive(Clone, Debug)]
pub struct Ring {
    /// Addresses of the two numbers.
    producer: u64,
    consumer: u64,
    /// Addresses of the pages with the entries.
    pages: Box<[u64]>,
    entry: u64,
    shape: Shape,
    /// The device's number: the next entry that it consumes or produces.
    own: u32,
}

/// Offset of the two numbers on the page with the ring's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Send queue of a queue pair.
    First = 0,
    /// Receive queue of a queue pair, and every other ring.
    Second = 8,
}

impl Ring {
    /// A ring of `slots` entries of `entry` bytes (a power of two, at most a page) on these pages.
    ///
    /// # Errors
    ///
    /// The sizes are inconsistent.
    pub fn new(
        state: u64,
        place: Place,
        pages: &[u64],
        slots: u32,
        entry: u32,
    ) -> Result<Self, Refused> {
        Self::checked(state, place, pages, slots, entry.into()).ok_or_else(|| {
            let count = pages.len();
            Error::Invalid.of(format_args!(
                "a ring of {slots} entries of {entry} bytes on {count} pages"
            ))
        })
    }

    fn checked(state: u64, place: Place, pages: &[u64], slots: u32, entry: u64) -> Option<Self> {
        let shape = Shape::new(slots)?;
        let bytes = u64::from(slots) * entry;
        // Excess pages are dropped.
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

    /// Maximum number of entries.
    pub fn capacity(&self) -> u32 {
        self.shape.capacity()
    }

    /// The device's number.
    pub fn own(&self) -> u32 {
        self.own
    }

    /// Resets the device's number, as the driver resets its own.
    pub fn reset(&mut self) {
        self.own = 0;
    }

    /// The address of an entry. It does not cross a page.
    fn address(&self, number: u32) -> u64 {
        let offset = u64::from(self.shape.slot(number)) * self.entry;
        // `new()` has checked that the slots fit on the pages.
        self.pages[(offset / PAGE) as usize] + offset % PAGE
    }

    /// For a ring that the guest fills: the number of entries to consume.
    ///
    /// # Errors
    ///
    /// The guest's number is invalid.
    pub fn waiting(&self, memory: &Memory) -> Result<u32, Broken> {
        let producer = memory.load(self.producer)?;
        let filled = self.shape.filled(self.own, producer);
        if self.shape.is_valid(producer) && filled <= self.shape.capacity() {
            Ok(filled)
        } else {
            Err(Broken::Number(producer))
        }
    }

    /// Takes the next entry, if any, and returns its address.
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

    /// Tells the guest that entries before `number` are free. `number` is a value that
    /// [`Ring::own`] has returned.
    ///
    /// # Errors
    ///
    /// The ring's memory is no longer accessible.
    pub fn release(&self, memory: &Memory, number: u32) -> Result<(), Broken> {
        Ok(memory.store(self.consumer, number)?)
    }

    /// The successor of a number.
    pub fn after(&self, number: u32) -> u32 {
        self.shape.next(number)
    }

    /// For a ring that the device fills: adds an entry; `false` if the ring is full.
    ///
    /// # Errors
    ///
    /// The guest's number is invalid, or the memory is no longer accessible.
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

    /// For a ring that the device fills: the number of entries that the guest has not consumed.
    ///
    /// # Errors
    ///
    /// The guest's number is invalid, or the memory is no longer accessible.
    pub fn unread(&self, memory: &Memory) -> Result<u32, Broken> {
        let consumer = memory.load(self.consumer)?;
        let filled = self.shape.filled(consumer, self.own);
        if self.shape.is_valid(consumer) && filled <= self.shape.capacity() {
            Ok(filled)
        } else {
            Err(Broken::Number(consumer))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The driver's computation, step by step.
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
            assert_eq!(
                ring.put(&memory, &5u64),
                Err(Broken::Number(wrong)),
                "{wrong}"
            );
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
        for wrong in [33 + 65, 128] {
            memory.store(0, wrong).unwrap();
            assert_eq!(ring.take(&memory), Err(Broken::Number(wrong)));
        }
        memory.clear();
        assert_eq!(ring.take(&memory), Err(Broken::Unmapped));
        assert!(Ring::new(0, Place::First, &[0x1000], 64, 128).is_err());
        assert!(Ring::new(0, Place::First, &[0x1000], 1, 3).is_err());
        assert!(Ring::new(0, Place::First, &[], 0, 128).is_err());
    }
}
