// SPDX-License-Identifier: GPL-2.0
//! Completion queues.

use crate::abi::queue::Cqe;
use crate::memory::Memory;
use crate::ring::{Broken, Ring};

/// Which completions the guest wants to be notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Armed {
    /// Nothing.
    No,
    /// A completion with an error, or a solicited one.
    Solicited,
    /// Any completion.
    Any,
}

/// Result of [`Cq::put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The completion is in the queue.
    Quiet,
    /// The completion is in the queue, and the guest must be notified.
    Notify,
    /// The queue is full: this and all later completions are lost.
    Overflow,
    /// The queue's ring is invalid: this and all later completions are lost.
    Broken(Broken),
    /// The completion was lost after an earlier overflow, or because the ring was invalid earlier.
    Lost,
}

/// A completion queue.
pub struct Cq {
    ring: Ring,
    armed: Armed,
    broken: bool,
}

impl Cq {
    /// An empty queue.
    pub fn new(ring: Ring) -> Self {
        Self {
            ring,
            armed: Armed::No,
            broken: false,
        }
    }

    /// Adds a completion. `solicited`: it also notifies a guest that waits for solicited
    /// completions.
    pub fn put(&mut self, memory: &Memory, cqe: &Cqe, solicited: bool) -> Put {
        if self.broken {
            return Put::Lost;
        }
        let put = self.ring.put(memory, cqe);
        if put != Ok(true) {
            self.broken = true;
            return put.map_or_else(Put::Broken, |_| Put::Overflow);
        }
        let awaited = self.armed == Armed::Any || self.armed == Armed::Solicited && solicited;
        if awaited {
            self.armed = Armed::No;
            Put::Notify
        } else {
            Put::Quiet
        }
    }

    /// The guest wants to be notified. Returns whether it must be notified at once.
    ///
    /// The doorbell may arrive late: the guest has meanwhile found the queue empty and gone to
    /// sleep. A completion that was added before the doorbell arrived must wake it.
    pub fn arm(&mut self, memory: &Memory, armed: Armed) -> bool {
        if self.broken || self.ring.unread(memory) != Ok(0) {
            self.armed = Armed::No;
            return true;
        }
        self.armed = self.armed.max(armed);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Place;

    #[test]
    fn notifies_once() {
        let mut memory = Memory::default();
        memory.map_anonymous(0, 0x3000).unwrap();
        let mut cq = Cq::new(Ring::new(0, Place::Second, &[0x1000], 8, 64).unwrap());
        let cqe = Cqe::default();
        assert_eq!(cq.put(&memory, &cqe, false), Put::Quiet);
        assert!(cq.arm(&memory, Armed::Any));
        memory.store(12, 1).unwrap();
        assert!(!cq.arm(&memory, Armed::Solicited));
        assert_eq!(cq.put(&memory, &cqe, false), Put::Quiet);
        assert_eq!(cq.put(&memory, &cqe, true), Put::Notify);
        assert_eq!(cq.put(&memory, &cqe, true), Put::Quiet);
        memory.store(12, 4).unwrap();
        assert!(!cq.arm(&memory, Armed::Any));
        assert!(!cq.arm(&memory, Armed::Solicited));
        assert_eq!(cq.put(&memory, &cqe, false), Put::Notify);
        for _ in 0..7 {
            assert_eq!(cq.put(&memory, &cqe, false), Put::Quiet);
        }
        assert_eq!(cq.put(&memory, &cqe, false), Put::Overflow);
        assert_eq!(cq.put(&memory, &cqe, false), Put::Lost);
    }
}
