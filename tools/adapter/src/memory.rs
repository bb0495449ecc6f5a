// SPDX-License-Identifier: GPL-2.0
//! The guest memory that an adapter may access, by guest addresses.
//!
//! QEMU passes memory ranges as file descriptors and removes them again, also while the firmware
//! runs. Each address of a guest is looked up here, so that no memory outside of these ranges can
//! be accessed. Guests run while bytes are copied, as with any adapter: copies are volatile
//! (vm-memory's), and no reference to the memory is ever created.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use vm_memory::volatile_memory::VolatileSlice;
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::abi::PAGE;
use crate::error::{Error, Refused};

/// The guest has not made the address accessible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmapped;

/// Number of entries of a page of a page directory.
const ENTRIES: u64 = PAGE / 8;

/// Consecutive bytes of a guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Address of the first byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
}

struct Range {
    start: u64,
    len: u64,
    region: MmapRegion,
}

/// A guest's memory.
#[derive(Default)]
pub struct Memory {
    /// Sorted by start; they do not overlap.
    ranges: Vec<Range>,
}

impl Memory {
    /// Maps `len` bytes of the file, from `offset`, at the guest address `start`.
    ///
    /// # Errors
    ///
    /// The range is empty, too large, overlaps another one, or cannot be mapped.
    pub fn map(&mut self, start: u64, len: u64, file: File, offset: u64) -> io::Result<()> {
        let size = usize::try_from(len).map_err(io::Error::other)?;
        let region =
            MmapRegion::from_file(FileOffset::new(file, offset), size).map_err(io::Error::other)?;
        self.insert(start, len, region)
    }

    /// Maps memory of the process itself, for tests.
    ///
    /// # Errors
    ///
    /// As for [`Memory::map`].
    pub fn map_anonymous(&mut self, start: u64, len: u64) -> io::Result<()> {
        let size = usize::try_from(len).map_err(io::Error::other)?;
        let region = MmapRegion::new(size).map_err(io::Error::other)?;
        self.insert(start, len, region)
    }

    fn insert(&mut self, start: u64, len: u64, region: MmapRegion) -> io::Result<()> {
        let end = start.checked_add(len).filter(|_| len > 0);
        let at = self.ranges.partition_point(|r| r.start < start);
        let before = at
            .checked_sub(1)
            .map_or(0, |i| self.ranges[i].start + self.ranges[i].len);
        let after = self.ranges.get(at).map_or(u64::MAX, |r| r.start);
        match end {
            Some(end) if before <= start && end <= after => {
                self.ranges.insert(at, Range { start, len, region });
                Ok(())
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Removes all ranges within `len` bytes at `start`.
    pub fn unmap(&mut self, start: u64, len: u64) {
        let end = start.saturating_add(len);
        self.ranges
            .retain(|r| r.start < start || r.start + r.len > end);
    }

    /// Removes all ranges.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// The part of `len` bytes at `addr` that lies in one range: at least one byte.
    fn slice(&self, addr: u64, len: u64) -> Result<VolatileSlice<'_>, Unmapped> {
        let at = self.ranges.partition_point(|r| r.start <= addr);
        let range = at.checked_sub(1).map(|i| &self.ranges[i]).ok_or(Unmapped)?;
        let offset = addr - range.start;
        if offset >= range.len {
            return Err(Unmapped);
        }
        let len = len.min(range.len - offset);
        // Offset and length are within the mapping, whose size is a usize.
        range
            .region
            .get_slice(offset as usize, len as usize)
            .map_err(|_| Unmapped)
    }

    /// All `len` bytes at `addr`, which must lie in one range.
    fn whole(&self, addr: u64, len: u64) -> Result<VolatileSlice<'_>, Unmapped> {
        self.slice(addr, len)
            .ok()
            .filter(|s| s.len() as u64 == len)
            .ok_or(Unmapped)
    }

    /// Reads a structure.
    ///
    /// # Errors
    ///
    /// Not all of it is accessible.
    pub fn read<T: FromBytes + FromZeros + IntoBytes>(&self, addr: u64) -> Result<T, Unmapped> {
        let mut value = T::new_zeroed();
        let bytes = value.as_mut_bytes();
        let from = self.whole(addr, bytes.len() as u64)?;
        from.copy_to(bytes);
        Ok(value)
    }

    /// Writes a structure.
    ///
    /// # Errors
    ///
    /// Not all of it is accessible.
    pub fn write<T: IntoBytes + Immutable>(&self, addr: u64, value: &T) -> Result<(), Unmapped> {
        self.write_bytes(addr, value.as_bytes())
    }

    /// Writes bytes.
    ///
    /// # Errors
    ///
    /// Not all of it is accessible.
    pub fn write_bytes(&self, addr: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        if !bytes.is_empty() {
            self.whole(addr, bytes.len() as u64)?.copy_from(bytes);
        }
        Ok(())
    }

    /// Reads, with acquire ordering, a number that the guest may write at any time.
    ///
    /// # Errors
    ///
    /// It is not accessible, or not aligned.
    pub fn load(&self, addr: u64) -> Result<u32, Unmapped> {
        self.whole(addr, 4)?
            .load(0, Ordering::Acquire)
            .map_err(|_| Unmapped)
    }

    /// Writes, with release ordering, a number that the guest may read at any time.
    ///
    /// # Errors
    ///
    /// It is not accessible, or not aligned.
    pub fn store(&self, addr: u64, value: u32) -> Result<(), Unmapped> {
        self.whole(addr, 4)?
            .store(value, 0, Ordering::Release)
            .map_err(|_| Unmapped)
    }

    /// Atomically changes the 8-byte number at `addr` by `change`, and returns the old value.
    ///
    /// # Errors
    ///
    /// It is not accessible, or not aligned.
    pub fn atomic(&self, addr: u64, change: impl Fn(u64) -> u64) -> Result<u64, Unmapped> {
        let slice = self.whole(addr, 8)?;
        let number = slice.get_atomic_ref::<AtomicU64>(0).map_err(|_| Unmapped)?;
        number
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(change(old)))
            .map_err(|_| Unmapped)
    }

    /// The addresses of `pages` pages in the page directory at `directory`.
    ///
    /// # Errors
    ///
    /// A directory cannot have that many pages, or a part of it is not accessible. The pages
    /// themselves are checked when they are accessed.
    pub fn page_directory(&self, directory: u64, pages: u64) -> Result<Box<[u64]>, Refused> {
        if pages > ENTRIES * ENTRIES {
            return Err(Error::Invalid.of(format_args!("a page directory with {pages} pages")));
        }
        self.page_addresses(directory, pages)
            .map_err(|_| Error::Fault.of(format_args!("the page directory at {directory:#x}")))
    }

    fn page_addresses(&self, directory: u64, pages: u64) -> Result<Box<[u64]>, Unmapped> {
        let mut found = Vec::with_capacity(pages as usize);
        for table in 0..pages.div_ceil(ENTRIES) {
            let address: u64 = self.read(directory.wrapping_add(table * 8))?;
            let count = (pages - table * ENTRIES).min(ENTRIES);
            let mut entries = vec![0u64; count as usize];
            self.whole(address, count * 8)?
                .copy_to(entries.as_mut_slice().as_mut_bytes());
            found.extend(entries.iter().map(|entry| entry & !(PAGE - 1)));
        }
        Ok(found.into())
    }
}

/// Copies bytes from the spans `from` to the spans `to`, up to the end of the shorter one; returns
/// their number.
///
/// # Errors
///
/// `Err(true)`: an address in `from` is not accessible; `Err(false)`: an address in `to`. Earlier
/// bytes have been copied.
pub fn copy(from: (&Memory, &[Span]), to: (&Memory, &[Span])) -> Result<u64, bool> {
    let (mut sources, mut targets) = (from.1.iter().copied(), to.1.iter().copied());
    let (mut source, mut target) = (Span { addr: 0, len: 0 }, Span { addr: 0, len: 0 });
    let mut copied = 0;
    loop {
        while source.len == 0 {
            match sources.next() {
                Some(next) => source = next,
                None => return Ok(copied),
            }
        }
        while target.len == 0 {
            match targets.next() {
                Some(next) => target = next,
                None => return Ok(copied),
            }
        }
        let len = source.len.min(target.len);
        let read = from.0.slice(source.addr, len).map_err(|_| true)?;
        let write = to.0.slice(target.addr, len).map_err(|_| false)?;
        let len = read.len().min(write.len());
        let read = read.subslice(0, len).map_err(|_| true)?;
        read.copy_to_volatile_slice(write);
        for span in [&mut source, &mut target] {
            span.addr += len as u64;
            span.len -= len as u64;
        }
        copied += len as u64;
    }
}

/// Reads the bytes of the spans `from`.
///
/// # Errors
///
/// An address is not accessible.
pub fn gather(from: (&Memory, &[Span])) -> Result<Vec<u8>, Unmapped> {
    let mut bytes = Vec::new();
    for span in from.1 {
        let mut span = *span;
        while span.len > 0 {
            let slice = from.0.slice(span.addr, span.len)?;
            let start = bytes.len();
            bytes.resize(start + slice.len(), 0u8);
            slice.copy_to(&mut bytes[start..]);
            span.addr += slice.len() as u64;
            span.len -= slice.len() as u64;
        }
    }
    Ok(bytes)
}

/// Writes bytes to the spans `to`, as many as fit.
///
/// # Errors
///
/// An address is not accessible.
pub fn scatter(mut bytes: &[u8], to: (&Memory, &[Span])) -> Result<(), Unmapped> {
    for span in to.1 {
        let mut span = *span;
        while span.len > 0 && !bytes.is_empty() {
            let slice = to.0.slice(span.addr, span.len.min(bytes.len() as u64))?;
            let (now, later) = bytes.split_at(slice.len());
            slice.copy_from(now);
            bytes = later;
            span.addr += now.len() as u64;
            span.len -= now.len() as u64;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Memory {
        let mut memory = Memory::default();
        memory.map_anonymous(0x1000, 0x2000).unwrap();
        memory.map_anonymous(0x3000, 0x1000).unwrap();
        memory.map_anonymous(0x8000, 0x1000).unwrap();
        memory
    }

    #[test]
    fn what_is_not_mapped_is_not_reached() {
        let memory = memory();
        assert_eq!(memory.read::<u64>(0xff8), Err(Unmapped));
        assert_eq!(memory.read::<u64>(0xffc), Err(Unmapped));
        assert_eq!(memory.read::<u64>(0x1000), Ok(0));
        assert_eq!(memory.read::<u64>(0x3ffc), Err(Unmapped));
        assert_eq!(memory.read::<u64>(u64::MAX), Err(Unmapped));
        assert_eq!(memory.load(0x1002), Err(Unmapped));
    }

    #[test]
    fn ranges_do_not_overlap() {
        let mut memory = memory();
        for (start, len) in [
            (0x2000, 0x1000),
            (0x0, 0x2000),
            (0x7000, 0x1001),
            (0x5000, 0),
            (u64::MAX, 2),
        ] {
            assert!(
                memory.map_anonymous(start, len).is_err(),
                "{start:x} {len:x}"
            );
        }
        memory.unmap(0x1000, 0x2000);
        assert_eq!(memory.read::<u64>(0x1000), Err(Unmapped));
        memory.map_anonymous(0x0, 0x3000).unwrap();
    }

    #[test]
    fn copies_cross_ranges() {
        let memory = memory();
        for at in 0..64 {
            memory.write(0x2fe0 + at, &(at as u8)).unwrap();
        }
        let from = [
            Span {
                addr: 0x2fe0,
                len: 10,
            },
            Span {
                addr: 0x2fea,
                len: 54,
            },
        ];
        let to = [
            Span {
                addr: 0x8001,
                len: 1,
            },
            Span {
                addr: 0x8100,
                len: 100,
            },
        ];
        assert_eq!(copy((&memory, &from), (&memory, &to)), Ok(64));
        assert_eq!(memory.read::<u8>(0x8001), Ok(0));
        for at in 1..64 {
            assert_eq!(memory.read::<u8>(0x80ff + at), Ok(at as u8));
        }
        let hole = [Span {
            addr: 0x3ff0,
            len: 32,
        }];
        assert_eq!(copy((&memory, &hole), (&memory, &to)), Err(true));
        assert_eq!(copy((&memory, &from), (&memory, &hole)), Err(false));
        let all: Vec<u8> = (0..64).collect();
        assert_eq!(gather((&memory, &from)), Ok(all));
        assert_eq!(gather((&memory, &hole)), Err(Unmapped));
    }

    #[test]
    fn directories_have_two_levels() {
        let memory = memory();
        memory.write(0x1000, &0x2000u64).unwrap();
        memory.write(0x2000, &0x8123u64).unwrap();
        assert_eq!(&*memory.page_directory(0x1000, 1).unwrap(), &[0x8000]);
        let error = |directory, pages| {
            let refused = memory.page_directory(directory, pages);
            refused.map_err(|refused| refused.error)
        };
        assert_eq!(error(0x1000, 513), Err(Error::Fault));
        assert_eq!(error(0x1000, u64::MAX), Err(Error::Invalid));
        assert_eq!(error(0x9000, 1), Err(Error::Fault));
    }
}
