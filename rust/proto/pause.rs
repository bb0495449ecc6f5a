// SPDX-License-Identifier: GPL-2.0

//! When asynchronous sends are not worth their cost.
//!
//! A page that the program touches while it is being sent costs a fault, and a copy or a wait: more
//! than the send has saved. AZ-SDP (Balaji et al., CAC 2006) falls back to synchronous sends when
//! there are many such faults.
//!
//! Here the share of touched pages over the last transfers decides; each transfer has 7/8 of the
//! weight of the next one. Above [`OFF_PERCENT`] sends are synchronous for a pause. Then they are
//! tried again, because the program may be in another phase; if the share is too high again, the
//! next pause is twice as long. The pause becomes short again only when the share is at most
//! [`ON_PERCENT`]. In the gap between both limits nothing changes, so a program at the limit does
//! not alternate.
//!
//! The same rule decides about receives that return before their bytes have arrived. The share is
//! then that of touched pages, or that of receives that were not worth their cost.

/// The share of touched pages, or of costly receives, above which asynchronous transfers pause.
pub const OFF_PERCENT: u64 = 25;
/// The share of them up to which the pause is reset.
pub const ON_PERCENT: u64 = 10;
/// The number of transfers before the first decision.
pub const SAMPLE: u8 = 8;
/// The number of receives before the first decision, if they gave the program almost no time.
pub const IDLE_SAMPLE: u8 = 2;
/// The number of other sends in the first pause.
pub const PAUSE_MIN: u32 = 64;
/// The number of other sends in the longest pause.
pub const PAUSE_MAX: u32 = 1 << 14;

/// The record of a connection's asynchronous sends or receives, and the pause that follows from it.
///
/// # Invariants
///
/// `costly <= units`. `PAUSE_MIN <= next_pause <= PAUSE_MAX`, and `pause_left`
/// is at most [`PAUSE_MAX`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pause {
    /// Units of the last transfers (pages or receives), in 1/256, with decreasing weight.
    units: u64,
    /// Those of these units that cost more than they saved.
    costly: u64,
    /// The number of transfers since the last pause, by their weight, up to [`SAMPLE`].
    transfers: u8,
    pause_left: u32,
    next_pause: u32,
}

impl Default for Pause {
    fn default() -> Self {
        Self::new()
    }
}

impl Pause {
    /// No transfers.
    pub const fn new() -> Self {
        Self {
            units: 0,
            costly: 0,
            transfers: 0,
            pause_left: 0,
            next_pause: PAUSE_MIN,
        }
    }

    /// Records an asynchronous transfer of `pages` pages, of which `touched_pages` were copied or
    /// waited for. A transfer that ends during a pause is not recorded: it began before the pause.
    pub fn on_transfer(&mut self, pages: u32, touched_pages: u32) {
        self.record(pages, touched_pages, 1);
    }

    /// Records a receive that returned before its bytes had arrived.
    pub fn on_receive(&mut self, overlap: Overlap) {
        match overlap {
            Overlap::Enough => self.record(1, 0, 1),
            Overlap::Little => self.record(1, 1, 1),
            // Few receives decide only if no other one was worth its cost.
            Overlap::None if self.costly == self.units => self.record(1, 1, SAMPLE / IDLE_SAMPLE),
            Overlap::None => self.record(1, 1, 1),
        }
    }

    /// Records a transfer of `units`, of which `costly` cost more than they saved. The transfer
    /// counts as much as `transfers` of them for the first decision.
    fn record(&mut self, units: u32, costly: u32, transfers: u8) {
        if !self.may_go_async() {
            return;
        }
        // INVARIANT: at most all units are costly, and both numbers decrease alike.
        self.units = fade(self.units, units);
        self.costly = fade(self.costly, costly.min(units));
        self.transfers = self.transfers.saturating_add(transfers).min(SAMPLE);
        if self.transfers < SAMPLE {
            return;
        }
        let percent = |share| self.units.saturating_mul(share);
        let costly = self.costly.saturating_mul(100);
        if costly > percent(OFF_PERCENT) {
            let pause = self.next_pause;
            // INVARIANT: the next pause is bounded.
            *self = Self {
                pause_left: pause,
                next_pause: pause.saturating_mul(2).min(PAUSE_MAX),
                ..Self::new()
            };
        } else if costly <= percent(ON_PERCENT) {
            self.next_pause = PAUSE_MIN;
        }
    }

    /// Records a send that was not asynchronous because of the pause.
    pub fn on_other_path(&mut self) {
        self.pause_left = self.pause_left.saturating_sub(1);
    }

    /// Whether sends may be asynchronous.
    pub const fn may_go_async(&self) -> bool {
        self.pause_left == 0
    }
}

/// How much time of its own a receive gave the program that returned before its bytes had arrived.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Overlap {
    /// At least as much as the receive cost.
    Enough,
    /// Less.
    Little,
    /// Almost none: the program waited for the bytes.
    None,
}

impl Overlap {
    /// `gained_ns` is the time that the program had for itself until the bytes had arrived,
    /// `taking_ns` the time that the call took to take the pages.
    pub const fn of(gained_ns: u64, taking_ns: u64) -> Self {
        // To give the pages back takes about as long again.
        if gained_ns >= taking_ns.saturating_mul(2) {
            Self::Enough
        } else if gained_ns >= taking_ns / 4 {
            Self::Little
        } else {
            Self::None
        }
    }
}

fn fade(sum: u64, new: u32) -> u64 {
    let rest = sum.saturating_sub(sum.div_ceil(8));
    rest.saturating_add(u64::from(new).saturating_mul(256))
}
