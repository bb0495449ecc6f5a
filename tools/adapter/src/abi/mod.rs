// SPDX-License-Identifier: GPL-2.0
//! The device interface of vmw_pvrdma: registers, structures in the guest's memory, commands.
//!
//! The definitions come from the kernel's `drivers/infiniband/hw/vmw_pvrdma/pvrdma_dev_api.h`,
//! `pvrdma_verbs.h`, `pvrdma_ring.h` and `include/uapi/rdma/vmw_pvrdma-abi.h`. Any bytes are a
//! valid value of each structure, so reading a structure from a guest cannot fail; values are
//! checked where they are used. All numbers are little endian, as on x86.

pub mod command;
pub mod queue;
pub mod shared;

/// Page size: the unit of page directories, user access regions and memory regions.
pub const PAGE: u64 = 4096;

/// Registers in BAR 1, by their offset in bytes.
pub mod reg {
    /// R: the version of the device interface.
    pub const VERSION: u64 = 0x00;
    /// W: low half of the shared region's address.
    pub const DSR_LOW: u64 = 0x04;
    /// W: high half of the address. The device reads the region on this write.
    pub const DSR_HIGH: u64 = 0x08;
    /// W: activate, unquiesce or reset.
    pub const CTL: u64 = 0x0c;
    /// W: a command is in the command slot.
    pub const REQUEST: u64 = 0x10;
    /// R: the error of the last request, or 0.
    pub const ERR: u64 = 0x14;
    /// R: cause of the interrupt, for machines without MSI-X.
    pub const ICR: u64 = 0x18;
    /// R/W: masked vectors, one bit each.
    pub const IMR: u64 = 0x1c;
    /// R/W: MAC address, low half.
    pub const MAC_LOW: u64 = 0x20;
    /// R/W: MAC address, high half.
    pub const MAC_HIGH: u64 = 0x24;
}

/// The version that the device reports: RoCE v2, 64-bit page frame numbers, queue pair handles
/// separate from queue pair numbers.
pub const VERSION: u32 = 20;

/// Values of [`reg::CTL`].
pub mod ctl {
    /// The driver is ready.
    pub const ACTIVATE: u32 = 0;
    /// The network card is up.
    pub const UNQUIESCE: u32 = 1;
    /// Reset the device.
    pub const RESET: u32 = 2;
}

/// Interrupt vectors.
pub mod vector {
    /// A response is in its slot.
    pub const RESPONSE: usize = 0;
    /// An event is in the event ring.
    pub const ASYNC: usize = 1;
    /// A completion queue's handle is in the notification ring.
    pub const CQ: usize = 2;
    /// Number of vectors.
    pub const COUNT: usize = 3;
}

/// Doorbells in a page of BAR 2: offsets, and the bits next to the handle.
pub mod uar {
    /// Offset of the doorbell of queue pairs.
    pub const QP: u64 = 0;
    /// Offset of the doorbell of completion queues.
    pub const CQ: u64 = 4;
    /// Offset of the doorbell of shared receive queues.
    pub const SRQ: u64 = 8;
    /// Mask of the handle.
    pub const HANDLE: u32 = 0x00ff_ffff;
    /// Work requests were added to the send queue.
    pub const QP_SEND: u32 = 1 << 30;
    /// Work requests were added to the receive queue.
    pub const QP_RECV: u32 = 1 << 31;
    /// Notify on the next solicited completion.
    pub const CQ_ARM_SOLICITED: u32 = 1 << 29;
    /// Notify on the next completion.
    pub const CQ_ARM: u32 = 1 << 30;

    /// Whether a doorbell only reports that the guest polls a completion queue.
    pub fn is_look(offset: u64, value: u32) -> bool {
        offset % super::PAGE == CQ && value & (CQ_ARM | CQ_ARM_SOLICITED) == 0
    }
}

/// Events in the event ring.
pub mod event {
    /// A completion queue overflowed.
    pub const CQ_ERR: u32 = 0;
    /// A queue pair's rings are invalid.
    pub const QP_FATAL: u32 = 1;
    /// The peer sent a request that breaks the transport's rules.
    pub const QP_REQ_ERR: u32 = 2;
    /// The peer sent a request that the key does not permit.
    pub const QP_ACCESS_ERR: u32 = 3;
    /// The first message arrived before the queue pair was ready to send.
    pub const COMM_EST: u32 = 4;
    /// A queue pair in the drained state has no request in flight.
    pub const SQ_DRAINED: u32 = 5;
    /// The device no longer works.
    pub const DEVICE_FATAL: u32 = 8;
    /// The link came up.
    pub const PORT_ACTIVE: u32 = 9;
    /// The link went down.
    pub const PORT_ERR: u32 = 10;
    /// A shared receive queue is invalid.
    pub const SRQ_ERR: u32 = 14;
    /// A shared receive queue has fewer requests than its limit.
    pub const SRQ_LIMIT_REACHED: u32 = 15;
    /// A queue pair in the error state takes no more requests from its shared receive queue.
    pub const QP_LAST_WQE_REACHED: u32 = 16;
}

/// Access rights to memory.
pub mod access {
    /// This machine's adapter may write.
    pub const LOCAL_WRITE: u32 = 1 << 0;
    /// Peers may write.
    pub const REMOTE_WRITE: u32 = 1 << 1;
    /// Peers may read.
    pub const REMOTE_READ: u32 = 1 << 2;
    /// Peers may execute atomic operations.
    pub const REMOTE_ATOMIC: u32 = 1 << 3;
}
