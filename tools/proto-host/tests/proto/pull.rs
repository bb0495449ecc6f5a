// SPDX-License-Identifier: GPL-2.0

//! When adverts are read without a reader.

use proptest::prelude::*;
use proto_host::proto::pull::{
    pull,
    Pull,
    PullReason,
    Waiting, //
};

const SMALL: u64 = 512;

/// An advert that has just come, and nobody who reads.
const WAITING: Waiting = Waiting {
    untaken_bytes: 1000,
    room_bytes: 600,
    now: None,
    own_sender_waits: false,
    reader_bytes: None,
    end_of_stream: false,
    polls: false,
};

fn now(why: PullReason) -> Pull {
    Pull::Now { bytes: 600, why }
}

#[test]
fn each_reason() {
    let pulled = |waiting| pull(waiting, SMALL);
    assert_eq!(pulled(WAITING), Pull::Later);
    for why in [PullReason::Delay, PullReason::Reader] {
        let waiting = Waiting {
            now: Some(why),
            ..WAITING
        };
        assert_eq!(pulled(waiting), now(why));
    }
    let sender = Waiting {
        own_sender_waits: true,
        ..WAITING
    };
    assert_eq!(pulled(sender), now(PullReason::OwnSenderWaits));
    let end = Waiting {
        end_of_stream: true,
        ..WAITING
    };
    assert_eq!(pulled(end), now(PullReason::EndOfStream));
    let polls = Waiting {
        polls: true,
        ..WAITING
    };
    assert_eq!(pulled(polls), now(PullReason::Polls));
    let reader = |bytes| Waiting {
        reader_bytes: Some(bytes),
        ..sender
    };
    assert_eq!(pulled(reader(512)), Pull::No);
    assert_eq!(pulled(reader(511)), now(PullReason::SmallRead));
}

#[test]
fn names() {
    for why in PullReason::ALL {
        assert_eq!(why.name(), format!("{why:?}"));
        assert_eq!(PullReason::ALL[why as usize], why);
    }
}

proptest! {
    /// Nothing without bytes and room, never more than both.
    #[test]
    fn bounds(untaken in 0_u64..9, room in 0_u64..9, b: [bool; 5]) {
        let waiting = Waiting {
            untaken_bytes: untaken,
            room_bytes: room,
            now: b[1].then_some(PullReason::Delay),
            own_sender_waits: b[0],
            reader_bytes: b[2].then_some(600),
            end_of_stream: b[3],
            polls: b[4],
        };
        match pull(waiting, SMALL) {
            Pull::No => prop_assert!(untaken == 0 || room == 0 || b[2]),
            Pull::Later => prop_assert!(!b[1] && !b[2]),
            Pull::Now { bytes, .. } => prop_assert!(bytes > 0 && bytes == untaken.min(room)),
        }
    }
}
