// SPDX-License-Identifier: GPL-2.0
//! RDMA operations on memory that was not offered.

use super::{each, Attack};
use crate::fail::{expect, Result};
use crate::session::{Ctx, Session};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "rdma.write",
        run: write,
    },
    Attack {
        name: "rdma.read",
        run: read,
    },
];

fn write(ctx: &Ctx) -> Result<()> {
    at_random(ctx, false)
}

fn read(ctx: &Ctx) -> Result<()> {
    at_random(ctx, true)
}

/// Likely keys (zero, the first ones, this side's key and its neighbours) and unlikely ones, with
/// addresses in both halves of the address space.
fn at_random(ctx: &Ctx, read: bool) -> Result<()> {
    let keys = [0, 1, 0x100, 0x101, 0x1ff, 0x2a0, 0xdead_beef, u32::MAX];
    let addrs = [
        0,
        4096,
        0x7fff_0000_0000,
        0xffff_8880_0010_0000,
        u64::MAX - 63,
    ];
    let mut cases = Vec::new();
    for (n, key) in keys.into_iter().enumerate() {
        for len in [8, 4096] {
            let addr = addrs[(n + len) % addrs.len()];
            cases.push((
                format!("key {key:#x}, address {addr:#x}, {len} bytes"),
                (key, addr, len),
            ));
        }
    }
    each(ctx, cases, |ctx, (key, addr, len)| {
        let mut session = Session::open_and_greet(ctx)?;
        session.peer.finish_sends()?;
        let before = session.peer.succeeded;
        session.peer.queue()?.rdma(read, addr, key, len)?;
        session.expect_some_death(&[libc::ECONNRESET], &["reset_by_peer"])?;
        // The adapter's answer may arrive too late for a queue pair that is being torn down. But
        // the operation must not have been done.
        session.peer.pump()?;
        let done = session.peer.succeeded - before;
        expect(done == 0 || !session.peer.is_end_to_end(read), || {
            "the victim's adapter did it".to_owned()
        })?;
        session.peer.expect_access_error()
    })
}
