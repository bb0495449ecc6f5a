// SPDX-License-Identifier: GPL-2.0
//! TCP_DEFER_ACCEPT: seconds and time-outs.

use proptest::prelude::*;
use proto_host::proto::deferral::Timeouts;

/// All numbers of time-outs, in order.
fn all() -> Vec<Timeouts> {
    let next = |t: &Timeouts| (*t < Timeouts::MAX).then(|| t.next());
    std::iter::successors(Some(Timeouts::NONE), next).collect()
}

/// `secs_to_retrans()` of the kernel's `net/ipv4/tcp.c`, with TCP's arguments.
fn secs_to_retrans(seconds: i32) -> usize {
    let (mut timeout, mut period, mut res) = (1, 1, 1);
    if seconds <= 0 {
        return 0;
    }
    while seconds > period && res < 255 {
        res += 1;
        timeout = (timeout << 1).min(120);
        period += timeout;
    }
    res
}

/// `retrans_to_secs()`.
fn retrans_to_secs(retrans: usize) -> i32 {
    let (mut timeout, mut period) = (1, 0);
    for _ in 0..retrans {
        period += timeout;
        timeout = (timeout << 1).min(120);
    }
    period
}

#[test]
fn times_of_the_first() {
    let seconds: Vec<_> = all().iter().take(10).map(|t| t.seconds()).collect();
    assert_eq!(seconds, [0, 1, 3, 7, 15, 31, 63, 127, 247, 367]);
}

#[test]
fn the_most_has_no_next() {
    assert_eq!(all().len(), 256);
    assert_eq!(Timeouts::MAX.next(), Timeouts::MAX);
    assert_eq!(Timeouts::MAX.seconds(), 29_887);
}

#[test]
fn seconds_as_tcp() {
    for (n, timeouts) in all().into_iter().enumerate() {
        assert_eq!(timeouts.seconds(), retrans_to_secs(n), "{n}");
        // What is read can be set.
        assert_eq!(Timeouts::lasting(timeouts.seconds()), timeouts);
    }
}

#[test]
fn each_value_as_tcp() {
    let all = all();
    for seconds in (-2..30_000).chain([i32::MIN, i32::MAX]) {
        let want = all[secs_to_retrans(seconds)];
        assert_eq!(Timeouts::lasting(seconds), want, "{seconds}");
    }
}

proptest! {
    /// The waits between the time-outs are those that the seconds count.
    #[test]
    fn waits_add_up(n in 0usize..256) {
        let all = all();
        let waits: i32 = all[..n].iter().map(|t| t.seconds_to_next()).sum();
        prop_assert_eq!(waits, all[n].seconds());
    }
}
