// SPDX-License-Identifier: GPL-2.0

//! Source adverts of the peer: what is read and reported, what is refused, and
//! any messages of a peer. Both sides together are in `advert_model`.

use proptest::prelude::*;
use proto_host::proto::{
    hello::Features,
    source_reader::{
        Answer,
        Destination,
        SourceReader, //
    },
    violation::Violation,
};

type Reader = SourceReader<4, 4>;

/// A reader with one advert of 10 bytes at 1000.
fn one_advert() -> Reader {
    let mut reader = Reader::new(4, Features::ALL);
    assert!(reader.on_advert(0, 10, 7, 1000).is_ok());
    reader
}

/// Payload follows the last advert until all bytes of this advert have arrived.
#[test]
fn payload_among_adverts() {
    let mut reader = one_advert();
    let first = reader.last_unread().expect("the advert is unread");
    assert!(!reader.has_arrived(first));
    assert_eq!((reader.untaken(), reader.next_untaken()), (10, 10));
    assert!(reader.on_data(3).is_ok());
    assert!(reader.on_advert(0, 5, 8, 2000).is_ok());
    let second = reader.last_unread().expect("the second advert is unread");
    assert!(second != first);
    assert!(reader.take(4, Destination::Program).is_some());
    assert_eq!((reader.untaken(), reader.next_untaken()), (6, 6));
    assert!(reader.take(9, Destination::Program).is_some());
    // The payload comes before the second advert.
    assert_eq!((reader.untaken(), reader.next_untaken()), (5, 0));
    assert_eq!(reader.on_read_done(), Some(4));
    assert!(!reader.has_arrived(first));
    assert_eq!(reader.on_read_done(), Some(6));
    assert!(reader.has_arrived(first) && !reader.has_arrived(second));
    assert_eq!((reader.untaken(), reader.next_untaken()), (5, 5));
    assert!(reader.take(2, Destination::Kernel).is_some());
    // Bytes that are on their way into the kernel's memory come first.
    assert_eq!((reader.untaken(), reader.next_untaken()), (3, 0));
    assert_eq!(reader.on_read_done(), Some(2));
    assert_eq!(reader.next_untaken(), 3);
    assert!(reader.take(3, Destination::Program).is_some());
    assert_eq!(reader.last_unread(), Some(second));
    assert_eq!(reader.on_read_done(), Some(3));
    assert_eq!(reader.last_unread(), None);
    assert!(reader.has_arrived(second));
}

/// What was taken of an advert arrives after a cancel, and payload may follow it afterwards.
#[test]
fn a_cancel_leaves_the_reads() {
    let mut reader = one_advert();
    assert!(reader.take(4, Destination::Kernel).is_some());
    assert!(reader.on_cancel().is_ok());
    assert_eq!(reader.untaken(), 0);
    let id = reader.last_unread().expect("the Read is in flight");
    assert_eq!(reader.on_read_done(), Some(4));
    assert!(reader.has_arrived(id));
    assert_eq!(reader.last_unread(), None);
}

#[test]
fn an_abort_forgets_all() {
    let mut reader = one_advert();
    assert!(reader.take(4, Destination::Kernel).is_some());
    assert!(reader.on_cancel().is_ok());
    reader.abort();
    assert!(reader.is_idle());
    assert_eq!((reader.last_unread(), reader.on_read_done()), (None, None));
}

#[test]
fn reads_stay_within_their_adverts() {
    let mut reader = one_advert();
    assert!(reader.on_advert(3, 5, 8, 2000).is_ok());
    assert_eq!(reader.untaken_bytes(), 15);
    let reads: Vec<_> = (0..5)
        .filter_map(|_| reader.take(6, Destination::Kernel))
        .map(|read| (read.rkey, read.addr, read.len))
        .collect();
    assert_eq!(reads, [(7, 1000, 6), (7, 1006, 4), (8, 2000, 5)]);
    assert_eq!(reader.untaken_bytes(), 0);
    assert_eq!(reader.take(0, Destination::Kernel), None);
    let done: Vec<_> = std::iter::from_fn(|| reader.on_read_done()).collect();
    assert_eq!(done, [6, 4, 5]);
}

#[test]
fn only_finished_reads_are_reported() {
    let mut reader = one_advert();
    assert_eq!(reader.on_read_done(), None);
    assert!(
        reader.take(6, Destination::Kernel).is_some()
            && reader.take(6, Destination::Kernel).is_some()
    );
    assert!(!reader.has_answer(true));
    assert_eq!(reader.on_read_done(), Some(6));
    assert!(!reader.has_answer(false), "a part is not due of itself");
    let part = Answer::ReadCompletion {
        bytes: 6,
        invalidate: None,
    };
    assert_eq!(reader.next_answer(true), Some(part));
    assert_eq!(reader.next_answer(true), None);
    assert_eq!(reader.on_read_done(), Some(4));
    let rest = Answer::ReadCompletion {
        bytes: 4,
        invalidate: Some(7),
    };
    assert_eq!(reader.next_answer(false), Some(rest));
    assert!(reader.is_idle());
}

#[test]
fn no_more_reads_than_the_ring_holds() {
    let mut reader = one_advert();
    assert_eq!(
        (0..9)
            .filter_map(|_| reader.take(1, Destination::Kernel))
            .count(),
        4
    );
    reader.on_read_done();
    assert!(reader.take(1, Destination::Kernel).is_some());
}

#[test]
fn a_cancelled_advert_is_reported_to_where_it_was_read() {
    let mut reader = one_advert();
    let second = reader.on_advert(0, 10, 8, 2000);
    let third = reader.on_advert(0, 10, 9, 3000);
    assert!(second.is_ok() && third.is_ok());
    // The first and half of the second are being read.
    assert!(
        reader.take(10, Destination::Kernel).is_some()
            && reader.take(5, Destination::Kernel).is_some()
    );
    assert_eq!(reader.on_cancel(), Ok(second.ok()));
    assert_eq!(reader.take(10, Destination::Kernel), None);
    assert_eq!(reader.next_answer(true), None, "the Reads go on");
    assert_eq!(reader.on_data(1), Err(Violation::PayloadDuringCancel));
    assert_eq!(reader.on_disconn(), Err(Violation::PayloadDuringCancel));
    let advert = reader.on_advert(0, 1, 1, 1);
    assert_eq!(advert, Err(Violation::PayloadDuringCancel));
    assert_eq!(reader.on_data(0), Ok(()), "credits are no payload");
    reader.on_read_done();
    reader.on_read_done();
    let answers: Vec<_> = (0..4).filter_map(|_| reader.next_answer(false)).collect();
    let report = |bytes, invalidate| Answer::ReadCompletion { bytes, invalidate };
    let expected = [report(10, Some(7)), report(5, None), Answer::SendSm];
    assert_eq!(answers, expected);
    assert!(reader.is_idle());
}

#[test]
fn a_cancel_of_what_was_reported_needs_no_further_report() {
    let mut reader = one_advert();
    assert!(reader.take(4, Destination::Kernel).is_some());
    reader.on_read_done();
    assert!(reader.next_answer(true).is_some());
    assert!(reader.on_cancel().is_ok());
    assert_eq!(reader.next_answer(true), Some(Answer::SendSm));
    assert_eq!(reader.next_answer(true), None);
}

#[test]
fn a_cancel_needs_an_advert_since_the_last() {
    let mut reader = Reader::new(4, Features::ALL);
    assert_eq!(reader.on_cancel(), Err(Violation::NothingToCancel));
    // One that crosses our last report finds nothing and is answered.
    let mut reader = one_advert();
    assert!(reader.take(10, Destination::Kernel).is_some());
    reader.on_read_done();
    assert!(reader.next_answer(false).is_some() && reader.is_idle());
    assert_eq!(reader.on_cancel(), Ok(None));
    // A second one before the answer, and one after it.
    assert_eq!(reader.on_cancel(), Err(Violation::NothingToCancel));
    assert_eq!(reader.next_answer(false), Some(Answer::SendSm));
    assert_eq!(reader.on_cancel(), Err(Violation::NothingToCancel));
}

#[test]
fn nothing_unread_with_payload_behind_it_can_be_cancelled() {
    let behind = Err(Violation::CancelBehindPayload);
    let mut reader = one_advert();
    assert_eq!(reader.on_data(1), Ok(()));
    assert_eq!(reader.clone().on_cancel(), behind);
    assert!(reader.on_advert(0, 1, 8, 0).is_ok());
    assert_eq!(reader.clone().on_cancel(), behind);
    assert!(reader.take(9, Destination::Kernel).is_some());
    assert_eq!(reader.clone().on_cancel(), behind);
    // Once all before the payload is being read, what follows can be.
    assert!(reader.take(9, Destination::Kernel).is_some());
    assert!(matches!(reader.on_cancel(), Ok(Some(_))));
    let mut reader = one_advert();
    assert!(reader.on_advert(1, 1, 8, 0).is_ok());
    assert_eq!(reader.on_cancel(), behind);
}

#[test]
fn adverts_of_a_peer_that_are_refused() {
    let mut reader = Reader::new(2, Features::ALL);
    assert_eq!(reader.on_advert(0, 0, 1, 1), Err(Violation::BadBody));
    let end = reader.on_advert(0, 2, 1, u64::MAX);
    assert_eq!(end, Err(Violation::BadBody));
    assert!(reader.on_advert(0, 1, 1, u64::MAX).is_ok());
    assert!(reader.on_advert(0, 1, 1, 1).is_ok());
    let third = reader.on_advert(0, 1, 1, 1);
    assert_eq!(third, Err(Violation::TooManyAdverts));
    let mut combined = Reader::new(2, Features::SOURCE);
    assert_eq!(combined.on_data(1), Ok(()));
    assert!(combined.on_advert(1, 1, 1, 1).is_ok());
    assert_eq!(combined.on_data(0), Ok(()));
    assert_eq!(combined.on_data(1), Err(Violation::PayloadBehindAdvert));
    let second = combined.on_advert(0, 1, 1, 1);
    assert_eq!(second, Err(Violation::TooManyAdverts));
}

proptest! {
    /// Whatever a peer sends, all that was taken is reported once, adverts are
    /// never more than agreed on, and one SendSm answers each cancel.
    #[test]
    fn any_adverts(steps in prop::collection::vec((0_u8..7, 0_u32..4, 0_u32..4), 0..80),
                   max in 1_u8..6, ordered: bool) {
        let features = if ordered { Features::ALL } else { Features::SOURCE };
        let mut reader = Reader::new(max, features);
        let (mut taken, mut reported, mut adverts) = (0, 0, 0_u64);
        let (mut cancels, mut send_sms, mut cancelling) = (0, 0, false);
        for (what, a, b) in steps {
            match what {
                0 => {
                    let ok = reader.on_data(a).is_ok();
                    prop_assert!(a == 0 || !ok || !cancelling);
                }
                1 => {
                    let ok = reader.on_advert(a, b, 1, 100).is_ok();
                    prop_assert!(!ok || (b > 0 && !cancelling));
                    adverts += u64::from(ok) * u64::from(b);
                }
                2 | 3 => taken += reader.take(a, Destination::Kernel).map_or(0, |read| read.len),
                4 => { reader.on_read_done(); }
                5 => match reader.next_answer(b == 0) {
                    Some(Answer::SendSm) => {
                        prop_assert!(cancelling && reported == taken);
                        send_sms += 1;
                        cancelling = false;
                    }
                    Some(Answer::ReadCompletion { bytes, .. }) => {
                        prop_assert!(bytes > 0);
                        reported += bytes;
                    }
                    None => {}
                },
                _ => {
                    let untaken = reader.untaken_bytes();
                    if reader.on_cancel().is_ok() {
                        prop_assert!(!cancelling);
                        adverts -= untaken;
                        cancels += 1;
                        cancelling = true;
                        prop_assert_eq!(reader.untaken_bytes(), 0);
                    }
                }
            }
            prop_assert!(reported <= taken && u64::from(taken) <= adverts);
            prop_assert_eq!(reader.untaken_bytes(), adverts - u64::from(taken));
        }
        while reader.take(9, Destination::Kernel).is_some() || reader.on_read_done().is_some() || reader.has_answer(false) {
            match reader.next_answer(false) {
                Some(Answer::ReadCompletion { bytes, .. }) => reported += bytes,
                Some(Answer::SendSm) => send_sms += 1,
                None => {}
            }
        }
        prop_assert!(reader.is_idle() && u64::from(reported) == adverts && cancels == send_sms);
    }
}
