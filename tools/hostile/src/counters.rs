// SPDX-License-Identifier: GPL-2.0
//! The victim's counters: each attack must be counted under its own name, and under no other.

use crate::fail::{expect, Fail, Result, Step};
use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

const FILE: &str = "/proc/net/sdpstats";

/// A reading of all counters.
pub(crate) struct Counters(BTreeMap<String, u64>);

/// The changes of the counters that count errors. All other counters of errors must not change.
pub(crate) type Moves = Vec<(String, u64)>;

/// Shorthand for [`Moves`].
pub(crate) fn moves(of: &[(&str, u64)]) -> Moves {
    of.iter()
        .map(|(name, n)| ((*name).to_owned(), *n))
        .collect()
}

/// Whether a counter counts errors. Counters of waits or sent messages do not matter for attacks.
fn is_watched(name: &str) -> bool {
    const OTHERS: [&str; 11] = [
        "aborted_violation",
        "aborted_local",
        "reset_by_peer",
        "timed_out",
        "handshake_timeout",
        "orphan_timeout",
        "dropped_backlog_full",
        "illegal_transition",
        "post_failed",
        "device_removed",
        "read_refused",
    ];
    name.starts_with("violation_") || name.starts_with("refused_") || OTHERS.contains(&name)
}

/// Counters that must agree in the end: how often something began, and how often it ended in each
/// possible way.
const PAIRS: [(&str, &[&str]); 4] = [
    ("snapshot_pages", &["snapshot_freed"]),
    ("absent_pages", &["absent_freed"]),
    ("pinned_bytes", &["unpinned_bytes"]),
    (
        "advert_posted",
        &["advert_consumed", "advert_cancelled", "advert_aborted"],
    ),
];

/// Waits until programs have their memory back, and no advert is outstanding.
pub(crate) fn settled(limit: Duration) -> Result<()> {
    let end = Instant::now() + limit;
    loop {
        let now = Counters::read()?;
        let mut open = Vec::new();
        for (began, ends) in PAIRS {
            let mut ended = 0;
            for name in ends {
                ended += now.value(name)?;
            }
            if now.value(began)? != ended {
                open.push((began, now.value(began)?, ended));
            }
        }
        if open.is_empty() {
            return Ok(());
        }
        expect(Instant::now() < end, || {
            format!("not all has ended (what, begun, ended): {open:?}")
        })?;
        sleep(Duration::from_millis(5));
    }
}

impl Counters {
    pub(crate) fn read() -> Result<Counters> {
        let text = fs::read_to_string(FILE).step(FILE)?;
        let parsed: Option<BTreeMap<_, _>> = text
            .lines()
            .map(|line| {
                let (name, value) = line.split_once(' ')?;
                Some((name.to_owned(), value.parse().ok()?))
            })
            .collect();
        match parsed {
            Some(map) if !map.is_empty() => Ok(Counters(map)),
            _ => Err(Fail::new(format!("{FILE} cannot be read:\n{text}"))),
        }
    }

    /// The change of a counter since this reading.
    pub(crate) fn since(&self, name: &str) -> Result<u64> {
        Ok(Counters::read()?.value(name)? - self.value(name)?)
    }

    fn value(&self, name: &str) -> Result<u64> {
        let value = self.0.get(name).copied();
        value.ok_or_else(|| Fail::new(format!("{FILE} has no {name}")))
    }

    /// The watched counters that have changed since this reading.
    pub(crate) fn moved(&self) -> Result<Moves> {
        let now = Counters::read()?;
        Ok(now
            .0
            .into_iter()
            .filter(|(name, _)| is_watched(name))
            .map(|(name, value)| {
                let before = self.0.get(&name).copied().unwrap_or(0);
                (name, value - before)
            })
            .filter(|(_, by)| *by != 0)
            .collect())
    }

    /// Fails unless exactly the counters in `wanted` have changed, or change within `limit`.
    pub(crate) fn expect(&self, wanted: &Moves, limit: Duration) -> Result<()> {
        let mut wanted = wanted.clone();
        wanted.sort();
        let end = Instant::now() + limit;
        loop {
            let moved = self.moved()?;
            if moved == wanted {
                return Ok(());
            }
            expect(Instant::now() < end, || {
                format!("counters moved by {moved:?} instead of {wanted:?}")
            })?;
            sleep(Duration::from_millis(20));
        }
    }
}
