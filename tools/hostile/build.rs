// SPDX-License-Identifier: GPL-2.0
//! Has bindgen (the program, as for the module) read the headers of librdmacm
//! and libibverbs.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const FUNCTIONS: &str = "rdma_(create|destroy)_(event_channel|id)|rdma_(bind|resolve)_(addr|route)\
    |rdma_(listen|connect|accept|reject|disconnect|establish|migrate_id|init_qp_attr)\
    |rdma_(get|ack)_cm_event|ibv_(alloc|dealloc)_pd|ibv_(create|destroy)_(cq|qp|srq)\
    |ibv_(modify|query)_qp|ibv_(reg|dereg)_mr|ibv_query_gid|ibv_(get|ack)_async_event";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=verbs.h");
    println!("cargo:rustc-link-lib=rdmacm");
    println!("cargo:rustc-link-lib=ibverbs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("ffi.rs");
    let status = Command::new("bindgen")
        .args(["verbs.h", "--no-layout-tests", "--no-doc-comments"])
        .args(["--default-enum-style", "consts", "--no-prepend-enum-name"])
        .args(["--allowlist-function", FUNCTIONS])
        .args([
            "--allowlist-type",
            "ibv_(wc_status|send_flags|wr_opcode|access_flags|event_type|mtu)",
        ])
        .args(["--allowlist-type", "ibv_qp_(attr_mask|state)"])
        .arg("--output")
        .arg(&out)
        .status()
        .expect("bindgen must be installed");
    assert!(status.success(), "bindgen failed");
}
