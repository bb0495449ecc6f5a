// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers of the RDMA core: connection ids, and the queues of a connection.
//!
//! No other layer calls a verb.

pub(crate) mod cm;
pub(crate) mod device;
pub(crate) mod dma;
mod headers;
pub(crate) mod link;
mod mr;
pub(crate) mod post;
pub(crate) mod receive;
pub(crate) mod receive_queue;
pub(crate) mod region;
pub(crate) mod verbs;
