// SPDX-License-Identifier: GPL-2.0

//! ib_sdp -- the Sockets Direct Protocol: stream sockets over RDMA.

#![crate_name = "ib_sdp"]
#![recursion_limit = "256"]

use kernel::prelude::*;

use crate::proto::choice::Wanted;

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
        sdp_zcopy_mode: i32 {
            default: 0,
            description: "The way that sends go, for new sockets: 0 the best, 1 copy, 2 synchronous, 3 asynchronous, 4 to readers that wait",
        },
        sdp_fault_policy: i32 {
            default: 0,
            description: "What a write does to memory that a send which has returned still needs, for new sockets: 0 copies the page, 1 waits",
        },
        sdp_recv_early: i32 {
            default: 1,
            description: "Who may receive, or choose a fault policy, in a way that makes others wait who touch his memory: 0 nobody, 1 with CAP_SYS_PTRACE, 2 all",
        },
        sdp_break: i32 {
            default: 0,
            description: "Kernels with CONFIG_DEBUG_VM only: rules of page protection to break, so that tests can see that they are needed",
        },
    },
}

/// The least bytes of a send without a copy that new sockets begin with; 0 for none.
fn zcopy_thresh_bytes() -> i32 {
    (*module_parameters::sdp_zcopy_thresh.value()).max(0)
}

/// The way that sends of new sockets go.
fn zcopy_mode() -> Wanted {
    Wanted::from_number(*module_parameters::sdp_zcopy_mode.value()).unwrap_or(Wanted::Automatic)
}

/// Whether a write to memory that a send of a new socket still needs waits.
fn blocks_on_write() -> bool {
    *module_parameters::sdp_fault_policy.value() == 1
}

/// Whether the current program may return from a receive before its bytes are there, or have writes
/// wait for a send (the fault policy). Who touches its memory then waits, be it the kernel or an
/// administrator's tool: as with faults of userfaultfd, this is not for everybody unless the
/// administrator says so.
fn may_hold_up() -> bool {
    match *module_parameters::sdp_recv_early.value() {
        0 => false,
        2 => true,
        // SAFETY: We are in process context; the namespace is the first one.
        _ => unsafe {
            bindings::ns_capable_noaudit(
                &raw mut bindings::init_user_ns,
                bindings::SDP_CONST_CAP_SYS_PTRACE,
            )
        },
    }
}

/// Whether a rule of page protection is to be broken.
fn breaks(rule: mm::Rule) -> bool {
    cfg!(CONFIG_DEBUG_VM) && *module_parameters::sdp_break.value() & rule as i32 != 0
}

struct SdpModule {}

impl kernel::Module for SdpModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // SAFETY: The module's init runs once, and nothing of it was used before.
        unsafe {
            mm::snapshot::init();
            sdp::init();
        }
        if cfg!(CONFIG_DEBUG_VM) && *module_parameters::sdp_break.value() != 0 {
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
