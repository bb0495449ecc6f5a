// SPDX-License-Identifier: GPL-2.0

//! Ports of TCP that are reserved for sockets of the module.
//!
//! SDP over iWARP uses the ports of TCP (RFC 5044): soft-iWARP binds a TCP socket for each listener
//! and each connection. If the kernel chooses the port of a socket, TCP must not have the port, and
//! must not get it before soft-iWARP binds its own socket.

use core::ptr::{
    self,
    NonNull, //
};

use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::atomic::{
    ordering::Relaxed,
    Atomic, //
};

use super::netns::Net;
use crate::bindings;

/// The number of iWARP devices.
static IWARP_DEVICES: Atomic<i32> = Atomic::new(0);

/// Records that an iWARP device was added.
pub(crate) fn iwarp_added() {
    IWARP_DEVICES.fetch_add(1, Relaxed);
}

/// Records that an iWARP device was removed.
pub(crate) fn iwarp_removed() {
    IWARP_DEVICES.fetch_sub(1, Relaxed);
}

/// A TCP socket of the kernel, which can get a port. As soft-iWARP does, the socket allows other
/// sockets to have the port, too, if these have SO_REUSEADDR and do not listen.
///
/// # Invariants
///
/// The pointer is to a valid TCP socket, which the value owns.
pub(crate) struct TcpPort(NonNull<bindings::socket>);

// SAFETY: A socket may be used from any thread.
unsafe impl Send for TcpPort {}

impl TcpPort {
    /// A socket without a port in `net`, which must outlive the value; `None` if the sockets of
    /// `net` do not use iWARP. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(net: Net<'_>) -> Result<Option<Self>> {
        if IWARP_DEVICES.load(Relaxed) == 0 || !net.is_first() {
            return Ok(None);
        }
        let mut socket = ptr::null_mut();
        // SAFETY: The namespace is valid. The wildcard address of IPv6 also stands for that of
        // IPv4, whatever the namespace's default is.
        unsafe {
            let family = match bindings::ipv6_mod_enabled() {
                true => bindings::AF_INET6,
                false => bindings::AF_INET,
            };
            to_result(bindings::sock_create_kern(
                net.as_ptr(),
                family as i32,
                bindings::sock_type_SOCK_STREAM as i32,
                bindings::IPPROTO_TCP as i32,
                &raw mut socket,
            ))?;
            let sk = (*socket).sk;
            bindings::sock_set_reuseaddr(sk);
            bindings::sock_common::set_skc_ipv6only_raw(&raw mut (*sk).__sk_common, 0);
        }
        // INVARIANT: The socket was created above.
        Ok(NonNull::new(socket).map(Self))
    }

    /// Gives the socket, which has no port yet, the port `port`; returns `false` if another socket
    /// of TCP has it. Sleeps.
    ///
    /// The port is not that of a program: neither privileges nor BPF programs are asked.
    pub(super) fn take(&mut self, port: u16) -> bool {
        // SAFETY: By the type invariant the socket is valid. TCP's `get_port` requires the lock.
        unsafe {
            let sk = (*self.0.as_ptr()).sk;
            bindings::lock_sock(sk.cast());
            let error = bindings::inet_csk_get_port(sk, port);
            bindings::release_sock(sk);
            error == 0
        }
    }
}

impl Drop for TcpPort {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the value owns the socket.
        unsafe { bindings::sock_release(self.0.as_ptr()) };
    }
}
