// SPDX-License-Identifier: GPL-2.0

//! The fastest way for a connection's sends, by measurement.
//!
//! The cost of each way depends on the adapter, the processor and the size of the sends, so the
//! time that the calls take decides. Sends of about one size are a class, and the sends of a class
//! go one way until [`WINDOW_BYTES`] have been measured. The record of each way is an average in
//! which later measurements count more, and the sends go the way with the shortest time. Sends
//! without a copy may take up to [`MARGIN_PERCENT`] percent of the time of sends by copy, because
//! the processor is free while the adapter reads.
//!
//! All ways are tried one after the other at the beginning, the first one only for a short look
//! ([`LOOK_BYTES`]). Later, one way is tried after [`HOLD_MIN`] bytes, and each trial makes this
//! distance [`HOLD_FACTOR`] times as long, up to [`HOLD_MAX`]; a trial that has lost much puts the
//! next one off for longer ([`HOLD_LOST`]). A trial ends early if it takes more than [`HOPELESS`]
//! times as long as the fastest way.
//!
//! The first sends after a change are not measured: sends of each way wait for the bytes that were
//! sent before the change. The first sends of a connection, and later sends by copy, seem fast
//! until the buffers of both sides are full ([`FILL_BYTES`]) or the peer holds adverts
//! ([`FILL_SENDS`]), so these sends are not measured either.
//!
//! The time of calls includes the time between them, up to [`GAP_MOST`] times their own: what the
//! kernel does meanwhile for the bytes delays the program, too. The rest of a longer time between
//! calls is that of the program, and does not count. What is not known is the work of the receiver,
//! as far as this does not slow down the sender.

/// The number of bytes by which a way is measured, at least.
pub const WINDOW_BYTES: u64 = 4 << 20;
/// The number of sends by which a way is measured, at least.
pub const WINDOW_SENDS: u32 = 4;
/// Bytes after which a trial may be given up, and after which the first way is compared.
pub const LOOK_BYTES: u64 = 1 << 19;
/// The number of sends for the same, unless they have [`WINDOW_BYTES`].
pub const LOOK_SENDS: u32 = 2;
/// A trial ends early if it takes more than this many times as long as the fastest way.
pub const HOPELESS: u64 = 2;
/// The time between calls counts up to this many times the time of the calls.
pub const GAP_MOST: u64 = 8;
/// Bytes that the buffers of both sides hold, by default.
pub const FILL_BYTES: u64 = 4 << 20;
/// The number of sends after which the first sends without a copy are measured, unless the sends
/// have more than [`FILL_BYTES`].
pub const FILL_SENDS: u64 = 16;
/// Bytes from one trial to the next.
pub const HOLD_MIN: u64 = 32 << 20;
/// The longest such distance, unless a trial has lost more ([`HOLD_LOST`]).
pub const HOLD_MAX: u64 = 1 << 30;
/// The growth of the distance with each trial.
pub const HOLD_FACTOR: u64 = 2;
/// The distance is at least this many times the bytes that a trial has lost: those that the fastest
/// way would have sent meanwhile.
pub const HOLD_LOST: u64 = 64;
/// A trial loses at most this many times the bytes that it measures.
pub const LOST_MOST: u64 = 16;
/// The number of sends that may not wait, one after the other, after which the class does not go
/// synchronously any more.
pub const REFUSED_MOST: u32 = 64;
/// The time of sends without a copy in percent of the time of sends by copy, up to which they are
/// preferred.
pub const MARGIN_PERCENT: u64 = 105;

/// Sends of less than twice this size are in the first class; each further class begins at twice
/// the size of the class before it.
const FIRST_CLASS: u64 = 1 << 16;
/// The number of classes. The last one has no largest size.
const CLASSES: usize = 8;

/// A way for the bytes of a send.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum Way {
    /// Through buffers of both sides.
    Copy,
    /// Without a copy. The send waits until the adapter has read the bytes.
    Synchronous,
    /// Without a copy. The send returns while the adapter reads the bytes.
    Asynchronous,
    /// Into the buffer of a reader that waits. If none waits, as [`Self::Asynchronous`].
    Sink,
}

/// The way of the first sends.
pub const FIRST: Way = Way::Sink;
/// The ways in the order in which they are tried: each at the place of its number.
const TRIED: [Way; 4] = [Way::Copy, Way::Synchronous, Way::Asynchronous, Way::Sink];

/// Sends, and the time that they took.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
struct Sum {
    sends: u32,
    bytes: u64,
    /// The time of the calls, in nanoseconds.
    ns: u64,
    /// The time between them.
    gap_ns: u64,
}

impl Sum {
    /// The time that counts, in nanoseconds.
    fn time(self) -> u64 {
        let gap_ns = self.gap_ns.min(self.ns.saturating_mul(GAP_MOST));
        self.ns.saturating_add(gap_ns)
    }

    /// Nanoseconds for a MiB.
    fn ns_per_mib(self) -> u64 {
        self.time()
            .saturating_mul(1 << 20)
            .checked_div(self.bytes)
            .unwrap_or(0)
    }

    /// The number of bytes more that a way which takes `ns_per_mib` sends in the same time. A time
    /// of more than [`LOST_MOST`] times as long is none of the way: the reader has paused.
    fn lost_at(self, ns_per_mib: u64) -> u64 {
        let bytes = self.time().saturating_mul(1 << 20).checked_div(ns_per_mib);
        let lost = bytes.unwrap_or(0).saturating_sub(self.bytes);
        lost.min(self.bytes.saturating_mul(LOST_MOST))
    }

    fn add(&mut self, bytes: u64, times: Times) {
        self.sends = self.sends.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.ns = self.ns.saturating_add(times.call_ns);
        self.gap_ns = self.gap_ns.saturating_add(times.gap_ns);
    }

    const fn is_window(self) -> bool {
        self.bytes >= WINDOW_BYTES && self.sends >= WINDOW_SENDS
    }

    const fn is_look(self) -> bool {
        self.bytes >= LOOK_BYTES && self.sends >= LOOK_SENDS || self.bytes >= WINDOW_BYTES
    }

    /// Whether these sends take so much longer than the best way that the trial is given up.
    fn is_hopeless(self, best_ns: u64) -> bool {
        self.is_look() && is_far(self.ns_per_mib(), best_ns)
    }
}

/// What the sends of a class do.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    /// They go the way that was measured to be the fastest.
    Holding,
    /// They try a way.
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
    /// The time of each way in nanoseconds for a MiB, by its number; `None` before it was tried.
    times: [Option<u64>; TRIED.len()],
    /// The place in [`TRIED`] of the next way to try; its length at the end of a round.
    next: usize,
    /// Bytes until the next trial.
    hold_left: u64,
    next_hold: u64,
    /// The last window took much longer than the record of its way says. A reader that pauses does
    /// the same, so a second one must follow.
    is_suspect: bool,
    /// The number of sends that may not wait since the last synchronous one, while the class goes
    /// synchronously.
    refused: u32,
}

impl Class {
    const fn new() -> Self {
        Self {
            way: FIRST,
            phase: Phase::Trying,
            measured_from: 0,
            window: Sum {
                sends: 0,
                bytes: 0,
                ns: 0,
                gap_ns: 0,
            },
            times: [None; TRIED.len()],
            next: 0,
            hold_left: 0,
            next_hold: HOLD_MIN,
            is_suspect: false,
            refused: 0,
        }
    }

    /// The fastest way and its time, in nanoseconds for a MiB; `None` before the first look.
    fn best(&self) -> Option<(Way, u64)> {
        self.best_of(|_| true)
    }

    /// As [`Self::best`], of these ways.
    fn best_of(&self, admits: impl Fn(Way) -> bool) -> Option<(Way, u64)> {
        let times = TRIED.iter().zip(self.times);
        let known = times.filter_map(|(way, ns)| Some((*way, ns?)));
        // Of ways that take as long, the last one: it occupies the program the least.
        let admitted = known.filter(|(way, _)| admits(*way)).rev();
        admitted.min_by_key(|&(way, ns)| {
            ns.saturating_mul(match way {
                Way::Copy => MARGIN_PERCENT,
                Way::Synchronous | Way::Asynchronous | Way::Sink => 100,
            })
        })
    }

    fn turn(&mut self, way: Way, phase: Phase, sent: u64) {
        self.phase = phase;
        self.window = Sum::default();
        self.is_suspect = false;
        if way == self.way {
            return;
        }
        self.way = way;
        self.measured_from = match way {
            Way::Copy => sent.saturating_add(FILL_BYTES),
            Way::Synchronous | Way::Asynchronous | Way::Sink => sent,
        };
    }

    /// Whether the first trials, which follow each other, are not over yet.
    const fn is_first_round(&self) -> bool {
        self.next_hold == HOLD_MIN
    }

    /// Tries the next way that is not `best`; `false` after the last one.
    fn try_next(&mut self, best: Way, best_ns: u64, sent: u64) -> bool {
        while let Some((&way, time)) = TRIED.get(self.next).zip(self.times.get(self.next)) {
            self.next = self.next.saturating_add(1);
            // The first look may have said enough about the first way.
            let is_known = self.is_first_round() && time.is_some_and(|ns| is_far(ns, best_ns));
            if way != best && !is_known {
                self.turn(way, Phase::Trying, sent);
                return true;
            }
        }
        false
    }

    /// Ends a trial.
    fn end_trial(&mut self, sent: u64) {
        let Some((best, best_ns)) = self.best() else {
            return;
        };
        let lost = self.window.lost_at(best_ns);
        if self.is_first_round() && self.try_next(best, best_ns, sent) {
            return;
        }
        self.hold_left = self.next_hold.max(lost.saturating_mul(HOLD_LOST));
        self.next_hold = self.next_hold.saturating_mul(HOLD_FACTOR).min(HOLD_MAX);
        self.turn(best, Phase::Holding, sent);
    }

    /// The way of a send. As [`Trials::way`].
    fn way(&self, may_wait: bool) -> Way {
        if may_wait || self.way != Way::Synchronous {
            return self.way;
        }
        let other = self.best_of(|way| way != Way::Synchronous);
        other.map_or(FIRST, |(way, _)| way)
    }

    /// Counts a call that did not go synchronously, because it may not wait. After many such calls,
    /// none of which was measured, the class goes another way.
    fn on_refused(&mut self, sent: u64) {
        self.refused = self.refused.saturating_add(1);
        if self.refused < REFUSED_MOST {
            return;
        }
        self.refused = 0;
        if self.phase == Phase::Trying {
            self.end_trial(sent);
            return;
        }
        if let Some(time) = self.times.get_mut(Way::Synchronous as usize) {
            *time = None;
        }
        if let Some((best, _)) = self.best() {
            self.turn(best, Phase::Holding, sent);
        }
    }

    /// Records the time of the window: one of `parts` parts of the new record, unless the cost has
    /// changed since the former one.
    fn record(&mut self, parts: u64) {
        let new = self.window.ns_per_mib();
        if let Some(time) = self.times.get_mut(self.way as usize) {
            let part = |ns: u64| ns.checked_div(parts).unwrap_or(ns);
            let mixed = |old: u64| old.saturating_sub(part(old)).saturating_add(part(new));
            let old = time.filter(|old| !is_far(*old, new) && !is_far(new, *old));
            *time = Some(old.map_or(new, mixed));
        }
    }

    /// As [`Self::record`], while the way is the fastest. A window that takes much longer is only
    /// recorded if another one follows.
    fn record_held(&mut self) {
        let old = self.times.get(self.way as usize).copied().flatten();
        let is_far = old.is_some_and(|old| is_far(self.window.ns_per_mib(), old));
        if !is_far || self.is_suspect {
            self.record(4);
        }
        self.is_suspect = is_far && !self.is_suspect;
    }

    fn on_send(&mut self, call: &Call, times: Times) {
        if call.way != self.way {
            // Otherwise a call of another thread has changed the way since this one began.
            if self.way == Way::Synchronous {
                self.on_refused(call.sent);
            }
            return;
        }
        self.refused = 0;
        if self.phase == Phase::Holding {
            self.hold_left = self.hold_left.saturating_sub(call.bytes);
        }
        let best = self.best();
        let filled = match best {
            None => call.asked_bytes.saturating_mul(FILL_SENDS).min(FILL_BYTES),
            Some(_) => self.measured_from,
        };
        if call.delivered_before < filled {
            return;
        }
        self.window.add(call.bytes, times);
        let is_enough = best.is_none_or(|(_, ns)| self.window.is_hopeless(ns));
        match self.phase {
            Phase::Trying if self.window.is_window() || self.window.is_look() && is_enough => {
                self.record(2);
                self.end_trial(call.sent);
            }
            Phase::Holding if self.window.is_window() => {
                self.record_held();
                self.window = Sum::default();
                let Some((best, best_ns)) = self.best() else {
                    return;
                };
                if self.is_suspect {
                    return;
                }
                if self.hold_left > 0 {
                    self.turn(best, Phase::Holding, call.sent);
                } else if !self.try_next(best, best_ns, call.sent) {
                    // The next round.
                    self.next = 0;
                    self.try_next(best, best_ns, call.sent);
                }
            }
            Phase::Trying | Phase::Holding => {}
        }
    }
}

/// Whether a time is more than [`HOPELESS`] times as long as another one.
const fn is_far(ns: u64, other_ns: u64) -> bool {
    ns > other_ns.saturating_mul(HOPELESS)
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

    /// The way of a send of `send_bytes` bytes. A send that may not wait is not synchronous.
    pub fn way(&self, send_bytes: u64, may_wait: bool) -> Way {
        let class = self.0.get(class_of(send_bytes));
        class.map_or(FIRST, |class| class.way(may_wait))
    }

    /// Records a call.
    pub fn on_send(&mut self, call: &Call, times: Times) {
        if let Some(class) = self.0.get_mut(class_of(call.asked_bytes)) {
            class.on_send(call, times);
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
    /// The number of bytes that the connection has sent, these included.
    pub sent: u64,
    /// The number of bytes that had reached the peer when the call began.
    pub delivered_before: u64,
}

/// The times of a call, in nanoseconds.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// The time that the call took.
    pub call_ns: u64,
    /// The time from its end to the beginning of the connection's next call.
    pub gap_ns: u64,
}

fn class_of(send_bytes: u64) -> usize {
    let doublings = (send_bytes / FIRST_CLASS).checked_ilog2().unwrap_or(0);
    usize::try_from(doublings).map_or(CLASSES, |class| class.min(CLASSES.saturating_sub(1)))
}
