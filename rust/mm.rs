// SPDX-License-Identifier: GPL-2.0

//! Memory: page fragments that carry the bytes of a stream, and pages of programs, pinned or as they were.

use kernel::alloc::AllocError;
use kernel::prelude::*;

use crate::proto::choice::Reason;

/// The rules of page protection that a test can break, as bits of the parameter `sdp_break`.
#[derive(Copy, Clone)]
pub(crate) enum Rule {
    /// No processor keeps what an entry said before.
    Flush = 1,
    /// Only what is the program's alone may be written to again.
    Exclusive = 2,
    /// What the program has made of its memory area since decides.
    Area = 4,
    /// Who touches a page whose bytes are on their way waits for them.
    Touch = 8,
    /// Who copies or moves its mapping does, too.
    Move = 16,
    /// A page whose later bytes are on their way is not given back for former ones.
    Later = 32,
    /// No rule: pages that have been received into are soon given back.
    Soon = 64,
}

/// Why memory is not protected.
pub(crate) enum Refused {
    /// It cannot be.
    Unfit(Reason),
    /// Something went wrong.
    Error(Error),
}

impl From<Error> for Refused {
    fn from(e: Error) -> Self {
        Self::Error(e)
    }
}

impl From<AllocError> for Refused {
    fn from(e: AllocError) -> Self {
        Self::Error(e.into())
    }
}

impl From<Reason> for Refused {
    fn from(why: Reason) -> Self {
        Self::Unfit(why)
    }
}

pub(crate) mod absent;
mod age;
mod cover;
pub(crate) mod frag;
pub(crate) mod memory;
pub(crate) mod pin;
mod pte;
pub(crate) mod queue;
mod ranges;
mod sent;
pub(crate) mod snapshot;
mod space;
mod turn;
pub(crate) mod user;
pub(crate) mod watch;
