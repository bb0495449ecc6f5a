// SPDX-License-Identifier: GPL-2.0

//! What a test can break on purpose, to see that it is needed.

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
    /// Snapshots of the same page are taken one after the other.
    Turn = 128,
    /// No rule: a snapshot takes its next step at once.
    AtOnce = 256,
}

impl Rule {
    /// Whether the rule is to be broken.
    pub(crate) fn is_broken(self) -> bool {
        cfg!(CONFIG_DEBUG_VM) && super::sdp_break.value() & self as i32 != 0
    }
}
