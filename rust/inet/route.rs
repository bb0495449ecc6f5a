// SPDX-License-Identifier: GPL-2.0

//! Routes and addresses of a namespace: checks whether there is a route to an address, so that
//! connect() can fail at once, as with TCP.

use core::ptr;

use kernel::error::from_err_ptr;
use kernel::prelude::*;
use kernel::sync::rcu;

use super::addr::{
    to_in6,
    Addr,
    V4_LOOPBACK, //
};
use super::netns::{
    Net,
    LOOPBACK_IFINDEX, //
};
use super::sock::Sk;
use crate::bindings;
use crate::kern::errno::ENETUNREACH;

/// Looks for a route from the socket to `to`.
///
/// # Errors
///
/// The errors of TCP's connect(): `ENETUNREACH`, `EHOSTUNREACH`, `EACCES` for a prohibited route...
pub(crate) fn check(sk: Sk, to: &Addr) -> Result {
    let dev = match to.scope {
        0 => sk.bound_dev(),
        scope => scope as i32,
    };
    match to.as_v4() {
        Some(ip) => check_v4(sk, ip, dev),
        None => check_v6(sk, to, dev),
    }
}

fn check_v4(sk: Sk, ip: [u8; 4], dev: i32) -> Result {
    let from = sk.bound_addr().as_v4().map_or(0, u32::from_ne_bytes);
    let net = sk.net().as_ptr();
    // Only the machine's own addresses are reachable over the loopback interface. But IP treats
    // every address as one on the link of the given interface.
    let stays = dev == LOOPBACK_IFINDEX;
    // SAFETY: The namespace is valid; the route is checked, looked at and released.
    let kind = unsafe {
        let dev = if stays { 0 } else { dev };
        let route = bindings::ip_route_output(net, u32::from_ne_bytes(ip), from, dev);
        let route = from_err_ptr(route)?;
        let kind = (*route).rt_type;
        bindings::ip_rt_put(route);
        kind
    };
    match u32::from(kind) {
        bindings::SDP_CONST_RTN_BROADCAST | bindings::SDP_CONST_RTN_MULTICAST => Err(ENETUNREACH),
        bindings::SDP_CONST_RTN_LOCAL => Ok(()),
        _ if stays => Err(ENETUNREACH),
        _ => Ok(()),
    }
}

fn check_v6(sk: Sk, to: &Addr, dev: i32) -> Result {
    let mut flow = bindings::flowi6 {
        daddr: to_in6(&to.ip),
        ..Default::default()
    };
    flow.__fl_common.flowic_oif = dev;
    let bound = sk.bound_addr();
    if !bound.is_any() {
        flow.saddr = to_in6(&bound.ip);
    }
    let net = sk.net().as_ptr();
    // SAFETY: The namespace, the socket and the flow are valid; the route is never null, and is
    // released.
    let error = unsafe {
        let route = bindings::ip6_route_output(net, sk.as_ptr(), &raw mut flow);
        let error = (*route).error;
        bindings::dst_release(route);
        error
    };
    kernel::error::to_result(error.into())
}

/// The IPv4 address by which the socket reaches this machine if it names no address: one of the
/// socket's interface, as with TCP, or else the loopback address.
///
/// # Errors
///
/// `ENODEV` if the interface is gone.
pub(crate) fn own_v4(sk: Sk) -> Result<[u8; 4]> {
    let dev = sk.bound_dev();
    if dev == 0 {
        return Ok(V4_LOOPBACK);
    }
    let net = sk.net().as_ptr();
    let guard = rcu::read_lock();
    // SAFETY: The namespace is valid; RCU keeps the interface, if there is one.
    let ip = unsafe {
        let dev = bindings::dev_get_by_index_rcu(net, dev);
        if dev.is_null() {
            return Err(ENODEV);
        }
        bindings::inet_select_addr(dev, 0, bindings::SDP_CONST_RT_SCOPE_HOST)
    };
    drop(guard);
    Ok(match ip {
        0 => V4_LOOPBACK,
        ip => ip.to_ne_bytes(),
    })
}

/// Whether a namespace has the address, at the interface that a request names.
pub(crate) fn is_local(net: Net<'_>, addr: &Addr, dev: i32) -> bool {
    let net = net.as_ptr();
    let guard = rcu::read_lock();
    // SAFETY: The namespace is valid; RCU keeps the interface, if there is one.
    let found = unsafe {
        let dev = bindings::dev_get_by_index_rcu(net, dev);
        match addr.as_v4() {
            Some(ip) => {
                bindings::inet_addr_type_dev_table(net, dev, u32::from_ne_bytes(ip))
                    == bindings::SDP_CONST_RTN_LOCAL
            }
            None => {
                let dev = if addr.is_link_local() {
                    dev
                } else {
                    ptr::null_mut()
                };
                let ip = to_in6(&addr.ip);
                bindings::ipv6_chk_addr(net, &raw const ip, dev, 0) != 0
            }
        }
    };
    drop(guard);
    found
}

/// Finds addresses of the network devices of `net` but the loopback device: of each the first IPv4
/// address, and the first IPv6 address that is not a link-local one. Leaves out the first `skip` of
/// these addresses, and returns as many of the others as there are places in `found`.
pub(crate) fn device_addrs(net: Net<'_>, skip: usize, found: &mut [Option<Addr>]) {
    let guard = rcu::read_lock();
    let mut skip = skip;
    let mut places = found.iter_mut();
    // Returns whether there was a place.
    let mut add = |addr| {
        if skip > 0 {
            skip -= 1;
            return true;
        }
        let place = places.next();
        place.map(|place| *place = Some(addr)).is_some()
    };
    // SAFETY: RCU keeps the devices and their addresses while they are looked at.
    unsafe {
        let mut dev = bindings::first_net_device(net.as_ptr().cast());
        while !dev.is_null() {
            if bindings::net_device_flags(dev) & bindings::SDP_CONST_IFF_LOOPBACK == 0 {
                let in_dev = bindings::in_dev_get_rcu(dev);
                let ifa = if in_dev.is_null() {
                    ptr::null_mut()
                } else {
                    bindings::ifa_list_rcu(in_dev)
                };
                if !ifa.is_null() && !add(Addr::v4((*ifa).ifa_local.to_ne_bytes(), 0)) {
                    break;
                }
                let mut ip = [0; 16];
                if bindings::first_in6_addr(dev, ip.as_mut_ptr()) && !add(Addr::v6(ip, 0, 0)) {
                    break;
                }
            }
            dev = bindings::next_net_device_rcu(dev);
        }
    }
    drop(guard);
}
