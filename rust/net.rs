// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers of the socket layer, as far as the kernel crate lacks them.

pub(crate) mod addr;
pub(crate) mod announced;
pub(crate) mod family;
pub(crate) mod genl;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod netns;
pub(crate) mod ops;
pub(crate) mod ports;
pub(crate) mod route;
pub(crate) mod sock;
mod sockopt;
pub(crate) mod sysctl;

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
use kernel::prelude::*;

/// Registers with the core, last what programs can reach.
pub(crate) fn start() -> Result {
    // Before the file that shows them.
    memory::set_limits();
    work::start()?;
    // SAFETY: The module loads; there is no connection yet.
    let devices = unsafe {
        limits::init();
        debugfs::start();
        devices::start()
    };
    devices.inspect_err(|_| {
        debugfs::stop();
        work::stop();
    })?;
    netns::register().inspect_err(|_| {
        stop_showing();
        work::stop();
    })?;
    procfs::register().inspect_err(|_| {
        netns::unregister();
        stop_showing();
        work::stop();
    })?;
    // SAFETY: The module loads; there is no socket yet.
    unsafe { netlink::register() }.inspect_err(|_| {
        procfs::unregister();
        netns::unregister();
        stop_showing();
        work::stop();
    })?;
    family::register().inspect_err(|_| {
        netlink::unregister();
        procfs::unregister();
        netns::unregister();
        stop_showing();
        work::stop();
    })?;
    module::set_started();
    Ok(())
}

fn stop_showing() {
    devices::stop();
    debugfs::stop();
}

/// Undoes [`start`]. No socket is left: each holds the module.
pub(crate) fn stop() {
    family::unregister();
    crate::mm::snapshot::stop();
    netlink::unregister();
    work::stop();
    stop_showing();
    procfs::unregister();
    netns::unregister();
}
