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

use crate::bindings;
use crate::inet::addr::Addr;
use crate::inet::netns::Net;
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
    collect(net, &mut found);
    found
        .into_iter()
        .flatten()
        .find(|addr| cm::has_device(net, &addr.to_storage(false)))
        .ok_or(ENODEV)
}

fn collect(net: Net<'_>, found: &mut [Option<Addr>]) {
    let guard = kernel::sync::rcu::read_lock();
    // SAFETY: RCU keeps the devices and their addresses while they are looked at.
    unsafe {
        let mut dev = bindings::first_net_device(net.as_ptr().cast());
        let mut places = found.iter_mut();
        while !dev.is_null() {
            if !bindings::netif_is_loopback(dev) {
                let ifa = bindings::first_ifa_rcu(dev).cast::<bindings::in_ifaddr>();
                if !ifa.is_null() {
                    let Some(place) = places.next() else { break };
                    *place = Some(Addr::v4((*ifa).ifa_local.to_ne_bytes(), 0));
                }
            }
            dev = bindings::next_net_device_rcu(dev);
        }
    }
    drop(guard);
}
