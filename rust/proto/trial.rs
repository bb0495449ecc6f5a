// SPDX-License-Identifier: GPL-2.0

//! Whether a connection's sends are faster by copy or without, by measurement.
//!
//! The cost of both depends on the adapter, the processor and the size of the sends, so the time
//! that the calls take decides. Sends of about one size are a class. The sends of a class go one
//! way until [`WINDOW_BYTES`] have been measured. Then the other way is tried for as long, and the
//! faster one stays. Sends without a copy may take up to [`MARGIN_PERCENT`] percent of the time of
//! sends by copy, because the processor is free while the adapter reads. The other way is tried
//! again after [`HOLD_MIN`] bytes, and each trial makes this distance [`HOLD_FACTOR`] times as
//! long, up to [`HOLD_MAX`]. A trial ends early if it takes more than [`HOPELESS`] times as long.
//!
//! The first sends after a change are not measured: sends of either way wait for the bytes that
//! were sent before the change. The first sends of a connection, and later sends by copy, seem fast
//! until the buffers of both sides are full ([`FILL_BYTES`]), so these sends are not measured
//! either.
//!
//! The time of a call is all that is known. It does not include what page faults cost later, the
//! time that a non-blocking program spends in poll(), or the work of the receiver, as far as this
//! does not slow down the sender.

/// The number of bytes by which a way is measured, at least.
pub const WINDOW_BYTES: u64 = 4 << 20;
/// The number of sends by which a way is measured, at least.
pub const WINDOW_SENDS: u32 = 8;
/// Bytes after which a trial may be given up.
pub const JUDGED_BYTES: u64 = 1 << 19;
/// The number of sends after which a trial may be given up.
pub const JUDGED_SENDS: u32 = 4;
/// A trial ends early if it takes more than this many times as long as the other way.
pub const HOPELESS: u64 = 2;
/// Bytes that the buffers of both sides hold, by default.
pub const FILL_BYTES: u64 = 4 << 20;
/// Bytes from one trial to the next.
pub const HOLD_MIN: u64 = 64 << 20;
/// The longest such distance.
pub const HOLD_MAX: u64 = 1 << 30;
/// The growth of the distance with each trial.
pub const HOLD_FACTOR: u64 = 4;
/// The distance is at least this many times the bytes that were measured.
pub const HOLD_WINDOWS: u64 = 64;
/// The time of sends without a copy in percent of the time of sends by copy, up to which they are
/// preferred.
pub const MARGIN_PERCENT: u64 = 110;

/// Sends of less than twice this size are in the first class; each further class begins at twice
/// the size of the class before it.
const FIRST_CLASS: u64 = 1 << 16;
/// The number of classes. The last one has no largest size.
const CLASSES: usize = 8;

/// A way for the bytes of a send.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// Through buffers of both sides.
    Copy,
    /// Without a copy.
    Uncopied,
}

impl Way {
    const fn other(self) -> Self {
        match self {
            Self::Copy => Self::Uncopied,
            Self::Uncopied => Self::Copy,
        }
    }
}

/// Sends, and the time that they took.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
struct Sum {
    sends: u32,
    bytes: u64,
    ns: u64,
}

impl Sum {
    /// Nanoseconds for a MiB.
    fn ns_per_mib(self) -> u64 {
        self.ns
            .saturating_mul(1 << 20)
            .checked_div(self.bytes)
            .unwrap_or(0)
    }

    fn add(&mut self, call: &Call) {
        self.sends = self.sends.saturating_add(1);
        self.bytes = self.bytes.saturating_add(call.bytes);
        self.ns = self.ns.saturating_add(call.ns);
    }

    const fn is_window(self) -> bool {
        self.bytes >= WINDOW_BYTES && self.sends >= WINDOW_SENDS
    }

    /// Whether these sends take so much longer than the other way that the trial is given up.
    fn is_hopeless(self, other_ns: u64) -> bool {
        self.bytes >= JUDGED_BYTES
            && self.sends >= JUDGED_SENDS
            && self.ns_per_mib() > other_ns.saturating_mul(HOPELESS)
    }
}

/// What the sends of a class do.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    /// They go the way that was measured to be the faster one.
    Holding,
    /// They try `way`.
    Trying,
}

/// The record of sends of about one size.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Class {
    way: Way,
    phase: Phase,
    /// The number of bytes of the connection that must have reached the peer before sends are
    /// measured.
    measured_from: u64,
    window: Sum,
    /// The time of the faster way, in nanoseconds for a MiB.
    best_ns: u64,
    /// Bytes until the next trial.
    hold_left: u64,
    next_hold: u64,
}

impl Class {
    const fn new() -> Self {
        Self {
            way: Way::Uncopied,
            phase: Phase::Holding,
            measured_from: FILL_BYTES,
            window: Sum {
                sends: 0,
                bytes: 0,
                ns: 0,
            },
            best_ns: 0,
            // The first trial comes as soon as there is something to compare with.
            hold_left: 0,
            next_hold: HOLD_MIN,
        }
    }

    fn turn(&mut self, phase: Phase, sent: u64) {
        self.way = self.way.other();
        self.phase = phase;
        self.window = Sum::default();
        self.measured_from = match self.way {
            Way::Copy => sent.saturating_add(FILL_BYTES),
            Way::Uncopied => sent,
        };
    }

    /// Sets the distance to the next trial.
    fn hold(&mut self) {
        let least = self.window.bytes.saturating_mul(HOLD_WINDOWS);
        self.hold_left = self.next_hold.max(least);
        self.next_hold = self.next_hold.saturating_mul(HOLD_FACTOR).min(HOLD_MAX);
    }

    fn on_send(&mut self, call: &Call) {
        // A call of another thread may have changed the way since this one began.
        if call.way != self.way {
            return;
        }
        if self.phase == Phase::Holding {
            self.hold_left = self.hold_left.saturating_sub(call.bytes);
        }
        if call.delivered_before < self.measured_from {
            return;
        }
        self.window.add(call);
        let (window, ns) = (self.window, self.window.ns_per_mib());
        match self.phase {
            Phase::Trying => {
                let is_bad = if window.is_window() {
                    !self.is_better(ns)
                } else {
                    window.is_hopeless(self.best_ns)
                };
                if is_bad {
                    self.hold();
                    self.turn(Phase::Holding, call.sent);
                } else if window.is_window() {
                    self.hold();
                    self.phase = Phase::Holding;
                    self.window = Sum::default();
                    self.best_ns = ns;
                }
            }
            Phase::Holding if window.is_window() => {
                self.window = Sum::default();
                self.best_ns = ns;
                if self.hold_left == 0 {
                    self.turn(Phase::Trying, call.sent);
                }
            }
            Phase::Holding => {}
        }
    }

    /// Whether the way that is tried, which takes `ns_per_mib`, shall be the new one.
    const fn is_better(&self, ns_per_mib: u64) -> bool {
        let (uncopied, copied) = match self.way {
            Way::Uncopied => (ns_per_mib, self.best_ns),
            Way::Copy => (self.best_ns, ns_per_mib),
        };
        let uncopied_is_faster =
            uncopied.saturating_mul(100) <= copied.saturating_mul(MARGIN_PERCENT);
        matches!(self.way, Way::Uncopied) == uncopied_is_faster
    }
}

/// The record of a connection's sends.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Trials([Class; CLASSES]);

impl Default for Trials {
    fn default() -> Self {
        Self::new()
    }
}

impl Trials {
    /// No sends.
    pub const fn new() -> Self {
        Self([Class::new(); CLASSES])
    }

    /// The way of a send of `send_bytes` bytes.
    pub fn way(&self, send_bytes: u64) -> Way {
        let class = self.0.get(class_of(send_bytes));
        class.map_or(Way::Uncopied, |class| class.way)
    }

    /// Records a call.
    pub fn on_send(&mut self, call: &Call) {
        if let Some(class) = self.0.get_mut(class_of(call.asked_bytes)) {
            class.on_send(call);
        }
    }
}

/// A call that has sent bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The number of bytes that it was asked to send.
    pub asked_bytes: u64,
    /// The number of bytes that it has sent.
    pub bytes: u64,
    /// Their way.
    pub way: Way,
    /// The time that it took, in nanoseconds.
    pub ns: u64,
    /// The number of bytes that the connection has sent, these included.
    pub sent: u64,
    /// The number of bytes that had reached the peer when the call began.
    pub delivered_before: u64,
}

fn class_of(send_bytes: u64) -> usize {
    let doublings = (send_bytes / FIRST_CLASS).checked_ilog2().unwrap_or(0);
    usize::try_from(doublings).map_or(CLASSES, |class| class.min(CLASSES.saturating_sub(1)))
}
