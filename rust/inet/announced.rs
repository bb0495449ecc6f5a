// SPDX-License-Identifier: GPL-2.0

//! The connections to loopback of a network namespace that are being set up.
//!
//! Each is under a random number, which the peer's side of the module finds in the Hello.

use kernel::prelude::*;
use kernel::rbtree::{
    RBTree,
    RBTreeNode, //
};
use kernel::sync::{
    new_mutex,
    Mutex, //
};

use super::addr::Addr;

/// The addresses of a connection.
#[derive(Copy, Clone)]
pub(crate) struct Ends {
    pub(crate) from: Addr,
    pub(crate) to: Addr,
}

/// The announced connections, by their numbers.
#[pin_data]
pub(crate) struct Announced {
    #[pin]
    table: Mutex<RBTree<u64, Ends>>,
}

impl Announced {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            table <- new_mutex!(RBTree::new(), "sdp_announced"),
        })
    }

    /// Announces a connection; returns its number, which is not 0.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn add(&self, ends: Ends) -> Result<u64> {
        // SAFETY: No precondition.
        let nonce = unsafe { kernel::bindings::get_random_u64() } | 1;
        let node = RBTreeNode::new(nonce, ends, GFP_KERNEL)?;
        // Somebody whose number came twice, in 2^63, is refused by its own listener.
        self.table.lock().insert(node);
        Ok(nonce)
    }

    /// The connection announced under this number. It can be claimed more than once, because a request
    /// that is dropped comes again.
    pub(crate) fn claim(&self, nonce: u64) -> Option<Ends> {
        self.table.lock().get(&nonce).copied()
    }

    /// Takes an announcement back; none has the number 0.
    pub(crate) fn retire(&self, nonce: u64) {
        if nonce != 0 {
            self.table.lock().remove(&nonce);
        }
    }
}
