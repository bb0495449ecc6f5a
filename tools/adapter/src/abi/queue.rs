// SPDX-License-Identifier: GPL-2.0
//! Entries of the queues in the guest's memory.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Operations of a work request.
pub mod op {
    #![allow(missing_docs)]
    pub const RDMA_WRITE: u32 = 0;
    pub const RDMA_WRITE_IMM: u32 = 1;
    pub const SEND: u32 = 2;
    pub const SEND_IMM: u32 = 3;
    pub const RDMA_READ: u32 = 4;
    pub const ATOMIC_SWAP: u32 = 5;
    pub const ATOMIC_ADD: u32 = 6;
    pub const SEND_INV: u32 = 8;
    pub const LOCAL_INV: u32 = 10;
    pub const FAST_REG: u32 = 11;
}

/// Flags of a work request.
pub mod flag {
    /// Wait for earlier Reads and atomic operations.
    pub const FENCE: u32 = 1 << 0;
    /// Report completion.
    pub const SIGNALED: u32 = 1 << 1;
    /// Wake a peer that waits for solicited completions.
    pub const SOLICITED: u32 = 1 << 2;
}

/// Status of a completed work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[repr(u32)]
#[allow(missing_docs)]
pub enum Status {
    #[value(skip)]
    Success = 0,
    LocalLength = 1,
    LocalOperation = 2,
    LocalProtection = 4,
    Flushed = 5,
    MemoryBind = 6,
    LocalAccess = 8,
    RemoteInvalidRequest = 9,
    RemoteAccess = 10,
    RemoteOperation = 11,
    RetriesExceeded = 12,
    RnrRetriesExceeded = 13,
}

/// Operations of a completion.
pub mod wc {
    #![allow(missing_docs)]
    pub const SEND: u32 = 0;
    pub const RDMA_WRITE: u32 = 1;
    pub const RDMA_READ: u32 = 2;
    pub const COMP_SWAP: u32 = 3;
    pub const FETCH_ADD: u32 = 4;
    pub const LOCAL_INV: u32 = 7;
    pub const FAST_REG: u32 = 8;
    pub const RECV: u32 = 1 << 7;
    pub const RECV_RDMA_IMM: u32 = (1 << 7) + 1;
    /// Flag: the message follows a global route header of 40 bytes.
    pub const WITH_GRH: u32 = 1 << 0;
    /// Flag: the completion has immediate data.
    pub const WITH_IMM: u32 = 1 << 1;
    /// Flag: the peer has invalidated a key.
    pub const WITH_INVALIDATE: u32 = 1 << 2;
    /// Flag: the kind of network header is given.
    pub const WITH_NETWORK: u32 = 1 << 6;
    /// Kind of network header: IPv4.
    pub const NETWORK_IPV4: u8 = 1;
    /// Kind of network header: IPv6.
    pub const NETWORK_IPV6: u8 = 2;
}

/// A memory range of a work request.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sge {
    /// First byte, in the region's addresses.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// The region's key.
    pub lkey: u32,
}

/// Header of a receive request; the ranges follow.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecvHeader {
    /// Cookie of the poster.
    pub wr_id: u64,
    /// Number of ranges that follow.
    pub num_sge: u32,
    /// Not used.
    pub total_len: u32,
}

/// Header of a send request; the ranges follow.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SendHeader {
    /// Cookie of the poster.
    pub wr_id: u64,
    /// Number of ranges that follow.
    pub num_sge: u32,
    /// Not used.
    pub total_len: u32,
    /// One of [`op`].
    pub opcode: u32,
    /// Flags of [`flag`].
    pub flags: u32,
    /// Immediate data in network order, or a key to invalidate.
    pub ex: u32,
    /// Not used.
    pub reserved: u32,
    /// Depends on the operation: [`Rdma`], [`Atomic`], [`FastReg`] or [`Datagram`].
    pub body: [u64; 6],
}

/// Body of a Write or a Read.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rdma {
    /// Address at the peer.
    pub addr: u64,
    /// The peer's key.
    pub rkey: u32,
    /// Not used.
    pub reserved: u32,
}

/// Body of an atomic operation.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Atomic {
    /// Address at the peer.
    pub addr: u64,
    /// The value to compare with or to add.
    pub compare_add: u64,
    /// The value to store if the comparison succeeds.
    pub swap: u64,
    /// The peer's key.
    pub rkey: u32,
    /// Not used.
    pub reserved: u32,
}

/// Body of a fast registration.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FastReg {
    /// Address of the region's first byte.
    pub start: u64,
    /// Address of the page directory.
    pub directory: u64,
    /// 12, for pages of 4 KiB.
    pub page_shift: u32,
    /// Number of pages in the directory.
    pub pages: u32,
    /// Bytes of the region.
    pub length: u32,
    /// Flags of [`super::access`].
    pub access: u32,
    /// The region's key; the poster chooses the last byte.
    pub rkey: u32,
    /// Not used.
    pub reserved: u32,
}

/// Body of a datagram: the destination queue pair and its address.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Datagram {
    /// The peer's queue pair number.
    pub qpn: u32,
    /// The key that the peer's queue pair must have.
    pub qkey: u32,
    /// Protection domain, and the port in the highest byte.
    pub port_pd: u32,
    /// Traffic class from bit 20 on, and flow label.
    pub class_label: u32,
    /// The peer's address.
    pub dgid: [u8; 16],
    /// Not used on Ethernet.
    pub path_bits: u8,
    /// Index of the sender's address (GID).
    pub gid_index: u8,
    /// Not used.
    pub rate: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// MAC address of the peer.
    pub dmac: [u8; 6],
    /// Not used.
    pub reserved: [u8; 6],
}

/// A completion.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cqe {
    /// Cookie of the request.
    pub wr_id: u64,
    /// The queue pair's handle.
    pub qp: u64,
    /// One of [`wc`].
    pub opcode: u32,
    /// A [`Status`].
    pub status: u32,
    /// Bytes received.
    pub byte_len: u32,
    /// Immediate data in network order, or the invalidated key.
    pub ex: u32,
    /// For a datagram: the sender's queue pair.
    pub src_qp: u32,
    /// Flags of [`wc`].
    pub flags: u32,
    /// Not used.
    pub vendor_err: u32,
    /// Not used on Ethernet.
    pub pkey_index: u16,
    /// Not used on Ethernet.
    pub slid: u16,
    /// Not used on Ethernet.
    pub sl: u8,
    /// Not used on Ethernet.
    pub path_bits: u8,
    /// 1.
    pub port: u8,
    /// The sender's MAC address; the driver ignores it.
    pub smac: [u8; 6],
    /// For a datagram: the kind of network header.
    pub network: u8,
    /// Not used.
    pub reserved: [u8; 6],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_header() {
        assert_eq!(size_of::<SendHeader>(), 80);
        assert_eq!(size_of::<RecvHeader>(), 16);
        assert_eq!(size_of::<Datagram>(), 48);
        assert_eq!(size_of::<FastReg>(), 40);
        assert_eq!(size_of::<Cqe>(), 64);
    }
}
