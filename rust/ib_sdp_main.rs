// SPDX-License-Identifier: GPL-2.0

//! ib_sdp -- the Sockets Direct Protocol: stream sockets over RDMA.

#![crate_name = "ib_sdp"]
#![recursion_limit = "256"]

use kernel::prelude::*;

mod bindings;
mod mm;
mod net;
mod observe;
// Public, and more than is used here: the tools compile the same files.
#[allow(dead_code, unreachable_pub)]
mod proto;
mod rdma;
mod sdp;

module! {
    type: SdpModule,
    name: "ib_sdp",
    authors: ["The ib_sdp developers"],
    description: "Sockets Direct Protocol: stream sockets over RDMA",
    license: "GPL",
    alias: ["net-pf-27", "net-pf-28"],
    params: {
        sdp_zcopy_thresh: i32 {
            default: 0,
            description: "Least bytes of a send without a copy, for new sockets; 0 for none",
        },
    },
}

/// The least bytes of a send without a copy that new sockets begin with; 0 for none.
fn zcopy_thresh_bytes() -> i32 {
    (*module_parameters::sdp_zcopy_thresh.value()).max(0)
}

struct SdpModule {}

impl kernel::Module for SdpModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // SAFETY: The module's init runs once, and nothing of it was used before.
        unsafe { sdp::init() };
        net::start()?;
        Ok(Self {})
    }
}

impl Drop for SdpModule {
    fn drop(&mut self) {
        net::stop();
    }
}
