// SPDX-License-Identifier: GPL-2.0
//! Socket addresses as bytes, so that a test can also make invalid ones.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

const ROOM: usize = size_of::<libc::sockaddr_storage>();
const V4_LEN: usize = size_of::<libc::sockaddr_in>();
const V6_LEN: usize = size_of::<libc::sockaddr_in6>();

/// A socket address of any family and length, valid or not.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct SockAddr {
    bytes: [u8; ROOM],
    len: usize,
}

impl SockAddr {
    /// Room for an address that the kernel fills in.
    pub(crate) fn empty() -> Self {
        SockAddr {
            bytes: [0; ROOM],
            len: ROOM,
        }
    }

    /// The same address with another number in its family field.
    pub(crate) fn with_family(mut self, family: libc::c_int) -> Self {
        self.bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        self
    }

    /// The same address with another length. If the length is greater, zero bytes follow.
    pub(crate) fn with_len(mut self, len: usize) -> Self {
        self.len = len;
        self
    }

    pub(crate) fn family(&self) -> libc::c_int {
        libc::c_int::from(u16::from_ne_bytes([self.bytes[0], self.bytes[1]]))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address and port, if this is an IPv4 or IPv6 address.
    pub(crate) fn to_std(self) -> Option<SocketAddr> {
        let port = u16::from_be_bytes([self.bytes[2], self.bytes[3]]);
        match self.family() {
            libc::AF_INET if self.len >= V4_LEN => {
                let ip: [u8; 4] = self.bytes[4..8].try_into().ok()?;
                Some(SocketAddr::new(Ipv4Addr::from(ip).into(), port))
            }
            libc::AF_INET6 if self.len >= V6_LEN => {
                let ip: [u8; 16] = self.bytes[8..24].try_into().ok()?;
                let scope = u32::from_ne_bytes(self.bytes[24..28].try_into().ok()?);
                Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
            }
            _ => None,
        }
    }

    /// All bytes; the first [`SockAddr::len`] of them are the address.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn port(self) -> u16 {
        self.to_std().map_or(0, |a| a.port())
    }

    pub(crate) fn ip(self) -> Option<IpAddr> {
        self.to_std().map(|a| a.ip())
    }

    /// A pointer for the kernel to the bytes; `len()` is the number of bytes of the address.
    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        self.bytes.as_ptr().cast()
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        self.bytes.as_mut_ptr().cast()
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len.min(ROOM);
    }
}

impl From<SocketAddr> for SockAddr {
    fn from(addr: SocketAddr) -> Self {
        let mut out = SockAddr::empty();
        out.bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
        match addr {
            SocketAddr::V4(v4) => {
                out.bytes[4..8].copy_from_slice(&v4.ip().octets());
                out.with_family(libc::AF_INET).with_len(V4_LEN)
            }
            SocketAddr::V6(v6) => {
                out.bytes[8..24].copy_from_slice(&v6.ip().octets());
                out.bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                out.with_family(libc::AF_INET6).with_len(V6_LEN)
            }
        }
    }
}

impl From<(IpAddr, u16)> for SockAddr {
    fn from((ip, port): (IpAddr, u16)) -> Self {
        SocketAddr::new(ip, port).into()
    }
}

impl fmt::Display for SockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_std() {
            Some(addr) => addr.fmt(f),
            None => write!(f, "family {} ({} bytes)", self.family(), self.len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_round_trip() {
        for text in ["127.0.0.1:80", "[::1]:65535", "[fe80::1%7]:9"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(SockAddr::from(addr).to_std(), Some(addr));
        }
    }

    #[test]
    fn a_short_or_foreign_address_is_none() {
        let addr = SockAddr::from((IpAddr::from([10, 0, 0, 1]), 7));
        assert_eq!(addr.with_len(8).to_std(), None);
        assert_eq!(addr.with_family(27).to_std(), None);
        assert_eq!(addr.with_family(27).family(), 27);
    }
}
