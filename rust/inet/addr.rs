// SPDX-License-Identifier: GPL-2.0

//! Socket addresses: one type for the addresses of programs and of the RDMA CM.

use core::mem::size_of;

use kernel::prelude::*;

use crate::bindings;
use crate::kern::errno::EAFNOSUPPORT;
use crate::uapi::socket;

/// The families as they appear in addresses.
pub(crate) const AF_INET_SDP: u16 = socket::AF_INET_SDP as u16;
pub(crate) const AF_INET6_SDP: u16 = socket::AF_INET6_SDP as u16;

/// The loopback address of IPv4, to which TCP connects in place of the wildcard address.
pub(crate) const V4_LOOPBACK: [u8; 4] = [127, 0, 0, 1];

/// The length of an IPv6 address without the scope, which RFC 2133 does not have, in bytes: the
/// shortest that the core accepts.
pub(crate) const SIN6_LEN_RFC2133: usize = 24;

const AF_INET: u16 = bindings::AF_INET as u16;
const AF_INET6: u16 = bindings::AF_INET6 as u16;

/// An IP address and port. IPv4 addresses are held in their mapped form.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) struct Addr {
    /// In network byte order.
    pub(crate) ip: [u8; 16],
    /// In host byte order.
    pub(crate) port: u16,
    /// The interface of a link-local address, or 0.
    pub(crate) scope: u32,
}

impl Addr {
    /// The wildcard of both families.
    pub(crate) const ANY: Self = Self {
        ip: [0; 16],
        port: 0,
        scope: 0,
    };

    pub(crate) fn v4(ip: [u8; 4], port: u16) -> Self {
        let [a, b, c, d] = ip;
        Self {
            ip: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d],
            port,
            scope: 0,
        }
    }

    pub(crate) fn v6(ip: [u8; 16], port: u16, scope: u32) -> Self {
        Self { ip, port, scope }
    }

    /// The IPv4 address, if it is one.
    pub(crate) fn as_v4(&self) -> Option<[u8; 4]> {
        match self.ip {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
            _ => None,
        }
    }

    pub(crate) fn is_v4(&self) -> bool {
        self.as_v4().is_some()
    }

    /// Whether it is `::` or `0.0.0.0`.
    pub(crate) fn is_any(&self) -> bool {
        self.ip == [0; 16] || self.as_v4() == Some([0; 4])
    }

    /// Whether it is `127.0.0.0/8` or `::1`.
    pub(crate) fn is_loopback(&self) -> bool {
        const V6: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        matches!(self.as_v4(), Some([127, ..])) || self.ip == V6
    }

    /// Whether it is a multicast address, or the IPv4 broadcast address.
    pub(crate) fn is_multicast(&self) -> bool {
        match self.as_v4() {
            Some([a, ..]) if a & 0xf0 == 0xe0 => true,
            Some(all) => all == [255; 4],
            None => matches!(self.ip, [0xff, ..]),
        }
    }

    pub(crate) fn is_link_local(&self) -> bool {
        matches!(self.ip, [0xfe, b, ..] if b & 0xc0 == 0x80)
    }

    /// Whether it can be the address of a single machine on a link: not a wildcard, loopback or
    /// multicast address.
    pub(crate) fn is_of_one_machine(&self) -> bool {
        !self.is_any() && !self.is_loopback() && !self.is_multicast()
    }

    /// Whether a connection request may come from this address, which the peer has written into the
    /// request. If the path has an IP address, to which the answers and all packets of the
    /// connection go, the address of the path must be this address.
    pub(crate) fn may_be_peer(&self, path: Option<Self>) -> bool {
        self.is_of_one_machine() && path.is_none_or(|path| path.ip == self.ip)
    }

    pub(crate) fn with_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// Reads the address that a program passed to connect(), of family AF_INET, AF_INET6 or their
    /// SDP numbers.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is too short for its family, `EAFNOSUPPORT` for any other family.
    ///
    /// # Safety
    ///
    /// `from` holds `len` bytes that stay unchanged.
    pub(crate) unsafe fn parse(from: *const u8, len: i32) -> Result<Self> {
        let len = usize::try_from(len).map_err(|_| EINVAL)?;
        if len < size_of::<u16>() {
            return Err(EINVAL);
        }
        // SAFETY: There are `len` bytes, at least two; they may be unaligned.
        let family = unsafe { from.cast::<u16>().read_unaligned() };
        match family {
            AF_INET | AF_INET_SDP if len >= size_of::<bindings::sockaddr_in>() => {
                // SAFETY: The length was just checked.
                let sin = unsafe { from.cast::<bindings::sockaddr_in>().read_unaligned() };
                Ok(Self::from_sin(&sin))
            }
            AF_INET6 | AF_INET6_SDP if len >= SIN6_LEN_RFC2133 => {
                let mut sin6 = bindings::sockaddr_in6::default();
                let n = len.min(size_of::<bindings::sockaddr_in6>());
                // SAFETY: `from` has at least `n` bytes, and so has `sin6`.
                unsafe {
                    core::ptr::copy_nonoverlapping(from, (&raw mut sin6).cast::<u8>(), n);
                }
                Ok(Self::from_sin6(&sin6))
            }
            AF_INET | AF_INET_SDP | AF_INET6 | AF_INET6_SDP => Err(EINVAL),
            _ => Err(EAFNOSUPPORT),
        }
    }

    pub(crate) fn from_sin(sin: &bindings::sockaddr_in) -> Self {
        Self::v4(
            sin.sin_addr.s_addr.to_ne_bytes(),
            u16::from_be(sin.sin_port),
        )
    }

    pub(crate) fn from_sin6(sin6: &bindings::sockaddr_in6) -> Self {
        Self::v6(
            from_in6(&sin6.sin6_addr),
            u16::from_be(sin6.sin6_port),
            sin6.sin6_scope_id,
        )
    }

    /// Reads an address of the RDMA CM.
    pub(crate) fn from_storage(from: &Storage) -> Option<Self> {
        // SAFETY: A `Storage` is large enough for every family, and all bytes are initialised.
        unsafe { Self::parse(from.as_ptr().cast(), size_of::<Storage>() as i32) }.ok()
    }

    /// Writes the address as AF_INET or AF_INET6; with `v6`, an IPv4 address is written in its
    /// mapped form.
    pub(crate) fn to_storage(self, v6: bool) -> Storage {
        let mut out = Storage::default();
        match self.as_v4() {
            Some(ip) if !v6 => {
                let sin = bindings::sockaddr_in {
                    sin_family: AF_INET,
                    sin_port: self.port.to_be(),
                    sin_addr: bindings::in_addr {
                        s_addr: u32::from_ne_bytes(ip),
                    },
                    ..Default::default()
                };
                // SAFETY: A storage is larger than, and aligned for, every socket address.
                unsafe { out.as_mut_ptr().cast::<bindings::sockaddr_in>().write(sin) };
            }
            _ => {
                let sin6 = bindings::sockaddr_in6 {
                    sin6_family: AF_INET6,
                    sin6_port: self.port.to_be(),
                    sin6_addr: to_in6(&self.ip),
                    sin6_scope_id: self.scope,
                    ..Default::default()
                };
                // SAFETY: As above.
                unsafe {
                    out.as_mut_ptr()
                        .cast::<bindings::sockaddr_in6>()
                        .write(sin6)
                };
            }
        }
        out
    }
}

/// Room for a socket address of any family.
#[repr(C, align(8))]
#[derive(Copy, Clone)]
pub(crate) struct Storage([u8; 128]);

impl Default for Storage {
    fn default() -> Self {
        Self([0; 128])
    }
}

impl Storage {
    pub(crate) fn as_ptr(&self) -> *const bindings::sockaddr {
        self.0.as_ptr().cast()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut bindings::sockaddr {
        self.0.as_mut_ptr().cast()
    }
}

pub(crate) fn from_in6(from: &bindings::in6_addr) -> [u8; 16] {
    // SAFETY: All members of the union are 16 plain bytes.
    unsafe { from.in6_u.u6_addr8 }
}

pub(crate) fn to_in6(ip: &[u8; 16]) -> bindings::in6_addr {
    let mut out = bindings::in6_addr::default();
    out.in6_u.u6_addr8 = *ip;
    out
}

impl kernel::fmt::Display for Addr {
    fn fmt(&self, f: &mut kernel::fmt::Formatter<'_>) -> kernel::fmt::Result {
        if let Some([a, b, c, d]) = self.as_v4() {
            return write!(f, "{a}.{b}.{c}.{d}:{}", self.port);
        }
        if self.is_any() {
            return write!(f, "*:{}", self.port);
        }
        write!(f, "[")?;
        for (i, group) in self.ip.chunks_exact(2).enumerate() {
            let colon = if i == 0 { "" } else { ":" };
            if let [high, low] = group {
                write!(f, "{colon}{:x}", u16::from_be_bytes([*high, *low]))?;
            }
        }
        write!(f, "]:{}", self.port)
    }
}

#[kunit_tests(ib_sdp_addr)]
mod tests {
    use super::*;

    fn parse(storage: &Storage, len: i32) -> Result<Addr> {
        // SAFETY: A storage is longer than every length used here.
        unsafe { Addr::parse(storage.as_ptr().cast(), len) }
    }

    #[test]
    fn reads_what_it_writes() -> Result {
        let v4 = Addr::v4([10, 27, 0, 1], 4711);
        assert!(parse(&v4.to_storage(false), 16)? == v4);
        assert!(parse(&v4.to_storage(true), 28)? == v4);
        let v6 = Addr::v6([0xfd, 0x27, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2], 1, 3);
        assert!(parse(&v6.to_storage(false), 28)? == v6);
        Ok(())
    }

    #[test]
    fn refuses_short_and_strange_addresses() {
        let v4 = Addr::v4([127, 0, 0, 1], 1).to_storage(false);
        for len in [-1, 0, 1, 2, 15] {
            assert!(parse(&v4, len) == Err(EINVAL));
        }
        let v6 = Addr::ANY.to_storage(true);
        assert!(parse(&v6, 23) == Err(EINVAL));
        assert!(parse(&Storage::default(), 128) == Err(EAFNOSUPPORT));
    }

    #[test]
    fn takes_the_numbers_of_sdp_for_families() -> Result {
        let mut storage = Addr::v4([1, 2, 3, 4], 5).to_storage(false);
        // SAFETY: A storage is large enough for every socket address.
        unsafe { (*storage.as_mut_ptr()).sa_family = AF_INET_SDP };
        assert!(parse(&storage, 16)? == Addr::v4([1, 2, 3, 4], 5));
        // SAFETY: As above.
        unsafe { (*storage.as_mut_ptr()).sa_family = AF_INET6_SDP };
        assert!(!parse(&storage, 28)?.is_v4());
        Ok(())
    }

    #[test]
    fn knows_its_kinds() {
        assert!(Addr::v4([127, 9, 9, 9], 0).is_loopback());
        assert!(Addr::v6([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 0, 0).is_loopback());
        assert!(!Addr::v4([128, 0, 0, 1], 0).is_loopback());
        assert!(Addr::ANY.is_any() && Addr::v4([0; 4], 9).is_any());
        assert!(Addr::v4([224, 0, 0, 1], 0).is_multicast());
        assert!(Addr::v4([255; 4], 0).is_multicast());
        assert!(Addr::v6([0xff; 16], 0, 0).is_multicast());
    }

    /// The peer's address is accepted only if the path has the same address, or none.
    #[test]
    fn takes_no_peer_that_is_another() {
        let (one, other) = (Addr::v4([10, 0, 0, 1], 7), Addr::v4([10, 0, 0, 2], 0));
        assert!(one.may_be_peer(None) && one.may_be_peer(Some(one.with_port(0))));
        assert!(!one.may_be_peer(Some(other)));
        let loopback = Addr::v6([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 0, 0);
        for none in [
            Addr::ANY,
            Addr::v4([0; 4], 1),
            Addr::v4([127, 0, 0, 1], 1),
            Addr::v4([224, 0, 0, 1], 1),
            loopback,
        ] {
            assert!(!none.may_be_peer(None) && !none.may_be_peer(Some(none)));
        }
    }
}
