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

/// The number of addresses that are looked up at a time, and the maximum number of addresses: each
/// search begins at the first interface.
const AT_ONCE: usize = 16;
const MOST: usize = 1024;

/// An address of an RDMA device in `net`, over which a loopback connection can run.
///
/// # Errors
///
/// `ENODEV` if no interface with an IPv4 address, or with an IPv6 address that is not a link-local
/// one, has an RDMA device, as far as [`MOST`] addresses show.
pub(crate) fn transport_addr(net: Net<'_>) -> Result<Addr> {
    for skip in (0..MOST).step_by(AT_ONCE) {
        let mut found = [None; AT_ONCE];
        route::device_addrs(net, skip, &mut found);
        let mut addrs = found.into_iter().flatten();
        if let Some(addr) = addrs.find(|addr| cm::has_device(net, &addr.to_storage(false))) {
            return Ok(addr);
        }
        if found.contains(&None) {
            break;
        }
    }
    Err(ENODEV)
}
