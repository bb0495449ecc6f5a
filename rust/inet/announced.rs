// SPDX-License-Identifier: GPL-2.0

//! The loopback connections of a network namespace that are being set up.
//!
//! Each has a random number, by which the listening side of the module recognizes it in the Hello.

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
        // If two connections get the same number, with a probability of 2^-63, the listener refuses
        // the first one.
        self.table.lock().insert(node);
        Ok(nonce)
    }

    /// The connection announced under this number. It can be claimed more than once, because a
    /// dropped request is repeated.
    pub(crate) fn claim(&self, nonce: u64) -> Option<Ends> {
        self.table.lock().get(&nonce).copied()
    }

    /// Removes an announcement; the number 0 stands for none.
    pub(crate) fn retire(&self, nonce: u64) {
        if nonce != 0 {
            self.table.lock().remove(&nonce);
        }
    }
}
