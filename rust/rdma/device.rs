// SPDX-License-Identifier: GPL-2.0

//! The capabilities of an adapter that connections need.

use kernel::sync::atomic::{
    ordering::Relaxed,
    Atomic, //
};

use super::post::READS;
use super::region::{
    LEAST_PAGES,
    MAX_PAGES, //
};
use crate::bindings;

/// The number of completion queues created so far, of all adapters; selects the next vector.
static NEXT_VECTOR: Atomic<i32> = Atomic::new(0);

/// The completion vector of a new completion queue. The vectors are used in turn, so that the
/// interrupts of many connections are spread over the processors. `ib_alloc_cq_any()` chooses in
/// the same way, but it creates queues that the RDMA core polls, which do not suit the module.
///
/// # Safety
///
/// `device` is valid.
pub(super) unsafe fn next_vector(device: *mut bindings::ib_device) -> u32 {
    // SAFETY: As the caller promises; `num_online_cpus()` has no precondition.
    let (vectors, cpus) = unsafe {
        let vectors = bindings::ib_device_num_comp_vectors(device.cast());
        (vectors.unsigned_abs(), bindings::num_online_cpus())
    };
    let turn = NEXT_VECTOR.fetch_add(1, Relaxed) as u32;
    turn % vectors.min(cpus).max(1)
}

/// The kind of an adapter, by its driver.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Driver {
    /// Any other driver than those below.
    Hardware,
    /// soft-RoCE, which needs special treatment.
    SoftRoce,
    /// soft-iWARP, which needs other special treatment.
    SoftIwarp,
    /// The driver of VMware's virtual adapter, for which some calls are expensive.
    VmwPvrdma,
}

impl Driver {
    /// # Safety
    ///
    /// `device` is valid.
    unsafe fn of(device: *mut bindings::ib_device) -> Self {
        // SAFETY: As the caller promises.
        match unsafe { bindings::ib_device_driver_id(device.cast()) } {
            bindings::SDP_CONST_RDMA_DRIVER_RXE => Self::SoftRoce,
            bindings::SDP_CONST_RDMA_DRIVER_SIW => Self::SoftIwarp,
            bindings::SDP_CONST_RDMA_DRIVER_VMW_PVRDMA => Self::VmwPvrdma,
            _ => Self::Hardware,
        }
    }

    /// Whether the adapter is software that copies.
    pub(crate) fn is_software(self) -> bool {
        matches!(self, Self::SoftRoce | Self::SoftIwarp)
    }
}

/// The capabilities that an adapter reports.
#[derive(Copy, Clone)]
pub(crate) struct Abilities {
    /// The maximum number of memory ranges of a request of the send queue, of a receive, and of a
    /// Read.
    pub(crate) send_sge: u32,
    pub(crate) recv_sge: u32,
    pub(crate) read_sge: u32,
    /// Regions can be registered by requests of the send queue.
    pub(crate) registers: bool,
    /// The maximum number of pages of such a region.
    pub(crate) region_pages: u32,
    /// The maximum number of Reads in flight of a queue pair, in each direction.
    pub(crate) reads: u32,
    pub(crate) driver: Driver,
}

impl Abilities {
    /// # Safety
    ///
    /// `device` is valid.
    pub(crate) unsafe fn of(device: *mut bindings::ib_device) -> Self {
        let dev = device.cast();
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
                driver: Driver::of(device),
            }
        }
    }

    /// Whether connections are possible: the header of each message is a memory range of its own.
    pub(crate) fn can_connect(&self) -> bool {
        self.send_sge >= 2 && self.recv_sge >= 2
    }

    /// The reason why all bytes are copied; `None` if memory of programs can be advertised.
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

    /// The maximum number of pages of an advert; 0 if all bytes are copied.
    pub(crate) fn advert_pages(&self) -> u32 {
        match self.no_adverts() {
            Some(_) => 0,
            None => self.region_pages.min(MAX_PAGES),
        }
    }
}
