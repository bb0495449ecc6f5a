// SPDX-License-Identifier: GPL-2.0

//! Rules that a test can break on purpose, to verify that they are needed.

/// The rules that a test can break, most of them of page protection, as bits of the parameter
/// `sdp_break`.
#[derive(Copy, Clone)]
pub(crate) enum Rule {
    /// After the flush, no processor has a former version of the entries.
    Flush = 1,
    /// The write permission is restored only for pages that belong to the program alone.
    Exclusive = 2,
    /// The area is checked again before the write permission is restored.
    Area = 4,
    /// A thread that touches a page whose bytes are on their way waits for them.
    Touch = 8,
    /// A thread that copies or moves the mapping of such a page waits, too.
    Move = 16,
    /// A page is not given back if bytes of a later transfer are on their way to it.
    Later = 32,
    /// No rule: pages are given back soon after they were received into.
    Soon = 64,
    /// Snapshots of the same page are taken one after the other.
    Turn = 128,
    /// No rule: a snapshot takes its next step without a pause.
    AtOnce = 256,
    /// No rule: the worker of a new connection does not sleep before it answers the peer's request.
    AnswerLate = 512,
}

impl Rule {
    /// Whether the rule is to be broken.
    pub(crate) fn is_broken(self) -> bool {
        cfg!(CONFIG_DEBUG_VM) && super::sdp_break.value() & self as i32 != 0
    }
}
