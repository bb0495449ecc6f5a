// SPDX-License-Identifier: GPL-2.0

//! Trace events (`Documentation/tracing.rst`). A disabled event costs a single no-op instruction.

use crate::bindings;
use crate::inet::addr::Addr;
use crate::inet::sock::Sk;
use crate::proto::bsdh::Bsdh;
use crate::proto::choice::Reason;
use crate::proto::state::State;

/// Runs the block if the event is enabled.
macro_rules! if_on {
    ($event:path, $then:block) => {
        // SAFETY: The event is static, and any code may read it.
        let is_on = unsafe {
            kernel::jump_label::static_branch_unlikely!(
                $event,
                kernel::bindings::tracepoint,
                key
            )
        };
        if is_on $then
    };
}

/// The state of a connection has changed.
#[inline(always)]
pub(crate) fn state(sk: Sk, peer: &Addr, from: State, to: State) {
    if_on!(bindings::__tracepoint_sdp_state, {
        let local = sk.bound_addr();
        // SAFETY: The addresses are valid, 16 bytes each.
        unsafe {
            bindings::rust_do_trace_sdp_state(
                sk.cookie(),
                local.ip.as_ptr(),
                local.port,
                peer.ip.as_ptr(),
                peer.port,
                from as u8,
                to as u8,
            );
        }
    });
}

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident, $event:ident, $call:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name(sk: Sk, header: &Bsdh, payload: u32, credits: u32) {
            if_on!(bindings::$event, {
                // SAFETY: The function takes numbers only.
                unsafe {
                    bindings::$call(
                        sk.cookie(),
                        header.mid.wire(),
                        header.mseq,
                        header.mseq_ack,
                        header.bufs.into(),
                        payload,
                        credits,
                    );
                }
            });
        }
    )*};
}

messages! {
    /// A message is posted; `credits` are left afterwards.
    sent, __tracepoint_sdp_send, rust_do_trace_sdp_send;
    /// A message has arrived; `credits` are left afterwards.
    received, __tracepoint_sdp_receive, rust_do_trace_sdp_receive;
}

/// The content of an event about an advert.
#[derive(Copy, Clone)]
pub(crate) struct Advert {
    /// Whether the advert is a sink advert, to whose memory the other side writes. The other side
    /// reads the memory of a source advert.
    pub(crate) sink: bool,
    /// The size of the advert in bytes.
    pub(crate) len: u32,
    /// The number of bytes that were read or written.
    pub(crate) bytes: u32,
}

macro_rules! adverts {
    ($($(#[$doc:meta])* $name:ident, $event:ident, $call:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name(sk: Sk, advert: Advert) {
            if_on!(bindings::$event, {
                // SAFETY: The function takes numbers only.
                unsafe { bindings::$call(sk.cookie(), advert.sink, advert.len, advert.bytes) };
            });
        }
    )*};
}

adverts! {
    /// This side has sent an advert.
    advert_posted, __tracepoint_sdp_advert_posted, rust_do_trace_sdp_advert_posted;
    /// A Read of an advert of the peer has finished: `len` and `bytes` are those of the Read.
    advert_read, __tracepoint_sdp_advert_read, rust_do_trace_sdp_advert_read;
    /// The peer has read an advert of this side completely, or has written to it.
    advert_completed, __tracepoint_sdp_advert_completed, rust_do_trace_sdp_advert_completed;
    /// An advert of this side has ended otherwise: it was taken back, the peer has sent its bytes
    /// by another path, or the connection has ended.
    advert_cancelled, __tracepoint_sdp_advert_cancelled, rust_do_trace_sdp_advert_cancelled;
}

/// Pages of a program from `addr` on were protected, for a send or for a `receive`. `protected`
/// counts only the pages that could be protected.
#[inline(always)]
pub(crate) fn protect(addr: usize, receive: bool, pages: usize, protected: impl Fn() -> usize) {
    if_on!(bindings::__tracepoint_sdp_protect, {
        // SAFETY: The function takes numbers only.
        unsafe {
            bindings::rust_do_trace_sdp_protect(addr, receive, pages as u32, protected() as u32);
        }
    });
}

/// Protected pages from `addr` on were released: the program has touched `touched` of them before,
/// and may touch `restored` of them without a fault.
#[inline(always)]
pub(crate) fn restore(addr: usize, receive: bool, pages: usize, touched: usize, restored: usize) {
    if_on!(bindings::__tracepoint_sdp_restore, {
        // SAFETY: The function takes numbers only.
        unsafe {
            bindings::rust_do_trace_sdp_restore(
                addr,
                receive,
                pages as u32,
                touched as u32,
                restored as u32,
            );
        }
    });
}

/// The current thread waits, because the page at `addr` is protected.
#[inline(always)]
pub(crate) fn fault(addr: usize, receive: bool) {
    if_on!(bindings::__tracepoint_sdp_fault, {
        // SAFETY: The function takes numbers only.
        unsafe { bindings::rust_do_trace_sdp_fault(addr, receive) };
    });
}

/// Bytes do not go the preferred way: for example, a send goes by copy, or a receive waits in its
/// call.
#[inline(always)]
pub(crate) fn by_copy(sk: Sk, why: Reason) {
    if_on!(bindings::__tracepoint_sdp_by_copy, {
        // SAFETY: The function takes numbers only.
        unsafe { bindings::rust_do_trace_sdp_by_copy(sk.cookie(), why as u8) };
    });
}
