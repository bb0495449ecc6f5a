// SPDX-License-Identifier: GPL-2.0
//! An RDMA adapter for the test machines.
//!
//! One process serves a PCI function to each of a set of QEMU machines, over vfio-user: the device that
//! Linux's driver vmw_pvrdma knows. Between the machines is one switch. An adapter moves bytes from one
//! machine's memory to another's while the machines' processors do something else, at the host's speed
//! or at a rate that is set. Documentation/adapter.rst says more.
//!
//! Everything that is read from a guest is checked where it is used: a guest can break its own objects,
//! and nothing else.

pub mod abi;
pub mod control;
pub mod cq;
pub mod device;
pub mod keys;
pub mod memory;
pub mod pci;
pub mod qp;
pub mod request;
pub mod ring;
pub mod server;
pub mod switch;
pub mod table;
pub mod units;
