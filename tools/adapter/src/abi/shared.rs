// SPDX-License-Identifier: GPL-2.0
//! The shared region, in which the driver and the device exchange addresses and capabilities.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Location of a ring: a page directory whose first page holds the ring's state.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RingPages {
    /// Number of pages, including the page with the state.
    pub pages: u32,
    /// Not used.
    pub reserved: u32,
    /// Address of the page directory.
    pub directory: u64,
}

/// Written by the driver.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DriverPart {
    /// Interface version of the driver.
    pub driver_version: u32,
    /// Not used.
    pub pad: u32,
    /// Kind of the driver's operating system.
    pub system: u64,
    /// The command slot's address.
    pub command_slot: u64,
    /// The response slot's address.
    pub response_slot: u64,
    /// The event ring.
    pub events: RingPages,
    /// The ring of completion queues with new completions.
    pub notifications: RingPages,
    /// Page frame of the kernel's doorbells.
    pub uar: u64,
}

/// Offset of [`Capabilities`] in the region.
pub const CAPABILITIES_AT: u64 = size_of::<DriverPart>() as u64;

/// Capabilities of the device. Fields without a comment refer to features that the device does not
/// have.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Capabilities {
    pub fw_ver: u64,
    /// In network order.
    pub node_guid: [u8; 8],
    /// In network order.
    pub sys_image_guid: [u8; 8],
    /// Maximum size of a memory region.
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub atomic_arg_sizes: u64,
    pub ex_comp_mask: u32,
    pub device_cap_flags2: u32,
    pub max_fa_bit_boundary: u32,
    pub log_max_atomic_inline_arg: u32,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub device_cap_flags: u32,
    pub max_sge: u32,
    pub max_sge_rd: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_pd: u32,
    /// Reads and atomic operations that a queue pair can serve at a time.
    pub max_qp_rd_atom: u32,
    pub max_ee_rd_atom: u32,
    pub max_res_rd_atom: u32,
    /// Reads and atomic operations that a queue pair can have in flight.
    pub max_qp_init_rd_atom: u32,
    pub max_ee_init_rd_atom: u32,
    pub max_ee: u32,
    pub max_rdd: u32,
    pub max_mw: u32,
    pub max_raw_ipv6_qp: u32,
    pub max_raw_ethy_qp: u32,
    pub max_mcast_grp: u32,
    pub max_mcast_qp_attach: u32,
    pub max_total_mcast_qp_attach: u32,
    pub max_ah: u32,
    pub max_fmr: u32,
    pub max_map_per_fmr: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_srq_sge: u32,
    /// Number of doorbell pages, a power of two.
    pub max_uar: u32,
    pub gid_tbl_len: u32,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
    /// 0: RoCE.
    pub mode: u8,
    pub atomic_ops: u8,
    /// Bits for local invalidation, remote invalidation and fast registration.
    pub bmme_flags: u8,
    /// 2: RoCE v2.
    pub gid_types: u8,
    /// Maximum number of pages of a fast registration.
    pub max_fast_reg_page_list_len: u32,
}

/// Limits of the device. The driver allocates tables of `QPS`, `CQS` and `SRQS` entries.
pub mod limit {
    /// Queue pairs. A completion has 16 bits for the handle.
    pub const QPS: u32 = 1 << 14;
    /// Completion queues.
    pub const CQS: u32 = 1 << 14;
    /// Shared receive queues.
    pub const SRQS: u32 = 1 << 10;
    /// Memory regions.
    pub const MRS: u32 = 1 << 17;
    /// Pages of all regions of a machine together: 16 GiB.
    pub const MR_PAGES: u64 = 1 << 22;
    /// Protection domains, and user contexts.
    pub const PDS: u32 = 1 << 14;
    /// Work requests of a queue.
    pub const WRS: u32 = 1 << 14;
    /// Ranges of memory of a work request.
    pub const SGES: u32 = 16;
    /// Entries of a completion queue.
    pub const CQES: u32 = 1 << 17;
    /// Reads and atomic operations in flight.
    pub const READS: u32 = 16;
    /// Pages of doorbells.
    pub const UARS: u32 = 512;
    /// Addresses (GIDs) of a machine.
    pub const GIDS: u32 = 128;
    /// Pages of a fast registration; the driver supports no more.
    pub const FAST_PAGES: u32 = 128;
    /// Bytes of a message.
    pub const MESSAGE: u32 = 1 << 30;
}

impl Capabilities {
    /// The capabilities of the adapter with this global identifier.
    pub fn of(guid: [u8; 8]) -> Self {
        Self {
            fw_ver: 1 << 32,
            node_guid: guid,
            sys_image_guid: guid,
            max_mr_size: 1 << 30,
            page_size_cap: super::PAGE,
            vendor_id: 0x15ad,
            hw_ver: 1,
            max_qp: limit::QPS,
            max_qp_wr: limit::WRS,
            max_sge: limit::SGES,
            max_sge_rd: limit::SGES,
            max_cq: limit::CQS,
            max_cqe: limit::CQES,
            max_mr: limit::MRS,
            max_pd: limit::PDS,
            max_qp_rd_atom: limit::READS,
            max_res_rd_atom: limit::READS * limit::QPS,
            max_qp_init_rd_atom: limit::READS,
            max_ah: 1 << 16,
            max_srq: limit::SRQS,
            max_srq_wr: limit::WRS,
            max_srq_sge: limit::SGES,
            max_uar: limit::UARS,
            gid_tbl_len: limit::GIDS,
            max_pkeys: 1,
            phys_port_cnt: 1,
            atomic_ops: 0b11,
            bmme_flags: 0b111,
            gid_types: 2,
            max_fast_reg_page_list_len: limit::FAST_PAGES,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_header() {
        assert_eq!(CAPABILITIES_AT, 72);
        assert_eq!(size_of::<Capabilities>(), 208);
    }
}
