// SPDX-License-Identifier: GPL-2.0

//! The TCP connections that programs of a namespace have made because SDP could not connect, by
//! netlink.

use kernel::prelude::*;

use super::netlink::put_addr;
use super::sockets::{
    policy,
    Filter,
    POLICY_LEN, //
};
use crate::inet::genl::{
    Dump,
    DumpBuffer,
    Policy,
    Request, //
};
use crate::inet::sock::Sk;
use crate::proto::state::State;
use crate::uapi::nl::sock as a;
use crate::uapi::nl::{
    option,
    CMD_TCP_GET, //
};

/// The dump of the connections.
pub(super) struct StandIns;

impl Dump for StandIns {
    const CMD: u8 = CMD_TCP_GET;
    const POLICY: &'static [Policy] = &{
        const ALL: [Policy; POLICY_LEN] = policy();
        ALL
    };
    /// The size of a message, rounded up.
    const MESSAGE_BYTES: usize = 256;
    type Cursor = u64;

    fn check(request: &Request<'_>) -> Result {
        Filter::of(request).map(|_| ())
    }

    fn dump(request: &Request<'_>, cursor: &mut u64, out: &mut DumpBuffer<'_>) -> Result {
        let filter = Filter::of(request)?;
        if !filter.admits_tcp() {
            return Ok(());
        }
        let net = request.net();
        let mut at = *cursor;
        while let Some((connection, why)) = net.stand_ins().next(net, &mut at) {
            if filter.may_match(connection.sk()) {
                write(request, out, connection.sk(), why)?;
            }
            *cursor = at;
        }
        Ok(())
    }
}

fn write(request: &Request<'_>, out: &mut DumpBuffer<'_>, sk: Sk, why: u32) -> Result {
    let v6 = sk.is_v6();
    let mut m = out.next()?;
    m.put_u16(a::FAMILY, sk.family())?;
    m.put_u8(a::STATE, State::Dead as u8)?;
    put_addr(&mut m, &sk.bound_addr(), v6, (a::LOCAL_ADDR, a::LOCAL_PORT))?;
    put_addr(&mut m, &sk.peer_addr(), v6, (a::PEER_ADDR, a::PEER_PORT))?;
    m.put_u32(a::INTERFACE, sk.bound_dev().unsigned_abs())?;
    m.put_u32(a::UID, request.uid_of(sk))?;
    m.put_uint(a::INODE, sk.inode())?;
    m.put_uint(a::NETNS_COOKIE, request.net().cookie())?;
    m.put_u32(a::OPTIONS, option::TCP_FALLBACK)?;
    m.put_uint(a::COOKIE, sk.cookie())?;
    m.put_u32(a::ERROR, why)?;
    m.end();
    Ok(())
}
