// SPDX-License-Identifier: GPL-2.0

//! Source adverts of our own: what may be sent, what comes back, and any
//! answers of a peer. Both sides together are in `advert_model`.

use proptest::prelude::*;
use proto_host::proto::{
    hello::Features,
    source::{
        AdvertState,
        End,
        Ended,
        Kind,
        NotYet,
        Progress,
        SourceAdverts, //
    },
    violation::Violation,
};
use std::collections::VecDeque;
use Kind::{
    Asynchronous,
    Synchronous, //
};

type Adverts = SourceAdverts<u32, 4>;

/// Adverts of 10 bytes, with the owners 0, 1 and so on.
fn posted(kind: Kind, count: u32) -> Adverts {
    let mut adverts = Adverts::new(4, Features::ALL);
    for owner in 0..count {
        assert!(adverts.post(kind, 0, 10, owner).is_ok());
    }
    adverts
}

fn consumed(progress: Result<Progress<u32>, Violation>) -> Ended<u32> {
    match progress {
        Ok(Progress::Consumed(ended)) => ended,
        other => panic!("{other:?}"),
    }
}

#[test]
fn adverts_are_consumed_in_order_whole_or_in_parts() {
    let mut adverts = posted(Asynchronous, 2);
    let first = adverts.iter().next().map(|advert| advert.id);
    let partly = adverts.on_read_completion(4).expect("a part");
    assert!(matches!(partly, Progress::Partly { id, left: 6 } if Some(id) == first));
    let states: Vec<_> = adverts.iter().map(|a| (a.state, a.read)).collect();
    assert_eq!(
        states,
        [(AdvertState::PartlyRead, 4), (AdvertState::Posted, 0)]
    );
    let ended = consumed(adverts.on_read_completion(6));
    assert_eq!((ended.owner, ended.read, ended.end), (0, 10, End::Consumed));
    assert_eq!(consumed(adverts.on_read_completion(10)).owner, 1);
    assert!(adverts.is_idle());
}

#[test]
fn bad_completions_are_refused_and_change_nothing() {
    let mut adverts = posted(Synchronous, 1);
    let before = adverts.clone();
    for (bytes, why) in [
        (0, Violation::EmptyCompletion),
        (11, Violation::AdvertOverrun),
        (u32::MAX, Violation::AdvertOverrun),
    ] {
        assert_eq!(adverts.on_read_completion(bytes), Err(why));
        assert_eq!(adverts, before);
    }
    assert!(adverts.on_read_completion(9).is_ok());
    let more = adverts.on_read_completion(2);
    assert_eq!(more, Err(Violation::AdvertOverrun));
    let mut none = posted(Synchronous, 0);
    assert_eq!(none.on_read_completion(1), Err(Violation::NoAnswerDue));
}

#[test]
fn what_may_be_sent_behind_adverts() {
    let sync = posted(Synchronous, 1);
    assert_eq!(sync.may_post(Synchronous, 0), Ok(()));
    assert_eq!(
        sync.may_post(Synchronous, 1),
        Err(NotYet::BehindSynchronous)
    );
    assert_eq!(sync.may_post(Asynchronous, 0), Err(NotYet::OtherKind));
    assert_eq!(sync.may_send_payload(), Err(NotYet::BehindSynchronous));
    let asynchronous = posted(Asynchronous, 3);
    assert_eq!(asynchronous.may_post(Asynchronous, 1), Ok(()));
    assert_eq!(
        asynchronous.may_post(Synchronous, 0),
        Err(NotYet::OtherKind)
    );
    assert_eq!(asynchronous.may_send_payload(), Ok(()));
    let full = posted(Asynchronous, 4);
    assert_eq!(full.may_post(Asynchronous, 0), Err(NotYet::Full));
    assert_eq!(full.may_send_payload(), Ok(()));
}

#[test]
fn in_combined_mode_one_advert_and_nothing_behind_it() {
    for kind in [Synchronous, Asynchronous] {
        let mut adverts = Adverts::new(4, Features::SOURCE);
        assert!(adverts.post(kind, 7, 10, 0).is_ok());
        assert_eq!(adverts.post(kind, 0, 10, 1), Err((NotYet::Full, 1)));
        assert_eq!(adverts.may_send_payload(), Err(NotYet::Combined));
        assert_eq!(consumed(adverts.on_read_completion(10)).owner, 0);
        assert_eq!(adverts.may_send_payload(), Ok(()));
    }
}

#[test]
fn the_peers_limit_and_the_ring_both_hold() {
    let mut few = Adverts::new(2, Features::ALL);
    let results: Vec<_> = (0..3)
        .map(|n| few.post(Asynchronous, 0, 1, n).is_ok())
        .collect();
    assert_eq!(results, [true, true, false]);
    let mut many = Adverts::new(255, Features::ALL);
    let results: Vec<_> = (0..5)
        .map(|n| many.post(Asynchronous, 0, 1, n).is_ok())
        .collect();
    assert_eq!(results, [true, true, true, true, false]);
    assert_eq!(few.post(Asynchronous, 0, 0, 9), Err((NotYet::Empty, 9)));
}

#[test]
fn a_cancel_takes_back_all_and_waits_for_the_answer() {
    let mut adverts = posted(Synchronous, 3);
    assert_eq!(adverts.cancel(), Ok(()));
    assert_eq!(adverts.cancel(), Err(NotYet::Cancelling));
    let early = adverts.on_send_sm(|_| panic!("nobody was asked"));
    assert_eq!(early, Err(Violation::NoAnswerDue));
    assert!(adverts.is_cancel_due());
    adverts.cancel_sent();
    assert!(!adverts.is_cancel_due());
    assert_eq!(adverts.may_post(Synchronous, 0), Err(NotYet::Cancelling));
    assert_eq!(adverts.may_send_payload(), Err(NotYet::Cancelling));
    assert!(adverts.iter().all(|a| a.state == AdvertState::Cancelling));
    // What crossed, and what was being read.
    assert_eq!(consumed(adverts.on_read_completion(10)).owner, 0);
    assert!(adverts.on_read_completion(3).is_ok());
    let mut back = Vec::new();
    let sm = adverts.on_send_sm(|ended| back.push((ended.owner, ended.read, ended.end)));
    assert_eq!(sm, Ok(()));
    assert_eq!(back, [(1, 3, End::Cancelled), (2, 0, End::Cancelled)]);
    assert!(adverts.is_idle());
    let again = adverts.on_send_sm(|_| panic!("nothing is left"));
    assert_eq!(again, Err(Violation::NoAnswerDue));
}

#[test]
fn a_cancel_that_crosses_the_last_completion_is_answered() {
    let mut adverts = posted(Synchronous, 1);
    assert_eq!(adverts.cancel(), Ok(()));
    adverts.cancel_sent();
    assert_eq!(consumed(adverts.on_read_completion(10)).owner, 0);
    assert!(!adverts.is_idle(), "the answer is still due");
    assert_eq!(adverts.on_read_completion(1), Err(Violation::NoAnswerDue));
    assert_eq!(adverts.on_send_sm(|_| panic!("nothing")), Ok(()));
    assert!(adverts.is_idle());
}

#[test]
fn a_cancel_that_was_not_sent_is_dropped_with_the_last_advert() {
    let mut adverts = posted(Synchronous, 1);
    assert_eq!(adverts.cancel(), Ok(()));
    assert_eq!(consumed(adverts.on_read_completion(10)).owner, 0);
    assert!(!adverts.is_cancel_due());
    assert!(adverts.is_idle());
}

#[test]
fn asynchronous_adverts_stay() {
    assert_eq!(
        posted(Asynchronous, 2).cancel(),
        Err(NotYet::NotCancellable)
    );
    let none = posted(Synchronous, 0).cancel();
    assert_eq!(none, Err(NotYet::NothingOutstanding));
}

#[test]
fn an_abort_hands_all_back_in_order() {
    for cancelled in [false, true] {
        let mut adverts = posted(Synchronous, 3);
        assert!(adverts.on_read_completion(2).is_ok());
        assert!(!cancelled || adverts.cancel().is_ok());
        let mut back = Vec::new();
        adverts.abort(|ended| back.push((ended.owner, ended.read, ended.end)));
        let end = End::Aborted;
        assert_eq!(back, [(0, 2, end), (1, 0, end), (2, 0, end)]);
        assert!(adverts.is_idle());
    }
}

#[derive(Copy, Clone, Debug)]
enum Step {
    Post(bool, u32, u32),
    Completion(u32),
    Cancel,
    CancelSent,
    SendSm,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (any::<bool>(), 0_u32..2, 0_u32..5).prop_map(|(k, i, l)| Step::Post(k, i, l)),
        3 => (0_u32..6).prop_map(Step::Completion),
        1 => Just(Step::Cancel),
        1 => Just(Step::CancelSent),
        1 => Just(Step::SendSm),
    ]
}

proptest! {
    /// Against a plain list: whatever the peer answers, each advert comes back
    /// once, in order, and no more is read of it than it has.
    #[test]
    fn any_answers(steps in prop::collection::vec(step(), 0..60), max in 1_u8..6) {
        let mut adverts = Adverts::new(max, Features::ALL);
        let mut list: VecDeque<(u32, bool, u32, u32)> = VecDeque::new();
        let (mut cancelling, mut asked, mut owner) = (false, false, 0);
        for step in steps {
            match step {
                Step::Post(sync, inline, len) => {
                    owner += 1;
                    let kind = if sync { Synchronous } else { Asynchronous };
                    let same = list.iter().all(|entry| entry.1 == sync);
                    let room = list.len() < usize::from(max).min(4);
                    let behind = sync && inline > 0 && !list.is_empty();
                    let may = len > 0 && !cancelling && same && room && !behind;
                    prop_assert_eq!(adverts.post(kind, inline, len, owner).is_ok(), may);
                    if may {
                        list.push_back((owner, sync, len, 0));
                    }
                }
                Step::Completion(bytes) => {
                    let left = list.front().map_or(0, |e| e.2 - e.3);
                    match adverts.on_read_completion(bytes) {
                        Err(_) => prop_assert!(bytes == 0 || bytes > left),
                        Ok(Progress::Partly { left: now, .. }) => {
                            prop_assert_eq!(now, left - bytes);
                            list[0].3 += bytes;
                        }
                        Ok(Progress::Consumed(ended)) => {
                            prop_assert_eq!(bytes, left);
                            prop_assert_eq!(list.pop_front().map(|e| e.0), Some(ended.owner));
                            cancelling &= asked || !list.is_empty();
                        }
                    }
                }
                Step::Cancel => {
                    let may = !cancelling && list.front().is_some_and(|e| e.1);
                    prop_assert_eq!(adverts.cancel().is_ok(), may);
                    cancelling |= may;
                }
                Step::CancelSent => {
                    prop_assert_eq!(adverts.is_cancel_due(), cancelling && !asked);
                    adverts.cancel_sent();
                    asked = cancelling;
                }
                Step::SendSm => {
                    let mut back = Vec::new();
                    let answer = adverts.on_send_sm(|e| back.push((e.owner, true, e.len, e.read)));
                    prop_assert_eq!(answer.is_ok(), asked);
                    if asked {
                        prop_assert_eq!(&back, &list.drain(..).collect::<Vec<_>>());
                        (cancelling, asked) = (false, false);
                    }
                    prop_assert!(answer.is_ok() || back.is_empty());
                }
            }
            prop_assert_eq!(adverts.iter().count(), list.len());
        }
    }
}
