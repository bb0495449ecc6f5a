// SPDX-License-Identifier: GPL-2.0

//! The credit counters: each rule by example, then random schedules of two
//! sides, also across the wrap of the sequence numbers.

use proptest::prelude::*;
use proto_host::proto::{
    bsdh::{
        Bsdh,
        Class,
        Mid, //
    },
    credits::{
        Credits,
        Stamp, //
    },
    violation::Violation,
};
use std::collections::VecDeque;

pub(crate) fn header(stamp: Stamp) -> Bsdh {
    Bsdh {
        mid: Mid::Data,
        flags: 0,
        bufs: stamp.bufs,
        len: 16,
        mseq: stamp.mseq,
        mseq_ack: stamp.mseq_ack,
    }
}

/// One side after set-up, with `posted` receives here and `peer` there.
fn side(posted: u32, peer: u16) -> Credits {
    let mut credits = Credits::new();
    credits.posted(posted);
    credits.announce();
    credits.set_peer_limit(peer);
    credits
}

fn receive(credits: &mut Credits, mseq: u32, mseq_ack: u32, bufs: u16) -> Result<(), Violation> {
    let before = *credits;
    let got = credits.received(&header(Stamp {
        mseq,
        mseq_ack,
        bufs,
    }));
    assert!(
        got.is_ok() || *credits == before,
        "an error changes nothing"
    );
    got
}

#[test]
fn before_set_up_nothing_may_be_sent_or_received() {
    let mut credits = Credits::new();
    assert_eq!(credits.available(), 0);
    for class in Class::ALL {
        assert_eq!(credits.stamp(class), None);
    }
    let got = receive(&mut credits, 1, 0, 4);
    assert_eq!(got, Err(Violation::CreditOverrun));
}

#[test]
fn c1_reserves_the_last_credits() {
    let mut credits = side(8, 5);
    let mut sent = |class| credits.stamp(class).map(|s| s.mseq);
    assert_eq!(sent(Class::Payload), Some(1));
    assert_eq!(sent(Class::Payload), Some(2));
    assert_eq!(sent(Class::Payload), None, "3 left");
    assert_eq!(sent(Class::Control), Some(3));
    assert_eq!(sent(Class::Control), Some(4));
    assert_eq!(sent(Class::Control), None, "1 left");
    assert_eq!(sent(Class::Update), Some(5));
    assert_eq!(sent(Class::Update), None, "none left");
    assert_eq!(credits.available(), 0);
}

#[test]
fn every_message_carries_the_limit() {
    let mut credits = side(8, 100);
    assert_eq!(credits.unreturned(), 0);
    receive(&mut credits, 1, 0, 100).unwrap();
    assert_eq!((credits.outstanding(), credits.peer_has_left()), (7, 7));
    credits.posted(3);
    assert_eq!((credits.outstanding(), credits.unreturned()), (10, 3));
    let stamp = credits.stamp(Class::Control).unwrap();
    assert_eq!((stamp.mseq_ack, stamp.bufs), (1, 10));
    assert_eq!((credits.unreturned(), credits.peer_has_left()), (0, 10));
}

#[test]
fn c3_waits_for_two_and_for_a_need() {
    let mut credits = side(8, 100);
    // Received and posted again, one by one: 7, 6, 5 left and so many back.
    let wants: Vec<(u32, u32, bool)> = (1..=8)
        .map(|mseq| {
            receive(&mut credits, mseq, 0, 100).unwrap();
            credits.posted(1);
            (
                credits.unreturned(),
                credits.peer_has_left(),
                credits.wants_update(),
            )
        })
        .collect();
    assert_eq!(
        wants,
        [
            (1, 7, false),
            (2, 6, false),
            (3, 5, false),
            (4, 4, true),
            (5, 3, true),
            (6, 2, true),
            (7, 1, true),
            (8, 0, true),
        ]
    );
    // One receive back is never enough, however little the peer has left.
    let mut poor = side(4, 100);
    for mseq in 1..=4 {
        receive(&mut poor, mseq, 0, 100).unwrap();
    }
    poor.posted(1);
    assert!(!poor.wants_update());
    poor.posted(1);
    assert!(poor.wants_update());
}

#[test]
fn sequence_must_be_the_next() {
    let mut credits = side(8, 8);
    for wrong in [0, 2, 3, u32::MAX] {
        let got = receive(&mut credits, wrong, 0, 8);
        assert_eq!(got, Err(Violation::BadSequence), "{wrong}");
    }
    assert_eq!(receive(&mut credits, 1, 0, 8), Ok(()));
    assert_eq!(receive(&mut credits, 1, 0, 8), Err(Violation::BadSequence));
}

#[test]
fn the_peer_may_use_only_what_it_was_told_of() {
    let mut credits = side(4, 8);
    for mseq in 1..=4 {
        assert_eq!(receive(&mut credits, mseq, 0, 8), Ok(()));
    }
    // Posted, but nobody has told the peer.
    credits.posted(4);
    let got = receive(&mut credits, 5, 0, 8);
    assert_eq!(got, Err(Violation::CreditOverrun));
    credits.stamp(Class::Update).unwrap();
    assert_eq!(receive(&mut credits, 5, 1, 8), Ok(()));
}

#[test]
fn acknowledgements_stay_between_the_last_and_the_sent() {
    let mut credits = side(8, 8);
    for _ in 0..3 {
        credits.stamp(Class::Payload).unwrap();
    }
    assert_eq!(credits.unacked(), 3);
    assert_eq!(receive(&mut credits, 1, 4, 8), Err(Violation::BadAck));
    assert_eq!(receive(&mut credits, 1, 2, 6), Ok(()));
    assert_eq!(credits.unacked(), 1);
    assert_eq!(receive(&mut credits, 2, 1, 7), Err(Violation::BadAck));
    assert_eq!(receive(&mut credits, 2, 3, 5), Ok(()));
    assert_eq!(credits.unacked(), 0);
}

#[test]
fn knows_which_messages_are_acknowledged() {
    for start in [0, u32::MAX - 1] {
        let mut credits = Credits::starting_at(start, 0);
        credits.posted(8);
        credits.announce();
        credits.set_peer_limit(8);
        let sent = [0; 3].map(|_| credits.stamp(Class::Payload).unwrap().mseq);
        let acked = |credits: &Credits| sent.map(|mseq| credits.has_acked(mseq));
        assert_eq!(acked(&credits), [false; 3]);
        assert_eq!(receive(&mut credits, 1, sent[1], 8), Ok(()));
        assert_eq!(acked(&credits), [true, true, false]);
        assert_eq!(receive(&mut credits, 2, sent[2], 8), Ok(()));
        assert_eq!(acked(&credits), [true; 3]);
    }
}

#[test]
fn the_limit_never_shrinks() {
    let mut credits = side(8, 8);
    for bufs in [0, 7] {
        let got = receive(&mut credits, 1, 0, bufs);
        assert_eq!(got, Err(Violation::CreditShrunk));
    }
    credits.stamp(Class::Payload).unwrap();
    // The receive that the first message took is accounted for by the
    // acknowledgement, so this is the same limit.
    assert_eq!(receive(&mut credits, 1, 1, 7), Ok(()));
    assert_eq!(credits.available(), 7);
    assert_eq!(receive(&mut credits, 2, 1, 6), Err(Violation::CreditShrunk));
    assert_eq!(receive(&mut credits, 2, 1, u16::MAX), Ok(()));
    assert_eq!(credits.available(), u32::from(u16::MAX));
}

#[test]
fn more_receives_than_a_header_can_say() {
    let mut credits = Credits::new();
    credits.posted(70_000);
    assert_eq!(credits.announce(), u16::MAX);
    credits.set_peer_limit(8);
    assert_eq!(credits.unreturned(), 70_000 - 65_535);
    receive(&mut credits, 1, 0, 8).unwrap();
    let stamp = credits.stamp(Class::Control).unwrap();
    assert_eq!((stamp.mseq_ack, stamp.bufs), (1, u16::MAX));
    assert_eq!(credits.unreturned(), 70_000 - 65_536);
}

/// What a random schedule does next.
#[derive(Clone, Debug)]
enum Step {
    Send(usize, Class),
    Deliver(usize),
    Recycle(usize),
    Grow(usize, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let class = prop::sample::select(&Class::ALL[..]);
    prop_oneof![
        4 => (0_usize..2, class).prop_map(|(s, c)| Step::Send(s, c)),
        4 => (0_usize..2).prop_map(Step::Deliver),
        2 => (0_usize..2).prop_map(Step::Recycle),
        1 => (0_usize..2, 1_u32..5).prop_map(|(s, n)| Step::Grow(s, n)),
    ]
}

/// One side as an oracle sees it: plain counters that do not wrap.
struct Oracle {
    credits: Credits,
    sent: u64,
    received: u64,
    posted: u64,
    held: u64,
    inbox: VecDeque<Bsdh>,
    last_limit: u32,
}

impl Oracle {
    fn new(credits: Credits, posted: u64, limit: u32) -> Self {
        Self {
            credits,
            sent: 0,
            received: 0,
            posted,
            held: 0,
            inbox: VecDeque::new(),
            last_limit: limit,
        }
    }
}

fn check_schedule(first: [u32; 2], posted: [u16; 2], steps: Vec<Step>) {
    let mut sides = [0, 1].map(|me| {
        let mut credits = Credits::starting_at(first[me], first[1 - me]);
        credits.posted(u32::from(posted[me]));
        assert_eq!(credits.announce(), posted[me]);
        credits.set_peer_limit(posted[1 - me]);
        let limit = first[1 - me].wrapping_add(u32::from(posted[me]));
        Oracle::new(credits, u64::from(posted[me]), limit)
    });
    for step in steps {
        match step {
            Step::Send(me, class) => {
                let side = &mut sides[me];
                let Some(stamp) = side.credits.stamp(class) else {
                    continue;
                };
                side.sent += 1;
                assert_eq!(stamp.mseq, first[me].wrapping_add(side.sent as u32));
                let hdr = header(stamp);
                let grown = hdr.limit().wrapping_sub(side.last_limit);
                assert!(grown < 1 << 31, "L never shrinks");
                side.last_limit = hdr.limit();
                assert_eq!(side.credits.unreturned(), 0);
                let peer = &mut sides[1 - me];
                peer.inbox.push_back(hdr);
                let in_flight = peer.inbox.len() as u64;
                assert!(
                    peer.received + in_flight <= peer.posted,
                    "a receive for each"
                );
            }
            Step::Deliver(me) => {
                let side = &mut sides[me];
                if let Some(hdr) = side.inbox.pop_front() {
                    let before = side.credits.available();
                    assert_eq!(side.credits.received(&hdr), Ok(()));
                    assert!(side.credits.available() >= before);
                    side.received += 1;
                    side.held += 1;
                }
            }
            Step::Recycle(me) => {
                let side = &mut sides[me];
                side.credits.posted(side.held as u32);
                side.posted += side.held;
                side.held = 0;
            }
            Step::Grow(me, n) => {
                sides[me].credits.posted(n);
                sides[me].posted += u64::from(n);
            }
        }
        for (me, side) in sides.iter().enumerate() {
            let peer = &sides[1 - me];
            assert_eq!(
                u64::from(side.credits.outstanding()),
                side.posted - side.received
            );
            // Never negative, seen from the one that knows: what I may still
            // send and what I have sent fits into what the peer has posted.
            let may = u64::from(side.credits.available());
            assert!(side.sent + may <= peer.posted);
            let on_the_way = peer.inbox.len() as u64;
            assert!(u64::from(side.credits.unacked()) >= on_the_way);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn schedules(
        posted in any::<[u16; 2]>().prop_map(|p| p.map(|n| 4 + n % 9)),
        steps in prop::collection::vec(step(), 0..400),
    ) {
        check_schedule([0, 0], posted, steps);
    }

    /// The same where both sequences wrap on the way.
    #[test]
    fn schedules_that_wrap(
        before in any::<[u32; 2]>().prop_map(|p| p.map(|n| 0_u32.wrapping_sub(n % 40))),
        posted in any::<[u16; 2]>().prop_map(|p| p.map(|n| 4 + n % 9)),
        steps in prop::collection::vec(step(), 100..400),
    ) {
        check_schedule(before, posted, steps);
    }

    /// Any header, in any state that a schedule of one side can reach: the
    /// four rules and nothing else decide.
    #[test]
    fn any_numbers(
        start: u32, posted in 4_u16..20, peer in 4_u16..20, sent in 0_usize..20,
        dseq in -2_i32..3, dack in -3_i32..4, bufs in 0_u16..30,
    ) {
        let mut credits = Credits::starting_at(start, !start);
        credits.posted(u32::from(posted));
        credits.announce();
        credits.set_peer_limit(peer);
        let sent = (0..sent).filter_map(|_| credits.stamp(Class::Update)).count() as i64;
        let ack = sent + i64::from(dack);
        let got = credits.received(&header(Stamp {
            mseq: (!start).wrapping_add(1).wrapping_add_signed(dseq),
            mseq_ack: start.wrapping_add(ack as u32),
            bufs,
        }));
        let expected = if dseq != 0 {
            Err(Violation::BadSequence)
        } else if !(0..=sent).contains(&ack) {
            Err(Violation::BadAck)
        } else if ack + i64::from(bufs) < i64::from(peer) {
            Err(Violation::CreditShrunk)
        } else {
            Ok(())
        };
        prop_assert_eq!(got, expected);
    }
}
