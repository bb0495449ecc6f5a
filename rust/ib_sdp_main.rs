// SPDX-License-Identifier: GPL-2.0

//! ib_sdp -- the Sockets Direct Protocol: stream sockets over RDMA.

#![crate_name = "ib_sdp"]
#![recursion_limit = "256"]

use kernel::prelude::*;

mod bindings;
mod kern;
mod mm;
mod net;
mod params;
// Public, and more than is used here: the tools compile the same files.
#[allow(dead_code, unreachable_pub)]
mod proto;
mod rdma;
mod sdp;
mod show;
mod stats;
mod trace;

module! {
    type: SdpModule,
    name: "ib_sdp",
    authors: ["The ib_sdp developers"],
    description: "Sockets Direct Protocol: stream sockets over RDMA",
    license: "GPL",
    alias: ["net-pf-27", "net-pf-28"],
}

struct SdpModule {}

impl kernel::Module for SdpModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // SAFETY: The module's init runs once, and nothing of it was used before.
        unsafe {
            mm::snapshot::init();
            sdp::init();
        }
        if params::sdp_break.value() != 0 {
            pr_warn!("sdp_break: rules of page protection are broken on purpose\n");
        }
        net::start()?;
        Ok(Self {})
    }
}

impl Drop for SdpModule {
    fn drop(&mut self) {
        net::stop();
    }
}
