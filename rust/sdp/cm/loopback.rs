// SPDX-License-Identifier: GPL-2.0

//! Connections to 127.0.0.0/8 and ::1.
//!
//! The RDMA CM cannot connect to a loopback address, and treats a bind to one as a bind to the
//! wildcard, which would make a local listener reachable from everywhere. So such a connection uses
//! an address of an RDMA device in the same namespace, and is announced beforehand: the Hello
//! carries the nonce of the announcement, and the listener's side looks the real addresses up by
//! the nonce ([`crate::inet::announced`]). A connection that was not announced does not reach a
//! loopback listener.

use kernel::prelude::*;

use crate::inet::addr::Addr;
use crate::inet::netns::Net;
use crate::inet::route;
use crate::rdma::cm;

/// The maximum number of addresses that are tried.
const CANDIDATES: usize = 16;

/// An address of an RDMA device in `net`, over which a loopback connection can run.
///
/// # Errors
///
/// `ENODEV` if no interface with an IPv4 address has an RDMA device.
pub(crate) fn transport_addr(net: Net<'_>) -> Result<Addr> {
    let mut found = [None; CANDIDATES];
    route::device_addrs(net, &mut found);
    found
        .into_iter()
        .flatten()
        .find(|addr| cm::has_device(net, &addr.to_storage(false)))
        .ok_or(ENODEV)
}
