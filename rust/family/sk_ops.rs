// SPDX-License-Identifier: GPL-2.0

//! The functions of `struct proto`, which the core calls with a `struct sock` of the module. They
//! only convert between C types and the module's types.

use core::mem::size_of;

use kernel::prelude::*;

use super::ops::{
    code,
    may_become_v6,
    AF_INET6,
    SIN6_LEN_RFC2133, //
};
use crate::bindings::{
    self,
    sock,
    sockaddr_unsized, //
};
use crate::inet::addr::Addr;
use crate::kern::errno::EAFNOSUPPORT;
use crate::kern::time::Timeout;
use crate::sdp::cm::accept::Accepted;
use crate::sdp::cm::{
    accept,
    bind,
    close,
    connect, //
};
use crate::sdp::conn::sock::SdpSock;
use crate::sdp::cq::poll::{
    poll_cq,
    process, //
};
use crate::sdp::options;

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn close(sk: *mut sock, timeo: kernel::ffi::c_long) {
    // SAFETY: The core passes a socket of the module, and gives up its reference.
    unsafe { close::close(SdpSock::from_raw(sk), Timeout::from_jiffies(timeo)) };
}

/// The shortest address that connect() accepts; it checks the family afterwards.
fn least_len(is_v6: bool) -> i32 {
    if is_v6 {
        SIN6_LEN_RFC2133
    } else {
        size_of::<bindings::sockaddr_in>() as i32
    }
}

/// # Safety
///
/// `addr` has `len` bytes, at least those of a family.
unsafe fn is_whole_v6(addr: *const sockaddr_unsized, len: i32) -> bool {
    // SAFETY: As the caller promises.
    let family = unsafe { (*addr.cast::<bindings::sockaddr>()).sa_family };
    family == AF_INET6 && len >= SIN6_LEN_RFC2133
}

/// Whether connect() to the address turns the socket into an IPv6 socket.
///
/// # Safety
///
/// `sk` is an open socket of the module whose lock is held; `addr` has `len` bytes, at least those
/// of a family.
unsafe fn becomes_v6(sk: *mut sock, addr: *const sockaddr_unsized, len: i32) -> bool {
    // SAFETY: As the caller promises. An open socket has its `struct socket`.
    unsafe {
        let ours = SdpSock::from_raw(sk).sk();
        let new = (ours.state(), ours.num()) == (bindings::TCP_CLOSE as u8, 0);
        new && !ours.is_v6() && is_whole_v6(addr, len) && may_become_v6((*sk).sk_socket)
    }
}

/// The hooks of control groups for connect(); they may change the address.
///
/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn pre_connect(
    sk: *mut sock,
    addr: *mut sockaddr_unsized,
    mut len: i32,
) -> i32 {
    // SAFETY: The core passes a socket of ours, with its lock held, and room for an address of
    // `len` bytes.
    unsafe {
        let is_v6 = SdpSock::from_raw(sk).sk().is_v6();
        if len < least_len(is_v6) {
            return EINVAL.to_errno();
        }
        if is_v6 || becomes_v6(sk, addr, len) {
            bindings::bpf_inet6_connect(sk.cast(), addr.cast(), &raw mut len)
        } else {
            bindings::bpf_inet4_connect(sk.cast(), addr.cast(), &raw mut len)
        }
    }
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn connect(
    sk: *mut sock,
    addr: *mut sockaddr_unsized,
    len: i32,
) -> i32 {
    // SAFETY: The core passes a socket of ours, with its lock held, and `len` bytes of address.
    unsafe {
        let sock = SdpSock::from_raw(sk);
        let mut guard = sock.locked_by_owner();
        // A send with MSG_FASTOPEN and without an address gets here with the length 0.
        if len < least_len(sock.sk().is_v6()) {
            return EINVAL.to_errno();
        }
        if becomes_v6(sk, addr, len) {
            sock.sk().set_family(bindings::AF_INET6);
        }
        // An IPv6 socket does not accept an IPv4 address, as with TCP.
        let is_other = is_whole_v6(addr, len) != sock.sk().is_v6();
        let result = match Addr::parse(addr.cast(), len) {
            Ok(to) if !is_other => connect::start_connect(&mut guard, to),
            _ => Err(EAFNOSUPPORT),
        };
        code(result)
    }
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn disconnect(sk: *mut sock, _flags: i32) -> i32 {
    // SAFETY: The core passes a socket of ours, with its lock held.
    unsafe { close::disconnect(&mut SdpSock::from_raw(sk).locked_by_owner()) };
    0
}

/// For `inet_accept`, which the module does not call for its own sockets, but other code may.
///
/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn accept(
    sk: *mut sock,
    arg: *mut bindings::proto_accept_arg,
) -> *mut sock {
    // SAFETY: The core passes a socket of ours.
    unsafe {
        let nonblock = (*arg).flags & bindings::O_NONBLOCK as i32 != 0;
        match accept::accept(SdpSock::from_raw(sk), None, nonblock) {
            Ok(Accepted::Sdp(child)) => accept::into_raw(child),
            // Only a caller with a new socket gets a TCP connection.
            Ok(Accepted::Tcp) => {
                (*arg).err = EINVAL.to_errno();
                core::ptr::null_mut()
            }
            Err(e) => {
                (*arg).err = e.to_errno();
                core::ptr::null_mut()
            }
        }
    }
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn shutdown(sk: *mut sock, how: i32) {
    // SAFETY: The core passes a socket of ours, with its lock held.
    let mut guard = unsafe { SdpSock::from_raw(sk).locked_by_owner() };
    if how as u32 & bindings::SEND_SHUTDOWN != 0 {
        // Bytes that are here already can still be read; bytes that come after both halves are shut
        // are refused.
        poll_cq(&mut guard);
        close::shutdown_write(&mut guard);
    }
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn ioctl(sk: *mut sock, cmd: i32, out: *mut i32) -> i32 {
    // SAFETY: The core passes a socket of ours, and room for the result.
    unsafe {
        match options::ioctl(SdpSock::from_raw(sk), cmd) {
            Ok(value) => {
                *out = value;
                0
            }
            Err(e) => e.to_errno(),
        }
    }
}

/// SO_KEEPALIVE, before its flag is set.
///
/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn keepalive(sk: *mut sock, on: i32) {
    // SAFETY: The core passes a socket of ours, with its lock held.
    unsafe { SdpSock::from_raw(sk).locked_by_owner() }.set_keepalive(on != 0);
}

/// Called when a system call releases the lock: handles the completions that came meanwhile.
///
/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn release_cb(sk: *mut sock) {
    // SAFETY: The core passes a socket of ours, with its lock held and BHs off.
    let sock = unsafe { SdpSock::from_raw(sk) };
    if sock.take_deferred() {
        // SAFETY: As above.
        unsafe { sock.with_core_lock(process) };
    }
}

/// Whether a send may add bytes to the unsent ones, according to TCP_NOTSENT_LOWAT.
///
/// # Safety
///
/// Called by the core, as the member of `struct proto` of this name: with a valid object of ours;
/// the lock need not be held.
pub(super) unsafe extern "C" fn stream_memory_free(sk: *const sock, wake: i32) -> bool {
    // SAFETY: The core passes a socket of ours, which is not changed.
    let sock = unsafe { SdpSock::from_raw(sk.cast_mut()) };
    sock.glance.is_below_lowat(wake != 0)
}

/// Does nothing: the port is released with the connection, not with the program's reference.
///
/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn unhash(_sk: *mut sock) {}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn get_port(sk: *mut sock, port: u16) -> i32 {
    // SAFETY: The core passes a socket of ours, with its lock held.
    let mut guard = unsafe { SdpSock::from_raw(sk).locked_by_owner() };
    code(bind::get_port(&mut guard, port))
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn put_port(sk: *mut sock) {
    // SAFETY: As above.
    let mut guard = unsafe { SdpSock::from_raw(sk).locked_by_owner() };
    bind::put_port(&mut guard);
    guard.sk().set_num(0);
}
