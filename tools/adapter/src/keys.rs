// SPDX-License-Identifier: GPL-2.0
//! Regions of memory and their keys.
//!
//! A key is the region's number and, in the last byte, a part that changes each time the number is
//! given out, so that old keys are dead. The last byte of a region that work requests register is the
//! poster's own choice. Every access goes by [`Keys::spans`], which checks the key, the protection
//! domain, the rights and the bounds, for every byte.

use std::sync::Arc;

use crate::abi::shared::limit;
use crate::abi::{access, PAGE};
use crate::memory::Span;

/// Why a key does not allow an access, or a registration is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied;

/// Memory behind a key that is valid.
#[derive(Clone, Debug)]
struct Mapping {
    start: u64,
    len: u64,
    access: u32,
    pages: Arc<[u64]>,
}

#[derive(Clone, Debug)]
enum Kind {
    /// All of the guest's memory, by the guest's addresses.
    All { access: u32 },
    /// Pages of a program.
    Pages(Mapping),
    /// Pages that a work request names; none until then, and after an invalidation.
    Fast { most: u32, mapping: Option<Mapping> },
}

#[derive(Clone, Debug)]
struct Region {
    pd: u32,
    kind: Kind,
}

/// A key that is valid.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Live {
    /// The key.
    pub key: u32,
    /// What it is of: all memory, pages of a program, or pages of a work request.
    pub kind: &'static str,
    /// Bytes; none for all memory.
    pub bytes: Option<u64>,
    /// Whether peers may read.
    pub peers_read: bool,
    /// Whether peers may write.
    pub peers_write: bool,
}

#[derive(Default)]
struct Slot {
    /// The last byte of the key.
    variant: u8,
    region: Option<Region>,
}

/// All regions of a machine.
#[derive(Default)]
pub struct Keys {
    slots: Vec<Slot>,
    free: std::collections::VecDeque<u32>,
    pages: u64,
    count: u64,
}

/// Pages of a region of `len` bytes from `start` on.
pub fn pages_of(start: u64, len: u64) -> Option<u64> {
    (start % PAGE)
        .checked_add(len)
        .map(|bytes| bytes.div_ceil(PAGE))
}

impl Keys {
    fn insert(&mut self, pd: u32, kind: Kind, pages: u64) -> Option<u32> {
        if self.count >= u64::from(limit::MRS) || self.pages + pages > limit::MR_PAGES {
            return None;
        }
        // A number rests for a while; number 0 is never used, and so key 0 neither.
        if self.free.len() < 64 || self.slots.is_empty() {
            for _ in 0..64 {
                self.free.push_back(self.slots.len() as u32);
                self.slots.push(Slot::default());
            }
            self.free.retain(|index| *index != 0);
        }
        let index = self.free.pop_front()?;
        let slot = &mut self.slots[index as usize];
        slot.variant = slot.variant.wrapping_add(1);
        slot.region = Some(Region { pd, kind });
        self.count += 1;
        self.pages += pages;
        Some((index << 8) | u32::from(slot.variant))
    }

    /// The key of a region of all memory; `None` if there are too many regions.
    pub fn add_all(&mut self, pd: u32, access: u32) -> Option<u32> {
        self.insert(pd, Kind::All { access }, 0)
    }

    /// The key of a region of a program's pages.
    ///
    /// `None` if the pages are not as many as the bytes need, or there are too many of anything.
    pub fn add_pages(
        &mut self,
        pd: u32,
        access: u32,
        start: u64,
        len: u64,
        pages: Box<[u64]>,
    ) -> Option<u32> {
        let count = pages.len() as u64;
        let fits = len > 0 && start.checked_add(len).is_some() && pages_of(start, len)? <= count;
        let mapping = Mapping {
            start,
            len,
            access,
            pages: pages.into(),
        };
        fits.then(|| self.insert(pd, Kind::Pages(mapping), count))
            .flatten()
    }

    /// The key of a region whose pages, `most` at most, are named by work requests.
    pub fn add_fast(&mut self, pd: u32, most: u32) -> Option<u32> {
        if most > limit::FAST_PAGES {
            return None;
        }
        self.insert(
            pd,
            Kind::Fast {
                most,
                mapping: None,
            },
            u64::from(most),
        )
    }

    /// Ends a region, by its number.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn remove(&mut self, index: u32) -> Result<(), Denied> {
        let region = self
            .slots
            .get_mut(index as usize)
            .and_then(|slot| slot.region.take())
            .ok_or(Denied)?;
        self.pages -= match region.kind {
            Kind::All { .. } => 0,
            Kind::Pages(mapping) => mapping.pages.len() as u64,
            Kind::Fast { most, .. } => u64::from(most),
        };
        self.count -= 1;
        self.free.push_back(index);
        Ok(())
    }

    /// The number of a key's region.
    pub fn index(key: u32) -> u32 {
        key >> 8
    }

    /// How many regions there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    fn region(&self, key: u32, pd: u32) -> Result<&Region, Denied> {
        let slot = self.slots.get(Self::index(key) as usize).ok_or(Denied)?;
        let region = slot.region.as_ref().ok_or(Denied)?;
        if u32::from(slot.variant) == key & 0xff && region.pd == pd {
            Ok(region)
        } else {
            Err(Denied)
        }
    }

    /// Where `len` bytes from `addr` on are in the guest's memory, added to `spans`.
    ///
    /// # Errors
    ///
    /// The key is not valid, belongs to another protection domain, does not have all rights in
    /// `rights`, or not all bytes are in its region.
    pub fn spans(
        &self,
        key: u32,
        pd: u32,
        rights: u32,
        addr: u64,
        len: u64,
        spans: &mut Vec<Span>,
    ) -> Result<(), Denied> {
        let mapping = match &self.region(key, pd)?.kind {
            Kind::All { access } if access & rights == rights => {
                spans.push(Span { addr, len });
                return addr.checked_add(len).map(|_| ()).ok_or(Denied);
            }
            Kind::Pages(mapping)
            | Kind::Fast {
                mapping: Some(mapping),
                ..
            } => mapping,
            _ => return Err(Denied),
        };
        let end = addr.checked_add(len).ok_or(Denied)?;
        if mapping.access & rights != rights
            || addr < mapping.start
            || end > mapping.start + mapping.len
        {
            return Err(Denied);
        }
        let mut offset = mapping.start % PAGE + (addr - mapping.start);
        let mut left = len;
        while left > 0 {
            let page = *mapping.pages.get((offset / PAGE) as usize).ok_or(Denied)?;
            let part = left.min(PAGE - offset % PAGE);
            let begin = page + offset % PAGE;
            match spans.last_mut() {
                Some(last) if last.addr.checked_add(last.len) == Some(begin) => last.len += part,
                _ => spans.push(Span {
                    addr: begin,
                    len: part,
                }),
            }
            offset += part;
            left -= part;
        }
        Ok(())
    }

    /// The keys that are valid, and what peers may do with them.
    pub fn live(&self) -> Vec<Live> {
        let live = |(index, slot): (usize, &Slot)| {
            let (kind, rights, bytes) = match &slot.region.as_ref()?.kind {
                Kind::All { access } => ("all", *access, None),
                Kind::Pages(mapping) => ("pages", mapping.access, Some(mapping.len)),
                Kind::Fast { mapping, .. } => {
                    let mapping = mapping.as_ref()?;
                    ("registered", mapping.access, Some(mapping.len))
                }
            };
            Some(Live {
                key: ((index as u32) << 8) | u32::from(slot.variant),
                kind,
                bytes,
                peers_read: rights & access::REMOTE_READ != 0,
                peers_write: rights & access::REMOTE_WRITE != 0,
            })
        };
        self.slots.iter().enumerate().filter_map(live).collect()
    }

    /// Gives a region pages and a new key, for a work request.
    ///
    /// # Errors
    ///
    /// The region is not one of work requests or of that protection domain, is in use, or the pages
    /// are too many or too few.
    pub fn register(
        &mut self,
        key: u32,
        pd: u32,
        access: u32,
        start: u64,
        len: u64,
        pages: &[u64],
    ) -> Result<(), Denied> {
        let slot = self
            .slots
            .get_mut(Self::index(key) as usize)
            .ok_or(Denied)?;
        let needed = pages_of(start, len).ok_or(Denied)?;
        let allowed = access::LOCAL_WRITE
            | access::REMOTE_WRITE
            | access::REMOTE_READ
            | access::REMOTE_ATOMIC;
        match &mut slot.region {
            Some(Region {
                pd: owner,
                kind:
                    Kind::Fast {
                        most,
                        mapping: mapping @ None,
                    },
            }) if *owner == pd
                && pages.len() as u64 <= u64::from(*most)
                && needed <= pages.len() as u64
                && start.checked_add(len).is_some() =>
            {
                *mapping = Some(Mapping {
                    start,
                    len,
                    access: access & allowed,
                    pages: pages.into(),
                });
                slot.variant = key as u8;
                Ok(())
            }
            _ => Err(Denied),
        }
    }

    /// Makes the key of such a region invalid, for a work request of this machine or of its peer.
    ///
    /// # Errors
    ///
    /// The key is not valid, or is not one that work requests make.
    pub fn invalidate(&mut self, key: u32, pd: u32) -> Result<(), Denied> {
        self.region(key, pd)?;
        match &mut self.slots[Self::index(key) as usize].region {
            Some(Region {
                kind: Kind::Fast { mapping, .. },
                ..
            }) => {
                mapping.take();
                Ok(())
            }
            _ => Err(Denied),
        }
    }
}

#[cfg(test)]
mod tests;
