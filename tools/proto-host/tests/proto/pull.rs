// SPDX-License-Identifier: GPL-2.0

//! When adverts are read without a reader.

use proptest::prelude::*;
use proto_host::proto::pull::{
    pull,
    Pull,
    PullLimits,
    PullReason,
    Waiting, //
};

const LIMITS: PullLimits = PullLimits {
    delay_us: 3000,
    small_bytes: 512,
};

/// An advert that has just come, and nobody who reads.
const WAITING: Waiting = Waiting {
    untaken_bytes: 1000,
    room_bytes: 600,
    waited_us: 0,
    own_sender_waits: false,
    peek: false,
    reader_bytes: None,
    end_of_stream: false,
    polls: false,
};

fn now(why: PullReason) -> Pull {
    Pull::Now { bytes: 600, why }
}

#[test]
fn each_reason() {
    let pulled = |waiting| pull(waiting, LIMITS);
    assert_eq!(pulled(WAITING), Pull::Later { us: 3000 });
    let late = |waited_us| Waiting {
        waited_us,
        ..WAITING
    };
    assert_eq!(pulled(late(2999)), Pull::Later { us: 1 });
    assert_eq!(pulled(late(3000)), now(PullReason::Delay));
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
    let peek = Waiting {
        peek: true,
        ..reader(512)
    };
    assert_eq!(pulled(peek), now(PullReason::Peek));
}

#[test]
fn names() {
    for why in PullReason::ALL {
        assert_eq!(why.name(), format!("{why:?}"));
        assert_eq!(PullReason::ALL[why as usize], why);
    }
}

proptest! {
    /// Nothing without bytes and room, never more than both; and whoever is
    /// told to wait is told how long.
    #[test]
    fn bounds(untaken in 0_u64..9, room in 0_u64..9, waited in 0_u64..4000, b: [bool; 5]) {
        let waiting = Waiting {
            untaken_bytes: untaken,
            room_bytes: room,
            waited_us: waited,
            own_sender_waits: b[0],
            peek: b[1],
            reader_bytes: b[2].then_some(600),
            end_of_stream: b[3],
            polls: b[4],
        };
        match pull(waiting, LIMITS) {
            Pull::No => prop_assert!(untaken == 0 || room == 0 || b[2]),
            Pull::Later { us } => prop_assert!(us > 0 && us + waited == 3000),
            Pull::Now { bytes, .. } => prop_assert!(bytes > 0 && bytes == untaken.min(room)),
        }
    }
}
