// SPDX-License-Identifier: GPL-2.0

//! The header and the message identifiers.

use proptest::prelude::*;
use proto_host::proto::{
    bsdh::{
        Bsdh,
        Class,
        Mid,
        BSDH_LEN,
        FLAG_OOB_PEND,
        FLAG_OOB_PRES,
        FLAG_REQ_PIPE, //
    },
    violation::Violation,
};

/// The table of the protocol, written down a second time.
const WIRE: [(u8, &str); 18] = [
    (0x00, "Hello"),
    (0x01, "HelloAck"),
    (0x02, "DisConn"),
    (0x03, "AbortConn"),
    (0x04, "SendSm"),
    (0x05, "RdmaWrCompl"),
    (0x06, "RdmaRdCompl"),
    (0x07, "ModeChange"),
    (0x08, "SrcAvailCancel"),
    (0x09, "SinkAvailCancel"),
    (0x0a, "SinkCancelAck"),
    (0x0b, "ChRcvBuf"),
    (0x0c, "ChRcvBufAck"),
    (0x0d, "Suspend"),
    (0x0e, "SuspendAck"),
    (0xfd, "SinkAvail"),
    (0xfe, "SrcAvail"),
    (0xff, "Data"),
];

fn sample() -> Bsdh {
    Bsdh {
        mid: Mid::Data,
        flags: FLAG_OOB_PEND | FLAG_REQ_PIPE,
        bufs: 0x0102,
        len: 0x0304_0506,
        mseq: 0x0708_090a,
        mseq_ack: 0x0b0c_0d0e,
    }
}

#[test]
fn identifiers_are_those_of_the_table() {
    for byte in 0..=u8::MAX {
        let expected = WIRE.iter().find(|(b, _)| *b == byte).map(|(_, name)| *name);
        let mid = Mid::from_wire(byte);
        assert_eq!(mid.map(Mid::name), expected, "{byte:#x}");
        if let Some(mid) = mid {
            assert_eq!(mid.wire(), byte);
        }
    }
}

#[test]
fn fields_lie_where_they_belong() {
    let bytes = [0xff, 6, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
    assert_eq!(sample().encode(), bytes);
    assert_eq!(Bsdh::decode(&bytes), Ok(sample()));
}

#[test]
fn classes() {
    let payload = ["Data", "SrcAvail", "SinkAvail"];
    for mid in Mid::ALL {
        let expected = match mid.name() {
            "AbortConn" => Class::Update,
            name if payload.contains(&name) => Class::Payload,
            _ => Class::Control,
        };
        assert_eq!(mid.class(), expected, "{mid:?}");
        assert_eq!(mid.is_payload(), ["Data", "SrcAvail"].contains(&mid.name()));
    }
    let mins: Vec<u32> = Class::ALL.iter().map(|c| c.min_credits()).collect();
    assert_eq!(mins, [4, 2, 1]);
}

#[test]
fn data_without_data_is_an_update() {
    let empty = Bsdh {
        len: 16,
        ..sample()
    };
    assert!(empty.is_pure_update() && !empty.is_payload());
    assert_eq!(empty.class(), Class::Update);
    let one = Bsdh {
        len: 17,
        ..sample()
    };
    assert!(!one.is_pure_update() && one.is_payload());
    assert_eq!(one.class(), Class::Payload);
    // A source advert holds on to its receive even without inline bytes.
    let advert = Bsdh {
        mid: Mid::SrcAvail,
        len: 32,
        ..sample()
    };
    assert!(advert.is_payload() && !advert.is_pure_update());
}

#[test]
fn limit_wraps() {
    let hdr = Bsdh {
        mseq_ack: u32::MAX,
        bufs: 3,
        ..sample()
    };
    assert_eq!(hdr.limit(), 2);
}

#[test]
fn bad_headers_are_named() {
    let good = sample().encode();
    for len in 0..BSDH_LEN {
        assert_eq!(Bsdh::decode(&good[..len]), Err(Violation::ShortMessage));
    }
    let with = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        Bsdh::decode(&bytes)
    };
    assert_eq!(with(0, 0x0f), Err(Violation::UnknownMid));
    assert_eq!(with(1, 0x08), Err(Violation::BadFlags));
    assert_eq!(with(1, 0x80), Err(Violation::BadFlags));
    let mut short = sample();
    for len in 0..16 {
        short.len = len;
        let decoded = Bsdh::decode(&short.encode());
        assert_eq!(decoded, Err(Violation::LengthMismatch));
    }
}

#[test]
fn only_data_carries_an_urgent_byte() {
    let urgent = |mid, len| {
        let hdr = Bsdh {
            mid,
            len,
            flags: FLAG_OOB_PRES,
            ..sample()
        };
        Bsdh::decode(&hdr.encode()).map(|_| ())
    };
    assert_eq!(urgent(Mid::Data, 17), Ok(()));
    assert_eq!(urgent(Mid::Data, 16), Err(Violation::BadFlags));
    assert_eq!(urgent(Mid::SrcAvail, 40), Err(Violation::BadFlags));
    assert_eq!(urgent(Mid::DisConn, 16), Err(Violation::BadFlags));
}

proptest! {
    #[test]
    fn round_trip(
        mid in prop::sample::select(&Mid::ALL[..]),
        flags in prop::sample::select(&[0, FLAG_OOB_PEND, FLAG_REQ_PIPE, 6][..]),
        bufs: u16, len in 16_u32.., mseq: u32, mseq_ack: u32,
    ) {
        let hdr = Bsdh { mid, flags, bufs, len, mseq, mseq_ack };
        prop_assert_eq!(Bsdh::decode(&hdr.encode()), Ok(hdr));
    }
}
