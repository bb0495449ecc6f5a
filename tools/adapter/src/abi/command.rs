// SPDX-License-Identifier: GPL-2.0
//! Commands in the command slot, and their responses.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Command numbers.
pub mod code {
    #![allow(missing_docs)]
    pub const QUERY_PORT: u32 = 0;
    pub const QUERY_PKEY: u32 = 1;
    pub const CREATE_PD: u32 = 2;
    pub const DESTROY_PD: u32 = 3;
    pub const CREATE_MR: u32 = 4;
    pub const DESTROY_MR: u32 = 5;
    pub const CREATE_CQ: u32 = 6;
    pub const RESIZE_CQ: u32 = 7;
    pub const DESTROY_CQ: u32 = 8;
    pub const CREATE_QP: u32 = 9;
    pub const MODIFY_QP: u32 = 10;
    pub const QUERY_QP: u32 = 11;
    pub const DESTROY_QP: u32 = 12;
    pub const CREATE_UC: u32 = 13;
    pub const DESTROY_UC: u32 = 14;
    pub const CREATE_BIND: u32 = 15;
    pub const DESTROY_BIND: u32 = 16;
    pub const CREATE_SRQ: u32 = 17;
    pub const MODIFY_SRQ: u32 = 18;
    pub const QUERY_SRQ: u32 = 19;
    pub const DESTROY_SRQ: u32 = 20;
    /// Or-ed to a command's number it is the number of the response.
    pub const RESPONSE: u32 = 1 << 31;

    const NAMES: [&str; 21] = [
        "QUERY_PORT",
        "QUERY_PKEY",
        "CREATE_PD",
        "DESTROY_PD",
        "CREATE_MR",
        "DESTROY_MR",
        "CREATE_CQ",
        "RESIZE_CQ",
        "DESTROY_CQ",
        "CREATE_QP",
        "MODIFY_QP",
        "QUERY_QP",
        "DESTROY_QP",
        "CREATE_UC",
        "DESTROY_UC",
        "CREATE_BIND",
        "DESTROY_BIND",
        "CREATE_SRQ",
        "MODIFY_SRQ",
        "QUERY_SRQ",
        "DESTROY_SRQ",
    ];

    /// The name of a command.
    pub fn name(command: u32) -> Option<&'static str> {
        NAMES.get(command as usize).copied()
    }
}

/// Size of the largest command.
pub const LARGEST: usize = size_of::<Header>() + size_of::<ModifyQp>();

/// Header of a command.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// Returned in the response.
    pub response: u64,
    /// One of [`code`].
    pub command: u32,
    /// Not used.
    pub reserved: u32,
}

/// Header of a response.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ResponseHeader {
    /// Copied from the command.
    pub response: u64,
    /// The command's number with [`code::RESPONSE`].
    pub ack: u32,
    /// 0, or the error of a MODIFY_QP.
    pub err: u8,
    /// Not used.
    pub reserved: [u8; 3],
}

/// A command or a response with one number.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct One {
    /// The number, mostly a handle.
    pub value: u32,
    /// Not used.
    pub reserved: u32,
}

/// A command with two numbers.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Two {
    /// The handle.
    pub handle: u32,
    /// A mask or a number.
    pub value: u32,
}

/// Port attributes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Port {
    pub state: u32,
    pub max_mtu: u32,
    pub active_mtu: u32,
    pub gid_tbl_len: u32,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub reserved: [u8; 2],
}

/// Creates a memory region.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateMr {
    /// Address of the first byte, as used in work requests.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Address of the page directory.
    pub directory: u64,
    /// Protection domain.
    pub pd: u32,
    /// Flags of [`super::access`].
    pub access: u32,
    /// [`MR_DMA`], [`MR_FAST`] or 0.
    pub flags: u32,
    /// Number of pages.
    pub pages: u32,
}

/// The region covers all of the guest's memory.
pub const MR_DMA: u32 = 1;
/// Work requests register the region's pages.
pub const MR_FAST: u32 = 2;

/// Response to [`CreateMr`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct CreatedMr {
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
    pub reserved: u32,
}

/// Creates a completion queue.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateCq {
    /// Address of the page directory.
    pub directory: u64,
    /// User context; 0 for the kernel.
    pub context: u32,
    /// Number of entries, a power of two.
    pub entries: u32,
    /// Number of pages, including the page with the ring's state.
    pub pages: u32,
    /// Not used.
    pub reserved: u32,
}

/// Creates a shared receive queue.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct CreateSrq {
    pub directory: u64,
    pub pd: u32,
    pub pages: u32,
    pub attrs: SrqAttrs,
    pub kind: u8,
    pub reserved: [u8; 7],
}

/// Attributes of a shared receive queue.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SrqAttrs {
    /// Maximum number of requests, a power of two.
    pub max_wr: u32,
    /// Maximum number of ranges of a request, a power of two.
    pub max_sge: u32,
    /// An event is raised when fewer requests are left; 0: no event.
    pub limit: u32,
    /// Not used.
    pub reserved: u32,
}

/// Modifies a shared receive queue.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct ModifySrq {
    pub handle: u32,
    pub mask: u32,
    pub attrs: SrqAttrs,
}

/// Creates a queue pair.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct CreateQp {
    pub directory: u64,
    pub pd: u32,
    pub send_cq: u32,
    pub recv_cq: u32,
    pub srq: u32,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline: u32,
    pub lkey: u32,
    pub access: u32,
    /// Number of pages: state of the rings, send queue, receive queue.
    pub total_pages: u16,
    /// Number of pages of the send queue.
    pub send_pages: u16,
    pub max_atomic_arg: u16,
    pub signal_all: u8,
    pub kind: u8,
    pub is_srq: u8,
    pub reserved: [u8; 3],
}

/// Response to [`CreateQp`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct CreatedQp {
    pub qpn: u32,
    pub handle: u32,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline: u32,
}

/// Modifies a queue pair.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ModifyQp {
    /// The queue pair's handle.
    pub handle: u32,
    /// Bits of [`attr`]: the attributes to change.
    pub mask: u32,
    /// The new values.
    pub attrs: QpAttrs,
}

/// Bits for the attributes of a queue pair.
pub mod attr {
    #![allow(missing_docs)]
    pub const STATE: u32 = 1 << 0;
    pub const ACCESS: u32 = 1 << 3;
    pub const PKEY_INDEX: u32 = 1 << 4;
    pub const PORT: u32 = 1 << 5;
    pub const QKEY: u32 = 1 << 6;
    pub const AV: u32 = 1 << 7;
    pub const PATH_MTU: u32 = 1 << 8;
    pub const TIMEOUT: u32 = 1 << 9;
    pub const RETRY_CNT: u32 = 1 << 10;
    pub const RNR_RETRY: u32 = 1 << 11;
    pub const RQ_PSN: u32 = 1 << 12;
    pub const MAX_RD_ATOMIC: u32 = 1 << 13;
    pub const MIN_RNR_TIMER: u32 = 1 << 15;
    pub const SQ_PSN: u32 = 1 << 16;
    pub const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub const DEST_QPN: u32 = 1 << 20;
}

/// Address vector of a queue pair's peer.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Path {
    pub dgid: [u8; 16],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reserved: u8,
    pub dlid: u16,
    pub vlan: u16,
    pub sl: u8,
    pub path_bits: u8,
    pub rate: u8,
    pub flags: u8,
    pub port: u8,
    pub dmac: [u8; 6],
    pub reserved2: u8,
}

/// Attributes of a queue pair.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct QpAttrs {
    pub state: u32,
    pub current_state: u32,
    pub path_mtu: u32,
    pub migration: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qpn: u32,
    pub access: u32,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub sqd_notify: u8,
    pub draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port: u8,
    pub alt_timeout: u8,
    pub reserved: [u8; 5],
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline: u32,
    pub reserved2: u32,
    pub path: Path,
    pub alt_path: Path,
}

/// Assigns an address (GID) to the machine.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct CreateBind {
    pub mtu: u32,
    pub vlan: u32,
    pub index: u32,
    pub gid: [u8; 16],
    pub kind: u8,
    pub reserved: [u8; 3],
}

/// Removes an address (GID) from the machine.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct DestroyBind {
    pub index: u32,
    pub gid: [u8; 16],
    pub reserved: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_numbers() {
        assert_eq!(code::name(code::QUERY_PORT), Some("QUERY_PORT"));
        assert_eq!(code::name(code::MODIFY_QP), Some("MODIFY_QP"));
        assert_eq!(code::name(code::DESTROY_SRQ), Some("DESTROY_SRQ"));
        assert_eq!(code::name(code::DESTROY_SRQ + 1), None);
    }

    #[test]
    fn sizes_are_those_of_the_header() {
        assert_eq!(LARGEST, 184);
        assert_eq!(size_of::<QpAttrs>(), 160);
        assert_eq!(size_of::<Path>(), 40);
        assert_eq!(size_of::<CreateQp>(), 64);
        assert_eq!(size_of::<Port>(), 48);
        assert_eq!(size_of::<CreateSrq>(), 40);
    }
}
