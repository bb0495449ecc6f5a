// SPDX-License-Identifier: GPL-2.0

//! The addresses and ports of a socket.

use core::ptr;

use super::Sk;
use crate::inet::addr::{
    from_in6,
    to_in6,
    Addr, //
};

impl Sk {
    /// The bound port in host byte order, or 0.
    pub(crate) fn num(self) -> u16 {
        // SAFETY: The object starts with an `inet_sock`.
        unsafe {
            ptr::read_volatile(
                &raw const (*self.0)
                    .__sk_common
                    .__bindgen_anon_3
                    .__bindgen_anon_1
                    .skc_num,
            )
        }
    }

    /// Sets the bound port.
    pub(crate) fn set_num(self, num: u16) {
        self.set_num_only(num);
        // SAFETY: The object starts with an `inet_sock`; the caller holds the lock.
        unsafe { ptr::write_volatile(&raw mut (*self.inet()).inet_sport, num.to_be()) };
    }

    /// Clears the socket's port; getsockname() still returns the former port, as with TCP.
    pub(crate) fn forget_num(self) {
        self.set_num_only(0);
    }

    fn set_num_only(self, num: u16) {
        // SAFETY: The object starts with an `inet_sock`; the caller holds the lock.
        unsafe {
            ptr::write_volatile(
                &raw mut (*self.0)
                    .__sk_common
                    .__bindgen_anon_3
                    .__bindgen_anon_1
                    .skc_num,
                num,
            );
        }
    }

    /// The local address (the one used by look-ups), with the port.
    pub(crate) fn bound_addr(self) -> Addr {
        let port = self.num();
        if self.is_v6() {
            let in6 = field!(self, __sk_common.skc_v6_rcv_saddr);
            return Addr::v6(from_in6(&in6), port, self.bound_dev().unsigned_abs());
        }
        // SAFETY: The object is valid.
        let v4: u32 = unsafe {
            ptr::read_volatile(
                &raw const (*self.0)
                    .__sk_common
                    .__bindgen_anon_1
                    .__bindgen_anon_1
                    .skc_rcv_saddr,
            )
        };
        if v4 == 0 {
            return Addr::ANY.with_port(port);
        }
        Addr::v4(v4.to_ne_bytes(), port)
    }

    /// The peer's address and port, as set by [`Sk::set_peer`]; [`Addr::ANY`] for none. Without the
    /// lock, an address that is just being set may be read in parts.
    pub(crate) fn peer_addr(self) -> Addr {
        // SAFETY: The object is valid.
        let (v4, port): (u32, u16) = unsafe {
            let common = &raw const (*self.0).__sk_common;
            (
                ptr::read_volatile(
                    &raw const (*common).__bindgen_anon_1.__bindgen_anon_1.skc_daddr,
                ),
                ptr::read_volatile(
                    &raw const (*common).__bindgen_anon_3.__bindgen_anon_1.skc_dport,
                ),
            )
        };
        let port = u16::from_be(port);
        if self.is_v6() {
            let in6 = field!(self, __sk_common.skc_v6_daddr);
            return Addr::v6(from_in6(&in6), port, 0);
        }
        if v4 == 0 {
            return Addr::ANY.with_port(port);
        }
        Addr::v4(v4.to_ne_bytes(), port)
    }

    fn set_v4(self, local: u32) {
        // SAFETY: The object starts with an `inet_sock`; the caller holds the lock.
        unsafe {
            ptr::write_volatile(
                &raw mut (*self.0)
                    .__sk_common
                    .__bindgen_anon_1
                    .__bindgen_anon_1
                    .skc_rcv_saddr,
                local,
            );
            ptr::write_volatile(&raw mut (*self.inet()).inet_saddr, local);
        }
    }

    /// Sets the local address, without the port.
    pub(crate) fn set_local(self, addr: &Addr) {
        let v4 = addr.as_v4().map_or(0, u32::from_ne_bytes);
        self.set_v4(v4);
        if self.is_v6() {
            let in6 = if addr.is_any() {
                Default::default()
            } else {
                to_in6(&addr.ip)
            };
            set_field!(self, in6, __sk_common.skc_v6_rcv_saddr);
            // SAFETY: Every socket object of the module has an `ipv6_pinfo`; the caller holds the
            // lock.
            unsafe { (*(*self.inet()).pinet6).saddr = in6 };
        }
    }

    /// Sets the peer's address and port; [`Addr::ANY`] for none.
    pub(crate) fn set_peer(self, addr: &Addr) {
        let v4 = addr.as_v4().map_or(0, u32::from_ne_bytes);
        // SAFETY: The object is valid; the caller holds the lock.
        unsafe {
            ptr::write_volatile(
                &raw mut (*self.0)
                    .__sk_common
                    .__bindgen_anon_1
                    .__bindgen_anon_1
                    .skc_daddr,
                v4,
            );
            ptr::write_volatile(
                &raw mut (*self.0)
                    .__sk_common
                    .__bindgen_anon_3
                    .__bindgen_anon_1
                    .skc_dport,
                addr.port.to_be(),
            );
        }
        if self.is_v6() {
            set_field!(self, to_in6(&addr.ip), __sk_common.skc_v6_daddr);
        }
    }
}
