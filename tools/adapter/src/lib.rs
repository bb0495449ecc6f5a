// SPDX-License-Identifier: GPL-2.0
//! An RDMA adapter for the test machines.
//!
//! One process serves a PCI function to each of several QEMU machines over vfio-user: the device of
//! Linux's driver vmw_pvrdma. One switch connects the machines. An adapter copies bytes from one
//! machine's memory to another's without the machines' processors, at the host's speed or at a
//! given rate. See Documentation/adapter.rst.
//!
//! All values read from a guest are checked where they are used: a guest can break its own objects
//! and nothing else.

pub mod abi;
pub mod control;
pub mod cq;
pub mod device;
pub mod error;
pub mod ethernet;
pub mod keys;
pub mod log;
pub mod memory;
pub mod pci;
pub mod qp;
pub mod request;
pub mod ring;
pub mod server;
pub mod switch;
pub mod table;
pub mod units;
