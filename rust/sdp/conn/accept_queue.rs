// SPDX-License-Identifier: GPL-2.0

//! What a listener has of connections. [`accept`](crate::sdp::cm::accept) has what is done with it.

use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::time::{
    Instant,
    Monotonic, //
};

use super::sock::{
    SdpSock,
    Want, //
};
use crate::inet::sock::Sk;

/// A connection that is being set up and has a place in the backlog.
pub(in crate::sdp) struct HalfOpen {
    pub(in crate::sdp) child: ARef<SdpSock>,
    /// When its worker has begun to answer. Before, nobody else may end it.
    pub(in crate::sdp) since: Option<Instant<Monotonic>>,
}

/// When others may have the place of a half-open connection: an honest peer has completed it by then.
/// As long as TCP waits for an answer before it asks again (`TCP_TIMEOUT_INIT`).
const OLD_MS: i64 = 1000;

/// What a listener has of connections: those that are established and wait for accept(), and those
/// that will.
///
/// The core counts the places of the backlog (`sk_ack_backlog`): one for each that is ready or
/// half-open.
pub(crate) struct AcceptQueue {
    /// In their order, as the others.
    pub(in crate::sdp) ready: KVec<ARef<SdpSock>>,
    pub(in crate::sdp) half_open: KVVec<HalfOpen>,
    /// Requests for which there was no place, where the peer does not ask again.
    pub(in crate::sdp) parked: KVec<ARef<SdpSock>>,
    /// The listener takes no more.
    pub(in crate::sdp) closed: bool,
}

/// What a listener had that listens no more.
pub(in crate::sdp) struct Closed {
    /// To be aborted.
    pub(in crate::sdp) ready: KVec<ARef<SdpSock>>,
    /// They end by themselves; to be dropped when the queue is unlocked.
    pub(in crate::sdp) half_open: KVVec<HalfOpen>,
}

impl AcceptQueue {
    pub(crate) const fn new() -> Self {
        Self {
            ready: KVec::new(),
            half_open: KVVec::new(),
            parked: KVec::new(),
            closed: true,
        }
    }

    /// Whether accept() would return at once.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    pub(crate) fn open(&mut self) {
        self.closed = false;
    }

    /// Ends the queue of `listener`. What is parked ends by itself.
    pub(in crate::sdp) fn close(&mut self, listener: Sk) -> Closed {
        self.closed = true;
        for parked in &self.parked {
            parked.want(Want::Accept);
        }
        let closed = Closed {
            ready: core::mem::replace(&mut self.ready, KVec::new()),
            half_open: core::mem::replace(&mut self.half_open, KVVec::new()),
        };
        for _ in 0..closed.ready.len() + closed.half_open.len() {
            listener.acceptq_remove();
        }
        closed
    }

    pub(in crate::sdp) fn parked(&self, child: &SdpSock) -> Option<usize> {
        self.parked.iter().position(|c| core::ptr::eq(&**c, child))
    }

    pub(in crate::sdp) fn half_open(&self, child: &SdpSock) -> Option<usize> {
        let is_it = |h: &HalfOpen| core::ptr::eq(&*h.child, child);
        self.half_open.iter().position(is_it)
    }

    /// The child uses a place that was counted for it.
    pub(in crate::sdp) fn seat(&mut self, listener: Sk, child: ARef<SdpSock>) -> Result {
        let since = None;
        let seated = self.half_open.push(HalfOpen { child, since }, GFP_KERNEL);
        if seated.is_err() {
            listener.acceptq_remove();
        }
        Ok(seated?)
    }

    /// Takes the place of the half-open connection that was answered first, if that is long ago. What is
    /// returned must be ended.
    pub(in crate::sdp) fn evict(&mut self) -> Option<ARef<SdpSock>> {
        // Those behind were answered later, but for some that their workers had to wait for.
        let at = self.half_open.iter().position(|h| h.since.is_some())?;
        let since = self.half_open.get(at)?.since?;
        if since.elapsed().as_millis() < OLD_MS {
            return None;
        }
        self.half_open.remove(at).ok().map(|old| old.child)
    }

    /// Gives places that are free to those who are parked.
    pub(in crate::sdp) fn fill_places(&mut self, listener: Sk) {
        while !self.closed && !self.parked.is_empty() && listener.acceptq_add() {
            let Some(child) = self.parked.first().cloned() else {
                return;
            };
            if self.seat(listener, child).is_err() {
                return;
            }
            if let Ok(child) = self.parked.remove(0) {
                child.want(Want::Accept);
            }
        }
    }
}

/// Requests of a listener that are parked, at most.
pub(in crate::sdp) const PARKED_MAX: usize = 128;
