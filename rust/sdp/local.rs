// SPDX-License-Identifier: GPL-2.0

//! Connections to 127.0.0.0/8 and ::1.
//!
//! The RDMA CM cannot connect to a loopback address, and takes a bind to one for a wildcard, which
//! would make a local listener reachable from everywhere. So such a connection runs over an address
//! of an RDMA device in the same namespace, and is announced here before: the Hello carries the
//! nonce of the announcement, and the listener's side finds the real addresses under it. Whoever
//! is not in this table does not reach a loopback listener.

use kernel::prelude::*;
use kernel::sync::global_lock;

use crate::bindings;
use crate::net::addr::Addr;
use crate::net::netns::Net;
use crate::rdma::cm::{
    CmId,
    Event,
    Handler, //
};

/// A loopback connection that is being set up.
struct Pending {
    nonce: u64,
    net: usize,
    from: Addr,
    to: Addr,
}

global_lock! {
    // SAFETY: Initialised in `init`, before the first use.
    unsafe(uninit) static PENDING: Mutex<KVec<Pending>> = KVec::new();
}

/// Must be called once, when the module loads.
///
/// # Safety
///
/// Called once, before every other function of this module.
pub(crate) unsafe fn init() {
    // SAFETY: As the caller promises.
    unsafe { PENDING.init() };
}

/// Announces a connection; returns its nonce, which is not 0.
pub(crate) fn announce(net: Net<'_>, from: Addr, to: Addr) -> Result<u64> {
    // SAFETY: No precondition.
    let nonce = unsafe { kernel::bindings::get_random_u64() } | 1;
    PENDING.lock().push(
        Pending {
            nonce,
            net: net.key(),
            from,
            to,
        },
        GFP_KERNEL,
    )?;
    Ok(nonce)
}

/// The addresses, from and to, of the connection announced under `nonce` in `net`. An announcement
/// can be claimed more than once, because a request that is dropped comes again.
pub(crate) fn claim(net: Net<'_>, nonce: u64) -> Option<(Addr, Addr)> {
    let table = PENDING.lock();
    table
        .iter()
        .find(|p| p.nonce == nonce && p.net == net.key())
        .map(|p| (p.from, p.to))
}

/// Takes an announcement back; none has the nonce 0.
pub(crate) fn retire(nonce: u64) {
    if nonce == 0 {
        return;
    }
    let mut table = PENDING.lock();
    table.retain(|p| p.nonce != nonce);
    if table.is_empty() {
        // Nothing is left when the module goes.
        *table = KVec::new();
    }
}

/// Addresses that are tried at the most.
const CANDIDATES: usize = 16;

/// An address of an RDMA device in `net`, over which a loopback connection can run.
///
/// # Errors
///
/// `ENODEV` if no interface with an IPv4 address has one.
pub(crate) fn transport_addr(net: Net<'_>) -> Result<Addr> {
    let mut found = [None; CANDIDATES];
    collect(net, &mut found);
    found
        .into_iter()
        .flatten()
        .find(|addr| has_rdma(net, addr))
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

/// Whether an RDMA device has `addr`: then an id can be bound to it.
fn has_rdma(net: Net<'_>, addr: &Addr) -> bool {
    /// Nothing happens to an id that is only bound.
    struct Nobody;
    impl Handler for Nobody {
        fn on_event(&self, _event: Event) {}
    }
    let nobody = Nobody;
    // SAFETY: The id is dropped before `nobody` is.
    let Ok(id) = (unsafe { CmId::new(net, (&nobody).into()) }) else {
        return false;
    };
    id.bind(&addr.to_storage(false)).is_ok() && id.device().is_ok()
}
