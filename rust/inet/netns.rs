// SPDX-License-Identifier: GPL-2.0

//! Network namespaces: the handle, and the module's state in each.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ptr;

use kernel::error::to_result;
use kernel::prelude::*;
use kernel::time::{
    BootTime,
    ClockSource, //
};

use super::announced::Announced;
use super::limits::Occupancy;
use super::ports::Ports;
use super::stand_ins::StandIns;
use super::sysctl::{
    Setting,
    Settings, //
};
use crate::bindings;
use crate::kern::compat;
use crate::stats::counters::{
    Counters,
    Stats, //
};

/// The loopback interface, in every namespace.
pub(crate) const LOOPBACK_IFINDEX: i32 = 1;

/// A borrowed network namespace.
#[derive(Copy, Clone)]
pub(crate) struct Net<'a> {
    net: *mut bindings::net,
    _life: PhantomData<&'a ()>,
}

impl<'a> Net<'a> {
    /// # Safety
    ///
    /// `net` stays valid for `'a`.
    pub(crate) unsafe fn from_raw(net: *mut bindings::net) -> Self {
        Self {
            net,
            _life: PhantomData,
        }
    }

    pub(crate) fn as_ptr(self) -> *mut bindings::net {
        self.net
    }

    /// Whether this is the namespace that exists from the start of the machine.
    pub(crate) fn is_first(self) -> bool {
        ptr::eq(self.net, &raw const bindings::init_net)
    }

    /// A number that identifies the namespace while it exists.
    pub(crate) fn key(self) -> usize {
        self.net as usize
    }

    /// The number by which programs know the namespace (SO_NETNS_COOKIE).
    pub(crate) fn cookie(self) -> u64 {
        // SAFETY: The namespace is valid; its number never changes.
        unsafe { bindings::net_cookie(self.net.cast()) }
    }

    /// Whether new IPv6 sockets are for IPv6 alone (net.ipv6.bindv6only).
    pub(crate) fn bind_v6only(self) -> bool {
        // SAFETY: The namespace is valid.
        unsafe { bindings::net_bindv6only(self.net.cast()) != 0 }
    }

    /// Whether TCP would determine the path MTU (net.ipv4.ip_no_pmtu_disc).
    pub(crate) fn finds_mtu(self) -> bool {
        // SAFETY: The namespace is valid.
        unsafe { bindings::net_ip_no_pmtu_disc(self.net.cast()) == 0 }
    }

    /// Whether programs may defer the connection request to the first write
    /// (net.ipv4.tcp_fastopen).
    pub(crate) fn may_fast_open(self) -> bool {
        // SAFETY: The namespace is valid.
        let fastopen = unsafe { bindings::net_tcp_fastopen(self.net.cast()) };
        fastopen & bindings::SDP_CONST_TFO_CLIENT_ENABLE != 0
    }

    /// Whether a send may connect. Security modules check this only for TCP sockets, and their
    /// check of connect() is not exported: so the administrator must also have allowed it
    /// (net.sdp.fastopen).
    pub(crate) fn may_connect_by_send(self) -> bool {
        self.may_fast_open() && self.settings().get(Setting::FastOpen) != 0
    }

    /// Whether a socket of AF_INET or AF_INET6 may become a TCP socket (net.sdp.tcp_fallback). The
    /// administrator must allow it, because security modules cannot check the connect() of the TCP
    /// socket, as in [`Net::may_connect_by_send`].
    pub(crate) fn may_fall_back(self) -> bool {
        self.settings().get(Setting::TcpFallback) != 0
    }

    /// How often TCP resends a SYN (net.ipv4.tcp_syn_retries).
    pub(crate) fn syn_retries(self) -> i32 {
        // SAFETY: The namespace is valid.
        unsafe { bindings::net_tcp_syn_retries(self.net.cast()) }
    }

    /// How long a closed TCP socket waits for its peer, in seconds (net.ipv4.tcp_fin_timeout). The
    /// sysctl also accepts negative values, which are 0 here.
    pub(crate) fn fin_timeout_s(self) -> i32 {
        // SAFETY: The namespace is valid.
        let ms = unsafe {
            let jiffies = bindings::net_tcp_fin_timeout(self.net.cast());
            kernel::bindings::jiffies64_to_msecs(jiffies.max(0) as u64)
        };
        i32::try_from(ms / 1000).unwrap_or(i32::MAX)
    }

    /// The longest backlog (net.core.somaxconn).
    pub(crate) fn somaxconn(self) -> i32 {
        // SAFETY: The namespace is valid.
        unsafe { bindings::net_somaxconn(self.net.cast()) }
    }

    /// The VRF that contains the interface `dev`, or is the interface; 0 for none.
    pub(crate) fn vrf_of(self, dev: i32) -> i32 {
        // SAFETY: The namespace is valid.
        unsafe { bindings::l3mdev_master_ifindex_by_index(self.net.cast(), dev) }
    }

    /// Whether a connection that arrives at `dev`, in the VRF `vrf`, is for a socket bound to
    /// `bound`, by the rules of TCP (net.ipv4.tcp_l3mdev_accept).
    pub(crate) fn is_for_device(self, bound: i32, dev: i32, vrf: i32) -> bool {
        // SAFETY: The namespace is valid.
        unsafe { bindings::inet_sk_bound_dev_eq(self.net.cast(), bound, dev, vrf) }
    }

    fn mine(self) -> *mut PerNet {
        // SAFETY: The id is set when the module loads, and the core allocates the module's part for
        // every namespace.
        unsafe { bindings::net_generic(self.net.cast(), *PERNET_ID.0.get()).cast() }
    }

    /// The settings of the namespace.
    pub(crate) fn settings(self) -> &'a Settings {
        // SAFETY: As in `stats`; the settings live as long as the namespace.
        unsafe { &(*self.mine()).settings }
    }

    /// The counters of the namespace.
    pub(crate) fn stats(self) -> Stats {
        // SAFETY: Initialised by `net_init` before a socket can exist in the namespace.
        unsafe { (*self.mine()).counters.handle() }
    }

    /// The sockets of the namespace that have a port.
    pub(crate) fn ports(self) -> &'a Ports {
        // SAFETY: As above.
        unsafe { &(*self.mine()).ports }
    }

    /// The loopback connections that are being set up.
    pub(crate) fn announced(self) -> &'a Announced {
        // SAFETY: As above.
        unsafe { &(*self.mine()).announced }
    }

    /// The TCP connections that programs have made because SDP could not connect.
    pub(crate) fn stand_ins(self) -> &'a StandIns {
        // SAFETY: As above.
        unsafe { &(*self.mine()).stand_ins }
    }

    /// The connection counts.
    pub(super) fn occupancy(self) -> &'a Occupancy {
        // SAFETY: As above.
        unsafe { &(*self.mine()).occupancy }
    }

    /// The time at which the counters began, in ns of CLOCK_BOOTTIME.
    pub(crate) fn counters_since_ns(self) -> u64 {
        // SAFETY: As above.
        unsafe { (*self.mine()).since_ns }
    }
}

/// The module's state in each namespace.
struct PerNet {
    counters: Counters,
    occupancy: Occupancy,
    ports: Ports,
    announced: Announced,
    stand_ins: StandIns,
    settings: Settings,
    /// CLOCK_BOOTTIME.
    since_ns: u64,
}

struct PernetId(UnsafeCell<kernel::ffi::c_uint>);
// SAFETY: Written by the core during registration only.
unsafe impl Sync for PernetId {}

/// A part of the module with a function for each namespace, in addition to the state in [`PerNet`].
pub(crate) trait InEachNet {
    /// Called for each existing namespace, and for each new one.
    fn create(net: Net<'_>) -> Result;

    /// Undoes [`InEachNet::create`], before the namespace or the module is removed.
    fn remove(net: Net<'_>);
}

/// The operations of a part of the module that the core calls for each namespace.
pub(crate) struct PernetOps(UnsafeCell<bindings::pernet_operations>);
// SAFETY: Used only by the core, which has its own lock.
unsafe impl Sync for PernetOps {}

impl PernetOps {
    pub(crate) const fn of<T: InEachNet>() -> Self {
        Self(UnsafeCell::new(bindings::pernet_operations {
            init: Some(create::<T>),
            exit: Some(remove::<T>),
            // SAFETY: An unused member is a null pointer or zero.
            ..unsafe { core::mem::zeroed() }
        }))
    }

    /// Registers the operations. The core calls the operations of a new namespace in the order of
    /// registration, and those of a removed namespace in the reverse order.
    pub(crate) fn register(&'static self) -> Result {
        // SAFETY: The operations are static.
        to_result(unsafe { bindings::register_pernet_subsys(self.0.get()) })
    }

    pub(crate) fn unregister(&'static self) {
        // SAFETY: Registered before, and no socket is left.
        unsafe { bindings::unregister_pernet_subsys(self.0.get()) };
    }
}

/// # Safety
///
/// Called by the core for a new namespace.
unsafe extern "C" fn create<T: InEachNet>(net: *mut bindings::net) -> kernel::ffi::c_int {
    // SAFETY: The core passes a namespace that stays valid during the call.
    let created = T::create(unsafe { Net::from_raw(net) });
    created.map_or_else(|e| e.to_errno(), |()| 0)
}

/// # Safety
///
/// Called by the core for a namespace that is being removed.
unsafe extern "C" fn remove<T: InEachNet>(net: *mut bindings::net) {
    // SAFETY: As above.
    T::remove(unsafe { Net::from_raw(net) });
}

static PERNET_ID: PernetId = PernetId(UnsafeCell::new(0));
static PERNET_OPS: PernetOps = PernetOps(UnsafeCell::new(bindings::pernet_operations {
    init: Some(net_init),
    exit: Some(net_exit),
    id: PERNET_ID.0.get(),
    size: core::mem::size_of::<PerNet>(),
    // SAFETY: An unused member is a null pointer or zero.
    ..unsafe { core::mem::zeroed() }
}));

/// # Safety
///
/// Called by the core for a new namespace.
unsafe extern "C" fn net_init(net: *mut bindings::net) -> kernel::ffi::c_int {
    // SAFETY: The core calls this once for each namespace, before the module uses it.
    let ns = unsafe { Net::from_raw(net) };
    let counters = match Counters::new() {
        Ok(counters) => counters,
        Err(e) => return e.to_errno(),
    };
    let mine = ns.mine();
    // SAFETY: The core allocated the memory, which stays in place until `net_exit`.
    unsafe {
        (&raw mut (*mine).counters).write(counters);
        (&raw mut (*mine).occupancy).write(Occupancy::new());
        compat::init_in_place(&raw mut (*mine).ports, Ports::new());
        compat::init_in_place(&raw mut (*mine).announced, Announced::new());
        compat::init_in_place(&raw mut (*mine).stand_ins, StandIns::new());
        (&raw mut (*mine).since_ns).write(BootTime::ktime_get().unsigned_abs());
    }
    // SAFETY: As above; `net_exit` drops them before the core frees it.
    let settings = unsafe { Settings::init(&raw mut (*mine).settings, ns) };
    match settings {
        Ok(()) => 0,
        Err(e) => {
            // SAFETY: Written above, and the core only frees the memory.
            unsafe {
                core::ptr::drop_in_place(&raw mut (*mine).counters);
                core::ptr::drop_in_place(&raw mut (*mine).ports);
                core::ptr::drop_in_place(&raw mut (*mine).announced);
                core::ptr::drop_in_place(&raw mut (*mine).stand_ins);
            }
            e.to_errno()
        }
    }
}

/// # Safety
///
/// Called by the core for a namespace that is being removed.
unsafe extern "C" fn net_exit(net: *mut bindings::net) {
    // SAFETY: The core calls this once, after the last socket of the namespace is gone.
    let ns = unsafe { Net::from_raw(net) };
    // SAFETY: Initialised by `net_init`.
    unsafe { core::ptr::drop_in_place(ns.mine()) };
}

pub(crate) fn register() -> Result {
    PERNET_OPS.register()
}

pub(crate) fn unregister() {
    PERNET_OPS.unregister();
}
