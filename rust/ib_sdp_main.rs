// SPDX-License-Identifier: GPL-2.0

//! ib_sdp -- the Sockets Direct Protocol: stream sockets over RDMA.

#![crate_name = "ib_sdp"]
#![recursion_limit = "256"]

use kernel::prelude::*;

use crate::inet::{
    limits,
    memory,
    netns, //
};
use crate::kern::{
    debugfs,
    module,
    work, //
};
use crate::show::{
    devices,
    netlink,
    procfs, //
};

mod bindings;
mod family;
mod inet;
mod kern;
mod mm;
mod params;
// Public, and with unused items: the tools compile the same files.
#[allow(dead_code, unreachable_pub)]
mod proto;
mod rdma;
mod sdp;
mod show;
mod stats;
mod trace;
// As `proto`.
#[allow(dead_code, unreachable_pub)]
mod uapi;

module! {
    type: SdpModule,
    name: "ib_sdp",
    authors: ["The ib_sdp developers"],
    description: "Sockets Direct Protocol: stream sockets over RDMA",
    license: "GPL",
    alias: [
        "net-pf-27",
        "net-pf-28",
        "net-pf-2-proto-257-type-1",
        "net-pf-10-proto-257-type-1",
    ],
}

/// A part of the module that is started when the module loads.
struct Part {
    start: fn() -> Result,
    /// Undoes `start`. No socket is left: each socket holds the module.
    stop: fn(),
}

/// In the order in which the parts start. They stop in the reverse order, so each part can rely on
/// those above it. The last part makes the module accessible to programs.
static PARTS: [Part; 8] = [
    Part {
        start: netns::register,
        stop: netns::unregister,
    },
    Part {
        start: procfs::register,
        stop: procfs::unregister,
    },
    Part {
        start: || {
            // SAFETY: The module loads; there is no folder yet.
            unsafe { debugfs::start() };
            Ok(())
        },
        stop: debugfs::stop,
    },
    Part {
        start: || {
            // SAFETY: The module loads; the folder of the module is there.
            unsafe { devices::start() }
        },
        stop: devices::stop,
    },
    // Stops before the parts above: the last work item of a socket uses the socket's namespace, and
    // may remove the connection's folder in debugfs.
    Part {
        start: work::start,
        stop: work::stop,
    },
    Part {
        start: || {
            // SAFETY: The module loads; there is no socket yet.
            unsafe { netlink::register() }
        },
        stop: netlink::unregister,
    },
    Part {
        start: || {
            // SAFETY: The module loads; there is no socket yet.
            unsafe { mm::start() };
            Ok(())
        },
        stop: mm::stop,
    },
    Part {
        start: family::register::register,
        stop: family::register::unregister,
    },
];

fn stop(parts: &[Part]) {
    parts.iter().rev().for_each(|part| (part.stop)());
}

struct SdpModule {}

impl kernel::Module for SdpModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // SAFETY: The module's init runs once, and no part was used before.
        unsafe {
            limits::init();
            sdp::init();
        }
        if params::sdp_break.value() != 0 {
            pr_warn!("sdp_break: rules of the module are broken on purpose\n");
        }
        // The limits must be set before the file that shows them exists.
        memory::set_limits();
        for (started, part) in PARTS.iter().enumerate() {
            (part.start)().inspect_err(|_| stop(PARTS.get(..started).unwrap_or_default()))?;
        }
        module::set_started();
        Ok(Self {})
    }
}

impl Drop for SdpModule {
    fn drop(&mut self) {
        stop(&PARTS);
    }
}
