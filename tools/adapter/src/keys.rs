// SPDX-License-Identifier: GPL-2.0
//! Memory regions and their keys.
//!
//! A key consists of the region's number and, in the last byte, a part that changes each time the
//! number is reused, so that old keys stay invalid. For regions that are registered by work
//! requests the poster chooses the last byte. Each access uses [`Keys::spans`], which checks the
//! key, the protection domain, the rights and the bounds.

use std::sync::Arc;

use crate::abi::shared::limit;
use crate::abi::{access, PAGE};
use crate::memory::Span;

/// The key does not permit the access, or a registration is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied;

/// Memory of a valid key.
#[derive(Clone, Debug)]
struct Mapping {
    start: u64,
    len: u64,
    access: u32,
    pages: Arc<[u64]>,
}

#[derive(Clone, Debug)]
enum Kind {
    /// All of the guest's memory, with the guest's addresses.
    All { access: u32 },
    /// Pages of a program.
    Pages(Mapping),
    /// Pages registered by a work request; none before the registration and after an invalidation.
    Fast { most: u32, mapping: Option<Mapping> },
}

#[derive(Clone, Debug)]
struct Region {
    pd: u32,
    kind: Kind,
}

/// A valid key, for the control socket.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Live {
    /// The key.
    pub key: u32,
    /// Kind of region: all memory, pages of a program, or pages registered by a work request.
    pub kind: &'static str,
    /// Size; none for all memory.
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

/// All memory regions of a machine.
#[derive(Default)]
pub struct Keys {
    slots: Vec<Slot>,
    free: std::collections::VecDeque<u32>,
    pages: u64,
    count: u64,
}

/// The number of pages of a region of `len` bytes at `start`.
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
        // Reuse numbers late. Number 0 is never used, so key 0 is never valid.
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

    /// Adds a region of all memory; `None` if there are too many regions.
    pub fn add_all(&mut self, pd: u32, access: u32) -> Option<u32> {
        self.insert(pd, Kind::All { access }, 0)
    }

    /// Adds a region of a program's pages.
    ///
    /// `None` if the number of pages does not match the size, or a limit is reached.
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

    /// Adds a region whose pages, `most` at most, are registered by work requests.
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

    /// Removes a region by its number.
    ///
    /// # Errors
    ///
    /// The region does not exist.
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

    /// The number of the key's region.
    pub fn index(key: u32) -> u32 {
        key >> 8
    }

    /// The number of regions.
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

    /// Appends to `spans` the guest addresses of `len` bytes at `addr`.
    ///
    /// # Errors
    ///
    /// The key is invalid, belongs to another protection domain or lacks a right, or the range is
    /// not inside its region.
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

    /// The valid keys, and the rights of peers.
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

    /// Registers pages and a new key, for a work request.
    ///
    /// # Errors
    ///
    /// The region is not for work requests, belongs to another protection domain or is registered,
    /// or the number of pages is invalid.
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

    /// Invalidates the key of a region for work requests, for this machine or its peer.
    ///
    /// # Errors
    ///
    /// The key is invalid, or its region is not for work requests.
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
