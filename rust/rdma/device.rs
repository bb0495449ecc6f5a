// SPDX-License-Identifier: GPL-2.0

//! What an adapter can do, as far as connections ask for it.

use kernel::sync::atomic::{
    ordering::Relaxed,
    Atomic, //
};

use super::mr::{
    LEAST_PAGES,
    MAX_PAGES, //
};
use super::post::READS;
use crate::bindings;

/// The turn of the next completion queue, of all adapters.
static NEXT_VECTOR: Atomic<i32> = Atomic::new(0);

/// The completion vector of a new completion queue: the vectors take turns, so that the interrupts
/// of many connections do not all come to one processor. As `ib_alloc_cq_any()` chooses; that makes
/// queues whose completions the RDMA core polls, which is not for us.
///
/// # Safety
///
/// `device` is valid.
pub(super) unsafe fn next_vector(device: *mut bindings::ib_device) -> u32 {
    // SAFETY: As the caller promises; the other has no precondition.
    let (vectors, cpus) = unsafe {
        let vectors = bindings::ib_device_num_comp_vectors(device.cast());
        (vectors.unsigned_abs(), bindings::num_online_cpus())
    };
    let turn = NEXT_VECTOR.fetch_add(1, Relaxed) as u32;
    turn % vectors.min(cpus).max(1)
}

/// What an adapter says of itself.
#[derive(Copy, Clone)]
pub(crate) struct Abilities {
    /// Ranges of memory that a request of the send queue, a receive, and a Read may have.
    pub(crate) send_sge: u32,
    pub(crate) recv_sge: u32,
    pub(crate) read_sge: u32,
    /// Regions can be made by requests of the send queue.
    pub(crate) registers: bool,
    /// Pages of such a region.
    pub(crate) region_pages: u32,
    /// Reads of a queue pair that may be in flight, to it and from it.
    pub(crate) reads: u32,
    /// soft-RoCE, which has rules of its own.
    pub(crate) soft_roce: bool,
    /// soft-iWARP, which has others.
    pub(crate) soft_iwarp: bool,
}

impl Abilities {
    /// # Safety
    ///
    /// `device` is valid.
    pub(crate) unsafe fn of(device: *mut bindings::ib_device) -> Self {
        let dev = device.cast();
        // SAFETY: As the caller promises.
        let driver = unsafe { bindings::ib_device_driver_id(dev) };
        // SAFETY: As the caller promises.
        unsafe {
            Self {
                send_sge: bindings::ib_device_max_send_sge(dev),
                recv_sge: bindings::ib_device_max_recv_sge(dev),
                read_sge: bindings::ib_device_max_sge_rd(dev),
                registers: bindings::ib_device_cap_flags(dev)
                    & bindings::SDP_CONST_IB_DEVICE_MEM_MGT_EXTENSIONS
                    != 0,
                region_pages: bindings::ib_device_max_fast_reg_pages(dev),
                reads: bindings::ib_device_max_qp_rd_atom(dev)
                    .min(bindings::ib_device_max_qp_init_rd_atom(dev)),
                soft_roce: driver == bindings::SDP_CONST_RDMA_DRIVER_RXE,
                soft_iwarp: driver == bindings::SDP_CONST_RDMA_DRIVER_SIW,
            }
        }
    }

    /// Whether connections can be made: each message has a header apart.
    pub(crate) fn can_connect(&self) -> bool {
        self.send_sge >= 2 && self.recv_sge >= 2
    }

    /// Whether it is a program that copies.
    pub(crate) fn is_software(&self) -> bool {
        self.soft_roce || self.soft_iwarp
    }

    /// Why all goes by copy; `None` if programs' memory can be advertised.
    pub(crate) fn no_adverts(&self) -> Option<&'static str> {
        if !self.registers {
            Some("it makes no regions by requests")
        } else if self.region_pages < LEAST_PAGES {
            Some("its regions have too few pages")
        } else if self.reads < READS {
            Some("it has too few Reads in flight")
        } else {
            None
        }
    }

    /// Pages that are advertised in at a time; 0 if all goes by copy.
    pub(crate) fn advert_pages(&self) -> u32 {
        match self.no_adverts() {
            Some(_) => 0,
            None => self.region_pages.min(MAX_PAGES),
        }
    }
}
