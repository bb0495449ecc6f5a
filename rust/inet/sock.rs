// SPDX-License-Identifier: GPL-2.0

//! `struct sock`: the core's state of a socket, behind methods.
//!
//! The fields used here are plain numbers and flags that the core itself reads and writes under the
//! socket lock or with READ_ONCE/WRITE_ONCE.

use core::ptr::{
    self,
    NonNull, //
};

use kernel::ffi::c_ulong;
use kernel::prelude::*;

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
/// from a table of [`super::ports::Ports`] whose lock its user holds. The value of
/// [`super::stand_ins::Connection`] is a TCP socket, which has the `ipv6_pinfo` if it is of
/// AF_INET6.
#[derive(Copy, Clone)]
pub(crate) struct Sk(*mut bindings::sock);

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

// Behind the macros, which these modules use.
pub(crate) mod addrs;
pub(crate) mod charge;
pub(crate) mod wait;
pub(crate) mod wake;

impl Sk {
    /// # Safety
    ///
    /// `sk` is a socket object of the module, or a TCP socket, that outlives the value.
    pub(crate) unsafe fn new(sk: *mut bindings::sock) -> Self {
        Self(sk)
    }

    /// Initialises the core's parts of a new or cloned socket. `pinfo6` is the memory of its IPv6
    /// part.
    ///
    /// # Safety
    ///
    /// No other thread has access to the socket, and `pinfo6` belongs to it.
    pub(crate) unsafe fn init_inet(self, pinfo6: *mut bindings::ipv6_pinfo) {
        let (sk, inet) = (self.0, self.inet());
        // SAFETY: As the caller promises. A pointer to another IPv6 part is that of the listener,
        // which the caller of the core's clone holds.
        unsafe {
            let former = (*inet).pinet6;
            ptr::write_bytes(pinfo6, 0, 1);
            (*pinfo6).hop_limit = -1;
            (*pinfo6).mcast_hops = bindings::IPV6_DEFAULT_MCASTHOPS as u8;
            (*pinfo6).pmtudisc = bindings::IPV6_PMTUDISC_WANT as u8;
            // A clone has the pointer of its listener, and gets the listener's options. What the
            // listener has in lists and buffers is not the clone's. The core has already set the
            // pointer of a new socket of AF_INET6.
            if !former.is_null() && former != pinfo6 {
                (*pinfo6).mcast_hops = (*former).mcast_hops;
                (*pinfo6).pmtudisc = (*former).pmtudisc;
                (*pinfo6).tclass = (*former).tclass;
                (*pinfo6).rxopt = (*former).rxopt;
                (*pinfo6).frag_size = (*former).frag_size;
            }
            (*inet).pinet6 = pinfo6;
            (*inet).mc_list = ptr::null_mut();
            (*inet).ipv6_fl_list = ptr::null_mut();
            (*inet).inet_opt = ptr::null_mut();
            // A clone has these values of its listener, but they are not the clone's: it has an
            // empty accept queue, no page, and a cookie of its own.
            (*sk).sk_ack_backlog = 0;
            bindings::clear_sk_cookie(sk.cast());
            (*sk).sk_frag = Default::default();
        }
    }

    /// A copy of the socket, of which the caller must initialise the parts that are not the core's.
    /// The caller has both references to the copy. `None` without memory. Sleeps.
    ///
    /// # Safety
    ///
    /// The socket has no page into which it copies ([`Sk::has_page_frag`]), and gets none during
    /// the call: `sk_clone()` copies the pointer without a reference, and puts the page if it
    /// fails.
    pub(crate) unsafe fn clone_listener(self) -> Option<NonNull<bindings::sock>> {
        // SAFETY: By the type invariant the object is valid, and by the caller's promise there is
        // no page that the function could put. TCP, too, calls it without the lock of the socket.
        let copy = unsafe { bindings::sk_clone(self.0, bindings::SDP_CONST_GFP_KERNEL, false) };
        NonNull::new(copy)
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
    pub(crate) fn arrival_time(self) -> Option<RealNs> {
        // One load for each message, as in the core's `sock_recv_cmsgs()`.
        const ASKED: c_ulong = 1 << bindings::sock_flags_SOCK_RCVTSTAMP
            | 1 << bindings::sock_flags_SOCK_TIMESTAMPING_RX_SOFTWARE;
        if field!(self, __sk_common.__bindgen_anon_5.skc_flags) & ASKED == 0 {
            return None;
        }
        real_now()
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

    /// Whether the connection is being set up.
    pub(crate) fn is_connecting(self) -> bool {
        matches!(
            self.state().into(),
            bindings::TCP_SYN_SENT | bindings::TCP_SYN_RECV
        )
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

    /// The service type of a connection: IP_TOS, or IPV6_TCLASS for a connection over IPv6. If the
    /// program has set neither of them, a service type of the priority SO_PRIORITY, because IP_TOS
    /// sets the priority, too; 0 if there is none.
    pub(crate) fn service_type(self, v4: bool) -> u8 {
        // SAFETY: The object is valid; the core also reads the field without the lock.
        let tos = unsafe { ptr::read_volatile(&raw const (*self.inet()).tos) };
        let class = if v4 || !self.is_v6() {
            tos
        } else {
            // SAFETY: As above; every socket object of the module has an `ipv6_pinfo`.
            unsafe { ptr::read_volatile(&raw const (*(*self.inet()).pinet6).tclass) }
        };
        if class == 0 && tos == 0 {
            of_priority(field!(self, sk_priority))
        } else {
            class
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

    /// Whether urgent data is an ordinary part of the stream (SO_OOBINLINE).
    pub(crate) fn is_oob_inline(self) -> bool {
        self.has_flag(bindings::sock_flags_SOCK_URGINLINE)
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

/// A service type for which the kernel, and so the RDMA CM, uses the priority (`ip_tos2prio`); 0 if
/// there is none.
fn of_priority(priority: u32) -> u8 {
    let service_type = match priority {
        bindings::TC_PRIO_BULK => bindings::IPTOS_THROUGHPUT,
        bindings::TC_PRIO_INTERACTIVE => bindings::IPTOS_LOWDELAY,
        bindings::TC_PRIO_INTERACTIVE_BULK => bindings::IPTOS_LOWDELAY | bindings::IPTOS_THROUGHPUT,
        _ => 0,
    };
    service_type as u8
}
