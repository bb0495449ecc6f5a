// SPDX-License-Identifier: GPL-2.0
//! The counters of the module.

use crate::support::harness::{Env, Family};
use std::collections::HashSet;
use std::io;
use std::sync::OnceLock;

const VIOLATIONS: &str = "aborted_violation";

/// Violations of the protocol that peers had committed before this program began: other programs of
/// the tests attack the module.
static VIOLATIONS_BEFORE: OnceLock<u64> = OnceLock::new();

/// A counter of the module; 0 over TCP, which has no such counters.
pub(crate) fn stat(env: &Env, name: &str) -> io::Result<u64> {
    if env.family == Family::Tcp {
        return Ok(0);
    }
    let text = std::fs::read_to_string("/proc/net/sdpstats")?;
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.parse().ok()).flatten()
    });
    value.ok_or_else(|| io::Error::other(format!("no counter {name}")))
}

/// How often bytes went by copy because the peer had no room for an advert in time.
pub(crate) fn without_room(env: &Env) -> io::Result<u64> {
    Ok(stat(env, "by_copy_AdvertsFull")? + stat(env, "by_copy_NoCredits")?)
}

/// All counters of the module.
pub(crate) fn stats(env: &Env) -> io::Result<String> {
    match env.family {
        Family::Tcp => Ok(String::new()),
        Family::Sdp => std::fs::read_to_string("/proc/net/sdpstats"),
    }
}

/// The counters that have changed since `before`, with their present values.
pub(crate) fn changed(env: &Env, before: &str) -> io::Result<String> {
    let former: HashSet<&str> = before.lines().collect();
    let now = stats(env)?;
    let changed: Vec<&str> = now.lines().filter(|line| !former.contains(line)).collect();
    Ok(changed.join(", "))
}

/// Called at the start of the program. Without the module, there are no violations yet.
pub(crate) fn note_violations(env: &Env) {
    VIOLATIONS_BEFORE.get_or_init(|| stat(env, VIOLATIONS).unwrap_or(0));
}

/// The number of violations since the start of the program.
pub(crate) fn violations(env: &Env) -> io::Result<u64> {
    let before = VIOLATIONS_BEFORE.get().copied().unwrap_or(0);
    Ok(stat(env, VIOLATIONS)?.saturating_sub(before))
}
