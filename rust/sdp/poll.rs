// SPDX-License-Identifier: GPL-2.0

//! poll(): the events that TCP would report for a socket in the same state.

use super::conn::sock::SdpSock;
use crate::bindings as b;
use crate::kern::barrier::{
    smp_mb,
    smp_rmb, //
};

const IN: u32 = b::SDP_CONST_EPOLLIN | b::SDP_CONST_EPOLLRDNORM;
const OUT: u32 = b::SDP_CONST_EPOLLOUT | b::SDP_CONST_EPOLLWRNORM;

/// The events of a socket, read without the lock. Code that changes one of them wakes the poller
/// afterwards. `wanted` contains the events that the program has asked for.
pub(crate) fn events(sock: &SdpSock, wanted: u32) -> u32 {
    // The poller must not have to wait until a sleeping reader is scheduled.
    sock.leave_to_bh();
    let sk = sock.sk();
    let state = u32::from(sk.state());
    if state == b::TCP_LISTEN {
        let queue = sock.accepts.lock();
        return if queue.is_ready() { IN } else { 0 };
    }
    let mut mask = 0;
    let shutdown = sk.shutdown();
    // The end of the stream comes after the bytes that the peer has advertised.
    let ended = !sock.glance.coming.get();
    if ended && (shutdown == b::SHUTDOWN_MASK || state == b::TCP_CLOSE) {
        mask |= b::SDP_CONST_EPOLLHUP;
    }
    if ended && shutdown & b::RCV_SHUTDOWN != 0 {
        mask |= IN | b::SDP_CONST_EPOLLRDHUP;
    }
    if state != b::TCP_SYN_SENT && state != b::TCP_SYN_RECV {
        if sock.has_input() {
            mask |= IN;
        } else if wanted & IN != 0 {
            sock.note_poller();
        }
        mask |= writable(sock, shutdown);
        if sock.glance.urgent.get() {
            mask |= b::SDP_CONST_EPOLLPRI;
        }
    }
    // Read after the state and the shutdown, which are set after the error. Pairs with the barrier
    // in `Sk::set_err()`.
    smp_rmb();
    if sk.err() != 0 || sk.has_notifications() {
        mask |= b::SDP_CONST_EPOLLERR;
    }
    mask
}

fn writable(sock: &SdpSock, shutdown: u32) -> u32 {
    let sk = sock.sk();
    let writable = || sock.has_space() && !sock.glance.advertising.get();
    if shutdown & b::SEND_SHUTDOWN != 0 || writable() {
        return OUT;
    }
    sk.want_space(true);
    // Space that became free before this is not reported: so check again below.
    smp_mb();
    if writable() {
        OUT
    } else {
        0
    }
}
