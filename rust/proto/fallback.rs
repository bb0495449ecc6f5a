// SPDX-License-Identifier: GPL-2.0

//! When asynchronous sends do not pay.
//!
//! A page that the program touches while it is being sent costs a fault, and a
//! copy or a wait: more than was saved. AZ-SDP (Balaji et al., CAC 2006) falls
//! back to synchronous sends when there are many such faults.
//!
//! Here the share of touched pages over the last transfers decides, each of
//! them counting for 7/8 of the next one. Above [`OFF_PERCENT`] sends are
//! synchronous for a pause. Then they are tried again, for the program may be
//! in another phase; if that goes wrong, too, the next pause is twice as long.
//! Only when the share is at most [`ON_PERCENT`] is the pause short again. The
//! gap between the two is what keeps a program at the limit from going back and
//! forth: between them nothing changes.

/// The share of touched pages above which asynchronous sends pause.
pub const OFF_PERCENT: u64 = 25;
/// The share of touched pages up to which all is well.
pub const ON_PERCENT: u64 = 10;
/// Transfers before the first verdict.
pub const SAMPLE: u8 = 8;
/// Other sends in the first pause.
pub const PAUSE_MIN: u32 = 64;
/// Other sends in the longest pause.
pub const PAUSE_MAX: u32 = 1 << 14;

/// The record of a connection's asynchronous sends.
///
/// # Invariants
///
/// `touched <= pages`. `PAUSE_MIN <= next_pause <= PAUSE_MAX`, and `pause_left`
/// is at most [`PAUSE_MAX`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Fallback {
    /// Pages of the last transfers, in 1/256, fading.
    pages: u64,
    /// Those of them that were touched.
    touched: u64,
    /// Transfers since the last pause, up to [`SAMPLE`].
    transfers: u8,
    pause_left: u32,
    next_pause: u32,
}

impl Default for Fallback {
    fn default() -> Self {
        Self::new()
    }
}

impl Fallback {
    /// No transfers.
    pub const fn new() -> Self {
        Self {
            pages: 0,
            touched: 0,
            transfers: 0,
            pause_left: 0,
            next_pause: PAUSE_MIN,
        }
    }

    /// Takes note of an asynchronous transfer of `pages` pages, `touched_pages`
    /// of which the program has copied or waited for. One that ends during a
    /// pause was started before, and has had its verdict.
    pub fn on_transfer(&mut self, pages: u32, touched_pages: u32) {
        if !self.may_go_async() {
            return;
        }
        // INVARIANT: no more can be touched than there are, and both fade
        // alike.
        self.pages = fade(self.pages, pages);
        self.touched = fade(self.touched, touched_pages.min(pages));
        self.transfers = self.transfers.saturating_add(1).min(SAMPLE);
        if self.transfers < SAMPLE {
            return;
        }
        let percent = |share| self.pages.saturating_mul(share);
        let touched = self.touched.saturating_mul(100);
        if touched > percent(OFF_PERCENT) {
            let pause = self.next_pause;
            // INVARIANT: the next pause is bounded.
            *self = Self {
                pause_left: pause,
                next_pause: pause.saturating_mul(2).min(PAUSE_MAX),
                ..Self::new()
            };
        } else if touched <= percent(ON_PERCENT) {
            self.next_pause = PAUSE_MIN;
        }
    }

    /// Takes note of a send that would have been asynchronous but for the
    /// pause.
    pub fn on_other_path(&mut self) {
        self.pause_left = self.pause_left.saturating_sub(1);
    }

    /// Whether sends may be asynchronous.
    pub const fn may_go_async(&self) -> bool {
        self.pause_left == 0
    }
}

fn fade(sum: u64, new: u32) -> u64 {
    let rest = sum.saturating_sub(sum.div_ceil(8));
    rest.saturating_add(u64::from(new).saturating_mul(256))
}
