// SPDX-License-Identifier: GPL-2.0

//! Sink adverts, both sides: what is accepted, when a buffer comes back, and
//! any messages of a peer. Both sides together are in `advert_model`.

use proptest::prelude::*;
use proto_host::proto::{
    hello::Features,
    sink::{
        Returned,
        SinkAdverts,
        SinkHold, //
    },
    sink_writer::{
        PayloadEvents,
        SinkWriter,
        Write, //
    },
    violation::Violation,
};
use std::collections::VecDeque;

type Adverts = SinkAdverts<u32, 4>;
type Writer = SinkWriter<4>;

/// Buffers of 10 bytes, with the owners 0, 1 and so on.
fn posted(count: u32) -> Adverts {
    let mut adverts = Adverts::new(4, Features::ALL, PayloadEvents::new());
    for owner in 0..count {
        assert_eq!(adverts.post(true, 10, owner), Ok(0));
    }
    adverts
}

/// Accepted adverts of 10 bytes, with the keys 0, 1 and so on.
fn accepted(count: u32) -> Writer {
    let mut writer = Writer::new(4, Features::ALL, PayloadEvents::new());
    for rkey in 0..count {
        let addr = 1000 * u64::from(rkey);
        assert_eq!(writer.on_advert(10, rkey, addr, 0), Ok(true));
    }
    writer
}

/// What comes back, as owner and bytes.
fn complete(adverts: &mut Adverts, bytes: u32) -> Vec<(u32, u32)> {
    let mut back = Vec::new();
    let done = adverts.on_write_completion(bytes, |r| back.push((r.owner, r.bytes)));
    assert_eq!(done, Ok(()));
    back
}

fn payload(adverts: &mut Adverts) -> Vec<u32> {
    let mut back = Vec::new();
    adverts.on_payload(|Returned { bytes, owner, .. }| {
        assert_eq!(bytes, 0);
        back.push(owner);
    });
    back
}

fn answers(writer: &mut Writer) -> Vec<u32> {
    std::iter::from_fn(|| writer.next_answer()).collect()
}

#[test]
fn a_full_buffer_comes_back_alone() {
    let mut adverts = posted(2);
    assert_eq!(complete(&mut adverts, 10), [(0, 10)]);
    assert!(adverts.is_live());
    assert_eq!(adverts.events().count(), 0, "a full one is no event");
    assert_eq!(complete(&mut adverts, 0), [(1, 0)]);
    assert!(!adverts.is_live());
}

#[test]
fn a_short_answer_is_an_event_and_ends_all() {
    let mut adverts = posted(3);
    assert_eq!(complete(&mut adverts, 4), [(0, 4), (1, 0), (2, 0)]);
    assert_eq!(adverts.events().count(), 1);
    // Their answers still come, in front of that of the next one.
    assert_eq!(adverts.unanswered(), 2);
    assert_eq!(adverts.post(true, 10, 9), Ok(1));
    assert_eq!(complete(&mut adverts, 0), []);
    assert_eq!(complete(&mut adverts, 0), []);
    assert_eq!(complete(&mut adverts, 10), [(9, 10)]);
}

#[test]
fn payload_ends_all_buffers() {
    let mut adverts = posted(2);
    assert_eq!(payload(&mut adverts), [0, 1]);
    assert!(payload(&mut adverts).is_empty());
    assert_eq!(adverts.events().count(), 2);
    let late = adverts.on_write_completion(1, |_| panic!("it was returned"));
    assert_eq!(late, Err(Violation::WriteVoided));
}

#[test]
fn bad_answers_are_refused_and_change_nothing() {
    let mut adverts = posted(1);
    let before = adverts.clone();
    let over = adverts.on_write_completion(11, |_| panic!("nothing"));
    assert_eq!(over, Err(Violation::AdvertOverrun));
    assert_eq!(adverts, before);
    let none = posted(0).on_write_completion(0, |_| panic!("nothing"));
    assert_eq!(none, Err(Violation::NoAnswerDue));
}

#[test]
fn when_a_buffer_may_be_advertised() {
    let mut adverts = posted(3);
    let unread = adverts.post(false, 10, 7);
    assert_eq!(unread, Err((SinkHold::QueueNotEmpty, 7)));
    assert_eq!(adverts.post(true, 0, 7), Err((SinkHold::Empty, 7)));
    assert!(adverts.post(true, 10, 3).is_ok());
    assert_eq!(adverts.post(true, 10, 7), Err((SinkHold::Full, 7)));
    // One that was returned still takes a place at the peer.
    assert_eq!(payload(&mut adverts), [0, 1, 2, 3]);
    assert_eq!(adverts.post(true, 10, 7), Err((SinkHold::Full, 7)));
    assert_eq!(complete(&mut adverts, 0), []);
    assert_eq!(adverts.post(true, 10, 7), Ok(1));
    let mut few = Adverts::new(1, Features::ALL, PayloadEvents::new());
    assert!(few.post(true, 10, 0).is_ok());
    assert_eq!(few.post(true, 10, 7), Err((SinkHold::Full, 7)));
}

#[test]
fn a_cancel_waits_for_all_answers() {
    let mut adverts = posted(2);
    assert_eq!(adverts.cancel(), Ok(()));
    assert!(adverts.is_cancel_due());
    adverts.cancel_sent();
    assert!(!adverts.is_cancel_due());
    assert_eq!(adverts.cancel(), Err(SinkHold::Cancelling));
    assert_eq!(adverts.post(true, 10, 7), Err((SinkHold::Cancelling, 7)));
    // A Write may have been on its way.
    assert_eq!(complete(&mut adverts, 10), [(0, 10)]);
    assert_eq!(adverts.cancel(), Err(SinkHold::Cancelling));
    assert_eq!(complete(&mut adverts, 0), [(1, 0)]);
    assert_eq!(adverts.cancel(), Err(SinkHold::NothingOutstanding));
    assert_eq!(adverts.post(true, 10, 7), Ok(0));
    // Payload ends the waiting, too.
    assert_eq!(adverts.cancel(), Ok(()));
    assert_eq!(payload(&mut adverts), [7]);
    assert!(!adverts.is_cancel_due());
    assert_eq!(adverts.cancel(), Err(SinkHold::NothingOutstanding));
}

#[test]
fn an_abort_returns_all_in_order() {
    let mut adverts = posted(3);
    assert_eq!(adverts.cancel(), Ok(()));
    let mut back = Vec::new();
    adverts.abort(|returned| back.push(returned.owner));
    assert_eq!(back, [0, 1, 2]);
    assert_eq!((adverts.unanswered(), adverts.is_live()), (0, false));
}

#[test]
fn writes_fill_adverts_in_order() {
    let mut writer = accepted(2);
    assert_eq!((writer.room(), writer.has_answer()), (10, false));
    let write = |rkey, addr| {
        Some(Write {
            rkey,
            addr,
            len: 10,
        })
    };
    assert_eq!(writer.write(0), None);
    assert_eq!(writer.write(12), write(0, 0));
    assert_eq!(writer.write(99), write(1, 1000));
    assert_eq!((writer.write(1), writer.room()), (None, 0));
    assert_eq!(answers(&mut writer), [10, 10]);
    assert_eq!(writer.events().count(), 0);
    assert!(writer.is_idle());
}

#[test]
fn a_short_write_declines_the_rest() {
    let mut writer = accepted(3);
    assert_eq!(writer.write(4).map(|w| w.len), Some(4));
    assert_eq!(writer.events().count(), 1);
    assert_eq!(writer.write(4), None);
    assert!(!writer.note_payload(), "answers first");
    assert_eq!(answers(&mut writer), [4, 0, 0]);
    // One that was posted before the reader knew.
    assert_eq!(writer.on_advert(10, 9, 0, 0), Ok(false));
    assert_eq!(answers(&mut writer), [0]);
    assert_eq!(writer.on_advert(10, 9, 0, 1), Ok(true));
}

#[test]
fn payload_waits_for_the_answers() {
    let mut writer = accepted(2);
    assert!(!writer.note_payload());
    assert_eq!(writer.events().count(), 0);
    writer.decline();
    assert!(!writer.note_payload());
    assert_eq!(answers(&mut writer), [0, 0]);
    assert!(writer.note_payload());
    assert_eq!(writer.events().count(), 1);
    assert_eq!(writer.on_advert(10, 1, 1, 0), Ok(false));
}

/// More of the receive whose advert was declined may be on its way.
#[test]
fn none_is_accepted_between_a_decline_and_its_event() {
    let mut writer = accepted(1);
    writer.decline();
    assert_eq!(writer.on_advert(10, 8, 0, 0), Ok(false));
    assert!(!writer.note_payload());
    assert_eq!(answers(&mut writer), [0, 0]);
    // Answers alone, or another decline, are no event.
    writer.decline();
    assert_eq!(writer.on_advert(10, 9, 0, 0), Ok(false));
    assert_eq!((writer.room(), writer.write(10)), (0, None));
    assert_eq!(answers(&mut writer), [0]);
    assert!(writer.note_payload());
    assert_eq!(writer.on_advert(10, 10, 0, 0), Ok(false));
    assert_eq!(writer.on_advert(10, 11, 0, 1), Ok(true));
    assert_eq!(writer.room(), 10);
}

/// What the next receive advertises comes behind the answers to a cancel.
#[test]
fn adverts_behind_a_cancel_are_accepted() {
    let mut writer = accepted(2);
    assert_eq!(writer.on_cancel(), Ok(()));
    assert_eq!(answers(&mut writer), [0, 0]);
    assert_eq!(writer.on_advert(10, 9, 0, 0), Ok(true));
    assert_eq!(writer.room(), 10);
    // But not if an event is still to come.
    writer.decline();
    assert_eq!(writer.on_cancel(), Ok(()));
    assert_eq!(answers(&mut writer), [0]);
    assert_eq!(writer.on_advert(10, 9, 0, 0), Ok(false));
}

#[test]
fn a_decline_of_nothing_changes_nothing() {
    let mut writer = accepted(0);
    writer.decline();
    assert_eq!(writer.on_advert(10, 1, 0, 0), Ok(true));
    assert!(writer.write(10).is_some());
    // One that was written to is not declined.
    writer.decline();
    assert_eq!(writer.on_advert(10, 2, 0, 0), Ok(true));
    assert_eq!(answers(&mut writer), [10]);
}

#[test]
fn only_an_equal_count_is_accepted() {
    let mut events = PayloadEvents::new();
    events.note();
    let mut writer = Writer::new(4, Features::ALL, events);
    for (count, ok) in [(0, false), (1, true), (2, false), (u32::MAX, false)] {
        assert_eq!(writer.on_advert(10, 1, 1, count), Ok(ok));
    }
    // In front of the accepted one an answer is due, behind it two wait.
    assert_eq!(answers(&mut writer), [0]);
    assert!(writer.write(10).is_some());
    assert_eq!(answers(&mut writer), [10, 0, 0]);
}

#[test]
fn a_cancel_is_answered_for_each_advert() {
    let mut writer = accepted(3);
    assert!(writer.write(10).is_some());
    assert_eq!(writer.on_cancel(), Ok(()));
    assert_eq!(writer.on_cancel(), Err(Violation::NothingToCancel));
    assert_eq!(writer.write(10), None);
    assert_eq!(answers(&mut writer), [10, 0, 0]);
    assert_eq!(accepted(0).on_cancel(), Err(Violation::NothingToCancel));
    // One that crosses the last answer has nothing left to do.
    let mut writer = accepted(1);
    assert!(writer.write(10).is_some());
    assert_eq!(answers(&mut writer), [10]);
    assert_eq!(writer.on_cancel(), Ok(()));
    assert!(writer.is_idle());
}

#[test]
fn adverts_of_a_peer_that_are_refused() {
    let mut writer = accepted(4);
    let full = writer.on_advert(10, 9, 9, 0);
    assert_eq!(full, Err(Violation::TooManyAdverts));
    let mut writer = Writer::new(2, Features::ALL, PayloadEvents::new());
    assert_eq!(writer.on_advert(0, 9, 9, 0), Err(Violation::BadBody));
    let end = writer.on_advert(2, 9, u64::MAX, 0);
    assert_eq!(end, Err(Violation::BadBody));
    // Refused ones count until they are answered.
    assert_eq!(writer.on_advert(1, 9, 9, 5), Ok(false));
    assert_eq!(writer.on_advert(1, 9, u64::MAX, 0), Ok(true));
    let third = writer.on_advert(1, 9, 9, 0);
    assert_eq!(third, Err(Violation::TooManyAdverts));
}

proptest! {
    /// Whatever the peer answers, each buffer comes back once, in order, and
    /// none has bytes that arrived after it came back.
    #[test]
    fn any_answers(steps in prop::collection::vec((0_u8..6, 0_u32..12), 0..60)) {
        let mut adverts = posted(0);
        // Outstanding buffers: length, and whether it came back.
        let mut list: VecDeque<(u32, u32, bool)> = VecDeque::new();
        let (mut owner, mut events) = (0, 0);
        for (what, bytes) in steps {
            let mut back = Vec::new();
            let mut expected = Vec::new();
            let all = |list: &mut VecDeque<(u32, u32, bool)>, expected: &mut Vec<_>| {
                for entry in list.iter_mut().filter(|entry| !entry.2) {
                    expected.push((entry.0, 0));
                    entry.2 = true;
                }
            };
            match what {
                0 | 1 => {
                    owner += 1;
                    if adverts.post(true, bytes, owner) == Ok(events) {
                        list.push_back((owner, bytes, false));
                    }
                    prop_assert!(list.len() <= 4);
                }
                2 => {
                    adverts.on_payload(|r| back.push((r.owner, r.bytes)));
                    all(&mut list, &mut expected);
                    events += 1;
                }
                3 => { let _ = adverts.cancel(); }
                _ => {
                    let answer = adverts.on_write_completion(bytes, |r| back.push((r.owner, r.bytes)));
                    let good = list.front().is_some_and(|e| bytes <= e.1 && (bytes == 0 || !e.2));
                    prop_assert_eq!(answer.is_ok(), good);
                    if good {
                        if let Some((owner, len, returned)) = list.pop_front() {
                            if !returned {
                                expected.push((owner, bytes));
                            }
                            if bytes > 0 && bytes < len {
                                events += 1;
                                all(&mut list, &mut expected);
                            }
                        }
                    }
                }
            }
            prop_assert_eq!(back, expected);
            prop_assert_eq!(adverts.events().count(), events);
            prop_assert_eq!(adverts.unanswered(), list.len());
            prop_assert_eq!(adverts.is_live(), list.iter().any(|entry| !entry.2));
        }
    }

    /// Whatever the peer advertises, each advert has one answer, in order, and
    /// is written to at most once, within its bounds, while its count holds
    /// and no event is due for which others were declined.
    #[test]
    fn any_adverts(steps in prop::collection::vec((0_u8..6, 0_u32..9, 0_u32..3), 0..80)) {
        let mut writer = accepted(0);
        // Unanswered adverts: key, length, and the answer if it is known.
        let mut list: VecDeque<(u32, u32, Option<u32>)> = VecDeque::new();
        let mut key = 0;
        // Some were declined, and the event was not sent yet.
        let mut closed = false;
        for (what, bytes, count) in steps {
            let events = writer.events().count();
            match what {
                0 | 1 => {
                    key += 1;
                    if let Ok(ok) = writer.on_advert(bytes, key, 0, count) {
                        prop_assert_eq!(ok, count == events && !closed);
                        list.push_back((key, bytes, (!ok).then_some(0)));
                    }
                    prop_assert!(list.len() <= 4);
                }
                2 => {
                    let first = list.iter_mut().find(|entry| entry.2.is_none());
                    let write = writer.write(bytes);
                    prop_assert_eq!(write.is_some(), first.is_some() && bytes > 0);
                    if let (Some(write), Some(entry)) = (write, first) {
                        prop_assert_eq!((write.rkey, write.len), (entry.0, entry.1.min(bytes)));
                        entry.2 = Some(write.len);
                        let short = write.len < entry.1;
                        prop_assert_eq!(writer.events().count(), events + u32::from(short));
                        if short {
                            list.iter_mut().for_each(|entry| entry.2 = entry.2.or(Some(0)));
                        }
                    }
                }
                3 => {
                    let due = list.front().and_then(|entry| entry.2);
                    prop_assert_eq!(writer.next_answer(), due);
                    if due.is_some() {
                        list.pop_front();
                    }
                }
                4 => {
                    prop_assert_eq!(writer.note_payload(), list.is_empty());
                    closed &= !list.is_empty();
                }
                _ => {
                    if count == 0 {
                        closed |= list.iter().any(|entry| entry.2.is_none());
                        writer.decline();
                    } else if writer.on_cancel().is_err() {
                        continue;
                    }
                    list.iter_mut().for_each(|entry| entry.2 = entry.2.or(Some(0)));
                }
            }
            let room = list.iter().find(|entry| entry.2.is_none()).map_or(0, |e| e.1);
            prop_assert_eq!(writer.room(), room);
            let due = list.front().is_some_and(|entry| entry.2.is_some());
            prop_assert_eq!((writer.has_answer(), writer.is_idle()), (due, list.is_empty()));
        }
    }
}
