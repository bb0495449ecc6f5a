// SPDX-License-Identifier: GPL-2.0
//! Creation of objects. All sizes are checked against the memory that the driver provides.

use std::collections::VecDeque;

use super::command::{answer, no_such, Outcome};
use super::{Machine, Switch};
use crate::abi::command::{
    CreateCq, CreateMr, CreateQp, CreateSrq, CreatedMr, CreatedQp, QpAttrs, MR_DMA, MR_FAST,
};
use crate::abi::queue::{Cqe, RecvHeader, SendHeader, Sge};
use crate::abi::shared::limit;
use crate::cq::Cq;
use crate::device::{Device, Srq};
use crate::error::{Error, Refused};
use crate::keys::{pages_of, Keys};
use crate::memory::Memory;
use crate::qp::{Counters, Kind, Qp, Requester, Responder, State};
use crate::ring::{Place, Ring};

/// Size of a queue entry with `sges` ranges: a power of two, as in the driver.
fn entry(header: usize, sges: u32) -> u32 {
    (header as u32 + size_of::<Sge>() as u32 * sges).next_power_of_two()
}

/// A size rounded as in the driver, if it is within the limit.
fn rounded(what: &str, size: u32, most: u32) -> Result<u32, Refused> {
    (size <= most)
        .then(|| size.max(1).next_power_of_two())
        .ok_or_else(|| Error::Invalid.of(format_args!("{what} {size}")))
}

/// The pages of a directory: the page with the state of the rings, and the others.
fn pages(memory: &Memory, directory: u64, count: u32) -> Result<(u64, Box<[u64]>), Refused> {
    let pages = memory.page_directory(directory, u64::from(count))?;
    let (state, rest) = pages
        .split_first()
        .ok_or_else(|| Error::Invalid.of(format_args!("a page directory with {count} pages")))?;
    Ok((*state, rest.into()))
}

impl Switch {
    pub(super) fn create_mr(&mut self, machine: Machine, from: &CreateMr) -> Outcome {
        let Device {
            memory, pds, keys, ..
        } = &mut self.devices[machine];
        pds.get(from.pd)
            .ok_or_else(|| no_such("protection domain", from.pd))?;
        let key = match from.flags {
            MR_DMA => keys.add_all(from.pd, from.access),
            MR_FAST => keys.add_fast(from.pd, from.pages),
            0 => {
                let pages = u64::from(from.pages);
                if pages > limit::MR_PAGES
                    || pages_of(from.start, from.length).is_none_or(|n| n > pages)
                {
                    return Err(Error::Invalid.of(format_args!(
                        "a region of {:#x} bytes at {:#x} with {pages} pages",
                        from.length, from.start
                    )));
                }
                let pages = memory.page_directory(from.directory, pages)?;
                keys.add_pages(from.pd, from.access, from.start, from.length, pages)
            }
            flags => {
                return Err(Error::Invalid.of(format_args!("the value {flags:#x} of the flags")))
            }
        };
        let key = key.ok_or_else(|| {
            Error::NoRoom.of(format_args!("one more region of {} pages", from.pages))
        })?;
        answer(&CreatedMr {
            handle: Keys::index(key),
            lkey: key,
            rkey: key,
            reserved: 0,
        })
    }

    pub(super) fn create_cq(&mut self, machine: Machine, from: &CreateCq) -> Outcome {
        let device = &mut self.devices[machine];
        if from.entries == 0 || from.entries > limit::CQES || !from.entries.is_power_of_two() {
            return Err(Error::Invalid.of(format_args!("the number of entries {}", from.entries)));
        }
        let (state, pages) = pages(&device.memory, from.directory, from.pages)?;
        let size = size_of::<Cqe>() as u32;
        let cq = Cq::new(Ring::new(state, Place::Second, &pages, from.entries, size)?);
        let handle = device.cqs.insert(|_| Some(cq));
        let handle = handle.ok_or_else(|| Error::NoRoom.of("one more completion queue"))?;
        answer(&[handle, from.entries])
    }

    pub(super) fn create_srq(&mut self, machine: Machine, from: &CreateSrq) -> Outcome {
        let device = &mut self.devices[machine];
        device
            .pds
            .get(from.pd)
            .ok_or_else(|| no_such("protection domain", from.pd))?;
        let size = rounded("max_wr", from.attrs.max_wr, limit::WRS)?;
        let most = rounded("max_sge", from.attrs.max_sge, limit::SGES)?;
        if from.attrs.limit > size {
            return Err(Error::Invalid.of(format_args!("the limit {}", from.attrs.limit)));
        }
        let (state, pages) = pages(&device.memory, from.directory, from.pages)?;
        let bytes = entry(size_of::<RecvHeader>(), most);
        let srq = Srq {
            pd: from.pd,
            ring: Ring::new(state, Place::Second, &pages, size, bytes)?,
            most,
            limit: from.attrs.limit,
            size,
        };
        let handle = device.srqs.insert(|_| Some(srq));
        let handle = handle.ok_or_else(|| Error::NoRoom.of("one more shared receive queue"))?;
        super::command::number(handle)
    }

    pub(super) fn create_qp(&mut self, machine: Machine, from: &CreateQp) -> Outcome {
        let uid = self.unique();
        let device = &mut self.devices[machine];
        let kind = Kind::new(from.kind)
            .ok_or_else(|| Error::Invalid.of(format_args!("the kind {}", from.kind)))?;
        device
            .pds
            .get(from.pd)
            .ok_or_else(|| no_such("protection domain", from.pd))?;
        for cq in [from.send_cq, from.recv_cq] {
            let found = device.cqs.get(cq);
            found.ok_or_else(|| no_such("completion queue", cq))?;
        }
        let srq = (from.is_srq != 0).then_some(from.srq);
        if let Some(handle) = srq {
            // Receives of a shared queue use the queue's protection domain.
            let shared = device.srqs.get(handle);
            let shared = shared.ok_or_else(|| no_such("shared receive queue", handle))?;
            if shared.pd != from.pd {
                return Err(Error::Invalid.of(format_args!(
                    "shared receive queue {handle} with protection domain {}",
                    from.pd
                )));
            }
        }
        let sends = rounded("max_send_wr", from.max_send_wr, limit::WRS)?;
        let send_sges = rounded("max_send_sge", from.max_send_sge, limit::SGES)?;
        let receives = rounded("max_recv_wr", from.max_recv_wr, limit::WRS)?;
        let recv_sges = rounded("max_recv_sge", from.max_recv_sge, limit::SGES)?;
        let (state, pages) = pages(&device.memory, from.directory, from.total_pages.into())?;
        let (own, rest) = pages
            .split_at_checked(usize::from(from.send_pages))
            .ok_or_else(|| Error::Invalid.of(format_args!("send_pages {}", from.send_pages)))?;
        let size = entry(size_of::<SendHeader>(), send_sges);
        let sq = Ring::new(state, Place::First, own, sends, size)?;
        let rq = match srq {
            Some(_) => None,
            None => {
                let size = entry(size_of::<RecvHeader>(), recv_sges);
                Some(Ring::new(state, Place::Second, rest, receives, size)?)
            }
        };
        let qp = Qp {
            uid,
            kind,
            pd: from.pd,
            send_cq: from.send_cq,
            recv_cq: from.recv_cq,
            srq,
            signal_all: from.signal_all != 0,
            state: State::Reset,
            attrs: QpAttrs {
                max_send_wr: sends,
                max_recv_wr: receives,
                max_send_sge: send_sges,
                max_recv_sge: recv_sges,
                ..QpAttrs::default()
            },
            sq,
            rq,
            broken: false,
            requester: Requester {
                pending: VecDeque::new(),
                ..Requester::default()
            },
            responder: Responder::default(),
            counters: Counters::default(),
        };
        let handle = match kind {
            Kind::Gsi => device.qps.insert_at(1, qp),
            _ => device.qps.insert(|_| Some(qp)),
        };
        let handle = handle.ok_or_else(|| Error::NoRoom.of("one more queue pair"))?;
        answer(&CreatedQp {
            qpn: handle,
            handle,
            max_send_wr: sends,
            max_recv_wr: receives,
            max_send_sge: send_sges,
            max_recv_sge: recv_sges,
            max_inline: 0,
        })
    }
}
