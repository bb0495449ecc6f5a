// SPDX-License-Identifier: GPL-2.0

//! Connection set-up: layouts, round trips, and every way to get it wrong.

use proptest::prelude::*;
use proto_host::proto::{
    bsdh::Mid,
    hello::{
        Features,
        Hello,
        HelloAck,
        Refusal,
        BUFS_MIN,
        HELLO_ACK_LEN,
        HELLO_ACK_ROOM,
        HELLO_LEN,
        HELLO_ROOM,
        RCV_SIZE_MAX,
        RCV_SIZE_MIN, //
    },
    violation::Violation,
};

fn hello() -> Hello {
    Hello {
        features: Features::ORDERED.union(Features::SOURCE),
        max_adverts: 5,
        bufs: 0x0102,
        rcv_size: 0x0000_4321,
        ipv6: true,
        src_port: 0x0708,
        nonce: 0x1112_1314_1516_1718,
    }
}

fn ack() -> HelloAck {
    HelloAck {
        features: Features::ORDERED,
        max_adverts: 6,
        bufs: 0x0304,
        rcv_size: 0x0001_2345,
    }
}

/// What the CM hands over: the message and then whatever was there.
fn in_room(message: &[u8], room: usize, filler: u8) -> Vec<u8> {
    let mut all = vec![filler; room];
    all[..message.len()].copy_from_slice(message);
    all
}

/// The sample Hello with `bytes` at `at`.
fn changed(at: usize, bytes: &[u8]) -> Result<Hello, Violation> {
    let mut all = in_room(&hello().encode(), HELLO_ROOM, 0);
    all[at..at + bytes.len()].copy_from_slice(bytes);
    Hello::decode(&all)
}

fn changed_ack(at: usize, bytes: &[u8]) -> Result<HelloAck, Violation> {
    let mut all = in_room(&ack().encode(), HELLO_ACK_ROOM, 0);
    all[at..at + bytes.len()].copy_from_slice(bytes);
    HelloAck::decode(&all)
}

#[test]
fn hello_byte_for_byte() {
    #[rustfmt::skip]
    let bytes = [
        0, 0, 1, 2,  0, 0, 0, 44,  0, 0, 0, 0,  0, 0, 0, 0,
        b'i', b'S', b'D', b'P',  3, 0x60, 5, 0,  0, 0, 0, 9,  0, 0, 0x43, 0x21,
        0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,  7, 8, 0, 0,
    ];
    assert_eq!(hello().encode(), bytes);
    const { assert!(HELLO_LEN <= HELLO_ROOM) };
}

#[test]
fn hello_ack_byte_for_byte() {
    #[rustfmt::skip]
    let bytes = [
        1, 0, 3, 4,  0, 0, 0, 32,  0, 0, 0, 0,  0, 0, 0, 0,
        b'i', b'S', b'D', b'P',  3, 0, 6, 0,  0, 0, 0, 1,  0, 1, 0x23, 0x45,
    ];
    assert_eq!(ack().encode(), bytes);
    const { assert!(HELLO_ACK_LEN <= HELLO_ACK_ROOM) };
}

#[test]
fn broken_hellos_are_named() {
    use Violation as V;
    assert_eq!(changed(0, &[0]), Ok(hello()));
    assert_eq!(changed(0, &[0x55]), Err(V::UnknownMid));
    assert_eq!(changed(0, &[1]), Err(V::UnexpectedMid));
    assert_eq!(changed(0, &[0xff]), Err(V::UnexpectedMid));
    assert_eq!(changed(1, &[2]), Err(V::BadFlags));
    assert_eq!(changed(2, &[0, 0]), Err(V::TooFewBuffers));
    assert_eq!(changed(2, &[0, 4]), Err(V::TooFewBuffers));
    assert!(changed(2, &[0, 5]).is_ok());
    assert_eq!(changed(11, &[1]), Err(V::BadSequence));
    assert_eq!(changed(15, &[1]), Err(V::BadSequence));
    assert_eq!(changed(16, b"I"), Err(V::BadMagic));
    assert_eq!(changed(20, &[2]), Err(V::BadVersion));
    assert_eq!(changed(20, &[4]), Err(V::BadVersion));
    assert_eq!(changed(21, &[0]), Err(V::BadBody));
    assert_eq!(changed(21, &[0x20]), Err(V::BadBody));
    assert_eq!(changed(22, &[0]), Err(V::NoAdverts));
    assert_eq!(changed(23, &[1]), Err(V::BadBody));
    assert_eq!(changed(40, &[0, 0]), Err(V::BadBody));
    assert_eq!(changed(43, &[1]), Err(V::BadBody));
    for (size, good) in [
        (0, false),
        (RCV_SIZE_MIN - 1, false),
        (RCV_SIZE_MIN, true),
        (RCV_SIZE_MAX, true),
        (RCV_SIZE_MAX + 1, false),
        (u32::MAX, false),
    ] {
        let got = changed(28, &size.to_be_bytes());
        assert_eq!(got.is_ok(), good, "{size}");
        assert!(good || got == Err(V::BadReceiveSize));
    }
}

#[test]
fn broken_hello_acks_are_named() {
    use Violation as V;
    assert_eq!(changed_ack(0, &[1]), Ok(ack()));
    assert_eq!(changed_ack(0, &[0]), Err(V::UnexpectedMid));
    assert_eq!(changed_ack(1, &[4]), Err(V::BadFlags));
    assert_eq!(changed_ack(2, &[0, 4]), Err(V::TooFewBuffers));
    assert_eq!(changed_ack(8, &[1]), Err(V::BadSequence));
    assert_eq!(changed_ack(12, &[1]), Err(V::BadSequence));
    assert_eq!(changed_ack(19, b"Q"), Err(V::BadMagic));
    assert_eq!(changed_ack(20, &[0x22]), Err(V::BadVersion));
    assert_eq!(changed_ack(21, &[0x40]), Err(V::BadBody));
    assert_eq!(changed_ack(22, &[0]), Err(V::NoAdverts));
    assert_eq!(changed_ack(23, &[9]), Err(V::BadBody));
    assert_eq!(changed_ack(28, &[1]), Err(V::BadReceiveSize));
}

/// The length of the header counts, and is looked at before all else.
#[test]
fn the_length_comes_first() {
    use Violation as V;
    let len = |n: u32| changed(4, &n.to_be_bytes());
    assert_eq!(len(HELLO_ROOM as u32 + 1), Err(V::LengthMismatch));
    assert_eq!(len(u32::MAX), Err(V::LengthMismatch));
    assert_eq!(len(15), Err(V::LengthMismatch));
    // Even before it matters whether this is an SDP at all.
    let mut foreign = in_room(&hello().encode(), HELLO_ROOM, 0);
    foreign[7] = HELLO_ROOM as u8 + 1;
    foreign[16] = 0;
    assert_eq!(Hello::decode(&foreign), Err(V::LengthMismatch));
    // Bytes behind the length do not count as there.
    assert_eq!(len(16), Err(V::BadMagic));
    assert_eq!(len(19), Err(V::BadMagic));
    assert_eq!(len(20), Err(V::ShortMessage));
    for other in (21..=HELLO_ROOM as u32).filter(|n| *n as usize != HELLO_LEN) {
        assert_eq!(len(other), Err(V::LengthMismatch), "{other}");
    }
    // Another version may have another length, and is told why it is refused.
    let mut newer = in_room(&hello().encode(), HELLO_ROOM, 0);
    newer[7] = 50;
    newer[20] = 4;
    assert_eq!(Hello::decode(&newer), Err(V::BadVersion));
    assert_eq!(Refusal::of(V::BadVersion), Refusal::BadVersion);
    assert_eq!(Refusal::of(V::NoAdverts), Refusal::BadHello);
}

#[test]
fn cut_private_data() {
    let bytes = hello().encode();
    for n in 0..HELLO_LEN {
        assert!(Hello::decode(&bytes[..n]).is_err());
    }
    let bytes = ack().encode();
    for n in 0..HELLO_ACK_LEN {
        assert!(HelloAck::decode(&bytes[..n]).is_err());
    }
}

/// A request that is not ours at all, as other users of the port space send.
#[test]
fn foreign_requests() {
    assert_eq!(
        Hello::decode(&[0; HELLO_ROOM]),
        Err(Violation::LengthMismatch)
    );
    assert_eq!(Hello::decode(&[0xff; HELLO_ROOM]), Err(Violation::BadFlags));
    // The Hello of the old SDPs: majv_minv behind the header.
    let mut old = [0; HELLO_ROOM];
    old[7] = 52;
    old[16] = 0x22;
    assert_eq!(Hello::decode(&old), Err(Violation::BadMagic));
}

#[test]
fn features_of_the_future_are_dropped() {
    let got = changed(24, &[0xff; 4]).unwrap();
    assert_eq!(got.features, Features::ALL);
    let got = changed_ack(24, &[0xff; 4]).unwrap();
    assert_eq!(got.features, Features::ALL);
}

#[test]
fn an_answer_claims_no_more_than_was_offered() {
    let mut answer = ack();
    assert_eq!(answer.check_against(&hello()), Ok(()));
    answer.features = Features::NONE;
    assert_eq!(answer.check_against(&hello()), Ok(()));
    answer.features = Features::ORDERED.union(Features::SINK);
    let refused = Err(Violation::BadFeatures);
    assert_eq!(answer.check_against(&hello()), refused);
}

#[test]
fn features_decide_which_messages_may_come() {
    let source = ["SrcAvail", "RdmaRdCompl", "SrcAvailCancel", "SendSm"];
    let sink = [
        "SinkAvail",
        "RdmaWrCompl",
        "SinkAvailCancel",
        "SinkCancelAck",
    ];
    for bits in 0..16 {
        let features = Features::from_bits(bits);
        for mid in Mid::ALL {
            let expected = if source.contains(&mid.name()) {
                bits & 8 != 0
            } else if sink.contains(&mid.name()) {
                bits & 4 != 0 && bits & 1 != 0
            } else {
                !mid.name().starts_with("Hello")
            };
            let got = features.permit(mid);
            assert_eq!(got.is_ok(), expected, "{mid:?} with {features:?}");
            assert!(expected || got == Err(Violation::UnexpectedMid));
        }
    }
}

#[test]
fn refusals() {
    for refusal in Refusal::ALL {
        let bytes = refusal.encode();
        assert_eq!(Refusal::decode(&bytes), Some(refusal));
        // In the room that the CM reports.
        assert_eq!(Refusal::decode(&in_room(&bytes, 148, 0xee)), Some(refusal));
    }
    let bytes = Refusal::NoListener.encode();
    assert_eq!(bytes[..6], [b'n', b'S', b'D', b'P', 3, 1]);
    // Another version's refusal is understood.
    let mut newer = bytes;
    newer[4] = 9;
    assert_eq!(Refusal::decode(&newer), Some(Refusal::NoListener));
    let mut unknown = bytes;
    unknown[5] = 200;
    assert_eq!(Refusal::decode(&unknown), None);
    assert_eq!(Refusal::decode(&[0; 148]), None);
    assert_eq!(Refusal::decode(&[]), None);
    assert_eq!(Refusal::decode(&bytes[..5]), None);
}

proptest! {
    #[test]
    fn hello_round_trip(
        bits: u32, max_adverts in 1_u8.., bufs in BUFS_MIN.., filler: u8, ipv6: bool,
        rcv_size in RCV_SIZE_MIN..=RCV_SIZE_MAX, src_port in 1_u16.., nonce: u64,
    ) {
        let features = Features::from_bits(bits);
        let hello = Hello { features, max_adverts, bufs, rcv_size, ipv6, src_port, nonce };
        let room = in_room(&hello.encode(), HELLO_ROOM, filler);
        prop_assert_eq!(Hello::decode(&room), Ok(hello));
        let ack = HelloAck { features, max_adverts, bufs, rcv_size };
        let room = in_room(&ack.encode(), HELLO_ACK_ROOM, filler);
        prop_assert_eq!(HelloAck::decode(&room), Ok(ack));
    }

    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..220)) {
        let _ = Hello::decode(&data);
        let _ = HelloAck::decode(&data);
        let _ = Refusal::decode(&data);
    }

    #[test]
    fn intersection_is_what_both_have(a: u32, b: u32) {
        let (a, b) = (Features::from_bits(a), Features::from_bits(b));
        let both = a.intersection(b);
        prop_assert!(a.contains(both) && b.contains(both));
        prop_assert!(a.union(b).contains(a) && a.union(b).contains(b));
        prop_assert_eq!(both.bits(), a.bits() & b.bits());
    }
}
