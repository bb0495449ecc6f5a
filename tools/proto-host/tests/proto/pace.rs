// SPDX-License-Identifier: GPL-2.0
//! Round trips, rates, and what holds a sender up.

use proptest::prelude::*;
use proto_host::proto::pace::{Doing, Pace, RoundTrip};

#[test]
fn first_sample_counts_whole() {
    let mut trip = RoundTrip::default();
    trip.sample(800);
    assert_eq!(
        (trip.smoothed_us, trip.deviation_us, trip.least_us),
        (800, 400, 800)
    );
}

/// RFC 6298: an eighth of the new one, and a quarter of the deviation.
#[test]
fn later_samples_count_for_a_part() {
    let mut trip = RoundTrip::default();
    trip.sample(800);
    trip.sample(1600);
    assert_eq!(
        (trip.smoothed_us, trip.deviation_us, trip.least_us),
        (900, 500, 800)
    );
}

#[test]
fn one_message_at_a_time_is_measured() {
    let mut pace = Pace::default();
    assert!(pace.wants_sample());
    pace.deliver(500);
    pace.posted(7, 1000);
    assert!(!pace.wants_sample());
    assert_eq!(pace.awaited(), Some(7));
    pace.deliver(4000);
    pace.acknowledged(3000);
    assert!(pace.wants_sample());
    assert_eq!(pace.round_trip().smoothed_us, 2000);
    // 4000 bytes in 2 ms.
    assert_eq!(pace.bytes_per_s(), 2_000_000);
}

/// A message without payload says nothing of the rate.
#[test]
fn rate_is_that_of_bytes() {
    let mut pace = Pace::default();
    pace.posted(1, 0);
    pace.deliver(1000);
    pace.acknowledged(1000);
    pace.posted(2, 5000);
    pace.acknowledged(9000);
    assert_eq!(pace.bytes_per_s(), 1_000_000);
}

#[test]
fn acknowledgement_without_a_sample_changes_nothing() {
    let mut pace = Pace::default();
    pace.acknowledged(1000);
    assert_eq!(pace, Pace::default());
}

/// An advert may be cancelled.
#[test]
fn bytes_sent_never_go_back() {
    let mut pace = Pace::default();
    pace.deliver(100);
    assert_eq!(pace.sent(500), 600);
    assert_eq!(pace.sent(200), 600);
    pace.deliver(700);
    assert_eq!(pace.sent(0), 800);
}

#[test]
fn times_add_up() {
    let mut pace = Pace::default();
    pace.does(Doing::Sending, 100);
    assert!(pace.changes(Doing::AwaitingPeer));
    assert!(!pace.changes(Doing::Sending));
    pace.does(Doing::AwaitingPeer, 150);
    pace.does(Doing::AwaitingRoom, 350);
    pace.does(Doing::Nothing, 360);
    let times = pace.times(10_000);
    assert_eq!(
        (
            times.busy_us,
            times.awaiting_peer_us,
            times.awaiting_room_us
        ),
        (260, 200, 10)
    );
}

/// What goes on now counts, too.
#[test]
fn time_that_goes_on_counts() {
    let mut pace = Pace::default();
    pace.does(Doing::Sending, 100);
    assert_eq!(pace.times(400).busy_us, 300);
    assert_eq!(pace.times(500).busy_us, 400);
}

proptest! {
    /// The smoothed time and the least one stay between the least and the largest sample.
    #[test]
    fn smoothed_is_between(samples in proptest::collection::vec(any::<u32>(), 1..50)) {
        let mut trip = RoundTrip::default();
        for us in &samples {
            trip.sample(*us);
        }
        let least = samples.iter().min().unwrap().max(&1);
        let most = samples.iter().max().unwrap().max(&1);
        prop_assert_eq!(trip.least_us, *least);
        prop_assert!(trip.smoothed_us >= *least && trip.smoothed_us <= *most);
        prop_assert!(trip.deviation_us <= *most);
    }
}
