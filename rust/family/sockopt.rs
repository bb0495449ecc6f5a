// SPDX-License-Identifier: GPL-2.0

//! setsockopt() and getsockopt(), by level.
//!
//! The core copies some values from the program while it holds the socket lock. A program may delay
//! such a copy as long as it likes (userfaultfd), and with it all threads that need the lock: so
//! the value is copied before the lock is taken, for every level.

use core::mem::size_of;
use core::ptr;

use kernel::error::to_result;
use kernel::prelude::*;

use super::ops::code;
use crate::bindings::{
    self,
    sock,
    sockptr_t, //
};
use crate::kern::errno::{
    ENOPROTOOPT,
    EOPNOTSUPP,
    EPROTO, //
};
use crate::sdp::conn::sock::SdpSock;
use crate::sdp::info::tcp_info::tcp_info;
use crate::sdp::options;

/// The maximum length of a value that is read; no supported option has a longer value.
const MAX_VALUE: usize = 256;

/// A copy of a value of the program.
struct Value {
    bytes: [u8; MAX_VALUE],
    len: u32,
}

impl Value {
    /// Copies the value; if it is not completely readable, its first `least` bytes.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    fn copy(from: sockptr_t, len: u32, least: usize) -> Result<Self> {
        let whole = (len as usize).min(MAX_VALUE);
        for want in [whole, whole.min(least)] {
            let mut bytes = [0; MAX_VALUE];
            // SAFETY: There is room for `want` bytes; the helper checks the program's pointer.
            let left =
                unsafe { bindings::copy_from_sockptr(bytes.as_mut_ptr().cast(), from, want) };
            if left == 0 {
                return Ok(Self {
                    bytes,
                    len: want as u32,
                });
            }
        }
        Err(EFAULT)
    }

    /// The integer at its beginning.
    fn number(&self) -> i32 {
        let [a, b, c, d, ..] = self.bytes;
        i32::from_ne_bytes([a, b, c, d])
    }

    /// Whether the value of SO_MAX_PACING_RATE, an `unsigned int` or `unsigned long`, is no limit.
    fn is_no_pacing_rate(&self) -> bool {
        match self.bytes().first_chunk() {
            Some(long) => u64::from_ne_bytes(*long) == u64::MAX,
            None => self.number() == -1,
        }
    }

    /// An address at which reading fails without a wait: the core then reports the error itself,
    /// after other errors of the call.
    fn nowhere() -> sockptr_t {
        // SAFETY: The helper wraps the address, which is no address of a program.
        unsafe { bindings::user_sockptr(ptr::without_provenance_mut(usize::MAX)) }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len as usize).unwrap_or(&[])
    }

    fn as_sockptr(&mut self) -> sockptr_t {
        // SAFETY: The bytes are valid while `self` is borrowed, which outlives the call.
        unsafe { bindings::kernel_sockptr(self.bytes.as_mut_ptr().cast()) }
    }
}

const TCP_INFO: i32 = bindings::TCP_INFO as i32;
const TCP_ULP: i32 = bindings::TCP_ULP as i32;
const TCP_CONGESTION: i32 = bindings::TCP_CONGESTION as i32;
/// The option's value as `getsockopt()` returns it, `TCP_CA_NAME_MAX` bytes. Credits of the peer
/// control the flow.
const CONGESTION_CONTROL: &[u8; 16] = b"sdp\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// The longest name of an interface.
const MAX_IFNAME: usize = bindings::IFNAMSIZ as usize - 1;

/// The number of bytes of an option's value that must be readable: most options read an integer,
/// whatever length the program gives. Options of other levels may be texts and lists, whose parts
/// have another meaning.
fn least(level: i32, name: i32) -> usize {
    match (level as u32, name as u32) {
        (bindings::SOL_SOCKET, bindings::SO_BINDTODEVICE) => MAX_IFNAME,
        (bindings::SOL_SOCKET, bindings::SO_LINGER) => size_of::<bindings::linger>(),
        (
            bindings::SOL_SOCKET,
            bindings::SO_RCVTIMEO_OLD
            | bindings::SO_RCVTIMEO_NEW
            | bindings::SO_SNDTIMEO_OLD
            | bindings::SO_SNDTIMEO_NEW,
        ) => size_of::<bindings::__kernel_sock_timeval>(),
        (bindings::SOL_SOCKET, bindings::SO_MAX_PACING_RATE) => size_of::<kernel::ffi::c_ulong>(),
        (bindings::SOL_TCP, bindings::TCP_FASTOPEN_KEY) => MAX_VALUE,
        (bindings::SOL_SOCKET | bindings::SOL_TCP, _) => size_of::<i32>(),
        _ => MAX_VALUE,
    }
}

/// Options of the core for packets. There are no packets, so the options are refused instead of
/// being ignored. The core would also copy their values under the lock, from or to the program. An
/// IPv4 socket has none of the options of IPv6, and the core says so.
fn is_of_packets(is_v6: bool, level: i32, name: i32) -> bool {
    match level as u32 {
        bindings::SOL_SOCKET => matches!(
            name as u32,
            bindings::SO_ATTACH_FILTER
                | bindings::SO_ATTACH_BPF
                | bindings::SO_ATTACH_REUSEPORT_CBPF
                | bindings::SO_ATTACH_REUSEPORT_EBPF
        ),
        bindings::SOL_IP => matches!(
            name as u32,
            bindings::IP_MSFILTER | bindings::MCAST_MSFILTER
        ),
        bindings::SOL_IPV6 if is_v6 => matches!(
            name as u32,
            bindings::IPV6_HOPOPTS
                | bindings::IPV6_RTHDRDSTOPTS
                | bindings::IPV6_RTHDR
                | bindings::IPV6_DSTOPTS
                | bindings::MCAST_MSFILTER
        ),
        _ => false,
    }
}

/// Timestamps of sent bytes, which SO_TIMESTAMPING asks for (`SOF_TIMESTAMPING_TX_RECORD_MASK`).
pub(super) const TIMESTAMPS_OF_SENT: u32 = bindings::SOF_TIMESTAMPING_TX_HARDWARE
    | bindings::SOF_TIMESTAMPING_TX_SOFTWARE
    | bindings::SOF_TIMESTAMPING_TX_SCHED
    | bindings::SOF_TIMESTAMPING_TX_ACK
    | bindings::SOF_TIMESTAMPING_TX_COMPLETION;

/// Addresses that a program prefers to the usual ones (IPV6_ADDR_PREFERENCES).
const PREFERRED_ADDRS: u32 = bindings::IPV6_PREFER_SRC_TMP
    | bindings::IPV6_PREFER_SRC_PUBLIC
    | bindings::IPV6_PREFER_SRC_COA;

/// Whether the call asks for something that a program would rely on, and that SDP cannot do: IP
/// options, extension headers and hop limits of packets, protection against packets from far away,
/// encryption (IPsec), another route or source address than the RDMA CM chooses, pacing, and
/// timestamps of sent bytes. Turning these off has no effect either. Values that are too short, or
/// out of the range of an option, are left to the core.
fn cannot_be_done(is_v6: bool, level: i32, name: i32, value: &Value) -> bool {
    let number = value.number();
    let is_number = value.len as usize >= size_of::<i32>();
    match (level as u32, name as u32) {
        (bindings::SOL_SOCKET, bindings::SO_MARK | bindings::SO_DONTROUTE) => {
            is_number && number != 0
        }
        (bindings::SOL_SOCKET, bindings::SO_MAX_PACING_RATE) => {
            is_number && !value.is_no_pacing_rate()
        }
        (bindings::SOL_SOCKET, bindings::SO_TIMESTAMPING_OLD | bindings::SO_TIMESTAMPING_NEW) => {
            is_number && number as u32 & TIMESTAMPS_OF_SENT != 0
        }
        (
            bindings::SOL_IP,
            bindings::IP_OPTIONS | bindings::IP_IPSEC_POLICY | bindings::IP_XFRM_POLICY,
        ) => value.len > 0,
        (
            bindings::SOL_IPV6,
            bindings::IPV6_2292PKTOPTIONS
            | bindings::IPV6_IPSEC_POLICY
            | bindings::IPV6_XFRM_POLICY,
        ) => is_v6 && value.len > 0,
        (bindings::SOL_IP, bindings::IP_MINTTL) => number != 0,
        (bindings::SOL_IPV6, bindings::IPV6_MINHOPCOUNT) => is_v6 && number != 0,
        (bindings::SOL_IP, bindings::IP_TTL) => (1..=255).contains(&number),
        (bindings::SOL_IPV6, bindings::IPV6_UNICAST_HOPS) => {
            is_v6 && is_number && (0..=255).contains(&number)
        }
        (bindings::SOL_IPV6, bindings::IPV6_ADDR_PREFERENCES) => {
            is_v6 && is_number && number as u32 & PREFERRED_ADDRS != 0
        }
        _ => false,
    }
}

/// Whether the call asks for timestamps with the positions of their bytes, in a state without a
/// stream. The core checks the state for sockets of TCP only.
fn counts_no_bytes(sock: &SdpSock, level: i32, name: i32, value: &Value) -> bool {
    const OPT_ID: u32 = bindings::SOF_TIMESTAMPING_OPT_ID;
    let is_timestamping = level as u32 == bindings::SOL_SOCKET
        && matches!(
            name as u32,
            bindings::SO_TIMESTAMPING_OLD | bindings::SO_TIMESTAMPING_NEW
        );
    if !is_timestamping || value.number() as u32 & OPT_ID == 0 {
        return false;
    }
    let guard = sock.lock();
    let state = u32::from(guard.sk().state());
    let has_stream = ![bindings::TCP_CLOSE, bindings::TCP_LISTEN].contains(&state);
    !has_stream && guard.sk().timestamping() & OPT_ID == 0
}

/// Whether the option is a membership of a multicast group, with a value of `bytes` bytes that TCP
/// would read. TCP refuses such an option with `EPROTO`. So does the module, because the core would
/// let the socket join the group.
fn is_membership(is_v6: bool, level: i32, name: i32, bytes: u32) -> bool {
    match (level as u32, name as u32) {
        (bindings::SOL_IP, bindings::IP_ADD_MEMBERSHIP | bindings::IP_DROP_MEMBERSHIP) => true,
        (bindings::SOL_IPV6, bindings::IPV6_ADD_MEMBERSHIP | bindings::IPV6_DROP_MEMBERSHIP) => {
            is_v6 && bytes as usize >= size_of::<bindings::ipv6_mreq>()
        }
        _ => false,
    }
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` of this name: with valid objects of ours, in
/// the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn setsockopt(
    sk: *mut sock,
    level: i32,
    name: i32,
    value: sockptr_t,
    len: u32,
) -> i32 {
    // SAFETY: The core passes a socket of ours, which a program holds open.
    let sock = unsafe { SdpSock::from_raw(sk) };
    let is_v6 = sock.sk().is_v6();
    if is_of_packets(is_v6, level, name) {
        return EOPNOTSUPP.to_errno();
    }
    if (level as u32, name) == (bindings::SOL_TCP, TCP_CONGESTION) {
        return code(set_congestion_control(sock, value, len));
    }
    let given = value;
    let mut value = Value::copy(given, len, least(level, name));
    if (level as u32, name as u32) == (bindings::SOL_SOCKET, bindings::SO_ZEROCOPY) {
        return code(set_zerocopy(sock, len, value));
    }
    if value
        .as_ref()
        .is_ok_and(|value| cannot_be_done(is_v6, level, name, value))
    {
        return EOPNOTSUPP.to_errno();
    }
    if value
        .as_ref()
        .is_ok_and(|value| counts_no_bytes(sock, level, name, value))
    {
        return EINVAL.to_errno();
    }
    // SAFETY: The helper only compares the pointer.
    let is_null = unsafe { bindings::sockptr_is_null(given) };
    let there = match &value {
        Ok(value) => value.len,
        Err(_) if is_null => len,
        Err(_) => 0,
    };
    if is_membership(is_v6, level, name, there) {
        return EPROTO.to_errno();
    }
    if level as u32 == bindings::SOL_TCP {
        let (bytes, len) = match &value {
            Ok(value) => (Ok(value.bytes()), value.len),
            Err(e) => (Err(*e), len),
        };
        return code(options::set(sock, name, bytes, len));
    }
    let (from, len) = match &mut value {
        // For some options, the core takes a null pointer for 0 or for no value.
        _ if is_null => (given, len),
        Ok(value) => (value.as_sockptr(), value.len),
        Err(_) => (Value::nowhere(), len),
    };
    // SAFETY: The core passes a socket of the module, which a program holds open; the copy has
    // `len` bytes, and reading from [`Value::nowhere`] fails.
    unsafe {
        match level as u32 {
            bindings::SOL_SOCKET => {
                bindings::sock_setsockopt((*sk).sk_socket, level, name, from, len)
            }
            bindings::SOL_IP => bindings::ip_setsockopt(sk, level, name, from, len),
            bindings::SOL_IPV6 if name == bindings::IPV6_ADDRFORM as i32 => ENOPROTOOPT.to_errno(),
            bindings::SOL_IPV6 if is_v6 => bindings::ipv6_setsockopt(sk, level, name, from, len),
            _ => ENOPROTOOPT.to_errno(),
        }
    }
}

/// # Safety
///
/// Called by the core, as the member of `struct proto` or `struct proto_ops` of this name: with
/// valid objects of ours, in the context and with the locks that the core documents.
pub(super) unsafe extern "C" fn getsockopt(
    sk: *mut sock,
    level: i32,
    name: i32,
    value: *mut kernel::ffi::c_char,
    len: *mut i32,
) -> i32 {
    // SAFETY: The core passes a socket of ours.
    let is_v6 = unsafe { SdpSock::from_raw(sk) }.sk().is_v6();
    if is_of_packets(is_v6, level, name) {
        return EOPNOTSUPP.to_errno();
    }
    // SAFETY: The core passes a socket of the module, and pointers of the program.
    unsafe {
        match level as u32 {
            bindings::SOL_TCP => code(get_tcp(SdpSock::from_raw(sk), name, value, len)),
            // As with TCP, also for an unknown level.
            _ if is_v6 => bindings::ipv6_getsockopt(sk, level, name, value, len),
            _ => bindings::ip_getsockopt(sk, level, name, value, len),
        }
    }
}

/// SO_ZEROCOPY, which the core implements only for families that it knows.
///
/// # Errors
///
/// `EINVAL` except for 0 and 1, `EFAULT`.
fn set_zerocopy(sock: &SdpSock, len: u32, value: Result<Value>) -> Result {
    if (len as usize) < size_of::<i32>() {
        return Err(EINVAL);
    }
    let on = match value?.number() {
        0 => false,
        1 => true,
        _ => return Err(EINVAL),
    };
    let guard = sock.lock();
    guard.sk().set_zerocopy(on);
    Ok(())
}

/// Copies the value of an option at the level of TCP to the program.
///
/// # Safety
///
/// `to` and `len` are pointers of the program.
unsafe fn get_tcp(
    sock: &SdpSock,
    name: i32,
    to: *mut kernel::ffi::c_char,
    len: *mut i32,
) -> Result {
    let mut room = 0;
    // SAFETY: The helper checks the program's pointer.
    to_result(unsafe { bindings::get_user_int(&raw mut room, len) })?;
    let room = usize::try_from(room).map_err(|_| EINVAL)?;
    // SAFETY: As the caller promises.
    unsafe {
        match name {
            TCP_INFO => put(&tcp_info(sock), room, to, len),
            TCP_CONGESTION => put(CONGESTION_CONTROL, room, to, len),
            // No protocol lies above, as with a socket of TCP at first.
            TCP_ULP => put_bytes((ptr::null(), 0), room, to, len),
            options::TCP_FASTOPEN_KEY => {
                let keys = options::keys(sock);
                let bytes = keys.bytes();
                put_bytes((bytes.as_ptr(), bytes.len()), room, to, len)
            }
            _ => put(&options::get(sock, name)?, room, to, len),
        }
    }
}

/// Copies a value to the program, cut to the length for which the program has room.
///
/// # Safety
///
/// `to` and `len` are pointers of the program.
unsafe fn put<T>(value: &T, room: usize, to: *mut kernel::ffi::c_char, len: *mut i32) -> Result {
    let from = ptr::from_ref(value).cast();
    // SAFETY: As the caller promises; the value has `size_of::<T>()` bytes.
    unsafe { put_bytes((from, size_of::<T>()), room, to, len) }
}

/// As [`put`], for a value given by its address and size.
///
/// # Safety
///
/// As for [`put`], and the bytes are readable.
unsafe fn put_bytes(
    (from, size): (*const u8, usize),
    room: usize,
    to: *mut kernel::ffi::c_char,
    len: *mut i32,
) -> Result {
    let n = room.min(size);
    // SAFETY: The helpers check the program's pointers; the rest is as the caller promises.
    unsafe {
        to_result(bindings::put_user_int(n as i32, len))?;
        match bindings::copy_to_user(to.cast(), from.cast(), n) {
            0 => Ok(()),
            _ => Err(EFAULT),
        }
    }
}

/// TCP_CONGESTION: accepts the values that TCP would accept, without effect.
///
/// # Errors
///
/// The errors of TCP, which is called: `ENOENT`, `EPERM`, `EINVAL`, `EFAULT`. TCP reads the name
/// before it takes a lock.
fn set_congestion_control(sock: &SdpSock, name: sockptr_t, len: u32) -> Result {
    let mut tcp = ptr::null_mut();
    let (family, kind) = (bindings::AF_INET, bindings::sock_type_SOCK_STREAM);
    // SAFETY: The namespace lives as long as the socket; this function owns the kernel socket until
    // it is released; TCP checks the program's pointer.
    unsafe {
        let net = sock.sk().net().as_ptr();
        to_result(bindings::sock_create_kern(
            net,
            family as i32,
            kind as i32,
            bindings::IPPROTO_TCP as i32,
            &raw mut tcp,
        ))?;
        let result = match (*(*tcp).ops).setsockopt {
            Some(set) => set(tcp, bindings::SOL_TCP as i32, TCP_CONGESTION, name, len),
            None => ENOPROTOOPT.to_errno(),
        };
        bindings::sock_release(tcp);
        to_result(result)
    }
}
