// SPDX-License-Identifier: GPL-2.0
//! How sockets come into being: addresses, connect(), listen() and accept(), namespaces.

pub(super) mod addresses;
pub(super) mod basics;
pub(super) mod both;
pub(super) mod connect;
pub(super) mod fallback;
pub(super) mod fastopen;
pub(super) mod listen;
pub(super) mod netns;

use crate::support::sys::Sock;
use std::io;
use std::ops::RangeInclusive;

/// `IP_LOCAL_PORT_RANGE` of linux/in.h.
const IP_LOCAL_PORT_RANGE: i32 = 51;

/// Limits the ports that the kernel chooses for the socket.
fn limit_ports(sock: &Sock, ports: RangeInclusive<u16>) -> io::Result<()> {
    let value = (u32::from(*ports.end()) << 16) | u32::from(*ports.start());
    sock.set_int(libc::SOL_IP, IP_LOCAL_PORT_RANGE, value as i32)
}
