// SPDX-License-Identifier: GPL-2.0

//! `struct sock`: the core's state of a socket, behind methods.
//!
//! The fields used here are plain numbers and flags that the core itself reads and writes under the
//! socket lock or with READ_ONCE/WRITE_ONCE.

use core::ptr;

use kernel::prelude::*;
use kernel::sync::rcu;

use super::addr::{
    from_in6,
    to_in6,
    Addr, //
};
use super::netns::Net;
use crate::bindings;
use crate::kern::barrier::smp_wmb;
use crate::kern::time::{
    real_now,
    RealNs,
    Timeout, //
};

/// A pointer to a socket object of the module.
///
/// # Invariants
///
/// It points to a `struct inet_sock` (with its `ipv6_pinfo`) that lives as long as the value is
/// used: the value comes from a [`crate::sdp::conn::sock::SdpSock`] that its user has borrowed, or
/// from a table of [`super::ports::Ports`] whose lock its user holds.
#[derive(Copy, Clone)]
pub(crate) struct Sk(*mut bindings::sock);

/// The size in bytes that each of a socket's buffers may always have, however short memory is, as
/// with TCP.
pub(crate) const LEAST_BYTES: u32 = 4096;

/// Wakes only one of the exclusive waiters, because the event can be used by one only.
const ONE: i32 = 1;
/// Wakes all waiters, including the exclusive ones.
const ALL: i32 = 0;

/// `sk_data_ready` of a socket of a program.
///
/// # Safety
///
/// `sk` is a socket object of the module.
unsafe extern "C" fn data_ready(sk: *mut bindings::sock) {
    // SAFETY: As the caller promises.
    unsafe { Sk::new(sk) }.wake_to_read(ONE);
}

/// `sk_write_space` of a socket of a program. The core calls it, too, after a change of SO_SNDBUF.
///
/// # Safety
///
/// As for [`data_ready`].
unsafe extern "C" fn write_space(sk: *mut bindings::sock) {
    use bindings as b;
    // SAFETY: As the caller promises. The core and `Sk::wake_writer` call this function under the
    // lock, which keeps `sk_socket`.
    unsafe {
        if (*sk).sk_socket.is_null() || !b::test_and_clear_nospace(sk.cast()) {
            return;
        }
        Sk::new(sk).wake(
            ONE,
            b::SDP_CONST_EPOLLOUT | b::SDP_CONST_EPOLLWRNORM | b::SDP_CONST_EPOLLWRBAND,
        );
        b::sk_wake_async(sk.cast(), b::SOCK_WAKE_SPACE as i32, b::POLL_OUT as i32);
    }
}

/// `sk_state_change` of a socket of a program.
///
/// # Safety
///
/// As for [`data_ready`].
unsafe extern "C" fn state_change(sk: *mut bindings::sock) {
    // io_uring reports the events of a wake-up's key without asking the socket, so the key must not
    // have an event that may be absent. Without a key, io_uring asks the socket. TCP also wakes
    // without a key here.
    // SAFETY: As the caller promises.
    unsafe { Sk::new(sk) }.wake(ALL, 0);
}

macro_rules! field {
    ($self:ident, $($f:tt)+) => {
        // SAFETY: By the type invariant the object is valid. The core also reads the field without
        // the lock.
        unsafe { ptr::read_volatile(&raw const (*$self.0).$($f)+) }
    };
}

macro_rules! set_field {
    ($self:ident, $value:expr, $($f:tt)+) => {
        // SAFETY: As in `field!`; the caller holds the socket lock.
        unsafe { ptr::write_volatile(&raw mut (*$self.0).$($f)+, $value) }
    };
}

impl Sk {
    /// # Safety
    ///
    /// `sk` is a socket object of the module that outlives the value.
    pub(crate) unsafe fn new(sk: *mut bindings::sock) -> Self {
        Self(sk)
    }

    pub(crate) fn as_ptr(self) -> *mut bindings::sock {
        self.0
    }

    fn inet(self) -> *mut bindings::inet_sock {
        self.0.cast()
    }

    pub(crate) fn net<'a>(self) -> Net<'a> {
        // SAFETY: The socket holds a reference to its namespace.
        unsafe { Net::from_raw(bindings::sock_net(self.0.cast()).cast()) }
    }

    /// Whether the socket holds its namespace, as the socket of a program does.
    pub(crate) fn holds_net(self) -> bool {
        // SAFETY: The object is valid, and the bit changes only while nobody else knows the socket.
        unsafe { bindings::sock_common::skc_net_refcnt_raw(&raw const (*self.0).__sk_common) != 0 }
    }

    /// Makes a socket of the kernel hold its namespace, before any other code knows the socket.
    ///
    /// A closed connection lives on for a while, and uses its namespace's counters, ports and
    /// limits. The kernel code that created the socket keeps the namespace only until it closes
    /// the socket.
    pub(crate) fn hold_net(self) {
        if !self.holds_net() {
            // SAFETY: The object is valid and does not hold its namespace. The creator does.
            unsafe { bindings::sk_net_refcnt_upgrade(self.0) };
        }
    }

    pub(crate) fn family(self) -> u16 {
        field!(self, __sk_common.skc_family)
    }

    pub(crate) fn is_v6(self) -> bool {
        self.family() == bindings::AF_INET6 as u16
    }

    /// Sets the family of the socket, before it is bound. The namespace decides whether an IPv6
    /// socket is for IPv6 only, until its program sets the option.
    pub(crate) fn set_family(self, family: u32) {
        set_field!(self, family as u16, __sk_common.skc_family);
        if family == bindings::AF_INET6 {
            let only = self.net().bind_v6only();
            // SAFETY: The object is valid; the caller holds the socket lock, or no other code knows
            // the socket: so nobody writes the other bits of the bit-field.
            unsafe {
                let common = &raw mut (*self.0).__sk_common;
                bindings::sock_common::set_skc_ipv6only_raw(common, only.into());
            }
        }
    }

    /// The core's `TCP_*` state.
    pub(crate) fn state(self) -> u8 {
        field!(self, __sk_common.skc_state)
    }

    pub(crate) fn set_state(self, state: u8) {
        // SAFETY: The object is valid.
        unsafe { bindings::sk_state_store(self.0.cast(), state.into()) };
    }

    /// The flags of SO_TIMESTAMPING.
    pub(crate) fn timestamping(self) -> u32 {
        field!(self, sk_tsflags)
    }

    /// The present time, for bytes that have just arrived; `None` if the program does not ask for
    /// the time with SO_TIMESTAMP, SO_TIMESTAMPNS or SO_TIMESTAMPING.
    pub(crate) fn arrival(self) -> Option<RealNs> {
        let is_asked = self.has_flag(bindings::sock_flags_SOCK_RCVTSTAMP)
            || self.timestamping() & bindings::SOF_TIMESTAMPING_RX_SOFTWARE != 0;
        is_asked.then(real_now).flatten()
    }

    /// Whether receives report the time at which their bytes arrived. With SO_TIMESTAMPING, one
    /// flag makes the kernel record times, and another one makes receives report them.
    pub(crate) fn reports_arrivals(self) -> bool {
        self.has_flag(bindings::sock_flags_SOCK_RCVTSTAMP)
            || self.timestamping() & bindings::SOF_TIMESTAMPING_SOFTWARE != 0
    }

    pub(crate) fn err(self) -> i32 {
        field!(self, sk_err)
    }

    /// Sets the error (a positive errno) that the next call reports.
    pub(crate) fn set_err(self, e: Error) {
        set_field!(self, -e.to_errno(), sk_err);
        // As in `tcp_done_with_error()`: a poller that sees the end of the connection also sees its
        // error. Pairs with the barrier in `poll::events()`.
        smp_wmb();
    }

    /// The error to report for `e`: in place of `EPIPE`, the error of the socket if there is one.
    /// If the error is still `EPIPE`, sends SIGPIPE to the current thread, unless `flags` has
    /// MSG_NOSIGNAL.
    pub(crate) fn stream_error(self, flags: u32, e: Error) -> Error {
        // SAFETY: The object is valid; the signal goes to the current thread.
        let code = unsafe { bindings::sk_stream_error(self.0, flags as i32, e.to_errno()) };
        Error::from_errno(code)
    }

    /// Clears the error of a former connection.
    pub(crate) fn clear_err(self) {
        set_field!(self, 0, sk_err);
    }

    /// Returns and clears the error that is to be reported, if any.
    pub(crate) fn take_err(self) -> Result {
        // SAFETY: The object is valid.
        kernel::error::to_result(unsafe { bindings::sock_error(self.0.cast()) })
    }

    pub(crate) fn shutdown(self) -> u32 {
        field!(self, sk_shutdown).into()
    }

    pub(crate) fn add_shutdown(self, how: u32) {
        let old = self.shutdown();
        set_field!(self, (old | how) as u8, sk_shutdown);
    }

    pub(crate) fn clear_shutdown(self) {
        set_field!(self, 0, sk_shutdown);
    }

    pub(crate) fn rcv_shutdown(self) -> bool {
        self.shutdown() & bindings::RCV_SHUTDOWN != 0
    }

    pub(crate) fn snd_shutdown(self) -> bool {
        self.shutdown() & bindings::SEND_SHUTDOWN != 0
    }

    pub(crate) fn sndbuf(self) -> u32 {
        field!(self, sk_sndbuf).unsigned_abs()
    }

    /// Restores the size of the send buffer to `bytes`, after the core has reduced the size because
    /// memory was short; `false` if there is nothing to restore.
    pub(crate) fn restore_sndbuf(self, bytes: i32) -> bool {
        let smaller = self.sndbuf() < bytes.unsigned_abs();
        if self.user_locked(bindings::SOCK_SNDBUF_LOCK) || !smaller {
            return false;
        }
        set_field!(self, bytes, sk_sndbuf);
        true
    }

    pub(crate) fn rcvbuf(self) -> u32 {
        field!(self, sk_rcvbuf).unsigned_abs()
    }

    pub(crate) fn set_buffers(self, snd: i32, rcv: i32) {
        set_field!(self, snd, sk_sndbuf);
        set_field!(self, rcv, sk_rcvbuf);
    }

    pub(crate) fn wmem_queued(self) -> u32 {
        field!(self, sk_wmem_queued).unsigned_abs()
    }

    pub(crate) fn has_flag(self, flag: bindings::sock_flags) -> bool {
        // SAFETY: The object is valid.
        unsafe { bindings::sock_flag(self.0.cast(), flag) }
    }

    pub(crate) fn set_flag(self, flag: bindings::sock_flags) {
        // SAFETY: The object is valid.
        unsafe { bindings::sock_set_flag(self.0.cast(), flag) };
    }

    /// SO_ZEROCOPY. The caller holds the lock.
    pub(crate) fn set_zerocopy(self, on: bool) {
        let flag = bindings::sock_flags_SOCK_ZEROCOPY;
        // SAFETY: The object is valid.
        unsafe {
            match on {
                true => bindings::sock_set_flag(self.0.cast(), flag),
                false => bindings::sock_reset_flag(self.0.cast(), flag),
            }
        }
    }

    /// Whether there are notifications of MSG_ZEROCOPY.
    pub(crate) fn has_notifications(self) -> bool {
        // SAFETY: The object is valid.
        !unsafe { bindings::skb_queue_empty_lockless(&raw const (*self.0).sk_error_queue) }
    }

    pub(crate) fn reset_flag_done(self) {
        // SAFETY: The object is valid.
        unsafe { bindings::sock_reset_flag(self.0.cast(), bindings::sock_flags_SOCK_DONE) };
    }

    /// The address family of the operations of the `struct socket` with which a program has the
    /// socket open; `None` without a program.
    pub(crate) fn opened_as(self) -> Option<i32> {
        let socket = field!(self, sk_socket);
        if socket.is_null() {
            return None;
        }
        // SAFETY: A `struct socket` has operations until its program has closed it. The program is
        // in a call on the socket, because only such calls use the value.
        Some(unsafe { (*(*socket).ops).family })
    }

    /// Records that a program waits until there is space to send: `wake_writer()` wakes programs
    /// only then. If `async_too`, also the programs that want SIGIO for it.
    pub(crate) fn want_space(self, async_too: bool) {
        if field!(self, sk_socket).is_null() {
            // No program waits.
            return;
        }
        // SAFETY: The object is valid. The program is in a call on the socket, so the `struct
        // socket` and its wait queue stay.
        unsafe {
            if async_too {
                bindings::sk_set_bit(bindings::SDP_CONST_ASYNC_NOSPACE, self.as_ptr().cast());
            }
            bindings::set_nospace(self.as_ptr().cast());
        }
    }

    /// Detaches the socket from its program, if it had one, and frees its IPsec policies.
    pub(crate) fn orphan(self) {
        // SAFETY: The object is valid; the policies are freed once.
        unsafe {
            bindings::sock_orphan(self.as_ptr().cast());
            bindings::xfrm_sk_free_policy(self.as_ptr().cast());
        }
    }

    /// Whether no program holds the socket any more.
    pub(crate) fn is_orphan(self) -> bool {
        self.has_flag(bindings::sock_flags_SOCK_DEAD)
    }

    pub(crate) fn reuse(self) -> bool {
        // SAFETY: The bit-field is read as the core does.
        unsafe { (*self.0).__sk_common.skc_reuse() != 0 }
    }

    pub(crate) fn reuseport(self) -> bool {
        // SAFETY: As above.
        unsafe { (*self.0).__sk_common.skc_reuseport() != 0 }
    }

    pub(crate) fn v6only(self) -> bool {
        // SAFETY: The object is valid.
        unsafe { bindings::ipv6_only_sock(self.0.cast()) }
    }

    /// Binds the socket to the interface of a link-local address, if it is not bound to one.
    pub(crate) fn bind_to_link(self, dev: i32) {
        if self.bound_dev() == 0 {
            set_field!(self, dev, __sk_common.skc_bound_dev_if);
        }
    }

    pub(crate) fn bound_dev(self) -> i32 {
        field!(self, __sk_common.skc_bound_dev_if)
    }

    /// The VRF whose ports the socket uses; 0 for the ports outside of every VRF.
    pub(crate) fn bound_vrf(self) -> i32 {
        // SAFETY: The object is valid.
        unsafe { bindings::inet_sk_bound_l3mdev(self.0.cast()) }
    }

    /// The owner's number on the machine, for comparisons.
    pub(crate) fn uid(self) -> u32 {
        // SAFETY: The object is valid.
        unsafe { bindings::sk_uid(self.0.cast()) }
    }

    pub(crate) fn inode(self) -> u64 {
        // SAFETY: The object is valid.
        unsafe { bindings::sock_i_ino(self.0.cast()) as u64 }
    }

    /// The number by which programs identify the socket (SO_COOKIE).
    pub(crate) fn cookie(self) -> u64 {
        let mut halves = [0u32; 2];
        // SAFETY: The object is valid; the array has two elements.
        unsafe { bindings::sock_diag_save_cookie(self.0, halves.as_mut_ptr()) };
        let [low, high] = halves;
        u64::from(high) << 32 | u64::from(low)
    }

    pub(crate) fn linger(self) -> Option<u64> {
        self.has_flag(bindings::sock_flags_SOCK_LINGER)
            .then(|| field!(self, sk_lingertime) as u64)
    }

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

    /// IP_TOS, or IPV6_TCLASS for a connection over IPv6; 0 if no program has set it.
    pub(crate) fn service_type(self, v4: bool) -> u8 {
        if v4 || !self.is_v6() {
            // SAFETY: The object is valid; the core also reads the field without the lock.
            unsafe { ptr::read_volatile(&raw const (*self.inet()).tos) }
        } else {
            // SAFETY: As above; every socket object of the module has an `ipv6_pinfo`.
            unsafe { ptr::read_volatile(&raw const (*(*self.inet()).pinet6).tclass) }
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

    pub(crate) fn user_locked(self, what: u32) -> bool {
        u32::from(field!(self, sk_userlocks)) & what != 0
    }

    pub(crate) fn rcvtimeo(self, nonblock: bool) -> Timeout {
        // SAFETY: The object is valid.
        Timeout::from_jiffies(unsafe { bindings::sock_rcvtimeo(self.0.cast(), nonblock) })
    }

    pub(crate) fn sndtimeo(self, nonblock: bool) -> Timeout {
        // SAFETY: The object is valid.
        Timeout::from_jiffies(unsafe { bindings::sock_sndtimeo(self.0.cast(), nonblock) })
    }

    pub(crate) fn rcvlowat(self, waitall: bool, len: usize) -> usize {
        let len = i32::try_from(len).unwrap_or(i32::MAX);
        // SAFETY: The object is valid.
        let low = unsafe { bindings::sock_rcvlowat(self.0.cast(), waitall.into(), len) };
        usize::try_from(low).unwrap_or(1)
    }

    /// Sets SO_RCVLOWAT, to half of the receive buffer at most, as `tcp_set_rcvlowat()`.
    pub(crate) fn set_rcvlowat(self, bytes: i32) {
        let most = i32::try_from(self.rcvbuf() / 2).unwrap_or(i32::MAX);
        set_field!(self, bytes.min(most).max(1), sk_rcvlowat);
    }

    /// The offset of MSG_PEEK behind the bytes that were read; `None` if it does not move
    /// (SO_PEEK_OFF).
    pub(crate) fn peek_offset(self) -> Option<usize> {
        usize::try_from(field!(self, sk_peek_off)).ok()
    }

    /// Advances the offset by `bytes` that were peeked at.
    pub(crate) fn peek_forward(self, bytes: usize) {
        // SAFETY: The object is valid.
        unsafe { bindings::sk_peek_offset_fwd(self.0.cast(), bytes.min(i32::MAX as usize) as i32) };
    }

    /// Moves the offset back by `bytes` that were read.
    pub(crate) fn peek_backward(self, bytes: usize) {
        // SAFETY: The object is valid.
        unsafe { bindings::sk_peek_offset_bwd(self.0.cast(), bytes.min(i32::MAX as usize) as i32) };
    }

    /// Resets the offset to that of a new socket: MSG_PEEK begins with the next byte to read.
    pub(crate) fn reset_peek_offset(self) {
        set_field!(self, -1, sk_peek_off);
    }

    /// Whether a poller or waiter should write: there is more than the minimum of free space.
    pub(crate) fn stream_writeable(self) -> bool {
        // SAFETY: The object is valid.
        unsafe { bindings::__sk_stream_is_writeable(self.0.cast(), 1) }
    }

    pub(crate) fn stream_memory_free(self) -> bool {
        // SAFETY: The object is valid.
        unsafe { bindings::sk_stream_memory_free(self.0.cast()) }
    }

    /// Sets the callbacks of a new socket. A user of the socket in the kernel may replace them with
    /// functions of its own.
    pub(crate) fn set_callbacks(self) {
        // SAFETY: The object is valid, and nothing else uses the new socket yet.
        unsafe {
            (*self.0).sk_data_ready = Some(data_ready);
            (*self.0).sk_write_space = Some(write_space);
            (*self.0).sk_state_change = Some(state_change);
        }
    }

    /// Calls `sk_data_ready`, which wakes threads that wait for data, an end or an error to read;
    /// of the exclusive waiters, one.
    pub(crate) fn wake_reader(self) {
        if let Some(data_ready) = field!(self, sk_data_ready) {
            // SAFETY: The object is valid. The core calls the function in the same contexts, for
            // sockets of TCP.
            unsafe { data_ready(self.0) };
        }
    }

    /// Wakes all threads that wait for connections of a listener, including the exclusive waiters,
    /// with one event for each poller. Does not call `sk_data_ready`: a user in the kernel gets
    /// each connection by SDP through [`Sk::wake_reader`], and none by TCP.
    pub(crate) fn wake_readers(self) {
        self.wake_to_read(ALL);
    }

    fn wake_to_read(self, exclusive: i32) {
        use bindings as b;
        self.wake(
            exclusive,
            b::SDP_CONST_EPOLLIN
                | b::SDP_CONST_EPOLLPRI
                | b::SDP_CONST_EPOLLRDNORM
                | b::SDP_CONST_EPOLLRDBAND,
        );
        // SAFETY: The object is valid.
        unsafe { b::sk_wake_async(self.0.cast(), b::SOCK_WAKE_WAITD as i32, b::POLL_IN as i32) };
    }

    /// Sends SIGURG to the process that the program has named (F_SETOWN).
    pub(crate) fn send_sigurg(self) {
        // SAFETY: The object is valid, and the caller holds the lock, which keeps `sk_socket`.
        unsafe { bindings::sk_send_sigurg(self.0) };
    }

    /// Whether urgent data is an ordinary part of the stream (SO_OOBINLINE).
    pub(crate) fn is_oob_inline(self) -> bool {
        self.has_flag(bindings::sock_flags_SOCK_URGINLINE)
    }

    /// Calls `sk_write_space`, which wakes threads that wait for space to write; `false` if no
    /// thread waits.
    pub(crate) fn wake_writer(self) -> bool {
        // SAFETY: The object is valid, and the caller holds the lock, which keeps `sk_socket`.
        if field!(self, sk_socket).is_null() || !unsafe { bindings::test_nospace(self.0.cast()) } {
            return false;
        }
        if let Some(write_space) = field!(self, sk_write_space) {
            // SAFETY: As in `wake_reader`.
            unsafe { write_space(self.0) };
        }
        true
    }

    /// Calls `sk_state_change`, which wakes all threads after a change of state, including the
    /// exclusive waiters.
    pub(crate) fn wake_all(self) {
        if let Some(state_change) = field!(self, sk_state_change) {
            // SAFETY: As in `wake_reader`.
            unsafe { state_change(self.0) };
        }
    }

    /// Sends SIGIO for the end of the set-up of a connection, if the program wants it.
    pub(crate) fn signal_connected(self) {
        use bindings as b;
        // SAFETY: The object is valid.
        unsafe { b::sk_wake_async(self.0.cast(), b::SOCK_WAKE_IO as i32, b::POLL_OUT as i32) };
    }

    /// Sends SIGIO for the end of the peer's half of the stream, if the program wants it: as
    /// `tcp_fin()`, with POLL_HUP only if both halves have ended.
    pub(crate) fn signal_end(self) {
        use bindings as b;
        let both = field!(self, sk_shutdown) == b::SHUTDOWN_MASK as u8
            || u32::from(self.state()) == b::TCP_CLOSE;
        let band = if both { b::POLL_HUP } else { b::POLL_IN };
        // SAFETY: The object is valid.
        unsafe { b::sk_wake_async(self.0.cast(), b::SOCK_WAKE_WAITD as i32, band as i32) };
    }

    /// Calls `sk_error_report`, which wakes threads that wait for an error, and sends SIGIO.
    pub(crate) fn report_error(self) {
        // SAFETY: The object is valid, and has the callback of `sock_init_data()` or that of a user
        // in the kernel.
        unsafe { bindings::sk_error_report(self.0) };
    }

    /// Wakes threads that wait in a system call, for an event that is not visible to programs.
    /// epoll would interpret a wake-up without a key as any event, and report the present events as
    /// a new edge; so the key is an event that no socket reports, and that epoll and io_uring do
    /// not add to the events that programs ask for. (io_uring adds EPOLLNVAL.)
    pub(crate) fn wake_waiters(self) {
        self.wake(ALL, bindings::SDP_CONST_EPOLLMSG);
    }

    /// Wakes threads that wait for one of `events`: all non-exclusive waiters, and as many
    /// exclusive ones as `exclusive` says.
    fn wake(self, exclusive: i32, events: u32) {
        let guard = rcu::read_lock();
        // SAFETY: The object is valid, and RCU keeps its wait queue.
        unsafe {
            let queue = bindings::sk_wq_rcu(self.0.cast());
            if bindings::skwq_has_sleeper(queue) {
                bindings::__wake_up(
                    &raw mut (*queue).wait,
                    bindings::SDP_CONST_TASK_NORMAL,
                    exclusive,
                    ptr::without_provenance_mut(events as usize),
                );
            }
        }
        drop(guard);
    }

    /// Reserves memory for `bytes` to send; `false` if there is none.
    pub(crate) fn wmem_schedule(self, bytes: u32) -> bool {
        // SAFETY: The object is valid, and the caller holds the lock.
        unsafe { bindings::sk_wmem_schedule(self.0.cast(), bytes as i32) }
    }

    /// Whether the socket has its own page for copies; the caller holds the lock.
    pub(crate) fn has_page_frag(self) -> bool {
        !field!(self, sk_frag.page).is_null()
    }

    /// Reserves memory for up to `bytes` to send; returns for how many. As TCP
    /// (`tcp_wmem_schedule()`): the first [`LEAST_BYTES`] in the send buffer are always admitted,
    /// so that a socket which poll() reports as writable really is.
    pub(crate) fn wmem_admit(self, bytes: u32) -> u32 {
        if self.wmem_schedule(bytes) {
            return bytes;
        }
        let least = LEAST_BYTES.saturating_sub(self.wmem_queued());
        let bytes = bytes.min(least);
        if bytes > 0 && self.wmem_force(bytes) {
            bytes
        } else {
            0
        }
    }

    /// As `sk_forced_mem_schedule()`, which is not exported: if the send buffer of a socket is
    /// full, the core admits the bytes and charges them to the control group. So this function
    /// makes the buffer appear full during the call.
    fn wmem_force(self, bytes: u32) -> bool {
        let locks = field!(self, sk_userlocks);
        let sndbuf = field!(self, sk_sndbuf);
        set_field!(self, locks | bindings::SOCK_SNDBUF_LOCK as u8, sk_userlocks);
        set_field!(self, self.wmem_queued() as i32 + 1, sk_sndbuf);
        let admitted = self.wmem_schedule(bytes);
        set_field!(self, sndbuf, sk_sndbuf);
        set_field!(self, locks, sk_userlocks);
        // poll(), which takes no lock, may have seen the full buffer.
        if self.stream_writeable() {
            self.wake_writer();
        }
        admitted
    }

    /// Frees the page into which the socket copies, as `tcp_disconnect()` does: a socket with such
    /// a page must not become a listener, because `sk_clone()` copies the pointer, and frees the
    /// page if it fails.
    pub(crate) fn free_page_frag(self) {
        // SAFETY: The object is valid; the caller holds the lock, which guards the page. The
        // pointer is null, or a page to which the socket has a reference, which is dropped once.
        unsafe {
            let frag = core::mem::take(&mut (*self.0).sk_frag);
            if !frag.page.is_null() {
                bindings::put_page(frag.page);
            }
        }
    }

    pub(crate) fn wmem_charge(self, bytes: u32) {
        // SAFETY: The object is valid, and the caller holds the lock.
        unsafe {
            bindings::sk_wmem_queued_add(self.0.cast(), bytes as i32);
            bindings::sk_mem_charge(self.0.cast(), bytes as i32);
        }
    }

    pub(crate) fn wmem_uncharge(self, bytes: u32) {
        // SAFETY: As above.
        unsafe {
            bindings::sk_wmem_queued_add(self.0.cast(), -(bytes as i32));
            bindings::sk_mem_uncharge(self.0.cast(), bytes as i32);
        }
    }

    /// Charges `bytes` of receive memory; `false` if the limits forbid it.
    pub(crate) fn rmem_charge(self, bytes: u32) -> bool {
        // SAFETY: As above.
        unsafe {
            if !bindings::sk_rmem_schedule(self.0.cast(), bytes as i32, false) {
                return false;
            }
            bindings::sk_mem_charge(self.0.cast(), bytes as i32);
            bindings::sk_rmem_alloc_add(self.0.cast(), bytes as i32);
        }
        true
    }

    pub(crate) fn rmem_uncharge(self, bytes: u32) {
        // SAFETY: As above.
        unsafe {
            bindings::sk_rmem_alloc_add(self.0.cast(), -(bytes as i32));
            bindings::sk_mem_uncharge(self.0.cast(), bytes as i32);
        }
    }

    /// The charged receive memory in bytes.
    pub(crate) fn rmem(self) -> u32 {
        // SAFETY: The object is valid.
        unsafe { bindings::sk_rmem_alloc_get(self.0.cast()).unsigned_abs() }
    }

    /// Counts one more connection in the accept queue, unless it is full.
    ///
    /// The caller holds the accept queue's lock.
    pub(crate) fn acceptq_add(self) -> bool {
        // SAFETY: The object is valid.
        unsafe {
            if bindings::sk_acceptq_is_full(self.0.cast()) {
                return false;
            }
            bindings::sk_acceptq_added(self.0.cast());
        }
        true
    }

    /// Counts one connection less. The caller holds the accept queue's lock.
    pub(crate) fn acceptq_remove(self) {
        // SAFETY: The object is valid.
        unsafe { bindings::sk_acceptq_removed(self.0.cast()) };
    }

    /// Connections in the accept queue.
    pub(crate) fn backlog(self) -> u32 {
        field!(self, sk_ack_backlog)
    }

    /// The maximum number of connections in the accept queue.
    pub(crate) fn backlog_max(self) -> u32 {
        field!(self, sk_max_ack_backlog)
    }

    pub(crate) fn set_backlog(self, backlog: i32) {
        set_field!(self, backlog.max(0).unsigned_abs(), sk_max_ack_backlog);
    }
}
