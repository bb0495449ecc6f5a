// SPDX-License-Identifier: GPL-2.0

//! Measures which path is the fastest for the sends of a connection.
//!
//! The cost of a path depends on the adapter, the processor and the size of the sends, so the time
//! of the calls decides. Sends of about the same size form a class. All sends of a class take one
//! path until a window of at least [`WINDOW_BYTES`] has been measured. For each path, the class has
//! an average of the times of its windows, in which later windows have more weight. The sends take
//! the path with the shortest time. The time of sends without a copy may be up to
//! [`MARGIN_PERCENT`] percent of the time of sends by copy, because the processor is free while the
//! adapter reads the bytes.
//!
//! A trial measures a path. At the beginning, a class tries all paths one after the other, the
//! first path only for a short window ([`SHORT_WINDOW_BYTES`]). Then one path is tried after an
//! interval of [`INTERVAL_MIN_BYTES`]. Each trial makes the next interval [`INTERVAL_FACTOR`] times
//! as long, up to [`INTERVAL_MAX_BYTES`]. The interval is longer after a trial of a slow path
//! ([`INTERVAL_PER_LOST`]). A trial ends after a short window if the path takes more than
//! [`MUCH_SLOWER`] times as long as the fastest path.
//!
//! The first sends after a change of the path are not measured, because they wait for the bytes
//! that were sent before the change. The first sends of a connection, and the first sends by copy
//! after a change, seem fast until the buffers of both sides are full ([`FILL_BYTES`]) or the peer
//! can hold no further advert ([`FILL_SENDS`]). These sends are not measured either.
//!
//! The time of a call includes the time until the next call, up to [`GAP_FACTOR`] times the time of
//! the calls themselves, because the kernel processes the bytes in this time too, and delays the
//! program. The program causes longer gaps itself, so the rest of a gap does not count. Work of the
//! peer's processor only counts if it delays the sender.

use super::choice::Path;

/// The minimum number of bytes in a window.
pub const WINDOW_BYTES: u64 = 4 << 20;
/// The minimum number of sends in a window.
pub const WINDOW_SENDS: u32 = 4;
/// The minimum number of bytes in a short window, by which the first path is measured, and after
/// which a trial of a slow path ends.
pub const SHORT_WINDOW_BYTES: u64 = 1 << 19;
/// The minimum number of sends in a short window, unless they have [`WINDOW_BYTES`].
pub const SHORT_WINDOW_SENDS: u32 = 2;
/// A path is much slower than another one if it takes more than this many times as long.
pub const MUCH_SLOWER: u64 = 2;
/// The time between calls counts up to this many times the time of the calls.
pub const GAP_FACTOR: u64 = 8;
/// The number of bytes that the buffers of both sides hold, by default.
pub const FILL_BYTES: u64 = 4 << 20;
/// The number of sends after which the first sends without a copy are measured, unless the sends
/// have more than [`FILL_BYTES`].
pub const FILL_SENDS: u64 = 16;
/// The number of bytes between the first trials and the next one.
pub const INTERVAL_MIN_BYTES: u64 = 32 << 20;
/// The maximum number of bytes between two trials, except after a trial of a slow path
/// ([`INTERVAL_PER_LOST`]).
pub const INTERVAL_MAX_BYTES: u64 = 1 << 30;
/// The growth of the interval with each trial.
pub const INTERVAL_FACTOR: u64 = 2;
/// The minimum interval after a trial, in bytes for each lost byte: the fastest path would have
/// sent the lost bytes in addition during the trial.
pub const INTERVAL_PER_LOST: u64 = 64;
/// The maximum number of lost bytes, in bytes for each byte that the trial has measured.
pub const LOST_FACTOR: u64 = 16;
/// The number of successive calls that must not wait after which the class stops taking
/// [`Path::Synchronous`].
pub const REFUSED_MAX: u32 = 64;
/// The maximum time of sends without a copy that are preferred to sends by copy, in percent of the
/// time of sends by copy.
pub const MARGIN_PERCENT: u64 = 105;

/// Sends of less than twice this size, in bytes, are in the first class. Each further class begins
/// at twice the size of the class before it.
const FIRST_CLASS: u64 = 1 << 16;
/// The number of classes. The last one has no maximum size.
const CLASSES: usize = 8;

/// The path of the first sends.
pub const FIRST: Path = Path::SinkWrite;

/// Measured sends, which took the same path.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
struct Window {
    sends: u32,
    bytes: u64,
    /// The time of the calls, in nanoseconds.
    ns: u64,
    /// The time between the calls, in nanoseconds.
    gap_ns: u64,
}

impl Window {
    /// The time that counts, in nanoseconds.
    fn time(self) -> u64 {
        let gap_ns = self.gap_ns.min(self.ns.saturating_mul(GAP_FACTOR));
        self.ns.saturating_add(gap_ns)
    }

    /// Nanoseconds for a MiB.
    fn ns_per_mib(self) -> u64 {
        self.time()
            .saturating_mul(1 << 20)
            .checked_div(self.bytes)
            .unwrap_or(0)
    }

    /// The number of bytes by which a path that takes `ns_per_mib` exceeds the bytes of the window
    /// in the same time. If the result were more than [`LOST_FACTOR`] times the bytes of the
    /// window, the path would not be the cause: the reader has paused.
    fn lost_at(self, ns_per_mib: u64) -> u64 {
        let bytes = self.time().saturating_mul(1 << 20).checked_div(ns_per_mib);
        let lost = bytes.unwrap_or(0).saturating_sub(self.bytes);
        lost.min(self.bytes.saturating_mul(LOST_FACTOR))
    }

    fn add(&mut self, bytes: u64, call_ns: u64, gap_ns: u64) {
        self.sends = self.sends.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.ns = self.ns.saturating_add(call_ns);
        self.gap_ns = self.gap_ns.saturating_add(gap_ns);
    }

    const fn is_full(self) -> bool {
        self.bytes >= WINDOW_BYTES && self.sends >= WINDOW_SENDS
    }

    /// Whether the window is at least a short one.
    const fn is_short(self) -> bool {
        self.bytes >= SHORT_WINDOW_BYTES && self.sends >= SHORT_WINDOW_SENDS
            || self.bytes >= WINDOW_BYTES
    }
}

/// What the sends of a class do.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    /// They try all paths, one after the other.
    FirstTrials,
    /// Until the next trial, they take the path that was measured to be the fastest.
    Interval {
        /// The number of bytes until the next trial.
        left_bytes: u64,
        /// The last window took much longer than the average of its path. A pause of the reader has
        /// the same effect, so only a second slow window counts.
        last_was_slow: bool,
    },
    /// They try one path.
    Trial,
}

impl Phase {
    const fn interval(left_bytes: u64) -> Self {
        Self::Interval {
            left_bytes,
            last_was_slow: false,
        }
    }
}

/// The measurements of sends of about the same size.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Class {
    path: Path,
    phase: Phase,
    /// The number of bytes of the connection that must have reached the peer before sends are
    /// measured.
    measured_from: u64,
    window: Window,
    /// The time of each path in nanoseconds for a MiB, by the number of the path; `None` if the
    /// path has not been measured.
    times: [Option<u64>; Path::ALL.len()],
    /// The index in [`Path::ALL`] of the next path to try; its length when all were tried.
    next: usize,
    /// The length of the next interval, in bytes.
    next_interval: u64,
    /// The number of calls since the last synchronous one that could not be synchronous, because
    /// they must not wait; counted while the path is [`Path::Synchronous`].
    refused: u32,
}

impl Class {
    const fn new() -> Self {
        Self {
            path: FIRST,
            phase: Phase::FirstTrials,
            measured_from: 0,
            window: Window {
                sends: 0,
                bytes: 0,
                ns: 0,
                gap_ns: 0,
            },
            times: [None; Path::ALL.len()],
            next: 0,
            next_interval: INTERVAL_MIN_BYTES,
            refused: 0,
        }
    }

    /// The fastest path and its time, in nanoseconds for a MiB; `None` until the first path has
    /// been measured.
    fn best(&self) -> Option<(Path, u64)> {
        self.best_of(|_| true)
    }

    /// The fastest of the paths that `admits` admits, as [`Self::best`].
    fn best_of(&self, admits: impl Fn(Path) -> bool) -> Option<(Path, u64)> {
        let times = Path::ALL.iter().zip(self.times);
        let known = times.filter_map(|(path, ns)| Some((*path, ns?)));
        // min_by_key() returns the first of equal elements. Of equally fast paths, the later one in
        // Path::ALL needs less time of the program's thread.
        let admitted = known.filter(|(path, _)| admits(*path)).rev();
        admitted.min_by_key(|&(path, ns)| {
            ns.saturating_mul(match path {
                Path::Copy => MARGIN_PERCENT,
                Path::Synchronous | Path::Asynchronous | Path::SinkWrite => 100,
            })
        })
    }

    /// Begins a phase, with a new window. `sent` is the number of bytes that the connection has
    /// sent.
    fn begin(&mut self, path: Path, phase: Phase, sent: u64) {
        self.phase = phase;
        self.window = Window::default();
        if path == self.path {
            return;
        }
        self.path = path;
        self.measured_from = match path {
            Path::Copy => sent.saturating_add(FILL_BYTES),
            Path::Synchronous | Path::Asynchronous | Path::SinkWrite => sent,
        };
    }

    /// The next path to try, unless `excludes` excludes the path or its time; `None` after the last
    /// path.
    fn next_path(&mut self, excludes: impl Fn(Path, Option<u64>) -> bool) -> Option<Path> {
        while let Some((&path, time)) = Path::ALL.get(self.next).zip(self.times.get(self.next)) {
            self.next = self.next.saturating_add(1);
            if !excludes(path, *time) {
                return Some(path);
            }
        }
        None
    }

    /// Ends a trial.
    fn end_trial(&mut self, sent: u64) {
        let Some((best, best_ns)) = self.best() else {
            return;
        };
        if self.phase == Phase::FirstTrials {
            // The first path has a time already, from a short window. If the path is much slower
            // than the best one, a full window would not change the result.
            let next = self.next_path(|path, time| {
                path == best || time.is_some_and(|ns| is_much_slower(ns, best_ns))
            });
            if let Some(path) = next {
                self.begin(path, Phase::FirstTrials, sent);
                return;
            }
        }
        let lost = self.window.lost_at(best_ns);
        let bytes = self
            .next_interval
            .max(lost.saturating_mul(INTERVAL_PER_LOST));
        self.next_interval = self
            .next_interval
            .saturating_mul(INTERVAL_FACTOR)
            .min(INTERVAL_MAX_BYTES);
        self.begin(best, Phase::interval(bytes), sent);
    }

    /// Ends an interval: begins a trial of the next path other than `best`.
    fn end_interval(&mut self, best: Path, sent: u64) {
        let mut next = self.next_path(|path, _| path == best);
        if next.is_none() {
            // All paths were tried: start again with the first one.
            self.next = 0;
            next = self.next_path(|path, _| path == best);
        }
        if let Some(path) = next {
            self.begin(path, Phase::Trial, sent);
        }
    }

    /// As [`Trials::path`].
    fn path(&self, may_wait: bool) -> Path {
        if may_wait || self.path != Path::Synchronous {
            return self.path;
        }
        let other = self.best_of(|path| path != Path::Synchronous);
        other.map_or(FIRST, |(path, _)| path)
    }

    /// Counts a call that could not be synchronous, because it must not wait. Such calls are not
    /// measured. After many of them, the class takes another path.
    fn on_refused(&mut self, sent: u64) {
        self.refused = self.refused.saturating_add(1);
        if self.refused < REFUSED_MAX {
            return;
        }
        self.refused = 0;
        let Phase::Interval { left_bytes, .. } = self.phase else {
            self.end_trial(sent);
            return;
        };
        if let Some(time) = self.times.get_mut(Path::Synchronous as usize) {
            *time = None;
        }
        if let Some((best, _)) = self.best() {
            self.begin(best, Phase::interval(left_bytes), sent);
        }
    }

    /// Adds the time of the window to the average of the path, with the weight 1/`parts`. If one of
    /// the two times is much longer than the other one, the cost has changed, and the time of the
    /// window replaces the average.
    fn record(&mut self, parts: u64) {
        let new = self.window.ns_per_mib();
        if let Some(time) = self.times.get_mut(self.path as usize) {
            let part = |ns: u64| ns.checked_div(parts).unwrap_or(ns);
            let average = |old: u64| old.saturating_sub(part(old)).saturating_add(part(new));
            let old = time.filter(|old| !is_much_slower(*old, new) && !is_much_slower(new, *old));
            *time = Some(old.map_or(new, average));
        }
    }

    /// Ends a full window during an interval that has `left_bytes` bytes left. A window that is much
    /// slower than the average only counts if the window before it was, too.
    fn end_window(&mut self, left_bytes: u64, last_was_slow: bool, sent: u64) {
        let old = self.times.get(self.path as usize).copied().flatten();
        let is_slow = old.is_some_and(|old| is_much_slower(self.window.ns_per_mib(), old));
        if is_slow && !last_was_slow {
            self.window = Window::default();
            self.phase = Phase::Interval {
                left_bytes,
                last_was_slow: true,
            };
            return;
        }
        self.record(4);
        match self.best() {
            Some((best, _)) if left_bytes > 0 => {
                self.begin(best, Phase::interval(left_bytes), sent);
            }
            Some((best, _)) => self.end_interval(best, sent),
            None => {}
        }
    }

    /// Records a call, and the time until the next one, `gap_ns`.
    fn on_send(&mut self, last: &Last, gap_ns: u64) {
        let call = &last.call;
        if call.path != self.path {
            // The call must not wait and the path of the class is synchronous, or the path of the
            // class has changed during the call, because another thread has sent meanwhile.
            if self.path == Path::Synchronous {
                self.on_refused(call.sent);
            }
            return;
        }
        self.refused = 0;
        if let Phase::Interval { left_bytes, .. } = &mut self.phase {
            *left_bytes = left_bytes.saturating_sub(call.bytes);
        }
        let best = self.best();
        let filled = match best {
            None => call.asked_bytes.saturating_mul(FILL_SENDS).min(FILL_BYTES),
            Some(_) => self.measured_from,
        };
        if call.delivered_before < filled {
            return;
        }
        self.window.add(call.bytes, last.call_ns, gap_ns);
        match self.phase {
            Phase::FirstTrials | Phase::Trial => {
                let ends_early =
                    best.is_none_or(|(_, ns)| is_much_slower(self.window.ns_per_mib(), ns));
                if self.window.is_full() || self.window.is_short() && ends_early {
                    self.record(2);
                    self.end_trial(call.sent);
                }
            }
            Phase::Interval {
                left_bytes,
                last_was_slow,
            } => {
                if self.window.is_full() {
                    self.end_window(left_bytes, last_was_slow, call.sent);
                }
            }
        }
    }
}

/// Whether a path that takes `ns` is much slower than one that takes `other_ns` ([`MUCH_SLOWER`]).
const fn is_much_slower(ns: u64, other_ns: u64) -> bool {
    ns > other_ns.saturating_mul(MUCH_SLOWER)
}

/// The measurements of a connection's sends.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Trials {
    classes: [Class; CLASSES],
    last: Option<Last>,
}

/// The last call that has sent bytes. It counts when the next call is known, because its time
/// includes the time until the next call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Last {
    call: Call,
    /// The time of the call that does not count for the call before it, in nanoseconds.
    call_ns: u64,
}

impl Default for Trials {
    fn default() -> Self {
        Self::new()
    }
}

impl Trials {
    /// No sends.
    pub const fn new() -> Self {
        Self {
            classes: [Class::new(); CLASSES],
            last: None,
        }
    }

    /// The path for a send of `send_bytes` bytes: the fastest path, or the path that is being
    /// measured; never [`Path::Synchronous`] if the send must not wait. If the path is not possible
    /// (for [`Path::SinkWrite`], because no reader of the peer waits), the send takes another path
    /// ([`super::choice::choose`]), but its time still counts for this path.
    pub fn path(&self, send_bytes: u64, may_wait: bool) -> Path {
        let class = self.classes.get(class_of(send_bytes));
        class.map_or(FIRST, |class| class.path(may_wait))
    }

    /// Records a call that has ended. The calls of a connection are recorded in the order in which
    /// they end.
    ///
    /// The time between two calls that have sent bytes counts for the first one, even if other
    /// calls between them have sent nothing. Calls of several threads overlap, and wait for each
    /// other, so the time until the end of the call before does not count for this call.
    pub fn record(&mut self, call: Call) {
        if call.bytes == 0 {
            return;
        }
        let mut call_ns = call.ended_ns.saturating_sub(call.began_ns);
        if let Some(last) = self.last {
            call_ns = call_ns.min(call.ended_ns.saturating_sub(last.call.ended_ns));
            let gap_ns = call.began_ns.saturating_sub(last.call.ended_ns);
            if let Some(class) = self.classes.get_mut(class_of(last.call.asked_bytes)) {
                class.on_send(&last, gap_ns);
            }
        }
        self.last = Some(Last { call, call_ns });
    }
}

/// A call that sends.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The number of bytes that the program passed to the call.
    pub asked_bytes: u64,
    /// The number of bytes that the call has sent.
    pub bytes: u64,
    /// The result of [`Trials::path`] when the call began.
    pub path: Path,
    /// The number of bytes that the connection has sent, including the bytes of this call.
    pub sent: u64,
    /// The number of bytes that had reached the peer when the call began.
    pub delivered_before: u64,
    /// The time at which the call began, in nanoseconds of a monotonic clock.
    pub began_ns: u64,
    /// The time at which the call ended.
    pub ended_ns: u64,
}

fn class_of(send_bytes: u64) -> usize {
    let doublings = (send_bytes / FIRST_CLASS).checked_ilog2().unwrap_or(0);
    usize::try_from(doublings).map_or(CLASSES, |class| class.min(CLASSES.saturating_sub(1)))
}
