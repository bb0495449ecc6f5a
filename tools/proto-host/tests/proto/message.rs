// SPDX-License-Identifier: GPL-2.0

//! Every message of the stream: its bytes, its round trip, its refusals.

use proptest::prelude::*;
use proto_host::proto::{
    bsdh::{
        Bsdh,
        Class,
        Mid, //
    },
    credits::Stamp,
    hello::{
        RCV_SIZE_MAX,
        RCV_SIZE_MIN, //
    },
    message::{
        Body,
        FlowMode,
        Message,
        Mode,
        MAX_BODY, //
    },
    violation::Violation,
};

const STAMP: Stamp = Stamp {
    mseq: 7,
    mseq_ack: 9,
    bufs: 11,
};

/// Header and rest of a message with `payload` behind its body.
pub(crate) fn wire(body: Body, payload: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut buf = [0; MAX_BODY];
    let len = body.encode(&mut buf);
    let hdr = body.header(0, payload.len() as u32, STAMP).unwrap();
    let rest = [&buf[..len], payload].concat();
    (hdr.encode().to_vec(), rest)
}

fn decode(hdr: &[u8], rest: &[u8]) -> Result<Message, Violation> {
    Message::decode(hdr, rest, (hdr.len() + rest.len()) as u32)
}

/// A header for `mid` followed by `rest`, whatever those bytes are.
fn raw(mid: Mid, rest: &[u8]) -> Result<Message, Violation> {
    let hdr = Bsdh {
        mid,
        flags: 0,
        bufs: 0,
        len: 16 + rest.len() as u32,
        mseq: 1,
        mseq_ack: 0,
    };
    decode(&hdr.encode(), rest)
}

fn mode() -> impl Strategy<Value = Mode> {
    let flow =
        prop::sample::select(&[FlowMode::Buffered, FlowMode::Combined, FlowMode::Pipelined][..]);
    (flow, any::<bool>()).prop_map(|(flow, sending)| Mode { flow, sending })
}

fn advert() -> impl Strategy<Value = (u32, u32, u64)> {
    (1_u32.., any::<u32>(), any::<u64>())
        .prop_filter("an address that does not wrap", |(len, _, addr)| {
            addr.checked_add(u64::from(len - 1)).is_some()
        })
}

/// Any body that a sender may send.
pub(crate) fn body() -> impl Strategy<Value = Body> {
    let size = RCV_SIZE_MIN..=RCV_SIZE_MAX;
    prop_oneof![
        prop::sample::select(
            &[
                Body::Data,
                Body::DisConn,
                Body::AbortConn,
                Body::SendSm,
                Body::SrcAvailCancel,
                Body::SinkAvailCancel,
                Body::SinkCancelAck,
                Body::SuspendAck,
            ][..]
        ),
        any::<u32>().prop_map(|bytes| Body::RdmaWrCompl { bytes }),
        any::<u32>().prop_map(|bytes| Body::RdmaRdCompl { bytes }),
        mode().prop_map(|mode| Body::ModeChange { mode }),
        size.clone().prop_map(|size| Body::ChRcvBuf { size }),
        size.prop_map(|size| Body::ChRcvBufAck { size }),
        any::<u64>().prop_map(|argument| Body::Suspend { argument }),
        (advert(), any::<u32>()).prop_map(|((len, rkey, addr), count)| Body::SinkAvail {
            len,
            rkey,
            addr,
            count,
        }),
        advert().prop_map(|(len, rkey, addr)| Body::SrcAvail { len, rkey, addr }),
    ]
}

proptest! {
    #[test]
    fn round_trip(body in body(), payload in prop::collection::vec(any::<u8>(), 0..64)) {
        let payload = if body.mid().is_payload() { payload } else { Vec::new() };
        let (hdr, rest) = wire(body, &payload);
        let msg = decode(&hdr, &rest).unwrap();
        prop_assert_eq!(msg.body, body);
        prop_assert_eq!(msg.hdr.mid, body.mid());
        prop_assert_eq!((msg.hdr.mseq, msg.hdr.mseq_ack, msg.hdr.bufs), (7, 9, 11));
        let from = msg.payload_offset as usize;
        prop_assert_eq!(&rest[from..from + msg.payload_len as usize], &payload[..]);
    }

    /// Stale bytes behind what was received change nothing.
    #[test]
    fn stale_bytes_are_not_read(body in body(), stale in prop::collection::vec(any::<u8>(), 0..64)) {
        let (hdr, rest) = wire(body, &[]);
        let longer = [&rest[..], &stale].concat();
        let byte_len = (hdr.len() + rest.len()) as u32;
        prop_assert_eq!(Message::decode(&hdr, &longer, byte_len), decode(&hdr, &rest));
    }

    /// A message cut anywhere is refused, whether its header knows or not.
    #[test]
    fn cut_messages_are_refused(body in body(), at in 0_usize..36) {
        let (hdr, rest) = wire(body, &[]);
        let all = [hdr, rest].concat();
        prop_assume!(at < all.len());
        let (hdr, rest) = all[..at].split_at(at.min(16));
        let cut = Message::decode(hdr, rest, at as u32);
        prop_assert!(matches!(cut, Err(Violation::ShortMessage | Violation::LengthMismatch)));
        if at >= 16 {
            let mut honest = hdr.to_vec();
            honest[4..8].copy_from_slice(&(at as u32).to_be_bytes());
            prop_assert_eq!(decode(&honest, rest), Err(Violation::ShortMessage));
        }
    }

    /// Bytes behind a message without payload are refused.
    #[test]
    fn trailing_bytes_are_refused(body in body(), extra in 1_usize..40) {
        prop_assume!(!body.mid().is_payload());
        let (_, rest) = wire(body, &[]);
        let longer = [rest, vec![0; extra]].concat();
        prop_assert_eq!(raw(body.mid(), &longer), Err(Violation::BadBody));
    }

    /// Any bytes end in a message or in a violation.
    #[test]
    fn any_bytes(hdr in prop::collection::vec(any::<u8>(), 0..20),
                 rest in prop::collection::vec(any::<u8>(), 0..40), byte_len: u32) {
        let _ = Message::decode(&hdr, &rest, byte_len);
        let _ = decode(&hdr, &rest);
    }
}

/// Every body with a layout, byte for byte.
#[test]
fn fields_lie_where_they_belong() {
    let check = |body: Body, bytes: &[u8]| assert_eq!(wire(body, &[]).1, bytes, "{body:?}");
    check(Body::RdmaWrCompl { bytes: 0x0102_0304 }, &[1, 2, 3, 4]);
    check(Body::RdmaRdCompl { bytes: 0x0102_0304 }, &[1, 2, 3, 4]);
    check(Body::ChRcvBuf { size: 0x1_0203 }, &[0, 1, 2, 3]);
    check(Body::ChRcvBufAck { size: 0x1_0203 }, &[0, 1, 2, 3]);
    check(
        Body::Suspend {
            argument: 0x0102_0304_0506_0708,
        },
        &[1, 2, 3, 4, 5, 6, 7, 8],
    );
    let (len, rkey, addr) = (0x0102_0304, 0x0506_0708, 0x090a_0b0c_0d0e_0f10);
    let src: Vec<u8> = (1..=16).collect();
    check(Body::SrcAvail { len, rkey, addr }, &src);
    let count = 0x1112_1314;
    let sink: Vec<u8> = (1..=20).collect();
    check(
        Body::SinkAvail {
            len,
            rkey,
            addr,
            count,
        },
        &sink,
    );
    let change = |flow, sending| Body::ModeChange {
        mode: Mode { flow, sending },
    };
    check(change(FlowMode::Buffered, false), &[0x00, 0, 0, 0]);
    check(change(FlowMode::Combined, false), &[0x10, 0, 0, 0]);
    check(change(FlowMode::Pipelined, true), &[0xa0, 0, 0, 0]);
}

#[test]
fn every_stream_message_has_a_body() {
    let (mut with, mut without) = (0, 0);
    for mid in Mid::ALL {
        // A body that is good for every message: an advert of one byte, or a
        // mode, or a permitted size, in the first bytes.
        let mut any = [0_u8; MAX_BODY];
        any[2] = 0x10;
        let lens = (0..=MAX_BODY).filter(|&len| {
            let got = raw(mid, &any[..len]);
            if let Ok(msg) = got {
                assert_eq!(msg.hdr.mid, mid);
                assert_eq!(msg.body.mid(), mid);
                assert_eq!(msg.body.is_empty(), msg.payload_offset == 0);
            }
            got.is_ok()
        });
        match (mid, lens.count()) {
            (Mid::Hello | Mid::HelloAck, n) => assert_eq!(n, 0),
            (Mid::Data, n) => assert_eq!(n, MAX_BODY + 1),
            (Mid::SrcAvail, n) => assert_eq!(n, MAX_BODY + 1 - 16),
            // The bytes of a size are not a mode.
            (Mid::ModeChange, n) => assert_eq!(n, 0),
            (_, n) => {
                assert_eq!(n, 1, "{mid:?} has exactly one length");
                with += 1;
                continue;
            }
        }
        without += 1;
    }
    assert_eq!((with, without), (13, 5));
}

#[test]
fn hello_has_no_place_in_the_stream() {
    assert_eq!(raw(Mid::Hello, &[]), Err(Violation::UnexpectedMid));
    assert_eq!(raw(Mid::HelloAck, &[]), Err(Violation::UnexpectedMid));
}

#[test]
fn adverts_that_no_sender_may_use() {
    let advert = |len: u32, addr: u64| {
        let mut rest = [0; 16];
        rest[..4].copy_from_slice(&len.to_be_bytes());
        rest[8..].copy_from_slice(&addr.to_be_bytes());
        let sink = [&rest[..], &[0; 4]].concat();
        let got = (raw(Mid::SrcAvail, &rest), raw(Mid::SinkAvail, &sink));
        assert_eq!(got.0.map(|_| ()), got.1.map(|_| ()));
        got.0.map(|_| ())
    };
    assert_eq!(advert(0, 4096), Err(Violation::BadBody));
    assert_eq!(advert(2, u64::MAX), Err(Violation::BadBody));
    assert_eq!(
        advert(u32::MAX, u64::MAX - 0xffff_fffd),
        Err(Violation::BadBody)
    );
    // Up to the very last byte of the address space is a buffer.
    assert_eq!(advert(1, u64::MAX), Ok(()));
    assert_eq!(advert(u32::MAX, 0), Ok(()));
}

#[test]
fn modes_that_do_not_exist() {
    for first in 0..=u8::MAX {
        let good = [0x00, 0x10, 0x20, 0x80, 0x90, 0xa0].contains(&first);
        let got = raw(Mid::ModeChange, &[first, 0, 0, 0]);
        assert_eq!(got.is_ok(), good, "{first:#x}");
    }
    assert_eq!(raw(Mid::ModeChange, &[0, 0, 0, 1]), Err(Violation::BadBody));
}

#[test]
fn receive_sizes_have_a_range() {
    for mid in [Mid::ChRcvBuf, Mid::ChRcvBufAck] {
        let size = |n: u32| raw(mid, &n.to_be_bytes()).map(|_| ());
        assert_eq!(size(RCV_SIZE_MIN), Ok(()));
        assert_eq!(size(RCV_SIZE_MAX), Ok(()));
        assert_eq!(size(RCV_SIZE_MIN - 1), Err(Violation::BadReceiveSize));
        assert_eq!(size(RCV_SIZE_MAX + 1), Err(Violation::BadReceiveSize));
    }
}

#[test]
fn lengths_that_disagree() {
    let (hdr, rest) = wire(Body::Data, b"hello");
    let by_adapter = |n| Message::decode(&hdr, &rest, n).map(|m| m.payload_len);
    assert_eq!(by_adapter(21), Ok(5));
    assert_eq!(by_adapter(20), Err(Violation::LengthMismatch));
    assert_eq!(by_adapter(22), Err(Violation::LengthMismatch));
    assert_eq!(by_adapter(15), Err(Violation::ShortMessage));
    assert_eq!(by_adapter(0), Err(Violation::ShortMessage));
}

/// The payload need not be at hand.
#[test]
fn payload_is_not_read() {
    let (hdr, _) = wire(Body::Data, &[0; 1000]);
    let msg = Message::decode(&hdr, &[], 1016).unwrap();
    assert_eq!((msg.payload_offset, msg.payload_len), (0, 1000));
}

#[test]
fn a_message_too_long_for_its_header_has_none() {
    assert!(Body::Data.header(0, u32::MAX - 16, STAMP).is_some());
    assert_eq!(Body::Data.header(0, u32::MAX - 15, STAMP), None);
    let advert = Body::SrcAvail {
        len: 1,
        rkey: 0,
        addr: 0,
    };
    assert_eq!(advert.header(0, u32::MAX - 31, STAMP), None);
}

#[test]
fn classes_follow_the_payload() {
    assert_eq!(Body::Data.class(0), Class::Update);
    assert_eq!(Body::Data.class(1), Class::Payload);
    assert_eq!(Body::AbortConn.class(0), Class::Update);
    assert_eq!(Body::DisConn.class(0), Class::Control);
}
