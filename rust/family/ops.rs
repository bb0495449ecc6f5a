// SPDX-License-Identifier: GPL-2.0

//! The functions of `struct proto_ops`, which the core calls with a `struct socket` of the module.
//! They only convert between C types and the module's types.
//!
//! Where exported `inet_*` functions do the work for TCP, they are used here, too: they call the
//! functions of `struct proto` ([`super::sk_ops`]).

use core::mem::size_of;
use core::ptr::NonNull;

use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::aref::ARef;

use super::sockopt;
use crate::bindings::{
    self,
    sock,
    sockaddr_unsized,
    socket, //
};
use crate::inet::addr::{
    self,
    Storage,
    AF_INET6_SDP,
    AF_INET_SDP, //
};
use crate::kern::errno::{
    EINPROGRESS,
    EOPNOTSUPP, //
};
use crate::kern::iov::Iov;
use crate::kern::time::RealNs;
use crate::kern::zerocopy::Request;
use crate::sdp::cm::accept::Accepted;
use crate::sdp::cm::{
    accept,
    close,
    connect,
    fallback,
    listen, //
};
use crate::sdp::conn::guard::SockOwner;
use crate::sdp::conn::sock::SdpSock;
use crate::sdp::options;
use crate::sdp::poll as sdp_poll;
use crate::sdp::recv::{
    read_async,
    recvmsg,
    urgent, //
};
use crate::sdp::send::sendmsg;

const AF_UNSPEC: u16 = bindings::AF_UNSPEC as u16;
const AF_INET: u16 = bindings::AF_INET as u16;
pub(super) const AF_INET6: u16 = bindings::AF_INET6 as u16;
/// [`addr::SIN6_LEN_RFC2133`], as the type of a length in the core.
pub(super) const SIN6_LEN_RFC2133: i32 = addr::SIN6_LEN_RFC2133 as i32;

/// The socket object of a `struct socket`.
///
/// # Safety
///
/// `socket` is an open socket of the module, and the borrow ends with the system call.
unsafe fn of<'a>(socket: *mut socket) -> &'a SdpSock {
    // SAFETY: As the caller promises.
    unsafe { SdpSock::from_raw((*socket).sk) }
}

/// A result in the core's form: a number, or a negative error.
fn errno(result: Result<i32>) -> kernel::ffi::c_int {
    match result {
        Ok(n) => n,
        Err(e) => e.to_errno(),
    }
}

pub(super) fn code(result: Result) -> i32 {
    errno(result.map(|()| 0))
}

/// Copies an address of a program, and replaces its family by one that the core knows.
///
/// # Safety
///
/// `from` holds `len` bytes.
unsafe fn normalized(from: *const sockaddr_unsized, len: i32) -> Result<Storage> {
    let len = usize::try_from(len).map_err(|_| EINVAL)?;
    if !(size_of::<u16>()..=size_of::<Storage>()).contains(&len) {
        return Err(EINVAL);
    }
    let mut out = Storage::default();
    let to = out.as_mut_ptr();
    // SAFETY: Both have `len` bytes.
    unsafe {
        core::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), len);
        (*to).sa_family = match (*to).sa_family {
            AF_INET_SDP => AF_INET,
            AF_INET6_SDP => AF_INET6,
            other => other,
        };
    }
    Ok(out)
}

/// Whether an IPv6 address turns the socket into an IPv6 socket. A socket that was opened as one of
/// AF_INET keeps its family.
///
/// # Safety
///
/// `socket` is an open socket of the module.
pub(super) unsafe fn may_become_v6(socket: *mut socket) -> bool {
    // SAFETY: As the caller promises: the operations are those of `register`.
    unsafe { (*(*socket).ops).family == AF_INET_SDP.into() && bindings::ipv6_mod_enabled() }
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn release(socket: *mut socket) -> i32 {
    // SAFETY: The core passes a socket of the module, whose `sk` may already be gone.
    unsafe {
        if (*socket).sk.is_null() {
            return 0;
        }
        // The object must live until the TCP socket that may have its place is released.
        let sock = ARef::from(of(socket));
        let ret = if sock.sk().is_v6() {
            bindings::inet6_release(socket)
        } else {
            bindings::inet_release(socket)
        };
        // Not earlier: until the socket is an orphan, the worker may put a TCP socket into its
        // place.
        fallback::release(&sock);
        ret
    }
}

/// Whether a program has opened the socket as one of AF_INET or AF_INET6, so that addresses are the
/// same for TCP. A socket of the kernel has no file that could be switched to a TCP socket.
///
/// # Safety
///
/// `socket` is an open socket of the module.
unsafe fn may_become_tcp(socket: *mut socket) -> bool {
    // SAFETY: As the caller promises: the operations are those of `register`.
    unsafe { (*(*socket).ops).family != AF_INET_SDP.into() && !(*socket).file.is_null() }
}

/// The TCP socket that has taken the place of this socket, and the operations of the TCP socket:
/// for a call that began before the change.
///
/// # Safety
///
/// `socket` is an open socket of the module.
unsafe fn tcp_of(socket: *mut socket) -> Option<(*mut socket, *const bindings::proto_ops)> {
    // SAFETY: As the caller promises. The TCP socket is valid as long as this one is open; an
    // upper-layer protocol may change its operations at any time.
    unsafe {
        let sock = of(socket);
        let tcp = match sock.glance.is_tcp.get() {
            true => fallback::in_place(sock)?.as_ptr(),
            false => return None,
        };
        Some((tcp, core::ptr::read_volatile(&raw const (*tcp).ops)))
    }
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn bind(
    socket: *mut socket,
    addr: *mut sockaddr_unsized,
    len: i32,
) -> i32 {
    // SAFETY: The core passes a socket of ours, and `len` bytes of address.
    let result = unsafe { do_bind(socket, addr, len) };
    // SAFETY: As above.
    unsafe { of(socket) }.lock().conn().port.last_bind_err = code(result);
    code(result)
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
unsafe fn do_bind(socket: *mut socket, addr: *mut sockaddr_unsized, len: i32) -> Result {
    // SAFETY: As in `bind`.
    unsafe {
        let mut addr = normalized(addr, len)?;
        let sk = of(socket).sk();
        if (*socket).state == bindings::socket_state_SS_UNCONNECTED {
            connect::reuse_disconnected(&mut of(socket).lock())?;
        } else {
            // A port that the connection was given must not prevent binding to another one.
            connect::await_teardown(&mut of(socket).lock())?;
        }
        let v6 = (*addr.as_ptr()).sa_family == AF_INET6 && len >= SIN6_LEN_RFC2133;
        // A program may use family 27 for both, as qperf does: an IPv6 address turns its socket
        // into an IPv6 socket.
        if v6 && !sk.is_v6() && may_become_v6(socket) {
            let _locked = of(socket).lock();
            if (sk.num(), sk.state()) == (0, bindings::TCP_CLOSE as u8) {
                sk.set_family(bindings::AF_INET6);
            }
        }
        let raw = addr.as_mut_ptr().cast();
        to_result(if sk.is_v6() {
            bindings::inet6_bind(socket, raw, len)
        } else {
            bindings::inet_bind(socket, raw, len)
        })
    }
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn connect(
    socket: *mut socket,
    addr: *mut sockaddr_unsized,
    len: i32,
    flags: i32,
) -> i32 {
    // SAFETY: The core passes a socket of ours, and `len` bytes of address.
    unsafe {
        match normalized(addr, len) {
            Ok(mut addr) => {
                let family = (*addr.as_mut_ptr().cast::<bindings::sockaddr>()).sa_family;
                if family == AF_UNSPEC {
                    // AF_UNSPEC ends a connection.
                    read_async::await_early(&mut of(socket).lock());
                }
                let is_of_inet = may_become_tcp(socket);
                if family != AF_UNSPEC && is_of_inet {
                    fallback::prepare(of(socket));
                }
                let raw = addr.as_mut_ptr().cast();
                let ret = bindings::inet_stream_connect(socket, raw, len, flags);
                if family == AF_UNSPEC {
                    close::unlisten(of(socket));
                }
                let goes_on = family == AF_UNSPEC || ![0, EINPROGRESS.to_errno()].contains(&ret);
                if !is_of_inet || !goes_on {
                    return ret;
                }
                if let Some(tcp) = fallback::in_place(of(socket)) {
                    // The call goes on as that of the TCP socket, which is connecting.
                    return bindings::inet_stream_connect(tcp.as_ptr(), raw, len, flags);
                }
                if of(socket).sk().state() == bindings::TCP_CLOSE as u8 {
                    // SDP has not even begun to connect.
                    fallback::discard(of(socket));
                }
                ret
            }
            Err(e) => e.to_errno(),
        }
    }
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn shutdown(socket: *mut socket, how: i32) -> i32 {
    // SAFETY: The core passes a socket of ours.
    unsafe {
        let ret = bindings::inet_shutdown(socket, how);
        close::unlisten(of(socket));
        ret
    }
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn accept(
    socket: *mut socket,
    new: *mut socket,
    arg: *mut bindings::proto_accept_arg,
) -> i32 {
    // SAFETY: The core passes valid objects; the child belongs to this function, which hands it
    // over. No other thread can use the new socket yet: it has no descriptor. It has the operations
    // of the listener and a reference to their owner, or no operations. `inet_accept` is not used,
    // because it would call back into the module to do the same.
    unsafe {
        let nonblock = (*arg).flags & bindings::O_NONBLOCK as i32 != 0;
        // `kernel_accept()` sets the operations of the new socket afterwards, to those of the
        // listener: so it must not get a TCP connection.
        let takes_tcp = !(*new).ops.is_null();
        let for_tcp = takes_tcp.then(|| NonNull::new(new)).flatten();
        let child = match accept::accept(of(socket), for_tcp, nonblock) {
            Ok(Accepted::Sdp(child)) => child,
            Ok(Accepted::Tcp) => return 0,
            Err(e) => return e.to_errno(),
        };
        let guard = child.lock();
        bindings::__inet_accept(socket, new, child.sk().as_ptr());
        bindings::set_custom_sockopt(new.cast());
        bindings::set_support_zc(new.cast());
        drop(guard);
        accept::into_raw(child);
    }
    0
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn getname(
    socket: *mut socket,
    addr: *mut bindings::sockaddr,
    peer: i32,
) -> i32 {
    // SAFETY: The core passes a socket of ours, and room for any address. Or, in accept(), a new
    // socket with a TCP connection, of which the two functions are the members of this name, too:
    // so the object is not used as one of the module.
    unsafe {
        if (*(*socket).sk).__sk_common.skc_family == AF_INET6 {
            bindings::inet6_getname(socket, addr, peer)
        } else {
            bindings::inet_getname(socket, addr, peer)
        }
    }
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn poll(
    file: *mut kernel::bindings::file,
    socket: *mut socket,
    table: *mut bindings::poll_table_struct,
) -> bindings::__poll_t {
    // SAFETY: The core passes valid objects.
    unsafe {
        bindings::sock_poll_wait(file.cast(), socket.cast(), table.cast());
        let wanted = bindings::poll_requested_events(table.cast());
        let events = sdp_poll::events(of(socket), wanted);
        // The socket may have become a TCP socket since the call began.
        match tcp_of(socket) {
            Some((tcp, ops)) => (*ops).poll.map_or(0, |poll| poll(file, tcp, table)),
            None => events,
        }
    }
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn ioctl(socket: *mut socket, cmd: u32, arg: usize) -> i32 {
    // SAFETY: The core passes a socket of ours.
    unsafe {
        if of(socket).sk().is_v6() {
            bindings::inet6_ioctl(socket, cmd, arg)
        } else {
            bindings::inet_ioctl(socket, cmd, arg)
        }
    }
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn listen(socket: *mut socket, backlog: i32) -> i32 {
    // SAFETY: The core passes a socket of ours.
    unsafe {
        if (*socket).state != bindings::socket_state_SS_UNCONNECTED {
            return EINVAL.to_errno();
        }
        code(listen::listen(of(socket), backlog))
    }
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn sendmsg(
    socket: *mut socket,
    msg: *mut bindings::msghdr,
    len: usize,
) -> i32 {
    // SAFETY: The core passes a socket of ours and a valid message, whose iterator is a source.
    unsafe {
        let flags = (*msg).msg_flags;
        let control = match check_control(of(socket), msg) {
            // As with TCP, this error comes before all others.
            Ok(true) => return EINVAL.to_errno(),
            control => control.map(drop),
        };
        let iter = Iov::from_raw(NonNull::from(&mut (*msg).msg_iter));
        let to = ((*msg).msg_name.cast(), (*msg).msg_namelen);
        let request = Request::new((*msg).msg_ubuf);
        let result = sendmsg::sendmsg(of(socket), iter, flags, control, request, |guard| {
            if flags & bindings::MSG_FASTOPEN == 0 {
                return Ok(());
            }
            let nonblock = flags & bindings::MSG_DONTWAIT != 0;
            fast_open(guard, socket, to, nonblock)
        });
        // The send may have waited for a connection that TCP makes now. A request of io_uring has
        // been told of the end.
        if result.is_err() && request.is_none() {
            if let Some((tcp, ops)) = tcp_of(socket) {
                return (*ops)
                    .sendmsg
                    .map_or(EOPNOTSUPP.to_errno(), |send| send(tcp, msg, len));
            }
        }
        errno(result.map(|n| n as i32))
    }
}

/// MSG_FASTOPEN: connects like connect(). The bytes of the send follow when the connection is
/// established, as with a TCP that has no cookie of the server.
///
/// # Errors
///
/// `EOPNOTSUPP` for AF_UNSPEC, or if the administrator has not allowed it; `EALREADY` while another
/// send connects, or while the socket connects and the send must not wait; and the errors of
/// connect().
///
/// # Safety
///
/// `socket` is an open socket of the module, whose lock is `guard`; an address that is not null has
/// `len` bytes.
unsafe fn fast_open(
    guard: &mut SockOwner<'_>,
    socket: *mut socket,
    (to, len): (*mut sockaddr_unsized, i32),
    nonblock: bool,
) -> Result {
    let has_family = !to.is_null() && len as usize >= size_of::<u16>();
    // SAFETY: The address is long enough for a family.
    let unspec = has_family && unsafe { to.cast::<u16>().read_unaligned() } == AF_UNSPEC;
    if unspec || !guard.sk().net().may_connect_by_send() {
        return Err(EOPNOTSUPP);
    }
    let flags = if nonblock { bindings::O_NONBLOCK } else { 0 };
    connect::fast_open(guard, || {
        // SAFETY: As the caller promises. The function requires that a system call holds the lock,
        // and releases it only while it waits.
        unsafe {
            let mut addr = match to.is_null() {
                true => None,
                false => Some(normalized(to, len)?),
            };
            let (at, len) = addr
                .as_mut()
                .map_or((core::ptr::null_mut(), 0), |a| (a.as_mut_ptr().cast(), len));
            let flags = flags as i32;
            to_result(bindings::__inet_stream_connect(socket, at, len, flags, 1))
        }
    })
}

/// Checks the control messages of a send, as TCP does. With TCP, only messages that ask for
/// timestamps have an effect. Returns `true` if the bytes of the send are in the memory of a
/// device, which SDP cannot send.
///
/// # Errors
///
/// `EINVAL` for an invalid or unknown control message, and for SCM_TS_OPT_ID, which the core
/// refuses for sockets of TCP only; `EPERM`; `EOPNOTSUPP` for timestamps of sent bytes.
///
/// # Safety
///
/// `msg` is the message of a send.
unsafe fn check_control(sock: &SdpSock, msg: *mut bindings::msghdr) -> Result<bool> {
    let mut cookie = bindings::sockcm_cookie::default();
    // SAFETY: As the caller promises.
    unsafe {
        if (*msg).msg_controllen == 0 {
            return Ok(false);
        }
        to_result(bindings::sock_cmsg_send(
            sock.sk().as_ptr().cast(),
            msg,
            &raw mut cookie,
        ))?;
    }
    if cookie.tsflags & bindings::SDP_CONST_SOCKCM_FLAG_TS_OPT_ID != 0 {
        return Err(EINVAL);
    }
    if cookie.tsflags & sockopt::TIMESTAMPS_OF_SENT != 0 {
        return Err(EOPNOTSUPP);
    }
    Ok(cookie.dmabuf_id != 0)
}

/// At the end of the file of a sendfile() or splice(), the last message is sent without waiting for
/// more bytes.
///
/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn splice_eof(socket: *mut socket) {
    // SAFETY: The core passes a socket of ours.
    let sock = unsafe { of(socket) };
    sendmsg::close_message(&mut sock.lock());
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn recvmsg(
    socket: *mut socket,
    msg: *mut bindings::msghdr,
    len: usize,
    flags: i32,
) -> i32 {
    // SAFETY: The core passes a socket of ours and a valid message, whose iterator is a
    // destination.
    unsafe {
        (*msg).msg_namelen = 0;
        let flags = flags as u32;
        if flags & bindings::MSG_ERRQUEUE != 0 {
            return receive_notification(of(socket), msg, len);
        }
        let iter = Iov::from_raw(NonNull::from(&mut (*msg).msg_iter));
        let result = if flags & bindings::MSG_OOB != 0 {
            urgent::receive_urgent(of(socket), iter, flags).map(|(n, more)| {
                (*msg).msg_flags |= more;
                n
            })
        } else {
            recvmsg::recvmsg(of(socket), iter, len, flags).map(|received| {
                if let Some(at) = received.arrived {
                    tell_arrival(of(socket), msg, at);
                }
                received.bytes
            })
        };
        if result.is_ok() {
            tell_left(of(socket), msg);
        } else if let Some((tcp, ops)) = tcp_of(socket) {
            // The receive may have waited for a connection that TCP makes now.
            if let Some(recvmsg) = (*ops).recvmsg {
                return recvmsg(tcp, msg, len, flags as i32);
            }
        }
        errno(result.map(|n| n as i32))
    }
}

/// MSG_ERRQUEUE: copies the next notification of MSG_ZEROCOPY to the program. `EAGAIN` if there is
/// none.
///
/// # Safety
///
/// The message is a valid message of a receive.
unsafe fn receive_notification(sock: &SdpSock, msg: *mut bindings::msghdr, len: usize) -> i32 {
    let (level, name) = match sock.sk().is_v6() {
        true => (bindings::SOL_IPV6, bindings::IPV6_RECVERR),
        false => (bindings::SOL_IP, bindings::IP_RECVERR),
    };
    // SAFETY: The socket is valid; the rest is as the caller promises.
    unsafe {
        bindings::sock_recv_errqueue(
            sock.sk().as_ptr(),
            msg,
            len as i32,
            level as i32,
            name as i32,
        )
    }
}

/// splice() from a socket. The bytes are copied.
///
/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn splice_read(
    socket: *mut socket,
    place: *mut bindings::loff_t,
    pipe: *mut bindings::pipe_inode_info,
    len: usize,
    flags: u32,
) -> isize {
    // SAFETY: The core passes a socket of the module, which has a file, and the arguments of the
    // called function.
    unsafe {
        let file = (*socket).file;
        let nonblock = (*file).f_flags & bindings::O_NONBLOCK != 0;
        match urgent::may_splice(of(socket), nonblock) {
            Ok(true) => bindings::copy_splice_read(file, place, pipe, len, flags),
            Ok(false) => 0,
            Err(e) => e.to_errno() as isize,
        }
    }
}

/// Reports how many bytes are left: to a program that has set TCP_INQ, and to io_uring.
///
/// # Safety
///
/// `msg` is the message of a receive.
unsafe fn tell_left(sock: &SdpSock, msg: *mut bindings::msghdr) {
    // SAFETY: As the caller promises; `put_cmsg` copies an integer, or notes that there is no room
    // for it.
    unsafe {
        let (told, asked) = (sock.glance.tells_unread.get(), (*msg).msg_get_inq());
        if !told && !asked {
            return;
        }
        let left = recvmsg::bytes_left(sock) as i32;
        if told {
            bindings::put_cmsg(
                msg,
                bindings::SOL_TCP as i32,
                bindings::TCP_CM_INQ as i32,
                size_of::<i32>() as i32,
                (&raw const left).cast_mut().cast(),
            );
        }
        if asked {
            (*msg).msg_inq = left;
        }
    }
}

/// Reports when the last byte of a receive arrived, as SO_TIMESTAMP, SO_TIMESTAMPNS and
/// SO_TIMESTAMPING say. The core takes the time from a packet, so this function allocates an empty
/// packet. If there is no memory for the packet, the receive has no timestamp.
///
/// # Safety
///
/// `msg` is the message of a receive.
unsafe fn tell_arrival(sock: &SdpSock, msg: *mut bindings::msghdr, at: RealNs) {
    let sk = sock.sk();
    if !sk.reports_arrivals() {
        return;
    }
    // SAFETY: The packet is new, and is freed here. The rest is as the caller promises.
    unsafe {
        let skb = bindings::alloc_skb(0, bindings::SDP_CONST_GFP_KERNEL);
        if skb.is_null() {
            return;
        }
        let clock = bindings::skb_tstamp_type_SKB_CLOCK_REALTIME as u8;
        bindings::skb_set_delivery_time(skb, at.get(), clock);
        bindings::sock_recv_timestamp(msg, sk.as_ptr().cast(), skb);
        bindings::consume_skb(skb);
    }
}

/// SO_RCVLOWAT.
///
/// # Safety
///
/// Called by the core, as the member of `struct proto_ops` of this name: with valid objects of
/// ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn set_rcvlowat(sk: *mut sock, bytes: i32) -> i32 {
    // SAFETY: The core passes a socket of ours.
    options::set_rcvlowat(unsafe { SdpSock::from_raw(sk) }, bytes);
    0
}
